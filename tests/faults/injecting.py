"""Call the command line in a process of its own, with a fault in it, and say what came of it.

Processes are forked from one that has only imported things, so that hundreds of calls take minutes, not hours.
"""

import errno
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Fault = Callable[[], None]
"""Changes the process in which a call is about to be made."""
Check = Callable[[Path], list[str]]
"""Injects a fault in an empty folder, and says what of the promises failed: nothing, if all is well."""
WAIT = 60.0
"""Seconds after which a call counts as hanging: far more than any takes, however busy the machine."""
PROCESSOR = 20
"""Seconds of processor time that a call may take."""


@dataclass(frozen=True)
class Injection:
    """A fault, by name, and what tries it."""

    name: str
    check: Check


@dataclass(frozen=True)
class Told:
    """What came of a call: its exit code (negative: the signal that ended it; None: it hung), and what it said."""

    code: int | None
    out: str
    err: str

    def wrong(self, *codes: int | None, quiet: bool = False) -> list[str]:
        """What is wrong with the ending: another code, a traceback, no sentence or several where it failed.

        Args:
            codes: those that are right.
            quiet: whether nothing can have been said, as where stderr is closed.
        """
        found = list[str]()
        if self.code is None:
            return ["it hung"]
        if self.code not in codes:
            found.append(f"exit code {self.code}, not {' or '.join(map(str, codes))}: {self.err.strip()[-300:]}")
        if "Traceback" in self.err + self.out:
            found.append(f"a traceback: {self.err.strip()[-300:]}")
        sentences = [line for line in self.err.splitlines() if not _PROGRESS.match(line)]
        if self.code and self.code > 0 and not quiet and (
            len(sentences) != 1 or not sentences[0].startswith("colligate: ")
        ):  # fmt: skip
            found.append(f"{len(sentences)} lines where one sentence is due: {self.err.strip()[-300:]}")
        return found


_PROGRESS = re.compile(r"colligate: (\d+ s: |Stored vectors .* are broken|.* is being written by another process)")


def start(
    words: Sequence[str], at: Path, fault: Fault | None = None, env: Mapping[str, str] | None = None
) -> "Running":
    """Begin a call in the folder `at`, which holds its store and what it says."""
    at.mkdir(parents=True, exist_ok=True)
    mark = f"{len(list(at.glob('said-*')))}-{time.monotonic_ns()}"
    files = [at / f"said-{mark}.{name}" for name in ("out", "err")]
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return Running(child, files[0], files[1])
    code = 70
    try:
        os.setpgid(0, 0)
        os.chdir(at)
        os.environ.update({"COLLIGATE_STORE": str(at / "store"), **(env or {})})
        for number, path in enumerate(files, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        coding: dict[str, Any] = {"encoding": os.environ.get("PYTHONIOENCODING", "utf-8"), "errors": "strict"}
        sys.stdout, sys.stderr = (open(number, "w", closefd=False, **coding) for number in (1, 2))  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR, PROCESSOR + 1))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if fault is not None:
            fault()
        code = _called(words)
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _called(words: Sequence[str]) -> int:
    from colligate.cli import main

    try:
        return main(words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1


@dataclass
class Running:
    """A call under way."""

    process: int
    out: Path
    err: Path
    told: Told | None = field(default=None)

    def ended(self) -> bool:
        """Whether it is over."""
        if self.told is None:
            there, status = os.waitpid(self.process, os.WNOHANG)
            if there:
                self._end(os.waitstatus_to_exitcode(status))
        return self.told is not None

    def wait(self, seconds: float = WAIT) -> Told:
        """What came of it; it is ended where it hangs."""
        until = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() > until:
                os.kill(self.process, signal.SIGKILL)
                os.waitpid(self.process, 0)
                self._end(None)
            time.sleep(0.005)
        assert self.told is not None
        return self.told

    def _end(self, code: int | None) -> None:
        said = [path.read_text(errors="replace") if path.is_file() else "" for path in (self.out, self.err)]
        self.told = Told(code, *said)

    def until(self, holds: Callable[[], bool], seconds: float = WAIT) -> bool:
        """Wait until something holds; False where the call ends before."""
        until = time.monotonic() + seconds
        while not holds():
            if self.ended() or time.monotonic() > until:
                return False
            time.sleep(0.002)
        return True


def call(words: Sequence[str], at: Path, fault: Fault | None = None, **named: Any) -> Told:
    """A call from beginning to end."""
    return start(words, at, fault, **named).wait()


OPERATIONS = ("replace", "fsync", "unlink")
"""What writers ask of the system, and where they are killed."""


def counting(into: Path) -> Fault:
    """Count a call's operations into a file, one letter each."""

    def fault() -> None:
        for name in OPERATIONS:
            _watch(name, lambda name=name: _noted(into, name))

    return fault


def _noted(into: Path, name: str) -> None:
    handle = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, name[:1].encode())
    os.close(handle)


def kill_at(name: str, turn: int) -> Fault:
    """Kill the process outright at the n-th such operation."""
    return lambda: _at(name, turn, lambda: os.kill(os.getpid(), signal.SIGKILL))


def full_at(turn: int, number: int = errno.ENOSPC) -> Fault:
    """Let the disk be full from the n-th file that is written on."""

    def fault() -> None:
        def full() -> None:
            raise OSError(number, os.strerror(number))

        _at("fsync", turn, full, on=True)

    return fault


def _at(name: str, turn: int, act: Callable[[], None], *, on: bool = False) -> None:
    calls = [0]

    def counted() -> None:
        calls[0] += 1
        if calls[0] == turn or (on and calls[0] > turn):
            act()

    _watch(name, counted)


def _watch(name: str, before: Callable[[], None]) -> None:
    real = getattr(os, name)

    def watched(*given: Any, **named: Any) -> Any:
        before()
        return real(*given, **named)

    setattr(os, name, watched)


PASSING = {"seconds", "created", "peak_memory_bytes", "seal", "config", "device", "git", "given"}
"""Facts of a record that differ from one call to the next: time, memory, place, the checkout, and whether --force was
given."""


def numbers(root: Path) -> dict[str, bytes]:
    """Every file below, less what differs between two undisturbed calls; what a kill left there is in it too."""
    found = dict[str, bytes]()
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != "report.html":
            content = path.read_bytes()
            if path.name == "record.json":
                content = json.dumps(_lasting(json.loads(content))).encode()
            found[str(path.relative_to(root))] = content
    return found


def _lasting(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _lasting(value) for name, value in content.items() if name not in PASSING}
    return [_lasting(one) for one in content] if isinstance(content, list) else content


def different(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    """Names of files that differ, with which of the two has them."""
    return [
        f"{name} {'differs' if name in one and name in other else 'is left' if name in one else 'is lost'}"
        for name in sorted({*one, *other}) if one.get(name) != other.get(name)
    ]  # fmt: skip


def by_turns(every: Sequence[Injection], some: int) -> Iterator[Injection]:
    """A few of many, spread evenly; all where there are no more."""
    some = min(some, len(every))
    yield from (every[i * len(every) // some] for i in range(some))
