"""Do models that bind unseen objects follow a simple rule? Binding functions fitted to many trained models at once."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from colligate import __version__
from colligate.complexity.curves import CurveSettings, Readers, coverage_curve
from colligate.embedders.towers import LoadOptions
from colligate.embedders.trained import TrainedTower, load
from colligate.embeddings import Embeddings
from colligate.engine import Clock, Report, fitting_threads, peak_memory
from colligate.probes import Probes
from colligate.records import Row, content_key, read_record, read_table, run_facts, settings, write_record
from colligate.scenes.space import ConceptSpace, Scenes

AGAINST = ("recognition.object.unseen.swaps", "recognition.object.unseen.table", "recognition.object.seen.table")
"""What of a training is set against the fits: the fairest first, then the paper's own."""
MIN_MODELS = 8
"""Fewest models for an interval of a correlation."""


@dataclass(frozen=True, kw_only=True)
class StructureConfig:
    """Which trained models, and which rules are fitted to them."""

    trained: tuple[Path, ...]
    """Folders that `train` or `sweep` left."""
    families: tuple[str, ...] = ("additive", "object_product", "global_product", "mlp64")
    """Rules that are fitted (`colligate complexity --help`)."""
    coverages: tuple[float, ...] = (0.5,)
    """Shares of the objects that the rules are fitted on, at random, whatever training showed."""
    heads: Literal["probes", "queries"] = "probes"
    """What reads the rules' predictions: linear probes, or the model's own query vectors (the paper)."""
    scenes: int = 20_000
    """Most scenes of two objects that a model is asked for; a seeded choice of all ordered pairs."""
    seed: int = 0
    """Of choices and resamplings."""
    runs: Path = Path("runs")
    """Folder of run folders."""
    force: bool = False
    """Fit again even if the same run is finished."""

    def __post_init__(self) -> None:
        if not self.trained:
            raise ValueError("Name one or more folders that `train` or `sweep` left.")


class Structure(NamedTuple):
    """A finished comparison of trained models.

    Attributes:
        folder: its run folder.
        rows: correlations over models, and each family's mean.
        models: for each model, its settings, its recognition and every family's recognition.
        record: what was done.
    """

    folder: Path
    rows: list[Row]
    models: list[dict[str, Any]]
    record: Mapping[str, Any]


def structure(config: StructureConfig, report: Report | None = None) -> Structure:
    """Fit rules to the scene encoders of trained models, and set how well they carry over against how well it binds.

    For each model: all ordered pairs of a sub-grid of some 400 objects (or a seeded choice) are embedded; each rule is
    fitted on the scenes of half the objects and predicts scenes of the other half; `structure.object` is the share of
    predictions in which the objects are recognized. Over models, `structure.correlation` is Pearson's r of that share
    with the model's own recognition of objects that training never showed, which is a match between its two towers:

        r = cor over models (recognition of unseen objects, recognition through the rule's predictions)

    with an interval that resamples models; `structure.rank` is Spearman's.

    Args:
        config: which models and rules.
        report: told how far it is.

    Raises:
        ValueError: a folder that is neither a training nor a sweep.

    Paper: arXiv:2605.31503, Figures 7, 8 and 9.
    Differs: linear probes read by default (the paper: query vectors); rules are fitted to convergence and chosen on
    validation objects; correlations carry intervals and are given for the fair score too.
    """
    folders = [folder for given in config.trained for folder in _trainings(given)]
    records = [read_record(folder) for folder in folders]
    facts = {"kind": "structure", "version": __version__, "config": settings(config) | {"trained": None},
             "models": [folder.name for folder in folders]}  # fmt: skip
    folder = config.runs / f"structure-{content_key(facts)}"
    if (folder / "record.json").is_file() and not config.force:
        import json

        models = json.loads((folder / "figures.json").read_text(encoding="utf-8"))["models"]
        return Structure(folder, read_table(folder / "table.csv"), models, read_record(folder))
    clock, models = Clock(), list[dict[str, Any]]()
    with fitting_threads() as threads, clock.stage("models"):
        for i, (of_model, record) in enumerate(zip(folders, records, strict=True)):
            if report is not None:
                report("models", i, len(folders))
            models.append(_model(of_model, record, config))
    rows = structure_rows(models, seed=config.seed)
    record = run_facts(
        "structure", f"{len(models)} trained models", config, seconds=clock.seconds, memory=peak_memory()
    ) | {"config": settings(config) | {"trained": [str(f) for f in folders]}, "threads": threads}  # fmt: skip
    write_record(folder, record, rows, {"models": models}, {})
    return Structure(folder, rows, models, read_record(folder))


def _trainings(folder: Path) -> list[Path]:
    """The folder itself if it is a training; those that it names if it is a sweep."""
    kind = read_record(folder).get("kind")
    if kind == "train":
        return [folder]
    if kind == "sweep":
        with (folder / "runs.csv").open(newline="", encoding="utf-8") as file:
            return [folder.parent / row["folder"] for row in csv.DictReader(file)]
    raise ValueError(f"{folder} is a run of kind {kind!r}; name folders that `train` or `sweep` left.")


def _model(folder: Path, record: Mapping[str, Any], config: StructureConfig) -> dict[str, Any]:
    """One model's settings, its own recognition, and each rule's."""
    towers = load(str(folder), LoadOptions()).towers
    if "scene" not in towers:
        raise ValueError(
            f"{folder} was trained on pictures and reads no token scenes; take colligate complexity run:{folder}."
        )
    tower = cast("TrainedTower", towers["scene"])
    scenes = _grid_scenes(tower, config)
    embeddings = Embeddings(tower.embed(scenes), scenes)
    curve = CurveSettings(
        families=config.families, coverages=config.coverages, seeds=1, pooled=4, seed=config.seed, draws=1
    )  # fmt: skip
    readers = Readers.same(_query_heads(tower, scenes), scenes) if config.heads == "queries" else None
    curves = coverage_curve(embeddings, curve, readers=readers)
    trained, own = cast("Mapping[str, Any]", record["config"]), read_table(folder / "table.csv")
    return {
        "run": folder.name,
        **{key: trained.get(key) for key in ("concepts", "values", "coverage", "encoder", "width", "seed", "penalty")},
        "recognition": {row.id: row.value for row in own if row.value is not None},
        "rules": [
            {
                "family": point.family, "coverage": point.coverage, "object": point.mean("object"),
                "concept": point.mean("concept"), "r2": point.r2, "sound": point.solid,
            }
            for point in curves.points if point.reason is None
        ],
        "ceiling": [{"coverage": p.coverage, "object": p.mean("object")} for p in curves.ceiling],
    }  # fmt: skip


def _grid_scenes(tower: TrainedTower, config: StructureConfig) -> Scenes:
    """Ordered pairs of the sub-grid's objects: all of them, or a seeded choice."""
    space = ConceptSpace(
        dict(zip(tower.network.space.names, map(int, tower.grid.removeprefix("grid:").split("x")), strict=True))
    )
    pairs = space.num_objects**2
    generator = torch.Generator().manual_seed(config.seed)
    chosen = torch.arange(pairs) if pairs <= config.scenes else torch.randperm(pairs, generator=generator)
    chosen = chosen[: config.scenes].sort().values
    return space.scenes(torch.stack([chosen // space.num_objects, chosen % space.num_objects], dim=1))


def _query_heads(tower: TrainedTower, scenes: Scenes) -> Probes:
    """The model's query vectors as read-outs of its scenes."""
    space, trained = scenes.space, tower.network.space
    objects = trained.object_ids(space.object_values(torch.arange(space.num_objects)))
    values = tuple(of[:size] for of, size in zip(tower.value_queries(), space.sizes, strict=True))
    known = scenes.contains_objects().any(0)
    return Probes(space, values, tower.object_queries(objects), {}, {}, {}, known)


def structure_rows(models: Sequence[Mapping[str, Any]], *, seed: int = 0) -> list[Row]:
    """Each rule's mean recognition over models, and its correlation with the models' own.

    Args:
        models: as `structure` gathers them.
        seed: of the resamplings.

    Example:
        >>> models = [{"recognition": {AGAINST[0]: x}, "rules": [{"family": "additive", "coverage": 0.5, "object": x,
        ...     "concept": 1.0, "r2": x, "sound": True}], "ceiling": []} for x in (0.1, 0.5, 0.9)]
        >>> [(row.id, row.value) for row in structure_rows(models) if row.id == "structure.correlation"]
        [('structure.correlation', 1.0)]
    """
    found = list[Row]()
    keys = sorted({(r["family"], r["coverage"]) for model in models for r in model["rules"]})
    for family, coverage in keys:
        rules = [_rule(model, family, coverage) for model in models]
        there = [rule for rule in rules if rule is not None]
        for measure in ("object", "concept", "r2"):
            values = [rule[measure] for rule in there if rule[measure] == rule[measure]]
            found.append(Row(
                id=f"structure.{measure}", on="test", family=family, coverage=coverage, n=len(values),
                value=sum(values) / len(values) if values else None, seeds=len(values) or None,
                reason=None if values else "no model gave a value",
            ))  # fmt: skip
        for against in AGAINST:
            pairs = [
                (model["recognition"][against], rule["object"]) for model, rule in zip(models, rules, strict=True)
                if rule is not None and against in model["recognition"] and rule["object"] == rule["object"]
            ]  # fmt: skip
            found += _correlations(pairs, family, coverage, against, seed)
    return found


def _rule(model: Mapping[str, Any], family: str, coverage: float) -> Mapping[str, Any] | None:
    return next((r for r in model["rules"] if (r["family"], r["coverage"]) == (family, coverage)), None)


def _correlations(
    pairs: Sequence[tuple[float, float]], family: str, coverage: float, against: str, seed: int
) -> Iterable[Row]:
    """Pearson's and Spearman's, with intervals that resample models."""
    both = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2)
    suffix = "" if against == AGAINST[0] else "." + against.removeprefix("recognition.object.")
    for id, points in (("structure.correlation", both), ("structure.rank", _ranks(both))):
        base = Row(id=f"{id}{suffix}", on="test", family=family, coverage=coverage, n=len(points), chance=0.0)
        value = _pearson(points[None])[0] if len(points) > 2 else torch.tensor(torch.nan)
        if bool(value.isnan()):
            yield replace(base, reason="a correlation needs three models that differ in both")
            continue
        low = high = reason = None
        if len(points) < MIN_MODELS:
            reason = f"no interval: {len(points)} models (needs {MIN_MODELS})"
        else:
            generator = torch.Generator().manual_seed(seed)
            drawn = _pearson(points[torch.randint(len(points), (2000, len(points)), generator=generator)])
            low, high = torch.nanquantile(drawn, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        yield replace(base, value=round(float(value), 12), low=low, high=high, reason=reason)


def _pearson(points: Tensor) -> Tensor:
    """R of each set of points; NaN where one of the two doesn't vary."""
    centred = points - points.mean(1, keepdim=True)
    norms = centred.norm(dim=1)
    product = (centred[..., 0] * centred[..., 1]).sum(1)
    return torch.where(norms.prod(1) > 1e-12, product / norms.prod(1).clamp(min=1e-12), torch.nan)


def _ranks(points: Tensor) -> Tensor:
    """Ranks of each column; equal values share their mean rank."""
    columns = list[Tensor]()
    for column in points.unbind(1):
        below = (column[None] < column[:, None]).sum(1)
        equal = (column[None] == column[:, None]).sum(1)
        columns.append(below.double() + (equal.double() - 1) / 2)
    return torch.stack(columns, dim=1)
