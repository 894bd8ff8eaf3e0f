"""Run records: rows of results, and the folder that a finished run leaves behind."""

import csv
import hashlib
import io
import json
import os
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, cast

SCHEMA = 1
"""Number of the record layout; a record with another number is refused."""


class WorkError(RuntimeError):
    """The work failed, though the call was right: a model gave no usable vectors, a file of ours is damaged."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured number with what is needed to read it.

    Attributes:
        id: dotted name, listed in docs/metrics.md.
        on: which rows were scored: all, fit or test.
        protocol: strict or paper.
        concept: the concept measured, where it is one.
        objects: how many objects could be resampled for the interval.
        coverage: fit objects / all objects, where objects were held out.
        family: the read-out, layer or strength, where there are several.
        seeds: number of seeds behind the value.
        value: the number; None when it can't be given, and `reason` says why.
        low: lower end of the 95 % interval over objects.
        high: upper end.
        n: number of scenes, edits or pairs scored.
        chance: expected value for random scores.
        bag_of_concepts: expected value for an ideal bag-of-concepts model with ties broken at random.
        bag_of_concepts_strict: the same with a tie counted as a miss.
        random_init: the same measurement on the same architecture with fresh weights.
        reason: why a value, interval or level is missing.
    """

    id: str
    on: str = "all"
    protocol: str = "strict"
    concept: str | None = None
    objects: int | None = None
    coverage: float | None = None
    family: str | None = None
    seeds: int | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    chance: float | None = None
    bag_of_concepts: float | None = None
    bag_of_concepts_strict: float | None = None
    random_init: float | None = None
    reason: str | None = None


COLUMNS = tuple(field.name for field in fields(Row))
_FRACTIONS = {"coverage", "value", "low", "high", "chance", "bag_of_concepts", "bag_of_concepts_strict", "random_init"}
_COUNTS = {"objects", "seeds", "n"}
NUMBERS = frozenset(_FRACTIONS | _COUNTS)
"""Columns that hold numbers."""


def table_bytes(rows: Iterable[Row]) -> bytes:
    """The rows as CSV, numbers in full precision, absent ones empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        cells = asdict(row)
        writer.writerow(
            [
                "" if cells[name] is None else repr(cells[name]) if isinstance(cells[name], float) else cells[name]
                for name in COLUMNS
            ]
        )
    return text.getvalue().encode()


def read_table(path: Path) -> list[Row]:
    """Read a `table.csv` back.

    Raises:
        WorkError: it is missing or damaged, or its columns aren't those of this version.
    """
    again = "run it again with --force"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, restval=None)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise WorkError(f"{path} has other columns than a table of this version; {again}.")
            return [_row(cells, f"line {reader.line_num} of {path}", again) for cells in reader]
    except FileNotFoundError:
        raise WorkError(f"{path} is missing, though a finished run has one; {again}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise WorkError(f"{path} is damaged ({error}); {again}.") from None


def _row(cells: Mapping[str | None, Any], where: str, again: str) -> Row:
    if None in cells or None in cells.values():
        raise WorkError(f"{where[0].upper()}{where[1:]} has too many or too few cells; {again}.")
    try:
        return Row(**{str(name): _parse(str(name), cell) for name, cell in cells.items()})
    except ValueError as error:
        raise WorkError(f"{where[0].upper()}{where[1:]} holds a cell that is no number ({error}); {again}.") from None


def _parse(name: str, cell: str) -> Any:
    if cell == "":
        return None
    return float(cell) if name in _FRACTIONS else int(cell) if name in _COUNTS else cell


def with_random_init(rows: Iterable[Row], control: Iterable[Row], reason: str | None = None) -> list[Row]:
    """The rows with the control's value of the same measurement beside each.

    Args:
        rows: what was measured.
        control: the same of the control.
        reason: why there is no level, said in every row that gets none.

    Example:
        >>> rows = with_random_init([Row(id="probe.object", value=1.0)], [], "no random-init level: no model")
        >>> rows[0].random_init, rows[0].reason
        (None, 'no random-init level: no model')
    """
    key = ("id", "on", "protocol", "concept", "family")
    beside = {tuple(getattr(row, k) for k in key): row for row in control}
    found = list[Row]()
    for row in rows:
        match = beside.get(tuple(getattr(row, k) for k in key))
        level, why = (None, reason) if match is None else (match.value, None)
        if match is not None and match.value is None and row.value is not None:
            why = f"no random-init level: {match.reason or 'the control has no value'}"
        said = "; ".join(one for one in (row.reason, why) if one)
        found.append(replace(row, random_init=level, reason=said or None))
    return found


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that it is either all there or not there.

    Raises:
        OSError: the disk is full or the folder can't be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # temporary files are private; results are as readable as the user's others
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def content_key(facts: Mapping[str, object]) -> str:
    """Ten hex digits that name a run by its settings and inputs."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:10]


RUN_FIELDS = ("out", "runs", "store", "force", "online", "device")
"""Fields of a config that decide where and how work is done, and no number."""


def settings(config: Any) -> dict[str, object]:
    """The fields of a config dataclass that decide the numbers, ready for JSON."""
    kept = {name: value for name, value in asdict(config).items() if name not in RUN_FIELDS}
    return {name: _plain(value) for name, value in kept.items()}


def _plain(value: object) -> object:
    """What JSON would give back."""
    if isinstance(value, Path):
        return str(value)
    return [_plain(one) for one in cast("Sequence[object]", value)] if isinstance(value, list | tuple) else value


def given(config: Any) -> list[str]:
    """Names of the fields that differ from their defaults, or have none."""
    found = list[str]()
    for field in fields(config):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is MISSING or getattr(config, field.name) != default:
            found.append(field.name)
    return found


def command(verb: str, config: Any) -> str:
    """The command line that has this config; fields without a default are positional.

    Example:
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     embedder: str
        ...     depth: bool = True
        >>> command("study", Config("oracle:no-binding", depth=False))
        'colligate study oracle:no-binding --no-depth'
    """
    words, options = ["colligate", verb], list[str]()
    for field in fields(config):
        value, flag = getattr(config, field.name), field.name.replace("_", "-")
        if field.default is MISSING and field.default_factory is MISSING:
            words.append(str(value))
        elif field.name not in given(config) or field.name in ("force", "out", "runs"):
            continue
        elif isinstance(value, bool):
            options.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list | tuple):
            options += [f"--{flag}", *(str(one) for one in cast("Sequence[object]", value))]
        else:
            options += [f"--{flag}", str(value)]
    return shlex.join([*words, *options])


def construction(config: Any) -> str:
    """Python that makes this config.

    Example:
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     embedder: str
        >>> construction(Config("oracle:no-binding"))
        "Config(embedder='oracle:no-binding')"
    """
    shown = ((name, getattr(config, name)) for name in given(config) if name not in ("out", "runs", "force"))
    arguments = (f"{name}=Path({str(value)!r})" if isinstance(value, Path) else f"{name}={value!r}"
                 for name, value in shown)  # fmt: skip
    return f"{type(config).__name__}({', '.join(arguments)})"


def python(config: Any, imports: Sequence[str], code: str) -> str:
    """A snippet: imports of this package, then `code` with `{config}` in it.

    Args:
        config: a config dataclass.
        imports: lines such as "from colligate.study import StudyConfig, study".
        code: what is done; `{config}` stands for the config's construction.
    """
    made = construction(config)
    lines = [*imports, *(["from pathlib import Path"] if "Path(" in made else [])]
    groups = (sorted(line for line in lines if ("colligate" in line) is own) for own in (False, True))
    head = "\n\n".join("\n".join(group) for group in groups if group)
    return head + "\n\n" + code.replace("{config}", made)


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
    here = Path(__file__).resolve().parent
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


def read_record(folder: Path) -> dict[str, Any]:
    """Read a finished run's `record.json`.

    Raises:
        ValueError: there is none, or its schema isn't this version's.
        WorkError: it is damaged.
    """
    path = folder / "record.json"
    if not path.is_file():
        raise ValueError(f"{folder} holds no record.json; it isn't a finished run.")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise WorkError(f"{path} is no JSON ({error}); run it again with --force.") from None
    if not isinstance(record, dict):
        raise WorkError(f"{path} holds no record but a {type(record).__name__}; run it again with --force.")
    if record.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {record.get('schema')!r}; this version reads {SCHEMA}. Run it again.")
    return record


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
) -> None:
    """Write a run's folder; `record.json` goes first and comes last, so that a folder with one is whole.

    Args:
        folder: where it goes; what an earlier run left there is replaced.
        record: settings, inputs, versions.
        rows: the table.
        figures: JSON-able points behind the report's figures.
        arrays: name -> tensor, written as safetensors.

    Raises:
        WorkError: a number that JSON can't hold, such as NaN.
    """
    from safetensors.torch import save

    unfinish(folder)
    write_atomic(folder / "table.csv", table_bytes(rows))
    write_atomic(folder / "figures.json", _json("figures.json", figures))
    write_atomic(folder / "arrays.safetensors", save({k: v.contiguous() for k, v in arrays.items()}))
    write_atomic(folder / "record.json", _json("record.json", {"schema": SCHEMA, **record}, indent=1))


def _json(name: str, content: object, indent: int | None = None) -> bytes:
    try:
        return json.dumps(content, indent=indent, allow_nan=False).encode()
    except ValueError as error:
        raise WorkError(f"A number of {name} is not finite ({error}), so the run can't be kept.") from None
