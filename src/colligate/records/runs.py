"""The folder that a finished run leaves behind: written so that it is whole, read so that damage shows."""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from colligate.records.calls import given, settings
from colligate.records.files import (
    WorkError,
    plain_json,
    read_seal,
    read_sealed,
    sealed_json,
    sweep_temporaries,
    write_atomic,
)
from colligate.records.locks import held, hold_for_this_call
from colligate.records.rows import AGAIN, Row, parse_table, table_bytes

SCHEMA = 1
"""Number of the record layout; a record with another number is refused."""
RUN_NAME = re.compile(r"[a-z-]+-[0-9a-f]{10}")
"""Names of folders that runs give themselves."""


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
        sealed: whether the record has its seal; without one, nobody can tell whether it was edited.
    """

    folder: Path
    record: dict[str, Any]
    sealed: bool = True

    def content(self, name: str) -> bytes:
        """The bytes of one of its files.

        Raises:
            WorkError: it is missing or damaged.
        """
        path = self._there(name)
        content = path.read_bytes()
        self._compared(name, hashlib.sha256(content).hexdigest())
        return content

    def check(self) -> None:
        """Compare every file that the record names with its hash.

        Raises:
            WorkError: one is missing or damaged.
        """
        for name in self._hashes:
            with self._there(name).open("rb") as file:
                self._compared(name, hashlib.file_digest(file, "sha256").hexdigest())

    def _there(self, name: str) -> Path:
        path = self.folder / name
        if path.name != name or not path.is_file():
            raise WorkError(f"{path} is missing, though a finished run has one; {AGAIN}.")
        return path

    def _compared(self, name: str, digest: str) -> None:
        if self._hashes.get(name, digest) != digest:
            raise WorkError(f"{self.folder / name} is damaged (its checksum differs); {AGAIN}.")

    @property
    def _hashes(self) -> Mapping[str, str]:
        return self.record.get("files", {})

    @property
    def of_another(self) -> str:
        """Name of the run that the record was written for, where its folder has the name of another; else "".

        A folder that was given a name of one's own, such as `my-study`, isn't another's.
        """
        wrote = str(self.record.get("run", ""))
        named = RUN_NAME.fullmatch(self.folder.resolve().name)
        return wrote if named and RUN_NAME.fullmatch(wrote) and wrote != named.group() else ""

    @property
    def doubts(self) -> list[str]:
        """What whoever reads its numbers should know of where they come from: a sentence each, and mostly none."""
        found = list[str]()
        if not self.sealed:
            found.append(
                f"The record of {self.folder.name} has no seal: its numbers may have been edited since they were "
                "measured."
            )
        if self.of_another:
            found.append(f"The folder {self.folder.name} holds the record of another run, {self.of_another}.")
        return found

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
    """Open a finished run, and compare every file that its record names with its hash.

    A record without a seal, or of another run than its folder is named for, says so among its notes.

    Raises:
        ValueError: there is none, or its schema isn't this version's.
        WorkError: its record or a file of it is damaged.
    """
    path = folder / "record.json"
    if not path.is_file():
        raise ValueError(f"{folder} holds no record.json; it isn't a finished run.")
    record, sealed = read_seal(path, AGAIN)
    if record.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {record.get('schema')!r}; this version reads {SCHEMA}. Run it again.")
    for name, kind in _KINDS.items():
        if not isinstance(record.get(name, kind()), kind):
            raise WorkError(f"{path} holds no {kind.__name__} under {name!r} and can't be used; {AGAIN}.")
    run = FinishedRun(folder, record, sealed)
    run.check()
    if run.doubts:
        record["notes"] = [*record.get("notes", []), *run.doubts]
    return run


_KINDS: Mapping[str, type] = {
    "kind": str, "name": str, "created": str, "run": str, "config": dict, "given": list, "inputs": dict, "notes": list,
    "files": dict, "versions": dict, "seconds": dict,
}  # fmt: skip
"""What a record holds -> of which type; all else is of runs of one kind."""


def find_run(folder: Path, *, force: bool = False) -> FinishedRun | None:
    """The run that this folder holds if it is finished and isn't to be repeated, else None.

    Asked inside a `one_writer`, None means that this process is now the only one that writes the folder: another that
    wrote it has been waited for, and what it finished is taken.

    Args:
        folder: the run's, named by what decides its numbers.
        force: repeat it anyway.

    Raises:
        ValueError: its schema isn't this version's.
        WorkError: it is damaged, or another run's.
    """
    try:
        run = None if force else _found(folder)
    except (ValueError, WorkError):  # it may be in the middle of being written
        if not hold_for_this_call(folder):
            raise
        return _found(folder)
    if run is None and hold_for_this_call(folder) and not force:
        return _found(folder)
    return run


def _found(folder: Path) -> FinishedRun | None:
    if not (folder / "record.json").is_file():
        return None
    run = open_run(folder)
    sweep_temporaries(folder)
    if run.of_another:
        raise WorkError(f"{folder} holds the record of another run, {run.of_another}; {AGAIN}.")
    return run


def read_record(folder: Path) -> dict[str, Any]:
    """Read a finished run's `record.json`.

    Raises:
        ValueError: there is none, or its schema isn't this version's.
        WorkError: it is damaged.
    """
    return open_run(folder).record


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
    *,
    beside: Iterable[str] = (),
) -> None:
    """Write a run's folder; `record.json` goes first and comes last, so that a folder with one is whole.

    The record holds the name of the folder, if it is one that runs have, under `run`, the hash of every file beside it
    under `files`, and one of itself under `seal`.

    Args:
        folder: where it goes; what an earlier run left there is replaced.
        record: settings, inputs, versions.
        rows: the table.
        figures: JSON-able points behind the report's figures.
        arrays: name -> tensor, written as safetensors.
        others: name -> content of files that only runs of this kind have.
        beside: names of files that the run has written there itself, such as weights.

    Raises:
        WorkError: a number that JSON can't hold, such as NaN.
    """
    from safetensors.torch import save

    with held(folder):
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
        for name in beside:
            with (folder / name).open("rb") as file:
                hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
        name = folder.resolve().name
        of = {"run": name} if RUN_NAME.fullmatch(name) else {}
        told = {
            "schema": SCHEMA,
            **{key: value for key, value in record.items() if key != "run"},
            **of,
            "files": hashes,
        }
        write_atomic(folder / "record.json", sealed_json("record.json", told, indent=1))
