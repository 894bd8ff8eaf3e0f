"""Recognition with queries: does a scene's vector lie nearer to every text that is true of it than to any other?"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from colligate.crossmodal.queries import QueryVectors
from colligate.measures import (
    bag_of_concepts_level,
    chance_level,
    chance_of_order,
    num_distinct,
    recognise,
    tie_tolerance,
)
from colligate.probes.swaps import BothRight, both_ways
from colligate.scenes.space import EMPTY, Scenes

BLOCK = 2**22
"""Scores held at a time; larger tables of scenes and queries are read in blocks of scenes."""


@dataclass(frozen=True, eq=False)
class CrossRecognition:
    """Per scene, whether every query that is true of it scores strictly above every one that is not.

    Attributes:
        concepts: for each concept, its values; no columns where values weren't asked for.
        across: all values of all concepts at once (Definition 3.3 as written).
        objects: objects (Definition 3.4).
        swaps: present objects against those of the swapped scene.
        swappable: where a swap makes objects that weren't there; `swaps` is False elsewhere.
        concept_ties: for each concept, lowest present and highest absent value tied.
        object_ties: the same of objects.
        chance: probability that random scores recognise the objects.
        bag: the same of an ideal bag of concepts, ties at random.
        bag_strict: the same, a tie being a miss.
    """

    concepts: Bool[Tensor, "scene concept"]
    across: Bool[Tensor, " scene"]
    objects: Bool[Tensor, " scene"]
    swaps: Bool[Tensor, " scene"]
    swappable: Bool[Tensor, " scene"]
    concept_ties: Bool[Tensor, "scene concept"]
    object_ties: Bool[Tensor, " scene"]
    chance: Float[Tensor, " scene"]
    bag: Float[Tensor, " scene"]
    bag_strict: Float[Tensor, " scene"]


def recognise_queries(
    vectors: Float[Tensor, "scene dim"],
    scenes: Scenes,
    queries: QueryVectors,
    *,
    known: Bool[Tensor, " object"] | None = None,
) -> CrossRecognition:
    """Score scenes against queries by cosine and say what each scene recognises.

        hit(s) = min over true q of cos(f(s), q)  >  max over untrue q of cos(f(s), q)

    Scores are taken in blocks of scenes and never kept.

    Args:
        vectors: of one tower, one a scene.
        scenes: what they show.
        queries: of the other tower (or the same one: captions against object texts).
        known: objects that are alternatives, those of the scenes among them; all by default.

    Raises:
        ValueError: widths or spaces differ, vectors and scenes differ in number, or a scene holds an object that is no
            alternative.

    Paper: arXiv:2605.31503, Def. 3.3 and 3.4.

    Example:
        >>> from colligate.embedders import load_model
        >>> from colligate.embedders.embedding import embed
        >>> from colligate.crossmodal.queries import embed_queries
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-aligned:512")
        >>> queries = embed_queries(model.towers["text"], world)
        >>> found = recognise_queries(embed(model.towers["scene"], world).vectors, world.scenes, queries)
        >>> round(found.objects.double().mean().item(), 1)
        1.0
    """
    check_match(vectors, scenes, queries)
    units = normalize(vectors.float(), dim=1)
    columns = torch.arange(queries.space.num_objects) if known is None else known.nonzero()[:, 0]
    place = torch.full((queries.space.num_objects + 1,), -1)  # the last stands for empty slots
    place[columns] = torch.arange(len(columns))
    if bool((place[scenes.objects[scenes.filled]] < 0).any()):
        raise ValueError("A scene holds an object that is no alternative; leave the scene or the limit out.")
    table = torch.cat([queries.matrix[: queries.num_values], queries.matrix[queries.num_values :][columns]])
    step = max(1, BLOCK // len(table))
    parts = [
        _recognise_block(units[start : start + step] @ table.T, scenes[start : start + step], queries, columns, place)
        for start in range(0, len(units), step)
    ]
    return CrossRecognition(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(CrossRecognition)))


def recognise_both_ways(vectors: Float[Tensor, "scene dim"], scenes: Scenes, queries: QueryVectors) -> BothRight:
    """Is a scene nearer to the texts of its objects than to those of its swap, and the swap the other way round?

    Vectors that are the same for a scene and its swap rank four texts in one way for both, whatever the lengths and
    neighbours of texts favour: they are never right twice. So are sums of values, however many objects they hold.

    Raises:
        ValueError: as for `recognise_queries`.

    Example:
        >>> from colligate.embedders import load_model
        >>> from colligate.embedders.embedding import embed
        >>> from colligate.crossmodal.queries import embed_queries
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-bag:256")
        >>> queries = embed_queries(model.towers["text"], world)
        >>> found = recognise_both_ways(embed(model.towers["scene"], world).vectors, world.scenes, queries)
        >>> float(found.hits.max()), bool((found.swaps > 0).any())
        (0.0, True)
    """
    check_match(vectors, scenes, queries)
    units, texts = normalize(vectors.float(), dim=1), queries.matrix[queries.num_values :]

    def tell(here: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        held, theirs = scenes.objects[here], scenes.objects[other]
        foils = torch.where((theirs[:, :, None] == held[:, None]).any(2), EMPTY, theirs)
        asked = torch.cat([held, foils], dim=1)
        scores = torch.cat([
            torch.einsum("sd,sqd->sq", units[rows], texts[some.clamp(min=0)])
            for rows, some in zip(here.split(PAIRS), asked.split(PAIRS), strict=True)
        ] or [torch.zeros(asked.shape)])  # fmt: skip
        places = torch.arange(asked.shape[1]).expand(len(asked), -1)
        mine, not_mine = (torch.where(part >= 0, at, -1) for part, at in (
            (held, places[:, : held.shape[1]]), (foils, places[:, held.shape[1] :])
        ))  # fmt: skip
        right, there = _against_swaps(scores, mine, not_mine)
        return right | ~there, chance_of_order(num_distinct(held), num_distinct(foils))

    return both_ways(tell, scenes, torch.arange(len(scenes)))


PAIRS = 4096
"""Scenes whose texts are looked up at a time."""


def check_match(vectors: Tensor, scenes: Scenes, queries: QueryVectors) -> None:
    """Make sure that vectors, scenes and queries belong together.

    Raises:
        ValueError: they don't.
    """
    if len(vectors) != len(scenes):
        raise ValueError(f"{len(vectors)} vectors for {len(scenes)} scenes; give exactly one row for each.")
    if scenes.space != queries.space:
        raise ValueError("Queries and scenes name different concepts; make both from one space.")
    if vectors.shape[1] != queries.objects.shape[1]:
        raise ValueError(
            f"Scene vectors are {vectors.shape[1]} wide and query vectors {queries.objects.shape[1]}; "
            "the towers don't share a space, so their vectors can't be compared."
        )


def _recognise_block(
    scores: Float[Tensor, "scene query"],
    scenes: Scenes,
    queries: QueryVectors,
    columns: Int[Tensor, " object"],
    place: Int[Tensor, " all_objects"],
) -> CrossRecognition:
    space, num_values = scenes.space, queries.num_values
    values = [scenes.contains(c) for c in range(space.num_concepts)]
    hits = ties = torch.zeros(len(scenes), 0, dtype=torch.bool)
    across = torch.zeros(len(scenes), dtype=torch.bool)
    if num_values:
        own = scores[:, :num_values].split(list(space.sizes), dim=1)
        found = [recognise(of, present) for of, present in zip(own, values, strict=True)]
        across = recognise(scores[:, :num_values], torch.cat(values, dim=1)).hits
        hits, ties = (torch.stack([getattr(one, what) for one in found], dim=1) for what in ("hits", "ties"))
    of_objects, held = scores[:, num_values:], place[scenes.objects]
    present = torch.zeros(len(scenes), len(columns) + 1, dtype=torch.bool).scatter_(1, held % (len(columns) + 1), True)
    present = present[:, :-1]  # empty slots fall into the last column
    whole = recognise(of_objects, present)
    swaps, swappable = _against_swaps(of_objects, held, place[swapped_objects(scenes)])
    held_values = [scenes.multiplicity(c) for c in range(space.num_concepts)]
    level = bag_of_concepts_level(held_values, space.object_values(columns), present)
    chance = chance_level(present)
    return CrossRecognition(
        hits, across, whole.hits, swaps, swappable, ties, whole.ties, chance, level.random_ties, level.strict
    )


def _against_swaps(
    scores: Float[Tensor, "scene object"], held: Int[Tensor, "scene slot"], foils: Int[Tensor, "scene foil"]
) -> tuple[Bool[Tensor, " scene"], Bool[Tensor, " scene"]]:
    """Whether held objects score above foils, and where there is a foil; -1 stands for none.

    Foils are few, so their scores are looked up instead of read over the whole table.
    """
    lowest = scores.gather(1, held.clamp(min=0)).masked_fill(held < 0, torch.inf).amin(1)
    swappable = (foils >= 0).any(1)
    highest = scores.gather(1, foils.clamp(min=0)).masked_fill(foils < 0, -torch.inf).amax(1)
    width = tie_tolerance(scores.dtype) * torch.maximum(lowest.abs(), highest.abs())
    return swappable & (lowest - highest > width), swappable


def swapped_objects(scenes: Scenes) -> Int[Tensor, "scene foil"]:
    """Objects that two of a scene's objects become when they exchange one concept's value; -1 if they were there.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> swapped_objects(ConceptSpace(color=2, shape=2).scenes([[0, 3], [0, 1]])).tolist()
        [[2, 1, 1, 2], [-1, -1, -1, -1]]
    """
    found = list[Tensor]()
    for first, second in combinations(range(scenes.slots), 2):
        both = scenes.filled[:, first] & scenes.filled[:, second]
        pair = scenes.values[:, [first, second]]
        for concept in range(scenes.space.num_concepts):
            changed = pair.clone()
            changed[..., concept] = pair[..., concept].flip(1)
            objects = scenes.space.object_ids(changed)
            there = (objects[:, :, None] == scenes.objects[:, None]).any(2)
            found.append(torch.where(both[:, None] & ~there, objects, EMPTY))
    return torch.cat(found, dim=1) if found else torch.full((len(scenes), 1), EMPTY)


class Ranked(NamedTuple):
    """Per query: whether the best scene is one that holds it, the area under the ROC curve, and the share that does."""

    first: Float[Tensor, " query"]
    area: Float[Tensor, " query"]
    share: Float[Tensor, " query"]


def rank_scenes(vectors: Float[Tensor, "scene dim"], scenes: Scenes, queries: QueryVectors) -> tuple[Ranked, Ranked]:
    """The other direction: rank all scenes for each query, and say whether those that hold it come first.

        area(q) = P(cos(f(s), q) > cos(f(s'), q)),    s holds q, s' doesn't; a tie counts one half

    Queries that every scene holds, or none, are NaN.

    Returns:
        Outcomes of all values (concept by concept; empty where values weren't asked for) and of all objects.

    Raises:
        ValueError: widths or spaces differ, or vectors and scenes differ in number.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3).scenes([[0], [1], [2], [0]])
        >>> queries = QueryVectors(scenes.space, None, torch.eye(3))
        >>> _, objects = rank_scenes(torch.eye(3)[[0, 1, 2, 0]], scenes, queries)
        >>> objects.first.tolist(), objects.area.tolist()
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    """
    check_match(vectors, scenes, queries)
    units = normalize(vectors.float(), dim=1)
    shown = [scenes.contains(c) for c in range(scenes.space.num_concepts)] if queries.num_values else []
    values = _rank(units, queries.matrix[: queries.num_values], lambda block: torch.cat(shown, dim=1)[:, block])
    members = queries.matrix[queries.num_values :]

    def holding(block: slice) -> Tensor:
        ids = torch.arange(len(members))[block]
        return (scenes.objects[:, :, None] == ids).any(1)

    return values, _rank(units, members, holding)


def _rank(
    units: Float[Tensor, "scene dim"], queries: Float[Tensor, "query dim"], holding: Callable[[slice], Tensor]
) -> Ranked:
    found = [Ranked(*torch.zeros(3, 0, dtype=torch.float64))]
    step = max(1, BLOCK // len(units))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        scores, present = queries[block] @ units.T, holding(block).T
        order = torch.from_numpy(np.sort(scores.numpy(), axis=1))  # many times faster here than torch's
        best = order[:, -1:]
        on_top = scores >= best - tie_tolerance(scores.dtype) * best.abs()
        first = (on_top & present).sum(1).double() / on_top.sum(1)
        positive, total = present.sum(1).double(), len(units)
        rows = present.nonzero()[:, 0]
        place = torch.arange(len(rows)) - (positive.cumsum(0) - positive).long()[rows]
        held = torch.full((len(scores), int(positive.max())), torch.inf)
        held[rows, place] = scores[present]
        width = tie_tolerance(scores.dtype)  # cosines are at most one, so relative and absolute are alike
        below = torch.searchsorted(order, held - width)
        up_to = torch.searchsorted(order, held + width, right=True)
        wins = torch.where(torch.isfinite(held), (below + up_to).double() / 2, 0.0).sum(1)
        above = wins - positive.square() / 2  # every pair of scenes that both hold it has added one, each itself a half
        area = above / (positive * (total - positive))
        judged = (positive > 0) & (positive < total)
        found.append(Ranked(
            torch.where(judged, first, torch.nan), torch.where(judged, area, torch.nan), positive / total
        ))  # fmt: skip
    return Ranked(*(torch.cat(parts) for parts in zip(*found, strict=True)))
