"""How work is run: how many threads serve it, how long its stages take, how much memory it takes."""

import os
import resource
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch

Report = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""


@dataclass
class Clock:
    """Seconds of every stage, and a word to the caller when one starts.

    Example:
        >>> clock = Clock(report=None)
        >>> with clock.stage("probes"):
        ...     pass
        >>> list(clock.seconds)
        ['probes']
    """

    report: Report | None = None
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None, None, None]:
        """Time what is done inside."""
        if self.report is not None:
            self.report(name, 0, 1)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)
        if self.report is not None:
            self.report(name, 1, 1)


def processor_flags() -> frozenset[str]:
    """What this processor can do, by the names that Linux gives; none where the system doesn't say."""
    cpuinfo = Path("/proc/cpuinfo")
    return frozenset(cpuinfo.read_text(encoding="utf-8").split()) if cpuinfo.is_file() else frozenset()


def peak_memory() -> int:
    """Most bytes of memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


_ASKED: ContextVar[int | None] = ContextVar("asked", default=None)
"""Threads that a caller has asked for, where it has."""


@contextmanager
def using_threads(threads: int | None) -> Generator[None, None, None]:
    """Let every fit inside use so many threads, such as the number that a record names; None changes nothing.

    Example:
        >>> with using_threads(2), fitting_threads() as threads:
        ...     threads
        2
    """
    token = _ASKED.set(_ASKED.get() if threads is None else threads)
    try:
        yield
    finally:
        _ASKED.reset(token)


def chosen_threads() -> int:
    """How many threads fit: as many as a caller or $COLLIGATE_THREADS says, else one.

    The number is never found by a trial: sums are grouped by thread, so that another number rounds otherwise, and the
    same seed must give the same bytes however busy the machine is. One is the default because the operations here are
    small: docs/performance.md has the measurement.

    Raises:
        ValueError: $COLLIGATE_THREADS is no number of threads.
    """
    asked, named = _ASKED.get(), os.environ.get("COLLIGATE_THREADS", "")
    if asked is not None:
        return asked
    if not named:
        return 1
    if not named.isascii() or not named.isdigit() or int(named) < 1:
        raise ValueError(f"COLLIGATE_THREADS is {named!r}; give a number of threads, such as 2, or unset it.")
    return int(named)


@contextmanager
def fitting_threads() -> Generator[int, None, None]:
    """Use `chosen_threads` inside, and the number of before afterwards; the number is given for the record.

    Example:
        >>> with fitting_threads() as threads:
        ...     threads == torch.get_num_threads()
        True
    """
    before, chosen = torch.get_num_threads(), chosen_threads()
    try:
        torch.set_num_threads(chosen)
        yield chosen
    finally:
        torch.set_num_threads(before)


One = TypeVar("One")
Result = TypeVar("Result")
MOST_WORKERS = 2
"""Jobs that run at a time at most: each holds its own intermediate results in memory."""


def side_by_side(work: Callable[[One], Result], over: Sequence[One]) -> Iterator[Result]:
    """Results of independent jobs, in order, run two at a time where the cores allow it.

    Every job uses as many torch threads as the caller, so that its numbers don't depend on what runs beside it.

    Args:
        work: one job; may not share a random generator with others.
        over: what to do it for.

    Example:
        >>> list(side_by_side(lambda x: x * x, [1, 2, 3]))
        [1, 4, 9]
    """
    threads = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = max(1, min(MOST_WORKERS, cores // threads, len(over)))
    if workers == 1:
        yield from map(work, over)
        return
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads,))
    try:
        for job in [pool.submit(copy_context().run, work, one) for one in over]:  # what a caller asked for holds there
            yield job.result()
    finally:
        pool.shutdown(cancel_futures=True)
