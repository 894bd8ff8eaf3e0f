"""The page: one self-contained HTML file that works offline and asks the network for nothing."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from colligate.records import COLUMNS, NUMBERS, Row, open_run, sweep_temporaries, write_atomic
from colligate.records.text import inert_json
from colligate.report.figures import BLUE, GREY, LEVELS, PURPLE, VERMILLION, Figure, tile_axis
from colligate.report.kinds import KINDS, STUDY, asked_of
from colligate.report.questions import Section, Study
from colligate.report.tables import decimals
from colligate.report.verdict import Measured, Tile, Verdict, fraction, percent
from colligate.report.verdict.claims import spans

GLOSSARY = (
    ("scene", "an ordered row of slots, each holding an object"),
    ("object", "one value of each concept: a red cube"),
    ("concept, value", "what can vary (colour), and what it can be (red)"),
    ("probe", "a linear read-out of values or objects, fitted on other scenes than it is scored on"),
    ("recognised", "every value (object) in the scene scores strictly above every one that isn't"),
    ("bag of concepts", "an ideal model that knows which values occur and nothing of which belong together"),
    ("swap", "the scene after two objects exchange one value: same values, other objects"),
    ("twin", "the scene with its objects in the other order"),
    ("held out", "scenes that took no part in fitting or choosing"),
    ("R²", "share of the variance between vectors that a description explains"),
    (
        "avg, avg+pos, single",
        "an object's vector as the mean of the scenes that hold it; the same slot by slot; from "
        "scenes that hold nothing else",
    ),
    ("random weights", "the same architecture before any training"),
    ("interval", "95 %, over other values and the objects made of them, with everything fitted held as it is"),
    ("bit of binding", "what it takes to tell a scene from its swap, once all values are known"),
)

TEXTS = tuple(name for name in COLUMNS if name not in NUMBERS)
"""Columns of a row that hold words."""


@dataclass(frozen=True)
class Run:
    """What a page is made of: a finished run's record, table and figures' data.

    Attributes:
        record: what `record.json` holds.
        rows: what `table.csv` holds.
        figures: what `figures.json` holds; a figure without points is left out.
        title: what its sections are headed with, where a page shows several runs.
    """

    record: Mapping[str, Any]
    rows: Sequence[Row]
    figures: Mapping[str, Any]
    title: str = ""


def read_run(folder: Path, title: str = "") -> Run:
    """Read a run's folder.

    Raises:
        ValueError: the folder isn't a finished run of this version.
        WorkError: a file of it is missing or damaged.
    """
    run = open_run(folder)
    return Run(run.record, run.rows, run.figures, title)


def part_folder(runs: Path, named: str) -> Path:
    """The folder of a page's part: a run beside the page's own, or `reference:NAME`, a record that is shipped.

    Example:
        >>> part_folder(Path("runs"), "train-0a1b").as_posix(), part_folder(Path("runs"), "reference:bag").name
        ('runs/train-0a1b', 'bag')
    """
    kind, _, name = named.rpartition(":")
    return Path(__file__).parents[1] / "reference" / name if kind == "reference" else runs / named


def check_target(out: Path) -> None:
    """Refuse a folder as a page's file.

    Raises:
        ValueError: it is one.
    """
    if out.is_dir():
        raise ValueError(f"{out} is a folder; name the page's file, such as {out / 'report.html'}.")


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a finished run; a run made of others (`parts` in its record) shows them one after the other.

    Args:
        folder: a run's folder, with its record.json, table.csv and figures.json.
        out: where the page goes; `report.html` in the folder if not given.

    Returns:
        Where the page is.

    Raises:
        ValueError: the folder isn't a finished run of this version.
        WorkError: a file of it is missing or damaged.
    """
    run = read_run(folder)
    parts = [
        read_run(part_folder(folder.parent, str(part["folder"])), str(part["title"]))
        for part in run.record.get("parts") or []
    ]
    target = out or folder / "report.html"
    sweep_temporaries(folder)
    write_atomic(target, render_page(dict(run.record), list(run.rows), dict(run.figures), parts).encode())
    return target


def render_page(record: dict[str, Any], rows: list[Row], figures: dict[str, Any], parts: Sequence[Run] = ()) -> str:
    """The page as text: everything it needs is in it, and whatever a user could have typed is escaped.

    Args:
        record: what `record.json` holds.
        rows: what `table.csv` holds.
        figures: what `figures.json` holds; a figure without points is left out.
        parts: other runs whose sections the page shows, in this order, instead of its own.

    Example:
        >>> "No verdict" in render_page({}, [Row(id="probe.object", value=0.5, n=9)], {})
        True
    """
    from jinja2 import Environment
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    own, *parts = (_inert(run) for run in (Run(record, rows, figures), *parts))
    record, rows, figures = dict(own.record), list(own.rows), dict(own.figures)
    inputs = _mapping(record.get("inputs"))
    model, world = _mapping(inputs.get("model")), _mapping(inputs.get("world"))
    name = str(model.get("name") or record.get("name") or "Unnamed model")
    kind, verdict, made = shown(Run(record, rows, figures), name) if not parts else _together(record, parts)
    plotly, script = get_plotlyjs(), _read("page.js")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["nb"] = _unbroken
    environment.filters["ink"] = _ink
    template = environment.from_string(_read("page.html"))
    return template.render(
        name=name,
        question=kind,
        world=world,
        facts=_facts(world),
        when=_when(str(record.get("created", ""))),
        verdict=verdict,
        tiles=[(tile, Markup(tile_axis(tile)), _big(tile.row, tile.percent)) for tile in verdict.tiles],
        levels=[k for k in LEVELS if any(_has(tile.row, k.mark) for tile in verdict.tiles)],
        sections=made,
        figures=_data([figure for section in made for figure in section.figures]),
        model_facts=_flat(model),
        world_facts=_world_facts(world),
        run_facts=_run_facts(record),
        seconds=[(str(k), f"{float(v):,.1f}") for k, v in _mapping(record.get("seconds")).items()],
        notes=[str(note) for note in record.get("notes") or []],
        config=json.dumps(_mapping(record.get("config")), indent=1, ensure_ascii=False, default=str),
        given=[str(field) for field in record.get("given") or []],
        command=str(record.get("command") or ""),
        python=str(record.get("python") or ""),
        columns=COLUMNS,
        rows=[_cells(row) for row in rows],
        glossary=GLOSSARY,
        style=Markup(_read("page.css")),
        plotly=Markup(plotly),
        script=Markup(script),
        policy=Markup(_policy(plotly, script)),
    )


def _inert(run: Run) -> Run:
    """The run with nothing in its texts that turns or hides what stands beside it, such as right-to-left marks."""
    rows = [replace(row, **{k: inert_json(v) for k in TEXTS if (v := getattr(row, k)) is not None}) for row in run.rows]
    return Run(inert_json(run.record), rows, inert_json(run.figures), inert_json(run.title))


def finding(run: Run) -> str:
    """What a run's page says first.

    Example:
        >>> finding(Run({"kind": "train"}, [], {}, "This model"))
        'No verdict on unseen objects for This model: too few of them were held out, or none with their swap.'
    """
    return shown(run, run.title)[1].sentence


def shown(run: Run, name: str) -> tuple[str, Verdict, tuple[Section, ...]]:
    """Question, verdict and sections of one run; of a run of some stages, only what it was asked for."""
    inputs = _mapping(run.record.get("inputs"))
    model, world = _mapping(inputs.get("model")), _mapping(inputs.get("world"))
    named = str(run.record.get("kind"))
    kind, asked = KINDS.get(named, STUDY), asked_of(named)
    concepts = tuple(str(c) for c in _mapping(world.get("concepts"))) or tuple(
        dict.fromkeys(row.concept for row in run.rows if row.concept is not None)
    )
    study = Study(
        Measured(run.rows),
        concepts,
        str(model.get("kind", "")),
        str(world.get("name", "")),
        run.figures,
        {str(k): str(v) for k, v in _mapping(run.record.get("calls")).items()},
        _mapping(run.record.get("config")),
    )
    verdict, made = kind.judge(run.rows, name), kind.sections(study)
    if asked is not None:
        verdict = replace(verdict, tiles=tuple(tile for tile in verdict.tiles if tile.key in asked))
        made = tuple(section for section in made if section.key in asked or not section.missing)
    return kind.question, verdict, made


def _together(record: Mapping[str, Any], parts: Sequence[Run]) -> tuple[str, Verdict, tuple[Section, ...]]:
    """The sections of several runs on one page, each under its run's title; sections without numbers are left out."""
    sentences, tiles, made = list[str](), list[Tile](), list[Section]()
    for i, part in enumerate(parts):
        _, verdict, sections = shown(part, part.title)
        sentences.append(verdict.sentence)
        told = [tile for tile in verdict.tiles if tile.row is not None and tile.row.value is not None]
        tiles += [replace(tile, sentence=f"{part.title}: {tile.sentence}") for tile in told[:2]]
        for section in sections:
            if section.missing:
                continue
            figures = tuple(replace(figure, key=f"part{i}-{figure.key}") for figure in section.figures)
            made.append(replace(
                section, key=f"part{i}-{section.key}", title=f"{part.title}: {section.title}", figures=figures
            ))  # fmt: skip
    anchors = {section.key for section in made}
    placed = [
        replace(tile, key=next((key for key in anchors if key.endswith(f"-{tile.key}")), made[0].key)) for tile in tiles
    ]
    question = str(record.get("question") or STUDY.question)
    return question, Verdict("\n".join(sentences), tuple(placed)), tuple(made)


def _unbroken(text: str) -> str:
    """Numbers that a line break can't part from their unit."""
    return re.sub(r"(?<=\d) (?=%)|(?<=R²) (?=\d)|(?<=n) (?== \d)|(?<=n =) (?=\d)", "\N{NO-BREAK SPACE}", text)


def _ink(colour: str) -> str:
    """A mark's colour as the style sheet's variable, which dark mode lightens."""
    names = {BLUE: "model", VERMILLION: "bag", PURPLE: "random", GREY: "chance"}
    return f"var(--{names[colour]})" if colour in names else colour


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _policy(*scripts: str) -> str:
    """What the browser may do: run our own scripts (by their hash), draw, and nothing else."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _data(figures: Sequence[Figure]) -> Any:
    """The figures as JSON that can stand inside a script element."""
    from markupsafe import Markup

    text = json.dumps({figure.key: figure.spec for figure in figures}, ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _when(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    zone = f" {moment.tzname()}" if moment.tzinfo else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _facts(world: Mapping[str, Any]) -> list[str]:
    concepts = _mapping(world.get("concepts"))
    grid = " × ".join(f"{len(values)} {name}" for name, values in concepts.items())
    facts = [grid] if grid else []
    for key in ("objects", "scenes"):
        if isinstance(world.get(key), int):
            facts.append(f"{world[key]:,} {key}")
    if isinstance(world.get("slots"), int):
        facts.append(f"up to {world['slots']} objects a scene" if world["slots"] > 1 else "one object a scene")
    return facts


def _world_facts(world: Mapping[str, Any]) -> list[tuple[str, str]]:
    concepts = _mapping(world.get("concepts"))
    names = {"scenes": "scenes of two objects or more", "singles": "scenes of one object (other slots empty)"}
    rest = {names.get(k, k): v for k, v in world.items() if k != "concepts"}
    return _flat(rest) + [(f"values of {name}", ", ".join(str(v) for v in values)) for name, values in concepts.items()]


def _run_facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts: dict[str, Any] = {"git revision": record.get("git")}
    if isinstance(record.get("peak_memory_bytes"), int):
        facts["peak memory"] = f"{record['peak_memory_bytes'] / 2**20:,.0f} MiB"
    return _flat({**facts, **_mapping(record.get("device")), **_mapping(record.get("versions"))})


def _flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    listed: list[tuple[str, str]] = []
    for key, value in facts.items():
        label = f"{prefix}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            listed += _flat(value, f"{label}, ")
        elif value is not None and value != "":
            shown = ", ".join(str(v) for v in value) if isinstance(value, list | tuple) else value
            listed.append((label, {True: "yes", False: "no"}[shown] if isinstance(shown, bool) else str(shown)))
    return listed


def _big(row: Row | None, share: bool) -> dict[str, str]:
    if row is None or row.value is None:
        return {"value": "–", "interval": "", "n": ""}
    show = percent if share else fraction
    interval = "no interval" if row.low is None or row.high is None else spans(row.low, row.high, show)
    return {"value": show(row.value), "interval": interval, "n": f"n = {row.n:,}" if row.n is not None else ""}


def _has(row: Row | None, mark: str) -> bool:
    level = {"open-diamond": "bag_of_concepts", "triangle": "random_init", "tick": "chance"}[mark]
    return row is not None and row.value is not None and getattr(row, level) is not None


def _cells(row: Row) -> list[tuple[str, bool]]:
    """Each column's text, and whether it is a number."""
    shown: list[tuple[str, bool]] = []
    for name in COLUMNS:
        value = getattr(row, name)
        number = isinstance(value, int | float)
        text = "" if value is None else decimals(value, 4) if isinstance(value, float) else str(value)
        shown.append((text, number))
    return shown
