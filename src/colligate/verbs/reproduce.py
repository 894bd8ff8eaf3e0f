"""Run a record again and compare."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import MISSING, Field, asdict, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

from colligate.embedders.consent import no_own_code
from colligate.engine import Report, using_threads
from colligate.records import NUMBERS, RUN_FIELDS, Row, WorkError, open_run
from colligate.training.config import TrainConfig
from colligate.training.loop import train
from colligate.training.presets import PicturesConfig
from colligate.verbs.battery import BATTERIES, study
from colligate.verbs.config import FoilsConfig, RecognizeConfig, RepairConfig, StudyConfig
from colligate.verbs.crossmodal import recognize, run_foils
from colligate.verbs.provenance import file_hashes
from colligate.verbs.repair import repair
from colligate.version import __version__


class Reproduction(NamedTuple):
    """How a record compares with its repetition.

    Attributes:
        numbers: every number of both tables: values, ends of intervals, counts and levels.
        equal: those that agree.
        differences: a sentence for each that doesn't, and for each row that only one table has.
    """

    numbers: int
    equal: int
    differences: list[str]


class _Way(NamedTuple):
    """How runs of a kind are run: what their settings may be, and what runs them."""

    configs: tuple[type[Any], ...]
    run: Callable[[Any, Report | None], Any]


WAYS: Mapping[str, _Way] = {
    "train": _Way((TrainConfig, PicturesConfig), lambda config, report: train(config, report=report)),
    "recognize": _Way((RecognizeConfig,), lambda config, report: recognize(config, report=report)),
    "foils": _Way((FoilsConfig,), lambda config, report: run_foils(config, report=report)),
    "repair": _Way((RepairConfig,), lambda config, report: repair(config, report=report)),
}
"""Kind of a record -> how it is run again; studies and their batteries stand in `_way`."""
GATHERED = {
    "paper": "reproduce the runs that its record.json names under parts, then run colligate paper again",
    "sweep": "reproduce the trainings that its runs.csv names",
    "structure": "reproduce the trainings that its record.json names, then run colligate structure --force on them",
}
"""Kinds of runs that gather others -> what to do instead."""
PASSING = ("seconds", "device")
"""Facts about inputs that may differ."""


def reproduce(
    folder: Path,
    *,
    tolerance: float = 1e-6,
    report: Report | None = None,
    code: bool = False,
    online: bool = False,
    store: Path | None = None,
) -> Reproduction:
    """Run a finished run again, elsewhere, with as many threads, and compare every number of its table.

    A record may come from anyone. What it says decides numbers and nothing else: it is the caller who lets code of its
    own run, models be downloaded, or a store be used.

    Studies, single measurements, recognition, foils, repairs and trainings can be reproduced. Files beside the
    embedder are compared by content first, then the model, the world and the split.

    Args:
        folder: of the run.
        tolerance: largest difference of a number that passes.
        report: told about progress.
        code: import modules that the record names, as `package.module:factory`.
        online: let model libraries download what is not on this machine.
        store: folder of embedded vectors; None for the user's own.

    Raises:
        ValueError: the run gathers others, its record is another run's, its inputs can't be had or are others than the
            record says, or it names code of its own and `code` is False.
        WorkError: a file of the run is missing or damaged.

    Example:
        >>> with TemporaryDirectory() as runs:
        ...     done = study(StudyConfig(embedder="oracle:no-binding", scenes="clevr", runs=Path(runs)),
        ...                  only=("probes",))
        ...     compared = reproduce(done.folder, tolerance=0.0)
        >>> compared.equal == compared.numbers, compared.differences
        (True, [])
    """
    run = open_run(folder)
    record, before = run.record, run.rows
    way = _way(folder, record)
    if run.of_another:
        raise ValueError(f"{folder} holds the record of another run, {run.of_another}; name that run's own folder.")
    _same_files(folder, record, _config(folder, record, way, Path(), online, store))
    consent = nullcontext() if code else no_own_code(
        f"the record of {folder} names it; add --code (code=True) if you trust whoever wrote it"
    )  # fmt: skip
    with TemporaryDirectory() as elsewhere, using_threads(_threads(folder, record)), consent:
        again = way.run(_config(folder, record, way, Path(elsewhere), online, store), report)
    _same_inputs(folder, record, again)
    return compare_tables(before, again.rows, tolerance)


def _way(folder: Path, record: Mapping[str, Any]) -> _Way:
    """How a run of the record's kind is run.

    Raises:
        ValueError: runs of this kind can't be run again as one.
    """
    kind = str(record.get("kind"))
    if objects := record.get("in_memory"):
        raise ValueError(
            f"{folder} measured what was given as an object ({', '.join(map(str, objects))}), which no record holds; "
            "make the call again from Python and compare."
        )
    if kind in GATHERED:
        raise ValueError(f"{folder} is a {kind}, which gathers other runs: {GATHERED[kind]}.")
    if kind in WAYS:
        return WAYS[kind]
    batteries = None if kind == "study" else tuple(kind.split("-"))
    if batteries is not None and not set(batteries) <= set(BATTERIES):
        raise ValueError(f"{folder} is a run of kind {kind!r}, which this version can't run again; run it by hand.")
    return _Way((StudyConfig,), lambda config, report: study(config, only=batteries, report=report))


MOST_THREADS = 1024
"""A record that names more is not ours."""


def _threads(folder: Path, record: Mapping[str, Any]) -> int | None:
    threads = record.get("threads")
    if threads is None or (type(threads) is int and 1 <= threads <= MOST_THREADS):
        return threads
    raise WorkError(f"The record of {folder} names {threads!r} threads, which no run has; run its verb anew.")


def _config(folder: Path, record: Mapping[str, Any], way: _Way, runs: Path, online: bool, store: Path | None) -> Any:
    """The settings of a record that decide numbers, with run folders elsewhere, and of the caller what reaches out.

    Raises:
        ValueError: settings that this version doesn't know.
        WorkError: there are none, or one is of a type that it can't be of.
    """
    if "config" not in record:
        raise WorkError(f"The record of {folder} names no settings, so it can't be run again; run its verb anew.")
    asked = {name: value for name, value in record["config"].items() if name not in RUN_FIELDS}
    unknown = list[str]()
    for of in way.configs:
        known = {f.name: f for f in fields(of)}
        unknown = [name for name in asked if name not in known]
        if not unknown:
            wrong = [name for name, value in asked.items() if not _fits(known[name], value)]
            lacking = [name for name, of_name in known.items() if _needed(of_name) and name not in asked]
            if wrong or lacking:
                raise WorkError(
                    f"The record of {folder} holds nothing usable under {', '.join([*wrong, *lacking])}, so it can't "
                    "be run again; run its verb anew."
                )
            given = {
                name: Path(value) if "Path" in str(known[name].type) and value is not None
                else tuple(value) if isinstance(value, list) else value
                for name, value in asked.items()
            }  # fmt: skip
            ours = {"runs": runs, "online": online, "store": store}
            return of(**given, **{name: value for name, value in ours.items() if name in known})
    raise ValueError(f"{folder} was made with settings that this version lacks ({', '.join(unknown)}); run it by hand.")


def _needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _fits(field: Field[Any], value: object) -> bool:
    """Whether a value of a record's JSON has the type that the field's annotation names."""
    said = str(field.type)
    if value is None:
        return "None" in said or "Optional" in said
    if isinstance(value, list):
        return "tuple" in said and all(isinstance(one, str | int | float) for one in cast("list[object]", value))
    if isinstance(value, bool):
        return "bool" in said
    if isinstance(value, str):
        return any(kind in said for kind in ("str", "Path", "Literal", "Kind"))
    return isinstance(value, int | float) and ("float" in said or ("int" in said and isinstance(value, int)))


def _same_files(folder: Path, record: Mapping[str, Any], config: Any) -> None:
    """Compare the files that a config names beside its embedder, before any work is done.

    Raises:
        ValueError: one can't be read, or is another.
    """
    then: Mapping[str, str] = record.get("inputs", {}).get("files", {})
    now = file_hashes(**{name: getattr(config, name, None) for name in then})
    for name, digest in then.items():
        if now.get(name) != digest:
            raise ValueError(
                f"{getattr(config, name, name)} is another file than in {folder.name} ({name}: sha256 {digest[:10]} "
                f"then, {str(now.get(name))[:10]} now); put the old one back, or run the verb anew."
            )


def _same_inputs(folder: Path, record: Mapping[str, Any], again: Any) -> None:
    """Compare model, world, split and whatever else names a run's folder.

    Raises:
        ValueError: one of them is another.
    """
    before, after = record.get("inputs", {}), again.record.get("inputs", {})
    for name in ("world", "model", "split"):  # the world first: facts about the model say what it was shown
        then, now = (_lasting(inputs.get(name)) for inputs in (before, after))
        changed = sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))
        if changed:
            told = "; ".join(f"{key} {then.get(key)!r} then, {now.get(key)!r} now" for key in changed)
            raise ValueError(f"The {name} is another than in {folder.name}: {told}.")
    named = re.fullmatch(r".+-[0-9a-f]{10}", folder.name) is not None
    if named and record.get("versions", {}).get("colligate") == __version__ and again.folder.name != folder.name:
        raise ValueError(
            f"The inputs are others than in {folder.name}: model, world and split agree, but the words, the other "
            "tower or the settings don't; run the verb anew."
        )


def _lasting(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    kept = {name: value for name, value in (facts or {}).items() if name not in PASSING}
    return json.loads(json.dumps(kept))  # as records hold them: a run just made has tuples where its file has lists


def compare_tables(before: Iterable[Row], after: Iterable[Row], tolerance: float) -> Reproduction:
    """Every number of two tables, row by row.

    Example:
        >>> then, now = Row(id="a", value=1.0, n=3), Row(id="a", value=1.5, n=3)
        >>> compare_tables([then], [now], 1e-6)
        Reproduction(numbers=2, equal=1, differences=['a on all: 1.0 then, 1.5 now'])
    """
    then, now = _keyed(before), _keyed(after)
    numbers, equal, differences = 0, 0, list[str]()
    for key in dict.fromkeys([*then, *now]):
        row, other = then.get(key), now.get(key)
        if row is None or other is None:
            there = row or other
            assert there is not None
            numbers += sum(value is not None for value in _numbers(there).values()) or 1
            differences.append(f"{_named(there)}: only {'then' if other is None else 'now'}")
            continue
        ours, theirs = _numbers(row), _numbers(other)
        for column, value in ours.items():
            found = theirs[column]
            if value is None and found is None:
                continue
            numbers += 1
            if _agree(value, found, tolerance):
                equal += 1
            else:
                where = "" if column == "value" else f", {column}"
                differences.append(f"{_named(row)}{where}: {value} then, {found} now")
    return Reproduction(numbers, equal, differences)


def _keyed(rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Rows by what they measure; of several with the same name, each by its turn."""
    found, turns = dict[tuple[Any, ...], Row](), Counter[tuple[Any, ...]]()
    for row in rows:
        name = (row.id, row.on, row.protocol, row.concept, row.family, row.coverage)
        found[(*name, turns[name])] = row
        turns[name] += 1
    return found


def _numbers(row: Row) -> dict[str, float | int | None]:
    """The numbers of a row, by column; coverage is part of its name."""
    return {name: value for name, value in asdict(row).items() if name in NUMBERS and name != "coverage"}


def _named(row: Row) -> str:
    family = "" if row.family is None else f" ({row.family})"
    coverage = "" if row.coverage is None else f" at {row.coverage:g}"
    return f"{row.id}{family}{coverage} on {row.on}"


def _agree(then: float | int | None, now: float | int | None, tolerance: float) -> bool:
    if then is None or now is None:
        return False
    return then == now or abs(then - now) <= tolerance or (then != then and now != now)
