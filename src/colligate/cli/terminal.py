"""The terminal: what is said there, and one-sentence complaints."""

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from colligate.records.text import inert

if TYPE_CHECKING:
    pass

Verb = tuple[Callable[[list[str]], int], str]
"""What a verb does with its words, giving an exit code, and the question it answers."""


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
