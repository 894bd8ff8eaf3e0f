"""The streams and signals of the command: work is kept whatever becomes of a terminal or a pipe.

Only modules of Python itself are imported here, so that Ctrl-C is answered from the first moment on.
"""

import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

PLAIN = str.maketrans({
    "\N{EN DASH}": "-", "\N{EM DASH}": "-", "\N{MINUS SIGN}": "-", "\N{MULTIPLICATION SIGN}": "x",
    "\N{HORIZONTAL ELLIPSIS}": "...", "\N{SUPERSCRIPT TWO}": "2", "\N{NO-BREAK SPACE}": " ",
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}": "-", "\N{BOX DRAWINGS LIGHT VERTICAL}": "|",
    **dict.fromkeys("╭╮╰╯", "+"),
})  # fmt: skip
"""Signs of ours -> what a terminal shows that has no such sign; others are written out, as in "\\u2603"."""


class Outlet(io.TextIOBase):
    """A stream that work may write to without asking whether anyone still reads.

    A pipe whose reader has gone, a full disk behind `>` and a closed terminal raise nothing: the first error is kept,
    and what comes after it is dropped. Signs that the terminal's encoding lacks are replaced by plain ones.
    """

    def __init__(self, stream: "TextIO") -> None:
        self.stream = stream
        self.failed: OSError | None = None

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the stream itself."""
        return self.stream.encoding or "utf-8"

    @property
    def errors(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What is done with signs that can't be encoded."""
        return "backslashreplace"

    @property
    def buffer(self) -> object:
        """The bytes below."""
        return self.stream.buffer

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """The stream's number."""
        return self.stream.fileno()

    def write(self, text: str) -> int:
        """Write what can be written."""
        if self.failed is None:
            with self._guarded():
                self.stream.write(self._encodable(text))
        return len(text)

    def flush(self) -> None:
        """Hand over what was written."""
        if self.failed is None:
            with self._guarded():
                self.stream.flush()

    def _encodable(self, text: str) -> str:
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            return text.translate(PLAIN).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return text

    @contextmanager
    def _guarded(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            self.failed = error
            with suppress(OSError, ValueError):  # what is still buffered goes nowhere, also when Python ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
        except ValueError as error:  # the stream was closed
            self.failed = OSError(errno.EBADF, str(error))

    @property
    def problem(self) -> OSError | None:
        """What kept the output from being written, but for a reader that had enough."""
        return None if self.failed is None or self.failed.errno == errno.EPIPE else self.failed


@contextmanager
def outlets() -> Generator[Outlet, None, None]:
    """Make stdout and stderr safe to write to, also where the caller closed them; gives stdout's."""
    _open_closed()
    before = sys.stdout, sys.stderr
    opened = [open(os.devnull, "w", encoding="utf-8") if stream is None else None for stream in before]  # noqa: PTH123, SIM115
    out, err = (Outlet(one or stream) for one, stream in zip(opened, before, strict=True))
    sys.stdout, sys.stderr = out, err  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before
        for one in opened:
            if one is not None:
                one.close()


def _open_closed() -> None:
    """Put nothing behind descriptors that the caller closed: else the next file has their number, and is printed to."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one


class Stopped(KeyboardInterrupt):
    """Someone asked the work to stop.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


TWICE = 1.0
"""Seconds after which a second signal ends the work at once; some senders send the first one twice."""


@contextmanager
def stoppable() -> Generator[Callable[[], int | None], None, None]:
    """Raise `Stopped` at Ctrl-C and SIGTERM, and end at once at a second one; gives what signal came, if one did.

    Signals that the caller has ignored, such as `nohup` and background jobs do, stay ignored.
    """
    came: list[tuple[int, float]] = []

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        if not came:
            came.append((number, time.monotonic()))
            raise Stopped(number)
        if time.monotonic() - came[0][1] > TWICE:
            os._exit(128 + number)

    before: dict[int, object] = {}
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) == handler:
            with suppress(ValueError):  # not the main thread, which alone may ask for signals
                before[number] = signal.signal(number, stop)
    try:
        yield lambda: came[0][0] if came else None
    finally:
        for number in before:
            signal.signal(number, usual[signal.Signals(number)])
