"""What the terminal shows of runs: rows, differences, sweeps, lists and the runs themselves."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colligate.cli.terminal import say, tell
from colligate.records.text import formula_note, inert, verbatim

if TYPE_CHECKING:
    from rich.text import Text

    from colligate.records import ListedRun, Row
    from colligate.verbs.compare import Difference


def show(rows: "Sequence[Row]", *, as_json: bool, table: "Sequence[Row] | None" = None) -> None:
    """Print rows as a table or as JSON.

    Args:
        rows: those to print.
        as_json: as JSON.
        table: all rows of the run, where others are needed to read these.
    """
    if as_json:
        say(json.dumps([asdict(row) for row in rows], indent=1))
        return
    from colligate.report.plain import KEY, remarks, row_table, texts_of, unmeasured

    screen = console()
    screen.print(row_table(rows, table))
    for sentence in unmeasured(rows):
        tell(sentence)
    for said in (KEY, *remarks(rows, table)):
        screen.print(verbatim(said), style="dim")
    csv_note = formula_note("table.csv", texts_of(table or rows))
    if csv_note:
        tell(f"Note: {csv_note}")


def show_run(
    folder: Path,
    record: Mapping[str, Any],
    rows: "Sequence[Row]",
    *,
    as_json: bool,
    judged: "Sequence[Row] | None" = None,
    points: "Sequence[Mapping[str, Any]] | None" = None,
) -> None:
    """Print what a finished run found: the verdict, its rows, notes and where record and page are; write the page.

    Args:
        folder: the run's.
        record: its record.
        rows: those to print.
        as_json: print rows only, as JSON.
        judged: the rows behind the verdict, where others are printed.
        points: of a sweep, printed instead of rows.
    """
    if as_json:
        show(rows, as_json=True)
        return
    from colligate.records import open_run
    from colligate.report.kinds import verdict_of
    from colligate.report.page import write_page

    said = verdict_of(record, judged or open_run(folder).rows)
    if said:
        tell(said)
        say("")
    if points is None:
        show(rows, as_json=False)
    else:
        print_spread(points)
    for note in record.get("notes", []):
        tell(f"Note: {note}")
    tell(f"Record: {folder}")
    tell(f"Page:   {write_page(folder)}")


def signed(value: float) -> str:
    """A difference with its sign, to three decimals or, where these are zero, to one digit; nothing but zero is 0.

    Example:
        >>> signed(0.0312), signed(-0.00034), signed(-2e-16), signed(0.0)
        ('+0.031', '-0.0003', '0.000', '0.000')
    """
    return f"{value:+.3f}" if abs(value) >= 0.0005 else f"{value:+.1g}" if abs(value) >= 1e-9 else "0.000"


def print_differences(differences: "Sequence[Difference]") -> None:
    """Print how two runs differ as a table."""
    from rich.table import Table

    from colligate.report.plain import number

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("measurement", overflow="fold")
    table.add_column("on", no_wrap=True)
    for heading in ("first", "other", "difference", "95 %"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in differences:
        name = one.row.id if one.row.family is None else f"{one.row.id} ({one.row.family})"
        interval = "" if one.low is None or one.high is None else f"{signed(one.low)} to {signed(one.high)}"
        said = one.said if one.low is None else f"{one.said}, {one.how}"
        numbers = (number(one.row.value), number(one.other.value), signed(one.value))
        table.add_row(*map(verbatim, (name, one.row.on, *numbers, interval, said)))
    screen = console()
    screen.print(table)
    screen.print(
        "95 %: interval of the difference. Paired: of the difference that each scene makes. "
        "Apart: from the two intervals.", style="dim",
    )  # fmt: skip


RECOGNISED = "recognition.object."
SPREAD = {
    "unseen.table": "unseen: table", "unseen.among_unseen": "among unseen", "unseen.swaps": "swaps",
    "seen.table": "seen: table", "seen.swaps": "swaps",
}  # fmt: skip
"""Ends of ids -> columns of a sweep's tables."""


def print_spread(points: "Sequence[Mapping[str, Any]]") -> None:
    """Print what a sweep found, a table for each space, encoder and width: the median over seeds, and their range.

    Args:
        points: as `training.sweep.spread` gives them.
    """
    from rich.table import Table

    models: dict[str, dict[float, dict[str, Mapping[str, Any]]]] = {}
    for point in points:
        coverages = models.setdefault(str(point["family"]), {})
        coverages.setdefault(point["coverage"], {})[point["id"].removeprefix(RECOGNISED)] = point
    screen = console()
    for model, coverages in models.items():
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
        for heading in ("coverage", "seeds", *SPREAD.values()):
            table.add_column(heading, justify="right", no_wrap=True)
        for coverage, ends in coverages.items():
            seeds = max(int(point["seeds"]) for point in ends.values())
            table.add_row(f"{coverage:g}", str(seeds), *(_spread(ends.get(end)) for end in SPREAD))
        levels = [
            [ends[end]["bag_of_concepts"] for ends in coverages.values() if end in ends] for end in SPREAD
        ]  # fmt: skip
        table.add_row("bag", "", *(_range([level for level in of_end if level is not None]) for of_end in levels))
        screen.print(verbatim(f"{model}, objects recognised"), style="bold")
        screen.print(table)
    screen.print(
        "Median (lowest-highest seed) at each share of objects that training showed. Bag: an ideal bag of concepts. "
        "Rows of single seeds, with their intervals, stand in table.csv.", style="dim",
    )  # fmt: skip


def _spread(point: Mapping[str, Any] | None) -> str:
    """The median and, where seeds differ, the range."""
    if point is None or point["median"] is None:
        return "-"
    found = _range([point["low"], point["high"]])
    return f"{point['median']:.3f}" + (f" ({found})" if "-" in found else "")


def _range(values: "Sequence[float]") -> str:
    """The least and the most; one number where they are the same to three digits."""
    if not values:
        return "-"
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low}-{high}"


def print_list(meanings: Mapping[str, str]) -> None:
    """Print names and what they mean."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, meaning in meanings.items():
        table.add_row(verbatim(name), verbatim(meaning))
    console().print(table)


def print_runs(runs: "Sequence[ListedRun]") -> None:
    """Print runs, a line each, and under it what was found."""
    cells = [
        tuple(map(inert, (run.name, run.what, run.created[:16].replace("T", " "),
                          "" if run.state == "finished" else run.state)))
        for run in runs
    ]  # fmt: skip
    headings = ("run", "what", "when", "")
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    screen = console()

    def line(of: Sequence[str]) -> "Text":
        return verbatim("  ".join(cell.ljust(width) for cell, width in zip(of, widths, strict=True)).rstrip())

    screen.print(line(headings), style="bold")
    for run, of in zip(runs, cells, strict=True):
        screen.print(line(of))
        if run.verdict:
            screen.print(verbatim(f"    {run.verdict}"), style="dim")


def console() -> Any:
    """Where tables are printed: as wide as the terminal, and through a pipe as wide as the table."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=10_000, soft_wrap=True)
