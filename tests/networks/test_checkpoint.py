"""Checkpoints: what is written comes back, what was changed is refused, a write cut short leaves the one before."""

import errno
from typing import Any

import pytest
import torch

from colligate.networks import checkpoint
from colligate.networks.checkpoint import load_checkpoint, save_checkpoint
from colligate.networks.dual import DualEncoder, DualShape
from colligate.networks.encoders import EncoderShape
from colligate.records import WorkError, read_sealed, sealed_json
from colligate.scenes.space import ConceptSpace

SPACE = ConceptSpace(color=["red", "blue"], shape=3)


def network(kind: Any = "object-tokens", seed=0, towers: Any = "separate"):
    shape = EncoderShape(kind=kind, width=16, heads=2, dim=8)
    return DualEncoder(SPACE, 2, DualShape(scene=shape, query=shape, towers=towers), seeds=[seed])


@pytest.mark.parametrize("towers", ["separate", "shared"])
@pytest.mark.parametrize("kind", ["object-tokens", "grouped-tokens", "product", "bag"])
def test_a_checkpoint_rebuilds_the_network(tmp_path, kind, towers):
    model = network(kind, towers=towers)
    save_checkpoint(tmp_path, model, {"step": 3})
    found = load_checkpoint(tmp_path)
    values = SPACE.all_scenes(slots=2).values[None]
    assert torch.equal(found.model.scenes(values), model.scenes(values))
    assert torch.equal(found.model.object_queries(torch.arange(6)[None]), model.object_queries(torch.arange(6)[None]))
    assert found.model.space == SPACE
    assert found.facts == {"step": 3}


def test_a_new_checkpoint_takes_the_place_of_the_old_one(tmp_path):
    save_checkpoint(tmp_path, network(seed=0), {})
    save_checkpoint(tmp_path, network(seed=1), {})
    assert len(list(tmp_path.iterdir())) == 2
    assert torch.equal(load_checkpoint(tmp_path).model.log_scale, network(seed=1).log_scale)


def change(folder, **changes):
    path = folder / "model.json"
    path.write_bytes(sealed_json(path.name, read_sealed(path, "train again") | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": 99}, "schema 99"),
        ({"weights": "../model.json"}, "aren't beside it"),
        ({"weights": "other.safetensors"}, "aren't beside it"),
        ({"sha256": "0"}, "hash differs"),
        ({"slots": 1, "space": {"color": 4, "shape": 4}}, "doesn't describe these weights"),
        ({"shape": {"scene": {}, "query": {}, "depth": 3}}, "doesn't describe these weights"),
    ],
)
def test_what_isnt_this_checkpoint_is_refused(tmp_path, changes, words):
    save_checkpoint(tmp_path, network(), {})
    change(tmp_path, **changes)
    with pytest.raises(ValueError if "schema" in changes else WorkError, match=words):
        load_checkpoint(tmp_path)


def test_a_changed_word_of_a_checkpoint_is_found(tmp_path):
    save_checkpoint(tmp_path, network(), {})
    path = tmp_path / "model.json"
    path.write_text(path.read_text().replace('"color"', '"colour"'))
    with pytest.raises(WorkError, match=r"model\.json is damaged .*; train again with --force"):
        load_checkpoint(tmp_path)


def test_no_json_and_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no model\.json"):
        load_checkpoint(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(WorkError, match="is no JSON"):
        load_checkpoint(tmp_path)


def test_a_stack_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="select one of these 2"):
        save_checkpoint(tmp_path, DualEncoder(SPACE, 2, DualShape(), seeds=[0, 1]), {})


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_full_disk_leaves_the_checkpoint_that_was_there(tmp_path, monkeypatch, fails_at):
    save_checkpoint(tmp_path, network(seed=0), {"step": 1})
    real, calls = checkpoint.write_atomic, []

    def full(path, content):
        calls.append(path)
        if len(calls) > fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    monkeypatch.setattr(checkpoint, "write_atomic", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(tmp_path, network(seed=1), {"step": 2})
    assert load_checkpoint(tmp_path).facts == {"step": 1}
