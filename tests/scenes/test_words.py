"""Text is text: which cells are one word, which are two, and what the reader is told."""

import json
import os
import unicodedata
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from colligate.scenes.sources import read_labels, read_space
from colligate.scenes.space import ConceptSpace
from colligate.scenes.tables import read_table
from colligate.scenes.words import look_alikes
from colligate.scenes.worlds import World

ACUTE = "fonc\u00e9", "fonce\u0301"


def labels(folder: Path, *pairs: tuple[str, str], head: str = "slot1_c,slot2_c") -> Path:
    path = folder / "mine.csv"
    path.write_text("\n".join([head, *(f"{a},{b}" for a, b in pairs)]), encoding="utf-8")
    return path


def words(world: World) -> tuple[str, ...]:
    return world.scenes.space.words[0]


@pytest.mark.parametrize("code", ["00", "01", "+1", "1.", "007"])
def test_numbers_spelt_as_codes_are_words_and_said(tmp_path: Path, code: str) -> None:
    world = read_labels(labels(tmp_path, ("0", "1"), ("1", code)))
    assert words(world) == tuple(sorted({"0", "1", code}))
    assert any(repr(code) in note and "read as words" in note for note in world.notes)


def test_codes_stand_among_words(tmp_path: Path) -> None:
    assert words(read_labels(labels(tmp_path, ("007", "A1"), ("A1", "007")))) == ("007", "A1")


def test_codes_are_no_indices_of_a_given_space(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'01' is no index of c; use 0 to 1"):
        read_labels(labels(tmp_path, ("0", "01")), space=ConceptSpace(c=["red", "blue"]))


def test_two_spellings_of_one_index_are_told(tmp_path: Path) -> None:
    world = read_labels(labels(tmp_path, ("0", "1"), ("1.0", "0")))
    assert world.scenes.space.sizes == (2,)
    assert any("'1' and '1.0' of 'c' are read as one index" in note for note in world.notes)


def test_digits_of_other_scripts_are_no_indices(tmp_path: Path) -> None:
    assert words(read_labels(labels(tmp_path, ("\u0660", "\u0661"), ("\u0661", "\u0660")))) == ("\u0660", "\u0661")


def test_two_unicode_forms_are_one_word_and_a_note(tmp_path: Path) -> None:
    world = read_labels(labels(tmp_path, (ACUTE[0], "bleu"), ("bleu", ACUTE[1])))
    assert words(world) == ("bleu", ACUTE[0])
    assert any("slot2_c stand in another Unicode form (1 cells" in note for note in world.notes)
    given = read_labels(labels(tmp_path, (ACUTE[0], "bleu")), space=ConceptSpace(c=["bleu", ACUTE[1]]))
    assert given.scenes.values.tolist() == [[[1], [0]]]


def test_columns_and_cells_to_keep_are_found_in_either_form(tmp_path: Path) -> None:
    composed, taken_apart = (unicodedata.normalize(form, "\u00e9tat") for form in ("NFC", "NFD"))
    path = tmp_path / "mine.csv"
    rows = f"slot1_c,slot2_{composed[:0]}c,{taken_apart}", f"a,b,{ACUTE[1]}", "b,a,x"
    path.write_text("\n".join(rows), encoding="utf-8")
    world = read_labels(path, keep={composed: ACUTE[0]})
    assert len(world) == 1
    assert any("in another Unicode form" in note for note in world.notes)


def test_captions_keep_their_form_and_it_is_said(tmp_path: Path) -> None:
    head = "slot1_c,slot2_c,caption"
    world = read_labels(labels(tmp_path, ("a", f"b,{ACUTE[1]}"), ("b", f"a,{ACUTE[0]}"), head=head))
    assert world.captions == (ACUTE[1], ACUTE[0])
    assert any("1 captions (first: line 2)" in note for note in world.notes)


@pytest.mark.parametrize("other", ["Red", "r\u0435d", "red\u200b", "re\u00add"])
def test_words_that_only_look_alike_stay_two_and_are_told(tmp_path: Path, other: str) -> None:
    world = read_labels(labels(tmp_path, ("red", other), (other, "red")))
    assert set(words(world)) == {"red", other}
    assert any("look alike" in note and repr(other) in note for note in world.notes)


def test_words_that_differ_do_not_look_alike() -> None:
    assert look_alikes(["red", "bed", "1", "01", "cube", "cubes"]) == []


def test_parquet_and_csv_hold_the_same_words(tmp_path: Path) -> None:
    frame = pd.DataFrame({
        "slot1_c": ["None", "NA", "null", "007"], "slot2_c": ["True", "None", "NA", "null"],
        "slot1_b": [True, False, True, False], "slot2_b": [False, False, True, True],
    })  # fmt: skip
    frame.to_csv(tmp_path / "mine.csv", index=False)
    frame.to_parquet(tmp_path / "mine.parquet")
    one, other = read_labels(tmp_path / "mine.csv"), read_labels(tmp_path / "mine.parquet")
    assert one.scenes.content_hash == other.scenes.content_hash
    assert other.scenes.space.words == (("007", "NA", "None", "True", "null"), ("False", "True"))


def test_cells_of_parquet_that_are_no_text_are_refused_by_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"slot1_c": pa.array([b"a", b"\xff"]), "slot2_c": ["b", "a"]}), path)
    with pytest.raises(ValueError, match=r"mine\.parquet, row 2, column slot1_c: the cell is not UTF-8"):
        read_labels(path)
    pq.write_table(pa.table({"slot1_c": pa.array([b"a", b"b"]), "slot2_c": ["b", "a"]}), path)
    assert words(read_labels(path)) == ("a", "b")
    pq.write_table(pa.table({"slot1_c": [{"word": "a"}], "slot2_c": ["b"]}), path)
    with pytest.raises(ValueError, match=r"column slot1_c holds .*struct.*; a cell is text or a number"):
        read_labels(path)


def test_many_rare_words_are_not_compared_pair_by_pair(tmp_path: Path) -> None:
    rare = [(f"word{i}", "red") for i in range(2000)] + [(f"blue{i % 50}", "red") for i in range(1000)]
    world = read_labels(labels(tmp_path, *rare))
    assert any("too many rare values (2,000)" in note for note in world.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"color": 1000000000000}', "more than 1,000,000 values"),
        ('{"a": 900000, "b": 900000}', "more than 1,000,000 values in all"),
        ('{"color": ["red", ""]}', "holds '', which is no word"),
        ('{"color": ["red", "\\ud800"]}', "which is no word"),
        ("[" * 100_000, "nested too deeply"),
        ('{"color": ' + "9" * 5000 + "}", "is not JSON"),
    ],
)
def test_a_space_that_memory_could_not_hold_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_space(path)
    assert str(path) in str(caught.value)


def test_a_space_lists_words_in_either_form(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"c": ["bleu", ACUTE[1]]}))
    assert read_space(path).words == (("bleu", ACUTE[0]),)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("name", ["mine.csv", "mine.parquet"])
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="it is a pipe"):
        read_table(tmp_path / name)
    (tmp_path / "space.json").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="it is a device"):
        read_space(tmp_path / "space.json")


@pytest.mark.parametrize("name", ["a" * 5000 + ".csv", "nul\0.csv", "loop.csv", "folder.csv", "none.csv"])
def test_names_that_lead_to_no_file_are_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match="can't be read") as caught:
        read_table(tmp_path / name)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("num", [40, 70])
def test_concepts_that_allow_more_objects_than_can_be_numbered_are_told(tmp_path: Path, num: int) -> None:
    names = [f"slot{slot}_c{i}" for slot in (1, 2) for i in range(num)]
    path = tmp_path / "mine.csv"
    rows = [",".join("ab"[(row >> (i % 5)) & 1] for i in range(2 * num)) for row in range(8)]
    path.write_text("\n".join([",".join(names), *rows]))
    with pytest.raises(ValueError, match=rf"mine\.csv: {num} concepts allow [\d,]+ objects, .* with --space"):
        read_labels(path)
    assert len(read_labels(path, space=ConceptSpace(c0=["a", "b"], c1=["a", "b"]))) == 8
