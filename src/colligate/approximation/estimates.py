"""Pooled outcomes of a coverage curve as values with intervals, and as rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from colligate.approximation.curves import Curves
from colligate.approximation.scoring import Point, Squares
from colligate.intervals import Estimate, Intervals
from colligate.measures import bag_of_concepts_level, chance_level
from colligate.records import NOT_FITTED, Row

BLIND = 1e-6
"""Contrasts predicted to be smaller than this share are rounding of 0."""


class Scorer:
    """Pooled outcomes as values with intervals."""

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        scenes = curves.embeddings.scenes
        self.intervals = Intervals(scenes.objects, scenes.values, over=curves.settings.over)
        self.objects = scenes.contains_objects()
        occurring = self.objects.any(0)
        present = self.objects[:, occurring]
        level = bag_of_concepts_level(
            [scenes.multiplicity(c) for c in range(scenes.space.num_concepts)],
            scenes.space.object_values(occurring.nonzero()[:, 0]), present,
        )  # fmt: skip
        self.levels = {"chance": chance_level(present), "bag_of_concepts": level.random_ties,
                       "bag_of_concepts_strict": level.strict}  # fmt: skip
        concepts = [chance_level(scenes.contains(c)) for c in range(scenes.space.num_concepts)]
        self.concept_chance = torch.stack(concepts).mean(0)

    def level(self, name: str, point: Point) -> float:
        """A level of the scored scenes."""
        return float(self.levels[name][point.rows].mean())

    def sums(self, point: Point, upper: Tensor, lower: Tensor) -> Tensor:
        """Both added up by scene, since a scene may be scored in several splits."""
        stacked = torch.zeros(2, len(self.curves.embeddings), dtype=torch.float64)
        stacked[0].index_add_(0, point.rows, upper.double())
        stacked[1].index_add_(0, point.rows, lower.double())
        return stacked

    def estimate(self, point: Point, upper: Tensor, lower: Tensor, *, complement: bool = False) -> Estimate:
        """A ratio of sums over the scored scenes, or one minus it, with its interval."""
        upper, lower = self.sums(point, upper, lower)
        return self.intervals.explained(upper, lower, lower > 0) if complement else self.intervals.ratio(upper, lower)

    def scored(self, points: Sequence[Point]) -> Tensor:
        """Which scenes have a part in any of these points."""
        scored = torch.zeros(len(self.curves.embeddings), dtype=torch.bool)
        scored[torch.cat([point.rows for point in points])] = True
        return scored

    def outcome(self, point: Point, name: str) -> tuple[Tensor, Tensor]:
        """An outcome and where it is defined, as sums."""
        values = point.outcomes[name]
        return values.nan_to_num(), (~values.isnan()).double()

    def contrast(self, points: Sequence[Point], squares: Sequence[Squares]) -> Estimate:
        """R2 of contrasts, pooled over these points; a pair shares what a scene and its swap hold.

        A rule that is blind to swaps stands at 0 whatever its rounding.
        """
        swaps = self.curves.swaps
        places = torch.cat([point.swaps for point in points])
        if swaps is None or not len(places):
            return Estimate(None, reason="no scene of unseen objects stands beside its swap, both in every order")
        pairs, place = places.unique(return_inverse=True)
        errors, totals = (
            torch.zeros(len(pairs), dtype=torch.float64).index_add_(0, place, torch.cat(of))
            for of in ([one.errors for one in squares], [one.totals for one in squares])
        )  # fmt: skip
        if bool(totals.isnan().any()):
            return Estimate(None, reason="not measured under this protocol")
        sharing = swaps.shared(pairs, self.curves.embeddings.scenes.space)
        found = Intervals(*sharing, over=self.curves.settings.over).explained(errors, totals)
        if found.low is None or bool(((errors - totals).abs() > BLIND * totals).any()):
            return found
        return replace(found, value=0.0, low=0.0, high=0.0, reason=None)


def row_of(
    curves: Curves, id: str, point: Point, estimate: Estimate | None = None, *, reason: str | None = None, **more: Any
) -> Row:
    """A row of one family at one coverage: an estimate, or a value."""
    if estimate is not None:
        more |= {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n,
                 "objects": estimate.objects}  # fmt: skip
        reason = "; ".join(r for r in (reason, estimate.reason) if r) or None
    return Row(
        id=id, on="test", protocol=curves.settings.protocol, coverage=point.coverage, family=point.family,
        seeds=len(point.split.unique()) or None, reason=reason, **more,
    )  # fmt: skip


def unsound(point: Point) -> str | None:
    """What keeps a point from being read as the family's: counts of its splits, in words."""
    total, words = len(point.seen), list[str]()
    for count, what in (
        (sum(i is False for i in point.identified), "not identified"),
        (sum(not s for s in point.seen), "a value never shown"),
        (sum(not a for a in point.adequate) if not point.behind else 0, "not fitted as well as the family can be"),
    ):
        if count:
            words.append(f"{what} in {count} of {total} splits")
    if point.behind:
        words.append(
            f"{NOT_FITTED}R2 on scenes of the validation objects is {point.behind:.3f} below that of bag_quadratic"
        )
    return "; ".join(words) or None
