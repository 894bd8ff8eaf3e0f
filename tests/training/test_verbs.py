"""`colligate train` and `colligate sweep` from end to end, and what they say of a wrong call."""

import json

import pytest
import torch

from colligate.cli import main
from colligate.records import open_run
from colligate.training.trainer import Trainer

TINY = (
    "--values", "6", "--coverage", "0.5", "--width", "16", "--dim", "8", "--batch", "16", "--steps", "4",
    "--warmup", "2", "--evaluate-every", "2", "--budget", "60",
)  # fmt: skip


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_train_says_what_it_sees_and_what_to_do_next(capsys, tmp_path):
    assert main(["train", *TINY]) == 0
    said = capsys.readouterr().out
    assert "step 4: loss" in said
    assert "recognition.object.unseen.swaps" in said
    [folder] = tmp_path.glob("runs/train-*")
    assert f"colligate study run:runs/{folder.name}" in said
    assert main(["train", *TINY, "--json"]) == 0  # found, not repeated
    assert len(json.loads(capsys.readouterr().out)) == 12
    assert main(["probe", f"run:runs/{folder.name}", "--json", "--store", "store"]) == 0
    assert "probe.object" in capsys.readouterr().out


def test_sweep_trains_every_point(capsys, tmp_path):
    words = [f"--train.{word.removeprefix('--')}" if word.startswith("--") else word for word in TINY]
    assert main(["sweep", "--coverages", "0.5", "--spaces", "6x6", "--widths", "16", "--seeds", "2", *words]) == 0
    said = capsys.readouterr().out
    assert len(list(tmp_path.glob("runs/train-*/record.json"))) == 2
    [folder] = tmp_path.glob("runs/sweep-*")
    rows = [row for row in open_run(folder).rows if row.id == "recognition.object.unseen.table"]
    low, high = sorted(row.value or 0 for row in rows)
    [point] = [line.split() for line in said.splitlines() if line.split()[:2] == ["0.5", "2"]]
    assert point[2] == f"{(low + high) / 2:.3f}"  # the median of two seeds
    assert low == high or point[3] == f"({low:.3f}-{high:.3f})"
    [levels] = [line.split() for line in said.splitlines() if line.split()[:1] == ["bag"]]
    assert levels[3] == "0.167"


def test_a_setting_of_trainings_is_named_as_a_sweep_has_it(capsys):
    assert main(["sweep", "--steps", "20"]) == 2
    assert (
        capsys.readouterr().err
        == "colligate: --steps is a setting of every training; in a sweep it is --train.steps.\n"
    )


def test_a_sweep_of_pictures(capsys):
    words = [f"--train.{word.removeprefix('--')}" if word.startswith("--") else word for word in TINY]
    small = ["--coverages", "0.6", "--spaces", "4x3", "--widths", "16", "--seeds", "1"]
    assert main(["sweep", "--preset", "pictures", *small, *words]) == 0
    assert "4x3 pictures 16" in " ".join(capsys.readouterr().out.split())


def test_a_sweep_by_the_papers_preset_shares_its_trainings_with_train(capsys, tmp_path):
    small = (*TINY, "--hidden", "32", "--heads", "2", "--layers", "1", "--query-layers", "1")
    words = [f"--train.{word.removeprefix('--')}" if word.startswith("--") else word for word in small]
    points = ["--coverages", "0.6", "--spaces", "6x6", "--widths", "16", "--seeds", "1"]
    assert main(["sweep", "--preset", "paper", *points, *words]) == 0
    assert "6x6 value-tokens 16" in " ".join(capsys.readouterr().out.split())
    assert main(["train", "--preset", "paper", *small, "--values", "6", "--coverage", "0.6", "--json"]) == 0
    assert len(list(tmp_path.glob("runs/train-*/record.json"))) == 1


def test_the_papers_preset(capsys, tmp_path):
    small = ("--hidden", "32", "--heads", "2", "--layers", "1", "--query-layers", "1")
    assert main(["train", "--preset", "paper", *TINY, *small, "--json"]) == 0
    [record] = tmp_path.glob("runs/train-*/record.json")
    config = json.loads(record.read_text())["config"]
    assert (config["encoder"], config["held_out_negatives"], config["loss"]) == ("value-tokens", True, "scene-to-query")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--values", "1"], "at least 2 concepts of 2 values"),
        (["--coverage", "0.05"], "never shows"),
        (["--preset", "mine"], "only preset"),
        (["--encoder", "rnn"], "rnn"),
        (["--queries", "some"], "take auto, table"),
        (["--device", "warp"], "no device"),
    ],
)
def test_a_wrong_call_is_one_sentence(capsys, words, said):
    assert main(["train", *TINY, *words]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1


def test_a_diverging_run_failed(capsys, monkeypatch):
    real = Trainer.loss
    monkeypatch.setattr(Trainer, "loss", lambda self: real(self) * torch.nan)
    assert main(["train", *TINY, "--steps", "50"]) == 1
    assert "no number at step 1" in capsys.readouterr().err
