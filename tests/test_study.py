"""Studies from end to end: what they leave behind, and when a finished one counts as the same."""

import importlib
import importlib.util
import math
import shlex
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from colligate.binding import object_table, scene_table
from colligate.cli import MEASUREMENTS
from colligate.geometry.measurements import probe_rows
from colligate.options import from_keywords
from colligate.probes import ProbeSettings
from colligate.records import COLUMNS, Row, read_record, read_table
from colligate.report.page import write_page
from colligate.runs import Findings
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.worlds import World, labels_bytes, load_world, render
from colligate.verbs.battery import BATTERIES, open_subject, over_the_same, study
from colligate.verbs.config import ASKED, ComplexityConfig, MeasureConfig, StudyConfig, as_study
from colligate.verbs.provenance import CALLS, python_calls
from colligate.verbs.reproduce import reproduce
from colligate.verbs.sources import open_source

SPACE = ConceptSpace(color=["red", "green", "blue"], shape=["cube", "ball", "cone"])
PAIRS = SPACE.all_scenes(2)
SINGLES = SPACE.all_scenes(1)
ALL = Scenes.join([PAIRS, SINGLES])
DIM = 24

DESIGNED = [
    "id",
    "on",
    "protocol",
    "concept",
    "objects",
    "coverage",
    "family",
    "seeds",
    "value",
    "low",
    "high",
    "n",
    "chance",
    "bag_of_concepts",
    "bag_of_concepts_strict",
    "random_init",
    "reason",
]


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path_factory.getbasetemp() / "store"))


def table_of(scenes: Scenes, path: Path, **columns: list[str]) -> Path:
    """A labels table with captions, and more columns."""
    lines = labels_bytes(World("small", scenes, CaptionTemplate())).decode().splitlines()
    for name, cells in columns.items():
        lines = [f"{line},{cell}" for line, cell in zip(lines, [name, *cells], strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def vectors_of(scenes: Scenes, seed: int = 0) -> torch.Tensor:
    return object_table(scenes.space, scenes.slots, DIM, seed)(scenes.values).float()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labels of all pairs and singles, of pairs alone, and vectors of each kind of file."""
    import pandas as pd

    folder = tmp_path_factory.mktemp("place")
    table_of(ALL, folder / "all.csv")
    table_of(PAIRS, folder / "pairs.csv")
    vectors = vectors_of(ALL)
    save_file({"anything": vectors}, folder / "one.safetensors")
    save_file(
        {"scenes": vectors[: len(PAIRS)].contiguous(), "singles": vectors[len(PAIRS) :].contiguous()},
        folder / "roles.safetensors",
    )
    np.save(folder / "plain.npy", vectors.numpy())
    pd.DataFrame({"vector": list(vectors.numpy())}).to_parquet(folder / "lists.parquet")
    return folder


@pytest.fixture(scope="module")
def finished(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Every measurement of an oracle on the small table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLLIGATE_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        return study(oracle_config(place))


def oracle_config(place: Path, **more: Any) -> StudyConfig:
    given: dict[str, Any] = {
        "embedder": f"oracle:object-table:{DIM}",
        "scenes": str(place / "all.csv"),
        "runs": place / "runs",
        "families": ("additive", "mlp64"),
        "coverages": (0.5,),
        **more,
    }
    return StudyConfig(**given)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole study with the probes as its only battery."""
    monkeypatch.setattr("colligate.verbs.battery.BATTERIES", {"probes": probe_rows})


def probe_study(**given: Any) -> Findings:
    return study(StudyConfig(**given), only=("probes",))


def check_rows(rows: list[Row], documented: Callable[[str], bool]) -> None:
    """What holds for every table: documented ids, one row each, a value or the reason why not, ordered intervals."""
    assert {row.id for row in rows if not documented(row.id.removeprefix("replay."))} == set()
    keys = [(row.id, row.on, row.family, row.coverage) for row in rows]
    assert len(keys) == len(set(keys))
    for row in rows:
        assert row.value is not None or row.reason, row
        assert row.value is None or math.isfinite(row.value), row
        if row.low is not None or row.high is not None:
            assert row.low is not None, row
            assert row.high is not None, row
            assert row.low <= row.high, row
        elif row.value is not None and row.n is not None:
            assert row.reason, row


def value(rows: list[Row], id: str, on: str) -> float | None:
    found = [row.value for row in rows if (row.id, row.on, row.family) == (id, on, None)]
    assert len(found) == 1, (id, on)
    return found[0]


# -------------------------------------------------------------------------------------- what a study leaves behind


def test_the_table_is_the_designed_one(finished: Findings, documented: Callable[[str], bool]):
    header = (finished.place / "table.csv").read_text().splitlines()[0]
    assert header.split(",") == DESIGNED == list(COLUMNS)
    assert read_table(finished.place / "table.csv") == finished.rows
    check_rows(finished.rows, documented)


PROMISED = (
    "r2.concept.least_squares", "r2.concept+pos.least_squares", "r2.object.least_squares",
    "r2.object+pos.least_squares", "r2.object.avg", "r2.object.avg+pos", "retrieval.object.avg",
    "retrieval.object.avg+pos", "retrieval.object.avg.up_to_order", "edit.retrieval.avg", "edit.retrieval.avg+pos",
    "edit.retrieval.single", "edit.retrieval.avg.different", "edit.retrieval.avg+pos.shared",
)  # fmt: skip


def test_every_promised_measurement_is_there_on_every_part(finished: Findings):
    there = {(row.id, row.on) for row in finished.rows}
    assert {(id, on) for id in PROMISED for on in ("all", "fit", "test")} <= there
    for id in ("probe.concept", "probe.object", "removal.object.retrained.object", "information.linear.bits",
               "removal.object.permuted.frozen.object", "information.quadratic.ratio"):  # fmt: skip
        assert (id, "test") in there


def test_an_oracle_that_is_a_sum_over_objects_is_found_to_be_one(finished: Findings):
    rows = finished.rows
    assert value(rows, "r2.object.least_squares", "test") == pytest.approx(1, abs=1e-6)
    assert value(rows, "r2.object.avg", "all") == pytest.approx(1, abs=0.1)
    assert value(rows, "probe.concept", "test") == 1
    assert value(rows, "edit.retrieval.least_squares.different.up_to_order", "all") == pytest.approx(1)
    concepts = value(rows, "r2.concept.least_squares", "all")
    assert concepts is not None
    assert concepts < 0.9


def test_the_record_tells_what_was_done(finished: Findings, place: Path):
    record = read_record(finished.place)
    assert record == finished.record
    assert {"table.csv", "figures.json", "arrays.safetensors"} == set(record["files"])
    assert record["run"] == finished.place.name
    assert record["kind"] == "study"
    left_out = {"out", "store", "force", "online", "device"}
    assert set(record["config"]) == {field.name for field in fields(StudyConfig)} - left_out
    assert record["config"]["seed"] == 0
    assert set(record["given"]) == {"embedder", "scenes", "runs", "families", "coverages"}
    assert record["inputs"]["model"]["oracle"] == "object-table"
    assert record["inputs"]["world"]["content_hash"] == ALL.content_hash
    assert (record["inputs"]["world"]["scenes"], record["inputs"]["world"]["singles"]) == (81, 9)
    split = record["inputs"]["split"]
    assert split["fit"] + split["validation"] + split["test"] == 81
    assert {"python", "colligate", "torch", "numpy"} <= set(record["versions"])
    assert {"machine", "system", "cpus"} <= set(record["device"])
    assert "git" in record
    assert set(BATTERIES) | {"embedding", "figures"} <= set(record["seconds"])
    assert all(seconds >= 0 for seconds in record["seconds"].values())
    assert record["peak_memory_bytes"] > 2**20
    assert "T" in record["created"]


def test_the_arrays_hold_the_split_the_probes_and_the_outcomes(finished: Findings):
    arrays = load_file(finished.place / "arrays.safetensors")
    parts = torch.cat([arrays[f"split.{part}"] for part in ("fit", "validation", "test")])
    assert parts.sort().values.tolist() == list(range(81))
    assert arrays["probe.color"].shape == (3, DIM)
    hits, counted = arrays["scored.probe.object"].double()
    assert value(finished.rows, "probe.object", "test") == pytest.approx((hits.sum() / counted.sum()).item())


def test_the_page_names_the_model_and_the_world(finished: Findings):
    written = write_page(finished.place)
    page = written.read_text()
    assert f"oracle:object-table:{DIM}" in page
    assert written == finished.place / "report.html"
    assert finished.record["inputs"]["world"]["name"] in page
    assert shlex.quote(finished.record["config"]["scenes"]) in page.replace("&#39;", "'")


def test_the_command_in_the_record_is_the_same_call(finished: Findings, place: Path):
    tyro = pytest.importorskip("tyro")
    words = shlex.split(finished.record["command"])
    assert words[:2] == ["colligate", "study"]
    config = tyro.cli(StudyConfig, args=words[2:], config=(tyro.conf.PositionalRequiredArgs,))
    assert replace(config, runs=place / "runs") == oracle_config(place)


@pytest.mark.parametrize(("battery", "verb"), [(b, v) for v, (b, _) in MEASUREMENTS.items()])
def test_the_record_of_a_single_verb_tells_that_verb(battery: str, verb: str):
    tyro = pytest.importorskip("tyro")
    acting: dict[str, dict[str, Any]] = {
        "edits": {"edit_budget": 7}, "complexity": {"families": ("additive",), "coverages": (0.2, 0.4)},
    }  # fmt: skip
    given: dict[str, Any] = {"embedder": "oracle:no-binding", "seed": 3, **acting.get(battery, {})}
    config = as_study(ASKED.get(battery, MeasureConfig)(**given))
    told = python_calls(config, (battery,))
    words = shlex.split(str(told["command"]))
    assert words[:2] == ["colligate", verb]
    parsed_as = ASKED.get(battery, MeasureConfig)
    parsed = tyro.cli(parsed_as, args=words[2:], config=(tyro.conf.PositionalRequiredArgs,))
    assert as_study(parsed) == config
    code = str(told["python"])
    assert code.startswith("import colligate\n\n")

    def asked(embedder: str, scenes: str = "", **options: Any) -> StudyConfig:
        return as_study(from_keywords(parsed_as, verb, [embedder], {"scenes": scenes, **options}))

    scope: dict[str, Any] = {"colligate": SimpleNamespace(**{verb: asked})}
    exec(code.removeprefix("import colligate\n\n"), scope)
    assert scope["result"] == config


@pytest.mark.parametrize(("battery", "verb"), [(b, v) for v, (b, _) in MEASUREMENTS.items()])
def test_a_verb_takes_only_what_acts_on_it(battery: str, verb: str, place: Path, tmp_path: Path):
    """Whatever else a study may be asked, the verb's own numbers stay the same."""
    lean = {field.name for field in fields(ASKED.get(battery, MeasureConfig))}
    idle = {field.name for field in fields(StudyConfig)} - lean
    assert idle >= {"depth", "out"}
    changed: dict[str, Any] = {
        "edit_budget": 7, "depth": False, "families": ("additive",), "coverages": (0.7,), "fit": 0.5, "validation": 0.3,
    }  # fmt: skip
    plain = oracle_config(place, embedder=f"oracle:object-table:{DIM}", runs=tmp_path / "plain", families=("additive",))
    other = replace(plain, runs=tmp_path / "other", **{name: changed[name] for name in idle if name in changed})
    rows = [study(config, only=(battery,)).rows for config in (plain, other)]
    assert [asdict(row) for row in rows[0]] == [asdict(row) for row in rows[1]]


def test_several_batteries_have_no_command_and_a_whole_study_has_its_own(place: Path):
    several = python_calls(oracle_config(place), ("probes", "edits"))
    assert several["command"] == ""
    assert several["python"] == ""
    done = probe_study(**asdict(oracle_config(place, runs=place / "told")))
    assert done.record["command"].startswith("colligate probe oracle:")
    assert "colligate.probe(" in done.record["python"]
    whole = python_calls(as_study(ComplexityConfig(embedder="oracle:no-binding")))
    assert str(whole["command"]).startswith("colligate study oracle:no-binding --families additive")


def test_the_python_in_the_record_gives_the_numbers(finished: Findings):
    for key, code in finished.record["calls"].items():
        scope: dict[str, Any] = {}
        if key in ("probes", "normalized"):
            exec(code, scope)
            prefix = "normalized." if key == "normalized" else ""
            kept = {row.id: row.value for row in finished.rows if row.on == "test"}
            assert {f"{prefix}{row.id}": row.value for row in scope["result"].rows}.items() <= kept.items()
        else:
            compile(code, key, "exec")


def test_the_python_in_the_record_of_a_vectors_file_runs_too(place: Path):
    done = probe_study(embedder=str(place / "plain.npy"), labels=place / "all.csv", runs=place / "runs")
    scope: dict[str, Any] = {}
    exec(done.record["calls"]["probes"], scope)
    assert [row.value for row in scope["result"].rows] == [row.value for row in done.rows]
    assert "labels=" in done.record["python"]


# --------------------------------------------------------------------------------- again: found, forced, reproduced


def test_the_same_call_finds_the_finished_run(finished: Findings, place: Path, monkeypatch: pytest.MonkeyPatch):
    def never(subject: Any) -> list[Row]:
        raise AssertionError("a finished run was measured again")

    monkeypatch.setattr("colligate.verbs.battery.BATTERIES", dict.fromkeys(BATTERIES, never))
    again = study(oracle_config(place))
    assert again.found
    assert (again.folder, again.rows) == (finished.folder, finished.rows)
    kept = {"schema": 1, "run": finished.place.name, "files": again.record["files"]}
    assert again.record == {**finished.record, **kept}
    with pytest.raises(AssertionError, match="measured again"):
        study(oracle_config(place, force=True))


def test_a_repetition_gives_the_same_numbers_to_the_last_bit(finished: Findings):
    compared = reproduce(finished.place, tolerance=0.0)
    assert compared.differences == []
    assert compared.equal == compared.numbers > len(finished.rows)


def test_reproducing_sees_a_changed_number_and_other_inputs(place: Path, tmp_path: Path, rewrite: Callable[..., None]):
    (tmp_path / "labels.csv").write_bytes((place / "all.csv").read_bytes())
    vectors = tmp_path / "vectors.npy"
    np.save(vectors, vectors_of(ALL).numpy())
    done = probe_study(embedder=str(vectors), labels=tmp_path / "labels.csv", runs=tmp_path / "runs")
    changed = [replace(row, value=0.123) if row.id == "probe.concept" else row for row in done.rows]
    rewrite(done.folder, rows=changed)
    compared = reproduce(done.place)
    assert compared.equal == compared.numbers - 1
    assert "probe.concept on test: 0.123 then" in compared.differences[0]
    np.save(vectors, vectors_of(ALL, seed=1).numpy())
    with pytest.raises(ValueError, match="model is another than in"):
        reproduce(done.place)


def test_an_interrupted_run_does_not_count_as_finished(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(subject: Any) -> list[Row]:
        raise KeyboardInterrupt

    config = oracle_config(place, runs=tmp_path)
    monkeypatch.setattr("colligate.verbs.battery.BATTERIES", {"probes": broken})
    with pytest.raises(KeyboardInterrupt):
        study(config, only=("probes",))
    monkeypatch.undo()
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path / "store"))
    done = study(config, only=("probes",))
    assert not done.found
    assert done.rows


# ---------------------------------------------------------------------------------------------------- the run's key


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The name of a run's folder, without measuring anything."""
    nothing = {"nothing": lambda subject: [subject.row("probe.concept", "test", value=0.0)]}
    monkeypatch.setattr("colligate.verbs.battery.BATTERIES", nothing)
    monkeypatch.setattr("colligate.verbs.battery.replay_rows", lambda subject, edits: [])
    return lambda **given: study(StudyConfig(**given), only=("nothing",)).place.name


Key = Callable[..., str]


def test_the_key_follows_settings_and_not_where_things_are_written(key: Key, place: Path, tmp_path: Path):
    base = asdict(oracle_config(place))
    first = key(**base)
    assert key(**base | {"runs": tmp_path, "store": tmp_path / "s", "device": "cpu", "online": True}) == first
    changes = ({"seed": 1}, {"fit": 0.5}, {"validation": 0.1}, {"edit_budget": 9}, {"caption": "{color} {shape}"})
    others = {key(**base | change) for change in changes}
    assert len(others | {first}) == len(changes) + 1


def test_the_key_follows_vectors_words_captions_and_the_given_split(key: Key, tmp_path: Path):
    labels, vectors = table_of(ALL, tmp_path / "labels.csv"), tmp_path / "vectors.npy"
    given: dict[str, Any] = {"embedder": str(vectors), "labels": labels, "runs": tmp_path / "runs"}
    np.save(vectors, vectors_of(ALL).numpy())
    keys = [key(**given)]
    assert key(**given) == keys[0]
    np.save(vectors, vectors_of(ALL, seed=1).numpy())
    keys.append(key(**given))
    text = labels.read_text()
    labels.write_text(text.replace("cone", "torus"))
    keys.append(key(**given))
    labels.write_text(text.replace("a red cube and", "one red cube and"))
    keys.append(key(**given))
    for shift in (0, 1):
        parts = [("fit", "fit", "test", "validation", "fit")[(row + shift) % 5] for row in range(len(ALL))]
        table_of(ALL, labels, split=parts)
        keys.append(key(**given))
    assert len(set(keys)) == 6


def test_the_key_follows_the_content_of_the_control_and_of_the_edit_list(key: Key, place: Path, tmp_path: Path):
    given: dict[str, Any] = {"embedder": str(place / "plain.npy"), "labels": place / "all.csv", "runs": tmp_path}
    keys = list[str]()
    for seed in (5, 6):
        np.save(tmp_path / "control.npy", vectors_of(ALL, seed=seed).numpy())
        keys.append(key(**given, control=tmp_path / "control.npy"))
    assert len(set(keys)) == 2
    with pytest.raises(ValueError, match=r"absent\.npy can't be read"):
        key(**given, control=tmp_path / "absent.npy")
    edits = tmp_path / "edits.csv"
    for line in ("0,1,27", "0,2,3"):
        edits.write_text(f"base_row,slot,target_row\n{line}\n")
        keys.append(key(**given, protocol="paper", edits=edits))
    assert len(set(keys)) == 4


# --------------------------------------------------------------------------------------------- vectors without a model


@pytest.mark.parametrize("file", ["one.safetensors", "roles.safetensors", "plain.npy", "lists.parquet"])
def test_every_kind_of_vectors_file_gives_the_same_numbers(place: Path, file: str, tmp_path: Path):
    labels = place / ("pairs.csv" if file == "roles.safetensors" else "all.csv")
    only = ("decomposition",)
    done = study(StudyConfig(embedder=str(place / file), labels=labels, runs=tmp_path), only=only)
    plain = study(
        StudyConfig(embedder=str(place / "plain.npy"), labels=place / "all.csv", runs=place / "runs"),
        only=only,
    )  # fmt: skip
    assert [row.value for row in done.rows] == [row.value for row in plain.rows]
    assert value(done.rows, "r2.object.single", "all") is not None
    assert done.record["inputs"]["model"]["sha256"]
    assert done.record["inputs"]["model"]["file"] == file
    assert all(row.random_init is None and row.reason for row in done.rows)


def test_a_control_stands_beside_every_number(place: Path, tmp_path: Path):
    control = tmp_path / "control.safetensors"
    save_file({"vectors": scene_table(SPACE, 2, DIM, 3)(ALL.values).float()}, control)
    done = study(
        StudyConfig(
            embedder=str(place / "plain.npy"), labels=place / "all.csv", control=control, runs=tmp_path / "runs"
        ),
        only=("probes", "decomposition"),
    )  # fmt: skip
    without = [row.id for row in done.rows if row.value is not None and row.random_init is None]
    assert [
        id for id in without if not id.startswith("rescaled.")
    ] == []  # a control that reads no objects has no scale
    row = next(row for row in done.rows if row.id == "r2.object.least_squares" and row.on == "test")
    assert row.value == pytest.approx(1, abs=1e-6)
    assert row.random_init is not None
    assert row.random_init < 0.2
    assert set(done.record["inputs"]["files"]) == {"control"}


def test_an_area_of_the_control_over_other_coverages_stands_beside_none():
    def areas(**over: tuple[float, ...]) -> list[Row]:
        found = [Row(id="complexity.area", on="test", family=family, value=0.5) for family in over]
        return found + [
            Row(id="rescaled.complexity.object", on="test", family=family, coverage=c, value=0.5)
            for family, coverages in over.items()
            for c in coverages
        ]

    found = over_the_same(areas(additive=(0.2, 0.4), mlp64=(0.2,)), areas(additive=(0.4,), mlp64=(0.2,)))
    assert {row.family: row.value for row in found if row.coverage is None} == {"additive": None, "mlp64": 0.5}
    assert all(row.value == 0.5 for row in found if row.coverage is not None)


def test_rules_of_a_whole_study_have_a_control_at_every_coverage(place: Path, tmp_path: Path):
    control = tmp_path / "control.safetensors"
    save_file({"vectors": scene_table(SPACE, 2, DIM, 3)(ALL.values).float()}, control)
    config = StudyConfig(
        embedder=str(place / "plain.npy"), labels=place / "all.csv", control=control, runs=tmp_path / "runs",
        families=("additive",), coverages=(0.5, 0.7), depth=False,
    )  # fmt: skip
    rows = {row.coverage: row for row in study(config).rows if row.id == "complexity.r2"}
    alone = StudyConfig(
        embedder=str(control), labels=place / "all.csv", runs=tmp_path / "runs", families=("additive",),
        coverages=(0.5, 0.7),
    )  # fmt: skip
    found = study(alone, only=("complexity",)).rows
    expected = {row.coverage: row.value for row in found if row.id == "complexity.r2"}
    assert {coverage: row.random_init for coverage, row in rows.items()} == expected
    assert len(set(expected.values())) == 2
    assert all(row.random_init is None for row in found)
    assert all("whole study" in (row.reason or "") for row in found)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_vectors_of_other_precision_are_studied_as_they_are(place: Path, tmp_path: Path, dtype: torch.dtype):
    save_file({"v": vectors_of(ALL).to(dtype)}, tmp_path / "v.safetensors")
    done = study(
        StudyConfig(embedder=str(tmp_path / "v.safetensors"), labels=place / "all.csv", runs=tmp_path),
        only=("decomposition",),
    )  # fmt: skip
    r2 = value(done.rows, "r2.object.least_squares", "test")
    assert r2 is not None
    assert r2 > 0.999
    assert done.record["inputs"]["model"]["dtype"] == str(dtype).removeprefix("torch.")


def test_normalised_vectors_are_asked_for_and_said(place: Path, tmp_path: Path):
    given: dict[str, Any] = {"embedder": str(place / "plain.npy"), "labels": place / "all.csv", "runs": tmp_path}
    subject = open_subject(StudyConfig(**given, normalize=True))
    assert subject.embeddings.vectors.norm(dim=1).allclose(torch.ones(81))
    assert probe_study(**given, normalize=True).record["inputs"]["model"]["normalized"] is True
    assert "normalized" not in probe_study(**given).record["inputs"]["model"]


def test_a_given_split_is_used_as_given(place: Path, tmp_path: Path):
    parts = [("fit", "test", "fit", "fit", "validation", "fit")[row % 6] for row in range(len(ALL))]
    labels = table_of(ALL, tmp_path / "labels.csv", split=parts)
    subject = open_subject(StudyConfig(embedder=str(place / "plain.npy"), labels=labels))
    for part in ("fit", "validation", "test"):
        assert getattr(subject.split, part).tolist() == [row for row in range(81) if parts[row] == part]
    roles = table_of(PAIRS, tmp_path / "pairs.csv", split=parts[:81])
    by_role = open_subject(StudyConfig(embedder=str(place / "roles.safetensors"), labels=roles))
    assert by_role.split.test.tolist() == subject.split.test.tolist()
    assert by_role.singles is not None
    assert len(by_role.singles) == 9


def test_the_paper_protocol_replays_an_edit_list(
    place: Path, tmp_path: Path, documented: Callable[[str], bool], monkeypatch: pytest.MonkeyPatch
):
    from colligate.geometry.interventions import concept_edits
    from colligate.geometry.replay import edit_list_bytes

    monkeypatch.setattr("colligate.verbs.rules.ProbeSettings", partial(ProbeSettings, paper_steps=50))
    edits = concept_edits(PAIRS, 0).draw(40, 0)
    (tmp_path / "edits.csv").write_bytes(edit_list_bytes(edits))
    given: dict[str, Any] = {"embedder": str(place / "plain.npy"), "labels": place / "all.csv", "runs": tmp_path}
    with pytest.raises(ValueError, match="--protocol paper"):
        StudyConfig(**given, edits=tmp_path / "edits.csv")
    config = StudyConfig(**given, protocol="paper", edits=tmp_path / "edits.csv", normalize=True)
    done = study(config, only=("decomposition",))
    assert {row.protocol for row in done.rows} == {"paper"}
    replayed = [row for row in done.rows if row.id.startswith("replay.")]
    check_rows(done.rows, documented)
    assert value(replayed, "replay.edit.retrieval.least_squares", "all") is not None
    assert {row.n for row in replayed if row.id == "replay.edit.retrieval.avg"} == {40}
    assert set(done.record["inputs"]["files"]) == {"edits"}


# ----------------------------------------------------------------------------------------------------- odd scenes


def full_study(scenes: Scenes, folder: Path, vectors: torch.Tensor | None = None) -> Findings:
    save_file({"v": vectors_of(scenes) if vectors is None else vectors}, folder / "v.safetensors")
    labels = table_of(scenes, folder / "labels.csv")
    given: dict[str, Any] = {"embedder": str(folder / "v.safetensors"), "labels": labels, "runs": folder / "runs"}
    return study(StudyConfig(**given), only=tuple(BATTERIES))


def test_scenes_of_two_and_three_objects_are_studied_together(tmp_path: Path, documented: Callable[[str], bool]):
    space = ConceptSpace(color=["red", "blue"], shape=["cube", "ball"])
    scenes = Scenes.join([space.all_scenes(2), space.all_scenes(3)])
    done = full_study(scenes, tmp_path)
    check_rows(done.rows, documented)
    assert done.record["inputs"]["world"]["slots"] == 3
    assert value(done.rows, "r2.object.least_squares", "all") == pytest.approx(1, abs=1e-6)
    assert value(done.rows, "probe.concept", "test") == 1


def test_one_concept_is_enough_for_objects(
    tmp_path: Path, documented: Callable[[str], bool], monkeypatch: pytest.MonkeyPatch
):
    kept = {name: BATTERIES[name] for name in ("probes", "decomposition", "information")}
    monkeypatch.setattr("colligate.verbs.battery.BATTERIES", kept)
    space = ConceptSpace(letter=list("abcdefghi"))
    folder = tmp_path
    scenes = space.all_scenes(2)
    save_file({"v": vectors_of(scenes)}, folder / "v.safetensors")
    lines = [f"{a},{b}" for a, b in (scenes.describe(row).split(" | ") for row in range(81))]
    (folder / "labels.csv").write_text("\n".join(["slot1_letter,slot2_letter", *lines]))
    done = study(StudyConfig(embedder=str(folder / "v.safetensors"), labels=folder / "labels.csv", runs=folder))
    check_rows(done.rows, documented)
    assert value(done.rows, "r2.object.least_squares", "test") == pytest.approx(1, abs=1e-6)
    assert value(done.rows, "information.linear.bits", "test") is None
    assert set(done.record["calls"]) == set(CALLS)


def test_replicates_are_hits_of_each_other(tmp_path: Path):
    scenes = Scenes.join([PAIRS, PAIRS])
    noise = 1e-3 * torch.randn(len(scenes), DIM, generator=torch.Generator().manual_seed(0))
    save_file({"v": vectors_of(scenes) + noise}, tmp_path / "v.safetensors")
    body = labels_bytes(World("twice", scenes)).decode()
    (tmp_path / "labels.csv").write_text(body)
    subject = open_subject(StudyConfig(embedder=str(tmp_path / "v.safetensors"), labels=tmp_path / "labels.csv"))
    parts = [set(subject.scenes.ids[rows].tolist()) for rows in (subject.split.fit, subject.split.test)]
    assert not parts[0] & parts[1]
    done = study(
        StudyConfig(embedder=str(tmp_path / "v.safetensors"), labels=tmp_path / "labels.csv", runs=tmp_path),
        only=("decomposition",),
    )  # fmt: skip
    assert value(done.rows, "retrieval.object.least_squares.up_to_order", "all") == pytest.approx(1)


@pytest.mark.usefixtures("brief")
def test_a_zero_vector_spoils_only_the_normalised_numbers(place: Path, tmp_path: Path):
    vectors = vectors_of(ALL)
    vectors[5] = 0
    np.save(tmp_path / "v.npy", vectors.numpy())
    done = study(StudyConfig(embedder=str(tmp_path / "v.npy"), labels=place / "all.csv", runs=tmp_path))
    normalised = [row for row in done.rows if row.id.startswith("normalized.")]
    assert [row.value for row in normalised] == [None]
    assert "have no direction" in (normalised[0].reason or "")
    assert value(done.rows, "probe.concept", "test") is not None


# ------------------------------------------------------------------------------------------------------- models


@pytest.fixture(scope="module")
def two_towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP, saved as the library saves it."""
    pytest.importorskip("transformers", reason="needs transformers")
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).parent / "embedders" / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.clip(tmp_path_factory.mktemp("tiny") / "clip")


@pytest.mark.parametrize("kind", ["text", "picture"])
def test_both_towers_of_a_model_are_studied_on_clevr2d(two_towers: Path, kind: str, tmp_path: Path):
    given: dict[str, Any] = {"embedder": f"hf:{two_towers}", "scenes": "clevr2d", "runs": tmp_path}
    done = probe_study(**given, tower=kind)
    model = done.record["inputs"]["model"]
    assert model["kind"] == kind
    assert len(model["weights"]) == 64
    assert all(row.random_init is not None for row in done.rows if row.value is not None)
    chosen = value(done.rows, "probe.concept", "test")
    assert chosen is not None
    assert probe_study(**given, tower=kind).found


def test_the_text_tower_comes_first_and_the_other_is_pointed_out(two_towers: Path):
    given: dict[str, Any] = {"embedder": f"hf:{two_towers}", "scenes": "clevr2d"}
    chosen = open_source(StudyConfig(**given))
    assert chosen.tower is not None
    assert chosen.tower.kind == "text"
    assert "study the other with --tower picture" in " ".join(chosen.notes)
    assert "--tower" not in " ".join(open_source(StudyConfig(**given, tower="text")).notes)


@pytest.mark.usefixtures("brief")
def test_a_study_by_pictures_shows_them(two_towers: Path, tmp_path: Path, documented: Callable[[str], bool]):
    labels = render(load_world("clevr2d").subgrid(color=3, shape=2), tmp_path / "pictures")
    done = study(
        StudyConfig(embedder=f"hf:{two_towers}", scenes=str(labels), tower="picture", runs=tmp_path / "runs"),
    )
    check_rows(done.rows, documented)
    assert "data:image/png;base64," in write_page(done.place).read_text()
    depth = {row.family for row in done.rows if row.id == "probe.concept" and row.family}
    assert len(depth) >= 3


def test_layer_pooling_and_normalisation_of_a_model_are_part_of_the_key(key: Key, two_towers: Path, tmp_path: Path):
    given: dict[str, Any] = {"embedder": f"hf:{two_towers}", "scenes": "clevr2d", "tower": "text", "runs": tmp_path}
    changes = ({}, {"layer": 1}, {"normalize": True}, {"layer": 1, "pooling": "text=mean"})
    assert len({key(**given, **change) for change in changes}) == len(changes)


@pytest.mark.usefixtures("brief")
def test_the_users_own_tower_is_studied(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = """
import torch

class Tower:
    kind = "scene"

    def embed(self, items):
        return torch.nn.functional.one_hot(items.values + 1, 4).float().flatten(1)

    def embed_depth(self, items):
        return {"only": self.embed(items)}

def make():
    return Tower()
"""
    (tmp_path / "my_embedder.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    config = oracle_config(place, embedder="my_embedder:make", runs=tmp_path / "runs")
    done = study(config)
    assert value(done.rows, "probe.concept", "test") is not None
    assert {row.family for row in done.rows if row.family and row.id == "probe.concept"} == {"only"}
    assert all(row.random_init is None for row in done.rows)
    assert all(row.reason for row in done.rows if not row.family and not row.id.startswith("normalized."))


KEPT = """
import torch

asked = []

class Tower:
    kind, fingerprint = "scene", {"of": "one-hot"}

    def embed(self, items):
        asked.append("vectors")
        return torch.nn.functional.one_hot(items.values + 1, 4).float().flatten(1)

    def embed_depth(self, items):
        asked.append("layers")
        return {"layer 0 mean": self.embed(items), "layer 1 mean": self.embed(items)[:, ::2]}

    def embed_tokens(self, items):
        asked.append("tokens")
        tokens = torch.nn.functional.one_hot(items.values + 1, 4).float().flatten(2)
        tokens = tokens[:, : 1 + bool((items.counts > 1).any())]
        return tokens, torch.ones(tokens.shape[:2], dtype=torch.bool)

def make():
    return Tower()
"""


@pytest.mark.usefixtures("brief")
def test_a_second_study_of_a_model_embeds_nothing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("keeps.py").write_text(KEPT)
    given: dict[str, Any] = {"embedder": "keeps:make", "runs": tmp_path / "runs", "store": tmp_path / "store"}
    first = study(oracle_config(place, **given))
    asked = importlib.import_module("keeps").asked
    assert set(asked) == {"vectors", "layers", "tokens"}
    asked.clear()
    again = study(oracle_config(place, **given, force=True))
    assert asked == []
    assert [asdict(row) for row in again.rows] == [asdict(row) for row in first.rows]
    assert {row.family for row in again.rows if row.family and "layer" in row.family} == {
        "layer 0 mean",
        "layer 1 mean",
    }
    other = study(oracle_config(place, **given, seed=1))
    assert asked == []
    assert other.folder != first.folder
    for shard in sorted((tmp_path / "store").rglob("shard-*")):
        content = shard.read_bytes()
        shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    capsys.readouterr()
    mended = study(oracle_config(place, **given, force=True))
    assert "are broken" in capsys.readouterr().err
    assert [asdict(row) for row in mended.rows] == [asdict(row) for row in first.rows]


# ------------------------------------------------------------------------------------------------------- wrong calls


def test_what_can_not_be_taken_is_refused(place: Path):
    config = oracle_config(place)
    with pytest.raises(ValueError, match="'dreams' can't be taken; choose among probes"):
        study(config, only=("dreams",))
    with pytest.raises(ValueError, match="choose among probes"):
        study(config, only=())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scenes": "nowhere"}, "No world is called 'nowhere'"),
        ({"labels": Path("x.csv")}, "goes with a file of vectors"),
        ({"control": Path("x.npy")}, "goes with a file of vectors"),
        ({"tower": "text"}, "--tower text is not in both"),
        ({"embedder": "v.npy", "scenes": ""}, "needs a labels table"),
        ({"fit": 0.9, "validation": 0.2}, "fit"),
    ],
)
def test_a_call_that_does_not_fit_says_what_to_change(place: Path, given: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        open_subject(oracle_config(place, **given))


def test_rows_of_a_study_are_those_of_its_measurements(finished: Findings, place: Path):
    rows = probe_rows(open_subject(oracle_config(place)))
    assert [row.value for row in rows] == [row.value for row in finished.rows if row.id in {r.id for r in rows}]


def test_without_scenes_a_world_that_the_model_reads_is_taken_and_said(place: Path):
    source = open_source(StudyConfig(embedder="oracle:no-binding:8"))
    assert source.world is not None
    assert source.world.name == "text8x8"
    assert any("--scenes" in note for note in source.notes)
