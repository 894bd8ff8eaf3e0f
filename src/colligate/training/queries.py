"""Queries for training: which objects and values a step asks for, and which of them are true of each scene."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.scenes.space import EMPTY, ConceptSpace
from colligate.training.data import ObjectPool, integers


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
            drawn = integers(among, (self.random,), generator)
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
    concept = integers(pool.space.num_concepts, (len(rows),), generator)
    here = torch.arange(len(rows), device=objects.device)
    return pool.exchange(objects[here, first], objects[here, (first + step) % counts], concept)[0]


QueryChoice = WholeTable | InBatch


LONGEST_TABLE = 4096
"""Most seen objects that are all asked for at every step unless told otherwise."""


def query_choice(name: str, *, objects: int = 0, held_out: bool = False) -> QueryChoice:
    """The choice of a name: `table`, `in-batch`, `swaps` (those and swaps), `random:N` (those and N random ones).

    `swaps:N` keeps at most N objects of the batch, as the authors' code does with 64. `auto` takes the table of up to
    4,096 objects, else those of the batch and 1,024 random ones, so that a step doesn't grow with the space.

    Args:
        name: of the choice.
        objects: how many there are to ask for.
        held_out: whether held-out objects are asked for too.

    Example:
        >>> query_choice("auto", objects=320), query_choice("auto", objects=37_500).random
        (WholeTable(held_out=False), 1024)
        >>> query_choice("random:64").random
        64
    """
    if name == "auto":
        name = "table" if objects <= LONGEST_TABLE else "random:1024"
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
    raise ValueError(f"No choice of queries is called {name!r}; take auto, table, in-batch, swaps or random:64.")


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
