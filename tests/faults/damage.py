"""Each file of a run damaged x each verb that uses or lists the run: it is told in one sentence, and nothing is used.

Records that were edited, unsealed, or sealed by somebody else are here too: what they name is neither run nor reached.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from injecting import Injection, Told, call
from kills import subjects, whole

HOWS: dict[str, Callable[[bytes], bytes]] = {
    "flipped": lambda content: (
        content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]
    ),
    "cut": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
}
"""How a file is damaged; beside these it may be gone, a pipe, or another run's."""


def of(base: Path, subject: str) -> Path:
    """The folder of an undisturbed run."""
    whole(base, subject)
    [folder] = (base / "whole" / subject / "runs").glob(f"{subject}*-*")
    return folder


def verbs(base: Path, subject: str, run: str) -> dict[str, list[str]]:
    """What uses a run, by name."""
    found = {
        "the same call": subjects(base)[subject], "report": ["report", run], "compare": ["compare", run, run],
        "reproduce": ["reproduce", run], "runs": ["runs", "--json"],
    }  # fmt: skip
    if subject == "train":
        found |= {"check-model": ["check-model", f"run:{run}"], "structure": ["structure", run]}
    if subject == "sweep":
        found = {name: words for name, words in found.items() if name not in ("compare", "reproduce")}
    return found


@cache
def names(base: Path, subject: str) -> tuple[str, ...]:
    """The files of a run, the page left out."""
    return tuple(sorted(path.name for path in of(base, subject).iterdir() if path.name != "report.html"))


def noticed(verb: str, told: Told, codes: tuple[int, ...] = (1,)) -> list[str]:
    """What is wrong with a verb's answer to damage: it must say so, in a list or by failing."""
    if verb != "runs":
        return told.wrong(*codes)
    wrong = told.wrong(0)
    if not wrong and not {one["state"] for one in json.loads(told.out)} & {"damaged", "foreign", "unfinished"}:
        wrong = [f"runs says nothing of it: {told.out[-200:]}"]
    return wrong


def damaged(base: Path) -> Iterator[Injection]:
    """Every file of every kind of run x how it is harmed x every verb."""
    for subject in ("probe", "train", "sweep"):
        run = of(base, subject)
        for name in names(base, subject):
            for how in (*HOWS, "gone"):
                for verb, words in verbs(base, subject, f"runs/{run.name}").items():

                    def check(at: Path, run: Path = run, name: str = name, how: str = how, verb: str = verb,
                              words: list[str] = words) -> list[str]:  # fmt: skip
                        shutil.copytree(run.parents[1] / "runs", at / "runs")
                        path = at / "runs" / run.name / name
                        if how == "gone":
                            path.unlink()
                        else:
                            path.write_bytes(HOWS[how](path.read_bytes()))
                        no_run = how == "gone" and name in ("record.json", "model.json")
                        if no_run and verb == "the same call":
                            return call(words, at).wrong(0, 1)  # it is made again where there is no record
                        if how == "gone" and name == "record.json" and verb == "check-model":
                            return call(words, at).wrong(0)  # a checkpoint without its run is whole in itself
                        return noticed(verb, call(words, at), (1, 2) if no_run else (1,))

                    yield Injection(f"{name} of {subject} {how}, then {verb}", check)


def foreign(base: Path) -> Iterator[Injection]:
    """Records without a seal, under another's name, or that name code, the network, a store and other places."""
    run = of(base, "probe")
    for verb in ("report", "compare", "reproduce", "runs", "the same call"):

        def unsealed(at: Path, verb: str = verb) -> list[str]:
            path = _copied(base, run, at) / "record.json"
            record = json.loads(path.read_text())
            del record["seal"]
            path.write_text(json.dumps(record))
            told = call(verbs(base, "probe", f"runs/{run.name}")[verb], at)
            page = at / "runs" / run.name / "report.html"
            shown = told.out + (page.read_text() if verb == "report" and page.is_file() else "")
            word = "unsealed" if verb == "runs" else "has no seal"
            return told.wrong(0) + ([] if word in shown or verb == "the same call" else [f"{verb} doesn't show it"])

        yield Injection(f"a record without a seal, then {verb}", unsealed)

        def renamed(at: Path, verb: str = verb) -> list[str]:
            other = at / "runs" / f"{run.name[:-4]}beef"
            shutil.copytree(run, other)
            if verb == "the same call":
                other.rename(at / "runs" / run.name)
                path = at / "runs" / run.name / "record.json"
                path.write_bytes(_resealed(path, {"run": "probes-0123456789"}))
                return call(verbs(base, "probe", "")[verb], at).wrong(1)
            told = call(verbs(base, "probe", f"runs/{other.name}")[verb], at)
            said = told.out + "".join(page.read_text() for page in other.glob("report.html"))
            word = "foreign" if verb == "runs" else "record of another run"
            codes = (2,) if verb == "reproduce" else (0,)
            return told.wrong(*codes) + ([] if word in said + told.err else [f"{verb} doesn't show it"])

        yield Injection(f"the record of another run, then {verb}", renamed)
    for name, facts in {
        "code as its embedder": {"embedder": "theirs:make"},
        "code as its rules": {"families": ["theirs:make"]},
    }.items():
        for sealed in (True, False):

            def ran(at: Path, facts: Any = facts, sealed: bool = sealed) -> list[str]:
                path = _copied(base, run, at) / "record.json"
                record = json.loads(path.read_text())
                kind = {"kind": "complexity"} if "families" in facts else {}
                path.write_bytes(_resealed(path, {**kind, "config": {**record["config"], **facts}}, sealed=sealed))
                (at / "theirs.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
                told = call(["reproduce", f"runs/{run.name}"], at)
                return told.wrong(2) + (["its code ran"] if (at / "ran").exists() else [])

            yield Injection(f"a record {'resealed' if sealed else 'unsealed'} with {name}", ran)

    def reached(at: Path) -> list[str]:
        path = _copied(base, run, at) / "record.json"
        config = json.loads(path.read_text())["config"]
        theirs = {"store": "theirs", "online": True, "out": "theirs/page.html", "force": True, "device": "warp"}
        path.write_bytes(_resealed(path, {"config": {**config, **theirs}}))
        told = call(["reproduce", f"runs/{run.name}"], at)
        return told.wrong(0) + (["its store was used"] if (at / "theirs").exists() else [])

    yield Injection("a record that names store, network, page and device", reached)


def _copied(base: Path, run: Path, at: Path) -> Path:
    shutil.copytree(run, at / "runs" / run.name)
    return at / "runs" / run.name


def _resealed(path: Path, facts: dict[str, object], *, sealed: bool = True) -> bytes:
    from colligate.records import sealed_json

    record = json.loads(path.read_text())
    del record["seal"]
    told = {**record, **facts}
    return sealed_json("record.json", told) if sealed else json.dumps(told).encode()


def shards(base: Path) -> Iterator[Injection]:
    """Vectors in the store: harmed, emptied, in another's place, left over by a kill: the same numbers, and a word."""
    whole(base, "probe")
    hows = {**HOWS, "gone": None, "another model's": None, "beside leftovers": None}
    for how in hows:

        def check(at: Path, how: str = how) -> list[str]:
            source = base / "whole" / "probe"
            shutil.copytree(source / "store", at / "store")
            [path] = (at / "store").rglob("shard-*.safetensors")
            if how in HOWS:
                path.write_bytes(HOWS[how](path.read_bytes()))
            elif how == "another model's":
                words = [*subjects(base)["embed"], "--store", "others"]
                words[1] = "oracle:no-binding:24"
                call(words, at)
                [theirs] = (at / "others").rglob("shard-*.safetensors")
                path.write_bytes(theirs.read_bytes())
            else:
                path.unlink()
                for name in (".shard-00000.safetensors.0a1b2c3d.part", "shard-00000.lock"):
                    (path.parent / name).touch() if how == "beside leftovers" else None
            told = call(subjects(base)["probe"], at)
            wrong = told.wrong(0)
            lines = [line for line in told.err.splitlines() if "are broken" in line]
            if how in HOWS or how == "another model's":
                wrong += [] if len(lines) == 1 else [f"{len(lines)} sentences of a broken shard: {told.err}"]
            for one, other in ((at, source), (source, at)):
                for file in (one / "runs").rglob("table.csv"):
                    there = other / file.relative_to(one)
                    wrong += [] if there.read_bytes() == file.read_bytes() else ["other numbers"]
            return wrong + [
                f"{left.name} is left" for left in path.parent.iterdir() if left.suffix in (".part", ".lock")
            ]

        yield Injection(f"a stored shard {how}", check)
