"""The command line: names of library functions, no logic.

colligate study EMBEDDER --scenes WORLD      every measurement, one record, one page
colligate probe|decompose|edit|remove|information EMBEDDER --scenes WORLD      one of them
colligate embed|render|check-model|check-data|report|reproduce|worlds
"""

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colligate.records import Row
    from colligate.study import Report

MEASUREMENTS = {
    "probe": ("probes", "Do linear read-outs name the values and the objects of unseen scenes?"),
    "decompose": ("decomposition", "How much do concept or object components explain, and do they find their scene?"),
    "edit": ("edits", "Does exchanging a component turn one scene's vector into the other's?"),
    "remove": ("removal", "What do probes still read once components are taken out?"),
    "information": ("information", "How many bits do vectors tell about which values go together?"),
}
"""Verb -> the battery that it takes, and its question."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code: 0 done, 1 the work failed, 2 the call was wrong."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _complain("Stopped. What was finished is kept; the same command goes on from there.")
        return 1
    except (ValueError, FileNotFoundError, ImportError) as error:
        _complain(str(error))
        return 2
    except BrokenPipeError:  # the reader of a pipe has gone; nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
        return 0
    except OSError as error:
        _complain(_of_disk(error))
        return 1


def _run(words: list[str]) -> int:
    verbs = _verbs()
    if not words or words[0] in ("-h", "--help"):
        _say(_help(verbs))
        return 0 if words else 2
    if words[0] == "--version":
        from colligate import __version__

        _say(__version__)
        return 0
    if words[0] not in verbs:
        raise ValueError(f"There is no verb {words[0]!r}; choose one of {', '.join(verbs)}.")
    return verbs[words[0]][0](words[1:])


def _of_disk(error: OSError) -> str:
    """An error of the system as a sentence that names the file and the remedy, where it isn't one already."""
    if error.errno is None or error.strerror is None:
        return str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk is full; free some space and run again: what was finished is kept."
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror[0].lower()}{error.strerror[1:]}; name another place, or put this one right."


Verb = tuple[Callable[[list[str]], int], str]


def _verbs() -> dict[str, Verb]:
    found: dict[str, Verb] = {
        "study": (_study, "Take every measurement of one embedder on one world and write a page.")
    }
    for verb, (battery, question) in MEASUREMENTS.items():
        found[verb] = (lambda words, v=verb, b=battery: _measure(v, b, words), question)
    return found | {
        "embed": (_embed, "Embed a world and write the vectors with their labels."),
        "render": (_render, "Draw a world's pictures into a folder with a labels table."),
        "check-model": (_check_model, "Try an embedder on a few items and say what was found."),
        "check-data": (_check_data, "Read a labels table and say what was understood."),
        "report": (_report, "Write the page of a finished run again."),
        "reproduce": (_reproduce, "Run a record again and compare every number."),
        "worlds": (_worlds, "List the built-in worlds."),
    }


def _help(verbs: dict[str, Verb]) -> str:
    lines = ["Does an embedding model know which values belong to the same object?", "", "colligate VERB ...", ""]
    lines += [f"  {verb:<13} {question}" for verb, (_, question) in verbs.items()]
    lines += ["", "colligate VERB --help lists the options of a verb.", "For a start:", ""]
    lines += ["  colligate study sbert:all-MiniLM-L6-v2 --scenes text8x8"]
    return "\n".join(lines)


def _parse(config: Any, verb: str, description: str, words: list[str]) -> Any:
    import io
    from contextlib import redirect_stderr

    import tyro

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(
                config, prog=f"colligate {verb}", description=description, args=words,
                config=(tyro.conf.PositionalRequiredArgs,),
            )  # fmt: skip
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_plainly(said.getvalue(), verb)) from None


def _plainly(boxed: str, verb: str) -> str:
    """What the parser complains of, as one sentence: without its box, the title on top and the help below."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip().strip("│").strip() for line in boxed.splitlines()[1:]]
    end = next((i for i, line in enumerate(lines) if line.strip("─╰╯") == ""), len(lines))
    words = re.sub(r"^Error parsing \w+Config: ", "", " ".join(filter(None, lines[:end])))
    return f"{words.removesuffix('(required)').rstrip('. ')}. See colligate {verb} --help."


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _complain(text: str) -> None:
    sys.stderr.write(f"colligate: {text}\n")


@contextmanager
def _progress() -> Generator["Report | None", None, None]:
    """Bars on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=max(total, 1))

        yield report


def _measure(verb: str, battery: str, words: list[str]) -> int:
    from colligate.study import StudyConfig, study

    as_json, words = _take_flag(words, "--json")
    config = _parse(StudyConfig, verb, MEASUREMENTS[verb][1] + " Add --json for rows as JSON.", words)
    with _progress() as report:
        result = study(config, only=(battery,), page=False, report=report)
    _show(result.rows, as_json=as_json)
    if not as_json:
        _say(f"\nRecord: {result.folder}")
    return 0


def _study(words: list[str]) -> int:
    from colligate.report.verdict import judge
    from colligate.study import StudyConfig, study

    as_json, words = _take_flag(words, "--json")
    config = _parse(StudyConfig, "study", "Take every measurement. Add --json for rows as JSON.", words)
    with _progress() as report:
        result = study(config, report=report)
    if as_json:
        _show(result.rows, as_json=True)
        return 0
    verdict = judge(result.rows, str(result.record["name"]))
    _say(verdict.sentence + "\n")
    _show([tile.row for tile in verdict.tiles if tile.row is not None], as_json=False)
    for note in result.record.get("notes", []):
        _say(f"Note: {note}")
    if result.found:
        _say("This run was finished before; --force takes it again.")
    _say(f"Record: {result.folder}\nPage:   {result.page}")
    return 0


def _take_flag(words: list[str], flag: str) -> tuple[bool, list[str]]:
    return flag in words, [word for word in words if word != flag]


def _show(rows: "Sequence[Row]", *, as_json: bool) -> None:
    if as_json:
        _say(json.dumps([asdict(row) for row in rows], indent=1))
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("measurement", overflow="fold")  # on a narrow terminal, the name is broken and no number is
    table.add_column("on", no_wrap=True)
    for heading in ("value", "95 %", "n", "chance", "bag", "random"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        interval = "" if row.low is None or row.high is None else f"{row.low:.3f}–{row.high:.3f}"
        name = row.id if row.family is None else f"{row.id} ({row.family})"
        levels = (_number(row.chance), _number(row.bag_of_concepts), _number(row.random_init))
        table.add_row(name, row.on, _number(row.value), interval, "" if row.n is None else str(row.n), *levels)
    console = _console()
    console.print(table)
    console.print(
        "95 %: interval over objects. Chance: random scores. Bag: an ideal bag of concepts, ties at random. "
        "Random: the same network with fresh weights.", style="dim",
    )  # fmt: skip


def _console() -> Any:
    """Where tables are printed: as wide as the terminal, and through a pipe as wide as the table."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=10_000, soft_wrap=True)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """What to embed, and where the vectors go."""

    embedder: str
    """An embedder's name."""
    out: Path = Path("vectors")
    """Folder for vectors.safetensors and labels.csv."""
    scenes: str = "text8x8"
    """A world or a labels table."""
    tower: str | None = None
    """Which tower; by default the first that reads what the world shows."""
    normalize: bool = False
    """Divide every vector by its length."""
    device: str = "auto"
    """Where the model runs."""


def _embed(words: list[str]) -> int:
    from safetensors.torch import save

    from colligate.records import write_atomic
    from colligate.scenes.worlds import labels_bytes
    from colligate.study import StudyConfig, open_source

    config = _parse(EmbedConfig, "embed", "Embed a world and write vectors.safetensors and labels.csv.", words)
    wanted = StudyConfig(
        embedder=config.embedder, scenes=config.scenes, tower=config.tower, normalize=config.normalize,
        device=config.device,
    )  # fmt: skip
    with _progress() as report:
        source = open_source(wanted, report)
    assert source.world is not None
    write_atomic(config.out / "labels.csv", labels_bytes(source.world))
    write_atomic(config.out / "vectors.safetensors", save({"vectors": source.embeddings.vectors.contiguous()}))
    _say(f"{len(source.embeddings)} vectors of {source.embeddings.dim} dimensions: {config.out}")
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
    from colligate.scenes.worlds import load_world, render

    config = _parse(RenderConfig, "render", "Draw a world's pictures and their labels table.", words)
    _say(str(render(load_world(config.scenes), config.out, limit=config.limit)))
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
    from rich.table import Table

    from colligate.embedders import check_model, load_model

    config = _parse(CheckModelConfig, "check-model", "Try an embedder on a few items.", words)
    model = load_model(config.embedder, device=config.device, offline=not config.online)
    findings = check_model(model)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("tower", "what", "found", "verdict", "note"):
        table.add_column(heading)
    for found in findings:
        table.add_row(found.tower, found.name, str(found.value), found.verdict, found.note)
    _console().print(table)
    return 1 if any(found.verdict == "bad" for found in findings) else 0


@dataclass(frozen=True, kw_only=True)
class CheckDataConfig:
    """Which labels table to read."""

    labels: Path
    """A labels table (.csv, .parquet)."""
    space: Path | None = None
    """JSON file that names every concept's values."""


def _check_data(words: list[str]) -> int:
    from colligate.scenes.sources import check_pictures, read_labels, read_space

    config = _parse(CheckDataConfig, "check-data", "Say what was understood of a labels table.", words)
    world = read_labels(config.labels, space=None if config.space is None else read_space(config.space))
    scenes = world.scenes
    counts = ", ".join(f"{int((scenes.counts == c).sum())} of {c} objects" for c in scenes.counts.unique().tolist())
    _say(f"{len(scenes)} scenes ({counts}), {len(scenes.ids.unique())} different ones")
    for name, concept_words in zip(scenes.space.names, scenes.space.words, strict=True):
        _say(f"concept {name}: {', '.join(concept_words)}")
    objects = len(scenes.objects[scenes.filled].unique())
    _say(f"objects that occur: {objects} of {scenes.space.num_objects}; shows: {', '.join(world.kinds)}")
    for note in world.notes:
        _say(f"Note: {note}")
    if "picture" in world.kinds:
        check_pictures(world)
        _say("All pictures open.")
    return 0


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Which run to show."""

    run: Path
    """Folder of a finished run."""
    out: Path | None = None
    """Where to write the page; default: in the run's folder."""


def _report(words: list[str]) -> int:
    from colligate.report.page import write_page

    config = _parse(ReportConfig, "report", "Write the page of a finished run again.", words)
    _say(str(write_page(config.run, config.out)))
    return 0


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
    """Which record to run again."""

    record: Path
    """A run's folder or its record.json."""
    tolerance: float = 1e-6
    """Largest difference of a number that passes."""


def _reproduce(words: list[str]) -> int:
    from colligate.study import reproduce

    config = _parse(ReproduceConfig, "reproduce", "Run a record again and compare every number.", words)
    folder = config.record.parent if config.record.name == "record.json" else config.record
    with _progress() as report:
        compared = reproduce(folder, tolerance=config.tolerance, report=report)
    for line in compared.differences[:20]:
        _say(line)
    _say(f"{compared.equal} of {compared.numbers} numbers agree to {config.tolerance:g}.")
    return 0 if compared.equal == compared.numbers else 1


def _worlds(words: list[str]) -> int:
    from colligate.scenes.worlds import WORLDS, load_world

    if words:
        raise ValueError("colligate worlds takes no arguments.")
    for name in WORLDS:
        world = load_world(name)
        sizes = " x ".join(
            f"{size} {concept}"
            for concept, size in zip(world.scenes.space.names, world.scenes.space.sizes, strict=True)
        )
        _say(f"{name:<11} {len(world.scenes):>8} scenes, {sizes}; shows {', '.join(world.kinds)}")
    return 0
