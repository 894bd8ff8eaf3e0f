"""Binding emerges in a transformer trained on some objects, and can't in a bag of concepts: the paper's main claim.

The quick instance trains a small network on 320 of 400 objects; scenes of objects never seen are told from their swaps,
whose objects were never seen either, beyond what a bag of concepts can do. The long one is `colligate train` itself.
"""

from pathlib import Path
from typing import Any

import pytest

from colligate.records import Row
from colligate.training.config import TrainConfig
from colligate.training.loop import train

QUICK: dict[str, Any] = {
    "values": 20, "coverage": 0.8, "hold_out": "swaps", "width": 64, "dim": 128, "batch": 128, "steps": 90,
    "warmup": 20, "evaluate_every": 45, "budget": 1000, "precision": "float32",
}  # fmt: skip


def trained(folder: Path, **changes: Any) -> dict[str, Row]:
    return {row.id: row for row in train(TrainConfig(**{**QUICK, **changes}, runs=folder)).rows}


def test_a_transformer_binds_objects_it_never_saw(tmp_path):
    rows = trained(tmp_path)
    seen, unseen = (rows[f"recognition.object.{part}.swaps"] for part in ("seen", "unseen"))
    assert (seen.value or 0) > 0.85
    assert unseen.low is not None
    assert unseen.bag_of_concepts is not None
    assert unseen.low > unseen.bag_of_concepts + 0.2


def test_a_bag_of_concepts_doesnt_bind_whatever_it_was_shown(tmp_path):
    rows = trained(tmp_path, encoder="bag", steps=90)
    assert (rows["recognition.concept.seen"].value or 0) > 0.9
    for part in ("seen", "unseen"):
        swaps = rows[f"recognition.object.{part}.swaps"]
        assert (swaps.value or 0) < 0.35  # it has one answer for a scene and its swap; the level is 1/6


@pytest.mark.long
def test_a_sequence_read_by_distance_leaves_the_plateau_on_which_positions_stay(tmp_path):
    told = {
        kind: trained(tmp_path, encoder=kind, heads=4, steps=150)["recognition.object.seen.swaps"]
        for kind in ("relative-tokens", "value-tokens")
    }  # fmt: skip
    assert (told["relative-tokens"].value or 0) > 0.5
    assert (told["value-tokens"].value or 0) < 0.35  # the level of a bag of concepts is 1/6


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_default_training_binds_nearly_all_objects_it_never_saw(tmp_path):
    rows = {row.id: row for row in train(TrainConfig(runs=tmp_path)).rows}
    for way, least in (("table", 0.97), ("among_unseen", 0.97), ("swaps", 0.93)):
        assert (rows[f"recognition.object.unseen.{way}"].value or 0) > least
        assert (rows[f"recognition.object.seen.{way.replace('unseen', 'seen')}"].value or 0) > 0.97
