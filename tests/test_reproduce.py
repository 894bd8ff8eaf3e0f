"""Reproducing: every kind of run, every number of its table, every input."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colligate.binding import object_table
from colligate.engine import chosen_threads
from colligate.records import Row, read_record, read_table, table_bytes
from colligate.scenes.space import ConceptSpace
from colligate.scenes.worlds import World, labels_bytes
from colligate.study import StudyConfig, reproduce, study
from colligate.study.crossmodal import FoilsConfig, RecognizeConfig, recognize, run_foils
from colligate.study.repair import RepairConfig, repair
from colligate.study.reproduce import compare_tables
from colligate.training.config import TrainConfig
from colligate.training.loop import train

SPACE = ConceptSpace(color=["red", "green", "blue"], shape=["cube", "ball", "cone"])
SCENES = SPACE.all_scenes(2)
ORACLE = "oracle:object-table:24"
Rewrite = Callable[..., None]


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path_factory.getbasetemp() / "store"))


def small(folder: Path) -> str:
    (folder / "labels.csv").write_bytes(labels_bytes(World("small", SCENES)))
    return str(folder / "labels.csv")


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return Path(small(tmp_path))


def vectors(path: Path, seed: int = 0) -> Path:
    np.save(path, object_table(SPACE, 2, 24, seed)(SCENES.values).float().numpy())
    return path


def a_training(runs: Path) -> Path:
    tiny = TrainConfig(
        values=6, coverage=0.5, width=16, heads=2, dim=8, batch=16, steps=4, warmup=2, budget=60, precision="float32",
        runs=runs,
    )  # fmt: skip
    return train(tiny).folder


def a_complexity(runs: Path) -> Path:
    config = StudyConfig(embedder=ORACLE, scenes=small(runs), families=("additive",), coverages=(0.5,), runs=runs)
    return study(config, only=("complexity",), page=False).folder


def some_batteries(runs: Path) -> Path:
    config = StudyConfig(embedder=ORACLE, scenes=small(runs), runs=runs)
    return study(config, only=("probes", "information"), page=False).folder


def a_recognition(runs: Path) -> Path:
    return recognize(RecognizeConfig(embedder="oracle:pair-bag:32", scenes="clevr", runs=runs)).folder


def some_foils(runs: Path) -> Path:
    return run_foils(FoilsConfig(embedder="oracle:pair-bag:32", scenes="clevr", runs=runs)).folder


def a_repair(runs: Path) -> Path:
    config = RepairConfig(embedder="oracle:pair-rotated:16", scenes="clevr", coverages=(0.5,), steps=0, runs=runs)
    return repair(config).folder


SLOW = pytest.param(a_complexity, marks=pytest.mark.long)  # test_study.py repeats a whole study, rules included
KINDS = (a_training, SLOW, some_batteries, a_recognition, some_foils, a_repair)


@pytest.mark.parametrize("run", KINDS)
def test_every_kind_that_is_one_run_gives_the_same_numbers(run: Callable[[Path], Path], tmp_path: Path):
    folder = run(tmp_path)
    compared = reproduce(folder, tolerance=0.0)
    assert compared.differences == []
    assert compared.equal == compared.numbers > len(read_table(folder / "table.csv")) / 2


@pytest.mark.parametrize("kind", ["paper", "sweep", "structure", "dream"])
def test_what_gathers_runs_or_is_unknown_is_refused_with_what_to_run(kind: str, tmp_path: Path):
    (tmp_path / "record.json").write_text(json.dumps({"schema": 1, "kind": kind, "config": {}}))
    (tmp_path / "table.csv").write_bytes(table_bytes([]))
    with pytest.raises(ValueError, match="run it by hand" if kind == "dream" else "gathers other runs: reproduce the"):
        reproduce(tmp_path)


@pytest.fixture
def done(tmp_path: Path) -> Path:
    config = StudyConfig(embedder=ORACLE, scenes=small(tmp_path), runs=tmp_path / "runs")
    return study(config, only=("probes",), page=False).folder


CHANGES = ("value", "low", "high", "n", "objects", "chance", "bag_of_concepts", "random_init")


@pytest.mark.parametrize("column", CHANGES)
def test_a_change_in_any_column_is_seen(column: str):
    row = Row(id="a", value=0.5, low=0.25, high=0.75, n=9, objects=8, chance=0.1, bag_of_concepts=0.2, random_init=0.3)
    for other in (getattr(row, column) + 1, None):
        compared = compare_tables([row], [replace(row, **{column: other})], 1e-6)
        assert (compared.numbers, compared.equal, len(compared.differences)) == (8, 7, 1)
        assert "a on all" in compared.differences[0]


def test_rows_of_one_concept_coverage_or_family_are_not_taken_for_another():
    rows = [
        Row(id="a", value=float(i), concept=concept, coverage=coverage, family=family, protocol=protocol)
        for i, (concept, coverage, family, protocol) in enumerate(
            [("x", None, None, "strict"), ("y", None, None, "strict"), (None, 0.5, None, "strict"),
             (None, 0.6, None, "strict"), (None, None, "f", "strict"), (None, None, "f", "paper")]
        )
    ]  # fmt: skip
    assert compare_tables(rows, reversed(rows), 0.0) == (6, 6, [])
    first = rows[0]
    assert compare_tables([first, first], [first, first], 0.0) == (2, 2, [])


def test_rows_that_one_table_lacks_count_as_different():
    rows = [Row(id="a", value=1.0, n=3), Row(id="b", reason="none")]
    for one, other, when in ((rows, rows[:1], "then"), (rows[:1], rows, "now")):
        compared = compare_tables(one, other, 1e-6)
        assert compared == (3, 2, [f"b on all: only {when}"])


def test_numbers_that_are_none_agree_with_themselves_only():
    nan = Row(id="a", value=float("nan"))
    assert compare_tables([nan], [nan], 0.0).differences == []
    assert len(compare_tables([nan], [Row(id="a", value=0.0)], 1.0).differences) == 1
    assert len(compare_tables([Row(id="a", value=0.0)], [Row(id="a", reason="gone")], 1.0).differences) == 1


def test_a_row_that_was_struck_out_is_missed(done: Path, rewrite: Rewrite):
    rows = read_table(done / "table.csv")
    rewrite(done, rows=rows[1:])
    compared = reproduce(done)
    assert compared.differences == [f"{rows[0].id} on test: only now"]
    assert compared.equal < compared.numbers


def test_files_beside_the_vectors_are_compared_before_any_work(labels: Path, tmp_path: Path, monkeypatch: Any):
    config = StudyConfig(
        embedder=str(vectors(tmp_path / "v.npy")), labels=labels, control=vectors(tmp_path / "control.npy", 1),
        runs=tmp_path / "runs",
    )  # fmt: skip
    folder = study(config, only=("probes",), page=False).folder
    assert reproduce(folder).differences == []
    vectors(tmp_path / "control.npy", 2)
    monkeypatch.setattr(
        sys.modules[compare_tables.__module__], "study", lambda *_, **__: pytest.fail("the study was run")
    )
    with pytest.raises(ValueError, match=r"control\.npy is another file than in probes-.* put the old one back"):
        reproduce(folder)
    (tmp_path / "control.npy").unlink()
    with pytest.raises(ValueError, match=r"control\.npy can't be read"):
        reproduce(folder)


def test_another_world_is_named_by_what_changed(labels: Path, tmp_path: Path):
    config = StudyConfig(embedder=ORACLE, scenes=str(labels), runs=tmp_path / "runs")
    folder = study(config, only=("probes",), page=False).folder
    labels.write_text(labels.read_text().replace("cone", "torus"))
    with pytest.raises(ValueError, match=r"The world is another than in .*concepts .*cone.* then, .*torus.* now"):
        reproduce(folder)


def test_inputs_that_a_record_does_not_list_are_compared_too(tmp_path: Path, rewrite: Rewrite):
    folder = a_recognition(tmp_path)
    rewrite(folder, config={**read_record(folder)["config"], "seed": 5})
    with pytest.raises(ValueError, match="The inputs are others than in recognize-"):
        reproduce(folder)


def test_settings_of_another_version_are_refused(done: Path, rewrite: Rewrite):
    rewrite(done, config={**read_record(done)["config"], "dreams": 3})
    with pytest.raises(ValueError, match=r"settings that this version lacks \(dreams\)"):
        reproduce(done)


def test_the_recorded_number_of_threads_is_used(done: Path, monkeypatch: Any, rewrite: Rewrite):
    assert read_record(done)["threads"] == 1
    rewrite(done, threads=3)
    monkeypatch.setenv("COLLIGATE_THREADS", "2")
    used = list[int]()

    def watched(*given: Any, **named: Any) -> Any:
        used.append(chosen_threads())
        return study(*given, **named)

    monkeypatch.setattr(sys.modules[compare_tables.__module__], "study", watched)
    before = torch.get_num_threads()
    reproduce(done)
    assert used == [3]
    assert torch.get_num_threads() == before
