"""Reproducing: every kind of run, every number of its table, every input."""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colligate.binding import object_table
from colligate.cli import main
from colligate.engine import chosen_threads
from colligate.records import Row, WorkError, read_record, read_table, table_bytes
from colligate.scenes.space import ConceptSpace
from colligate.scenes.worlds import World, labels_bytes
from colligate.training.config import TrainConfig
from colligate.training.loop import train
from colligate.verbs.battery import study
from colligate.verbs.config import FoilsConfig, RecognizeConfig, RepairConfig, StudyConfig
from colligate.verbs.crossmodal import recognize, run_foils
from colligate.verbs.repair import repair
from colligate.verbs.reproduce import compare_tables, reproduce

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
    return train(tiny).place


def a_complexity(runs: Path) -> Path:
    config = StudyConfig(embedder=ORACLE, scenes=small(runs), families=("additive",), coverages=(0.5,), runs=runs)
    return study(config, only=("complexity",)).place


def some_batteries(runs: Path) -> Path:
    config = StudyConfig(embedder=ORACLE, scenes=small(runs), runs=runs)
    return study(config, only=("probes", "information")).place


def a_recognition(runs: Path) -> Path:
    return recognize(RecognizeConfig(embedder="oracle:pair-bag:32", scenes="clevr", runs=runs)).place


def some_foils(runs: Path) -> Path:
    return run_foils(FoilsConfig(embedder="oracle:pair-bag:32", scenes="clevr", runs=runs)).place


def a_repair(runs: Path) -> Path:
    config = RepairConfig(embedder="oracle:pair-rotated:16", scenes="clevr", coverages=(0.5,), steps=0, runs=runs)
    return repair(config).place


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
    return study(config, only=("probes",)).place


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
    folder = study(config, only=("probes",)).place
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
    folder = study(config, only=("probes",)).place
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


OWN = """
from pathlib import Path
from colligate.embedders import load_model
Path("ran").touch()
def make():
    return load_model("oracle:object-table:24")
"""


def own_run(place: Path, rewrite: Rewrite) -> Path:
    """A run whose record, sealed like any, was made to name a module."""
    config = StudyConfig(embedder=ORACLE, scenes=small(place), runs=place / "runs")
    folder = study(config, only=("probes",)).place
    rewrite(folder, config={**read_record(folder)["config"], "embedder": "of_a_record:make"})
    (place / "of_a_record.py").write_text(OWN)
    return folder


def test_code_that_a_record_names_runs_only_when_the_caller_says_so(
    tmp_path: Path, monkeypatch: Any, rewrite: Rewrite, capsys: Any
):
    folder = own_run(tmp_path, rewrite)
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", str(folder)]) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(r"colligate: of_a_record:make would run code of its own: .* add --code [^\n]*\n", said), said
    assert not Path("ran").exists()
    with pytest.raises(ValueError, match="The model is another than in"):  # the record is of an oracle after all
        reproduce(folder, code=True)
    assert Path("ran").exists()
    with pytest.raises(ValueError, match="name it yourself if you trust it: colligate repair of_a_record:make"):
        repair(RepairConfig(embedder=str(folder), runs=tmp_path))


def test_a_family_that_a_record_names_is_code_too(tmp_path: Path, monkeypatch: Any, rewrite: Rewrite):
    folder = own_run(tmp_path, rewrite)
    asked = read_record(folder)["config"]
    rewrite(folder, kind="complexity", config={**asked, "embedder": ORACLE, "families": ["of_a_record:make"]})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="of_a_record:make would run code of its own"):
        reproduce(folder)
    assert not Path("ran").exists()


def test_network_store_and_places_are_the_callers(done: Path, tmp_path: Path, monkeypatch: Any, rewrite: Rewrite):
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    reached = {"online": True, "store": str(theirs), "out": str(theirs / "page.html"), "force": True, "device": "warp"}
    rewrite(done, config={**read_record(done)["config"], **reached})
    asked = list[Any]()

    def watched(config: Any, **named: Any) -> Any:
        asked.append(config)
        return study(config, **named)

    monkeypatch.setattr(sys.modules[compare_tables.__module__], "study", watched)
    assert reproduce(done).differences == []
    assert reproduce(done, online=True, store=mine).differences == []
    assert [(c.online, c.store, c.out, c.force, c.device) for c in asked] == [
        (False, None, None, False, "auto"), (True, mine, None, False, "auto"),
    ]  # fmt: skip
    assert not theirs.exists()


def test_a_record_without_a_seal_is_shown_as_such(done: Path, tmp_path: Path, capsys: Any):
    record = json.loads((done / "record.json").read_text())
    del record["seal"]
    (done / "record.json").write_text(json.dumps({**record, "name": "edited"}))
    words = f"The record of {done.name} has no seal"
    assert main(["runs", str(done.parent), "--json"]) == 0
    assert [run["state"] for run in json.loads(capsys.readouterr().out)] == ["unsealed"]
    for call in (["report", str(done)], ["compare", str(done), str(done)], ["reproduce", str(done)]):
        assert main(call) == 0
        assert call[0] == "report" or words in capsys.readouterr().out
    assert words in (done / "report.html").read_text()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"config": {"embedder": ["x"]}}, "nothing usable under embedder"),
        ({"config": {"embedder": ORACLE, "seed": "1"}}, "nothing usable under seed"),
        ({"config": {}}, "nothing usable under embedder"),
        ({"threads": 10**9}, "names 1000000000 threads"),
        ({"threads": "all"}, "names 'all' threads"),
        ({"config": [1]}, "holds no dict under 'config'"),
        ({"notes": "x"}, "holds no list under 'notes'"),
        ({"files": {"../x": "0"}}, r"x is missing"),
    ],
)
def test_records_that_no_run_writes_are_refused_in_a_sentence(done: Path, facts: Any, words: str):
    record = {**json.loads((done / "record.json").read_text()), **facts}
    del record["seal"]
    (done / "record.json").write_text(json.dumps(record))
    with pytest.raises(WorkError, match=words):
        reproduce(done)


def test_an_input_that_is_no_regular_file_is_not_opened(labels: Path, tmp_path: Path):
    config = StudyConfig(
        embedder=str(vectors(tmp_path / "v.npy")), labels=labels, control=vectors(tmp_path / "control.npy", 1),
        runs=tmp_path / "runs",
    )  # fmt: skip
    folder = study(config, only=("probes",)).place
    (tmp_path / "control.npy").unlink()
    os.mkfifo(tmp_path / "control.npy")
    with pytest.raises(ValueError, match="is no regular file"):
        reproduce(folder)


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
