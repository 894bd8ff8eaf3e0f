"""What can be quoted of a coverage curve: the area under each family's, and the least width that reaches one."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from colligate.approximation.curves import Curves
from colligate.approximation.estimates import Scorer, row_of, unsound
from colligate.approximation.scoring import Point
from colligate.records import NO_CEILING, Row
from colligate.rescaling import rescale


def summary_rows(curves: Curves, reach: Sequence[float] = (0.5, 0.9)) -> list[Row]:
    """What can be quoted: the area under each family's curve, and the smallest width that reaches a recognition.

        height(c) = (object recognition - that in the sum of values) / (ceiling - that in the sum of values)
        area      = mean of height over coverages c, by trapezoids
        contrast  = R2 of scene minus swap, all coverages of the area pooled, in the metric that knows no scale

    0 is what the same probes read in the predictions of the sum fitted beside, which binds nothing; an *ideal* bag of
    concepts, that knows exactly which values are there and breaks its ties well, stands elsewhere on this scale
    (`bag_of_concepts`). Points that aren't solid, and coverages at which the sum isn't, are left out; the
    heights are rows of their own, so that the table says over which coverages an area is. Its interval is one
    of the sum of what each scene adds at every coverage.
    """
    scorer, found, areas = Scorer(curves), list[Row](), dict[str, float | None]()
    ceilings = {
        point.coverage: _Ceiling(point, scorer.estimate(point, *scorer.outcome(point, "object")).low)
        for point in curves.ceiling
    }
    sums = {point.coverage: point for point in curves.sums}
    for name in dict.fromkeys(point.family for point in curves.points):
        points = [point for point in curves.of(name) if point.reason is None]
        heights = [_height(scorer, point, sums[point.coverage], ceilings[point.coverage]) for point in points]
        row = _area(scorer, curves.of(name), heights)
        areas[name] = row.value
        found += [row, _contrast(scorer, name, heights), *(_height_row(scorer, height) for height in heights)]
    widths = sorted(int(name[3:]) for name in areas if name.startswith("mlp") and name[3:].isdigit())
    for wanted in reach if widths else ():
        wide = [width for width in widths if (areas[f"mlp{width}"] or -1.0) >= wanted]
        found.append(Row(
            id="complexity.width", on="test", protocol=curves.settings.protocol, family=f"{wanted:g}",
            value=float(wide[0]) if wide else None, seeds=None,
            reason=None if wide else f"no width up to {widths[-1]} has an area of {wanted:g}",
        ))  # fmt: skip
    return found


class _Ceiling(NamedTuple):
    """What the probes read from the true vectors at one coverage, and the lower end of its interval, if it has one."""

    point: Point
    low: float | None


class _Height(NamedTuple):
    """Object recognition of one point, rescaled, and what each scene adds to its error; or why there is none."""

    point: Point
    value: float | None = None
    influence: Tensor | None = None
    bag: float | None = None
    """Where the ideal bag of concepts stands on the same scale."""
    reason: str | None = None


def _height(scorer: Scorer, point: Point, sums: Point, top: _Ceiling) -> _Height:
    if bool(point.outcomes["object"].isnan().all()):
        return _Height(point, reason="objects aren't read")
    if not point.solid:
        return _Height(point, reason=unsound(point))
    if not sums.solid:
        return _Height(point, reason=f"not even a sum of values is determined here: {unsound(sums)}")
    bag, base, ceiling = scorer.level("bag_of_concepts", point), sums.mean("object"), top.point.mean("object")
    if rescale(ceiling, bag, ceiling) is None or (top.low is not None and top.low <= bag):
        return _Height(point, reason=NO_CEILING)
    value = rescale(point.mean("object"), base, ceiling)
    if value is None:
        return _Height(point, reason="in the sum's predictions as many objects are read as in the true vectors")
    (values, defined), (level, _), (highest, _) = (scorer.outcome(of, "object") for of in (point, sums, top.point))
    parts = scorer.sums(point, (values - level) * defined, (highest - level) * defined)
    return _Height(point, value, scorer.intervals.influence(*parts), (bag - base) / (ceiling - base))


def _height_row(scorer: Scorer, height: _Height) -> Row:
    row = row_of(scorer.curves, "rescaled.complexity.object", height.point, reason=height.reason)
    if height.value is None or height.influence is None:
        return row
    counts = scorer.estimate(height.point, *scorer.outcome(height.point, "object"))
    row = replace(row, value=height.value, n=counts.n, objects=counts.objects, bag_of_concepts=height.bag)
    if counts.low is None:
        return replace(row, reason=counts.reason)
    return _with_interval(scorer, row, height.value, height.influence, [height.point])


def _with_interval(scorer: Scorer, row: Row, value: float, influence: Tensor, points: Sequence[Point]) -> Row:
    """The row with the interval of its value; the sum of values stands at 0 by definition and needs none."""
    if not bool(influence.any()):
        return replace(row, low=value, high=value)
    around = scorer.intervals.around(value, influence, scorer.scored(points))
    reason = "; ".join(one for one in (row.reason, around.reason) if one) or None
    return replace(row, low=around.low, high=around.high, objects=around.objects, reason=reason)


def _area(scorer: Scorer, points: Sequence[Point], heights: Sequence[_Height]) -> Row:
    base = Row(id="complexity.area", on="test", protocol=scorer.curves.settings.protocol, family=points[0].family,
               seeds=max(len(p.split.unique()) for p in points) or None)  # fmt: skip
    there = [height for height in heights if height.value is not None]
    low = [f"{height.point.coverage:g}" for height in heights if height.reason == NO_CEILING]
    if not there and low:
        return replace(base, reason=f"{NO_CEILING} (coverage {', '.join(low)})")
    if not there:
        return replace(base, reason="at no coverage is this family identified, fitted adequately and shown every value")
    coverages = [height.point.coverage for height in there]
    weights = torch.tensor(_trapezoids(coverages), dtype=torch.float64)
    value = float(torch.tensor([height.value for height in there], dtype=torch.float64) @ weights)
    bags = torch.tensor([height.bag for height in heights if height.bag is not None], dtype=torch.float64)
    base = replace(base, bag_of_concepts=float(bags @ weights))
    objects = int(scorer.objects[torch.cat([height.point.rows for height in there])].any(0).sum())
    left_out = [f"{p.coverage:g}" for p in points if p.coverage not in coverages]
    reason = f"coverages {', '.join(left_out)} left out" if left_out else None
    influence = torch.stack([height.influence for height in there if height.influence is not None], dim=1) @ weights
    row = replace(base, value=value, objects=objects, reason=reason)
    return _with_interval(scorer, row, value, influence, [height.point for height in there])


def _contrast(scorer: Scorer, family: str, heights: Sequence[_Height]) -> Row:
    """R2 of contrasts, pooled over the coverages of the family's area."""
    points = [height.point for height in heights if height.value is not None]
    base = Row(id="complexity.contrast", on="test", protocol=scorer.curves.settings.protocol, family=family)
    if not points:
        return replace(base, reason="no coverage is in the area")
    got = scorer.contrast(points, [point.weighted_swap for point in points])
    return replace(
        base, value=got.value, low=got.low, high=got.high, n=got.n, objects=got.objects, reason=got.reason,
        chance=0.0, bag_of_concepts=0.0, seeds=max(len(point.split.unique()) for point in points),
    )  # fmt: skip


def _trapezoids(coverages: Sequence[float]) -> list[float]:
    """Weights of the points of a curve, summing to one."""
    if len(coverages) == 1:
        return [1.0]
    gaps = [b - a for a, b in pairwise(coverages)]
    weights = [((gaps[i - 1] if i else 0.0) + (gaps[i] if i < len(gaps) else 0.0)) / 2 for i in range(len(coverages))]
    return [weight / sum(weights) for weight in weights]
