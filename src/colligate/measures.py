"""One definition for each measure: recognition, retrieval, their levels and ties.

Ties. Two scores are equal when they differ by no more than a relative tolerance: `TIE` for float64, `TIE_FLOAT32` for
float32. A tie is never a win in recognition; retrieval counts one over the number tied. Tie rates are reported.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TIE = 1e-8
"""Relative difference below which two float64 scores are tied."""
TIE_FLOAT32 = 1e-6
"""The same for float32 scores, whose rounding is coarser."""


def tie_tolerance(dtype: torch.dtype) -> float:
    """Relative tolerance under which two scores of this type are tied."""
    return TIE if dtype == torch.float64 else TIE_FLOAT32


class Recognition(NamedTuple):
    """Per scene: whether every present query scored strictly above every absent one, and whether the two were tied."""

    hits: Bool[Tensor, " scene"]
    ties: Bool[Tensor, " scene"]


def recognise(
    scores: Float[Tensor, "scene query"],
    present: Bool[Tensor, "scene query"],
    absent: Bool[Tensor, "scene query"] | None = None,
) -> Recognition:
    """Test whether every present query outranks every absent one, strictly.

        hit(s) = min over present q of score(s, q)  >  max over absent q of score(s, q)

    Args:
        scores: one score for each scene and query.
        present: which queries are true of the scene.
        absent: which queries to beat; by default all that aren't present. A scene without any is a hit.

    Raises:
        ValueError: a scene has no present query.

    Paper: arXiv:2605.31503, Def. 3.3 and 3.4.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
        >>> recognise(scores, torch.tensor([[True, False, False]] * 2)).hits.tolist()
        [True, False]
    """
    if not present.any(1).all():
        row = int((~present.any(1)).nonzero()[0])
        raise ValueError(f"Scene {row} has no present query among those scored; score a table that holds it.")
    lowest = scores.masked_fill(~present, torch.inf).amin(1)
    highest = scores.masked_fill(present if absent is None else ~absent, -torch.inf).amax(1)
    margin = lowest - highest
    width = tie_tolerance(scores.dtype) * torch.maximum(lowest.abs(), highest.abs())
    tied = torch.isfinite(highest) & (margin.abs() <= width)
    return Recognition((margin > 0) & ~tied, tied)


class Retrieval(NamedTuple):
    """Per query: share of the top-scoring candidates that are right, first top candidate, how many are tied on top."""

    hits: Float[Tensor, "query key"]
    top: Int[Tensor, " query"]
    tied: Int[Tensor, " query"]


def retrieve(
    scores: Float[Tensor, "query candidate"],
    targets: Int[Tensor, "query key"],
    candidates: Int[Tensor, "candidate key"],
) -> Retrieval:
    """Find the best candidate of each query and say whether it is the right one.

        hit(q) = |{top-scoring candidates c : key(c) = target(q)}| / |{top-scoring candidates}|

    Args:
        scores: one score for each query and candidate.
        targets: the key wanted by each query; several columns are several notions of right, judged in one pass.
        candidates: the key of each candidate; equal keys (replicates of a scene, a scene and its twin) are all right.

    Raises:
        ValueError: a score is not a number.

    Example:
        >>> scores = torch.tensor([[0.0, 1.0, 1.0]])
        >>> retrieve(scores, torch.tensor([[1]]), torch.tensor([[0], [1], [2]])).hits.item()
        0.5
    """
    best, top = scores.max(1)
    if best.isnan().any():
        query = int(best.isnan().nonzero()[0])
        raise ValueError(f"The scores of query {query} are not numbers; embed or fit it again.")
    floor = best - tie_tolerance(scores.dtype) * best.abs()
    scores.scatter_(1, top[:, None], -torch.inf)  # taken out for a moment, so that a second look is one pass
    second = scores.amax(1)
    scores.scatter_(1, top[:, None], best[:, None])
    hits = (candidates[top] == targets).to(torch.float64)
    tied = torch.ones_like(top)
    if bool((second >= floor).any()):
        query, candidate = (scores >= floor[:, None]).nonzero().unbind(1)
        tied = torch.bincount(query, minlength=len(scores))
        right = (candidates[candidate] == targets[query]).double()
        hits = torch.zeros_like(hits).index_add_(0, query, right) / tied[:, None]
    return Retrieval(hits, top, tied)


class Scratch:
    """Memory for the scores of one block, used again by the next: a fresh one costs more than what is computed in it.

    Example:
        >>> scratch, table = Scratch(), torch.tensor([[1.0], [2.0]])
        >>> scratch.rows(table, torch.tensor([1]), "total").tolist()
        [[2.0]]
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def rows(self, of: Float[Tensor, "row _"], which: Int[Tensor, " chosen"], name: str) -> Float[Tensor, "chosen _"]:
        """Rows of a table, in the memory called `name`, whose former content is lost."""
        kept = self._kept.get(name)
        if kept is None or kept.dtype != of.dtype or kept.shape[1] != of.shape[1] or len(kept) < len(which):
            kept = self._kept[name] = of.new_empty(len(which), of.shape[1])
        return torch.index_select(of, 0, which, out=kept[: len(which)])


def retrieve_sums(
    base: Float[Tensor, "query candidate"] | None,
    columns: Int[Tensor, "query part"],
    weights: Float[Tensor, "query part"] | None,
    from_parts: Float[Tensor, "component candidate"],
    targets: Int[Tensor, "query key"],
    keys: Int[Tensor, "candidate key"],
    scratch: Scratch | None = None,
) -> Retrieval:
    """`retrieve` for queries that are sums of components, whose scores are sums of rows computed once.

        score(q, c) = base[q, c] + sum_p weights[q, p] from_parts[columns[q, p], c]

    Args:
        base: scores to start from; zero by default. Overwritten.
        columns: components of each query; -1 for none.
        weights: how much of each; 1 by default.
        from_parts: scores of every component against every candidate.
        targets: as in `retrieve`.
        keys: as in `retrieve`.
        scratch: memory of an earlier block to use again.
    """
    scratch, total = scratch or Scratch(), base
    for p in range(columns.shape[1]):
        part = scratch.rows(from_parts, columns[:, p].clamp(min=0), "total" if total is None else "part")
        if weights is not None:
            part *= weights[:, p, None]
        if bool((columns[:, p] < 0).any()):
            part[columns[:, p] < 0] = 0
        total = part if total is None else total.add_(part)
    assert total is not None
    return retrieve(total, targets, keys)


SCORES_AT_ONCE = 2**18
"""Scores in a block: few enough to stay in a core's cache while they are added up and searched."""


def joined(parts: Sequence[Retrieval], keys: int) -> Retrieval:
    """Outcomes of several blocks, one after the other.

    Example:
        >>> joined([], keys=2).hits.shape
        torch.Size([0, 2])
    """
    if not parts:
        none = torch.zeros(0, dtype=torch.int64)
        return Retrieval(torch.zeros(0, keys, dtype=torch.float64), none, none)
    return Retrieval(*(torch.cat(part) for part in zip(*parts, strict=True)))


class BagLevel(NamedTuple):
    """Per scene, how often an ideal bag of concepts recognises all objects: ties at random, and ties as misses."""

    random_ties: Float[Tensor, " scene"]
    strict: Float[Tensor, " scene"]


def bag_of_concepts_level(
    values_held: Sequence[Int[Tensor, "scene _"]],
    query_values: Int[Tensor, "query concept"],
    present: Bool[Tensor, "scene query"],
) -> BagLevel:
    """Count how well a model does that knows exactly which values are there, how often each, and nothing else.

    Every queried object whose values all occur in the scene may be there. From three slots on counts make some of them
    certain: of three objects two of which are red and two square, one is a red square. Those stand on top; the others
    are tied behind them. With p of these present among t, random order puts the p first with probability
    1 / binomial(t, p).

    Args:
        values_held: for each concept, how many objects of the scene have each of its values (`Scenes.multiplicity`).
        query_values: values of each queried object.
        present: which queried objects the scene holds.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> space = ConceptSpace(color=20, shape=20)
        >>> scenes = space.all_scenes(slots=2)[torch.arange(0, 160000, 7)]
        >>> level = bag_of_concepts_level([scenes.multiplicity(0), scenes.multiplicity(1)],
        ...     space.object_values(torch.arange(400)), scenes.contains_objects())
        >>> round(level.random_ties.mean().item(), 2), round(level.strict.mean().item(), 2)
        (0.25, 0.1)
    """
    possible, left_over = torch.ones_like(present), -(len(values_held) - 1) * values_held[0].sum(1, keepdim=True)
    for concept, held in enumerate(values_held):
        times = held[:, query_values[:, concept]]
        possible &= times > 0
        left_over = left_over + times
    certain = possible & (left_over > 0)  # by inclusion and exclusion: fewest objects that have all of its values
    sure = certain.sum(1)
    tied, held = (possible.sum(1) - sure).double(), (present.sum(1) - sure).double()
    log_orders = torch.lgamma(tied + 1) - torch.lgamma(held + 1) - torch.lgamma(tied - held + 1)
    return BagLevel(torch.exp(-log_orders), (tied == held).double())


MOST_ARRANGEMENTS = 720
"""Most ways to put a scene's values together that are listed for the ceiling of blindness."""
COUNTED = "no interval: counted from the values of the scenes, not sampled"
"""Why the ceiling of blindness has no interval."""
UNLISTED = "too many ways to put a scene's values together to list them"
"""Why there is no ceiling of blindness."""


def blind_ceiling(
    values: Int[Tensor, "scene slot concept"], known: Int[Tensor, " object"], strides: Int[Tensor, " concept"]
) -> Float[Tensor, " scene"] | None:
    """The most that any scores reach which are the same for all scenes with the same values, equally often.

        ceiling(F) = max over sets Y of P(Y | F),    P: every way to put the values together is as likely as any other

    Such scores put one set of objects on top, whichever way it was found, so they are right as often as that set is the
    scene's. For two objects that differ in two concepts it is 1/2: the scene or its swap.

    Args:
        values: of each scene's objects; -1 where a slot is empty.
        known: ids of the objects that occur; ways that need others are left out.
        strides: what the values of an object are multiplied by in its id.

    Returns:
        None where there are more than `MOST_ARRANGEMENTS` ways for one scene.

    Example:
        >>> scenes = torch.tensor([[[0, 0], [1, 1]], [[0, 0], [0, 1]]])
        >>> blind_ceiling(scenes, torch.arange(4), torch.tensor([2, 1])).tolist()
        [0.5, 1.0]
    """
    slots, concepts = values.shape[1:]
    if concepts == 1:  # values are objects: there is one way
        return torch.ones(len(values), dtype=torch.float64)
    orders = torch.tensor(list(permutations(range(slots))), device=values.device)
    if len(orders) ** (concepts - 1) > MOST_ARRANGEMENTS:
        return None
    bags, of_scene = values.sort(dim=1).values.flatten(1).unique(dim=0, return_inverse=True)
    found = torch.zeros(len(bags), dtype=torch.float64)
    ways = torch.cartesian_prod(*[torch.arange(len(orders))] * (concepts - 1)).reshape(-1, concepts - 1)
    block = max(1, 2**22 // len(ways) ** 2)
    for start in range(0, len(bags), block):
        held = bags[start : start + block].unflatten(1, (slots, concepts))
        ids = (held[:, :, 0] * strides[0])[:, None]
        empty = (held[:, :, 0] < 0)[:, None]
        valid = torch.ones(len(held), len(ways), dtype=torch.bool)
        for c in range(1, concepts):
            put = held[:, :, c][:, orders[ways[:, c - 1]]]  # scene, way, slot
            valid &= ((put < 0) == empty).all(2)
            ids = ids + put * strides[c]
        ids = torch.where(empty, -1, ids)
        valid &= (torch.isin(ids, known) | empty).all(2)
        sets = ids.sort(2).values
        alike = (sets[:, :, None] == sets[:, None]).all(3) & valid[:, None] & valid[:, :, None]
        found[start : start + block] = alike.sum(2).amax(1) / valid.sum(1).clamp(min=1)
    return found[of_scene]


def num_distinct(objects: Int[Tensor, "scene slot"]) -> Int[Tensor, " scene"]:
    """How many different objects each row holds; -1 is none.

    Example:
        >>> num_distinct(torch.tensor([[3, 1, 3], [-1, 2, -1]])).tolist()
        [2, 1]
    """
    ordered = objects.sort(dim=1).values
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return (new & (ordered >= 0)).sum(1)


def chance_level(present: Bool[Tensor, "scene query"]) -> Float[Tensor, " scene"]:
    """Probability that random scores put all present queries first: 1 / binomial(queries, present).

    Example:
        >>> round(chance_level(torch.tensor([[True, True, False, False]])).item(), 4)
        0.1667
    """
    held = present.sum(1)
    return chance_of_order(held, present.shape[1] - held)


def chance_of_order(held: Int[Tensor, " scene"], foils: Int[Tensor, " scene"]) -> Float[Tensor, " scene"]:
    """Probability that random scores put `held` queries before `foils` others: 1 / binomial(held + foils, held).

    Example:
        >>> round(chance_of_order(torch.tensor([2]), torch.tensor([2])).item(), 4)
        0.1667
    """
    first, rest = held.double(), foils.double()
    return torch.exp(torch.lgamma(first + 1) + torch.lgamma(rest + 1) - torch.lgamma(first + rest + 1))
