"""Whose word runs code: a module of the user's own is imported when the user names it, not when a file does."""

from collections.abc import Generator
from contextlib import contextmanager

_REFUSED: list[str] = []
"""Why own modules may not be imported now, the last reason first; of the whole process, threads included."""


@contextmanager
def no_own_code(why: str) -> Generator[None, None, None]:
    """Refuse to import modules of the user's own inside.

    Args:
        why: who names them, and how the user can agree.

    Example:
        >>> with no_own_code("a record names it; add --code if you trust it"):
        ...     check_consent("mine:make")
        Traceback (most recent call last):
        ...
        ValueError: mine:make would run code of its own: a record names it; add --code if you trust it.
    """
    _REFUSED.append(why)
    try:
        yield
    finally:
        _REFUSED.pop()


def check_consent(name: str) -> None:
    """Raise where modules of the user's own may not be imported now.

    Raises:
        ValueError: they may not.
    """
    if _REFUSED:
        raise ValueError(f"{name} would run code of its own: {_REFUSED[-1]}.")
