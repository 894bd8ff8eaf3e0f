"""The verbs of models that are trained here: train, sweep, structure, and the whole paper."""

from dataclasses import fields

from colligate.cli.tables import show_run
from colligate.cli.terminal import say, take_flag, tell
from colligate.options import parse
from colligate.progress import progress

PRESETS = ("paper", "pictures")
LEADING = (".object", ".r2", "object.correlation", "object.within", "object.beyond", ".ceiling", "ceiling.correlation")
"""Ends of the ids of `structure` that the terminal shows; the table holds all."""


def take_preset(words: list[str]) -> tuple[str, list[str]]:
    """The preset that was asked for, "" for none, and the words without it.

    Raises:
        ValueError: an unknown preset.
    """
    joined = [part for word in words for part in (word.split("=", 1) if word.startswith("--preset=") else [word])]
    if "--preset" not in joined:
        return "", words
    at = joined.index("--preset")
    given = joined[at + 1 : at + 2]
    if not given or given[0] not in PRESETS:
        raise ValueError(
            "The only presets are --preset paper and --preset pictures; without one, the best recipe found is used."
        )
    return given[0], joined[:at] + joined[at + 2 :]


def train_verb(words: list[str]) -> int:
    """Train a dual encoder and print what it learned."""
    from colligate.training.config import TrainConfig
    from colligate.training.presets import PaperConfig, PicturesConfig

    as_json, words = take_flag(words, "--json")
    preset, words = take_preset(words)
    about = (
        "Train a dual encoder from scratch. Add --json for rows as JSON, --preset paper for the paper's settings, "
        "--preset pictures for pictures against captions."
    )
    asked = {"paper": PaperConfig, "pictures": PicturesConfig}.get(preset, TrainConfig)
    config = parse(asked, "train", about, words)
    from colligate.training.loop import train

    with progress(quiet=as_json) as report:
        result = train(config, log=None if as_json else _print_look, report=report)
    show_run(result.place, result.record, result.rows, as_json=as_json)
    if not as_json:
        long = preset != "pictures" and config.space.num_objects >= 300
        note = "    (some minutes: all ordered pairs of about 400 objects)" if long else ""
        tell(f"Study it: colligate study run:{result.folder}{note}")
        if preset == "pictures":
            tell(f"Ask it:   colligate recognize run:{result.folder}")
    return 0


def _print_look(step: int, seen: dict[str, float]) -> None:
    names = ("loss", "concept.seen", "concept.unseen", "seen.table", "unseen.table", "unseen.among", "unseen.swaps")
    say(f"step {step}: " + ", ".join(f"{name} {seen[name]:.3f}" for name in names if name in seen))


def sweep_verb(words: list[str]) -> int:
    """Train at every point of a grid and print what was learned there."""
    from colligate.training.grid import PaperSweepConfig, PicturesSweepConfig, SweepConfig

    as_json, words = take_flag(words, "--json")
    preset, words = take_preset(words)
    about = (
        "Train at many coverages, spaces and seeds. Add --json for rows, --preset paper for the paper's settings, "
        "--preset pictures for pictures against captions."
    )
    asked = {"paper": PaperSweepConfig, "pictures": PicturesSweepConfig}.get(preset, SweepConfig)
    own, of_training = ({field.name for field in fields(one)} for one in (asked, type(asked().train)))
    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if word.startswith("--") and name in of_training - own:
            raise ValueError(f"{word} is a setting of every training; in a sweep it is --train.{word[2:]}.")
    config = parse(asked, "sweep", about, words)
    from colligate.training.sweep import spread, sweep

    with progress(quiet=as_json) as report:
        result = sweep(config, report=report)
    show_run(result.place, result.record, result.rows, as_json=as_json, points=spread(result.rows))
    return 0


def paper_verb(words: list[str]) -> int:
    """Run every question of the paper, small, and say where the page is."""
    from colligate.verbs.config import PaperConfig

    config = parse(PaperConfig, "paper", "Run every question of the paper, small, and write one page.", words)
    from colligate.report.page import finding, read_run
    from colligate.verbs.paper import paper

    with progress() as report:
        result = paper(config, report)
    for part in result.parts:
        say(f"{finding(read_run(part.folder, part.title))}\n")
    tell(f"Record: {result.folder}")
    tell(f"Page:   {result.page}")
    return 0


def structure_verb(words: list[str]) -> int:
    """Fit rules to both towers of many models and print how far they go, and whether matching goes with it."""
    from colligate.verbs.config import StructureConfig

    as_json, words = take_flag(words, "--json")
    config = parse(StructureConfig, "structure", "Fit rules to the towers of many models. Add --json for rows.", words)
    from colligate.verbs.structure import structure

    with progress(quiet=as_json) as report:
        result = structure(config, report=report)
    leading = [row for row in result.rows if as_json or row.id.endswith(LEADING)]
    show_run(result.place, result.record, leading, as_json=as_json, judged=result.rows)
    return 0
