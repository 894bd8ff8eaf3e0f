"""Scenes for training, drawn on the device by integer arithmetic: no loop over scenes, no loader.

An object's id is the mixed radix of its values, so that taking a value of one object and giving it to another is a
subtraction and an addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
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

    @cached_property
    def can_swap(self) -> bool:
        """Whether some pair of seen objects has a swap whose objects are seen too (found in some millions of draws).

        Example:
            >>> [ObjectPool(ConceptSpace(a=2, b=2), torch.tensor(ids)).can_swap for ids in ([0, 1, 2, 3], [0, 1, 3])]
            [True, False]
        """
        try:
            SwapQuadruples().draw(self, 2, 2, torch.Generator(self.seen.device).manual_seed(0))
        except ValueError:
            return False
        return True

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


def integers(high: int, shape: tuple[int, ...], generator: torch.Generator) -> Int[Tensor, "..."]:
    """Uniform integers below `high`, drawn on the generator's device."""
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
        return pool.seen[integers(len(pool.seen), (num, slots), generator)]


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
            pair = pool.seen[integers(len(pool.seen), (tries, 2), generator)]
            concept = integers(pool.space.num_concepts, (tries,), generator)
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

    Where the seen objects are so few that no swap of two of them is seen, all scenes are of random objects; a run's
    record says so.

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
        pairs = 2 * round(self.share * num / 2) if pool.can_swap else 0
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
