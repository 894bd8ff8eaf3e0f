"""Tables of the page: cells with their intervals, and footnotes that say why a number is missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from colligate.records import Row


@dataclass(frozen=True)
class Cell:
    """What stands in one cell.

    Attributes:
        text: the number or words; a dash where there is none.
        interval: its 95 % interval, set smaller.
        kind: label cells head their row; reference cells quote the paper.
        note: number of the footnote that says why it is missing.
    """

    text: str
    interval: str = ""
    kind: Literal["label", "number", "absent", "reference", "words"] = "number"
    note: int | None = None


@dataclass(frozen=True)
class Table:
    """A table with its caption, its column heads and its footnotes."""

    key: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def decimals(value: float, digits: int = 3) -> str:
    """A number as tables show it; one below 1 is never rounded up to 1.

    Example:
        >>> decimals(0.93412), decimals(0.99997), decimals(1.0)
        ('0.934', '0.9999', '1.000')
    """
    text = f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return text if value < 0 or value >= 1 or float(text) < 1 or digits >= 4 else f"{min(value, 0.9999):.4f}"


def between(low: float, high: float, digits: int = 3) -> str:
    """The ends of an interval, as tables show them.

    Example:
        >>> between(0.9, 0.95), between(-0.1, 0.1)
        ('0.900–0.950', '−0.100 to 0.100')
    """
    joint = " to " if low < 0 else "\N{EN DASH}"
    return f"{decimals(low, digits)}{joint}{decimals(high, digits)}"


FLOORED = "Binding information below 0, where a read-out helps less than none, is shown as 0; table.csv has the number."
"""What is said beside a floored number."""


def floored(row: Row) -> Row:
    """The row as it is shown: information is never less than none, whatever an estimate says.

    Example:
        >>> floored(Row(id="information.linear.ratio", value=-0.2, low=-0.5, high=0.1)).value
        0.0
    """
    if not row.id.removeprefix("normalized.").startswith("information.") or row.value is None:
        return row
    if row.low is None or row.high is None or row.high <= 0:  # nothing is left of an interval below 0
        return replace(row, value=max(row.value, 0.0), low=None, high=None)
    return replace(row, value=max(row.value, 0.0), low=max(row.low, 0.0))


@dataclass
class TableBuilder:
    """Collect rows of cells; reasons become numbered footnotes, each reason once."""

    key: str
    caption: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list[tuple[Cell, ...]])
    notes: list[str] = field(default_factory=list[str])
    floored: bool = False

    def value(self, row: Row | None, digits: int = 3) -> Cell:
        """The number of a row with its interval; a dash with its reason where there is none."""
        if row is None:
            return self.absent(None)
        if row.value is None:
            return self.absent(row.reason or "no reason was recorded")
        if (shown := floored(row)) != row:
            self.floored, row = True, shown
            assert row.value is not None
        if row.low is None or row.high is None:
            note = self._note(f"no interval: {row.reason}") if row.reason and _about_interval(row.reason) else None
            return Cell(decimals(row.value, digits), note=note)
        return Cell(decimals(row.value, digits), between(row.low, row.high, digits))

    def level(self, row: Row | None, name: str) -> Cell:
        """A level beside a number: chance, bag of concepts, random weights."""
        level = getattr(row, name) if row is not None else None
        if level is not None:
            return Cell(decimals(level))
        reason = row.reason if row is not None else None
        about_interval = row is not None and row.value is not None and row.low is None
        return self.absent(reason if name == "random_init" and not about_interval else None)

    def absent(self, reason: str | None) -> Cell:
        """A dash, with a footnote if there is a reason."""
        return Cell("–", kind="absent", note=self._note(reason) if reason else None)

    def count(self, row: Row | None) -> Cell:
        """How many scenes or edits were scored."""
        return Cell(f"{row.n:,}") if row is not None and row.n is not None else self.absent(None)

    def add(self, label: str, *cells: Cell) -> None:
        """Add a row unless all its cells are absent without a reason."""
        if any(cell.kind not in ("absent", "reference") or cell.note for cell in cells):
            self.rows.append((Cell(label, kind="label"), *cells))

    def build(self, *more: str) -> Table | None:
        """The table without its empty columns, or None if it holds no number; more notes follow the numbered."""
        if not any(cell.kind == "number" for row in self.rows for cell in row):
            return None
        kept = [0] + [
            i
            for i in range(1, len(self.columns))
            if any((row[i].kind != "absent" and row[i].text) or row[i].note for row in self.rows)
        ]
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        numbers = list(dict.fromkeys(cell.note for row in rows for cell in row if cell.note is not None))
        renumbered = tuple(
            tuple(Cell(c.text, c.interval, c.kind, numbers.index(c.note) + 1 if c.note else None) for c in row)
            for row in rows
        )
        notes = tuple(f"{i + 1}. {_sentence(self.notes[number - 1])}" for i, number in enumerate(numbers))
        unmeasured = any(c.kind == "absent" and c.note is None for row in renumbered for c in row)
        more = (*more, "–: not measured in this study.") if unmeasured else more
        more = (*more, FLOORED) if self.floored else more
        return Table(self.key, self.caption, tuple(self.columns[i] for i in kept), renumbered, (*notes, *more))

    def _note(self, reason: str) -> int:
        if reason not in self.notes:
            self.notes.append(reason)
        return self.notes.index(reason) + 1


def _about_interval(reason: str) -> bool:
    return any(word in reason.lower() for word in ("interval", "object", "scene", "few"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def words(texts: Sequence[str]) -> tuple[Cell, ...]:
    """Cells of plain words."""
    return tuple(Cell(text, kind="words") for text in texts)
