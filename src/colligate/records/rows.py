"""Rows of results, and the table that they make."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from colligate.records.files import WorkError

NO_CEILING = "the probes read no more of the true vectors than a bag of concepts"
"""Why a rule has no area where the vectors hold no more than values: how the reason begins."""
AGAIN = "run it again with --force"
"""What mends a run whose files are damaged."""
NOT_FITTED = "not fitted: "
"""How the reason begins that a hidden layer falls short of a closed form; see `complexity.adequate`."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured number with what is needed to read it.

    Attributes:
        id: dotted name, listed in docs/metrics.md.
        on: which rows were scored: all, fit or test.
        protocol: strict or paper.
        concept: the concept measured, where it is one.
        objects: how many objects occur in what was scored.
        coverage: fit objects / all objects, where objects were held out.
        family: the read-out, layer or strength, where there are several.
        seeds: number of seeds behind the value.
        value: the number; None when it can't be given, and `reason` says why.
        low: lower end of the 95 % interval.
        high: upper end.
        n: number of scenes, edits or pairs scored.
        chance: expected value for random scores.
        bag_of_concepts: expected value for an ideal bag-of-concepts model with ties broken at random.
        bag_of_concepts_strict: the same with a tie counted as a miss.
        random_init: the same measurement on the same architecture with fresh weights.
        reason: why a value, interval or level is missing.
    """

    id: str
    on: str = "all"
    protocol: str = "strict"
    concept: str | None = None
    objects: int | None = None
    coverage: float | None = None
    family: str | None = None
    seeds: int | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    chance: float | None = None
    bag_of_concepts: float | None = None
    bag_of_concepts_strict: float | None = None
    random_init: float | None = None
    reason: str | None = None

    def __str__(self) -> str:
        """The number with what it takes to read it, in a line.

        Example:
            >>> print(Row(id="probe.object", on="test", value=0.97, low=0.95, high=0.98, n=118, bag_of_concepts=0.52))
            probe.object 0.970 (0.950 to 0.980), n 118; bag of concepts 0.520
        """
        family = "" if self.family is None else f" ({self.family})"
        at = "" if self.coverage is None else f" at {self.coverage:g}"
        value = f"none: {self.reason}" if self.value is None else f"{self.value:.3f}"
        interval = "" if self.low is None or self.high is None else f" ({self.low:.3f} to {self.high:.3f})"
        levels = (
            ("chance", self.chance), ("bag of concepts", self.bag_of_concepts), ("random weights", self.random_init)
        )  # fmt: skip
        beside = ", ".join(f"{name} {level:.3f}" for name, level in levels if level is not None)
        counted = "" if self.n is None else f", n {self.n:,}"
        return f"{self.id}{family}{at} {value}{interval}{counted}{f'; {beside}' if beside else ''}"


COLUMNS = tuple(field.name for field in fields(Row))
_FRACTIONS = {"coverage", "value", "low", "high", "chance", "bag_of_concepts", "bag_of_concepts_strict", "random_init"}
_COUNTS = {"objects", "seeds", "n"}
NUMBERS = frozenset(_FRACTIONS | _COUNTS)
"""Columns that hold numbers."""


def table_bytes(rows: Iterable[Row]) -> bytes:
    """The rows as CSV, numbers in full precision, absent ones empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        cells = asdict(row)
        writer.writerow(
            [
                "" if cells[name] is None else repr(cells[name]) if isinstance(cells[name], float) else cells[name]
                for name in COLUMNS
            ]
        )
    return text.getvalue().encode()


def read_table(path: Path) -> list[Row]:
    """Read a `table.csv` back.

    Raises:
        WorkError: it is missing or damaged, or its columns aren't those of this version.
    """
    try:
        return parse_table(path.read_bytes(), path)
    except FileNotFoundError:
        raise WorkError(f"{path} is missing, though a finished run has one; {AGAIN}.") from None


def parse_table(content: bytes, path: Path) -> list[Row]:
    """The rows of a `table.csv`'s content.

    Args:
        content: bytes.
        path: where they come from, for the message.

    Raises:
        WorkError: it is damaged, or its columns aren't those of this version.
    """
    try:
        reader = csv.DictReader(io.StringIO(content.decode(), newline=""), restval=None)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise WorkError(f"{path} has other columns than a table of this version; {AGAIN}.")
        return [_row(cells, f"line {reader.line_num} of {path}", AGAIN) for cells in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise WorkError(f"{path} is damaged ({error}); {AGAIN}.") from None


def _row(cells: Mapping[str | None, Any], where: str, again: str) -> Row:
    if None in cells or None in cells.values():
        raise WorkError(f"{where[0].upper()}{where[1:]} has too many or too few cells; {again}.")
    try:
        return Row(**{str(name): _parse(str(name), cell) for name, cell in cells.items()})
    except ValueError as error:
        raise WorkError(f"{where[0].upper()}{where[1:]} holds a cell that is no number ({error}); {again}.") from None


def _parse(name: str, cell: str) -> Any:
    if cell == "":
        return None
    return float(cell) if name in _FRACTIONS else int(cell) if name in _COUNTS else cell


def with_random_init(rows: Iterable[Row], control: Iterable[Row], reason: str | None = None) -> list[Row]:
    """The rows with the control's value of the same measurement beside each.

    Args:
        rows: what was measured.
        control: the same of the control.
        reason: why there is no level, said in every row that gets none.

    Example:
        >>> rows = with_random_init([Row(id="probe.object", value=1.0)], [], "no random-init level: no model")
        >>> rows[0].random_init, rows[0].reason
        (None, 'no random-init level: no model')
    """
    key = ("id", "on", "protocol", "concept", "family", "coverage")
    beside = {tuple(getattr(row, k) for k in key): row for row in control}
    found = list[Row]()
    for row in rows:
        match = beside.get(tuple(getattr(row, k) for k in key))
        level, why = (None, reason) if match is None else (match.value, None)
        if match is not None and match.value is None and row.value is not None:
            why = f"no random-init level: {match.reason or 'the control has no value'}"
        said = "; ".join(one for one in (row.reason, why) if one)
        found.append(replace(row, random_init=level, reason=said or None))
    return found
