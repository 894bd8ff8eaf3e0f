"""Kills at every rename, fsync and removal, full disks, several writers to one folder: nothing is lost or changed."""

import errno
import os
import shutil
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from injecting import OPERATIONS, Fault, Injection, call, counting, different, full_at, kill_at, numbers, start

SIZES = ["--width", "16", "--heads", "1", "--dim", "8", "--batch", "8", "--steps", "4", "--warmup", "1"]
SIZES += ["--evaluate-every", "2", "--checkpoint-every", "2", "--budget", "40", "--precision", "float32"]


def subjects(base: Path) -> dict[str, list[str]]:
    """Calls that write: what they leave stands in the folders `runs`, `store` and `vectors`."""
    labels = str(base / "labels.csv")
    return {
        "probe": ["probe", "oracle:object-table:24", "--scenes", labels],
        "train": ["train", "--values", "6", "--coverage", "0.5", *SIZES],
        "sweep": [
            "sweep", "--spaces", "6x6", "--coverages", "0.5", "--seeds", "2", "--widths", "16",
            *[word.replace("--", "--train.") for word in SIZES[2:]],
        ],
        "embed": ["embed", "oracle:object-table:24", "--scenes", labels],
    }  # fmt: skip


def left(at: Path) -> dict[str, bytes]:
    """All that a call left, byte by byte."""
    return {name: content for name, content in numbers(at).items() if not name.startswith("said-")}


@cache
def whole(base: Path, subject: str) -> tuple[dict[str, bytes], dict[str, int]]:
    """What an undisturbed call leaves, and how often it asked the system for what."""
    at = base / "whole" / subject
    counted = base / "whole" / f"{subject}.operations"
    done = call(subjects(base)[subject], at, counting(counted))
    if done.code != 0:
        raise RuntimeError(f"{subject} fails undisturbed: {done}")
    said = counted.read_text()
    return left(at), {name: said.count(name[0]) for name in OPERATIONS}


def killed(base: Path) -> Iterator[Injection]:
    """A kill at each operation of each subject; the same call then leaves the same bytes, and nothing else."""
    for subject, words in subjects(base).items():
        for operation in OPERATIONS:
            for turn in range(1, whole(base, subject)[1][operation] + 1):

                def check(at: Path, words: list[str] = words, turn: int = turn, subject: str = subject,
                          operation: str = operation) -> list[str]:  # fmt: skip
                    first = call(words, at, kill_at(operation, turn))
                    wrong = [] if first.code == -signal.SIGKILL else [f"it wasn't killed: {first}"]
                    return wrong + call(words, at).wrong(0) + different(left(at), whole(base, subject)[0])

                yield Injection(f"{subject} killed at {operation} {turn}", check)


def full(base: Path) -> Iterator[Injection]:
    """A disk that is full from some file on: a sentence, and the same bytes once there is room."""
    for subject, words in subjects(base).items():
        for turn in range(1, whole(base, subject)[1]["fsync"] + 1):
            for number in (errno.ENOSPC, errno.EDQUOT)[: 1 + turn % 2]:

                def check(at: Path, words: list[str] = words, turn: int = turn, subject: str = subject,
                          number: int = number) -> list[str]:  # fmt: skip
                    first = call(words, at, full_at(turn, number))
                    wrong = first.wrong(1) + ([] if "full" in first.err else [f"no word of the disk: {first.err}"])
                    return wrong + call(words, at).wrong(0) + different(left(at), whole(base, subject)[0])

                yield Injection(f"{subject} on a disk full ({errno.errorcode[number]}) from file {turn} on", check)
    for subject, words in subjects(base).items():

        def served(at: Path, words: list[str] = words, subject: str = subject) -> list[str]:
            shutil.copytree(base / "whole" / subject / "store", at / "store")
            return call(words, at, _read_only(at / "store")).wrong(0) + different(left(at), whole(base, subject)[0])

        if "store/" in "".join(whole(base, subject)[0]):
            yield Injection(f"{subject} from a read-only store that holds all", served)


def _read_only(store: Path) -> Fault:
    """Let nothing below a folder be written, as a drive does that was mounted so; root would pass permissions."""

    def fault() -> None:
        real, real_mkdir = os.open, os.mkdir

        def opened(path: Any, flags: int, *given: Any, **named: Any) -> int:
            if str(path).startswith(str(store)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return real(path, flags, *given, **named)

        def made(path: Any, *given: Any, **named: Any) -> None:
            if str(path).startswith(str(store)):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            real_mkdir(path, *given, **named)

        os.open, os.mkdir = opened, made

    return fault


def writers(base: Path) -> Iterator[Injection]:
    """Two and four at once: all end well, and leave what one leaves; also where one of them is killed."""
    for subject, words in subjects(base).items():
        for many in (2, 4):

            def check(at: Path, words: list[str] = words, many: int = many, subject: str = subject) -> list[str]:
                ended = [one.wait(180) for one in [start(words, at) for _ in range(many)]]
                wrong = [problem for one in ended for problem in one.wrong(0)]
                return wrong + different(left(at), whole(base, subject)[0])

            yield Injection(f"{many} writers of one {subject}", check)
        if subject == "embed":
            continue
        for options in (["--force"], []):

            def joined(at: Path, words: list[str] = words, options: list[str] = options,
                       subject: str = subject) -> list[str]:  # fmt: skip
                last = whole(base, subject)[1]["replace"]
                first = start([*words, *options], at, kill_at("replace", last))
                others = [start([*words, *options], at) for _ in range(2)]
                first.wait(180)
                wrong = [problem for one in others for problem in one.wait(180).wrong(0)]
                wrong += call(words, at).wrong(0)  # the others may have ended before the kill: the next call sweeps
                return wrong + different(left(at), whole(base, subject)[0])

            yield Injection(f"3 writers of one {' '.join([subject, *options])}, one killed at its last file", joined)
