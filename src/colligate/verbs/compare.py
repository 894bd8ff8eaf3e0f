"""Which of several finished runs binds better, and how sure is that?"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch

from colligate.intervals import Estimate, Intervals
from colligate.records import Row, open_run
from colligate.report.verdict import Measured
from colligate.runs import Findings
from colligate.verbs.config import CompareConfig

LEADING = (
    "probe.concept", "probe.object", "probe.object.swap", "r2.concept.least_squares", "r2.object.least_squares",
    "retrieval.object.avg+pos", "edit.retrieval.avg", "edit.retrieval.avg+pos", "information.linear.ratio",
    "complexity.area", "recognition.object.unseen.table", "recognition.object.unseen.among_unseen",
    "recognition.object.unseen.swaps", "crossmodal.concept", "crossmodal.object",
)  # fmt: skip
"""What is compared unless everything is asked for."""
OF_AREAS = ("complexity.area", "complexity.width")
"""What is comparable only over the same coverages."""
ROUNDING = 1e-9
"""Differences below this are those of arithmetic."""
SHOWN = 0.0005
"""Differences below this vanish in three decimals."""


class Difference(NamedTuple):
    """One number of two runs.

    Attributes:
        row: the first run's.
        other: the other run's.
        value: other - first.
        low: lower end of the 95 % interval of the difference; None where one of the two has no interval.
        high: upper end.
        how: `paired`: of the difference that each scene makes; `apart`: from the two intervals.
    """

    row: Row
    other: Row
    value: float
    low: float | None
    high: float | None
    how: Literal["paired", "apart"]

    @property
    def clear(self) -> bool:
        """Whether the interval leaves no room for no difference."""
        return self.low is not None and self.high is not None and (self.low > ROUNDING or self.high < -ROUNDING)

    @property
    def none(self) -> bool:
        """Whether the scored scenes show no difference that three decimals would show, and the interval allows none."""
        return not self.clear and self.low is not None and abs(self.value) < SHOWN

    @property
    def said(self) -> str:
        """What the interval allows to say."""
        if self.low is None or self.high is None:
            return "no interval"
        if self.none:
            return "no difference seen"
        return "undecided" if not self.clear else "clear" if abs(self.value) >= 0.001 else "clear, below .001"


class Comparison(NamedTuple):
    """Differences of one run from the first.

    Attributes:
        first: name of the first run's model.
        other: name of the other's.
        differences: by number, in the table's order.
        notes: what a reader should know, such as other scenes.
        sentence: the finding.
    """

    first: str
    other: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    sentence: str


def compare(config: CompareConfig) -> list[Comparison]:
    """Compare runs with the first, number by number.

    Where both scored the same scenes and kept every scene's outcome, the interval is one of the difference that each
    scene makes, so that what both find hard cancels.

    Elsewhere the two intervals give the difference's (square-and-add, exact for independent runs):

        low = d - sqrt((other - other.low)^2 + (first.high - first)^2),   high likewise

    Raises:
        ValueError: a folder is no finished run, or two runs have no number in common.
        WorkError: a file of a run is missing or damaged.

    Source: G. Y. Zou, A. Donner, "Construction of confidence limits about effect measures", 2008 (square-and-add).
    """
    first = Findings.open(config.first)
    return [compare_two(first, Findings.open(other), every=config.all) for other in config.others]


def compare_two(first: Findings, other: Findings, *, every: bool = False) -> Comparison:
    """Compare what two runs found, number by number, as `compare` does.

    Args:
        first: what the other is compared with.
        other: of the same kind.
        every: compare every number, not only the leading ones.

    Raises:
        ValueError: they have no number in common.
    """
    paired = _paired(first, other)
    theirs = {_key(row): row for row in other.rows if row.value is not None}
    found, other_areas = list[Difference](), _areas_over_others(first, other)
    for row in first.rows:
        match = theirs.get(_key(row))
        if row.value is None or match is None or not (every or row.id in LEADING):
            continue
        if row.id in OF_AREAS and (row.family in other_areas or (row.id != "complexity.area" and other_areas)):
            continue
        found.append(_difference(row, match, paired if row.on == "test" and row.family is None else {}))
    names = str(first.record.get("name")), str(other.record.get("name"))
    if names[0] == names[1]:
        names = f"{names[0]} ({_run(first)})", f"{names[1]} ({_run(other)})"
    if not found:
        raise ValueError(
            f"{names[0]} and {names[1]} have no {'' if every else 'leading '}number in common; compare runs of "
            f"one kind{'' if every else ', or add --all'}."
        )
    notes = list(dict.fromkeys([*_doubts(first), *_doubts(other)]))
    hashes = [_mapping(_mapping(r.record.get("inputs")).get("world")).get("content_hash") for r in (first, other)]
    if hashes[0] != hashes[1]:
        notes.append("The two runs hold other scenes, so that every difference is also one of worlds.")
    for name in ("protocol", "normalize", "layer", "pooling"):
        values = [_mapping(r.record.get("config")).get(name) for r in (first, other)]
        if values[0] != values[1]:
            notes.append(f"The two runs differ in {name}: {values[0]} and {values[1]}.")
    notes += other_areas.values()
    return Comparison(*names, tuple(found), tuple(notes), _sentence(*names, found))


def _run(of: Findings) -> str:
    return str(of.record.get("run")) if of.folder is None else of.folder.name


def _doubts(of: Findings) -> list[str]:
    return [] if of.folder is None else open_run(of.folder).doubts


def _areas_over_others(first: Findings, other: Findings) -> dict[str | None, str]:
    """Families whose areas are over other coverages in the two runs, or over unknown ones, and what is said of them."""
    runs, found = (Measured(first.rows), Measured(other.rows)), dict[str | None, str]()
    areas = [{row.family for row in run.families("complexity.area") if row.value is not None} for run in runs]
    for family in sorted(one for one in areas[0] & areas[1] if one is not None):
        over = [run.area_coverages(family) for run in runs]
        if over[0] and over[0] == over[1]:
            continue
        shown = [", ".join(f"{coverage:g}" for coverage in one) or "unknown coverages" for one in over]
        found[family] = (
            f"Areas of {family} aren't compared, being over other coverages: {shown[0]} and {shown[1]}; take both with "
            "one --coverages, or compare the curves by --all."
        )
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _key(row: Row) -> tuple[object, ...]:
    return row.id, row.on, row.protocol, row.concept, row.family, row.coverage


def _paired(first: Findings, other: Findings) -> dict[str, Estimate]:
    """Id -> the difference with its interval, for numbers whose outcomes of the very same scenes both runs kept."""
    shown = [run.arrays.get("scored.objects") for run in (first, other)]
    if shown[0] is None or shown[1] is None or not torch.equal(shown[0], shown[1]):
        return {}
    values, over = first.arrays.get("scored.values"), _mapping(first.record.get("config")).get("intervals", "values")
    intervals, found = Intervals(shown[0], values, over=over), dict[str, Estimate]()
    for name, kept in first.arrays.items():
        if name.startswith("scored.") and name not in ("scored.objects", "scored.values") and name in other.arrays:
            theirs = other.arrays[name]
            shares = all(bool((lower * (1 - lower) == 0).all() & (upper >= 0).all() & (upper <= lower).all())
                         for upper, lower in (kept, theirs))  # fmt: skip
            found[name.removeprefix("scored.")] = intervals.difference(
                (kept[0], kept[1]), (theirs[0], theirs[1]), shares=shares
            )
    return found


def _difference(row: Row, other: Row, paired: Mapping[str, Estimate]) -> Difference:
    assert row.value is not None
    assert other.value is not None
    value = other.value - row.value
    if row.low is None or row.high is None or other.low is None or other.high is None:
        return Difference(row, other, value, None, None, "apart")
    if row.id in paired:
        return Difference(row, other, value, paired[row.id].low, paired[row.id].high, "paired")
    below = ((other.value - other.low) ** 2 + (row.high - row.value) ** 2) ** 0.5
    above = ((other.high - other.value) ** 2 + (row.value - row.low) ** 2) ** 0.5
    return Difference(row, other, value, value - below, value + above, "apart")


def _sentence(first: str, other: str, differences: Sequence[Difference]) -> str:
    """The finding on objects, in words: only what its interval allows."""
    about = {
        "recognition.object.unseen.swaps": "binds unseen objects in",
        "crossmodal.object": "finds objects across modalities in",
        "probe.object": "lets probes read the objects of",
    }
    for id, verb in about.items():
        for one in differences:
            if one.row.id != id or one.low is None or one.high is None:
                continue
            if one.none:
                most = 100 * max(abs(one.low), abs(one.high))
                return (
                    f"No difference seen: {first} and {other} agree in {id} ({one.row.value:.3f}); on other scenes "
                    f"they may differ by up to {most:.1f} points."
                )
            if not one.clear:
                return (
                    f"Undecided: {first} and {other} can't be told apart by {id} ({one.low:+.3f} to {one.high:+.3f})."
                )
            better = other if one.value > 0 else first
            ends = sorted((abs(one.low), abs(one.high)))
            more = f"{100 * abs(one.value):.1f} points more of the scenes"
            return f"{better} {verb} {more} ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})."
    return f"No number on objects with an interval is common to {first} and {other}."
