"""Scenes and queries for training, drawn on the device by integer arithmetic: no loop over scenes, no loader.

An object's id is the mixed radix of its values, so that taking a value of one object and giving it to another is a
subtraction and an addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.scenes.space import EMPTY, ConceptSpace

_ROUNDS = 16


@dataclass(frozen=True, eq=False)
class ObjectPool:
    """Which objects training may show, with the arithmetic on their ids.

    Attributes:
        space: the concepts.
        seen: ids of the objects that training shows, ascending.

    Raises:
        ValueError: a concept with a single value, or a value that no seen object has.

    Example:
        >>> pool = ObjectPool(ConceptSpace(color=3, shape=2), torch.tensor([0, 3, 4]))
        >>> pool.is_seen.tolist()
        [True, False, False, True, True, False]
    """

    space: ConceptSpace
    seen: Int[Tensor, " object"]

    def __post_init__(self) -> None:
        sizes = self.space.sizes
        if min(sizes) < 2:
            name = self.space.names[sizes.index(min(sizes))]
            raise ValueError(f"Concept {name!r} has a single value, so nothing about it can be bound; give it two.")
        if not len(self.seen):
            raise ValueError("No object is seen; raise the coverage.")
        strides = [1] * len(sizes)
        for c in range(len(sizes) - 2, -1, -1):
            strides[c] = strides[c + 1] * sizes[c + 1]
        device = self.seen.device
        object.__setattr__(self, "strides", torch.tensor(strides, device=device))
        object.__setattr__(self, "radices", torch.tensor(sizes, device=device))
        is_seen = torch.zeros(self.space.num_objects, dtype=torch.bool, device=device)
        is_seen[self.seen] = True
        object.__setattr__(self, "is_seen", is_seen)
        digits = self.digits(self.seen)
        for c, name in enumerate(self.space.names):
            missing = torch.bincount(digits[:, c], minlength=sizes[c]).eq(0).nonzero()[:, 0].tolist()
            if missing:
                raise ValueError(
                    f"No seen object has {name} {self.space.words[c][missing[0]]!r}; raise the coverage so that every "
                    "value is seen."
                )

    strides: Int[Tensor, " concept"] = None  # type: ignore[assignment]  # derived, set above
    radices: Int[Tensor, " concept"] = None  # type: ignore[assignment]
    is_seen: Bool[Tensor, " all"] = None  # type: ignore[assignment]

    def digits(self, objects: Int[Tensor, "..."]) -> Int[Tensor, "... concept"]:
        """Values of objects; `EMPTY` has arbitrary ones."""
        return objects[..., None] // self.strides % self.radices

    def exchange(
        self, first: Int[Tensor, "..."], second: Int[Tensor, "..."], concept: Int[Tensor, "..."]
    ) -> tuple[Int[Tensor, "..."], Int[Tensor, "..."]]:
        """Both objects after they exchange their value of a concept.

        Example:
            >>> pool = ObjectPool(ConceptSpace(color=2, shape=2), torch.arange(4))
            >>> [int(o) for o in pool.exchange(torch.tensor(0), torch.tensor(3), torch.tensor(0))]
            [2, 1]
        """
        stride, radix = self.strides[concept], self.radices[concept]
        shift = (second // stride % radix - first // stride % radix) * stride
        return first + shift, second - shift


def _integers(high: int, shape: tuple[int, ...], generator: torch.Generator) -> Int[Tensor, "..."]:
    return torch.randint(high, shape, generator=generator, device=generator.device)


@runtime_checkable
class SceneDraw(Protocol):
    """Which scenes training shows."""

    def draw(self, pool: ObjectPool, num: int, slots: int, generator: torch.Generator) -> Int[Tensor, "scene slot"]:
        """Object ids of scenes whose slots are all filled."""
        ...


@dataclass(frozen=True)
class RandomObjects:
    """Scenes of objects drawn independently and uniformly from the seen ones, with replacement.

    Paper: arXiv:2605.31503, as its code does.

    Example:
        >>> pool = ObjectPool(ConceptSpace(color=3, shape=3), torch.tensor([0, 4, 8]))
        >>> scenes = RandomObjects().draw(pool, 5, 2, torch.Generator().manual_seed(0))
        >>> scenes.shape, bool(pool.is_seen[scenes].all())
        (torch.Size([5, 2]), True)
    """

    def draw(self, pool: ObjectPool, num: int, slots: int, generator: torch.Generator) -> Int[Tensor, "scene slot"]:
        """Object ids of scenes."""
        return pool.seen[_integers(len(pool.seen), (num, slots), generator)]


@dataclass(frozen=True)
class SwapQuadruples:
    """Scenes in pairs, a scene and its swap, all four objects seen: what asks for binding at any coverage.

        (a, b), (a', b')    a', b' are a, b after exchanging their value of one concept; a' and b' are neither a nor b

    Pairs of objects and the concept are uniform among those that have such a swap. Further slots hold random seen
    objects, the same ones in both scenes.

    Example:
        >>> pool = ObjectPool(ConceptSpace(color=3, shape=3), torch.tensor([0, 1, 3, 4, 8]))
        >>> SwapQuadruples().draw(pool, 2, 2, torch.Generator().manual_seed(0)).sort().values.tolist()
        [[0, 4], [1, 3]]
    """

    def draw(self, pool: ObjectPool, num: int, slots: int, generator: torch.Generator) -> Int[Tensor, "scene slot"]:
        """Object ids of scenes, a scene's swap behind it.

        Raises:
            ValueError: an odd number of scenes, a single slot, or no seen pair whose swap is seen.
        """
        if num % 2 or slots < 2:
            raise ValueError(f"Swap quadruples are pairs of scenes of two objects; got {num} scenes of {slots} slots.")
        wanted, found, parts = num // 2, 0, list[Tensor]()
        tries = 4 * wanted + 64
        for _ in range(_ROUNDS):
            pair = pool.seen[_integers(len(pool.seen), (tries, 2), generator)]
            concept = _integers(pool.space.num_concepts, (tries,), generator)
            first, second = pool.exchange(pair[:, 0], pair[:, 1], concept)
            other = (first != pair[:, 0]) & (first != pair[:, 1])
            good = (pool.is_seen[first] & pool.is_seen[second] & other).nonzero()[:, 0]
            parts.append(torch.stack([pair, torch.stack([first, second], 1)], 1)[good])
            found += len(good)
            if found >= wanted:
                break
            tries = min(4 * tries, 2**18)
        else:
            raise ValueError(
                f"Hardly any swap of two of the {len(pool.seen)} seen objects is seen too; raise the coverage, or draw "
                "random scenes."
            )
        quadruples = torch.cat(parts)[:wanted]
        rest = RandomObjects().draw(pool, wanted, slots - 2, generator)[:, None].expand(-1, 2, -1)
        scenes = torch.cat([quadruples, rest], 2)
        if slots > 2:  # the pair that swaps may stand in any two slots
            order = torch.rand(wanted, slots, generator=generator, device=generator.device).argsort(1)
            scenes = scenes.gather(2, order[:, None].expand(-1, 2, -1))
        return scenes.reshape(num, slots)


@dataclass(frozen=True)
class Mixed:
    """A share of swap quadruples, the rest scenes of random objects.

    Args:
        share: of scenes that come as quadruples.

    Example:
        >>> pool = ObjectPool(ConceptSpace(color=3, shape=3), torch.arange(9))
        >>> Mixed(0.5).draw(pool, 9, 2, torch.Generator().manual_seed(0)).shape
        torch.Size([9, 2])
    """

    share: float = 0.6

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"The share of swap quadruples lies between 0 and 1; got {self.share:g}.")

    def draw(self, pool: ObjectPool, num: int, slots: int, generator: torch.Generator) -> Int[Tensor, "scene slot"]:
        """Object ids of scenes, quadruples first."""
        pairs = 2 * round(self.share * num / 2)
        rest = RandomObjects().draw(pool, num - pairs, slots, generator)
        return torch.cat([SwapQuadruples().draw(pool, pairs, slots, generator), rest]) if pairs else rest


def scene_draw(name: str) -> SceneDraw:
    """The draw of a name: `random`, `quadruples`, or `mixed:SHARE`.

    Example:
        >>> scene_draw("mixed:0.75")
        Mixed(share=0.75)
    """
    kind, _, share = name.partition(":")
    if name in {"random", "quadruples"}:
        return RandomObjects() if name == "random" else SwapQuadruples()
    try:
        return Mixed(float(share)) if kind == "mixed" else _unknown("scenes", name)
    except ValueError as error:
        if "share" in str(error):
            raise
        raise ValueError(f"No draw of scenes is called {name!r}; take random, quadruples or mixed:0.6.") from None


def _unknown(what: str, name: str) -> SceneDraw:
    raise ValueError(f"No {what} called {name!r}.")


class Batch(NamedTuple):
    """Scenes of one step: full ones first, then those of fewer objects."""

    objects: Int[Tensor, "member scene slot"]
    """Object ids, `EMPTY` at the end of scenes with fewer objects."""
    groups: tuple[tuple[int, int], ...]
    """Number of scenes and of their objects, group by group."""


@dataclass(frozen=True)
class BatchPlan:
    """How many scenes of how many objects a step shows.

    Args:
        scenes: in a step.
        slots: most objects in a scene.
        fewer: share of scenes with fewer objects than slots, spread evenly over 1 to slots - 1.

    Example:
        >>> BatchPlan(scenes=10, slots=3, fewer=0.4).groups
        ((6, 3), (2, 2), (2, 1))
    """

    scenes: int
    slots: int
    fewer: float

    def __post_init__(self) -> None:
        if self.scenes < 2 or self.slots < 1 or not 0 <= self.fewer < 1:
            raise ValueError(
                f"A step needs at least 2 scenes, 1 slot and a share of fewer objects in [0, 1); got {self}."
            )

    @property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """Number of scenes and of their objects; the numbers are fixed, so every step has the same shapes."""
        each = round(self.fewer * self.scenes / max(1, self.slots - 1)) if self.slots > 1 else 0
        full = self.scenes - each * (self.slots - 1)
        if full < 1:
            raise ValueError(
                f"A share of {self.fewer:g} scenes of fewer objects leaves none of {self.slots}; lower it."
            )
        return ((full, self.slots), *((each, count) for count in range(self.slots - 1, 0, -1) if each))

    def draw(self, draw: SceneDraw, pools: Sequence[ObjectPool], generators: Sequence[torch.Generator]) -> Batch:
        """Scenes of one step; each member draws from its own pool by its own generator."""
        members = [self._draw_one(draw, pool, g) for pool, g in zip(pools, generators, strict=True)]
        return Batch(torch.stack(members), self.groups)

    def _draw_one(self, draw: SceneDraw, pool: ObjectPool, generator: torch.Generator) -> Int[Tensor, "scene slot"]:
        parts: list[Tensor] = []
        for num, count in self.groups:
            kind = draw if count == self.slots and count > 1 else RandomObjects()
            objects = kind.draw(pool, num, count, generator)
            empty = objects.new_full((num, self.slots - count), EMPTY)
            parts.append(torch.cat([objects, empty], 1))
        return torch.cat(parts)


class Targets(NamedTuple):
    """Queries of one step, and which of them are true of each scene."""

    ids: Int[Tensor, "member query"]
    """Object ids (or value numbers)."""
    valid: Bool[Tensor, "member query"] | None
    """Which queries count; None for all. Members of a stack may have different numbers of queries."""
    columns: Int[Tensor, "member scene positive"]
    """Where the scene's positives stand among the queries."""
    shares: Float[Tensor, "member scene positive"]
    """How much each counts: a positive that occurs n times in a scene has 1/n each time; 0 where there is none."""


def repeats(things: Int[Tensor, "member scene positive"]) -> Float[Tensor, "member scene positive"]:
    """One over the number of times that each thing stands in its scene; 0 for negative ones.

    Example:
        >>> repeats(torch.tensor([[[3, 3, 5, -1]]])).tolist()
        [[[0.5, 0.5, 1.0, 0.0]]]
    """
    same = (things[..., :, None] == things[..., None, :]).sum(-1)
    return torch.where(things >= 0, 1.0 / same, 0.0)


@dataclass(frozen=True)
class WholeTable:
    """Every seen object is a query at every step."""

    held_out: bool = False
    """Whether held-out objects are queries too; they are then always negatives, which pushes them down."""

    def choose(
        self, pools: Sequence[ObjectPool], objects: Int[Tensor, "member scene slot"], _: Sequence[torch.Generator]
    ) -> Targets:
        """The table and each scene's columns in it."""
        tables = [torch.arange(p.space.num_objects, device=p.seen.device) if self.held_out else p.seen for p in pools]
        return _looked_up(tables, objects)


@dataclass(frozen=True)
class InBatch:
    """The objects of the batch's scenes are the queries: each is positive for its own scenes, negative for the rest.

    Args:
        limit: most of them, a random choice above it, as the authors' code has it (64); None for all.
        swaps: whether each scene of several objects adds one of its objects after a swap with another.
        random: number of random objects added.
        held_out: whether swaps and random ones may be held-out objects; they are then always negatives.

    Example:
        >>> pool = ObjectPool(ConceptSpace(color=2, shape=2), torch.tensor([0, 1, 3]))
        >>> InBatch().choose([pool], torch.tensor([[[3, 0]]]), [torch.Generator()]).columns.tolist()
        [[[1, 0]]]
    """

    limit: int | None = None
    swaps: bool = False
    random: int = 0
    held_out: bool = False

    def choose(
        self,
        pools: Sequence[ObjectPool],
        objects: Int[Tensor, "member scene slot"],
        generators: Sequence[torch.Generator],
    ) -> Targets:
        """Queries of a batch and each scene's columns among them."""
        several = zip(pools, objects, generators, strict=True)
        return _looked_up([self._ids(pool, of_member, g) for pool, of_member, g in several], objects)

    def _ids(
        self, pool: ObjectPool, objects: Int[Tensor, "scene slot"], generator: torch.Generator
    ) -> Int[Tensor, " query"]:
        held = objects[objects >= 0].unique()
        if self.limit is not None and len(held) > self.limit:
            held = held[torch.randperm(len(held), generator=generator, device=generator.device)[: self.limit]]
        parts = [held]
        if self.swaps and objects.shape[1] > 1:
            parts.append(self._allowed(pool, swapped(pool, objects, generator)))
        if self.random:
            among = pool.space.num_objects if self.held_out else len(pool.seen)
            drawn = _integers(among, (self.random,), generator)
            parts.append(drawn if self.held_out else pool.seen[drawn])
        if len(parts) > 1 and self.limit is not None:  # positives left out by the limit don't come back as negatives
            extra = torch.cat(parts[1:])
            parts[1:] = [extra[~torch.isin(extra, objects)]]
        return torch.cat(parts).unique()

    def _allowed(self, pool: ObjectPool, ids: Int[Tensor, " query"]) -> Int[Tensor, " _"]:
        return ids if self.held_out else ids[pool.is_seen[ids]]


def swapped(pool: ObjectPool, objects: Int[Tensor, "scene slot"], generator: torch.Generator) -> Int[Tensor, " query"]:
    """For each scene of several objects, one of them with one concept's value taken from another."""
    counts = (objects >= 0).sum(1)
    rows = (counts > 1).nonzero()[:, 0]
    counts, objects = counts[rows], objects[rows]
    first = (torch.rand(len(rows), generator=generator, device=generator.device) * counts).long()
    step = 1 + (torch.rand(len(rows), generator=generator, device=generator.device) * (counts - 1)).long()
    concept = _integers(pool.space.num_concepts, (len(rows),), generator)
    here = torch.arange(len(rows), device=objects.device)
    return pool.exchange(objects[here, first], objects[here, (first + step) % counts], concept)[0]


QueryChoice = WholeTable | InBatch


def query_choice(name: str, *, held_out: bool = False) -> QueryChoice:
    """The choice of a name: `table`, `in-batch`, `swaps` (those and swaps), `random:N` (those and N random ones).

    `swaps:N` keeps at most N objects of the batch, as the authors' code does with 64.

    Example:
        >>> query_choice("random:64").random
        64
    """
    kind, colon, given = name.partition(":")
    number = int(given) if given.isdigit() and int(given) else None
    if colon and number is None:
        raise ValueError(f"{name!r} needs a positive number after its colon, such as {kind}:64.")
    if kind == "random" and number:
        return InBatch(random=number, held_out=held_out)
    if kind == "swaps":
        return InBatch(swaps=True, limit=number, held_out=held_out)
    if kind == "in-batch":
        return InBatch(limit=number)
    if name == "table":
        return WholeTable(held_out)
    raise ValueError(f"No choice of queries is called {name!r}; take table, in-batch, swaps or random:64.")


def value_targets(space: ConceptSpace, values: Int[Tensor, "member scene slot concept"]) -> Targets:
    """Every value is a query, whatever the concept; targets are those present in the scene.

    Args:
        space: the concepts.
        values: negative where a slot is empty.
    """
    starts = torch.tensor([sum(space.sizes[:c]) for c in range(space.num_concepts)], device=values.device)
    columns = torch.where(values >= 0, values + starts, EMPTY).flatten(2)
    ids = torch.arange(sum(space.sizes), device=values.device).expand(len(values), -1)
    return Targets(ids, None, columns.clamp(min=0), repeats(columns))


def _looked_up(tables: Sequence[Int[Tensor, " _"]], objects: Int[Tensor, "member scene slot"]) -> Targets:
    """Tables of ascending ids side by side, and where each scene's objects stand in its member's."""
    longest = max(len(table) for table in tables)
    ids = torch.stack([torch.cat([t, t[-1:].expand(longest - len(t))]) for t in tables])
    valid = None
    if any(len(table) < longest for table in tables):
        lengths = torch.tensor([len(table) for table in tables], device=objects.device)
        valid = torch.arange(longest, device=objects.device) < lengths[:, None]
    columns = torch.searchsorted(ids, objects.flatten(1).clamp(min=0)).clamp(max=longest - 1)
    there = ids.gather(1, columns) == objects.flatten(1)
    columns = columns.reshape(objects.shape)
    return Targets(ids, valid, columns, repeats(torch.where(there.reshape(objects.shape), objects, EMPTY)))
