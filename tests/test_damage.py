"""Damaged files of runs: whatever is cut, emptied or flipped is told in one sentence, or changes nothing."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.cli import main
from colligate.embedders import load_model
from colligate.geometry.measurements import probe_rows
from colligate.scenes.worlds import load_world
from colligate.training.config import TrainConfig
from colligate.training.grid import SweepConfig
from colligate.training.loop import train
from colligate.training.sweep import sweep
from colligate.verbs.battery import study
from colligate.verbs.config import RepairConfig, StudyConfig
from colligate.verbs.repair import repair

TINY = TrainConfig(values=6, coverage=0.5, width=16, heads=1, dim=8, batch=8, steps=4, warmup=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small study, training, sweep and repair."""
    place = tmp_path_factory.mktemp("damage")
    where: dict[str, Any] = {"runs": place / "runs", "store": place / "store"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("colligate.verbs.battery.BATTERIES", {"probes": probe_rows})
        made = study(StudyConfig(embedder="oracle:object-table:24", scenes="clevr", **where))
    trained = train(replace(TINY, runs=place / "runs"))
    swept = sweep(
        SweepConfig(coverages=(0.5,), spaces=("6x6",), widths=(16,), seeds=2, train=TINY, runs=place / "runs")
    )
    asked = RepairConfig(embedder="oracle:pair-rotated:16", scenes="clevr", coverages=(0.5,), steps=0, **where)
    return {
        "study": made.place, "train": trained.place, "sweep": swept.place, "repair": repair(asked).place
    }  # fmt: skip


READS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "report a study": ("study", lambda run: ["report", str(run)]),
    "report a training": ("train", lambda run: ["report", str(run)]),
    "report a sweep": ("sweep", lambda run: ["report", str(run)]),
    "report a repair": ("repair", lambda run: ["report", str(run)]),
    "compare": ("study", lambda run: ["compare", str(run), str(run)]),
    "reproduce": ("study", lambda run: ["reproduce", str(run)]),
    "reproduce a training": ("train", lambda run: ["reproduce", str(run)]),
    "gather a sweep": ("sweep", lambda run: ["structure", str(run)]),
    "load a training": ("train", lambda run: ["check-model", f"run:{run}"]),
    "load a repair": ("repair", lambda run: ["check-model", f"repaired:{run}"]),
}
"""What reads which run, by which call."""
FILES = {
    "report a study": ("record.json", "table.csv", "figures.json"),
    "report a training": ("record.json", "table.csv", "figures.json"),
    "report a sweep": ("record.json", "table.csv", "figures.json"),
    "report a repair": ("record.json", "table.csv", "figures.json"),
    "compare": ("record.json", "table.csv", "arrays.safetensors"),
    "reproduce": ("record.json", "table.csv"),
    "reproduce a training": ("record.json", "table.csv"),
    "gather a sweep": ("record.json", "runs.csv"),
    "load a training": ("model.json", "weights-*.safetensors"),
    "load a repair": ("repair.json", "map.safetensors"),
}
"""The files that it reads."""
CASES = [(call, file) for call, files in FILES.items() for file in files]


def copied(run: Path, to: Path, file: str) -> Path:
    """A copy of the run, and the file of that pattern in it."""
    shutil.copytree(run, to, dirs_exist_ok=True)
    (found,) = to.glob(file)
    return found


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code of a call, and what it complains of: one sentence, or nothing."""
    capsys.readouterr()
    code = main(words)
    said = capsys.readouterr().err
    if code:
        assert re.fullmatch(r"colligate: [^\n]+\n", said), said
    return code, said


@pytest.mark.parametrize(("call", "file"), CASES)
@pytest.mark.parametrize("how", ["emptied", "cut", "garbage", "other JSON", "flipped", "gone"])
def test_damage_is_told_in_one_sentence(
    call: str, file: str, how: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    kind, words = READS[call]
    path = copied(runs[kind], tmp_path / runs[kind].name, file)
    content = path.read_bytes()
    middle = len(content) // 2
    while content[middle : middle + 1] in b' \n"':  # where a change would be one of spaces, or only an end
        middle += 1
    harmed = {
        "emptied": b"", "cut": content[:middle], "garbage": b"\x80\xff\x00" * 50, "other JSON": b"[1, 2]",
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
    }  # fmt: skip
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(harmed[how])
    code, said = told(words(path.parent), capsys)
    no_run = how == "gone" and file.endswith("json") and file != "figures.json"  # not a finished run, or no model
    assert code == (2 if no_run or (how == "gone" and file == "map.safetensors") else 1), said
    assert path.name in said or (how == "gone" and path.name.startswith("weights")), said


@pytest.mark.parametrize("call", ["report a study", "load a training", "load a repair"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), which=st.integers(0, 1))
def test_any_flip_is_told_or_changes_nothing(
    call: str, where: float, bit: int, which: int, runs: dict[str, Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    kind, words = READS[call]
    path = copied(runs[kind], tmp_path / runs[kind].name, FILES[call][which])
    before = what_is_shown(words(path.parent), path.parent, capsys)
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1 << bit
    path.write_bytes(bytes(content))
    assert what_is_shown(words(path.parent), path.parent, capsys) in (before, None)


def what_is_shown(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> bytes | None:
    """The page that a call writes, or vectors of the model that it loads; None where it complains."""
    code, said = told(words, capsys)
    if code:
        assert code == 1, said
        return None
    if words[0] == "report":
        return (folder / "report.html").read_bytes()
    model = load_model(words[1])
    world, kind = (load_world("clevr"), "text") if "text" in model.towers else (load_world("grid:6x6"), "scene")
    return model.towers[kind].embed(world.items(kind, torch.arange(4))).numpy().tobytes()


def test_a_finished_run_that_is_damaged_is_told_where_it_is_found_again(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = copied(runs["train"], tmp_path / runs["train"].name, "table.csv")
    path.write_bytes(path.read_bytes()[:-20])
    words = ["train", "--values", "6", "--coverage", "0.5", "--width", "16", "--heads", "1", "--dim", "8"]
    words += ["--batch", "8", "--steps", "4", "--warmup", "2", "--runs", str(tmp_path)]
    code, said = told(words, capsys)
    assert (code, "with --force" in said) == (1, True)
    assert main([*words, "--force"]) == 0
    assert told(["report", str(path.parent)], capsys)[0] == 0
