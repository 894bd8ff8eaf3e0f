"""Records: what is written comes back, all or nothing."""

import csv
import errno
import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.records import (
    COLUMNS,
    SCHEMA,
    Row,
    WorkError,
    content_key,
    environment,
    find_run,
    open_run,
    read_record,
    read_sealed,
    read_table,
    runs,
    sealed_json,
    table_bytes,
    with_random_init,
    write_atomic,
    write_record,
)

NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False)
# An empty text is written like an absent one and comes back as such.
TEXT = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1, max_size=12)
ROW = st.builds(
    Row,
    id=st.just("probe.object"),
    concept=TEXT,
    family=TEXT,
    reason=TEXT,
    objects=st.none() | st.integers(0, 10**6),
    n=st.none() | st.integers(0, 10**9),
    value=NUMBER,
    low=NUMBER,
    chance=NUMBER,
)


@settings(max_examples=30)
@given(rows=st.lists(ROW, max_size=4))
def test_a_table_comes_back_as_it_was_to_the_last_bit(
    rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("table") / "table.csv"
    path.write_bytes(table_bytes(rows))
    assert read_table(path) == rows


def test_the_columns_are_those_of_the_design(tmp_path: Path) -> None:
    assert ",".join(COLUMNS) == (
        "id,on,protocol,concept,objects,coverage,family,seeds,value,low,high,n,chance,bag_of_concepts,"
        "bag_of_concepts_strict,random_init,reason"
    )
    path = tmp_path / "table.csv"
    path.write_bytes(table_bytes([Row(id="a", value=0.5, reason='says "so", twice\nand again')]))
    with path.open(newline="") as file:
        assert next(csv.DictReader(file))["reason"] == 'says "so", twice\nand again'


GOOD = table_bytes([Row(id="a", value=0.5, n=3)]).decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,value\na,1\n", "has other columns"),
        ("", "has other columns"),
        (GOOD.replace("0.5", "half"), "Line 2 of .* holds a cell that is no number"),
        (GOOD.replace(",3,", ",3.5,"), "Line 2 of .* holds a cell that is no number"),
        (GOOD.replace("a,all", "a"), "Line 2 of .* too many or too few cells"),
        (GOOD.replace("a,all", "a,all,all"), "Line 2 of .* too many or too few cells"),
        (None, "is missing"),
    ],
)
def test_a_damaged_table_is_a_failure_in_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "table.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(WorkError, match=rf"{said}.*; run it again with --force\.$"):
        read_table(path)


def test_a_table_that_is_no_text_is_a_failure_too(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(GOOD.encode() + b"\xff\xfe")
    with pytest.raises(WorkError, match="is damaged"):
        read_table(tmp_path / "table.csv")


@pytest.mark.parametrize(("text", "said"), [('{"schema": 1,', "is no JSON"), ("[]", "holds a list where an object")])
def test_a_damaged_record_is_a_failure(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(WorkError, match=said):
        read_record(tmp_path)


def test_the_control_stands_beside_the_same_measurement() -> None:
    rows = [
        Row(id="probe.object", value=1.0),
        Row(id="probe.object", family="layer 3", value=0.9),
        Row(id="probe.object", on="test", value=0.8, reason="no interval"),
    ]
    control = [Row(id="probe.object", family="layer 3", value=0.2), Row(id="probe.object", on="test", value=0.3)]
    beside = with_random_init(rows, control)
    assert [row.random_init for row in beside] == [None, 0.2, 0.3]
    assert [row.value for row in beside] == [1.0, 0.9, 0.8]
    without = with_random_init(rows, [], "vectors came without a model")
    said = "vectors came without a model"
    assert [row.reason for row in without] == [said, said, f"no interval; {said}"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file.bin"
    write_atomic(path, b"first")
    assert path.read_bytes() == b"first"
    write_atomic(path, b"second")
    assert path.read_bytes() == b"second"

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"third")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    def interrupted(self: Path, target: Path) -> None:
        raise stop

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(stop):
        write_atomic(tmp_path / "file.bin", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_key_depends_on_content_and_not_on_order() -> None:
    key = content_key({"a": 1, "b": [1, 2]})
    assert key == content_key({"b": [1, 2], "a": 1})
    assert len(key) == 10
    assert int(key, 16) >= 0
    assert len({key, content_key({"a": 1, "b": [2, 1]}), content_key({"a": "1", "b": [1, 2]})}) == 3


def test_a_record_comes_back(tmp_path: Path) -> None:
    rows = [Row(id="probe.object", value=0.75, n=12)]
    arrays = {"split.fit": torch.arange(6).reshape(2, 3).T}  # not contiguous
    write_record(tmp_path, {"kind": "study"}, rows, {"points": [1.5]}, arrays)
    record = read_record(tmp_path)
    assert list(record.pop("files")) == ["table.csv", "figures.json", "arrays.safetensors"]
    assert record == {"schema": SCHEMA, "kind": "study"}
    run = open_run(tmp_path)
    assert run.rows == read_table(tmp_path / "table.csv") == rows
    assert run.figures == {"points": [1.5]}
    assert torch.equal(run.arrays["split.fit"], arrays["split.fit"])


def test_files_of_one_kind_of_run_are_kept_and_guarded_like_the_others(tmp_path: Path) -> None:
    write_record(tmp_path, {"kind": "sweep"}, [], {}, {}, {"runs.csv": b"folder"})
    assert open_run(tmp_path).content("runs.csv") == b"folder"
    (tmp_path / "runs.csv").write_bytes(b"folded")
    with pytest.raises(WorkError, match=r"runs\.csv is damaged .*; run it again with --force\.$"):
        open_run(tmp_path).content("runs.csv")
    (tmp_path / "runs.csv").unlink()
    with pytest.raises(WorkError, match=r"runs\.csv is missing"):
        open_run(tmp_path).content("runs.csv")


@settings(max_examples=200)
@given(
    content=st.dictionaries(st.text(max_size=5), st.none() | st.integers() | NUMBER | st.lists(NUMBER, max_size=3)),
    where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7),
)  # fmt: skip
def test_a_sealed_file_comes_back_and_any_flip_shows_or_changes_nothing(
    content: dict[str, object], where: float, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content.pop("seal", None)
    path = tmp_path_factory.mktemp("sealed") / "file.json"
    path.write_bytes(sealed_json(path.name, content))
    assert read_sealed(path, "write it again") == content
    flipped = bytearray(path.read_bytes())
    flipped[int(where * len(flipped))] ^= 1 << bit
    path.write_bytes(bytes(flipped))
    try:
        found = read_sealed(path, "write it again")
    except WorkError as error:
        assert str(error).endswith("; write it again.")  # noqa: PT017 (either of two outcomes is right)
    else:
        assert content.items() <= found.items(), "only the name of the seal itself may have changed"


def test_a_finished_run_is_found_unless_it_is_to_be_repeated(tmp_path: Path) -> None:
    assert find_run(tmp_path) is None
    write_record(tmp_path, {"kind": "study"}, [], {}, {})
    found = find_run(tmp_path)
    assert found is not None
    assert found.record["kind"] == "study"
    assert find_run(tmp_path, force=True) is None


@pytest.mark.parametrize("fails", ["table.csv", "figures.json", "arrays.safetensors"])
def test_a_run_that_did_not_finish_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def write(path: Path, content: bytes) -> None:
        if path.name == fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(runs, "write_atomic", write)
    with pytest.raises(OSError, match="No space left"):
        write_record(tmp_path, {}, [], {}, {})
    with pytest.raises(ValueError, match=r"no record\.json"):
        read_record(tmp_path)


@pytest.mark.parametrize("fails", ["table.csv", "figures.json", "arrays.safetensors", "record.json"])
def test_a_repetition_that_is_killed_leaves_no_mixture_of_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    write_record(tmp_path, {"kind": "study"}, [Row(id="a", value=1.0)], {}, {})
    write = write_atomic

    def killed(path: Path, content: bytes) -> None:
        if path.name == fails:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(runs, "write_atomic", killed)
    with pytest.raises(KeyboardInterrupt):
        write_record(tmp_path, {"kind": "study"}, [Row(id="a", value=2.0)], {}, {})
    with pytest.raises(ValueError, match=r"no record\.json"):
        read_record(tmp_path)


def test_another_schema_is_refused_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(json.dumps({"schema": SCHEMA + 1}))
    with pytest.raises(ValueError, match=f"schema {SCHEMA + 1}; this version reads {SCHEMA}"):
        read_record(tmp_path)


def test_numbers_that_json_can_not_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"figures\.json is not finite"):
        write_record(tmp_path, {}, [], {"stress": float("nan")}, {})
    assert not (tmp_path / "record.json").exists()


def test_the_environment_names_what_a_reader_needs() -> None:
    found = environment()
    versions = found["versions"]
    assert isinstance(versions, dict)
    assert {"colligate", "torch", "python"} <= versions.keys()
    json.dumps(found)
