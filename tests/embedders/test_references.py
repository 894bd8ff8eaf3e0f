"""The trained models that come with the library: small, whole, and what their tables say of them is measured anew."""

import json

import pytest
import torch

from colligate.embedders import load_model
from colligate.embedders.trained import REFERENCES, reference_folder
from colligate.networks.checkpoint import load_checkpoint
from colligate.records import Row, read_record, read_table
from colligate.scenes.worlds import load_world


def table_of(name: str) -> dict[str, Row]:
    return {row.id: row for row in read_table(reference_folder(name) / "table.csv")}


def test_they_are_small():
    files = [file for name in REFERENCES for file in reference_folder(name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 6e6
    assert {file.name.split("-")[0] for file in files} == {
        "figures.json", "model.json", "record.json", "table.csv", "weights"
    }  # fmt: skip


@pytest.mark.parametrize("name", REFERENCES)
def test_they_load_and_embed(name: str):
    model = load_model(f"reference:{name}")
    assert model.name == f"reference:{name}"
    assert "Trained from scratch on 80 % of 400 objects" in model.notes[0]
    vectors = model.towers["scene"].embed(load_world("grid:4x4").scenes)
    assert vectors.dtype == torch.float32
    assert bool(vectors.isfinite().all())


@pytest.mark.parametrize("name", REFERENCES)
def test_the_record_says_how_it_was_made_and_what_other_seeds_gave(name: str):
    record = read_record(reference_folder(name))
    said = record["reference"]
    assert said["command"].startswith("colligate sweep ")
    assert record["config"]["keep"] == "float16"
    assert record["config"]["seed"] == said["seed"]
    for id_, values in said["seeds"].items():
        assert values[said["seed"]] == pytest.approx(table_of(name)[id_].value)
        assert said["median"][id_] == sorted(values)[len(values) // 2]
    assert "/" not in json.dumps(record["config"]["runs"])


def test_one_binds_and_the_other_does_not():
    binds, bag = table_of("binds"), table_of("bag")
    for part in ("seen", "unseen"):
        assert (binds[f"recognition.object.{part}.swaps"].value or 0) > 0.9
        swaps = bag[f"recognition.object.{part}.swaps"]
        assert (swaps.value or 0) < (swaps.bag_of_concepts or 0) + 0.2
        assert (bag[f"recognition.concept.{part}"].value or 0) > 0.95


@pytest.mark.long
@pytest.mark.parametrize("name", REFERENCES)
def test_the_tables_are_those_of_the_weights_that_ship(name: str):
    from colligate.training.config import TrainConfig
    from colligate.training.recognition import part_scenes, recognition_rows

    found, table = load_checkpoint(reference_folder(name)), table_of(name)
    config = TrainConfig(seed=found.facts["config"]["seed"], budget=found.facts["config"]["budget"])
    parts = {
        label: part_scenes(
            config.space, torch.tensor(found.facts["objects"][part]), slots=config.slots, budget=config.budget,
            seed=config.seed,
        )
        for label, part in (("seen", "fit"), ("unseen", "test"))
    }  # fmt: skip
    rows, _ = recognition_rows(found.model, parts, coverage=0.8, family=config.family)
    assert {row.id for row in rows} == set(table)
    for row in rows:
        assert row.value == pytest.approx(table[row.id].value, abs=1e-3)


def test_an_unknown_name():
    with pytest.raises(ValueError, match="take binds or bag"):
        load_model("reference:paper")
