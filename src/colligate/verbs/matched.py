"""One model of two towers: how simple a rule each tower follows, and how well the two match on objects never seen."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from colligate.approximation.approximators import Data, Fitted
from colligate.approximation.curves import CurveSettings, coverage_curve
from colligate.approximation.families import family
from colligate.approximation.readers import Readers
from colligate.crossmodal.queries import embed_queries
from colligate.embedders.embedding import embed
from colligate.embedders.towers import LoadOptions
from colligate.embedders.trained import TrainedTower, load
from colligate.embedders.trained_pair import TrainedPairTower
from colligate.embeddings import Embeddings
from colligate.measures import recognise
from colligate.probes import Probes
from colligate.records import Row, open_run
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByObject, Split
from colligate.scenes.worlds import World, load_world
from colligate.verbs.config import RuleSettings

OBJECT_SPLITS = 4
"""Divisions of the objects on which rules for a tower of single objects are fitted."""
MATCHES: Mapping[str, tuple[str, ...]] = {
    "swaps": ("recognition.object.unseen.swaps", "crossmodal.object.swap"),
    "table": ("recognition.object.unseen.table", "crossmodal.object"),
    "seen": ("recognition.object.seen.table",),
}
"""How well two towers match -> the measurement that says so, of a model trained here or of any other; the first is the
fairest, the second the paper's own, the third is of objects that training showed."""


def trained_model(folder: Path, settings: RuleSettings) -> dict[str, Any]:
    """Rules of both towers of a model that `train` left, and its own recognition.

    A scene tower is asked for ordered pairs of a sub-grid's objects. So is `shared`, an encoder that reads both scenes
    and queries: there the two match wherever it treats a scene as the sum of its objects, however it maps those. A
    query tower of its own is a map of single objects where queries are tokens, of captions where they are texts.

    Args:
        folder: a run of `train`.
        settings: which rules.
    """
    run, model = open_run(folder), load(str(folder), LoadOptions())
    kind = "pictures" if "picture" in model.towers else "scenes"
    fits = _of_pictures(model.towers, settings) if kind == "pictures" else _of_scenes(model.towers, settings)
    trained, own = cast("Mapping[str, Any]", run.record["config"]), run.rows
    of_model = {key: trained.get(key) for key in SETTINGS}
    return {"run": folder.name, "kind": kind, **of_model, "matching": matching(own), "fits": fits}


SETTINGS = (
    "concepts", "values", "shapes", "coverage", "hold_out", "encoder", "towers", "width", "layers", "steps",
    "caption_loss", "object_loss", "scenes", "penalty", "penalty_weight", "seed",
)  # fmt: skip
"""What of a training is kept beside its numbers; models that differ in their seed alone are one setting."""


def matching(rows: Iterable[Row]) -> dict[str, float]:
    """How well the towers match, by the names in `MATCHES`, as far as these rows tell.

    Example:
        >>> matching([Row(id="crossmodal.object", on="all", value=0.25)])
        {'table': 0.25}
    """
    found = {row.id: row.value for row in rows if row.family is None or row.id.startswith("recognition.")}
    named = {name: next((found[id] for id in ids if found.get(id) is not None), None) for name, ids in MATCHES.items()}
    return {name: value for name, value in named.items() if value is not None}


def _of_scenes(towers: Mapping[str, Any], settings: RuleSettings) -> dict[str, Any]:
    tower = cast("TrainedTower", towers["scene"])
    sizes = map(int, tower.grid.removeprefix("grid:").split("x"))
    space = ConceptSpace(dict(zip(tower.network.space.names, sizes, strict=True)))
    scenes = _pairs(space, settings)
    objects = tower.network.space.object_ids(space.object_values(torch.arange(space.num_objects)))
    values = tuple(of[:size] for of, size in zip(tower.value_queries(), space.sizes, strict=True))
    asked = tower.object_queries(objects)
    seen = Embeddings(tower.embed(scenes), scenes)
    of_scenes = _curve(seen, (values, asked), settings)
    if tower.network.query is tower.network.scene:
        return {"shared": of_scenes}
    return {"scene": of_scenes, "query": object_rules(asked, seen, settings)}


def _of_pictures(towers: Mapping[str, Any], settings: RuleSettings) -> dict[str, Any]:
    pictures, texts = (cast("TrainedPairTower", towers[kind]) for kind in ("picture", "text"))
    whole = load_world(pictures.grid)
    world = World(whole.name, _pairs(whole.scenes.space, settings), whole.captions, whole.pictures)
    queries = embed_queries(texts, world)
    values = None if queries.concepts is None else tuple(normalize(of, dim=1) for of in queries.concepts)
    heads = None if values is None else (values, normalize(queries.objects, dim=1))
    return {
        tower.kind: _curve(embed(tower, world), heads, settings) for tower in (pictures, texts)
    }  # fmt: skip


def _pairs(space: ConceptSpace, settings: RuleSettings) -> Scenes:
    """Ordered pairs of a space's objects: all of them, or a seeded choice."""
    pairs = space.num_objects**2
    chosen = torch.arange(pairs)
    if pairs > settings.scenes:
        chosen = torch.randperm(pairs, generator=torch.Generator().manual_seed(settings.seed))[: settings.scenes]
    chosen = chosen.sort().values
    return space.scenes(torch.stack([chosen // space.num_objects, chosen % space.num_objects], dim=1))


Heads = tuple[tuple[Float[Tensor, "_ dim"], ...], Float[Tensor, "object dim"]]
"""The model's own queries for values, concept by concept, and for objects."""


def _curve(embeddings: Embeddings, heads: Heads | None, settings: RuleSettings) -> dict[str, Any]:
    """Rules fitted to scenes of two objects, and what is read from the true vectors."""
    curve = CurveSettings(
        families=settings.families, coverages=settings.coverages, seeds=1, pooled=4, seed=settings.seed
    )  # fmt: skip
    readers, scenes = None, embeddings.scenes
    if settings.heads == "queries":
        if heads is None:
            raise ValueError("This model has no queries for single values; let probes read: --heads probes.")
        probes = Probes(scenes.space, heads[0], heads[1], {}, {}, {}, scenes.contains_objects().any(0))
        readers = Readers.same(probes, scenes)
    curves = coverage_curve(embeddings, curve, readers=readers)
    return {
        "rules": [
            {
                "family": point.family, "coverage": point.coverage, "object": point.mean("object"),
                "concept": point.mean("concept"), "r2": point.r2, "sound": point.solid,
            }
            for point in curves.points if point.reason is None
        ],
        "ceiling": [{"coverage": p.coverage, "object": p.mean("object")} for p in curves.ceiling],
    }  # fmt: skip


def object_rules(queries: Float[Tensor, "object dim"], scenes: Embeddings, settings: RuleSettings) -> dict[str, Any]:
    """Rules fitted to the vectors that ask for objects, and how far they carry over to other objects.

        object: share of scenes of other objects in which all objects are recognised if the rule asks for those, and the
        model itself for all else; the ceiling is what the model's own queries recognise there

    Args:
        queries: of every object of the scenes' space, in their order, all of one length.
        scenes: vectors of scenes of these objects, which are true to the model.
        settings: which rules; they are fitted on several divisions of the objects.

    Example:
        >>> from colligate.binding import object_product
        >>> space = ConceptSpace(color=6, shape=6)
        >>> queries = normalize(object_product(space, 1, 128)(space.all_scenes(slots=1).values).float(), dim=1)
        >>> scenes = space.all_scenes(slots=2)
        >>> seen = Embeddings(queries[scenes.objects].sum(1), scenes)
        >>> found = object_rules(queries, seen, RuleSettings(families=("additive", "object_product"), coverages=(0.7,)))
        >>> [(rule["family"], rule["object"] > 0.9) for rule in found["rules"]]
        [('additive', False), ('object_product', True)]
    """
    singles = scenes.scenes.space.all_scenes(slots=1)
    data = Data.of(Embeddings(queries, singles))
    found, ceiling = list[dict[str, Any]](), list[dict[str, Any]]()
    for coverage in settings.coverages:
        splits = [
            ByObject(coverage=coverage, unseen="report").split(singles, settings.seed + i) for i in range(OBJECT_SPLITS)
        ]
        own = torch.cat([_asked(queries, scenes, split) for split in splits])
        ceiling.append({"coverage": coverage, "object": float(own.mean())})
        for name in settings.families:
            fits = family(name).fit(data, splits, settings.seed)
            each = [_carried(data, queries, scenes, fit, split) for fit, split in zip(fits, splits, strict=True)]
            hits, errors, totals = (torch.cat(part) for part in zip(*each, strict=True))
            sound = sum(fit.identified is not False for fit in fits) > len(fits) / 2
            found.append({
                "family": name, "coverage": coverage, "object": float(hits.mean()), "concept": None,
                "r2": 1 - float(errors.sum() / totals.sum()), "sound": sound,
            })  # fmt: skip
    return {"rules": found, "ceiling": ceiling}


def _asked(queries: Float[Tensor, "object dim"], scenes: Embeddings, split: Split) -> Float[Tensor, " scene"]:
    """Whether all objects are recognised, of scenes of test objects alone."""
    other = torch.ones(len(queries), dtype=torch.bool)
    other[split.test] = False
    present = scenes.scenes.contains_objects()
    within = ~present[:, other].any(1)
    return recognise(scenes.vectors[within].float() @ queries.T, present[within]).hits.double()


def _carried(
    data: Data, queries: Tensor, scenes: Embeddings, fitted: Fitted, split: Split
) -> tuple[Tensor, Tensor, Tensor]:
    """Of scenes of test objects alone: hits; of each test object: squared error, and distance from the fit mean."""
    rows = split.test
    predicted, true = fitted.rule(data.scenes[rows]), data.targets[rows]
    asked = queries.clone()
    asked[rows] = normalize(data.frame.restore(predicted), dim=1)
    centre = data.targets[split.fit].double().mean(0)
    return (
        _asked(asked, scenes, split),
        (true.double() - predicted.double()).square().sum(1),
        (true.double() - centre).square().sum(1),
    )


def given_models(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Models that were studied and asked elsewhere: runs of `study` or `complexity`, and of `recognize`.

    Runs belong together when they name the same model and the same scenes. A model's rules are those its runs of
    `study` or `complexity` hold, tower by tower; its matching is what `recognize` found.

    Raises:
        ValueError: a model of which one of the two is missing; the message says which and how to make it.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for folder in folders:
        run = open_run(folder)
        record, rows = run.record, run.rows
        inputs = cast("Mapping[str, Mapping[str, Any]]", record["inputs"])
        name, world = str(inputs["model"]["name"]), inputs["world"]
        model = found.setdefault((name, str(world["content_hash"])), {
            "run": name, "kind": "given", "world": world["name"], "encoder": name, "matching": {}, "fits": {},
        })  # fmt: skip
        if record["kind"] == "recognize":
            model["matching"] = matching(rows)
        elif rules := _rules_of(rows):
            model["fits"][str(inputs["model"].get("kind", "scene"))] = rules
    for (name, _), model in found.items():
        world = model["world"]
        if not model["fits"]:
            raise ValueError(
                f"No run tells how simple {name} is: add one of colligate complexity {name} --scenes {world}."
            )
        if not model["matching"]:
            raise ValueError(
                f"No run tells how well the towers of {name} match: add one of colligate recognize {name} "
                f"--scenes {world}."
            )
    return list(found.values())


def _rules_of(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The rules that a table of `complexity` holds."""
    points: dict[tuple[str, float], dict[str, Any]] = {}
    for row in rows:
        measure = row.id.removeprefix("complexity.")
        if row.value is not None and row.family and row.coverage is not None and measure in RULE_MEASURES:
            empty = {"family": row.family, "coverage": row.coverage, "object": None, "concept": None, "r2": None}
            points.setdefault((row.family, row.coverage), empty | {"sound": True})[RULE_MEASURES[measure]] = (
                row.value > 0.5 if measure == "sound" else row.value
            )
    ceiling = [
        {"coverage": row.coverage, "object": row.value} for row in rows
        if row.id == "complexity.ceiling.object" and row.value is not None
    ]  # fmt: skip
    return {"rules": list(points.values()), "ceiling": ceiling} if points else None


RULE_MEASURES: Mapping[str, str] = {"object": "object", "concept": "concept", "r2": "r2", "sound": "sound"}
"""Last part of an id of `complexity` -> what it is called of a rule."""


def setting_of(model: Mapping[str, Any]) -> tuple[object, ...]:
    """What a model shares with those that differ from it in their seed alone.

    Example:
        >>> setting_of({"run": "train-a", "kind": "scenes", "seed": 1}) == setting_of({"kind": "scenes", "seed": 2})
        True
    """
    return (model.get("kind"), *(model.get(key) for key in SETTINGS if key != "seed"))
