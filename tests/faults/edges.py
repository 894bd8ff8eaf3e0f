"""Streams that are closed, signals at any moment, hostile files and models: what a user of the command line meets."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from injecting import Fault, Injection, Told, call, different, start
from kills import SIZES, left, subjects, whole

LONG = ["train", "--values", "6", "--coverage", "0.5", *SIZES, "--steps", "4000", "--checkpoint-every", "20"]


def closed(*numbers: int) -> Fault:
    """Begin without these streams, as `>&-` does."""

    def fault() -> None:
        for number in numbers:
            os.close(number)
            setattr(sys, {0: "stdin", 1: "stdout", 2: "stderr"}[number], None)

    return fault


def onto(number: int, path: str) -> Fault:
    """Let a stream lead to a device."""

    def fault() -> None:
        os.dup2(os.open(path, os.O_WRONLY), number)

    return fault


def gone(number: int) -> Fault:
    """Let a stream lead into a pipe whose reader has gone, as `| head -1` leaves it."""

    def fault() -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python begins
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, number)

    return fault


def encoded(coding: str) -> Fault:
    """Give the terminal another encoding."""

    def fault() -> None:
        for name in ("stdout", "stderr"):
            stream: Any = getattr(sys, name)
            stream.reconfigure(encoding=coding, errors="strict")

    return fault


STREAMS: dict[str, tuple[Fault, tuple[int, ...]]] = {
    "stdout closed": (closed(1), (0,)),
    "stderr closed": (closed(2), (0,)),
    "both closed": (closed(1, 2), (0,)),
    "a reader of stdout that has gone": (gone(1), (0,)),
    "a reader of stderr that has gone": (gone(2), (0,)),
    "a full device as stdout": (onto(1, "/dev/full"), (0, 1)),
    "a full device as stderr": (onto(2, "/dev/full"), (0,)),
    "an ASCII terminal": (encoded("ascii"), (0,)),
}
"""What a stream may be -> the exit codes that are right."""


def streams(base: Path) -> Iterator[Injection]:
    """Each kind of stream x verbs that list, measure and train: the work is done, and kept."""
    for name, (fault, codes) in STREAMS.items():
        for subject in ("probe", "train", "worlds"):

            def check(at: Path, fault: Fault = fault, codes: tuple[int, ...] = codes, name: str = name,
                      subject: str = subject) -> list[str]:  # fmt: skip
                words = subjects(base).get(subject, [subject])
                told = call(words, at, fault)
                wrong = told.wrong(*codes, quiet="full" in name)
                return wrong + ([] if subject == "worlds" else different(left(at), whole(base, subject)[0]))

            yield Injection(f"{name}, {subject}", check)


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}
MOMENTS = {"as it begins": ".lock", "once a state is saved": "state.safetensors"}


def signals(base: Path) -> Iterator[Injection]:
    """Ctrl-C and SIGTERM at several moments: a sentence, the right code, and the same call goes on."""
    for number, code in SIGNALS.items():
        for moment, name in MOMENTS.items():

            def check(at: Path, number: signal.Signals = number, code: int = code, name: str = name) -> list[str]:
                running = start(LONG, at)
                if not running.until(lambda: any((at / "runs").glob(f"train-*/{name}"))):
                    return [f"it ended before: {running.wait()}"]
                os.kill(running.process, number)
                wrong = running.wait().wrong(code)
                rest = [path.name for path in (at / "runs").rglob(".*") if path.suffix == ".part"]
                return wrong + [f"{one} is left" for one in rest]

            yield Injection(f"{number.name} {moment}", check)

        def twice(at: Path, number: signal.Signals = number, code: int = code) -> list[str]:
            running = start(LONG, at)
            if not running.until(lambda: any((at / "runs").glob("train-*/state.safetensors"))):
                return [f"it ended before: {running.wait()}"]
            for _ in range(2):
                with suppress(ProcessLookupError):
                    os.kill(running.process, number)
            told = running.wait()
            return Told(told.code, told.out, "").wrong(code, -number, quiet=True)

        yield Injection(f"{number.name} twice", twice)


def files(base: Path) -> Iterator[Injection]:
    """Pipes, devices and broken files where a file is read: one sentence, exit code 2, and no waiting."""
    labels = str(base / "labels.csv")
    probe, oracle = ["probe"], "oracle:object-table:24"
    places = {
        "labels": lambda path: [*probe, oracle, "--scenes", path],
        "--space": lambda path: [*probe, oracle, "--scenes", labels, "--space", path],
        "vectors": lambda path: [*probe, path, "--labels", labels],
        "--control": lambda path: [*probe, str(base / "vectors.npy"), "--labels", labels, "--control", path],
        "--edits": lambda path: ["edit", oracle, "--scenes", labels, "--protocol", "paper", "--edits", path],
        "foils": lambda path: ["foils", "oracle:pair-bag:32", "--scenes", "clevr", "--table", path],
        "check-data": lambda path: ["check-data", path],
    }
    suffixes = {"labels": ".csv", "--space": ".json", "vectors": ".npy", "--control": ".npy", "--edits": ".json",
                "foils": ".json", "check-data": ".csv"}  # fmt: skip
    makes = {
        "a pipe": os.mkfifo,
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a folder": os.mkdir,
        "a link to itself": lambda path: path.symlink_to(path.name),
        "bytes of chance": lambda path: path.write_bytes(bytes((7 * i * i + 3 * i) % 256 for i in range(2000))),
        "nothing": lambda path: path.write_bytes(b""),
        "deep brackets": lambda path: path.write_text("[" * 100_000),
    }
    for place, words in places.items():
        for kind, make in makes.items():

            def check(at: Path, place: str = place, words: Any = words, make: Any = make) -> list[str]:
                path = at / f"hostile{suffixes[place]}"
                make(path)
                return call(words(str(path)), at).wrong(2)

            yield Injection(f"{kind} as {place}", check)
    for name, kind in (("record.json", "a pipe"), ("table.csv", "a pipe"), ("model.json", "a pipe")):

        def piped(at: Path, name: str = name) -> list[str]:
            import shutil

            from damage import of

            run = of(base, "train")
            shutil.copytree(run, at / "runs" / run.name)
            (at / "runs" / run.name / name).unlink()
            os.mkfifo(at / "runs" / run.name / name)
            return call(["report", f"runs/{run.name}"], at).wrong(1, 2)

        yield Injection(f"{kind} as {name} of a run", piped)


TOWER = """
import json, sys
import torch
from colligate.embedders import load_model
class Tower:
    kind = "scene"
    fingerprint = None
    def embed(self, items):
        return torch.nn.functional.one_hot(items.ids % 16, 16).float()
def make():
    return Tower()
"""
MODELS: dict[str, tuple[str, tuple[int, ...]]] = {
    "sys.exit in its factory": ("def make():\n    sys.exit(0)\n", (1,)),
    "sys.exit in embed": ("def leave(self, items):\n    sys.exit(0)\nTower.embed = leave\n", (1,)),
    "SystemExit at import": ("raise SystemExit\n", (1,)),
    "an exception in embed": ("def fail(self, items):\n    raise KeyError('x')\nTower.embed = fail\n", (1,)),
    "no vectors": ("Tower.embed = lambda self, items: None\n", (1, 2)),
    "sparse vectors": ("real = Tower.embed\nTower.embed = lambda self, i: real(self, i).to_sparse()\n", (0, 1, 2)),
    "vectors of text": ("Tower.embed = lambda self, items: ['a'] * len(items)\n", (1, 2)),
    "a fingerprint that isn't JSON": ("Tower.fingerprint = {'of': object()}\n", (1, 2)),
    "a fingerprint that is a list": ("Tower.fingerprint = [1]\n", (1, 2)),
    "another default dtype": ("torch.set_default_dtype(torch.float64)\n", (0, 1, 2)),
    "NaN": ("Tower.embed = lambda self, items: torch.full((len(items), 4), float('nan'))\n", (1,)),
    "prints": ("real = Tower.embed\ndef loud(self, i):\n    print('hello')\n    return real(self, i)\n"
               "Tower.embed = loud\nprint('world')\n", (0,)),
}  # fmt: skip
"""What a model does -> its code, and the exit codes that are right."""


def models(base: Path) -> Iterator[Injection]:
    """Models of the user's own that misbehave: one sentence that says so, and never a success that isn't one."""
    import json

    for name, (code, codes) in MODELS.items():

        def check(at: Path, code: str = code, codes: tuple[int, ...] = codes) -> list[str]:
            at.mkdir(parents=True, exist_ok=True)
            (at / "mine.py").write_text(TOWER + code)
            told = call(["probe", "mine:make", "--scenes", str(base / "labels.csv"), "--json"], at)
            wrong = told.wrong(*codes)
            if told.code == 0:
                with suppress(ValueError):
                    if json.loads(told.out):
                        return wrong
                wrong.append(f"no JSON: {told.out[:80]!r}")
            return wrong

        yield Injection(f"a model with {name}", check)
