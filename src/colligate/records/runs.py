"""The folder that a finished run leaves behind: written so that it is whole, read so that damage shows."""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from colligate.records.calls import given, settings
from colligate.records.files import WorkError, plain_json, read_sealed, sealed_json, write_atomic
from colligate.records.rows import AGAIN, Row, parse_table, table_bytes

SCHEMA = 1
"""Number of the record layout; a record with another number is refused."""


def run_facts(
    kind: str, name: str, config: Any, *, seconds: Mapping[str, float], memory: int, notes: Iterable[str] = ()
) -> dict[str, object]:
    """What every record says: what was asked, by which versions on which machine, and what it cost.

    Args:
        kind: what was done; run folders begin with it.
        name: of what it was done to, for a reader.
        config: a config dataclass.
        seconds: of every stage.
        memory: most bytes held.
        notes: sentences that a reader should see.
    """
    return {
        "kind": kind,
        "name": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": {**settings(config), "runs": str(config.runs)},
        "given": given(config),
        **environment(),
        "seconds": dict(seconds),
        "peak_memory_bytes": memory,
        "notes": list(notes),
    }


def environment() -> dict[str, object]:
    """Versions, git revision and machine, for the record."""
    packages = (
        "colligate",
        "torch",
        "numpy",
        "scipy",
        "scikit-learn",
        "transformers",
        "sentence-transformers",
        "open_clip_torch",
        "pillow",
        "torchvision",
        "timm",
    )
    versions: dict[str, str] = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "git": _git_revision(),
        "device": {"machine": platform.machine(), "system": platform.system(), "cpus": os.cpu_count()},
    }


def _git_revision() -> str | None:
    """Revision of the checkout that this package stands in; None where it is installed elsewhere."""
    here = Path(__file__).resolve().parents[1]
    if not (here.parents[1] / ".git").exists() or here.parent.name != "src":
        return None
    try:
        run = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty"],
            capture_output=True, text=True, timeout=5, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """The folder of a finished run; its files are read when asked for, and compared with the hashes in the record.

    Attributes:
        folder: where it is.
        record: what `record.json` holds.
    """

    folder: Path
    record: dict[str, Any]

    def content(self, name: str) -> bytes:
        """The bytes of one of its files.

        Raises:
            WorkError: it is missing or damaged.
        """
        path = self.folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise WorkError(f"{path} is missing, though a finished run has one; {AGAIN}.") from None
        digest = self._hashes.get(name)
        if digest is not None and digest != hashlib.sha256(content).hexdigest():
            raise WorkError(f"{path} is damaged (its checksum differs); {AGAIN}.")
        return content

    @property
    def _hashes(self) -> Mapping[str, str]:
        return self.record.get("files", {})

    def holds(self, name: str) -> bool:
        """Whether it has such a file, or should."""
        return name in self._hashes or (self.folder / name).is_file()

    @cached_property
    def rows(self) -> list[Row]:
        """What `table.csv` holds."""
        return parse_table(self.content("table.csv"), self.folder / "table.csv")

    @cached_property
    def figures(self) -> dict[str, Any]:
        """What `figures.json` holds; nothing where there is none."""
        if not self.holds("figures.json"):
            return {}
        self.content("figures.json")
        return read_sealed(self.folder / "figures.json", AGAIN)

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """Name -> tensor of `arrays.safetensors`; nothing where there is none."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        if not self.holds("arrays.safetensors"):
            return {}
        try:
            return cast("dict[str, Any]", load(self.content("arrays.safetensors")))
        except (SafetensorError, ValueError, KeyError) as error:
            raise WorkError(f"{self.folder / 'arrays.safetensors'} is damaged ({error}); {AGAIN}.") from None


def open_run(folder: Path) -> FinishedRun:
    """Open a finished run.

    Raises:
        ValueError: there is none, or its schema isn't this version's.
        WorkError: its record is damaged.
    """
    path = folder / "record.json"
    if not path.is_file():
        raise ValueError(f"{folder} holds no record.json; it isn't a finished run.")
    record = read_sealed(path, AGAIN)
    if record.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {record.get('schema')!r}; this version reads {SCHEMA}. Run it again.")
    return FinishedRun(folder, record)


def find_run(folder: Path, *, force: bool = False) -> FinishedRun | None:
    """The run that this folder holds if it is finished and isn't to be repeated, else None.

    Args:
        folder: the run's, named by what decides its numbers.
        force: repeat it anyway.

    Raises:
        ValueError: its schema isn't this version's.
        WorkError: its record is damaged.
    """
    return None if force or not (folder / "record.json").is_file() else open_run(folder)


def read_record(folder: Path) -> dict[str, Any]:
    """Read a finished run's `record.json`.

    Raises:
        ValueError: there is none, or its schema isn't this version's.
        WorkError: it is damaged.
    """
    return open_run(folder).record


class ListedRun(NamedTuple):
    """A run's folder at a glance.

    Attributes:
        name: of the folder.
        kind: what was done.
        what: it was done to, or with which settings.
        created: when it was finished, in ISO format; empty otherwise.
        state: finished, unfinished, or damaged where its record can't be read.
        verdict: what it found, in a sentence; empty where nothing says.
    """

    name: str
    kind: str
    what: str
    created: str
    state: Literal["finished", "unfinished", "damaged"]
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
        >>> with TemporaryDirectory() as runs:
        ...     facts = {"kind": "study", "name": "mine", "created": "2026-01-01"}
        ...     write_record(Path(runs) / "study-0123456789", facts, [], {}, {})
        ...     list_runs(Path(runs))[0][1:]
        ('study', 'mine', '2026-01-01', 'finished', '')
    """
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}; name one that holds run folders: colligate runs DIR.")
    there = [one for one in folder.iterdir() if one.is_dir()]
    found = [_listed(one, judge) for one in there if (one / "record.json").is_file() or _RUN_NAME.fullmatch(one.name)]
    return sorted(found, key=lambda run: (run.state == "unfinished", run.created, run.name))


_RUN_NAME = re.compile(r"[a-z-]+-[0-9a-f]{10}")


def _listed(folder: Path, judge: Callable[[Mapping[str, Any], list[Row]], str] | None) -> ListedRun:
    kind = folder.name.rpartition("-")[0]
    if not (folder / "record.json").is_file():
        return ListedRun(folder.name, kind, "", "", "unfinished")
    try:
        run = open_run(folder)
        verdict = "" if judge is None else judge(run.record, run.rows)
    except (WorkError, ValueError):
        return ListedRun(folder.name, kind, "", "", "damaged")
    record = run.record
    config, world = record.get("config", {}), record.get("inputs", {}).get("world", {}).get("name")
    what = str(record.get("name", ""))
    if what in ("", folder.name):
        chosen = [name for name in record.get("given", []) if name in config and name not in ("runs", "store")]
        what = ", ".join(f"{name} {config[name]}" for name in chosen)
    table = config.get("labels") or config.get("scenes")
    if world and isinstance(table, str) and Path(table).stem == world:
        world = Path(table).name  # of a labels table, the file
    what += f" on {world}" if world else ""
    created = str(record.get("created", ""))
    return ListedRun(folder.name, str(record.get("kind", kind)), what, created, "finished", verdict)


def unfinish(folder: Path) -> None:
    """Take the `record.json` out of a folder that is about to be written anew.

    Whoever puts files of their own into a run's folder calls this before the first of them: a run that is killed
    halfway then leaves an unfinished folder, not one of old and new files.
    """
    (folder / "record.json").unlink(missing_ok=True)


def write_record(
    folder: Path,
    record: Mapping[str, object],
    rows: Iterable[Row],
    figures: Mapping[str, object],
    arrays: Mapping[str, Any],
    others: Mapping[str, bytes] | None = None,
) -> None:
    """Write a run's folder; `record.json` goes first and comes last, so that a folder with one is whole.

    The record holds the hash of every file beside it under `files`, and one of itself under `seal`.

    Args:
        folder: where it goes; what an earlier run left there is replaced.
        record: settings, inputs, versions.
        rows: the table.
        figures: JSON-able points behind the report's figures.
        arrays: name -> tensor, written as safetensors.
        others: name -> content of files that only runs of this kind have.

    Raises:
        WorkError: a number that JSON can't hold, such as NaN.
    """
    from safetensors.torch import save

    unfinish(folder)
    contents = {
        "table.csv": table_bytes(rows),
        "figures.json": plain_json("figures.json", figures),
        "arrays.safetensors": save({k: v.contiguous() for k, v in arrays.items()}),
        **(others or {}),
    }
    for name, content in contents.items():
        write_atomic(folder / name, content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    told = {"schema": SCHEMA, **record, "files": hashes}
    write_atomic(folder / "record.json", sealed_json("record.json", told, indent=1))
