"""One writer to a folder: who comes second waits, and then takes what the first has left."""

import errno
import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from colligate.records.files import LOCK, sweep_temporaries
from colligate.records.news import tell

CANT_LOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
"""What drives say that know no locks: there two writers do the same work, and each file is still whole."""

_HELD: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
"""Folders that are held by the code that runs now; holding one of them again waits for nobody."""
_CALL: ContextVar[ExitStack | None] = ContextVar("call", default=None)
"""What lets go of folders when the call at hand ends."""


@contextmanager
def held(folder: Path) -> Generator[None, None, None]:
    """Be the only one who writes to a folder; what a killed writer left half-written there is swept first.

    Args:
        folder: made where it isn't there; taken away again where nothing was written to it.

    Raises:
        OSError: it can't be written, or the disk is full.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as runs, held(Path(runs) / "train-0123456789"):
        ...     [path.name for path in Path(runs).rglob("*") if path.is_file()]
        ['.lock']
    """
    name = folder.resolve()
    if name in _HELD.get():
        yield
        return
    handle = _locked(folder)
    token = _HELD.set(_HELD.get() | {name})
    try:
        sweep_temporaries(folder)
        yield
    finally:
        _HELD.reset(token)
        with suppress(OSError):
            (folder / LOCK).unlink()  # while it is held: whoever waited finds it gone, and asks again
        os.close(handle)
        with suppress(OSError):
            folder.rmdir()  # only where it is empty


def _locked(folder: Path) -> int:
    """A handle on the folder's lock, which is held until it is closed."""
    path, told = folder / LOCK, False
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # taken away in between by who was the last to hold it
            continue
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    tell(f"{folder} is being written by another process; waiting for it.")
                    told = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(handle)):
                    return handle
        except OSError as error:
            if error.errno in CANT_LOCK:
                return handle
            os.close(handle)
            raise
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


Given = ParamSpec("Given")
Result = TypeVar("Result")


def one_writer(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function hold every folder that it looks up by `find_run` and doesn't find finished, until it returns.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> @one_writer
        ... def work(folder):
        ...     hold_for_this_call(folder)
        ...     return (folder / LOCK).exists()
        >>> with TemporaryDirectory() as runs:
        ...     work(Path(runs) / "a"), (Path(runs) / "a").exists()
        (True, False)
    """

    @wraps(function)
    def call(*args: Given.args, **named: Given.kwargs) -> Result:
        with ExitStack() as stack:
            token = _CALL.set(stack)
            try:
                return function(*args, **named)
            finally:
                _CALL.reset(token)

    return call


def hold_for_this_call(folder: Path) -> bool:
    """Hold a folder until the call of a `one_writer` at hand ends; False where there is no such call."""
    stack = _CALL.get()
    if stack is None:
        return False
    stack.enter_context(held(folder))
    return True
