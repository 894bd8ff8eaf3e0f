"""How well a dual encoder recognises objects it was trained on and objects it never saw, three fair ways.

Whether an object was seen leaks into its scores, so recognition is given against the whole table, among the objects of
the same part, and on swaps whose four objects are all of that part (`.swaps`, the headline).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.intervals import Intervals
from colligate.measures import (
    COUNTED,
    UNLISTED,
    bag_of_concepts_level,
    blind_ceiling,
    chance_level,
    chance_of_order,
    num_distinct,
    recognise,
)
from colligate.networks.dual import DualEncoder
from colligate.records import Row
from colligate.scenes.space import ConceptSpace, Scenes

WAYS = ("table", "among", "swaps")
"""What an object is recognised against: the whole table, its own part, its scene's swap."""
_CANDIDATES = 200_000
_BLOCK = 2**24


@dataclass(frozen=True, eq=False)
class PartScenes:
    """Scenes of one part's objects: to be recognised, and to be told from their swaps.

    Attributes:
        space: the concepts.
        objects: ids of the part's objects.
        scenes: object ids in each slot, all filled.
        swap_scenes: scenes that can swap a value and still hold this part's objects only.
        foils: the two objects of each one's swap that the scene doesn't hold.
        swapped: each one's swap.
    """

    space: ConceptSpace
    objects: Int[Tensor, " object"]
    scenes: Int[Tensor, "scene slot"]
    swap_scenes: Int[Tensor, "swap slot"]
    foils: Int[Tensor, "swap foil"]
    swapped: Int[Tensor, "swap slot"]


def part_scenes(
    space: ConceptSpace, objects: Int[Tensor, " object"], *, slots: int, budget: int, seed: int
) -> PartScenes:
    """All scenes of these objects with every slot filled, or a seeded choice of `budget` of them.

    Any two of a scene's objects may swap a value, whatever their slots.

    Example:
        >>> found = part_scenes(ConceptSpace(a=3, b=3), torch.tensor([0, 1, 3, 4]), slots=2, budget=100, seed=0)
        >>> len(found.scenes), len(found.swap_scenes)
        (16, 4)
    """
    generator = torch.Generator().manual_seed(seed)
    if len(objects) ** slots <= _CANDIDATES:
        every = torch.cartesian_prod(*[objects] * slots).reshape(-1, slots)
    else:
        every = objects[torch.randint(len(objects), (_CANDIDATES, slots), generator=generator)]
    chosen = every[torch.randperm(len(every), generator=generator)[:budget]]
    within = torch.zeros(space.num_objects, dtype=torch.bool)
    within[objects] = True
    scenes, foils, others = list[Tensor](), list[Tensor](), list[Tensor]()
    for i, j in combinations(range(slots), 2):
        # An object that stands in an earlier slot too has its swaps there: asked again, it would count twice.
        new = (every[:, [i, j], None] != every[:, None, :]) | (torch.arange(slots) >= torch.tensor([[i], [j]]))
        for concept in range(space.num_concepts if space.num_concepts > 2 else 1):
            pair = space.object_values(every[:, [i, j]])
            pair[..., concept] = pair[..., concept].flip(1)
            swapped = space.object_ids(pair)
            other = (swapped[:, :, None] != every[:, None]).all(2).all(1)
            good = within[swapped].all(1) & other & new.all(2).all(1)
            scenes.append(every[good])
            foils.append(swapped[good])
            others.append(every[good].index_copy(1, torch.tensor([i, j]), swapped[good]))
    none = torch.zeros(0, max(slots, 2), dtype=torch.int64)
    with_swap, of_swap, after = (
        (torch.cat(of) for of in (scenes, foils, others)) if scenes else (none[:, :slots], none[:, :2], none[:, :slots])
    )
    some = torch.randperm(len(with_swap), generator=generator)[:budget]
    return PartScenes(space, objects, chosen, with_swap[some], of_swap[some], after[some])


class Outcome(NamedTuple):
    """Per scene: right or not, and what chance and an ideal bag of concepts would reach."""

    scenes: Int[Tensor, "scene slot"]
    hits: Float[Tensor, " scene"]
    chance: Float[Tensor, " scene"]
    bag: Float[Tensor, " scene"]
    strict: Float[Tensor, " scene"]


@dataclass(frozen=True, eq=False)
class Queries:
    """A network's vectors of all objects and values, ready to be compared."""

    objects: Float[Tensor, "object dim"]
    values: Float[Tensor, "value dim"]


@torch.no_grad()
def read_queries(model: DualEncoder) -> list[Queries]:
    """Vectors of every query, for each member."""
    device = model.log_scale.device
    parts: list[Tensor] = []
    for ids in torch.arange(model.space.num_objects, device=device).split(4096):
        parts.append(model.compared(model.object_queries(ids.expand(model.members, -1))))
    objects, values = torch.cat(parts, 1), model.compared(model.value_queries())
    return [Queries(objects[m].float().cpu(), values[m].float().cpu()) for m in range(model.members)]


@torch.no_grad()
def scene_vectors(model: DualEncoder, scenes: Int[Tensor, "member scene slot"]) -> Float[Tensor, "member scene dim"]:
    """Vectors of scenes, ready to be compared, in blocks."""
    device = model.log_scale.device
    parts = [
        model.compared(model.scenes(model.space.object_values(some.to(device)))).float().cpu()
        for some in scenes.split(2048, dim=1)
    ]
    return torch.cat(parts, 1)


def outcomes(
    part: PartScenes,
    queries: Queries,
    vectors: Float[Tensor, "scene dim"],
    swap_vectors: Float[Tensor, "swap dim"],
    swapped_vectors: Float[Tensor, "swap dim"] | None = None,
    *,
    levels: bool = True,
) -> dict[str, Outcome]:
    """Per-scene outcomes: `table`, `among`, `swaps`, `concept`, and `swaps.both` where swaps have vectors.

    Args:
        part: the scenes.
        queries: the network's queries.
        vectors: of `part.scenes`.
        swap_vectors: of `part.swap_scenes`.
        swapped_vectors: of `part.swapped`.
        levels: whether to count the levels too (they take a while); zeros otherwise.
    """
    every = torch.arange(part.space.num_objects)
    found = {
        "table": _recognised(part, queries, vectors, every, levels),
        "among": _recognised(part, queries, vectors, part.objects.sort().values, levels),
        "swaps": _swaps(part, queries, swap_vectors),
        "concept": _concepts(part, queries, vectors),
    }
    if swapped_vectors is not None:
        found["swaps.both"] = _both_ways(part, queries, found["swaps"], swapped_vectors)
    return found


def _recognised(
    part: PartScenes, queries: Queries, vectors: Tensor, table: Int[Tensor, " query"], levels: bool
) -> Outcome:
    """Recognition against a table of objects."""
    column = torch.full((part.space.num_objects,), -1)
    column[table] = torch.arange(len(table))
    pieces: list[Outcome] = []
    size = max(1, _BLOCK // len(table))
    for objects, of_scene in zip(part.scenes.split(size), vectors.split(size), strict=True):
        present = torch.zeros(len(objects), len(table), dtype=torch.bool).scatter_(1, column[objects], True)
        hits = recognise(of_scene @ queries.objects[table].T, present).hits.double()
        zero = torch.zeros_like(hits)
        chance, bag, strict = zero, zero, zero
        if levels:
            scenes = Scenes(part.space, part.space.object_values(objects))
            inside = [scenes.multiplicity(c) for c in range(part.space.num_concepts)]
            bag, strict = bag_of_concepts_level(inside, part.space.object_values(table), present)
            chance = chance_level(present)
        pieces.append(Outcome(objects, hits, chance, bag, strict))
    return Outcome(*(torch.cat(column) for column in zip(*pieces, strict=True)))


def _swaps(part: PartScenes, queries: Queries, vectors: Float[Tensor, "swap dim"]) -> Outcome:
    """Whether the scene's objects outrank those of its swap."""
    asked = torch.cat([part.swap_scenes, part.foils], 1)
    slots = part.swap_scenes.shape[1]
    scores = torch.einsum("sd,sqd->sq", vectors, queries.objects[asked])
    present = torch.arange(asked.shape[1])[None].expand(len(asked), -1) < slots
    hits = recognise(scores, present).hits.double() if len(asked) else torch.zeros(0, dtype=torch.float64)
    ordered = part.swap_scenes.sort(1).values
    held = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1).double()
    # A bag of concepts ties all of them, the foils too: with p held and 2 foils, 1 / binomial(p + 2, 2).
    level = 2 / ((held + 2) * (held + 1))
    return Outcome(part.swap_scenes, hits, level, level, torch.zeros_like(level))


def _both_ways(part: PartScenes, queries: Queries, there: Outcome, vectors: Float[Tensor, "swap dim"]) -> Outcome:
    """Whether the scene and its swap are both right: never, for vectors that can't tell them, whatever they favour.

    By chance with the product of both levels, 1/36 for two objects.
    """
    held, back = part.swapped, part.swap_scenes
    new = (back[:, :, None] != held[:, None]).all(2)  # what the scene holds and its swap doesn't
    scores = torch.einsum("sd,sqd->sq", vectors, queries.objects[torch.cat([held, back], 1)])
    present = torch.arange(scores.shape[1]).expand(len(held), -1) < held.shape[1]
    absent = torch.cat([torch.zeros_like(new), new], 1)
    hits = recognise(scores, present, absent).hits.double() if len(held) else torch.zeros(0, dtype=torch.float64)
    level = chance_of_order(num_distinct(held), num_distinct(back.masked_fill(~new, -1))) * there.chance
    zero = torch.zeros_like(level)
    return Outcome(back, hits * there.hits, level, zero, zero)


def _concepts(part: PartScenes, queries: Queries, vectors: Tensor) -> Outcome:
    """Recognition of values, mean over concepts."""
    scenes = Scenes(part.space, part.space.object_values(part.scenes))
    scores = (vectors @ queries.values.T).split(list(part.space.sizes), dim=1)
    inside = [scenes.contains(c) for c in range(part.space.num_concepts)]
    hits = torch.stack([recognise(s, p).hits.double() for s, p in zip(scores, inside, strict=True)]).mean(0)
    chance = torch.stack([chance_level(p) for p in inside]).mean(0)
    one = torch.ones_like(hits)
    return Outcome(part.scenes, hits, chance, one, one)


def quick_look(model: DualEncoder, parts: Sequence[Mapping[str, PartScenes]]) -> list[dict[str, float]]:
    """Recognition of every member, part by part, without levels or intervals: for progress and for choosing.

    Args:
        model: the network.
        parts: for each member, its parts by name.

    Returns:
        For each member, values under names like `unseen.swaps` and `concept.seen`.
    """
    training = model.training
    model.eval()
    queries = read_queries(model)
    found: list[dict[str, float]] = [{} for _ in parts]
    for name in parts[0]:
        for member, outcome in enumerate(_outcomes(model, [of[name] for of in parts], queries, levels=False)):
            for way, of_way in outcome.items():
                key = f"concept.{name}" if way == "concept" else f"{name}.{way}"
                found[member][key] = float(of_way.hits.mean()) if len(of_way.hits) else float("nan")
    model.train(training)
    return found


def _outcomes(
    model: DualEncoder, parts: Sequence[PartScenes], queries: Sequence[Queries], *, levels: bool
) -> Iterator[dict[str, Outcome]]:
    """Outcomes of one part, member by member; members may differ in their number of scenes."""
    vectors = scene_vectors(model, _even([part.scenes for part in parts]))
    with_swaps = _even([part.swap_scenes for part in parts])
    swaps = scene_vectors(model, with_swaps) if with_swaps.shape[1] else vectors[:, :0]
    back = swaps
    if levels and with_swaps.shape[1]:
        back = scene_vectors(model, _even([part.swapped for part in parts]))
    for m, part in enumerate(parts):
        mine, several = vectors[m, : len(part.scenes)], slice(len(part.swap_scenes))
        after = back[m, several] if levels else None
        yield outcomes(part, queries[m], mine, swaps[m, several], after, levels=levels)


def _even(scenes: Sequence[Int[Tensor, "_ slot"]]) -> Int[Tensor, "member scene slot"]:
    """Scenes of every member side by side; shorter lists end in object 0, whose vectors are not used."""
    longest = max(len(some) for some in scenes)
    return torch.stack([torch.cat([some, some.new_zeros(longest - len(some), some.shape[1])]) for some in scenes])


def recognition_rows(
    model: DualEncoder, parts: Mapping[str, PartScenes], *, coverage: float, family: str
) -> tuple[list[Row], dict[str, Tensor]]:
    """Rows of a single network's recognition, with levels and intervals, and the outcomes behind them.

    Args:
        model: one member.
        parts: `seen` and `unseen`.
        coverage: share of objects that training showed.
        family: the encoder's name.
    """
    model.eval()
    queries = read_queries(model)
    rows, arrays = list[Row](), dict[str, Tensor]()
    for name, part in parts.items():
        [found] = _outcomes(model, [part], queries, levels=True)
        for way, outcome in found.items():
            suffix = f"among_{name}" if way == "among" else way
            id_ = f"recognition.concept.{name}" if way == "concept" else f"recognition.object.{name}.{suffix}"
            rows.append(_row(id_, outcome, part.space, coverage, family, "fit" if name == "seen" else "test"))
            arrays[f"{id_}.hits"] = outcome.hits.float()
            arrays[f"{id_}.scenes"] = outcome.scenes.clone()
        rows.append(replace(_blind(part), id=f"recognition.object.{name}.blind", coverage=coverage, family=family,
                            on="fit" if name == "seen" else "test"))  # fmt: skip
    return rows, arrays


def _blind(part: PartScenes) -> Row:
    """The most that vectors reach among the part's objects which are blind to binding; see `measures.blind_ceiling`."""
    sizes = part.space.sizes
    strides = torch.tensor([prod(sizes[c + 1 :]) for c in range(len(sizes))])
    found = blind_ceiling(part.space.object_values(part.scenes), part.objects, strides)
    value = None if found is None or not len(found) else float(found.mean())
    return Row(id="blind", value=value, n=len(part.scenes), reason=UNLISTED if found is None else COUNTED)


def _row(id_: str, outcome: Outcome, space: ConceptSpace, coverage: float, family: str, on: str) -> Row:
    if not len(outcome.hits):
        reason = "No scene of these objects has a swap among them; hold out swaps, or lower the coverage."
        return Row(id=id_, on=on, coverage=coverage, family=family, n=0, reason=reason)
    estimate = Intervals(outcome.scenes, space.object_values(outcome.scenes)).mean(outcome.hits)
    return Row(
        id=id_, on=on, coverage=coverage, family=family, seeds=1, objects=estimate.objects, value=estimate.value,
        low=estimate.low, high=estimate.high, n=estimate.n, chance=float(outcome.chance.mean()),
        bag_of_concepts=float(outcome.bag.mean()), bag_of_concepts_strict=float(outcome.strict.mean()),
        reason=estimate.reason,
    )  # fmt: skip
