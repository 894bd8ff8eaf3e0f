"""Whether vectors bind: what each read-out finds, and what all of them together allow one to say.

A positive claim names the read-out that it rests on, and its interval is widened for the best of several having been
picked. A negative claim takes every read-out to fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

from colligate.records import Row
from colligate.report.verdict.claims import Measured, compare, fraction, percent, too_few

READOUTS = ("linear", "quadratic", "attention")
"""Read-outs of binding information, the simplest first."""
NOTHING_HELD = 0.05
"""Below this upper end of the share read of what the values leave open, vectors are said to show no binding."""
PROBED = ("probes", "swaps")
"""Evidence that the linear probes of objects give."""
NEEDED = ("probes", "linear", "quadratic")
"""What must have been tried, and have failed, before vectors are said to show no binding."""


@dataclass(frozen=True)
class Evidence:
    """What one read-out says of binding.

    Attributes:
        name: probes, swaps, linear, quadratic or attention.
        row: its number.
        level: what vectors reach that are blind to binding.
    """

    name: str
    row: Row
    level: float


@dataclass(frozen=True)
class Binding:
    """What all read-outs allow one to say.

    Attributes:
        answer: yes; no: none of several read-outs finds any; undecided; not measured.
        tried: all that were measured well enough for an interval.
        clear: those of them that clear their level with the choice paid for.
    """

    answer: Literal["yes", "no", "undecided", "not measured"]
    tried: tuple[Evidence, ...] = ()
    clear: tuple[Evidence, ...] = ()

    @property
    def rests_on(self) -> Evidence | None:
        """The simplest read-out that finds binding, or None."""
        return self.clear[0] if self.clear else None


def widened(row: Row, tried: int) -> Row:
    """The row with its interval at the level that is left for one of several: .05 / tried (Bonferroni), as a normal's.

    Example:
        >>> one = Row(id="a", value=0.5, low=0.4, high=0.6)
        >>> widened(one, 1) == one, round(widened(one, 5).low, 3)
        (True, 0.369)
    """
    if row.value is None or row.low is None or row.high is None or tried <= 1:
        return row
    normal = NormalDist()
    by = normal.inv_cdf(1 - 0.025 / tried) / normal.inv_cdf(0.975)
    return replace(row, low=row.value - by * (row.value - row.low), high=row.value + by * (row.high - row.value))


def evidence(table: Measured) -> list[Evidence]:
    """Every read-out that was measured well enough for an interval, the simplest first.

    Recognition of objects counts where it lies above what any vectors could reach that are blind to binding; tables
    without that ceiling have only a bag of concepts with ties at random to hold it against.
    """
    found, objects = list[Evidence](), table.find("probe.object")
    blind, both = table.find("probe.object.blind"), table.find("probe.object.swap.both")
    if objects is not None:
        level = objects.bag_of_concepts if blind is None else blind.value
        if level is not None and level < 1:
            found.append(Evidence("probes", objects, level))
    if both is not None:
        found.append(Evidence("swaps", both, max(both.chance or 0.0, both.bag_of_concepts or 0.0)))
    for name in READOUTS:
        row = table.find(f"information.{name}.ratio")
        if row is not None:
            found.append(Evidence(name, row, row.bag_of_concepts or 0.0))
    return [one for one in found if one.row.value is not None and not too_few(one.row)]


def binding(table: Measured) -> Binding:
    """Whether the vectors bind.

    Example:
        >>> rows = [Row(id=f"information.{name}.ratio", on="test", value=v, low=v - 0.01, high=v + 0.01, n=99)
        ...     for name, v in (("linear", 0.0), ("quadratic", 0.9))]
        >>> found = binding(Measured(rows))
        >>> found.answer, found.rests_on.name
        ('yes', 'quadratic')
    """
    tried = tuple(evidence(table))
    if not tried:
        return Binding("not measured")
    clear = tuple(one for one in tried if compare(widened(one.row, len(tried)), one.level) == "yes")
    if clear:
        return Binding("yes", tried, clear)
    names = {one.name for one in tried} | ({"probes"} if any(one.name == "swaps" for one in tried) else set[str]())
    failed = all(compare(one.row, one.level) != "yes" and _finds_nothing(one) for one in tried)
    return Binding("no" if failed and names.issuperset(NEEDED) else "undecided", tried)


def _finds_nothing(one: Evidence) -> bool:
    """Whether a read-out of information is bounded near nothing, or found on validation that nothing helps at all."""
    if one.name not in READOUTS:
        return True  # recognition that doesn't clear its level bounds little: read-outs of information decide
    return abs(one.row.value or 0.0) < 1e-6 or (one.row.high or 0.0) < NOTHING_HELD


def binds_nothing(table: Measured) -> Row | None:
    """The read-out of information that found most, where all that are needed found nothing; else None."""
    found = binding(table)
    of_information = [one.row for one in found.tried if one.name in READOUTS]
    return max(of_information, key=lambda row: row.value or 0.0) if found.answer == "no" else None


def best_of(tried: Sequence[Evidence]) -> str:
    """That a number is the best of several, as part of a sentence."""
    return f" (the best of {len(tried)} read-outs tried)" if len(tried) > 1 else ""


def floored(value: float) -> str:
    """A lower bound as it is printed: information can't be less than none, though a bound may.

    Example:
        >>> floored(0.25), floored(-3.2)
        ('0.25', '0.00 (floored; the bound itself is \N{MINUS SIGN}3.20)')
    """
    return f"0.00 (floored; the bound itself is {fraction(value)})" if value <= -0.005 else fraction(max(value, 0.0))


def listed(tried: Sequence[Evidence]) -> str:
    """The read-outs that were tried, in a row."""
    names = list(dict.fromkeys(
        "linear probes" if one.name in ("probes", "swaps") else "attention over tokens" if one.name == "attention"
        else f"a {one.name} read-out" for one in tried
    ))  # fmt: skip
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def share_that_binds(table: Measured) -> str:
    """How many of a concept's values bind, where scenes of the others alone show nothing; "" where none is left out.

    Example:
        >>> least = Row(id="information.linear.least.color", on="test", concept="color", family="4 of 8", n=90,
        ...     value=0.0, low=-0.1, high=0.1)
        >>> others = replace(least, id="information.linear.others.color", value=0.9, low=0.8, high=1.0)
        >>> share_that_binds(Measured([least, others]))
        'half of the values of color bind (4 of 8); scenes of the others alone tell at most 10 %'
    """
    # Blind vectors are told nothing by read-outs of information, but may win half of all swaps.
    for name, level in (("information.quadratic", 0.0), ("information.linear", 0.0), ("probe.object.swap", 0.5)):
        there = [row for row in table.rows if row.id.startswith(f"{name}.") and not too_few(row)]
        others = {row.concept: row for row in there if ".others." in row.id}
        for least in (row for row in there if ".least." in row.id and row.concept in others):
            beside, most = others[least.concept].low or 0.0, least.high or 0.0
            apart = most < beside / 2 if level == 0 else level < beside and most < beside
            if compare(least, level) == "yes" or not apart:
                continue
            few, of = (int(part) for part in (least.family or "0 of 0").split(" of "))
            many = "half" if 2 * few == of else f"{of - few}"
            what = "tell at most" if level == 0 else "are told from their swaps in at most"
            return (
                f"{many} of the values of {least.concept} bind ({of - few} of {of}); scenes of the others alone {what} "
                f"{percent(max(0.0, most))}"
            )
    return ""
