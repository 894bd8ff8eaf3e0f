"""Question 2 as rows of a table: coverage curves, what can be quoted of them, and code length."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from colligate.approximation.approximators import Approximator
from colligate.approximation.areas import summary_rows
from colligate.approximation.code_length import START, CodeSettings, Gaussian, code_lengths
from colligate.approximation.contrast import Swaps
from colligate.approximation.curves import Curves, CurveSettings, coverage_curve
from colligate.approximation.estimates import Scorer, row_of, unsound
from colligate.approximation.families import STRICT_FAMILIES, family
from colligate.approximation.readers import Readers
from colligate.approximation.scoring import Point
from colligate.approximation.stacks import Schedule
from colligate.embeddings import Embeddings
from colligate.intervals import Estimate, Intervals
from colligate.records import Row

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
        rows += code_rows(curves.embeddings, settings, report, curves.swaps)
    return rows


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
    held = point.held.r2
    reason = None if math.isfinite(held) else "nothing is held out to choose on"
    yield row_of(curves, "complexity.validated_r2", point, value=held if reason is None else None, reason=reason)
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
        elif id == "adequate" and point.behind:
            reason = note
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


UNCODED = (
    "no contrast is coded: it takes a block of objects that completes a scene and its swap, in every order, with at "
    f"least {START} such pairs among the held-out objects revealed before, and vectors that differ between the two"
)


def code_rows(
    embeddings: Embeddings,
    settings: ComplexitySettings,
    report: Callable[[str, int, int], None] | None = None,
    swaps: Swaps | None = None,
) -> list[Row]:
    """Bits per scene, and per contrast of a scene and its swap, of each family, and how many fewer than the Gaussian's.

    Both with their intervals. A family that predicts no contrast saves none: that is no estimate, and has no width.
    """
    swaps = swaps or Swaps.of(embeddings.scenes)
    schedule = Schedule(steps=settings.curves.steps)
    families = [family(one, schedule) if isinstance(one, str) else one for one in settings.to_code]
    try:
        lengths = code_lengths(embeddings, families, settings.code, swaps=swaps, report=report)
    except ValueError as error:
        return [Row(id="complexity.bits", on="test", reason=str(error))]
    base, over = lengths[0], settings.curves.over
    coded = embeddings.scenes[base.rows]
    intervals = Intervals(coded.objects, coded.values, over=over)
    found = list[Row]()
    for one in lengths:
        found += _coded(one.family, "", one.bits, base.bits, intervals)
    if not len(base.pairs):
        return [*found, Row(id="complexity.bits.swap", on="test", reason=UNCODED)]
    intervals = Intervals(*swaps.shared(base.pairs, embeddings.scenes.space), over=over)
    for one in lengths:
        rows = _coded(one.family, ".swap", one.contrast, base.contrast, intervals)
        found += [
            replace(row, value=0.0, low=0.0, high=0.0, reason=None) if one.blind and "saved" in row.id else row
            for row in rows
        ]
    return found


def _coded(name: str, of: str, bits: Tensor, base: Tensor, intervals: Intervals) -> Iterator[Row]:
    """Bits of a family, and how many fewer than the baseline's (none of its own)."""
    for id, each in (("bits", bits), ("bits_saved", base - bits)):
        if id == "bits" or name != Gaussian().name:
            got = intervals.mean(each)
            yield Row(
                id=f"complexity.{id}{of}", on="test", family=name, value=got.value, low=got.low, high=got.high,
                n=got.n, objects=got.objects, seeds=1, reason=got.reason,
            )  # fmt: skip
