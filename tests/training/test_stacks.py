"""Stacks that are killed, share a folder, or lose a member: what is left is what an undisturbed call leaves."""

import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colligate.records import WorkError, list_runs, open_run, read_record
from colligate.training.config import TrainConfig
from colligate.training.grid import SweepConfig
from colligate.training.loop import run_folder, train, train_stack
from colligate.training.sweep import sweep
from colligate.training.trainer import DivergedError, Trainer

TINY = TrainConfig(
    values=6, coverage=0.5, width=16, heads=1, dim=8, batch=8, steps=4, warmup=1, evaluate_every=2, checkpoint_every=2,
    budget=40, precision="float32",
)  # fmt: skip


def swept(runs: Path, **changes: Any) -> SweepConfig:
    given: dict[str, Any] = {"coverages": (0.5,), "spaces": ("6x6",), "widths": (16,), "seeds": 3, **changes}
    return SweepConfig(**given, train=TINY, runs=runs)


def numbers(runs: Path) -> dict[str, bytes]:
    """Everything that decides numbers, byte by byte: all files but the record, and of that what isn't time."""
    found = dict[str, bytes]()
    for path in sorted(runs.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(runs))
        found[name] = path.read_bytes()
        if path.name == "record.json":
            record = json.loads(found[name])
            for passing in ("seconds", "created", "peak_memory_bytes", "seal", "config"):
                record.pop(passing)
            found[name] = json.dumps(record).encode()
    return found


class Killed(BaseException):
    """What a kill is to the code: nothing catches it, and nothing is cleaned up that a kill wouldn't clean up."""


@contextmanager
def killed_at(name: str, call: int, monkeypatch: pytest.MonkeyPatch) -> Generator[list[str], None, None]:
    """Stop everything at the n-th call of a function of `Path` or `os`; what would then clean up does nothing."""
    owner = Path if hasattr(Path, name) else os
    real, calls = getattr(owner, name), list[str]()

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(str(given[0]))
        if len(calls) == call:
            patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process takes nothing away
            patch.setattr(Path, "rmdir", lambda *_, **__: None)
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            raise Killed
        return real(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield calls


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """An undisturbed sweep."""
    runs = tmp_path_factory.mktemp("whole")
    sweep(swept(runs))
    return numbers(runs)


@pytest.mark.parametrize("call", [3, 9, 15])
def test_a_sweep_killed_between_its_members_ends_in_the_same_bytes(
    call: int, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with killed_at("replace", call, monkeypatch), pytest.raises(Killed):
        sweep(swept(tmp_path))
    sweep(swept(tmp_path))
    assert numbers(tmp_path) == whole


@pytest.mark.long
def test_a_sweep_killed_at_any_rename_ends_in_the_same_bytes(
    whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    call, places = 0, list[str]()
    while True:
        call += 1
        runs = tmp_path / str(call)
        with killed_at("replace", call, monkeypatch) as calls:
            try:
                sweep(swept(runs))
            except Killed:
                places.append(calls[-1])
            else:
                break
        sweep(swept(runs))
        assert numbers(runs) == whole, f"killed at rename {call}, {calls[-1]}"
    assert len(places) == 1 + 1 + 3 * 6 + 5  # plan, state, three members and the sweep
    assert sum("state.safetensors" in place for place in places) == 1


def test_a_stack_goes_on_with_the_members_of_its_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = replace(TINY, runs=tmp_path / "a")
    members = [replace(config, seed=seed) for seed in range(3)]
    steps = list[int]()
    with killed_at("replace", 9, monkeypatch), pytest.raises(Killed):  # after the first member's record
        train_stack(members)
    assert [(run_folder(m) / "record.json").is_file() for m in members] == [True, False, False]
    train_stack(members, report=lambda _, step, total: steps.append(step))
    assert not list(config.runs.glob("stack-*"))
    assert [read_record(run_folder(m))["members"] for m in members] == [3, 3, 3]


def test_members_that_were_finished_before_are_not_trained_again(tmp_path: Path):
    config = replace(TINY, runs=tmp_path)
    train(replace(config, seed=1))
    done = train_stack([replace(config, seed=seed) for seed in range(3)])
    assert [(one.found, one.record["members"]) for one in done] == [(False, 2), (True, 1), (False, 2)]


def spoil(monkeypatch: pytest.MonkeyPatch, member: int, step: int) -> None:
    real = Trainer.advance

    def spoiled(self: Trainer) -> None:
        if self.step == step and member < len(self.configs) and member not in self.diverged:
            with torch.no_grad():
                next(iter(self.model.parameters()))[member] = float("nan")
        real(self)

    monkeypatch.setattr(Trainer, "advance", spoiled)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("penalty", ["none", "additive"])
def test_a_member_that_diverges_changes_nothing_of_the_others(
    optimizer: Any, penalty: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = replace(TINY, optimizer=optimizer, penalty=penalty, clip=1.0, steps=6)
    whole = train_stack([replace(config, seed=seed, runs=tmp_path / "whole") for seed in range(3)])
    spoil(monkeypatch, member=1, step=2)
    done = train_stack([replace(config, seed=seed, runs=tmp_path / "one less") for seed in range(3)])
    assert [bool(one.diverged) for one in done] == [False, True, False]
    assert "no number at step 3; the best checkpoint before it is of step 2" in done[1].diverged
    for one, other in ((done[0], whole[0]), (done[2], whole[2])):
        assert (one.place / "table.csv").read_bytes() == (other.place / "table.csv").read_bytes()
        assert (one.place / "model.json").read_bytes() == (other.place / "model.json").read_bytes()
    assert (done[1].place / "model.json").is_file()
    assert not (done[1].place / "record.json").exists()


def test_a_sweep_names_who_diverged_and_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        spoil(patch, member=1, step=2)
        done = sweep(swept(tmp_path))
    assert {row.seeds for row in done.rows} == {0, 2}
    [note] = done.record["notes"]
    assert note.startswith("The training of 6x6 at coverage 0.5, width 16, seed 1 was stopped: The loss is no number")
    again = sweep(swept(tmp_path))
    assert (again.rows, again.record["notes"]) == (done.rows, [note])
    alone = replace(TINY, values=6, coverage=0.5, seed=1, runs=tmp_path)
    with pytest.raises(DivergedError, match=r"no number at step 3.* found before; --force trains it again"):
        train(alone)
    assert not train(replace(alone, force=True)).found
    assert train(alone).found


def test_a_member_that_diverged_stays_so_when_the_stack_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    members = [replace(TINY, seed=seed, runs=tmp_path) for seed in range(2)]
    with monkeypatch.context() as patch:
        spoil(patch, member=1, step=1)
        with killed_at("replace", 3, monkeypatch), pytest.raises(Killed):  # after plan and state
            train_stack(members)
    done = train_stack(members)
    assert [bool(one.diverged) for one in done] == [False, True]


def test_a_sweep_in_which_all_diverge_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spoil(monkeypatch, member=0, step=2)
    with pytest.raises(DivergedError, match="seed 0 was stopped"):
        sweep(swept(tmp_path, seeds=1))
    assert [run.state for run in list_runs(tmp_path)] == ["unfinished"]


def of_another(run: Path, other: Path) -> None:
    for path in other.iterdir():
        (run / path.name).write_bytes(path.read_bytes())


def test_the_files_of_another_run_are_not_taken_for_ones_own(tmp_path: Path):
    config = replace(TINY, runs=tmp_path)
    one, other = (train(replace(config, seed=seed)).place for seed in (0, 1))
    of_another(one, other)
    with pytest.raises(WorkError, match=rf"holds the record of another run, {other.name}; run it again with --force"):
        train(config)
    assert {run.name: run.state for run in list_runs(tmp_path)} == {one.name: "foreign", other.name: "finished"}
    assert open_run(one).record["notes"][-1] == f"The folder {one.name} holds the record of another run, {other.name}."


@pytest.mark.parametrize("file", ["table.csv", "figures.json", "arrays.safetensors", "model.json", "weights"])
def test_damage_of_any_file_is_noticed_where_the_run_is_listed_or_found(file: str, tmp_path: Path):
    config = replace(TINY, runs=tmp_path)
    folder = train(config).place
    [path] = folder.glob(f"{file}*")
    path.write_bytes(path.read_bytes()[:-1])
    [listed] = list_runs(tmp_path)
    assert listed.state == "damaged"
    with pytest.raises(WorkError, match=f"{path.name} is damaged"):
        train(config)


def test_what_a_kill_leaves_in_a_folder_is_swept(tmp_path: Path):
    config = replace(TINY, runs=tmp_path)
    folder = run_folder(config)
    folder.mkdir()
    for name in (".table.csv.0a1b2c3d.part", ".lock"):
        (folder / name).touch()
    train(config)
    (folder / "state.safetensors").touch()
    (folder / ".report.html.0a1b2c3d.part").touch()
    (folder / ".lock").touch()
    assert train(config).found
    assert not [path.name for path in folder.iterdir() if path.name.startswith((".", "state"))]
