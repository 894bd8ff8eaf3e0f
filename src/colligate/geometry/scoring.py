"""Rows of a table from per-scene outcomes: intervals, and the levels of the scenes that were scored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.geometry.subject import Subject
from colligate.intervals import Intervals
from colligate.measures import bag_of_concepts_level, blind_ceiling, chance_level, chance_of_order
from colligate.probes import ProbeOutcomes, swap_foils
from colligate.records import Row
from colligate.rescaling import rescale
from colligate.scenes.space import Scenes

PAIRED = (
    "probe.concept", "probe.concept.across", "probe.object", "probe.object.swap", "r2.concept.least_squares",
    "r2.object.least_squares", "r2.object.avg", "r2.object.avg+pos",
)  # fmt: skip
"""Measurements on the test part whose outcome of every scene is kept: each is a sum over scenes over another sum."""


class Scorer:
    """Turns per-scene outcomes on some rows into table rows, with intervals and levels for those rows."""

    def __init__(self, subject: Subject, on: str, scenes: Scenes, bases: Scenes | None = None) -> None:
        """Score outcomes that concern `scenes`; intervals rest on `bases`, where they are others (before an edit)."""
        self.subject, self.on, self.scenes = subject, on, scenes
        rest = scenes if bases is None else bases
        self.intervals = Intervals(rest.objects, rest.values, over=subject.settings.over, scenes=rest.ids)

    def mean(self, id: str, outcomes: Tensor, rows: Tensor | None = None, **more: Any) -> Row:
        """Mean outcome, over all rows or a mask of them."""
        ones = torch.ones(len(outcomes)) if rows is None else rows.float()
        self._remember(id, outcomes.float() * ones, ones)
        return self._row(id, self.intervals.mean(outcomes, rows), more)

    def explained(self, id: str, errors: Tensor, totals: Tensor, rows: Tensor | None = None, **more: Any) -> Row:
        """One minus a ratio of sums, over all rows or a mask of them."""
        if rows is None:
            self._remember(id, (totals - errors).float(), totals.float())
        return self._row(id, self.intervals.explained(errors, totals, rows), more)

    def _remember(self, id: str, upper: Tensor, lower: Tensor) -> None:
        """Keep what another model's outcomes on the same scenes can be paired with."""
        if id in PAIRED and self.on == "test" and len(upper) == len(self.subject.split.test):
            self.subject.outcomes[id] = torch.stack([upper, lower])

    def _row(self, id: str, estimate: Any, more: dict[str, Any]) -> Row:
        reason = "; ".join(r for r in (more.pop("reason", None), estimate.reason) if r) or None
        return self.subject.row(
            id, self.on, value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n,
            objects=estimate.objects, reason=reason, **more,
        )  # fmt: skip

    @cached_property
    def concept_chance(self) -> list[Tensor]:
        """Per concept, chance that random scores recognise its values."""
        return [chance_level(self._values(c)) for c in range(self.scenes.space.num_concepts)]

    def _values(self, concept: int) -> Tensor:
        """Which of the values that occur anywhere each scene holds."""
        return self.scenes.contains(concept)[:, self.subject.scenes.contains(concept).any(0)]

    @cached_property
    def across_chance(self) -> Tensor:
        """Chance that random scores put all present values of all concepts before all absent ones."""
        concepts = range(self.scenes.space.num_concepts)
        return chance_level(torch.cat([self._values(c) for c in concepts], dim=1))

    @cached_property
    def object_levels(self) -> tuple[Tensor, Tensor, Tensor]:
        """Chance, bag of concepts with random ties, and strict, for recognition of objects among all that occur."""
        present = self.scenes.contains_objects()[:, self.subject.occurring]
        level = bag_of_concepts_level(
            [self.scenes.multiplicity(c) for c in range(self.scenes.space.num_concepts)],
            self.scenes.space.object_values(self.subject.occurring.nonzero()[:, 0]), present,
        )  # fmt: skip
        return chance_level(present), level.random_ties, level.strict

    @cached_property
    def blind(self) -> Tensor | None:
        """The most that vectors reach which are blind to binding; see `measures.blind_ceiling`."""
        space = self.scenes.space
        strides = torch.tensor([prod(space.sizes[c + 1 :]) for c in range(space.num_concepts)])
        return blind_ceiling(self.scenes.values, self.subject.occurring.nonzero()[:, 0], strides)

    @cached_property
    def swap_levels(self) -> tuple[Tensor, Tensor]:
        """Which scenes have a swap that differs, and chance against it."""
        foils = swap_foils(self.scenes) & self.subject.occurring
        return foils.any(1), chance_of_order(self.scenes.contains_objects().sum(1), foils.sum(1))

    def recognition(
        self, name: str, outcomes: ProbeOutcomes, kinds: tuple[str, ...], rows: Tensor | None = None
    ) -> Iterator[Row]:
        """Rows for the given kinds of recognition, with chance and bag-of-concepts levels of the same scenes.

        Args:
            name: id of the rows, `{}` standing for the kind.
            outcomes: per scene.
            kinds: of concept (mean over concepts), concept.joint (each right),
                concept.across (all values of all concepts in one ranking), concept.<name>, object, object.swap.
            rows: mask of the scenes to take; all by default.
        """
        mask = torch.ones(len(self.scenes), dtype=torch.bool) if rows is None else rows

        def level(of: Tensor, among: Tensor = mask) -> float | None:
            return float(of[among].double().mean()) if bool(among.any()) else None

        ideal = {"bag_of_concepts": 1.0, "bag_of_concepts_strict": 1.0}
        for kind in kinds:
            id = name.format(kind)
            if kind == "concept":
                chance = level(torch.stack(self.concept_chance).mean(0))
                yield self.mean(id, outcomes.concepts.double().mean(1), rows, chance=chance, **ideal)
            elif kind == "concept.joint":
                chance = level(torch.stack(self.concept_chance).prod(0))
                yield self.mean(id, outcomes.concepts.all(1), rows, chance=chance, **ideal)
            elif kind == "concept.across":
                yield self.mean(id, outcomes.across, rows, chance=level(self.across_chance), **ideal)
            elif kind.startswith("concept."):
                c = self.scenes.space.concept(kind.removeprefix("concept."))
                yield self.mean(
                    id, outcomes.concepts[:, c], rows, concept=self.scenes.space.names[c],
                    chance=level(self.concept_chance[c]), **ideal,
                )  # fmt: skip
            elif outcomes.objects is None or outcomes.swaps is None:
                yield self.subject.row(id, self.on, reason=self.subject.no_object_probe)
            elif kind == "object":
                chance, ties, strict = (level(of) for of in self.object_levels)
                yield self.mean(
                    id, outcomes.objects, rows, chance=chance, bag_of_concepts=ties, bag_of_concepts_strict=strict
                )
            elif kind == "object.swap":
                differs, chance = self.swap_levels
                among = differs & mask
                yield self.mean(
                    id, outcomes.swaps, among, chance=level(chance, among), bag_of_concepts=level(chance, among),
                    bag_of_concepts_strict=0.0 if bool(among.any()) else None,
                )  # fmt: skip


RESCALED = ("reconstruction.probe.object.", "edit.probe.object.", "removal.")
"""Recognition of objects in vectors that were made, not given: read beside what the probes read in the true ones."""


def rescaled_rows(subject: Subject, rows: Sequence[Row]) -> list[Row]:
    """Recognition of objects on the scale from an ideal bag of concepts (0) to what the probes reach (1).

        (x - bag of concepts) / (ceiling - bag of concepts),   the interval likewise, levels held fixed

    Args:
        subject: whose probes give the ceiling: `probe.object` on the test part.
        rows: what was measured; those of objects on test get a row under `rescaled.`.
    """
    wanted = [
        row for row in rows
        if row.on == "test" and row.value is not None and row.bag_of_concepts is not None
        and row.id.startswith(RESCALED) and (not row.id.startswith("removal.") or row.id.endswith(".object"))
    ]  # fmt: skip
    if not wanted or subject.no_object_probe is not None:
        return []
    ceiling, found = subject.ceiling, list[Row]()
    for row in wanted:
        bag = row.bag_of_concepts or 0.0
        values = [None if x is None else rescale(x, bag, ceiling) for x in (row.value, row.low, row.high)]
        reason = "the probes' ceiling does not clear a bag of concepts" if values[0] is None else row.reason
        found.append(replace(
            row, id=f"rescaled.{row.id}", value=values[0], low=values[1], high=values[2], chance=None,
            bag_of_concepts=0.0, bag_of_concepts_strict=None, random_init=None, reason=reason,
        ))  # fmt: skip
    return found


@dataclass(frozen=True, eq=False)
class RetrievalLevels:
    """Levels of retrieval among the distinct scenes of a set, for each of its rows.

    Attributes:
        num: number of distinct scenes.
        same_values: how many of them hold the same values (an ideal bag of concepts can't tell them apart).
        same_objects: how many of them hold the same objects in whatever order.
    """

    num: int
    same_values: Tensor
    same_objects: Tensor

    @classmethod
    def of(cls, scenes: Scenes) -> "RetrievalLevels":
        """Count them."""
        _, first = _first_rows(scenes.ids)
        bags, (_, sets) = scenes.bags, scenes.unordered_ids.unique(return_inverse=True)
        per_bag, per_set = torch.bincount(bags[first], minlength=int(bags.max()) + 1), torch.bincount(sets[first])
        return cls(len(first), per_bag[bags].double(), per_set[sets].double())

    def exact(self, rows: Int[Tensor, " row"]) -> dict[str, Any]:
        """Levels of finding these scenes themselves."""
        return self._levels(torch.ones(len(rows), dtype=torch.float64), self.same_values[rows])

    def up_to_order(self, rows: Int[Tensor, " row"]) -> dict[str, Any]:
        """Levels of finding these scenes or another order of their objects."""
        return self._levels(self.same_objects[rows], self.same_values[rows])

    def _levels(self, right: Tensor, tied: Tensor) -> dict[str, Any]:
        if not len(right):
            return {}
        return {
            "chance": float(right.mean()) / self.num,
            "bag_of_concepts": float((right / tied).mean()),
            "bag_of_concepts_strict": float((right == tied).double().mean()),
        }


def _first_rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    found, inverse = ids.unique(return_inverse=True)
    first = torch.zeros(len(found), dtype=torch.int64)
    first[inverse.flip(0)] = torch.arange(len(ids)).flip(0)
    return found, first
