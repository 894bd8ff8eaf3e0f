"""The verbs: each parses its flags, calls one library function and prints what it gives."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path

from colligate.cli.crossmodal_verbs import foils_verb, recognize_verb, repair_verb
from colligate.cli.tables import console, print_differences, print_list, print_runs, show
from colligate.cli.terminal import Verb, say, take_flag, tell
from colligate.cli.train_verbs import paper_verb, structure_verb, sweep_verb, train_verb
from colligate.options import parse
from colligate.progress import progress
from colligate.records.text import formula_note, verbatim

MEASUREMENTS = {
    "probe": ("probes", "Do linear read-outs name the values and the objects of unseen scenes?"),
    "decompose": ("decomposition", "How much do concept or object components explain, and do they find their scene?"),
    "edit": ("edits", "Does exchanging a component turn one scene's vector into the other's?"),
    "remove": ("removal", "What do probes still read once components are taken out?"),
    "information": ("information", "How many bits do vectors tell about which values go together?"),
    "complexity": ("complexity", "How simple a rule is enough, and does it carry over to objects never seen?"),
}
"""Verb -> the battery that it takes, and its question."""


def _measure(verb: str, battery: str, words: list[str]) -> int:
    from colligate.verbs.config import ASKED, MeasureConfig

    as_json, words = take_flag(words, "--json")
    every, words = take_flag(words, "--all")
    about = f"{MEASUREMENTS[verb][1]} Add --json for rows as JSON, --all for every row of a long table."
    config = parse(ASKED.get(battery, MeasureConfig), verb, about, words)
    from colligate.report.kinds import leading, verdict_of
    from colligate.report.plain import main_rows
    from colligate.verbs.battery import study

    with progress(quiet=as_json) as report:
        result = study(config, only=(battery,), report=report)
    if as_json:
        show(result.rows, as_json=True)
        return 0
    said = verdict_of(result.record, result.rows)
    if said:
        tell(said)
        say("")
    summary = leading(result.record, result.rows)  # curves are for the page and the table
    shown = summary if every else main_rows(summary)
    show(shown, as_json=False, table=result.rows)
    if len(shown) < len(summary):
        say(f"{len(shown)} of {len(summary)} rows are shown; --all shows the others, and table.csv below has them.")
    say("")
    for note in result.record.get("notes", []):
        tell(f"Note: {note}")
    tell(f"Record: {result.folder}")
    if len(summary) < len(result.rows):
        tell(f"Curves: colligate report {result.folder}, or its table.csv")
    return 0


def _study(words: list[str]) -> int:
    from colligate.verbs.config import StudyConfig

    as_json, words = take_flag(words, "--json")
    config = parse(StudyConfig, "study", "Take every measurement. Add --json for rows as JSON.", words)
    from colligate.report.kinds import leading, verdict_of
    from colligate.report.page import write_page
    from colligate.verbs.battery import study

    with progress(quiet=as_json) as report:
        result = study(config, report=report)
    if as_json:
        show(result.rows, as_json=True)
        return 0
    tell(verdict_of(result.record, result.rows))
    say("")
    show(leading(result.record, result.rows), as_json=False, table=result.rows)
    for note in result.record.get("notes", []):
        tell(f"Note: {note}")
    if result.found:
        say("This run was finished before; --force takes it again.")
    tell(f"Record: {result.folder}")
    tell(f"Page:   {write_page(result.place, config.out)}")
    return 0


def formulas_in(name: str, table: bytes) -> tuple[str, ...]:
    """What to tell of a CSV file that is written here, where its cells look like formulas."""
    cells = (cell for row in csv.reader(io.StringIO(table.decode(), newline="")) for cell in row)
    return tuple(filter(None, [formula_note(name, cells)]))


def _embed(words: list[str]) -> int:
    from colligate.verbs.config import EmbedConfig

    config = parse(EmbedConfig, "embed", "Embed a world and write vectors.safetensors and labels.csv.", words)
    from safetensors.torch import save

    from colligate.records import sweep_temporaries, write_atomic
    from colligate.verbs.sources import labels_of, open_source

    with progress() as report:
        source = open_source(config, report)
    labels, left_out = labels_of(source)
    sweep_temporaries(config.out)
    write_atomic(config.out / "labels.csv", labels)
    write_atomic(config.out / "vectors.safetensors", save({"vectors": source.embeddings.vectors.contiguous()}))
    for note in (*source.notes, *left_out, *formulas_in("labels.csv", labels)):
        tell(f"Note: {note}")
    tell(f"{len(source.embeddings)} vectors of {source.embeddings.dim} dimensions: {config.out}")
    return 0


@dataclass(frozen=True, kw_only=True)
class RenderConfig:
    """What to draw, and where to."""

    out: Path = Path("pictures")
    """Folder for the pictures and labels.csv."""
    scenes: str = "clevr2d"
    """A world with pictures."""
    limit: int | None = None
    """Draw only the first scenes."""


def _render(words: list[str]) -> int:

    config = parse(RenderConfig, "render", "Draw a world's pictures and their labels table.", words)
    from colligate.scenes.worlds import load_world, render

    with progress() as report:
        labels = render(load_world(config.scenes), config.out, limit=config.limit, report=report)
    for note in formulas_in(labels.name, labels.read_bytes()):
        tell(f"Note: {note}")
    tell(str(labels))
    return 0


@dataclass(frozen=True, kw_only=True)
class CheckModelConfig:
    """Which embedder to try."""

    embedder: str
    """An embedder's name."""
    device: str = "auto"
    """Where the model runs."""
    online: bool = False
    """Let model libraries download what is not on this machine."""


def _check_model(words: list[str]) -> int:

    config = parse(CheckModelConfig, "check-model", "Try an embedder on a few items.", words)
    from rich.table import Table

    from colligate.embedders import load_model
    from colligate.embedders.inspection import check_model

    model = load_model(config.embedder, device=config.device, offline=not config.online)
    findings = check_model(model)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("tower", "what", "found", "verdict", "note"):
        table.add_column(heading)
    for found in findings:
        table.add_row(*map(verbatim, (found.tower, found.name, found.value, found.verdict, found.note)))
    console().print(table)
    return 1 if any(found.verdict == "bad" for found in findings) else 0


@dataclass(frozen=True, kw_only=True)
class CheckDataConfig:
    """Which labels table to read."""

    labels: Path
    """A labels table (.csv, .parquet), or a folder with labels.csv and pictures."""
    space: Path | None = None
    """JSON file that names every concept's values."""
    keep: tuple[str, ...] = ()
    """Rows of the table to keep, as column=cell, such as world_name=Desert; all by default."""


def _check_data(words: list[str]) -> int:

    config = parse(CheckDataConfig, "check-data", "Say what was understood of a labels table.", words)
    from colligate.scenes.findings import of_pictures, understand
    from colligate.scenes.sources import read_labels, read_space
    from colligate.scenes.tables import keep_of

    space = None if config.space is None else read_space(config.space)
    world = read_labels(config.labels, space=space, keep=keep_of(config.keep))
    for sentence in understand(world, open_pictures=False).sentences:
        tell(sentence)
    for sentence in of_pictures(world):
        tell(sentence)
    space = world.scenes.space
    if note := formula_note(config.labels.name, (*space.names, *(word for of in space.words for word in of))):
        tell(note)
    return 0


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Which run to show."""

    run: Path
    """Folder of a finished run."""
    out: Path | None = None
    """Where to write the page; default: in the run's folder."""


def _report(words: list[str]) -> int:

    config = parse(ReportConfig, "report", "Write the page of a finished run again.", words)
    from colligate.report.page import write_page

    tell(str(write_page(config.run, config.out)))
    return 0


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
    """Which record to run again."""

    record: Path
    """A run's folder or its record.json."""
    tolerance: float = 1e-6
    """Largest difference of a number that passes."""
    code: bool = False
    """Import modules that the record names (package.module:factory), which runs their code: only if you trust it."""
    online: bool = False
    """Let model libraries download what is not on this machine."""
    store: Path | None = None
    """Folder in which embedded vectors are kept; default: ~/.cache/colligate, or $COLLIGATE_STORE."""


def _reproduce(words: list[str]) -> int:

    config = parse(ReproduceConfig, "reproduce", "Run a record again and compare every number.", words)
    from colligate.records import open_run
    from colligate.verbs.reproduce import reproduce

    folder = config.record.parent if config.record.name == "record.json" else config.record
    with progress() as report:
        compared = reproduce(
            folder, tolerance=config.tolerance, report=report, code=config.code, online=config.online,
            store=config.store,
        )  # fmt: skip
    for doubt in open_run(folder).doubts:
        say(f"Note: {doubt}")
    for line in compared.differences[:20]:
        tell(line)
    if len(compared.differences) > 20:
        say(f"... and {len(compared.differences) - 20} more differences.")
    say(f"{compared.equal} of {compared.numbers} numbers agree to {config.tolerance:g}.")
    return 0 if compared.equal == compared.numbers else 1


@dataclass(frozen=True, kw_only=True)
class NothingConfig:
    """Nothing to choose."""


def _worlds(words: list[str]) -> int:
    from colligate.scenes.names import BUILT_IN, OWN, SIZED

    parse(NothingConfig, "worlds", "List the built-in worlds: what --scenes takes beside a table of your own.", words)
    print_list({**BUILT_IN, **SIZED, **OWN})
    return 0


def _embedders(words: list[str]) -> int:
    from colligate.embedders import FORMS, ORACLES

    parse(NothingConfig, "embedders", "List what EMBEDDER may be.", words)
    print_list(FORMS)
    say("\nOracles, with their formulas:\n")
    print_list({f"oracle:{name}": meaning for name, meaning in ORACLES.items()})
    return 0


@dataclass(frozen=True, kw_only=True)
class RunsConfig:
    """Where to look."""

    runs: Path = Path("runs")
    """Folder of run folders; `colligate runs DIR` is the same."""


def _runs(words: list[str]) -> int:

    as_json, words = take_flag(words, "--json")
    named = ["--runs", *words] if words and not words[0].startswith("-") else words
    config = parse(RunsConfig, "runs", "List runs and what they found, the newest last. Add --json for JSON.", named)
    from colligate.records import list_runs
    from colligate.report.kinds import verdict_of

    found = list_runs(config.runs, verdict_of)
    if as_json:
        say(json.dumps([run._asdict() for run in found], indent=1))
    elif found:
        print_runs(found)
    else:
        tell(f"{config.runs} holds no runs.")
    return 0


def _compare(words: list[str]) -> int:
    from dataclasses import asdict

    from colligate.verbs.config import CompareConfig

    as_json, words = take_flag(words, "--json")
    config = parse(CompareConfig, "compare", "Compare runs with the first. Add --json for rows as JSON.", words)
    from colligate.verbs.compare import compare

    compared = compare(config)
    if as_json:
        found = [{"first": one.first, "other": one.other, "sentence": one.sentence, "notes": one.notes,
                  "differences": [{"id": d.row.id, "on": d.row.on, "concept": d.row.concept, "family": d.row.family,
                                   "first": asdict(d.row), "other": asdict(d.other), "value": d.value, "low": d.low,
                                   "high": d.high, "how": d.how} for d in one.differences]}
                 for one in compared]  # fmt: skip
        say(json.dumps(found, indent=1))
        return 0
    for one in compared:
        tell(one.sentence)
        say("")
        tell(f"first: {one.first}    other: {one.other}")
        say("")
        print_differences(one.differences)
        for note in one.notes:
            tell(f"Note: {note}")
    return 0


def verbs() -> dict[str, Verb]:
    """Name of a verb -> what it does, and the question it answers."""
    return {
        "study": (_study, "Take every measurement of one embedder on one world and write a page."),
        **{
            verb: (lambda words, v=verb, b=battery: _measure(v, b, words), question)
            for verb, (battery, question) in MEASUREMENTS.items()
        },
        "train": (train_verb, "Train a dual encoder from scratch: does it bind objects it never saw?"),
        "sweep": (sweep_verb, "Train at many coverages: when does binding emerge?"),
        "recognize": (recognize_verb, "Do texts find what pictures show, object by object, and why not?"),
        "foils": (foils_verb, "Does a picture lie nearer to its caption than to a foil of it?"),
        "repair": (repair_verb, "Give a frozen two-tower model binding, and say what it cost."),
        "embed": (_embed, "Embed a world and write the vectors with their labels."),
        "render": (_render, "Draw a world's pictures into a folder with a labels table."),
        "check-model": (_check_model, "Try an embedder on a few items and say what was found."),
        "check-data": (_check_data, "Read a labels table and say what was understood."),
        "structure": (
            structure_verb,
            "Do models whose towers match follow a simple rule? Rules fitted to many of them.",
        ),
        "paper": (paper_verb, "Every question of the paper, small: an embedder, models trained here, one page."),
        "compare": (_compare, "Compare finished runs: which model binds better, and how sure is that?"),
        "report": (_report, "Write the page of a finished run again."),
        "reproduce": (_reproduce, "Run a record again and compare every number."),
        "runs": (_runs, "List finished and unfinished runs: what was measured, when, and what was found."),
        "worlds": (_worlds, "List the built-in worlds: what --scenes takes."),
        "embedders": (_embedders, "List what EMBEDDER may be, with the oracles whose answer is known."),
    }
