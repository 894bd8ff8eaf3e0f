"""Train a dual encoder, or a stack of them, and leave a run folder behind."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from colligate import __version__
from colligate.engine import Clock, Report, fitting_threads, peak_memory
from colligate.networks.checkpoint import load_checkpoint, save_checkpoint
from colligate.networks.dual import DualEncoder
from colligate.records import Row, content_key, open_run, read_record, run_facts, settings, unfinish, write_record
from colligate.training.config import TrainConfig
from colligate.training.pairs import trainer_of
from colligate.training.recognition import part_scenes, recognition_rows
from colligate.training.trainer import Best, DivergedError, Trainer

Log = Callable[[int, dict[str, float]], None]
"""Called with a step and what was measured there: for TensorBoard, wandb or a print."""


@dataclass(frozen=True, eq=False)
class Training:
    """A finished run.

    Attributes:
        folder: its run folder, which holds the network too.
        rows: its table.
        record: what was done.
        found: whether the run was there already.
    """

    folder: Path
    rows: list[Row]
    record: dict[str, Any]
    found: bool = False


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
        8
    """
    return train_stack([config], log, report)[0]


def train_stack(
    configs: Sequence[TrainConfig], log: Log | None = None, report: Report | None = None, *, label: str = "training"
) -> list[Training]:
    """Train members of equal shape in one pass; each leaves the folder that it would leave alone.

    Args:
        configs: one for each member; they differ in seed or coverage only.
        log: told what was measured of the first member, step by step.
        report: told how far it is.
        label: what the progress is called.

    Raises:
        ValueError: nothing to train, or members of different shapes.
        DivergedError: the loss of a member is no longer a number.
    """
    if not configs:
        raise ValueError("There is nothing to train; give at least one config.")
    missing = [c for c in configs if c.force or not (run_folder(c) / "record.json").is_file()]
    made: dict[Path, Training] = {}
    if missing:
        made = {done.folder: done for done in _trained(missing, log, report, label)}
    return [made.get(run_folder(config)) or _found(run_folder(config)) for config in configs]


def _found(folder: Path) -> Training:
    run = open_run(folder)
    return Training(folder, run.rows, run.record, found=True)


def _trained(configs: Sequence[TrainConfig], log: Log | None, report: Report | None, label: str) -> list[Training]:
    """Train all of these, from where an earlier call stopped if it did."""
    folders = [run_folder(config) for config in configs]
    names = [folder.name for folder in folders]
    stack = folders[0] if len(folders) == 1 else configs[0].runs / f"stack-{content_key({'runs': names})}"
    state, key = stack / "state.safetensors", content_key({"runs": names})
    clock = Clock()
    device = _device(configs[0].device)
    with fitting_threads() if device.type == "cpu" else nullcontext(1) as threads:
        with clock.stage("setting up"):
            trainer = trainer_of(configs, device)
            if state.is_file() and not configs[0].force:
                trainer.resume(state, key)
                threads = torch.get_num_threads() if device.type == "cpu" else threads  # those that the state asks for
        with clock.stage("training"):
            _run(trainer, state, key, folders, log, report, label)
        done = [_finish(trainer, member, folder, clock, threads) for member, folder in enumerate(folders)]
    state.unlink(missing_ok=True)
    if stack not in folders:
        shutil.rmtree(stack, ignore_errors=True)
    return done


def _run(
    trainer: Trainer,
    state: Path,
    key: str,
    folders: Sequence[Path],
    log: Log | None,
    report: Report | None,
    label: str,
) -> None:
    """All steps that are left."""
    config = trainer.config
    try:
        while trainer.step < config.steps:
            trainer.advance()
            last = trainer.step == config.steps
            if trainer.step % config.evaluate_every == 0 or last:
                trainer.look()
                if log is not None:
                    log(trainer.step, trainer.curves[0][-1])
            if trainer.step % config.checkpoint_every == 0 and not last:
                trainer.save(state, key)
            if report is not None and (trainer.step % 10 == 0 or last):
                report(label, trainer.step, config.steps)
    except DivergedError:
        for member, folder in enumerate(folders):
            if trainer.best[member].step >= 0:
                _save_model(trainer, member, folder)
        raise


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
    """Score the best network of a member and write its record."""
    config, division, best = trainer.configs[member], trainer.divisions[member], trainer.best[member]
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
    write_record(folder, record, rows, {"curve": trainer.curves[member]}, arrays)
    return Training(folder, rows, read_record(folder))


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
