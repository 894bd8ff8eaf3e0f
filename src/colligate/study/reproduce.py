"""Run a record again and compare."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from colligate.engine import Report
from colligate.records import read_record, read_table
from colligate.study.battery import study
from colligate.study.config import StudyConfig


class Comparison(NamedTuple):
    """How a record compares with its repetition."""

    numbers: int
    equal: int
    differences: list[str]


def reproduce(folder: Path, *, tolerance: float = 1e-6, report: Report | None = None) -> Comparison:
    """Run a finished study again, elsewhere, and compare every number of its table.

    Raises:
        ValueError: the record's inputs can't be had, or are others than the record says.
    """
    record, before = read_record(folder), read_table(folder / "table.csv")
    known = {f.name: f for f in fields(StudyConfig)}
    paths = {name for name, f in known.items() if "Path" in str(f.type)}
    given: dict[str, Any] = {
        k: Path(v) if k in paths and v is not None else tuple(v) if isinstance(v, list) else v
        for k, v in record["config"].items()
        if k in known
    }
    only = None if record["kind"] == "study" else tuple(record["kind"].split("-"))
    with TemporaryDirectory() as elsewhere:
        given["runs"] = Path(elsewhere)
        config = StudyConfig(**given)
        again = study(config, only=only, page=False, report=report)
    for name in ("model", "world"):
        then, now = (_identity(r["inputs"][name]) for r in (record, again.record))
        if then != now:
            raise ValueError(f"The {name} is another than in {folder.name}: {then} then, {now} now.")
    values = {(r.id, r.on, r.family, r.coverage): r.value for r in again.rows}
    differences = list[str]()
    for row in before:
        value = values.get((row.id, row.on, row.family, row.coverage))
        if (row.value is None) != (value is None) or abs((row.value or 0) - (value or 0)) > tolerance:
            differences.append(f"{row.id} on {row.on}: {row.value} then, {value} now")
    return Comparison(len(before), len(before) - len(differences), differences)


def _identity(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {k: facts[k] for k in ("name", "weights", "sha256", "content_hash") if k in facts}
