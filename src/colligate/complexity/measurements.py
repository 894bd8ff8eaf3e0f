"""Question 2 as rows of a table: coverage curves, what can be quoted of them, and code length."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch

from colligate.complexity.approximators import Approximator
from colligate.complexity.areas import summary_rows
from colligate.complexity.code_length import CodeSettings, code_lengths
from colligate.complexity.curves import Curves, CurveSettings, coverage_curve
from colligate.complexity.estimates import Scorer, row_of, unsound
from colligate.complexity.families import STRICT_FAMILIES, family
from colligate.complexity.readers import Readers
from colligate.complexity.scoring import Point
from colligate.complexity.stacks import Schedule
from colligate.embeddings import Embeddings
<<<<<<< HEAD
from colligate.intervals import Estimate, Intervals
from colligate.measures import (
    bag_of_concepts_level,
    chance_level,
    rescale,
)
from colligate.records import NO_CEILING, Row
=======
from colligate.measures import Estimate, ObjectBootstrap
from colligate.records import Row
>>>>>>> complexity

CODED_FAMILIES = ("additive", "object_product", "global_product", "mlp256")
"""Whose code length is measured where the default families are fitted."""


@dataclass(frozen=True, kw_only=True)
class ComplexitySettings:
    """How question 2 is answered."""

    curves: CurveSettings = field(default_factory=CurveSettings)
    """Families, coverages, protocol."""
    code: CodeSettings = field(default_factory=CodeSettings)
    """How objects are revealed for the code length."""
    coded: tuple[str | Approximator, ...] | None = None
    """Families whose code length is measured; empty for none. Default: those that are fitted, if any were named, else
    the sum, the products and a hidden layer of 256."""
    reach: tuple[float, ...] = (0.5, 0.9)
    """Rescaled recognitions for which the smallest sufficient width is sought."""

    @property
    def to_code(self) -> tuple[str | Approximator, ...]:
        """Families whose code length is measured."""
        if self.coded is not None:
            return self.coded
        named = self.curves.families
        return CODED_FAMILIES if named in ((), STRICT_FAMILIES) else named


def complexity_rows(
    embeddings: Embeddings,
    settings: ComplexitySettings | None = None,
    *,
    readers: Readers | None = None,
    report: Callable[[str, int, int], None] | None = None,
) -> list[Row]:
    """How simple a rule is enough, and does it carry over to objects never seen? Paper: Figures 4 and 8.

    Args:
        embeddings: vectors of scenes of several objects.
        settings: families, coverages, protocol, code.
        readers: probes that score; fitted in folds of scenes by default.
        report: told about progress.

    Raises:
        ValueError: there is nothing to bind or to score.

    Example:
        >>> from colligate.binding import no_binding
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=5, shape=4).all_scenes(slots=2)
        >>> embeddings = Embeddings(no_binding(scenes.space, 2, 24)(scenes.values).float(), scenes)
        >>> settings = ComplexitySettings(
        ...     curves=CurveSettings(families=("additive",), coverages=(0.6, 0.8), pooled=2), coded=())
        >>> [round(row.value, 3) for row in complexity_rows(embeddings, settings) if row.id == "complexity.r2"]
        [1.0, 1.0]
    """
    settings = settings or ComplexitySettings()
    curves = coverage_curve(embeddings, settings.curves, readers=readers, report=report)
    if report is not None:
        report("intervals", 0, 1)
    rows = curve_rows(curves) + summary_rows(curves, settings.reach) + axis_rows(curves)
    if settings.to_code and settings.curves.protocol == "strict":
        rows += code_rows(curves.embeddings, settings, report)
    return rows


<<<<<<< HEAD
class _Scorer:
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


=======
>>>>>>> complexity
def curve_rows(curves: Curves) -> list[Row]:
    """A row for each measure, family and coverage; what is unsound of a point stands in `reason`."""
    scorer, found = Scorer(curves), list[Row]()
    for point in curves.points:
        if point.reason is not None:
            found.append(row_of(curves, "complexity.object", point, reason=point.reason))
            continue
        found += _point_rows(scorer, point)
    for point in curves.ceiling:
        found.append(_scenes(curves, point))
        for kind in ("concept", "object"):
            estimate = scorer.estimate(point, *scorer.outcome(point, kind))
            row = row_of(curves, f"complexity.ceiling.{kind}", point, estimate)
            found.append(replace(row, **_levels(scorer, point, kind)))
    return found


def _scenes(curves: Curves, point: Point) -> Row:
    """How many scenes the rules of a coverage learn from, and of how many, where a budget cuts them."""
    fitted, there = (sum(of) / len(point.scenes) for of in zip(*point.scenes, strict=True))
    reason = f"a seeded choice of {there:,.0f} scenes of the objects fitted on" if there > fitted else None
    return replace(row_of(curves, "complexity.scenes", point, value=fitted, reason=reason), family=None)


def _levels(scorer: Scorer, point: Point, kind: str) -> dict[str, float]:
    if kind == "concept":
        chance = float(scorer.concept_chance[point.rows].mean())
        return {"chance": chance, "bag_of_concepts": 1.0, "bag_of_concepts_strict": 1.0}
    if kind == "object":
        return {name: scorer.level(name, point) for name in scorer.levels}
    return {}


def _point_rows(scorer: Scorer, point: Point) -> Iterator[Row]:
    curves, note = scorer.curves, unsound(point)
    for kind in ("concept", "object", "object.unseen", "object.swap", "retrieval", "retrieval.up_to_order"):
        estimate, levels = scorer.estimate(point, *scorer.outcome(point, kind)), _levels(scorer, point, kind)
        yield replace(row_of(curves, f"complexity.{kind}", point, estimate, reason=note), **levels)
    estimate = scorer.estimate(point, point.errors, point.totals, complement=True)
    yield row_of(curves, "complexity.r2", point, estimate, reason=note, chance=0.0)
    estimate = scorer.estimate(point, point.weighted.errors, point.weighted.totals, complement=True)
    if estimate.value is None or math.isnan(estimate.value):
        estimate = Estimate(None, reason="not measured under this protocol")
    yield row_of(curves, "complexity.r2.weighted", point, estimate, reason=note, chance=0.0)
    for id, squares in (("swap", point.swap), ("swap.weighted", point.weighted_swap)):
        estimate = scorer.contrast([point], [squares])
        yield row_of(curves, f"complexity.r2.{id}", point, estimate, reason=note, chance=0.0, bag_of_concepts=0.0)
    reason = None if point.validated is not None else "nothing is held out to choose on, or objects aren't read"
    yield row_of(curves, "complexity.validated", point, value=point.validated, reason=reason)
    for id, values in (
        ("train_r2", point.train_r2), ("reached_r2", point.reached), ("adequate", point.adequate),
        ("values_seen", point.seen), ("identified", point.identified),
    ):  # fmt: skip
        asked = [float(value) for value in values if value is not None]
        given = [value for value in asked if math.isfinite(value)]
        reason = None
        if not given:
            reason = "the fitted scenes have one vector" if asked else "a rank says nothing of a flexible family"
        elif id == "train_r2":
            reason = fallen_back(point)
        mean = sum(given) / len(given) if given else None
        yield row_of(curves, f"complexity.{id}", point, value=mean, reason=reason)
    yield row_of(curves, "complexity.sound", point, value=point.sound)
    reason = None if point.strength is not None else "objects aren't read"
    yield row_of(curves, "complexity.strength", point, value=point.strength, reason=reason)
    by_split = torch.tensor(point.by_split("object"), dtype=torch.float64)
    spread = float(by_split.std()) if len(by_split) > 1 and not by_split.isnan().any() else None
    yield row_of(
        curves,
        "complexity.object.spread",
        point,
        value=spread,
        reason=None if spread is not None else "a spread needs two splits that score objects",
    )


def axis_rows(curves: Curves) -> list[Row]:
    """Shares of the variance that the largest principal axes hold: where one holds most, R2 is about little else."""
    return [
        Row(id="complexity.axis", on="all", protocol=curves.settings.protocol, family=f"{i + 1}", value=share)
        for i, share in enumerate(curves.largest)
    ]  # fmt: skip


def fallen_back(point: Point) -> str | None:
    """In how many splits validation took the sum of values, and nothing of what the family adds to it, in words."""
    words = [chosen for chosen in point.chosen if chosen.startswith("no ")]
    return f"validation took {words[0]} in {len(words)} of {len(point.chosen)} splits" if words else None


<<<<<<< HEAD
def unsound(point: Point) -> str | None:
    """What keeps a point from being read as the family's: counts of its splits, in words."""
    total, words = len(point.seen), list[str]()
    for count, what in (
        (sum(i is False for i in point.identified), "not identified"),
        (sum(not s for s in point.seen), "a value never shown"),
        (sum(not a for a in point.adequate), "not fitted as well as the family can be"),
    ):
        if count:
            words.append(f"{what} in {count} of {total} splits")
    return "; ".join(words) or None


def _row(
    curves: Curves, id: str, point: Point, estimate: Estimate | None = None, *, reason: str | None = None, **more: Any
) -> Row:
    if estimate is not None:
        more |= {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n,
                 "objects": estimate.objects}  # fmt: skip
        reason = "; ".join(r for r in (reason, estimate.reason) if r) or None
    return Row(
        id=id, on="test", protocol=curves.settings.protocol, coverage=point.coverage, family=point.family,
        seeds=len(point.split.unique()) or None, reason=reason, **more,
    )  # fmt: skip


def summary_rows(curves: Curves, reach: Sequence[float] = (0.5, 0.9)) -> list[Row]:
    """What can be quoted: the area under each family's curve, and the smallest width that reaches a recognition.

        height(c) = (object recognition - bag of concepts) / (ceiling - bag of concepts)
        area      = mean of height over coverages c, by trapezoids

    Points that aren't solid are left out; the heights are rows of their own, so that the table says over
    which coverages an area is. The interval resamples objects, the same ones at every coverage.
    """
    scorer, found, areas = _Scorer(curves), list[Row](), dict[str, float | None]()
    ceilings = {
        point.coverage: _Ceiling(point, scorer.estimate(point, *scorer.outcome(point, "object")).low)
        for point in curves.ceiling
    }
    for name in dict.fromkeys(point.family for point in curves.points):
        points = [point for point in curves.of(name) if point.reason is None]
        heights = [_height(scorer, point, ceilings[point.coverage]) for point in points]
        row = _area(scorer, curves.of(name), heights)
        areas[name] = row.value
        found += [row, *(_height_row(scorer, height) for height in heights)]
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
    reason: str | None = None


def _height(scorer: _Scorer, point: Point, top: _Ceiling) -> _Height:
    if bool(point.outcomes["object"].isnan().all()):
        return _Height(point, reason="objects aren't read")
    if not point.solid:
        return _Height(point, reason=unsound(point))
    bag = scorer.level("bag_of_concepts", point)
    value = rescale(point.mean("object"), bag, top.point.mean("object"))
    if value is None or (top.low is not None and top.low <= bag):
        return _Height(point, reason=NO_CEILING)
    level = scorer.levels["bag_of_concepts"][point.rows]
    values, defined = scorer.outcome(point, "object")
    ceiling, _ = scorer.outcome(top.point, "object")
    sums = scorer.sums(point, (values - level) * defined, (ceiling - level) * defined)
    return _Height(point, value, scorer.intervals.influence(*sums))


def _height_row(scorer: _Scorer, height: _Height) -> Row:
    row = _row(scorer.curves, "rescaled.complexity.object", height.point, reason=height.reason)
    if height.value is None or height.influence is None:
        return row
    counts = scorer.estimate(height.point, *scorer.outcome(height.point, "object"))
    row = replace(row, value=height.value, n=counts.n, objects=counts.objects, bag_of_concepts=0.0)
    if counts.low is None:
        return replace(row, reason=counts.reason)
    around = scorer.intervals.around(height.value, height.influence, scorer.scored([height.point]))
    return replace(row, low=around.low, high=around.high, reason=around.reason)


def _area(scorer: _Scorer, points: Sequence[Point], heights: Sequence[_Height]) -> Row:
    base = Row(id="complexity.area", on="test", protocol=scorer.curves.settings.protocol, family=points[0].family,
               bag_of_concepts=0.0, seeds=max(len(p.split.unique()) for p in points) or None)  # fmt: skip
    there = [h for h in heights if h.value is not None and h.influence is not None]
    low = [f"{height.point.coverage:g}" for height in heights if height.reason == NO_CEILING]
    if not there and low:
        return replace(base, reason=f"{NO_CEILING} (coverage {', '.join(low)})")
    if not there:
        return replace(base, reason="at no coverage is this family identified, fitted adequately and shown every value")
    coverages = [height.point.coverage for height in there]
    weights = torch.tensor(_trapezoids(coverages), dtype=torch.float64)
    value = float(torch.tensor([height.value for height in there], dtype=torch.float64) @ weights)
    influence = torch.stack([height.influence for height in there if height.influence is not None], dim=1) @ weights
    around = scorer.intervals.around(value, influence, scorer.scored([height.point for height in there]))
    left_out = [f"{p.coverage:g}" for p in points if p.coverage not in coverages]
    reason = f"coverages {', '.join(left_out)} left out" if left_out else None
    reason = "; ".join(one for one in (reason, around.reason) if one) or None
    return replace(base, value=value, low=around.low, high=around.high, objects=around.objects, reason=reason)


def _trapezoids(coverages: Sequence[float]) -> list[float]:
    """Weights of the points of a curve, summing to one."""
    if len(coverages) == 1:
        return [1.0]
    gaps = [b - a for a, b in pairwise(coverages)]
    weights = [((gaps[i - 1] if i else 0.0) + (gaps[i] if i < len(gaps) else 0.0)) / 2 for i in range(len(coverages))]
    return [weight / sum(weights) for weight in weights]


=======
>>>>>>> complexity
def code_rows(
    embeddings: Embeddings, settings: ComplexitySettings, report: Callable[[str, int, int], None] | None = None
) -> list[Row]:
    """Bits per scene of each family, and how many fewer than the Gaussian baseline's, with intervals over objects."""
    schedule = Schedule(steps=settings.curves.steps)
    families = [family(one, schedule) if isinstance(one, str) else one for one in settings.to_code]
    try:
        lengths = code_lengths(embeddings, families, settings.code, report=report)
    except ValueError as error:
        return [Row(id="complexity.bits", on="test", reason=str(error))]
    base = lengths[0]
    coded = embeddings.scenes[base.rows]
    intervals = Intervals(coded.objects, coded.values, over=settings.curves.over)
    found = list[Row]()
    for one in lengths:
        for id, bits in (("bits", one.bits), ("bits_saved", base.bits - one.bits)):
            if id == "bits_saved" and one is base:
                continue
            got = intervals.mean(bits)
            found.append(Row(
                id=f"complexity.{id}", on="test", family=one.family, value=got.value, low=got.low, high=got.high,
                n=got.n, objects=got.objects, seeds=1, reason=got.reason,
            ))  # fmt: skip
    return found
