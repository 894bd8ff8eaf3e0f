"""How far long work is: bars on a terminal, a line below a notebook's cell, a line every so often in a log."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from colligate.records.text import inert

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from colligate.engine import Report

EVERY = 15.0
"""Seconds between two lines of progress where there is no terminal."""


@contextmanager
def progress(*, quiet: bool = False) -> Generator["Report | None", None, None]:
    """Bars on a terminal, a line in a notebook; elsewhere a plain line on stderr every 15 seconds.

    Args:
        quiet: no such lines, as where rows are printed as JSON.
    """
    if not sys.stderr.isatty() or in_notebook():
        with _line_of_notebook() if in_notebook() else nullcontext() if quiet else _lines() as lines:
            yield lines
        return
    from rich.console import Console

    with bars(Console(stderr=True)) as shown:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total)
            shown.update(tasks[stage], completed=done, total=max(total, 1))

        yield report


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _line_of_notebook() -> Generator["Report", None, None]:
    """One line below the cell, written anew twice a second and gone at the end; it needs no widgets."""
    from IPython.display import display  # pyright: ignore[reportMissingImports] (there is a notebook)

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
    last, start = [0.0], time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] < 0.5:
            return
        last[0] = now
        part = f", {done:,} of {total:,}" if total > 1 else ""
        handle.update({"text/plain": f"{inert(stage)}{part} ({now - start:.0f} s)"}, raw=True)

    try:
        yield report
    finally:
        handle.update({"text/plain": ""}, raw=True)


@contextmanager
def _lines() -> Generator["Report", None, None]:
    """Say every so often what was told last; a thread of its own does, since work between two reports may be long."""
    last, ended, start = ["starting"], Event(), time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        last[0] = f"{stage}, {done:,} of {total:,} done" if total > 1 else stage

    def speak() -> None:
        while not ended.wait(EVERY):
            try:
                sys.stderr.write(f"colligate: {time.monotonic() - start:.0f} s: {inert(last[0])}\n")
                sys.stderr.flush()
            except (OSError, ValueError):  # whoever read this has gone; the work goes on
                return

    speaker = Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield report
    finally:
        ended.set()
        speaker.join()


def bars(screen: "Console") -> "Progress":
    """Progress on a screen: a bar for each stage, how much is done, at which rate, and how long the rest takes."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(rate(task.finished_speed or task.speed, task.total), style="progress.data.speed")

    described = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), described, BarColumn(), MofNCompleteColumn(), RateColumn(), TimeRemainingColumn())
    return Progress(*columns, console=screen, transient=True)


def rate(speed: float | None, total: int | float | None) -> str:
    """How many a second, or a minute where it is slow; nothing for a stage that is one piece.

    Example:
        >>> rate(1234.5, 4096), rate(12.34, 300), rate(0.05, 300), rate(2.0, 1), rate(None, 300)
        ('1,234/s', '12.3/s', '3.0/min', '', '')
    """
    if not speed or total is None or total <= 1:
        return ""
    return f"{speed:,.0f}/s" if speed >= 100 else f"{speed:.1f}/s" if speed >= 1 else f"{60 * speed:.1f}/min"
