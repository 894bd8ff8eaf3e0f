"""Study an embedder: embed a world, take every measurement, and leave a record and a page behind."""

import base64
import io
import os
import resource
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch

from colligate import __version__
from colligate.embedders import Model, NoControl, Tower, embed, load_model, random_init
from colligate.embedders.precomputed import read_vectors
from colligate.embeddings import Embeddings
from colligate.engine import fitting_threads
from colligate.geometry.editing import edit_rows, replay_rows
from colligate.geometry.measurements import (
    MOST_TOKEN_NUMBERS,
    attention_rows,
    decomposition_rows,
    information_rows,
    probe_rows,
    removal_rows,
)
from colligate.geometry.subject import Settings, Subject
from colligate.geometry.views import views
from colligate.probes import ProbeSettings
from colligate.records import (
    Row,
    content_key,
    environment,
    read_record,
    read_table,
    with_random_init,
    write_record,
)
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.sources import read_labels, read_space
from colligate.scenes.splits import ByScene, Given, PaperScenes, SplitRule
from colligate.scenes.worlds import WORLDS, Kind, World, load_world
from colligate.store import Store

VECTOR_FILES = (".safetensors", ".npy", ".parquet")

BATTERIES: Mapping[str, Callable[[Subject], list[Row]]] = {
    "probes": probe_rows,
    "decomposition": decomposition_rows,
    "edits": edit_rows,
    "removal": removal_rows,
    "information": information_rows,
}
"""Name of a stage -> what it measures."""

Report = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """What to study and how."""

    embedder: str
    """An embedder's name (sbert:..., hf:..., open_clip:..., oracle:..., package.module:factory) or a file of vectors
    (.safetensors, .npy, .parquet) that `labels` describes."""
    scenes: str = ""
    """A world (text8x8, text20x20, clevr, clevr2d, pug_spare) or a labels table of your own (.csv, .parquet)."""
    labels: Path | None = None
    """Labels of a file of vectors: one row a scene."""
    space: Path | None = None
    """JSON file that names every concept's values, where the table's own are not enough."""
    tower: Literal["text", "picture", "scene"] | None = None
    """Which tower to study; by default the first that reads what the world shows."""
    caption: str | None = None
    """Template of one object's words in captions, such as "a {color} {shape}"."""
    layer: int | None = None
    """Layer to read, 0 for the input embeddings, negative from the end; default: the model's own output."""
    pooling: str | None = None
    """How tokens become one vector; default: the model's own way."""
    normalize: bool = False
    """Divide every vector by its length. Raw vectors are the default, and the page says where that matters."""
    device: str = "auto"
    """Where the model runs."""
    dtype: str = "float32"
    """Precision of the model."""
    online: bool = False
    """Let model libraries download what is not on this machine."""
    protocol: Literal["strict", "paper"] = "strict"
    """strict: choose on validation, report on test. paper: as the authors' code does (slow)."""
    fit: float = 0.6
    """Share of scenes to fit on (strict)."""
    validation: float = 0.2
    """Share of scenes to choose on (strict)."""
    edits: Path | None = None
    """A list of edits to replay (paper)."""
    control: Path | None = None
    """Vectors of a random model for the same labels, as the random-init level of a file of vectors."""
    seed: int = 0
    """Of splits, choices and intervals."""
    edit_budget: int = 10_000
    """Most edits of one kind that are scored; above it, a seeded choice."""
    depth: bool = True
    """Also measure the model's layers, where it shows them."""
    out: Path | None = None
    """Where to write the page; default: in the run's folder."""
    runs: Path = Path("runs")
    """Folder of run folders."""
    store: Path | None = None
    """Folder in which embedded vectors are kept; default: ~/.cache/colligate, or $COLLIGATE_STORE."""
    force: bool = False
    """Measure again even if the same run is finished."""

    def __post_init__(self) -> None:
        if self.edits is not None and self.protocol != "paper":
            raise ValueError("An edit list is replayed under protocol paper; add --protocol paper.")


class Source(NamedTuple):
    """Vectors of scenes, a model behind them or none, and the world they show or none."""

    embeddings: Embeddings
    name: str
    world: World | None
    tower: Tower | None
    model: Model | None
    notes: tuple[str, ...]
    facts: Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study.

    Attributes:
        folder: its run folder.
        rows: its table.
        record: what was done.
        page: the HTML page, if one was written.
        found: whether the run was there already.
    """

    folder: Path
    rows: list[Row]
    record: Mapping[str, Any]
    page: Path | None
    found: bool = False


@dataclass
class _Clock:
    """Seconds of every stage, and a word to the caller when one starts."""

    report: Report | None
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None, None, None]:
        if self.report is not None:
            self.report(name, 0, 1)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)
        if self.report is not None:
            self.report(name, 1, 1)


def study(
    config: StudyConfig, *, only: tuple[str, ...] | None = None, page: bool = True, report: Report | None = None
) -> Study:
    """Take every measurement of one embedder on one world.

    Args:
        config: what and how.
        only: names of `BATTERIES` to take; all by default.
        page: whether to write the HTML page.
        report: told about the progress of every stage.

    Raises:
        ValueError: the call can't be carried out as written; the message says what to change.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     config = StudyConfig(embedder="oracle:no-binding", scenes="clevr", runs=Path(folder))
        ...     rows = study(config, only=("probes",), page=False).rows
        >>> {row.id: round(row.value, 1) for row in rows}["probe.concept"]
        1.0
    """
    unknown = [name for name in only or () if name not in BATTERIES]
    if unknown or only == ():
        raise ValueError(
            f"{unknown[0] if unknown else 'Nothing'!r} can't be taken; choose among {', '.join(BATTERIES)}."
        )
    if page and config.out is not None and config.out.is_dir():
        raise ValueError(f"{config.out} is a folder; name the page's file, such as {config.out / 'report.html'}.")
    clock = _Clock(report)
    with clock.stage("embedding"):
        source = open_source(config, report)
    kind = "study" if only is None else "-".join(only)
    facts = {
        "kind": kind, "version": __version__, "config": _settings(config), "inputs": source.facts,
        "scenes": source.embeddings.scenes.content_hash, "shown": _shown(source), "files": _files(config),
    }  # fmt: skip
    folder = config.runs / f"{kind}-{content_key(facts)}"
    if (folder / "record.json").is_file() and not config.force:
        record = read_record(folder)
        return Study(folder, read_table(folder / "table.csv"), record, _write_page(folder, config, page), found=True)
    subject = Subject.of(source.embeddings, _rule(config, source), _measuring(config))
    chosen = tuple(BATTERIES) if only is None else only
    with fitting_threads() as threads:
        rows = _measure(subject, chosen, clock)
        rows = _with_control(rows, chosen, config, source, clock)
        if only is None:
            rows += _normalized_rows(subject, clock)
            rows += _depth_rows(subject, config, source, clock)
        if config.edits is not None:
            from colligate.geometry.replay import read_edit_list

            rows += replay_rows(subject, read_edit_list(config.edits, subject.scenes))
        figures: dict[str, object] = {}
        if only is None:
            with clock.stage("figures"):
                figures = views(subject) | _pictures(source, subject)
    record = _record(config, source, subject, kind, clock) | {"threads": threads}
    write_record(folder, record, rows, figures, _arrays(subject, chosen))
    return Study(folder, rows, record, _write_page(folder, config, page and only is None))


def _write_page(folder: Path, config: StudyConfig, page: bool) -> Path | None:
    if not page:
        return None
    from colligate.report.page import write_page

    return write_page(folder, config.out)


def _settings(config: StudyConfig) -> dict[str, object]:
    """The settings that decide the numbers."""
    kept = asdict(config)
    for name in ("out", "runs", "store", "force", "online", "device"):
        kept.pop(name)
    return {name: str(value) if isinstance(value, Path) else value for name, value in kept.items()}


def _measuring(config: StudyConfig) -> Settings:
    return Settings(
        probes=ProbeSettings(protocol=config.protocol, seed=config.seed), edit_budget=config.edit_budget,
        seed=config.seed,
    )  # fmt: skip


def _rule(config: StudyConfig, source: Source) -> SplitRule:
    parts = None if source.world is None else source.world.parts
    if parts is not None:
        several = (source.embeddings.scenes.counts > 1).tolist()
        padded = [*parts, *["fit"] * (len(several) - len(parts))]
        return Given(tuple(part for part, keep in zip(padded, several, strict=True) if keep))
    if config.protocol == "paper":
        return PaperScenes()
    return ByScene(fit=config.fit, validation=config.validation)


def open_source(config: StudyConfig, report: Report | None = None) -> Source:
    """Read or make the vectors that a config asks for.

    Raises:
        ValueError: the embedder, world, labels or tower don't fit together.
    """
    path = Path(config.embedder)
    if path.suffix in VECTOR_FILES:
        return _open_file(config, path)
    if config.labels is not None or config.control is not None:
        raise ValueError("--labels and --control go with a file of vectors; a model takes its labels from --scenes.")
    world = open_world(config)
    model = load_model(
        config.embedder, device=config.device, dtype=config.dtype, layer=config.layer, pooling=config.pooling,
        normalize=config.normalize, offline=not config.online,
    )  # fmt: skip
    kind, notes = _choose_tower(config, model, world)
    tower = model.towers[kind]
    embeddings = embed(tower, world, store=_store(config), progress=_progress(report))
    return Source(
        embeddings, config.embedder, world, tower, model, (*model.notes, *world.notes, *notes),
        {"tower": getattr(tower, "fingerprint", None) or _vectors_hash(embeddings)},
    )  # fmt: skip


def open_subject(config: StudyConfig) -> Subject:
    """What a study of this config measures: its vectors, split and settings.

    Raises:
        ValueError: the embedder, world, labels or tower don't fit together.

    Example:
        >>> subject = open_subject(StudyConfig(embedder="oracle:no-binding", scenes="clevr"))
        >>> len(subject.embeddings), len(subject.split.test)
        (576, 118)
    """
    source = open_source(config)
    return Subject.of(source.embeddings, _rule(config, source), _measuring(config))


def _vectors_hash(embeddings: Embeddings) -> str:
    import hashlib

    vectors = embeddings.vectors.contiguous()
    digest = hashlib.sha256(f"{vectors.dtype} {tuple(vectors.shape)} ".encode())
    digest.update(vectors.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _shown(source: Source) -> dict[str, object]:
    """What the tower and the reader are shown of the scenes, and a given split: facts that decide a run's rows."""
    world = source.world
    if world is None:
        return {}
    kinds = {"text", *([] if source.tower is None else [source.tower.kind])} & set(world.kinds)
    items = {kind: world.describe(cast("Kind", kind)) for kind in sorted(kinds)}
    return {"items": items, "parts": world.parts, "notes": world.notes}


def _files(config: StudyConfig) -> dict[str, str]:
    """sha256 of the files that a config names beside the embedder and its labels.

    Raises:
        ValueError: one of them can't be read.
    """
    import hashlib

    found = dict[str, str]()
    for name, path in (("edits", config.edits), ("control", config.control)):
        if path is None:
            continue
        try:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ValueError(f"{path} can't be read ({error.strerror}); name a file that is there.") from None
    return found


def _open_file(config: StudyConfig, path: Path) -> Source:
    labels = config.labels or (Path(config.scenes) if config.scenes else None)
    if labels is None:
        raise ValueError(f"{path.name} holds vectors and needs a labels table: add --labels scenes.csv.")
    space = None if config.space is None else read_space(config.space)
    world = read_labels(labels, space=space)
    embeddings = read_vectors(path, world, space=space)
    if config.normalize:
        embeddings = embeddings.normalized()
    return Source(
        embeddings, path.name, world, None, None, world.notes, {"vectors": _vectors_hash(embeddings)}
    )  # fmt: skip


def open_world(config: StudyConfig) -> World:
    """The world that a config names: a built-in one or the user's table, with the user's caption template."""
    if not config.scenes:
        raise ValueError(f"Say which scenes to embed: --scenes {', '.join(WORLDS)} or a labels table.")
    if Path(config.scenes).suffix in (".csv", ".parquet"):
        world = read_labels(Path(config.scenes), space=None if config.space is None else read_space(config.space))
    else:
        world = load_world(config.scenes)
    return world if config.caption is None else replace(world, captions=CaptionTemplate(config.caption))


def _choose_tower(config: StudyConfig, model: Model, world: World) -> tuple[str, tuple[str, ...]]:
    able = [kind for kind in ("text", "picture", "scene") if kind in model.towers and kind in world.kinds]
    if config.tower is not None:
        if config.tower not in able:
            raise ValueError(
                f"{model.name} has {', '.join(model.towers)} towers and world {world.name!r} shows "
                f"{', '.join(world.kinds)}; --tower {config.tower} is not in both."
            )
        return config.tower, ()
    if not able:
        raise ValueError(
            f"{model.name} reads {', '.join(model.towers)} and world {world.name!r} shows {', '.join(world.kinds)}; "
            "choose a world that shows what the model reads."
        )
    others = [kind for kind in able[1:] if kind != "scene"]
    notes = tuple(f"This is the {able[0]} tower; study the other with --tower {kind}." for kind in others)
    return able[0], notes


def _store(config: StudyConfig) -> Store:
    return Store(config.store or Path(os.environ.get("COLLIGATE_STORE", "~/.cache/colligate")).expanduser())


def _progress(report: Report | None) -> Callable[[int, int], None] | None:
    return None if report is None else lambda done, total: report("embedding", done, total)


def _measure(subject: Subject, chosen: tuple[str, ...], clock: _Clock, prefix: str = "") -> list[Row]:
    rows = list[Row]()
    for name in chosen:
        with clock.stage(prefix + name):
            rows += BATTERIES[name](subject)
    return rows


def _with_control(
    rows: list[Row], chosen: tuple[str, ...], config: StudyConfig, source: Source, clock: _Clock
) -> list[Row]:
    """The same measurements on the same architecture with fresh weights, beside each number."""
    if source.tower is None:
        if config.control is None:
            return with_random_init(rows, [], "no random-init level: vectors without a model (add --control)")
        control = read_vectors(config.control, source.world or config.labels or Path(config.scenes))
        if config.normalize:
            control = control.normalized()
    else:
        fresh = random_init(source.tower, seed=config.seed)
        if isinstance(fresh, NoControl):
            return with_random_init(rows, [], f"no random-init level: {fresh.reason}")
        assert source.world is not None
        with clock.stage("control: embedding"):
            tower = fresh.towers[source.tower.kind]
            control = embed(tower, source.world, store=_store(config))
    subject = Subject.of(control, _rule(config, source), _measuring(config))
    return with_random_init(rows, _measure(subject, chosen, clock, "control: "))


NORMALIZED = ("object.least_squares", "object.avg", "object.avg+pos", "concept.least_squares")
"""Decompositions that are measured on normalised vectors too."""


def _normalized_rows(subject: Subject, clock: _Clock) -> list[Row]:
    """The leading measurements on vectors of length one, under ids that begin with `normalized.`."""
    lengths = subject.embeddings.vectors.norm(dim=1)
    if bool(((lengths - 1).abs() < 1e-4).all()):
        return [subject.row("normalized.probe.object", "test", reason="the vectors have length one as they are")]
    if not bool(lengths.all()):
        return [subject.row("normalized.probe.object", "test", reason="some vectors are zero and have no direction")]
    with clock.stage("normalised"):
        unit = replace(
            subject, embeddings=subject.embeddings.normalized(),
            singles=None if subject.singles is None else subject.singles.normalized(),
        )  # fmt: skip
        rows = [
            *probe_rows(unit), *decomposition_rows(unit, NORMALIZED),
            *edit_rows(unit, ways=("avg", "avg+pos"), brief=True),
            *information_rows(unit, quadratic=False),
        ]  # fmt: skip
    return [replace(row, id=f"normalized.{row.id}") for row in rows]


def _depth_rows(subject: Subject, config: StudyConfig, source: Source, clock: _Clock) -> list[Row]:
    """Recognition and binding information at every layer and token read-out that the model shows.

    One strength of the penalty instead of a choice among several: the curve is over depth, and it is tens of read-outs.
    """
    read = getattr(source.tower, "embed_depth", None)
    if not config.depth or read is None or source.world is None or source.tower is None:
        return []
    rows = list[Row]()
    with clock.stage("depth"):
        several = (source.embeddings.scenes.counts > 1).nonzero()[:, 0]
        layers = read(source.world.items(cast("Kind", source.tower.kind), several))
        quick = replace(subject.settings, probes=replace(subject.settings.probes, strengths=(1e-6,)))
        grid = {"shrinkages": (1e-6,), "penalties": (1e-3,)}
        for name, vectors in layers.items():
            at = Subject(Embeddings(vectors, subject.scenes), subject.split, None, quick)
            rows += [
                replace(row, family=name)
                for row in probe_rows(at)
                if row.id in ("probe.concept", "probe.object", "probe.object.swap")
            ]
            rows += information_rows(at, name, quadratic=False, grid=grid)
        if layers and hasattr(source.tower, "embed_tokens"):
            rows += _token_rows(subject, source.tower, source.world.items(cast("Kind", source.tower.kind), several))
    return rows


def _token_rows(subject: Subject, tower: Tower, items: Any) -> list[Row]:
    """Binding information in the tokens themselves, where the model shows them and they fit in memory."""
    tokens, _ = cast("Any", tower).embed_tokens(items[:64])
    numbers = tokens.shape[1] * tokens.shape[2] * len(items)
    if numbers > MOST_TOKEN_NUMBERS:
        reason = f"the tokens of all scenes would be {numbers:,} numbers (at most {MOST_TOKEN_NUMBERS:,} are read)"
        return [subject.row(f"information.attention.{unit}", "test", reason=reason) for unit in ("bits", "ratio")]
    return attention_rows(subject, *cast("Any", tower).embed_tokens(items))


def _pictures(source: Source, subject: Subject) -> dict[str, object]:
    """Small pictures for the points of the page, where the tower reads pictures."""
    if source.tower is None or source.tower.kind != "picture" or source.world is None:
        return {}
    several = (source.embeddings.scenes.counts > 1).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(subject.settings.seed)
    shown = torch.randperm(len(several), generator=generator)[:300].sort().values
    found = dict[str, str]()
    for row, picture in zip(shown.tolist(), source.world.images(several[shown]), strict=True):
        small, buffer = picture.copy(), io.BytesIO()
        small.thumbnail((96, 96))
        small.save(buffer, format="PNG")
        captions = subject.embeddings.captions
        label = subject.scenes.describe(row) if captions is None else captions[row]
        found[str(label)] = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return {"pictures": found}


def _arrays(subject: Subject, chosen: tuple[str, ...]) -> dict[str, torch.Tensor]:
    arrays = {
        "split.fit": subject.split.fit, "split.validation": subject.split.validation, "split.test": subject.split.test
    }  # fmt: skip
    if "probes" in chosen:
        probes = subject.probes
        outcomes = probes.recognise(subject.embeddings.vectors[subject.split.test], subject.scenes[subject.split.test])
        arrays["outcomes.concepts"] = outcomes.concepts
        for name, weight in zip(subject.scenes.space.names, probes.concepts, strict=True):
            arrays[f"probe.{name}"] = weight
        if probes.objects is not None and outcomes.objects is not None:
            arrays["probe.object"], arrays["outcomes.objects"] = probes.objects, outcomes.objects
    return arrays


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
    from tempfile import TemporaryDirectory

    record, before = read_record(folder), read_table(folder / "table.csv")
    known = {f.name: f for f in fields(StudyConfig)}
    paths = {name for name, f in known.items() if "Path" in str(f.type)}
    given: dict[str, Any] = {
        k: Path(v) if k in paths and v is not None else v for k, v in record["config"].items() if k in known
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
    values = {(r.id, r.on, r.family): r.value for r in again.rows}
    differences = list[str]()
    for row in before:
        value = values.get((row.id, row.on, row.family))
        if (row.value is None) != (value is None) or abs((row.value or 0) - (value or 0)) > tolerance:
            differences.append(f"{row.id} on {row.on}: {row.value} then, {value} now")
    return Comparison(len(before), len(before) - len(differences), differences)


def _identity(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {k: facts[k] for k in ("name", "weights", "sha256", "content_hash") if k in facts}


CALLS = {
    "probes": "from colligate.geometry.measurements import probe_rows\n\nrows = probe_rows(subject)",
    "layout": "from colligate.geometry.measurements import decomposition_rows\n\nrows = decomposition_rows(subject)",
    "edits": "from colligate.geometry.editing import edit_rows\n\nrows = edit_rows(subject)",
    "removal": "from colligate.geometry.measurements import removal_rows\n\nrows = removal_rows(subject)",
    "information": "from colligate.geometry.measurements import information_rows\n\nrows = information_rows(subject)",
    "normalized": "from dataclasses import replace\n\nfrom colligate.geometry.measurements import probe_rows\n\n"
    "rows = probe_rows(replace(subject, embeddings=subject.embeddings.normalized()))",
}
"""Section of the page -> Python that gives its numbers of a `subject`."""


def _record(config: StudyConfig, source: Source, subject: Subject, kind: str, clock: _Clock) -> dict[str, object]:
    scenes = source.embeddings.scenes
    given = [f.name for f in fields(config) if f.default is MISSING or getattr(config, f.name) != f.default]
    provenance = dict(source.embeddings.provenance)
    tower = provenance.pop("tower", None)
    model = {"name": source.name, **(dict(tower) if isinstance(tower, Mapping) else {}), **provenance}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "kind": kind,
        "name": source.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": {**_settings(config), "runs": str(config.runs)},
        "given": given,
        "inputs": {
            "model": model,
            "world": {
                "name": source.world.name if source.world is not None else config.scenes,
                "concepts": dict(zip(scenes.space.names, map(list, scenes.space.words), strict=True)),
                "scenes": len(subject.embeddings), "singles": 0 if subject.singles is None else len(subject.singles),
                "slots": scenes.slots, "objects": len(subject.scenes.objects[subject.scenes.filled].unique()),
                "content_hash": scenes.content_hash,
            },
            "split": {
                "name": subject.split.name, "fit": len(subject.split.fit),
                "validation": len(subject.split.validation), "test": len(subject.split.test),
            },
            "files": _files(config),
        },
        **environment(),
        "seconds": clock.seconds,
        "peak_memory_bytes": memory,
        "notes": [*source.notes, *subject.split.notes],
        "command": _command(config),
        "python": _python(config),
        "calls": {key: _subject_code(config, code) for key, code in CALLS.items()},
    }  # fmt: skip


def _subject_code(config: StudyConfig, code: str) -> str:
    """Python that opens a study's subject and measures it."""
    imports, _, rest = code.rpartition("\n\n")
    lines = sorted([*imports.split("\n\n"), "from colligate.study import StudyConfig, open_subject"])
    path = ["from pathlib import Path"] if "Path(" in _python_config(config) else []
    standard = sorted([line for line in lines if "colligate" not in line] + path)
    own = [line for line in lines if "colligate" in line]
    head = "\n\n".join("\n".join(group) for group in (standard, own) if group)
    return f"{head}\n\nsubject = open_subject({_python_config(config)})\n{rest}"


def _python_config(config: StudyConfig) -> str:
    changed = {f.name: getattr(config, f.name) for f in fields(config) if f.default is MISSING or
               getattr(config, f.name) != f.default}  # fmt: skip
    shown = {k: str(v) if isinstance(v, Path) else v for k, v in changed.items() if k not in ("out", "runs", "force")}
    paths = {f.name for f in fields(config) if "Path" in str(f.type)}
    arguments = (f"{k}=Path({v!r})" if k in paths else f"{k}={v!r}" for k, v in shown.items())
    return f"StudyConfig({', '.join(arguments)})"


def _python(config: StudyConfig) -> str:
    path = "from pathlib import Path\n\n" if "Path(" in _python_config(config) else ""
    return f"{path}from colligate.study import StudyConfig, study\n\nresult = study({_python_config(config)})"


def _command(config: StudyConfig) -> str:
    import shlex

    words = ["colligate", "study", config.embedder]
    for f in fields(config):
        value = getattr(config, f.name)
        if f.name in ("embedder", "force", "out", "runs") or value == f.default:
            continue
        flag = f.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)
