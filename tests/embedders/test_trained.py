"""Trained dual encoders as embedders: what every tower must do, what they refuse, and a study of one."""

import json
from typing import Any

import pytest
import torch

from colligate.embedders import load_model
from colligate.embedders.controls import NoControl, random_init
from colligate.embedders.embedding import embed
from colligate.embedders.towers import Tower
from colligate.embedders.trained import TrainedTower
from colligate.networks.checkpoint import save_checkpoint
from colligate.networks.dual import DualEncoder, DualShape
from colligate.networks.encoders import EncoderShape
from colligate.scenes.space import ConceptSpace
from colligate.scenes.worlds import load_world

ROWS = torch.tensor([7, 0, 270, 31, 7, 250])


def saved(folder, values=4, concepts=2, kind: Any = "value-tokens"):
    shape = EncoderShape(kind=kind, width=16, heads=2, dim=8)
    space = ConceptSpace({f"concept{c + 1}": values for c in range(concepts)})
    model = DualEncoder(space, 2, DualShape(scene=shape, query=shape), seeds=[0]).requires_grad_(False)
    save_checkpoint(folder, model, {"config": {"coverage": 0.8}, "step": 5})
    return model


def tower_of(folder) -> TrainedTower:
    tower = load_model(f"run:{folder}").towers["scene"]
    assert isinstance(tower, TrainedTower)
    return tower


def test_one_vector_a_scene_whatever_the_batch_and_order(tmp_path):
    model = saved(tmp_path)
    tower, world = tower_of(tmp_path), load_world("grid:4x4")
    assert isinstance(tower, Tower)
    vectors = embed(tower, world, rows=ROWS).vectors
    one_by_one = embed(tower, world, rows=ROWS, batch_size=1).vectors
    assert torch.allclose(vectors, one_by_one, atol=1e-6)  # float32 sums in another order
    assert torch.allclose(vectors, model.scenes(world.scenes.values[ROWS][None])[0], atol=1e-6)
    assert json.loads(json.dumps(tower.fingerprint)) == tower_of(tmp_path).fingerprint
    assert str(tmp_path) not in json.dumps(tower.fingerprint)
    normalized = load_model(f"run:{tmp_path}", normalize=True).towers["scene"]
    assert torch.allclose(embed(normalized, world, rows=ROWS).vectors.norm(dim=1), torch.ones(6))


def test_queries_are_those_it_was_trained_with(tmp_path):
    model, tower = saved(tmp_path), None
    tower = tower_of(tmp_path)
    ids = torch.tensor([3, 11])
    expected = model.compared(model.object_queries(ids[None]))[0]
    assert torch.equal(tower.object_queries(ids), expected)
    assert [len(of_concept) for of_concept in tower.value_queries()] == [4, 4]


@pytest.mark.parametrize(
    ("values", "concepts", "grid"), [(20, 2, "20x20"), (50, 2, "20x20"), (20, 3, "8x8x8"), (4, 2, "4x4")]
)
def test_larger_spaces_are_studied_on_a_sub_grid(tmp_path, values, concepts, grid):
    saved(tmp_path, values, concepts)
    tower = tower_of(tmp_path)
    assert tower.grid == f"grid:{grid}"
    small = load_world("grid:" + "x".join(["2"] * concepts))
    assert embed(tower, small).vectors.shape == (len(small), 8)


def test_scenes_it_never_learned_are_refused(tmp_path):
    saved(tmp_path)
    with pytest.raises(ValueError, match=r"trained on 4x4 values and the scenes have 5x4; take --scenes grid:4x4"):
        embed(tower_of(tmp_path), load_world("grid:5x4"))
    with pytest.raises(ValueError, match="grid:20x20"):
        load_world("grid:4xx")


def test_the_control_has_nothing_of_the_training_left(tmp_path):
    saved(tmp_path)
    model = load_model(f"run:{tmp_path}")
    control = random_init(model, seed=1)
    assert not isinstance(control, NoControl)
    tower, fresh = tower_of(tmp_path), control.towers["scene"]
    assert isinstance(fresh, TrainedTower)
    for name, value in tower.network.scene.state_dict().items():
        if "bias" not in name:  # they start at zero
            assert not torch.equal(value, fresh.network.scene.state_dict()[name])
    assert fresh.fingerprint != tower.fingerprint


@pytest.mark.parametrize("options", [{"layer": 1}, {"pooling": "mean"}, {"dtype": "bfloat16"}])
def test_options_it_doesnt_have_are_refused(tmp_path, options):
    saved(tmp_path)
    with pytest.raises(ValueError, match="leave layer, pooling and dtype out"):
        load_model(f"run:{tmp_path}", **options)


def test_a_folder_without_a_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no model\.json"):
        load_model(f"run:{tmp_path}")


def test_a_study_takes_the_models_own_world(tmp_path):
    from colligate.verbs.battery import study
    from colligate.verbs.config import StudyConfig

    saved(tmp_path / "model")
    config = StudyConfig(embedder=f"run:{tmp_path / 'model'}", runs=tmp_path / "runs", store=tmp_path / "store")
    done = study(config, only=("probes",))
    [row] = [row for row in done.rows if row.id == "probe.object"]
    assert row.random_init is not None
    assert any("grid:4x4" in note for note in done.record["notes"])
