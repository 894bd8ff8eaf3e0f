"""Do models that match across their towers follow a simple rule? Rules fitted to the towers of many models."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from colligate.engine import Clock, Report
from colligate.records import (
    Row,
    WorkError,
    content_key,
    one_writer,
    open_run,
    read_record,
    read_sealed,
    sealed_json,
    settings,
    write_atomic,
)
from colligate.runs import Findings, Measurements, carry_out
from colligate.verbs.config import RuleSettings, StructureConfig
from colligate.verbs.matched import MATCHES, given_models, setting_of, trained_model
from colligate.version import __version__

GIVEN = ("study", "complexity", "recognize")
"""Kinds of runs of models that weren't trained here: those that tell how simple a tower is, and how well two match."""
MEASURES = ("object", "r2")
"""What of a rule is set against matching: objects recognised in its predictions of other objects' scenes, and the
variance that it explains there."""
MIN_MODELS = 8
"""Fewest models for an interval of a correlation."""
DRAWS = 2000
"""Resamplings of models behind every interval."""


@one_writer
def structure(config: StructureConfig, *, save: bool = True, report: Report | None = None) -> Findings:
    """Fit rules to both towers of many models, and set how far they carry over against how well the towers match.

    For each tower of each model: scenes of about 400 objects (or a seeded choice) are embedded; each rule is fitted on
    the scenes of half the objects and predicts scenes of the other half. `structure.TOWER.object` is the share of
    predictions in which the objects are recognised, `structure.TOWER.r2` the variance explained. Over models,

        r = cor over models (match between the two towers, how far a rule of one of them carries over)

    where the match is recognition of objects that training never showed (of a model that wasn't trained here: of all).
    More coverage may make towers simpler and make them match, each for its own reason; so `within` is the correlation
    of what is left once every model is compared with those that differ from it in their seed alone:

        r within = cor over models (match - mean match of its setting, rule - mean rule of its setting)

    And what isn't in the vectors is not in a rule's predictions of them either: where the model's own queries read, a
    model whose towers match reads more of the true vectors to begin with. `ceiling` is what is recognised in those, and
    `beyond` the partial correlation of match and rule given the ceiling.

    Intervals resample models.

    Args:
        config: which models and rules.
        save: whether to leave a run's folder, and to keep each model's rules for later calls.
        report: told how far it is.

    Returns:
        Correlations over models, each family's mean, and under `figures["models"]` for each model its settings, how
        well its towers match and every rule of each tower.

    Raises:
        ValueError: a folder of another kind, or a model of which runs are missing.

    Paper: arXiv:2605.31503, Figures 7, 8 and 9, and its causal claim.
    Differs: linear probes read by default (the paper: query vectors); rules are fitted to convergence and chosen on
    validation objects; correlations carry intervals and are given for both towers, the fair score and within settings.
    """
    trained, given = list[Path](), list[Path]()
    for folder in config.models:
        if read_record(folder).get("kind") in GIVEN:
            given.append(folder)
        else:
            trained += _trainings(folder)
    asked = settings(config) | {"models": None}
    facts = {"config": asked, "models": [folder.name for folder in (*trained, *given)]}
    clock = Clock()

    def measure() -> Measurements:
        with clock.stage("models"):
            models = given_models(given)
            for i, of_model in enumerate(trained):
                if report is not None:
                    report("models", i, len(trained))
                models.append(_fitted(of_model, config, save=save))
        rows = structure_rows(models, seed=config.seed)
        doubts = [doubt for of_model in (*trained, *given) for doubt in open_run(of_model).doubts]
        told = {"name": f"{len(models)} models", "config": asked | {"models": [str(f) for f in config.models]}}
        return Measurements(rows, {"models": models}, notes=doubts, facts=told)

    return carry_out("structure", config, facts, measure, name="models", clock=clock, save=save)


def _fitted(folder: Path, config: StructureConfig, *, save: bool) -> dict[str, Any]:
    """A model with its rules; an earlier call that fitted the same ones to it is found, so a killed run goes on."""
    asked = {field.name: getattr(config, field.name) for field in fields(RuleSettings)}
    key = content_key({"run": folder.name, "version": __version__, "rules": asked})
    kept = config.runs / ".rules" / f"{key}.json"
    if kept.is_file() and not config.force:
        with suppress(WorkError):  # a damaged one is fitted again
            return read_sealed(kept, "fit it again", of=key)
    model = trained_model(folder, config)
    if save:
        write_atomic(kept, sealed_json(kept.name, model, of=key))
    return model


def _trainings(folder: Path) -> list[Path]:
    """The folder itself if it is a training; those that it names if it is a sweep."""
    run = open_run(folder)
    kind = run.record.get("kind")
    if kind == "train":
        return [folder]
    if kind == "sweep":
        trained = csv.DictReader(io.StringIO(run.content("runs.csv").decode(), newline=""))
        names = [row["folder"] for row in trained]
        if outside := [name for name in names if Path(name).name != name]:
            raise ValueError(f"{folder / 'runs.csv'} names {outside[0]!r}, which is no run beside it; sweep again.")
        return [folder.parent / name for name in names]
    raise ValueError(
        f"{folder} is a run of kind {kind!r}; name folders that train, sweep, study, complexity or recognize left."
    )


def structure_rows(models: Sequence[Mapping[str, Any]], *, seed: int = 0) -> list[Row]:
    """Each rule's mean over models, and its correlation with how well the two towers match.

    Args:
        models: as `structure` gathers them.
        seed: of the resamplings.

    Example:
        >>> rule = {"family": "additive", "coverage": 0.5, "concept": 1.0, "r2": 0.5, "sound": True}
        >>> models = [{"matching": {"swaps": x}, "fits": {"scene": {"rules": [rule | {"object": x}], "ceiling": []}}}
        ...     for x in (0.1, 0.5, 0.9)]
        >>> [(row.id, row.value) for row in structure_rows(models) if row.id.endswith(".correlation")]
        [('structure.scene.object.correlation', 1.0), ('structure.scene.r2.correlation', None)]
    """
    found = list[Row]()
    towers = {tower: None for model in models for tower in model["fits"]}  # in order, each once
    for tower in towers:
        of_tower = [(model, model["fits"][tower]) for model in models if tower in model["fits"]]
        for family, coverage in sorted({(r["family"], r["coverage"]) for _, fit in of_tower for r in fit["rules"]}):
            pairs = [(model, _rule(fit, family, coverage)) for model, fit in of_tower]
            there = [(model, rule) for model, rule in pairs if rule is not None]
            for measure in (*MEASURES, "concept"):
                values = [rule[measure] for _, rule in there if _is_number(rule[measure])]
                found.append(Row(
                    id=f"structure.{tower}.{measure}", on="test", family=family, coverage=coverage, n=len(values),
                    value=sum(values) / len(values) if values else None, seeds=len(values) or None,
                    reason=None if values else "no model gave a value",
                ))  # fmt: skip
            for measure in MEASURES:
                for against in MATCHES:
                    points = _points(there, tower, measure, against)
                    for row in _correlations(points, f"structure.{tower}.{measure}", against, seed):
                        found.append(replace(row, family=family, coverage=coverage))
        found += _ceilings(of_tower, tower, seed)
    return found


def _ceilings(of_tower: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], tower: str, seed: int) -> Iterable[Row]:
    """What is recognised in the true vectors: its mean over models, and its own correlation with the match."""
    for coverage in sorted({point["coverage"] for _, fit in of_tower for point in fit["ceiling"]}):
        known = [(model, _ceiling(fit, coverage)) for model, fit in of_tower]
        there = [(model, {"ceiling": value, "coverage": coverage}) for model, value in known if value is not None]
        values = [value for _, value in known if value is not None]
        yield Row(
            id=f"structure.{tower}.ceiling", on="test", coverage=coverage, n=len(values), seeds=len(values) or None,
            value=sum(values) / len(values) if values else None, reason=None if values else "no model gave a value",
        )  # fmt: skip
        for against in MATCHES:
            points = _points(there, tower, "ceiling", against)
            for row in _correlations(points, f"structure.{tower}.ceiling", against, seed):
                if ".correlation" in row.id:
                    yield replace(row, coverage=coverage)


def _ceiling(fit: Mapping[str, Any], coverage: float) -> float | None:
    found = next((point["object"] for point in fit["ceiling"] if point["coverage"] == coverage), None)
    return found if _is_number(found) else None


def _rule(fit: Mapping[str, Any], family: str, coverage: float) -> Mapping[str, Any] | None:
    return next((r for r in fit["rules"] if (r["family"], r["coverage"]) == (family, coverage)), None)


def _is_number(value: float | None) -> bool:
    return value is not None and value == value


class _Points(NamedTuple):
    """Of each model: how well its towers match, what one of its rules reaches, its ceiling, and its setting."""

    both: Float[Tensor, "model 2"]
    ceilings: Float[Tensor, " model"]
    settings: list[int]


def _points(
    there: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], tower: str, measure: str, against: str
) -> _Points:
    """Of the models that have both; a ceiling that isn't known is not a number."""
    both, settings, known = list[tuple[float, float]](), list[int](), dict[tuple[object, ...], int]()
    ceilings = list[float]()
    for model, rule in there:
        if against in model["matching"] and _is_number(rule[measure]):
            both.append((model["matching"][against], rule[measure]))
            settings.append(known.setdefault(setting_of(model), len(known)))
            ceiling = _ceiling(model["fits"][tower], rule["coverage"])
            ceilings.append(torch.nan if ceiling is None else ceiling)
    pairs = torch.tensor(both, dtype=torch.float64).reshape(-1, 2)
    return _Points(pairs, torch.tensor(ceilings, dtype=torch.float64), settings)


def _correlations(points: _Points, prefix: str, against: str, seed: int) -> Iterable[Row]:
    """Pearson's, Spearman's, within settings, and given the ceiling, with intervals that resample models."""
    suffix = "" if against == "swaps" else f".{against}"
    left, several = _within(points)
    enough = {"correlation": points.both, "rank": _ranks(points.both), "within": left[several]}
    if prefix.endswith(".object"):
        enough["beyond"] = torch.cat([points.both, points.ceilings[:, None]], 1)[~points.ceilings.isnan()]
    for name, both in enough.items():
        base = Row(id=f"{prefix}.{name}{suffix}", on="test", n=len(both), chance=0.0)
        value = _pearson(both[None])[0] if len(both) > 2 else torch.tensor(torch.nan)
        if bool(value.isnan()):
            yield replace(base, reason=f"a correlation needs {_NEEDS.get(name, 'three models that differ in both')}")
            continue
        low = high = reason = None
        if len(both) < MIN_MODELS:
            reason = f"no interval: {len(both)} models (needs {MIN_MODELS})"
        else:
            generator = torch.Generator().manual_seed(seed)
            drawn = _pearson(both[torch.randint(len(both), (DRAWS, len(both)), generator=generator)])
            low, high = torch.nanquantile(drawn, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        yield replace(base, value=round(float(value), 12), low=low, high=high, reason=reason)


_NEEDS = {
    "within": "settings of several seeds whose models differ in both",
    "beyond": "three models that differ in both and whose ceilings are known",
}


def _within(points: _Points) -> tuple[Float[Tensor, "model 2"], Tensor]:
    """Points less the mean of their setting, and which of them belong to a setting of several models."""
    which = torch.tensor(points.settings, dtype=torch.int64)
    number = torch.bincount(which, minlength=1).double()
    sums = torch.zeros(len(number), 2, dtype=torch.float64).index_add_(0, which, points.both)
    return points.both - (sums / number.clamp(min=1)[:, None])[which], number[which] > 1


def _pearson(points: Tensor) -> Tensor:
    """R of each set of points, partial given a third column that varies; NaN where one of the two doesn't vary."""
    if points.shape[2] == 3:
        of, first, second = (_pearson(points[..., pair]) for pair in ([0, 1], [0, 2], [1, 2]))
        left = (1 - first**2) * (1 - second**2)
        partial = (of - first * second) / left.clamp(min=1e-12).sqrt()
        return torch.where(first.isnan() | second.isnan(), of, torch.where(left > 1e-9, partial, torch.nan))
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
