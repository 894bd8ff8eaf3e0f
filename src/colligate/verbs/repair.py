"""Repair a two-tower model at several coverages, by maps or by new weights, and keep one repair as an embedder."""

from dataclasses import replace
from pathlib import Path

import torch

from colligate.choices import EMBEDDERS
from colligate.crossmodal.queries import QueryTemplates
from colligate.crossmodal.repair import Repair
from colligate.crossmodal.repair_data import repair_data
from colligate.crossmodal.repairing import Repaired, repair_curve
from colligate.embedders.repaired import RepairedTower
from colligate.embedders.towers import Model
from colligate.embedders.trained_pair import TrainedPairTower
from colligate.engine import Clock, Report
from colligate.networks.maps import LoadedMap, save_map
from colligate.records import one_writer, read_record, tensors_hash
from colligate.runs import Findings, Measurements, carry_out
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import Split
from colligate.verbs.ceiling import ceiling_rows
from colligate.verbs.config import RepairConfig
from colligate.verbs.crossmodal import TwoTowers, asked, facts_of, open_two_towers
from colligate.verbs.finetune import FineTuned, FineTuner, TrainedPair
from colligate.verbs.provenance import describe_inputs
from colligate.verbs.sources import Inputs, said_words, store_of

WRITTEN = ("repair.json", "map.safetensors", "model.json", "weights-*.safetensors")
"""Files of a repair that are written before its record."""


@one_writer
def repair(
    config: RepairConfig, *, inputs: Inputs | None = None, save: bool = True, report: Report | None = None
) -> Findings:
    """Fit maps of texts, or train the model on, and write the first repair as an embedder, `repaired:RUNFOLDER`.

    Args:
        config: which model and maps; `embedder` may be the folder of a run whose model is to be repaired.
        inputs: what is handed over as objects, where the config names the rest.
        save: whether to leave a run's folder; without one, the repair itself isn't kept.
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
    config = config if inputs is not None and inputs.model is not None else _of_run(config)
    clock = Clock(report)
    with clock.stage("embedding"):
        towers = open_two_towers(config, report, inputs)
    if towers.text_side.kind != "text":
        raise ValueError(f"{config.embedder} reads no text, and a repair is a map of texts; give a model of captions.")

    def measure() -> Measurements:
        templates = QueryTemplates(values=tuple(config.queries), objects=tuple(config.objects), article=config.article)
        with clock.stage("captions and foils"):
            data = repair_data(
                towers.scene_side, towers.text_side, towers.world, templates, store=store_of(config), seed=config.seed
            )
        one = towers.embeddings.scenes.counts == 1
        singles = towers.embeddings[one] if bool(one.any()) else None
        pair = TrainedPair.of(config.embedder) if {"finetune", "training"} & {*config.kinds, config.hold_out} else None
        repairers = [
            config.maps[kind] if kind != "finetune" else _tuner(config, towers, templates, pair, report)
            for kind in config.kinds
        ]
        held_out = pair.split(data.scenes) if pair is not None and config.hold_out == "training" else None
        with clock.stage("repair"):
            repaired, rows = repair_curve(
                data,
                repairers,
                tuple(config.coverages),
                given=held_out,
                singles=singles,
                over=config.intervals,
                seed=config.seed,
                report=report,
            )
        if config.ceiling:
            with clock.stage("ceiling"):
                splits = {coverage: one.split for (_, coverage), one in repaired.items()}
                for coverage, split in splits.items():
                    rows += ceiling_rows(data, split, coverage=coverage, over=config.intervals, seed=config.seed)
        kind, coverage = config.kinds[0], max(c for k, c in repaired if k == config.kinds[0])
        kept = repaired[kind, coverage]
        told = [_kept(config, kept, coverage), *_known(pair, kept.split, data.scenes)]
        inputs = describe_inputs(
            config, towers.source(config.embedder), data.scenes, singles=0 if singles is None else len(singles),
            split=kept.split,
        )  # fmt: skip
        return Measurements(
            rows, notes=[*towers.notes, *told, *kept.split.notes],
            facts=asked("repair", config, towers.objects) | {"inputs": inputs},
            write=lambda folder: _save(folder, config, towers, kept, coverage),
            model=_model(config, towers, kept),
        )  # fmt: skip

    return carry_out("repair", config, facts_of(towers), measure, name=config.embedder, clock=clock, save=save)


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
    named, scenes = str(asked["embedder"]), config.scenes or asked.get("scenes", "")
    prefix, colon, _ = named.partition(":")
    if colon and prefix not in EMBEDDERS:  # importing runs code: the user says so, not a record
        raise ValueError(
            f"The record of {folder} names {named}, code of its own; name it yourself if you trust it: colligate "
            f"repair {named} --scenes {scenes}."
        )
    return replace(config, embedder=asked["embedder"], scenes=config.scenes or asked.get("scenes", ""))


def _tuner(
    config: RepairConfig, towers: TwoTowers, templates: QueryTemplates, pair: TrainedPair | None, report: Report | None
) -> FineTuner:
    """What trains the model on."""
    if pair is None or not isinstance(towers.scene_side, TrainedPairTower):
        raise ValueError("Fine-tuning trains on pictures; choose a world that has some, and leave --tower out.")
    return FineTuner(pair.network, towers.world, templates, config.finetuning, config.seed, report)


def _known(pair: TrainedPair | None, split: Split, scenes: Scenes) -> list[str]:
    """How many of the objects that a repair is judged on the model met in its own training."""
    if pair is None or split.objects is None:
        return []
    try:
        seen = pair.objects(scenes)["fit"]
    except ValueError:
        return []
    test = split.objects["test"]
    met = int(torch.isin(test, seen).sum())
    return [f"Of the {len(test)} objects that the repair never saw, the model's own training had shown {met}."]


def _kept(config: RepairConfig, kept: Repaired, coverage: float) -> str:
    """What was kept, in a sentence."""
    kind, chosen = config.kinds[0], kept.repair.chosen
    if chosen == "none":
        return f"No {kind} repair was better than none on validation objects, so what was kept changes nothing."
    return f"The {kind} repair of coverage {coverage:g} was kept ({chosen})."


def _save(folder: Path, config: RepairConfig, towers: TwoTowers, kept: Repaired, coverage: float) -> list[str]:
    """Write the repair, and name its files."""
    repair = kept.repair
    fitted = {
        "kind": config.kinds[0], "coverage": coverage, "chosen": repair.chosen, "split": kept.split.name,
        "world": towers.world.name, "scenes": towers.world.scenes.content_hash,
    }  # fmt: skip
    if isinstance(repair, Repair):
        fingerprint = towers.text_side.fingerprint
        save_map(folder, repair.map, repair.shape, _read_space(towers, repair), {
            "embedder": config.embedder,
            "read": {"layer": config.layer, "pooling": config.pooling, "normalize": config.normalize},
            "tower": None if fingerprint is None else dict(fingerprint),
            "fitted": {**fitted, "tried": repair.tried},
        })  # fmt: skip
    else:
        assert isinstance(repair, FineTuned)
        repair.save(folder, config.embedder, kept.split, {**fitted, "curve": dict(repair.curve)})
    return [path.name for pattern in WRITTEN for path in folder.glob(pattern)]


def _read_space(towers: TwoTowers, repair: Repair) -> ConceptSpace:
    """The values that a map reads, in the words that captions say."""
    captions = towers.world.captions
    return ConceptSpace(said_words(repair.space, captions)) if isinstance(captions, CaptionTemplate) else repair.space


def _model(config: RepairConfig, towers: TwoTowers, kept: Repaired) -> Model:
    """The model with its repair, as it is in memory."""
    name, repair = f"{towers.model.name}, repaired", kept.repair
    if isinstance(repair, FineTuned):
        return Model(name, repair.towers)
    assert isinstance(repair, Repair)
    content = tensors_hash(repair.map.state_dict())
    loaded = LoadedMap(repair.map, repair.shape, _read_space(towers, repair), {}, content)
    return Model(name, {**towers.model.towers, "text": RepairedTower(towers.text_side, loaded)}, towers.model.notes)
