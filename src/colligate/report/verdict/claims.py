"""What may be claimed: answers, tiles, and how an interval lies against its level."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from colligate.records import Row

Answer = Literal["yes", "largely", "partly", "no", "undecided", "no verdict", "not measured"]
"""What a tile says. `undecided`: the interval doesn't clear the level. `no verdict`: too few objects or scenes."""
FEWEST_OBJECTS = 8
FEWEST_SCENES = 20
TOO_FEW = "too few objects or scenes for an interval: nothing is claimed"

AREA_OF = "rescaled.complexity.object"
"""What an area is the mean of, coverage by coverage."""


@dataclass(frozen=True)
class Tile:
    """One question, the number that answers it, and what may be said of it.

    Attributes:
        key: short name of the question, the anchor of its section.
        title: the question as a noun.
        answer: what the interval allows one to say.
        sentence: the same in plain words.
        row: the number with its interval and levels; None where it wasn't measured.
        percent: whether the number is a share of scenes (else a bare fraction such as R2).
    """

    key: str
    title: str
    answer: Answer
    sentence: str
    row: Row | None
    percent: bool = True


@dataclass(frozen=True)
class Verdict:
    """The finding of a study.

    Attributes:
        sentence: one plain sentence, for the page and the terminal.
        tiles: one for each question, in the page's order.
    """

    sentence: str
    tiles: tuple[Tile, ...]


class Measured:
    """Find rows by id, without caring whether they were measured.

    Example:
        >>> table = Measured([Row(id="probe.object", on="test", value=0.9), Row(id="probe.object", value=0.95)])
        >>> table.find("probe.object").value, table.find("probe.object", "all").value, table.find("r2.object.avg")
        (0.9, 0.95, None)
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._by_key: dict[tuple[str, str, str | None], Row] = {}
        for row in sorted(self.rows, key=lambda r: r.protocol != "strict"):
            self._by_key.setdefault((row.id, row.on, row.family), row)

    def find(self, id: str, *on: str, family: str | None = None) -> Row | None:
        """The first row with a value among the given parts (test, then all, then fit); else one that says why not."""
        found = [self._by_key.get((id, part, family)) for part in on or ("test", "all", "fit")]
        there = [row for row in found if row is not None]
        return next((row for row in there if row.value is not None), there[0] if there else None)

    def first(self, ids: Sequence[str], *on: str) -> Row | None:
        """The first of several ids that has a value; else the first that says why not."""
        there = [row for row in (self.find(id, *on) for id in ids) if row is not None]
        return next((row for row in there if row.value is not None), there[0] if there else None)

    def families(self, id: str, *on: str) -> list[Row]:
        """All rows of an id that name a family, in the table's order."""
        parts = on or ("test", "all", "fit")
        kept = [row for row in self.rows if row.id == id and row.family is not None and row.on in parts]
        best = {row.family: min(parts.index(r.on) for r in kept if r.family == row.family) for row in kept}
        return [row for row in kept if parts.index(row.on) == best[row.family]]

    def area_coverages(self, family: str | None) -> tuple[float, ...]:
        """The coverages that a family's area is over; none where the table doesn't say."""
        return tuple(sorted(
            row.coverage for row in self.rows
            if row.id == AREA_OF and row.family == family and row.value is not None and row.coverage is not None
        ))  # fmt: skip

    def normalized(self) -> "Measured":
        """The same measurements on vectors of length one, under their own ids."""
        prefix = "normalized."
        return Measured(replace(r, id=r.id.removeprefix(prefix)) for r in self.rows if r.id.startswith(prefix))


def percent(value: float) -> str:
    """A share in percent that never rounds up to all or down to nothing.

    Example:
        >>> percent(0.934), percent(0.9996), percent(1.0), percent(0.0004)
        ('93 %', '99.9 %', '100 %', '<0.1 %')
    """
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    if 0 < value < 0.0005:
        return "<0.1 %"
    if value >= 0.995:
        return f"{min(round(100 * value, 1), 99.9)} %" if value < 1 else f"{100 * value:.0f} %"
    return f"{100 * value:.1f} %" if 0 < value < 0.005 else f"{100 * value:.0f} %"


def fraction(value: float) -> str:
    """A number with two decimals that never rounds up to one.

    Example:
        >>> fraction(0.934), fraction(0.9996), fraction(-0.5)
        ('0.93', '0.999', '−0.50')
    """
    text = f"{min(value, 0.999):.3f}" if 0.995 <= value < 1 else f"{0.0 if abs(value) < 0.005 else value:.2f}"
    return text.replace("-", "\N{MINUS SIGN}")


def spans(low: float, high: float, show: Callable[[float], str]) -> str:
    """Both ends of an interval; with more digits where they would round to the same.

    Example:
        >>> spans(0.2, 0.45, percent), spans(0.99931, 0.99958, fraction), spans(0.0, 0.0, fraction)
        ('20 % to 45 %', '0.9993 to 0.9996', '0.00 to 0.00')
    """
    ends, digits = (show(low), show(high)), 4
    while ends[0] == ends[1] and low != high and digits < 9:
        in_percent = ends[0].endswith("%")
        ends = tuple(f"{100 * x:.{digits - 2}f} %" if in_percent else f"{x:.{digits}f}" for x in (low, high))
        digits += 1
    return " to ".join(ends).replace("-", "\N{MINUS SIGN}")


def too_few(row: Row) -> bool:
    """Whether a row carries no interval, or rests on too few objects or scenes for a claim."""
    return (
        row.low is None
        or row.high is None
        or (row.objects is not None and row.objects < FEWEST_OBJECTS)
        or (row.n is not None and row.n < FEWEST_SCENES)
    )


def unsaid(row: Row | None, what: str, show: Callable[[float], str]) -> str:
    """Why nothing is said: not measured, not measurable, or on too few scenes.

    Example:
        >>> unsaid(None, "Edits were", percent)
        'Edits were not measured in this study.'
    """
    if row is None:
        return f"{what} not measured in this study."
    if row.value is None:
        return f"{what} not measured: {row.reason or 'no reason was recorded'}."
    return f"{show(row.value)}, but on {TOO_FEW}."


def between(coverages: Sequence[float]) -> str:
    """Coverages as the share of the objects that a rule was fitted on, in words.

    Example:
        >>> between((0.2, 0.4, 0.6, 0.8)), between((0.5,)), between(())
        ('20 to 80 % of the objects', '50 % of the objects', 'some objects')
    """
    if not coverages:
        return "some objects"
    ends = dict.fromkeys(f"{100 * c:.3g}" for c in (min(coverages), max(coverages)))
    return f"{' to '.join(ends)} % of the objects"


CLAIMS = ("yes", "largely", "partly")
"""Answers that claim something of the model."""


def compare(row: Row | None, level: float | None) -> Answer:
    """Where an interval lies against a level: above (yes), below (no), across or without a level (undecided).

    Example:
        >>> compare(Row(id="probe.object", value=0.6, low=0.5, high=0.7, n=100), 0.25)
        'yes'
    """
    if row is None or row.value is None:
        return "not measured"
    if too_few(row) or row.low is None or row.high is None:
        return "no verdict"
    if level is None:
        return "undecided"
    return "yes" if row.low > level else "no" if row.high < level else "undecided"


def rule_in_words(family: str) -> str:
    """What a family of rules is called in sentences.

    Example:
        >>> rule_in_words("mlp1024"), rule_in_words("additive"), rule_in_words("mine")
        ('hidden layer of 1,024 units', 'sum of values', 'mine')
    """
    plain = {
        "additive": "sum of values", "bag_quadratic": "quadratic bag of concepts",
        "object_product": "sum and product within objects",
        "global_product": "sum and product over the scene", "convolution": "sum and convolution within objects",
        "object_product.head": "sum and mixed products within objects",
        "global_product.head": "sum and mixed products over the scene",
        "forest": "random forest", "boosted": "boosted trees",
    }  # fmt: skip
    if family.startswith("mlp") and family[3:].isdigit():
        return f"hidden layer of {int(family[3:]):,} units"
    return plain.get(family, family)
