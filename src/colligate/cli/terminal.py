"""The terminal: flags to configs, progress and one-sentence complaints."""

import errno
import io
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from colligate.records.text import inert

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from colligate.engine import Report

Config = TypeVar("Config")
Verb = tuple[Callable[[list[str]], int], str]
"""What a verb does with its words, giving an exit code, and the question it answers."""


class HelpShown(Exception):  # noqa: N818 (nothing is wrong)
    """The call asked for help, and has it."""


def parse(config: type[Config], verb: str, description: str, words: list[str]) -> Config:
    """A config from the words of a call; --help prints its fields.

    Raises:
        HelpShown: after printing them.
        ValueError: the words don't fit.
    """
    import tyro

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(
                config, prog=f"colligate {verb}", description=description, args=words,
                config=(tyro.conf.PositionalRequiredArgs,),
            )  # fmt: skip
    except SystemExit as stop:
        if not stop.code:
            raise HelpShown from None
        raise ValueError(_plainly(said.getvalue(), verb)) from None


def _plainly(boxed: str, verb: str) -> str:
    """What the parser complains of, as one sentence: without its box, the title on top and the help below."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip().strip("│").strip() for line in boxed.splitlines()[1:]]
    end = next((i for i, line in enumerate(lines) if line.strip("─╰╯") == ""), len(lines))
    words = re.sub(r"^Error parsing \w+Config: ", "", " ".join(filter(None, lines[:end])))
    return f"{words.removesuffix('(required)').rstrip('. ')}. See colligate {verb} --help."


def say(text: str) -> None:
    """Print text of ours, line breaks and all; what else could steer a terminal is written out."""
    sys.stdout.write(inert(text, lines=True) + "\n")


def tell(sentence: str) -> None:
    """Print one sentence in which words of the user's may stand: it stays one line whatever they hold."""
    say(inert(sentence))


def complain(text: str) -> None:
    """Print one sentence to stderr, after the traceback of what is being handled where COLLIGATE_DEBUG asks for it."""
    if os.environ.get("COLLIGATE_DEBUG", "") not in ("", "0") and sys.exc_info()[0] is not None:
        sys.stderr.write(inert(traceback.format_exc(), lines=True))
    sys.stderr.write(f"colligate: {inert(' '.join(text.split(chr(10))))}\n")


@contextmanager
def plain_warnings() -> Generator[None, None, None]:
    """Tell warnings in a line each, without the place in the code that only its authors need."""

    def told(message: Warning | str, *where: object, **more: object) -> None:
        del where, more
        complain(f"Note: {' '.join(str(message).split())}")

    before, warnings.showwarning = warnings.showwarning, told
    try:
        yield
    finally:
        warnings.showwarning = before


EVERY = 15.0
"""Seconds between two lines of progress where there is no terminal."""


@contextmanager
def progress(*, quiet: bool = False) -> Generator["Report | None", None, None]:
    """Bars on a terminal, elsewhere a plain line on stderr every 15 seconds: long work never looks dead in a log.

    Args:
        quiet: no such lines, as where rows are printed as JSON.
    """
    if not sys.stderr.isatty():
        with nullcontext() if quiet else _lines() as lines:
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


def take_flag(words: list[str], flag: str) -> tuple[bool, list[str]]:
    """Whether the flag is there, and the words without it."""
    return flag in words, [word for word in words if word != flag]


def of_system(error: OSError) -> str:
    """An error of the system as a sentence that names the file and the remedy, where it isn't one already."""
    if error.errno is None or error.strerror is None:
        return str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk is full; free some space and run again: what was finished is kept."
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror[0].lower()}{error.strerror[1:]}; name another place, or put this one right."


NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "unable to allocate")
"""What libraries say where memory runs out, in small letters."""


def of_work(error: BaseException) -> str:
    """A failure of the work as a sentence: ours as it is, those of libraries by their first line.

    Example:
        >>> of_work(KeyError("scene"))
        "The work failed: KeyError 'scene'; COLLIGATE_DEBUG=1 in the environment shows where."
    """
    from colligate.records import WorkError

    said = " ".join(str(error).splitlines()[:1]).strip().rstrip(".")
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
        return (
            "Memory ran out; measure fewer scenes, take a smaller model or another --device, or close other programs."
        )
    if isinstance(error, WorkError):
        return str(error)
    if not isinstance(error, RuntimeError):  # the texts of others say little without their kind
        said = f"{type(error).__name__} {said}".strip()
    return f"The work failed: {said or type(error).__name__}; COLLIGATE_DEBUG=1 in the environment shows where."


def stopped(words: Sequence[str]) -> str:
    """What Ctrl-C says: what is kept, and what the same command does with it.

    Example:
        >>> stopped(["train", "--force"])
        'Stopped. Embedded vectors are kept and used by the same command; with --force all else starts again.'
    """
    if "--force" in words:
        return "Stopped. Embedded vectors are kept and used by the same command; with --force all else starts again."
    return (
        "Stopped. Embedded vectors and saved states of training are kept: the same command goes on from there. "
        "Measurements that were under way start again."
    )
