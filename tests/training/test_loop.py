"""A run's folder: what is in it, that it is found again, and what a stack or a failure leaves."""

import json
from dataclasses import replace

import pytest
import torch

from colligate.engine import using_threads
from colligate.networks.checkpoint import load_checkpoint
from colligate.records import read_record, read_table
from colligate.training import loop
from colligate.training.config import TrainConfig
from colligate.training.loop import run_folder, train, train_stack
from colligate.training.trainer import DivergedError, Trainer


@pytest.fixture
def tiny(tmp_path) -> TrainConfig:
    return TrainConfig(
        values=6, coverage=0.5, width=16, heads=2, dim=8, batch=16, steps=8, warmup=2, evaluate_every=4,
        checkpoint_every=3, budget=100, precision="float32", runs=tmp_path,
    )  # fmt: skip


def test_what_a_run_leaves(tiny):
    looks = []
    done = train(tiny, log=lambda step, seen: looks.append((step, seen)))
    assert done.folder == run_folder(tiny)
    assert sorted(p.name.split("-")[0] for p in done.place.iterdir()) == [
        "arrays.safetensors", "figures.json", "model.json", "record.json", "table.csv", "weights",
    ]  # fmt: skip
    record = read_record(done.place)
    assert record["kind"] == "train"
    assert record["config"]["coverage"] == 0.5
    assert set(record["given"]) >= {"values", "coverage"}
    assert record["objects"] == {part: len(ids) for part, ids in tiny.divide().items()}
    assert [step for step, _ in looks] == [4, 8]
    assert json.loads((done.place / "figures.json").read_text())["curve"] == [seen for _, seen in looks]
    ids = [row.id for row in read_table(done.place / "table.csv")]
    assert "recognition.object.unseen.among_unseen" in ids
    found = load_checkpoint(done.place)
    assert found.facts["objects"]["test"] == tiny.divide()["test"].tolist()
    assert found.model.space == tiny.space


def test_the_same_call_finds_the_run_and_force_repeats_it(tiny):
    first = train(tiny)
    again = train(tiny)
    assert again.found
    assert [row.value for row in again.rows] == [row.value for row in first.rows]
    forced = train(replace(tiny, force=True))
    assert not forced.found
    assert [row.value for row in forced.rows] == [row.value for row in first.rows]


def test_a_killed_repetition_leaves_no_old_record_beside_new_weights(tiny, monkeypatch):
    first = train(tiny)

    def killed(*args, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "recognition_rows", killed)
    with pytest.raises(KeyboardInterrupt):
        train(replace(tiny, force=True))
    assert not (first.place / "record.json").exists()
    monkeypatch.undo()
    again = train(tiny)
    assert not again.found
    assert [row.value for row in again.rows] == [row.value for row in first.rows]


def test_a_resumed_run_records_the_threads_that_its_state_asks_for(tiny, monkeypatch):
    def killed(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, using_threads(2):
        patch.setattr(Trainer, "look", killed)  # at step 4, after the state of step 3
        with pytest.raises(KeyboardInterrupt):
            train(tiny)
    before = torch.get_num_threads()
    assert train(tiny).record["threads"] == 2
    assert torch.get_num_threads() == before
    assert train(replace(tiny, force=True)).record["threads"] == 1


def test_a_stack_leaves_the_folders_of_its_members(tiny):
    members = [replace(tiny, seed=seed) for seed in (0, 1)]
    train(members[1])
    done = train_stack([*members, replace(tiny, seed=2)])
    assert [of.found for of in done] == [False, True, False]
    assert [of.folder for of in done] == [run_folder(replace(tiny, seed=seed)) for seed in (0, 1, 2)]
    assert not list(tiny.runs.glob("stack-*"))
    alone = train(replace(tiny, seed=2, force=True))
    for one, other in zip(alone.rows, done[2].rows, strict=True):
        assert one.value == pytest.approx(other.value, abs=0.06)  # rounding differs between one and several


def test_an_interrupted_run_goes_on_from_its_state(tiny, monkeypatch):
    whole = train(replace(tiny, runs=tiny.runs / "whole"))
    real = Trainer.advance

    def killed(self):
        if self.step == 7:
            raise KeyboardInterrupt
        real(self)

    monkeypatch.setattr(Trainer, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        train(tiny)
    monkeypatch.setattr(Trainer, "advance", real)
    assert (run_folder(tiny) / "state.safetensors").is_file()
    steps = []
    done = train(tiny, report=lambda _, step, total: steps.append(step))
    assert [r.value for r in done.rows] == [r.value for r in whole.rows]
    curves = [(of.place / "figures.json").read_bytes() for of in (done, whole)]
    assert curves[0] == curves[1]
    assert not (run_folder(tiny) / "state.safetensors").exists()


def test_a_diverging_run_leaves_its_last_good_checkpoint(tiny, monkeypatch):
    real = Trainer.look

    def spoiled(self):
        found = real(self)
        with torch.no_grad():
            self.model.scene.head.weight.fill_(float("nan"))
        return found

    monkeypatch.setattr(Trainer, "look", spoiled)
    with pytest.raises(DivergedError, match=r"no number at step 5; the best checkpoint before it is of step 4"):
        train(tiny)
    found = load_checkpoint(run_folder(tiny))
    assert found.facts["step"] == 4
    assert all(bool(torch.isfinite(p).all()) for p in found.model.parameters())
    assert not (run_folder(tiny) / "record.json").exists()


def test_a_full_disk_is_an_error_and_no_record(tiny, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop, "save_checkpoint", full)
    with pytest.raises(OSError, match="No space"):
        train(tiny)
    assert not (run_folder(tiny) / "record.json").exists()


def test_nothing_to_train():
    with pytest.raises(ValueError, match="at least one config"):
        train_stack([])


def test_a_device_that_isnt_there(tiny):
    with pytest.raises(ValueError, match="no device 'warp'"):
        train(replace(tiny, device="warp"))
