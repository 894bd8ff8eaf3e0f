"""Train a dual encoder, or a stack of them, and leave a run folder behind."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from colligate.engine import Clock, Report, fitting_threads, peak_memory
from colligate.networks.checkpoint import load_checkpoint, save_checkpoint
from colligate.networks.dual import DualEncoder
from colligate.records import (
    content_key,
    find_run,
    one_writer,
    open_run,
    read_sealed,
    run_facts,
    sealed_json,
    settings,
    sweep_temporaries,
    unfinish,
    write_atomic,
    write_record,
)
from colligate.runs import Findings
from colligate.training.config import TrainConfig
from colligate.training.pairs import trainer_of
from colligate.training.recognition import part_scenes, recognition_rows
from colligate.training.trainer import Best, DivergedError, Trainer
from colligate.version import __version__

Log = Callable[[int, dict[str, float]], None]
"""Called with a step and what was measured there: for TensorBoard, wandb or a print."""


@dataclass(frozen=True, eq=False)
class Training(Findings):
    """A finished run, whose folder holds the network too.

    Attributes:
        diverged: why there are neither rows nor a record; empty for a training that came to its end.
    """

    diverged: str = ""


def run_folder(config: TrainConfig) -> Path:
    """Where a run of this config is.

    Example:
        >>> run_folder(TrainConfig()).parts[0], run_folder(TrainConfig()) == run_folder(TrainConfig(seed=1))
        ('runs', False)
    """
    key = content_key({"kind": "train", "version": __version__, "config": settings(config)})
    return config.runs / f"train-{key}"


def train(config: TrainConfig, log: Log | None = None, report: Report | None = None) -> Training:
    """Train one dual encoder; a killed run goes on from its last state to the same curve.

    The run folder holds the network (`model.json` and weights; load it with `run:FOLDER`), `record.json`, the table,
    the curve in `figures.json`, and the outcomes of every scored scene.

    Args:
        config: what, on what and how.
        log: told what was measured, step by step.
        report: told how far it is.

    Raises:
        ValueError: the call can't be carried out as written.
        DivergedError: the loss is no longer a number; the last good checkpoint is kept.
        OSError: the disk is full; what was written before is kept.

    Paper: arXiv:2605.31503, Sec. 6.   Differs: docs/emergence.md.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     sizes = {"values": 6, "coverage": 0.5, "width": 16, "heads": 1, "dim": 8, "batch": 8}
        ...     len(train(TrainConfig(**sizes, steps=4, warmup=2, runs=Path(folder))).rows)
        12
    """
    done = train_stack([config], log, report)[0]
    if done.diverged:
        raise DivergedError(done.diverged)
    return done


STATE, PLAN, DIVERGED = "state.safetensors", "stack.json", "diverged.json"
"""Files of unfinished work: where a training stands; which members a stack trains; that a member diverged."""
AGAIN = "delete it to start anew"


@one_writer
def train_stack(
    configs: Sequence[TrainConfig], log: Log | None = None, report: Report | None = None, *, label: str = "training"
) -> list[Training]:
    """Train members of equal shape in one pass; each leaves the folder that it would leave alone.

    What was asked names the folder in which the state of several is kept, and a plan there holds which of them the
    first call trained. A killed call therefore goes on with the same members to the same weights, whichever of them it
    had finished. A member whose loss is no longer a number is stopped and named, and the others go on.

    Args:
        configs: one for each member; they differ in seed or coverage only.
        log: told what was measured of the first member, step by step.
        report: told how far it is.
        label: what the progress is called.

    Raises:
        ValueError: nothing to train, or members of different shapes.
    """
    if not configs:
        raise ValueError("There is nothing to train; give at least one config.")
    ordered = sorted(configs, key=run_folder)  # in one order everywhere: nobody waits for one who waits for them
    if any(config.force or not _ended(run_folder(config)) for config in ordered):
        for config in ordered:
            find_run(run_folder(config), force=True)  # from here on nobody else writes these
    there = {run_folder(config): _there(config) for config in ordered}
    stack = _stack_folder(configs)
    if any(found is None for found in there.values()):
        there |= {done.place: done for done in _trained(configs, there, stack, log, report, label)}
    _clean(stack, there)
    found = [there[run_folder(config)] for config in configs]
    return [one for one in found if one is not None]


def _ended(folder: Path) -> bool:
    return (folder / "record.json").is_file() or (folder / DIVERGED).is_file()


def _there(config: TrainConfig) -> Training | None:
    """What an earlier call left of a training: its run, or that it diverged; None where it is to be trained."""
    folder = run_folder(config)
    if config.force:
        return None
    if (run := find_run(folder)) is not None:
        return Training.of(run)
    if (folder / DIVERGED).is_file():
        why = read_sealed(folder / DIVERGED, AGAIN, of=folder.name)["why"]
        return _lost(folder, f"{why} It was found before; --force trains it again.", found=True)
    return None


def _stack_folder(configs: Sequence[TrainConfig]) -> Path:
    """Where the state of a stack is: named by what was asked."""
    folders = [run_folder(config) for config in configs]
    if len(folders) == 1:
        return folders[0]
    return configs[0].runs / f"stack-{content_key({'runs': [folder.name for folder in folders]})}"


def _clean(stack: Path, members: Iterable[Path]) -> None:
    """Take away what unfinished work had left: all members are finished."""
    if stack in members:
        (stack / STATE).unlink(missing_ok=True)
    elif stack.is_dir():
        shutil.rmtree(stack, ignore_errors=True)


def _planned(configs: Sequence[TrainConfig], there: Mapping[Path, Training | None], stack: Path) -> list[TrainConfig]:
    """The members that a stack trains: those that the first call of it found missing."""
    if len(configs) == 1:
        return list(configs)
    plan = stack / PLAN
    missing = [run_folder(config).name for config in configs if there[run_folder(config)] is None]
    if plan.is_file() and not any(config.force for config in configs):
        kept: list[str] = read_sealed(plan, AGAIN, of=stack.name)["members"]
        if set(missing) <= set(kept):
            return [config for config in configs if run_folder(config).name in kept]
    (stack / STATE).unlink(missing_ok=True)
    write_atomic(plan, sealed_json(plan.name, {"members": missing}, of=stack.name))
    return [config for config in configs if run_folder(config).name in missing]


def _trained(
    configs: Sequence[TrainConfig],
    there: Mapping[Path, Training | None],
    stack: Path,
    log: Log | None,
    report: Report | None,
    label: str,
) -> list[Training]:
    """Train what is missing of these, from where an earlier call stopped if it did."""
    sweep_temporaries(stack)
    configs = _planned(configs, there, stack)
    folders = [run_folder(config) for config in configs]
    state, key = stack / STATE, content_key({"runs": [folder.name for folder in folders]})
    clock = Clock()
    device = _device(configs[0].device)
    with fitting_threads() if device.type == "cpu" else nullcontext(1) as threads:
        with clock.stage("setting up"):
            trainer = trainer_of(configs, device)
            if state.is_file() and not configs[0].force:
                trainer.resume(state, key)
                threads = torch.get_num_threads() if device.type == "cpu" else threads  # those that the state asks for
        with clock.stage("training"):
            _run(trainer, state, key, log, report, label)
        missing = [member for member, folder in enumerate(folders) if there[folder] is None]
        return [_finish(trainer, member, folders[member], clock, threads) for member in missing]


def _run(trainer: Trainer, state: Path, key: str, log: Log | None, report: Report | None, label: str) -> None:
    """All steps that are left, or those until no member is left."""
    config = trainer.config
    with suppress(DivergedError):  # of every member: they are told one by one
        while trainer.step < config.steps:
            trainer.advance()
            last = trainer.step == config.steps
            if trainer.step % config.evaluate_every == 0 or last:
                trainer.look()
                if log is not None and 0 not in trainer.diverged:
                    log(trainer.step, trainer.curves[0][-1])
            if trainer.step % config.checkpoint_every == 0 and not last:
                trainer.save(state, key)
            if report is not None and (trainer.step % 10 == 0 or last):
                report(label, trainer.step, config.steps)


def _save_model(trainer: Trainer, member: int, folder: Path) -> DualEncoder:
    """Write a member's best network with what it takes to use and to judge it."""
    config, best = trainer.configs[member], trainer.best[member]
    model = trainer.chosen(member).cpu()
    facts = {
        "config": settings(config), "step": best.step, "validation": best.score,
        "objects": {part: ids.tolist() for part, ids in trainer.divisions[member].items()}
        if config.space.num_objects <= 10_000 else None,
    }  # fmt: skip
    unfinish(folder)
    save_checkpoint(folder, model, facts, dtype=getattr(torch, config.keep))
    return load_checkpoint(folder).model  # as it is on disk


def _finish(trainer: Trainer, member: int, folder: Path, clock: Clock, threads: int) -> Training:
    """Score the best network of a member and write its record; of one that diverged, write that it did."""
    config, division, best = trainer.configs[member], trainer.divisions[member], trainer.best[member]
    if member in trainer.diverged:
        return _stopped(trainer, member, folder)
    (folder / DIVERGED).unlink(missing_ok=True)
    model = _save_model(trainer, member, folder)
    parts = {
        name: part_scenes(config.space, division[part], slots=config.slots, budget=config.budget, seed=config.seed)
        for name, part in (("seen", "fit"), ("unseen", "test"))
    }
    coverage = len(division["fit"]) / config.space.num_objects
    with clock.stage("scoring"):
        rows, arrays = recognition_rows(model, parts, coverage=coverage, family=config.family)
    arrays |= {f"objects.{part}": ids for part, ids in division.items()}
    record = run_facts(
        "train", folder.name, config, seconds=clock.seconds, memory=peak_memory(),
        notes=_notes(config, best, can_swap=trainer.pools[member].can_swap),
    ) | {
        "objects": {part: len(ids) for part, ids in division.items()}, "best": best._asdict(),
        "members": len(trainer.configs), "threads": threads, "precision": trainer.precision,
        "where": str(trainer.device), "parameters": sum(p.numel() for p in model.parameters()),
    }  # fmt: skip
    beside = ["model.json", *(path.name for path in folder.glob("weights-*.safetensors"))]
    write_record(folder, record, rows, {"curve": trainer.curves[member]}, arrays, beside=beside)
    return Training.of(open_run(folder), found=False)


def _stopped(trainer: Trainer, member: int, folder: Path) -> Training:
    """Keep the last good checkpoint of a member that diverged, and say beside it what happened."""
    unfinish(folder)
    if trainer.best[member].step >= 0:
        _save_model(trainer, member, folder)
    why, step = trainer.why(member), trainer.diverged[member]
    write_atomic(folder / DIVERGED, sealed_json(DIVERGED, {"why": why, "step": step}, of=folder.name))
    return _lost(folder, why)


def _lost(folder: Path, why: str, *, found: bool = False) -> Training:
    """A training that diverged."""
    return Training({}, [], folder=folder, found=found, diverged=why)


def _notes(config: TrainConfig, best: Best, *, can_swap: bool) -> list[str]:
    notes = [f"The network of step {best.step} is kept: the highest recognition of validation objects."]
    if not can_swap and config.slots > 1 and config.scenes != "random":
        notes.append("No swap of two seen objects is seen too, so all scenes were of random objects.")
    if config.held_out_negatives:
        notes.append("Held-out objects were negatives in training, which pushes them down.")
    if config.encoder == "product":
        notes.append("A product encoder binds by construction: an upper bound, not evidence of emergence.")
    return notes


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(f"This machine has no device {name!r}; choose cpu or auto.") from None
    return device
