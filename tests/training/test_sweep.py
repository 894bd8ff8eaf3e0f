"""Sweeps: which trainings there are, their table, and that they are found again."""

from dataclasses import replace

import pytest

from colligate.training.config import TrainConfig
from colligate.training.grid import PicturesSweepConfig, SweepConfig, sweep_configs
from colligate.training.loop import run_folder
from colligate.training.presets import PicturesConfig
from colligate.training.sweep import sweep


@pytest.fixture
def small(tmp_path) -> SweepConfig:
    train = TrainConfig(
        width=16, heads=2, dim=8, batch=16, steps=4, warmup=2, evaluate_every=4, budget=60, precision="float32"
    )
    return SweepConfig(
        coverages=(0.4, 0.6), spaces=("6x6",), widths=(16,), seeds=2, train=train, runs=tmp_path
    )  # fmt: skip


@pytest.mark.parametrize(("stack", "sizes"), [("none", [1] * 8), ("seeds", [2] * 4), ("coverages", [4] * 2)])
def test_every_combination_is_trained_once(small, stack, sizes):
    config = replace(small, stack=stack, spaces=("6x6", "4x4x4"))
    groups = sweep_configs(config)
    assert [len(members) for members in groups] == sizes
    found = {(m.concepts, m.values, m.coverage, m.seed) for members in groups for m in members}
    assert found == {(c, v, p, s) for c, v in ((2, 6), (3, 4)) for p in (0.4, 0.6) for s in (0, 1)}


def test_a_sweep_gathers_runs_that_single_calls_find_too(small):
    ticks = []
    done = sweep(small, report=lambda stage, *_: ticks.append(stage))
    assert len(done.rows) == 4 * 12
    assert {(row.coverage, row.seeds, row.family) for row in done.rows} == {
        (c, s, "6x6 object-tokens 16") for c in (0.4, 0.6) for s in (0, 1)
    }
    for members in sweep_configs(small):
        for member in members:
            assert (run_folder(member) / "record.json").is_file()
    listed = (done.place / "runs.csv").read_text().splitlines()
    assert len(listed) == 5
    assert set(ticks) == {"training 1 of 2", "training 2 of 2"}
    again = sweep(small)
    assert [row.value for row in again.rows] == [row.value for row in done.rows]


def test_a_killed_sweep_trains_only_what_is_missing(small, monkeypatch):
    from colligate.training import sweep as module

    real, calls = module.train_stack, []

    def once(members, **given):
        calls.append(members)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(members, **given)

    monkeypatch.setattr(module, "train_stack", once)
    with pytest.raises(KeyboardInterrupt):
        sweep(small)
    assert len(list(small.runs.glob("train-*/record.json"))) == 2
    done = sweep(small)
    assert len(done.rows) == 4 * 12


def test_a_point_that_cant_be_trained_shows_before_any_training(small):
    with pytest.raises(ValueError, match="never shows"):
        sweep(replace(small, coverages=(0.5, 0.1)))
    assert not list(small.runs.glob("train-*"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"spaces": ("6x7",)}, "equal numbers"), ({"spaces": ("6",)}, "equal numbers"), ({"seeds": 0}, "at least one")],
)
def test_impossible_sweeps_are_refused(small, changes, words):
    with pytest.raises(ValueError, match=words):
        replace(small, **changes)


def test_a_sweep_of_pictures_leaves_models_of_two_towers(tmp_path):
    train = PicturesConfig(
        hold_out="objects", width=16, layers=1, query_layers=1, heads=1, dim=8, batch=8, steps=2, warmup=1, budget=60,
        precision="float32",
    )  # fmt: skip
    config = PicturesSweepConfig(
        coverages=(0.6,), spaces=("4x3",), widths=(16,), seeds=2, train=train, runs=tmp_path
    )  # fmt: skip
    done = sweep(config)
    assert {(row.family, row.seeds) for row in done.rows} == {("4x3 pictures 16", 0), ("4x3 pictures 16", 1)}
    alone = replace(train, values=4, shapes=3, coverage=0.6, seed=1, runs=tmp_path)
    assert (run_folder(alone) / "record.json").is_file()
    with pytest.raises(ValueError, match="colours by shapes"):
        replace(config, spaces=("4x3x2",))
