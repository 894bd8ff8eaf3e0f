"""Tables in plain text, for terminals and consoles: rows with their intervals and levels."""

import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from colligate.records import Row
from colligate.records.text import verbatim
from colligate.report.complexity import BITS, area_said, span
from colligate.report.tables import FLOORED, floored
from colligate.report.verdict import Measured

if TYPE_CHECKING:
    from rich.table import Table

KEY = (
    "95 %: interval over other values and objects. Chance: random scores. "
    "Bag: an ideal bag of concepts, ties at random. Random: the same network with fresh weights."
)
"""What the columns of a table are."""


def row_table(rows: Sequence[Row], whole: Sequence[Row] | None = None) -> "Table":
    """Rows as a table, a line each.

    Args:
        rows: those to show.
        whole: all rows of the run, where others are needed to read these.
    """
    from rich.table import Table

    run = Measured(whole or rows)
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    shown.add_column("measurement", overflow="fold")  # on a narrow terminal, the name is broken and no number is
    shown.add_column("on", no_wrap=True)
    for heading in ("value", "95 %", "n", "chance", "bag", "random"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in map(floored, rows):
        interval = "" if row.low is None or row.high is None else ends(row.low, row.high)
        name = row.id if row.family is None else f"{row.id} ({row.family})"
        name += "" if row.coverage is None else f" at {row.coverage:g}"
        area = row.id == "complexity.area" and row.value is not None
        name += f" over {span(run.area_coverages(row.family))}" if area else ""
        levels = (number(row.chance), number(row.bag_of_concepts), number(row.random_init))
        value = "none" if row.value is None else number(row.value)
        n = "" if row.n is None else str(row.n)
        shown.add_row(*map(verbatim, (name, row.on, value, interval, n, *levels)))
    return shown


def remarks(rows: Sequence[Row], whole: Sequence[Row] | None = None) -> list[str]:
    """What to know when reading some rows: what an area is over, and what bits count."""
    run, measured = Measured(whole or rows), {row.id for row in rows if row.value is not None}
    said = [area_said(run)] if "complexity.area" in measured else []
    said += [FLOORED] if any(floored(row) != row for row in rows) else []
    return [*said, *(BITS if "complexity.bits_saved" in measured else ())]


def row_text(rows: Sequence[Row], whole: Sequence[Row] | None = None, *, width: int = 120) -> str:
    """The same as text.

    Example:
        >>> print(row_text([Row(id="probe.object", on="test", value=0.97, low=0.95, high=0.98, n=118)]))
        measurement   on    value         95 %    n  chance  bag  random
        probe.object  test  0.970  0.950–0.980  118
    """
    from rich.console import Console

    written = io.StringIO()
    Console(file=written, width=width, color_system=None, force_jupyter=False).print(row_table(rows, whole))
    return "\n".join(line.rstrip() for line in written.getvalue().rstrip().split("\n"))


def unmeasured(rows: Sequence[Row]) -> list[str]:
    """A sentence for each reason why rows have no value."""
    return [
        f"none: {reason} ({', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''})."
        for reason, names in _reasons(rows).items()
    ]


def _reasons(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Reason -> names of the rows that have no value for it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.value is None:
            name = row.id if row.family is None else f"{row.id} ({row.family})"
            names = found.setdefault((row.reason or "no reason was recorded").rstrip("."), [])
            names += [name] * (name not in names)
    return found


def texts_of(rows: Sequence[Row]) -> list[str]:
    """All texts of a table."""
    return [text for row in rows for text in asdict(row).values() if isinstance(text, str)]


MOST = 40
"""Rows that a long table is cut down to on the terminal, where it has more than twice as many."""


def main_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows of a table: all, or of a long one those whose names have the fewest parts, without families of one name.

    Example:
        >>> rows = [Row(id="edit.retrieval.avg"), *(Row(id=f"edit.retrieval.avg.shared.c{i}") for i in range(99))]
        >>> [row.id for row in main_rows(rows)], len(main_rows(rows[:50]))
        (['edit.retrieval.avg'], 50)
    """
    if len(rows) <= 2 * MOST:
        return list(rows)
    whole = [row for row in rows if row.family is None] or list(rows)
    parts = [row.id.count(".") for row in whole]
    fitting = [most for most in sorted(set(parts)) if sum(part <= most for part in parts) <= MOST]
    most = max(fitting, default=min(parts))
    return [row for row, part in zip(whole, parts, strict=True) if part <= most][:MOST]


def number(value: float | None) -> str:
    """Three decimals; nothing for no value."""
    return "" if value is None else f"{value:.3f}"


def ends(low: float, high: float) -> str:
    """Both ends with three digits, or with as many as keep them apart."""
    digits = 3
    while f"{low:.{digits}f}" == f"{high:.{digits}f}" and low != high and digits < 9:
        digits += 1
    return f"{low:.{digits}f}–{high:.{digits}f}"
