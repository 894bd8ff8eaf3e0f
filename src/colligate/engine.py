"""How work is run: how many threads serve it, how long its stages take, how much memory it takes."""

import resource
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

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


def peak_memory() -> int:
    """Most bytes of memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _seconds(threads: int, repeats: int = 40) -> float:
    """Time small products and sums, the bulk of the work here, in so many threads."""
    torch.set_num_threads(threads)
    left, right = torch.ones(512, 256), torch.ones(256, 128)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(repeats):
            (left @ right).logsumexp(1).sum()
        best = min(best, time.perf_counter() - start)
    return best


@contextmanager
def fitting_threads() -> Generator[int, None, None]:
    """Use as many threads as serve small operations best, found by a trial of some tens of milliseconds.

    Where other programs keep the cores busy, threads that wait for each other cost tenfold; one thread then is the
    fastest. The number is given to the body, and the old one comes back after it.

    Example:
        >>> with fitting_threads() as threads:
        ...     threads >= 1
        True
    """
    before = torch.get_num_threads()
    try:
        alone, together = _seconds(1), _seconds(before)
        chosen = before if together < 0.9 * alone else 1
        torch.set_num_threads(chosen)
        yield chosen
    finally:
        torch.set_num_threads(before)
