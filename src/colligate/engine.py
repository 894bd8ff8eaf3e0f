"""How work is run: how many threads serve it."""

import time
from collections.abc import Generator
from contextlib import contextmanager

import torch


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
