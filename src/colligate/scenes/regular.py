"""Files that come from outside, looked at before they are read: only regular ones, of a size that memory can hold.

A pipe would wait for ever and a device has no end; both can be named in a table of labels.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 256 * 1024 * 1024
"""Largest table, list or picture that is read whole."""


def open_regular(path: Path, what: str = "", *, most: int | None = None) -> BinaryIO:
    """Open a regular file to read its bytes; a link is followed.

    Args:
        path: the file.
        what: what errors call it, before its path ("Picture ").
        most: bytes that it may hold at most; any number by default.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: a folder, pipe, device or socket, a name that no file can have, a loop of links, a file that may not
            be read or holds more than `most` bytes.

    Example:
        >>> open_regular(Path("/dev/zero"))
        Traceback (most recent call last):
        ValueError: /dev/zero can't be read (it is a device); name a regular file.
    """
    said = f"{what}{shortened(path)}"
    try:
        # Not waiting for whoever writes into a pipe; on regular files it changes nothing.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{said} can't be read (No such file or directory); name a file that is there."
        ) from None
    except OSError as error:
        raise ValueError(f"{said} can't be read ({error.strerror}); name a file that is there.") from None
    except ValueError:  # a NUL, or half of a surrogate pair
        raise ValueError(f"{said!r} can't be read (no file can have this name); name a file that is there.") from None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(f"{said} can't be read (it is {_kind(facts.st_mode)}); name a regular file.")
        if most is not None and facts.st_size > most:
            raise ValueError(f"{said} holds {facts.st_size:,} bytes; at most {most:,} are read, so divide it.")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, what: str = "", *, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most so many bytes.

    Raises:
        FileNotFoundError, ValueError: as `open_regular`; or the file grows while it is read.
    """
    try:
        with open_regular(path, what, most=most) as file:
            content = file.read(most + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(
            f"{what}{shortened(path)} can't be read ({error.strerror}); name a file that is there."
        ) from None
    if len(content) > most:
        raise ValueError(f"{what}{shortened(path)} holds more than {most:,} bytes; divide it.")
    return content


def shortened(path: Path | str) -> str:
    """A path as errors name it: one that no system would take is cut.

    Example:
        >>> shortened("a" * 5000)[-20:]
        'aaaaaaaaaaaaaaaaa...'
    """
    text = str(path)
    return text if len(text) <= 300 else text[:297] + "..."


def _kind(mode: int) -> str:
    """What a file is that isn't regular."""
    tests = (
        ("a folder", stat.S_ISDIR), ("a pipe", stat.S_ISFIFO), ("a socket", stat.S_ISSOCK),
        ("a device", stat.S_ISCHR), ("a device", stat.S_ISBLK),
    )  # fmt: skip
    return next((name for name, test in tests if test(mode)), "no regular file")
