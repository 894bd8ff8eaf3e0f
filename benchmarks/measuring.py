"""Clocks and lines of the table."""

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass
class Stopwatch:
    """Wall and processor seconds of a block."""

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> Self:
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall += time.perf_counter()
        self.cpu += time.process_time()

    def times(self, factor: float) -> "Stopwatch":
        """These seconds, extrapolated."""
        return Stopwatch(self.wall * factor, self.cpu * factor)


@dataclass
class Line:
    """One line of the table: some work, our time, the recipe's time, what is aimed at, and what to know about it."""

    work: str
    ours: Stopwatch
    recipe: Stopwatch | None = None
    target: str = ""
    note: str = ""


def say(text: str) -> None:
    """Progress, kept apart from the table."""
    print(text, file=sys.stderr, flush=True)
