"""Repair a two-tower model: fit maps at several coverages, report them on unseen objects, keep one as an embedder."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from colligate import __version__
from colligate.crossmodal.queries import QueryTemplates
from colligate.crossmodal.repair import RepairSettings
from colligate.crossmodal.repair_data import repair_data
from colligate.crossmodal.repairing import Repaired, repair_curve
from colligate.engine import Clock, Report, fitting_threads, peak_memory
from colligate.networks.maps import MapKind, save_map
from colligate.records import (
    command,
    content_key,
    read_record,
    read_table,
    run_facts,
    settings,
    unfinish,
    write_record,
)
from colligate.study.battery import Study
from colligate.study.config import SourceConfig
from colligate.study.crossmodal import TwoTowers, open_two_towers
from colligate.study.provenance import describe_inputs
from colligate.study.sources import store_of


@dataclass(frozen=True, kw_only=True)
class RepairConfig(SourceConfig):
    """Which two-tower model to repair, and by what."""

    kinds: tuple[Literal["linear", "low_rank", "mlp", "product"], ...] = ("linear",)
    """Maps to fit; the first one is kept as an embedder. `linear`: one matrix on the text side (LABCLIP). `low_rank`,
    `mlp`: controls. `product`: values multiplied per object; it takes concepts parsed from captions, not the text
    tower's vectors."""
    coverages: tuple[float, ...] = (0.3, 0.5, 0.7)
    """Shares of the objects to fit on; the map of the largest one that can be had is kept."""
    queries: tuple[str, ...] = QueryTemplates().values
    """Texts that ask for one value, as for `colligate recognize`."""
    objects: tuple[str, ...] = ()
    """Texts that ask for one object; default: as captions say it."""
    article: bool = False
    """Say "an" before a vowel."""
    steps: int = 150
    """Training steps for each candidate; 0 keeps closed forms."""
    rank: int = 16
    """Rank of `low_rank`, and of mixed products."""
    hidden: int = 256
    """Hidden units of `mlp`."""

    def __post_init__(self) -> None:
        if not self.kinds or not self.coverages:
            raise ValueError("A repair needs at least one kind of map and one coverage; add --kinds linear.")

    @property
    def fitting(self) -> list[RepairSettings]:
        """How each kind is fitted."""
        return [
            RepairSettings(kind=kind, steps=self.steps, rank=self.rank, hidden=self.hidden, seed=self.seed)
            for kind in self.kinds
        ]


def repair(config: RepairConfig, *, report: Report | None = None) -> Study:
    """Fit maps on the text side of a frozen model and write the first as an embedder, `repaired:RUNFOLDER`.

    Args:
        config: which model and maps; `embedder` may be the folder of a run whose model is to be repaired.
        report: told about progress.

    Raises:
        ValueError: the model lacks a tower, the towers' spaces differ in width, or no coverage can be had.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from colligate.embedders import load_model
        >>> with TemporaryDirectory() as folder:
        ...     config = RepairConfig(embedder="oracle:pair-rotated:16", scenes="clevr", coverages=(0.5,), steps=0,
        ...                           runs=Path(folder), store=Path(folder))
        ...     run = repair(config)
        ...     model = load_model(f"repaired:{run.folder}")
        >>> found = {row.id: row.value for row in run.rows}
        >>> found["crossmodal.repair.lift.object"] > 0.3, list(model.towers)
        (True, ['scene', 'text'])
    """
    config = _of_run(config)
    clock = Clock(report)
    with clock.stage("embedding"):
        towers = open_two_towers(config, report)
    if towers.text_side.kind != "text":
        raise ValueError(f"{config.embedder} reads no text, and a repair is a map of texts; give a model of captions.")
    facts = {
        "kind": "repair", "version": __version__, "config": settings(config), "inputs": towers.facts,
        "scenes": towers.world.scenes.content_hash,
    }  # fmt: skip
    folder = config.runs / f"repair-{content_key(facts)}"
    if (folder / "record.json").is_file() and not config.force:
        return Study(folder, read_table(folder / "table.csv"), read_record(folder), None, found=True)
    templates = QueryTemplates(values=tuple(config.queries), objects=tuple(config.objects), article=config.article)
    with clock.stage("captions and foils"):
        data = repair_data(
            towers.scene_side, towers.text_side, towers.world, templates, store=store_of(config), seed=config.seed
        )
    one = towers.embeddings.scenes.counts == 1
    singles = towers.embeddings[one] if bool(one.any()) else None
    with clock.stage("repair"), fitting_threads() as threads:
        found, rows = repair_curve(
            data, config.fitting, tuple(config.coverages), singles=singles, seed=config.seed, report=report
        )
    kind, coverage = config.kinds[0], max(c for k, c in found if k == config.kinds[0])
    kept = found[kind, coverage]
    told = _save(folder, config, towers, kept, kind, coverage)
    inputs = describe_inputs(
        config, towers.source(config.embedder), data.scenes, singles=0 if singles is None else len(singles),
        split=kept.split,
    )  # fmt: skip
    record = run_facts(
        "repair", config.embedder, config, seconds=clock.seconds, memory=peak_memory(),
        notes=[*towers.notes, told, *kept.split.notes],
    ) | {"command": command("repair", config), "inputs": inputs, "threads": threads}  # fmt: skip
    write_record(folder, record, rows, {}, {})
    return Study(folder, rows, record, None)


def _of_run(config: RepairConfig) -> RepairConfig:
    """The config with the model and world of the run whose folder was named."""
    folder = Path(config.embedder)
    if not (folder / "record.json").is_file():
        return config
    asked = read_record(folder)["config"]
    if "embedder" not in asked:
        raise ValueError(
            f"{folder} is the run of no embedder; name a study's folder, or an embedder such as run:{folder}."
        )
    return replace(config, embedder=asked["embedder"], scenes=config.scenes or asked.get("scenes", ""))


def _save(folder: Path, config: RepairConfig, towers: TwoTowers, kept: Repaired, kind: MapKind, coverage: float) -> str:
    """Write the map, and say in a sentence what it is."""
    fingerprint = towers.text_side.fingerprint
    unfinish(folder)
    save_map(folder, kept.repair.map, kept.repair.shape, kept.repair.space, {
        "embedder": config.embedder,
        "read": {"layer": config.layer, "pooling": config.pooling, "normalize": config.normalize},
        "tower": None if fingerprint is None else dict(fingerprint),
        "fitted": {
            "kind": kind, "coverage": coverage, "chosen": kept.repair.chosen, "tried": kept.repair.tried,
            "split": kept.split.name, "world": towers.world.name, "scenes": towers.world.scenes.content_hash,
        },
    })  # fmt: skip
    if kept.repair.chosen == "none":
        return f"No {kind} map was better than none on validation objects, so the map that was kept changes nothing."
    return f"The {kind} map of coverage {coverage:g} was kept ({kept.repair.chosen})."
