"""Made-up studies: what records look like, from perfect to nearly empty. No number here is a result."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from colligate.records import Row

COLOURS = ("red", "blue", "green", "yellow", "purple", "orange", "pink", "brown")
SHAPES = ("circle", "square", "triangle", "star", "heart", "spiral", "sphere", "cylinder")
BAG = {"bag_of_concepts": 0.466, "bag_of_concepts_strict": 0.391}


def measured(id: str, value: float, half: float = 0.02, **more: Any) -> Row:
    """A row with an interval of about `half` on each side, kept below 1."""
    given: dict[str, Any] = {"on": "test", "objects": 64, "n": 820, "seeds": 1}
    given |= {"low": value - half, "high": min(1.0, value + 0.7 * half)} | more
    return Row(id=id, value=value, **given)


def probes(concept: float, joint: float, obj: float, swap: float) -> list[Row]:
    return [
        measured(
            "probe.concept",
            concept,
            0.004,
            chance=0.036,
            bag_of_concepts=1.0,
            bag_of_concepts_strict=1.0,
            random_init=0.742,
        ),
        measured(
            "probe.concept.joint",
            joint,
            0.01,
            chance=0.001,
            bag_of_concepts=1.0,
            bag_of_concepts_strict=1.0,
            random_init=0.61,
        ),
        measured(
            "probe.concept.color",
            concept,
            0.004,
            concept="color",
            chance=0.036,
            bag_of_concepts=1.0,
            bag_of_concepts_strict=1.0,
            random_init=0.71,
        ),
        measured(
            "probe.concept.shape",
            concept,
            0.003,
            concept="shape",
            chance=0.036,
            bag_of_concepts=1.0,
            bag_of_concepts_strict=1.0,
            random_init=0.77,
        ),
        measured("probe.object", obj, 0.014, chance=0.0005, random_init=0.31, **BAG),
        measured(
            "probe.object.swap",
            swap,
            0.01,
            n=628,
            chance=0.17,
            bag_of_concepts=0.5,
            bag_of_concepts_strict=0.0,
            random_init=0.52,
        ),
    ]


def layout() -> list[Row]:
    rows: list[Row] = []
    numbers = {
        "object.avg": (0.911, 0.902, 0.471, 0.93, 0.96),
        "object.avg+pos": (0.931, 0.921, 0.947, 0.961, 0.97),
        "object.avg.set": (0.905, 0.897, 0.466, 0.926, 0.955),
        "object.single": (0.43, 0.428, 0.21, 0.4, 0.71),
        "object.least_squares": (0.911, 0.903, 0.471, 0.93, 0.961),
        "object+pos.least_squares": (0.931, 0.922, 0.947, 0.961, 0.971),
        "concept.avg": (0.878, 0.872, 0.31, 0.59, 0.41),
        "concept.least_squares": (0.879, 0.873, 0.312, 0.594, 0.42),
        "concept+pos.least_squares": (0.889, 0.88, 0.61, 0.66, 0.47),
    }
    for name, (r2_all, r2_test, found, twin, read) in numbers.items():
        rows += [
            measured(f"r2.{name}", r2_all, 0.012, on="all", n=4096, random_init=0.47),
            measured(f"r2.{name}", r2_test, 0.015, random_init=0.46),
            measured(f"retrieval.{name}", found + 0.004, 0.01, on="all", n=4096),
            measured(f"retrieval.{name}", found, 0.018),
            measured(f"retrieval.{name}.up_to_order", twin, 0.018),
            measured(f"reconstruction.probe.concept.{name}", 0.992, 0.004),
            measured(f"reconstruction.probe.object.{name}", read, 0.02, **BAG),
        ]
    rows.append(measured("r2.objects_from_concepts", 0.954, 0.02, n=64, random_init=0.93))
    return rows


def edits() -> list[Row]:
    rows: list[Row] = []
    numbers = {"avg": 0.873, "avg+pos": 0.962, "single": 0.412, "orthogonal": 0.941, "least_squares": 0.874}
    for i, (name, value) in enumerate(numbers.items()):
        shared = value - 0.31 + 0.02 * i
        rows += [
            measured(
                f"edit.retrieval.{name}", value, 0.018, on="all", n=20_000, bag_of_concepts=0.44, random_init=0.25
            ),
            measured(f"edit.retrieval.{name}.different", value + 0.03, 0.012, on="all", n=15_500),
            measured(f"edit.retrieval.{name}.shared", shared, 0.04, on="all", n=4_500),
            measured(f"edit.retrieval.{name}.up_to_order", min(0.99, value + 0.02), 0.01, on="all", n=20_000),
            measured(f"edit.probe.concept.{name}", min(0.99, value + 0.02), 0.01, on="all", n=20_000),
            measured(f"edit.probe.object.{name}", value - 0.03, 0.01, on="all", n=20_000),
            measured(f"edit.retrieval.shape.{name}", value - 0.04, 0.02, on="all", n=20_000, concept="shape"),
            measured(f"edit.retrieval.object.{name}", value - 0.08, 0.02, on="all", n=20_000),
        ]
        for pairs, hit in (("different", value + 0.03), ("shared", shared)):
            left = 1 - hit
            parts = {
                "base": 0.45,
                "twin": 0.05,
                "other_object": 0.3 if pairs == "shared" else 0.12,
                "both_objects": 0.1,
            }
            parts["elsewhere"] = 1 - sum(parts.values())
            rows += [
                measured(f"interference.miss.{name}.{where}.{pairs}", left * part, 0.01, on="all")
                for where, part in parts.items()
            ]
            rows.append(
                measured(
                    f"interference.overshoot.{name}.{pairs}", 0.08 if pairs == "different" else 0.31, 0.02, on="all"
                )
            )
            rows.append(measured(f"interference.other_value.{name}.{pairs}", left * 0.4, 0.01, on="all"))
    for name, top in (("avg", 0.873), ("avg+pos", 0.962), ("single", 0.41)):
        for k in (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2):
            value = top / (1 + math.exp(-9 * (k - 0.55))) * (1 if k <= 1.25 else 1 - 0.35 * (k - 1.25))
            rows.append(measured(f"edit.strength.{name}", value, 0.015, on="all", family=str(k), n=4096))
    return rows


def removal() -> list[Row]:
    numbers = {
        "original": (0.997, 0.97),
        "concept": (0.07, 0.81),
        "object": (0.03, 0.02),
        "concept.permuted": (0.95, 0.93),
        "object.permuted": (0.96, 0.94),
    }
    rows = []
    for what, (concept, obj) in numbers.items():
        for probe, loss in (("retrained", 0.0), ("frozen", 0.02)):
            rows.append(
                measured(
                    f"removal.{what}.{probe}.concept",
                    max(0.0, concept - loss),
                    0.01,
                    **{"low": max(0.0, concept - loss - 0.01)},
                )
            )
            rows.append(
                measured(
                    f"removal.{what}.{probe}.object",
                    max(0.0, obj - 2 * loss),
                    0.015,
                    **{"low": max(0.0, obj - 2 * loss - 0.015)},
                )
            )
    return rows


def information() -> list[Row]:
    rows = [
        measured("information.linear.bits", 0.71, 0.04, n=628),
        measured("information.linear.ratio", 0.71, 0.04, n=628, bag_of_concepts=0.0, random_init=0.11),
        measured("information.quadratic.bits", 0.89, 0.03, n=628),
        measured("information.quadratic.ratio", 0.89, 0.03, n=628, bag_of_concepts=0.0, random_init=0.16),
        Row(id="information.attention.ratio", on="test", reason="this tower gives no token vectors"),
    ]
    for pooling, gain in (("mean", 1.0), ("cls", 0.8)):
        for layer in range(7):
            for id, top in (("probe.concept", 0.997), ("probe.object", 0.97), ("information.linear.ratio", 0.71)):
                value = top * gain * (1 - math.exp(-(layer + 0.4) / 1.6))
                rows.append(measured(id, value, 0.02, family=f"layer {layer} {pooling}"))
    return rows


def normalized() -> list[Row]:
    numbers = {
        "probe.concept": 0.999,
        "probe.object": 0.972,
        "r2.object.least_squares": 0.896,
        "r2.concept.least_squares": 0.866,
        "information.linear.ratio": 0.73,
    }
    rows = [
        measured(f"normalized.{id}", value, 0.016, **(BAG if id == "probe.object" else {}))
        for id, value in numbers.items()
    ]
    return [*rows, measured("normalized.edit.retrieval.avg", 0.913, 0.016, on="all", n=20_000, bag_of_concepts=0.44)]


def whole_study() -> list[Row]:
    return [*probes(0.997, 0.994, 0.97, 0.985), *layout(), *edits(), *removal(), *information(), *normalized()]


def bag_of_concepts_study() -> list[Row]:
    return [
        *probes(0.999, 0.998, 0.39, 0.0)[:4],
        measured("probe.object", 0.391, 0.03, **BAG),
        measured("r2.object.least_squares", 0.998, 0.001, random_init=0.47),
        measured("edit.retrieval.avg", 0.43, 0.03, on="all", n=4000, bag_of_concepts=0.44),
        measured("information.linear.ratio", 0.001, 0.004, n=628, bag_of_concepts=0.0),
    ]


def undecided_study() -> list[Row]:
    return [
        measured("probe.concept", 0.93, 0.03, chance=0.04, bag_of_concepts=1.0),
        measured("probe.object", 0.50, 0.06, **BAG),
        measured("r2.object.least_squares", 0.61, 0.06, random_init=0.62),
        measured("edit.retrieval.avg", 0.46, 0.05, on="all", bag_of_concepts=0.44),
        measured("information.linear.ratio", 0.01, 0.05, bag_of_concepts=0.0),
    ]


def too_few_study() -> list[Row]:
    few: dict[str, Any] = {
        "objects": 4,
        "n": 12,
        "low": None,
        "high": None,
        "reason": "4 objects are too few to resample (8 at least)",
    }
    return [
        measured("probe.concept", 1.0, chance=0.25, **few),
        measured("probe.object", 0.9, bag_of_concepts=0.5, **few),
        measured("r2.object.least_squares", 0.97, **few),
        measured("edit.retrieval.avg", 1.0, **few),
    ]


def ragged_study() -> list[Row]:
    """A vectors file with labels: no model, no singles, no layers; some measurements say why they are absent."""
    return [
        *probes(0.96, 0.93, 0.62, 0.71)[2:5],
        measured("r2.object.avg+pos", 0.74, 0.03, on="all"),
        Row(id="r2.object.single", on="all", reason="there are no scenes of a single object"),
        Row(id="edit.retrieval.single", on="all", reason="there are no scenes of a single object"),
        Row(id="information.linear.ratio", on="test", reason="no two scenes share their values"),
    ]


def make_record(**more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "study",
        "name": "text8x8",
        "created": "2026-03-12T14:05:33+00:00",
        "config": {
            "protocol": "strict",
            "seed": 0,
            "probes": {"strengths": [0.0001, 0.01], "steps": 200},
            "edits": {"budget": 20_000},
        },
        "given": ["embedder", "scenes"],
        "inputs": {
            "model": {
                "name": "sbert:all-MiniLM-L6-v2",
                "kind": "text",
                "library": "sentence-transformers 5.1",
                "pooling": "mean of tokens",
                "layer": 6,
                "normalized": False,
                "dtype": "float32",
                "dim": 384,
                "weights_sha256": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
            "world": {
                "name": "text8x8",
                "concepts": {"color": list(COLOURS), "shape": list(SHAPES)},
                "scenes": 4096,
                "slots": 2,
                "objects": 64,
                "caption": "a {color} {shape} and a {color} {shape}",
            },
        },
        "versions": {"python": "3.11.9", "torch": "2.14.0", "colligate": "0.1.0"},
        "git": "1f3c9ab",
        "device": {"machine": "x86_64", "system": "Linux", "cpus": 2},
        "seconds": {"embed": 31.2, "probes": 6.4, "layout": 1.9, "edits": 8.8, "information": 4.1},
        "peak_memory_bytes": 913_000_000,
        "notes": ["The folder of this model ends in a Normalize module; it was left out, and vectors are raw."],
        "command": "colligate study sbert:all-MiniLM-L6-v2 --scenes text8x8",
        "python": 'from colligate.verbs import study\n\nrun = study("sbert:all-MiniLM-L6-v2", scenes="text8x8")',
        **more,
    }


def make_figures() -> dict[str, Any]:
    draw = random.Random(0)

    def near(*base: float, spread: float = 0.02) -> dict[str, float]:
        return {axis: b + draw.gauss(0, spread) for axis, b in zip("xyz", base, strict=True)}

    places = {
        "red circle": (-0.4, 0.3, 0.1),
        "blue square": (0.4, 0.25, -0.1),
        "red square": (0.05, -0.3, 0.2),
        "blue circle": (0.0, 0.6, -0.2),
    }
    quadruple = [
        {"label": v, "kind": "concept", "group": v, "hover": v, **near(x, y, z)}
        for v, x, y, z in (
            ("red", -0.55, -0.1, 0.2),
            ("blue", 0.6, 0.5, -0.2),
            ("circle", -0.3, 0.75, 0),
            ("square", 0.5, -0.35, 0),
        )
    ]
    quadruple += [{"label": o, "kind": "object", "group": o, "hover": f"a {o}", **near(*p)} for o, p in places.items()]
    for a, b in (
        ("red circle", "blue square"),
        ("blue square", "red circle"),
        ("red square", "blue circle"),
        ("blue circle", "red square"),
    ):
        at = [0.6 * (p + q) + (0.05 if a < b else -0.05) for p, q in zip(places[a], places[b], strict=True)]
        text = f"a {a} and a {b}"
        for kind, spread in (("scene", 0.02), ("sum", 0.05)):
            quadruple.append(
                {"label": f"{a} + {b}", "kind": kind, "group": text, "hover": text, **near(*at, spread=spread)}
            )
    objects = []
    for i, colour in enumerate(COLOURS):
        for j, shape in enumerate(SHAPES):
            place = near(
                math.cos(i / 8 * 6.28) + 0.3 * math.cos(j),
                math.sin(i / 8 * 6.28) + 0.3 * math.sin(2 * j),
                0.2 * j - 0.8,
                spread=0.06,
            )
            objects.append(
                {
                    "label": f"{colour} {shape}",
                    "hover": f"{colour} {shape}",
                    "values": {"color": colour, "shape": shape},
                    **place,
                }
            )
    scenes = [
        {
            "label": "",
            "hover": f"a {o['label']} and a {p['label']}",
            "values": {"color": o["values"]["color"], "shape": o["values"]["shape"]},
            **{k: 0.6 * (o[k] + p[k]) for k in "xyz"},
        }
        for o, p in (draw.sample(objects, 2) for _ in range(800))
    ]
    examples = [
        {
            "base": "a red circle and a blue square",
            "edit": "slot 1 color red -> green",
            "target": "a green circle and a blue square",
            "retrieved": "a green circle and a blue square",
            "hit": True,
            "estimator": "avg",
        },
        {
            "base": "a pink star and a pink heart",
            "edit": "slot 2 color pink -> brown",
            "target": "a pink star and a brown heart",
            "retrieved": "a brown star and a brown heart",
            "hit": False,
            "estimator": "avg",
        },
    ]
    return {
        "quadruple": {"points": quadruple, "method": "MDS of 1 - cosine", "stress": 0.031},
        "objects": {"points": objects, "method": "PCA", "explained": [0.31, 0.22, 0.11]},
        "scenes": {"points": scenes, "method": "PCA", "explained": [0.24, 0.2, 0.1]},
        "depth": [],
        "edit_examples": examples,
    }


STUDIES = {
    "whole": whole_study,
    "bag of concepts": bag_of_concepts_study,
    "undecided": undecided_study,
    "too few": too_few_study,
    "ragged": ragged_study,
    "empty": lambda: list[Row](),
}


@pytest.fixture(scope="session")
def fresh() -> Callable[[], tuple[dict[str, Any], dict[str, list[Row]], dict[str, Any]]]:
    """Record, studies and figures, made anew at each call."""
    return lambda: (make_record(), {name: make() for name, make in STUDIES.items()}, make_figures())


@pytest.fixture
def studies() -> dict[str, list[Row]]:
    """Tables of six made-up studies."""
    return {name: make() for name, make in STUDIES.items()}


@pytest.fixture
def record() -> dict[str, Any]:
    """A made-up record.json."""
    return make_record()


@pytest.fixture
def figures() -> dict[str, Any]:
    """A made-up figures.json."""
    return make_figures()
