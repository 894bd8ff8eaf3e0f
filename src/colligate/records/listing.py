"""Runs at a glance: what was done, to what, when, and whether it can be trusted."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from colligate.records.files import WorkError
from colligate.records.rows import Row
from colligate.records.runs import RUN_NAME, open_run


class ListedRun(NamedTuple):
    """A run's folder at a glance.

    Attributes:
        name: of the folder.
        kind: what was done.
        what: it was done to, or with which settings.
        created: when it was finished, in ISO format; empty otherwise.
        state: finished; unfinished; damaged, where its record or a file of it is; unsealed, where its record has no
            seal and may have been edited; foreign, where its record is another run's.
        verdict: what it found, in a sentence; empty where nothing says.
    """

    name: str
    kind: str
    what: str
    created: str
    state: Literal["finished", "unfinished", "damaged", "unsealed", "foreign"]
    verdict: str = ""


def list_runs(folder: Path, judge: Callable[[Mapping[str, Any], list[Row]], str] | None = None) -> list[ListedRun]:
    """The runs in a folder of run folders, the oldest first, and those that never finished last.

    Args:
        folder: of run folders.
        judge: says of a record and its rows what they found.

    Raises:
        ValueError: there is no such folder.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from colligate.records import write_record
        >>> with TemporaryDirectory() as runs:
        ...     facts = {"kind": "study", "name": "mine", "created": "2026-01-01"}
        ...     write_record(Path(runs) / "study-0123456789", facts, [], {}, {})
        ...     list_runs(Path(runs))[0][1:]
        ('study', 'mine', '2026-01-01', 'finished', '')
    """
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}; name one that holds run folders: colligate runs DIR.")
    there = [one for one in folder.iterdir() if one.is_dir()]
    found = [_listed(one, judge) for one in there if (one / "record.json").is_file() or RUN_NAME.fullmatch(one.name)]
    return sorted(found, key=lambda run: (run.state == "unfinished", run.created, run.name))


def _listed(folder: Path, judge: Callable[[Mapping[str, Any], list[Row]], str] | None) -> ListedRun:
    kind = folder.name.rpartition("-")[0]
    if not (folder / "record.json").is_file():
        return ListedRun(folder.name, kind, "", "", "unfinished")
    try:
        run = open_run(folder)
        verdict = "" if judge is None else judge(run.record, run.rows)
    except (WorkError, ValueError, LookupError, TypeError, OSError):
        return ListedRun(folder.name, kind, "", "", "damaged")
    record = run.record
    config, world = record.get("config", {}), _part(_part(record, "inputs"), "world").get("name")
    what = str(record.get("name", ""))
    if what in ("", folder.name):
        chosen = [name for name in record.get("given", []) if name in config and name not in ("runs", "store")]
        what = ", ".join(f"{name} {config[name]}" for name in chosen)
    table = config.get("labels") or config.get("scenes")
    if world and isinstance(table, str) and Path(table).stem == world:
        world = Path(table).name  # of a labels table, the file
    what += f" on {world}" if world else ""
    created = str(record.get("created", ""))
    state = "foreign" if run.of_another else "finished" if run.sealed else "unsealed"
    return ListedRun(folder.name, str(record.get("kind", kind)), what, created, state, verdict)


def _part(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
