"""Points and examples behind the figures of question 1, as plain data."""

from collections.abc import Mapping, Sequence

import torch

from colligate.geometry.editing import editors
from colligate.geometry.interventions import concept_edits, retrieve_edits
from colligate.geometry.projections import principal_axes, quadruple, scaled_distances
from colligate.geometry.subject import Subject
from colligate.scenes.space import Scenes

MOST_SCENES = 2000
"""Scenes shown as points."""


def views(subject: Subject) -> dict[str, object]:
    """Everything that the page draws beside its tables; a view that this subject doesn't allow is left out."""
    found: dict[str, object] = {"objects": _objects(subject), "scenes": _scenes(subject)}
    for name, view in (("quadruple", _quadruple(subject)), ("edit_examples", _edit_examples(subject))):
        if view:
            found[name] = view
    return found


def describe(subject: Subject, row: int) -> str:
    """The caption of a scene, or its words."""
    captions = subject.embeddings.captions
    return subject.scenes.describe(row) if captions is None else captions[row]


def _points(coordinates: Sequence[Sequence[float]], labels: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    return [{**label, "x": x, "y": y, "z": z} for label, (x, y, z) in zip(labels, coordinates, strict=True)]


def _words(scenes: Scenes, object_id: int) -> dict[str, str]:
    values = scenes.space.object_values(torch.tensor(object_id)).tolist()
    return {name: words[v] for name, words, v in zip(scenes.space.names, scenes.space.words, values, strict=True)}


def _objects(subject: Subject) -> dict[str, object]:
    components = subject.decomposition("object.avg", "all").components
    known = torch.isfinite(components).all(1).nonzero()[:, 0]
    projection = principal_axes(components[known])
    labels = [
        {"label": name, "hover": name, "values": _words(subject.scenes, o)}
        for o in known.tolist()
        for name in (subject.scenes.space.describe_object(o),)
    ]
    return {
        "points": _points(projection.points.tolist(), labels), "method": projection.method,
        "explained": list(projection.explained),
    }  # fmt: skip


def _scenes(subject: Subject) -> dict[str, object]:
    generator = torch.Generator().manual_seed(subject.settings.seed)
    rows = torch.randperm(len(subject.embeddings), generator=generator)[:MOST_SCENES].sort().values
    projection = principal_axes(subject.embeddings.vectors[rows])
    labels = [
        {
            "label": subject.scenes.describe(row), "hover": describe(subject, row),
            "values": _words(subject.scenes, next(o for o in subject.scenes.objects[row].tolist() if o >= 0)),
        }
        for row in rows.tolist()
    ]  # fmt: skip
    return {
        "points": _points(projection.points.tolist(), labels), "method": projection.method,
        "explained": list(projection.explained),
    }  # fmt: skip


def _quadruple(subject: Subject) -> dict[str, object] | None:
    wide = [c for c, size in enumerate(subject.scenes.space.sizes) if size > 1][:2]
    if len(wide) < 2:
        return None
    try:
        found = quadruple(subject.embeddings, {wide[0]: (0, 1), wide[1]: (0, 1)})
    except ValueError:
        return None  # the world leaves out a scene of it (exclusions of shared values never do, small tables may)
    projection = scaled_distances(found.vectors)
    groups, pair = list[str](), 0
    for kind in found.kinds:
        groups.append(f"pair {pair}" if kind in ("scene", "sum") else kind)
        pair += kind == "sum"
    labels = [
        {"label": label, "hover": label, "kind": kind, "group": group}
        for label, kind, group in zip(found.labels, found.kinds, groups, strict=True)
    ]
    return {
        "points": _points(projection.points.tolist(), labels), "method": projection.method,
        "stress": projection.stress,
    }  # fmt: skip


def _edit_examples(subject: Subject, most: int = 8) -> list[dict[str, object]]:
    ways, _ = editors(subject, "all")
    edits = concept_edits(subject.scenes, 0).draw(1000, subject.settings.seed)
    name = next((n for n in ("avg+pos", "avg") if n in ways), None)
    if name is None or not len(edits):
        return []
    outcomes = retrieve_edits(subject.embeddings, edits, {name: ways[name]})[name]
    hits = (outcomes.hits == 1).nonzero()[:, 0].tolist()
    misses = (outcomes.hits == 0).nonzero()[:, 0].tolist()
    shown = hits[: most - min(len(misses), most // 2)] + misses[: most // 2]
    space, examples = subject.scenes.space, list[dict[str, object]]()
    for i in shown:
        base, slot, target = int(edits.base[i]), int(edits.slot[i]), int(edits.target[i])
        old, new = (space.words[0][int(subject.scenes.values[row, slot, 0])] for row in (base, target))
        examples.append(
            {
                "base": describe(subject, base), "edit": f"slot {slot + 1} {space.names[0]} {old} → {new}",
                "target": describe(subject, target), "retrieved": describe(subject, int(outcomes.nearest[i])),
                "hit": bool(outcomes.hits[i] == 1), "estimator": name,
            }
        )  # fmt: skip
    return examples
