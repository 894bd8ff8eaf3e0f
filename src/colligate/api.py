"""The functions of a notebook: objects in, a `Result` out. Each verb of the command line is one of them.

    result = study("sbert:all-MiniLM-L6-v2", "text8x8")      a model's name, a world's name
    result = study(my_tower, my_world)                       objects
    result = study(vectors, labels=frame)                    vectors that are there already

What is measured is named first, then what it is shown; options are keywords, the same as the command line's flags
(`colligate study --help`). Nothing is written unless `save` names a folder of runs.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, TypeVar

from colligate.engine import Report
from colligate.inputs import with_inputs
from colligate.options import from_keywords
from colligate.progress import in_notebook
from colligate.progress import progress as shown_progress
from colligate.results import Comparison as Comparison
from colligate.results import Result as Result
from colligate.runs import Findings
from colligate.training import loop
from colligate.training import sweep as sweeps
from colligate.training.config import TrainConfig
from colligate.training.grid import PaperSweepConfig, PicturesSweepConfig, SweepConfig
from colligate.training.presets import PaperConfig, PicturesConfig
from colligate.verbs import battery
from colligate.verbs.config import (
    ComplexityConfig,
    EditConfig,
    FoilsConfig,
    MeasureConfig,
    RecognizeConfig,
    RepairConfig,
    SourceConfig,
    StructureConfig,
    StudyConfig,
)
from colligate.verbs.crossmodal import recognize as recognize_towers
from colligate.verbs.crossmodal import run_foils
from colligate.verbs.repair import repair as repair_towers
from colligate.verbs.sources import Inputs
from colligate.verbs.structure import structure as compare_structure

Progress = bool | Report | None
"""Whether progress is shown: True, False, what is told of it, or None for where someone watches."""


def study(
    model: Any,
    world: Any = None,
    *,
    labels: Any = None,
    control: Any = None,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Take every measurement of one model on one world: what its vectors hold, their layout, how simple a rule.

    Args:
        model: an embedder's name, a tower (`kind` and `embed`), a `Model`, a function from captions to vectors, or
            vectors: `Embeddings`, a tensor, an array, a DataFrame [row, dim], or a file of them.
        world: what it is shown: a world's name, a table of labels (path or DataFrame), a `World`, `Scenes`, or a
            `ConceptSpace` (all pairs and single objects, with captions).
        labels: of vectors, in the place of `world`: one row for each vector.
        control: vectors of a random model for the same rows, as the random-init level.
        save: folder of runs in which the run is kept; None keeps it in memory.
        progress: True for bars, False for none, a function `(stage, done, total)`; None: bars where someone watches.
        **options: fields of `StudyConfig`, such as `seed`, `coverages`, `families`, `protocol`, `intervals`.

    Returns:
        The finding, the table, and the figures.

    Raises:
        ValueError: the call can't be carried out as written; one sentence says what to change.

    Example:
        >>> import colligate
        >>> result = colligate.study("oracle:no-binding:16", "clevr", coverages=(0.5,), families=("additive",))
        >>> result["probe.concept"].value
        1.0
    """
    return _measured("study", StudyConfig, None, model, world, _Call(labels, control, save, progress), options)


def probe(
    model: Any,
    world: Any = None,
    *,
    labels: Any = None,
    control: Any = None,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Do linear probes name the values and the objects of held-out scenes? Arguments as for `study`."""
    return _measured("probe", MeasureConfig, "probes", model, world, _Call(labels, control, save, progress), options)


def decompose(
    model: Any,
    world: Any = None,
    *,
    labels: Any = None,
    control: Any = None,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """How much do components of values or objects explain, and do they find their scene? Arguments as for `study`."""
    call = _Call(labels, control, save, progress)
    return _measured("decompose", MeasureConfig, "decomposition", model, world, call, options)


def edit(
    model: Any,
    world: Any = None,
    *,
    labels: Any = None,
    control: Any = None,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Does exchanging a component turn one scene's vector into the other's? Arguments as for `study`."""
    return _measured("edit", EditConfig, "edits", model, world, _Call(labels, control, save, progress), options)


def remove(
    model: Any,
    world: Any = None,
    *,
    labels: Any = None,
    control: Any = None,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """What do probes still read once components are taken out? Arguments as for `study`."""
    return _measured("remove", MeasureConfig, "removal", model, world, _Call(labels, control, save, progress), options)


def information(
    model: Any,
    world: Any = None,
    *,
    labels: Any = None,
    control: Any = None,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """How much information do the vectors carry about which values belong together? Arguments as for `study`."""
    call = _Call(labels, control, save, progress)
    return _measured("information", MeasureConfig, "information", model, world, call, options)


def complexity(
    model: Any,
    world: Any = None,
    *,
    labels: Any = None,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Which simple rules from values to vectors carry over to held-out objects? Arguments as for `study`."""
    call = _Call(labels, None, save, progress)
    return _measured("complexity", ComplexityConfig, "complexity", model, world, call, options)


def recognize(
    model: Any,
    world: Any = None,
    *,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Do texts find what the other tower's scenes show, value by value and object by object?

    Args:
        model: a two-tower model's name, a `Model`, or a dict of towers by kind.
        world: as for `study`.
        save: as for `study`.
        progress: as for `study`.
        **options: fields of `RecognizeConfig`, such as `queries`, `objects`, `seed`.

    Raises:
        ValueError: the model lacks a tower, or the call can't be carried out as written.

    Example:
        >>> import colligate
        >>> result = colligate.recognize("oracle:pair-mismatched:256", "clevr")
        >>> round(result["crossmodal.concept"].value, 1), result["crossmodal.object"].value < 0.6
        (1.0, True)
    """
    call = _Call(None, None, save, progress)
    return _two_towers("recognize", RecognizeConfig, recognize_towers, model, world, call, options)


def foils(
    model: Any,
    world: Any = None,
    *,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Does a scene lie nearer to its caption than to a foil of it? Arguments as for `recognize`.

    `table` names a file of pictures, captions and foils instead of a world.
    """
    return _two_towers("foils", FoilsConfig, run_foils, model, world, _Call(None, None, save, progress), options)


def repair(
    model: Any,
    world: Any = None,
    *,
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Fit maps of texts on a frozen two-tower model, or train it on; `.model` is the repaired one.

    Arguments as for `recognize`; options are the fields of `RepairConfig`, such as `kinds` and `coverages`.

    Example:
        >>> import colligate
        >>> result = colligate.repair("oracle:pair-rotated:16", "clevr", coverages=(0.5,), steps=0)
        >>> result["crossmodal.repair.lift.object"].value > 0.3, list(result.model.towers)
        (True, ['scene', 'text'])
    """
    return _two_towers("repair", RepairConfig, repair_towers, model, world, _Call(None, None, save, progress), options)


def train(
    *,
    preset: Literal["", "paper", "pictures"] = "",
    save: str | Path | None = None,
    progress: Progress = None,
    log: loop.Log | None = None,
    **options: Any,
) -> Result:
    """Train a dual encoder from scratch on scenes of some objects; `.model` is at once usable as any other.

    Args:
        preset: "paper" for the paper's settings, "pictures" for pictures against captions.
        save: folder of runs in which the run is kept, from which a stopped training goes on; None keeps nothing.
        progress: as for `study`.
        log: called with a step and what was measured there, for one's own logging.
        **options: fields of `TrainConfig`, such as `coverage`, `values`, `steps`, `seed`.

    Raises:
        ValueError: the call can't be carried out as written.
        DivergedError: the loss is no longer a number.

    Example:
        >>> import colligate
        >>> result = colligate.train(values=6, coverage=0.5, width=16, heads=1, dim=8, batch=8, steps=4, warmup=2)
        >>> result.folder is None, list(result.model.towers)
        (True, ['scene'])
    """
    kind = {"": TrainConfig, "paper": PaperConfig, "pictures": PicturesConfig}[_preset(preset)]
    config = from_keywords(kind, "train", (), _plain(options))
    with _reported(progress) as report:
        return _trained(config, save, lambda kept: loop.train(kept, log=log, report=report))


def sweep(
    *,
    preset: Literal["", "paper", "pictures"] = "",
    save: str | Path | None = None,
    progress: Progress = None,
    **options: Any,
) -> Result:
    """Train at every point of a grid of coverages, spaces, widths and seeds: when does binding emerge?

    Arguments as for `train`; options are the fields of `SweepConfig`, such as `coverages`, `seeds`, and `train`, a
    `TrainConfig` or a dict of its fields.
    """
    presets = {"": SweepConfig, "paper": PaperSweepConfig, "pictures": PicturesSweepConfig}
    config = from_keywords(presets[_preset(preset)], "sweep", (), _plain(options))
    with _reported(progress) as report:
        return _trained(config, save, lambda kept: sweeps.sweep(kept, report))


def open_run(folder: str | Path) -> Result:
    """A finished run, read from its folder.

    Raises:
        ValueError: the folder isn't a finished run of this version.
        WorkError: a file of it is damaged.
    """
    return Result(Findings.open(Path(folder)))


def structure(
    *models: str | Path | Result, save: str | Path | None = None, progress: Progress = None, **options: Any
) -> Result:
    """Do models whose towers match follow a simple rule? Rules are fitted to the towers of many models.

    Args:
        *models: folders that `train` or `sweep` left (or results that were saved); of any other two-tower model, its
            runs of `study` or `complexity` and of `recognize`.
        save: as for `study`.
        progress: as for `study`.
        **options: fields of `StructureConfig`, such as `families` and `coverages`.

    Raises:
        ValueError: a result that wasn't saved, or a folder of another kind.
    """
    folders = [one.folder if isinstance(one, Result) else Path(one) for one in models]
    if any(folder is None for folder in folders):
        raise ValueError("Rules are fitted to models in their run folders; save the results first: result.save().")
    config = from_keywords(StructureConfig, "structure", [str(folder) for folder in folders], _plain(options))
    with _reported(progress) as report:
        kept = config if save is None else replace(config, runs=Path(save))
        return Result(compare_structure(kept, save=save is not None, report=report))


class _Call(NamedTuple):
    """What every call may have beside its model, world and options."""

    labels: Any
    control: Any
    save: str | Path | None
    progress: Progress


Config = TypeVar("Config", bound=SourceConfig)
Trained = TypeVar("Trained", bound=TrainConfig | SweepConfig)


def _measured(
    verb: str,
    kind: type[Any],
    battery_of: str | None,
    model: Any,
    world: Any,
    call: _Call,
    options: Mapping[str, Any],
) -> Result:
    config, inputs = _asked(verb, kind, model, world, call, options)
    only = None if battery_of is None else (battery_of,)
    with _reported(call.progress) as report:
        found = battery.study(config, only=only, inputs=inputs, save=call.save is not None, report=report)
    return Result(found)


def _two_towers(
    verb: str,
    kind: type[Any],
    run: Callable[..., Findings],
    model: Any,
    world: Any,
    call: _Call,
    options: Mapping[str, Any],
) -> Result:
    config, inputs = _asked(verb, kind, model, world, call, options)
    with _reported(call.progress) as report:
        return Result(run(config, inputs=inputs, save=call.save is not None, report=report))


def _asked(
    verb: str, kind: type[Config], model: Any, world: Any, call: _Call, options: Mapping[str, Any]
) -> tuple[Config, Inputs]:
    """The config of a call, and what it hands over as objects.

    Raises:
        ValueError: an option, a model or a world that can't be had.
    """
    config = from_keywords(kind, verb, ["model"], _plain(options))
    config = replace(config, runs=Path("runs" if call.save is None else call.save))
    model = model.model if isinstance(model, Result) else model
    return with_inputs(config, model, world, labels=call.labels, control=call.control)


def _preset(preset: str) -> str:
    if preset not in ("", "paper", "pictures"):
        raise ValueError(f"There is no preset {preset!r}; choose paper or pictures, or leave it out.")
    return preset


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as written, without those that every call names otherwise.

    Raises:
        ValueError: one that is an argument of its own.
    """
    for name, instead in (("runs", "save"), ("embedder", "the first argument"), ("scenes", "the second argument")):
        if name in options:
            raise ValueError(f"{name} is no option here; use {instead}.")
    return dict(options)


@contextmanager
def _reported(progress: Progress) -> Generator[Report | None, None, None]:
    """What is told of progress."""
    import sys

    if callable(progress):
        yield progress
        return
    wanted = (sys.stderr.isatty() or in_notebook()) if progress is None else progress
    with shown_progress() if wanted else nullcontext() as report:
        yield report


def _trained(config: Trained, save: str | Path | None, run: Callable[[Trained], Findings]) -> Result:
    """A training in the folder of runs, or in one that is gone afterwards."""
    if save is not None:
        return Result(run(replace(config, runs=Path(save))))
    with TemporaryDirectory() as scratch:
        done = run(replace(config, runs=Path(scratch)))
        files = {
            path.name: path.read_bytes() for pattern in ("model.json", "weights-*") for path in done.place.glob(pattern)
        }
        model = None
        if files:
            from colligate.embedders import load_model

            model = load_model(f"run:{done.place}")
            model = replace(model, name=done.place.name)

    def write(folder: Path) -> list[str]:
        from colligate.records import write_atomic

        for name, content in files.items():
            write_atomic(folder / name, content)
        return list(files)

    record = {**done.record, "config": {**done.record["config"], "runs": ""}}
    return Result(Findings(record, done.rows, done.figures, done.arrays, model=model, write=write))
