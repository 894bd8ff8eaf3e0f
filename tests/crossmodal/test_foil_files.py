"""Files of foils as other tools and people write them: faults are told by row, or their rows left out and counted."""

import json
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from PIL import Image

from colligate.crossmodal.foil_files import FoilFile, read_foils
from colligate.crossmodal.foil_rows import table_rows
from colligate.crossmodal.foils import FoilTable, too_long
from colligate.crossmodal.groups import GroupTable
from colligate.embedders import load_model
from colligate.verbs.config import FoilsConfig
from colligate.verbs.crossmodal import file_rows, run_foils

PAIR = {"picture": "p0.png", "caption": "a cat on a mat", "foil": "a mat on a cat"}
BOX = {"bbox_x": 1, "bbox_y": 2, "bbox_w": 5, "bbox_h": 6}
ARO = {"image_path": "p0.png", "true_caption": "a cat on a mat", "false_caption": "a mat on a cat"}
WINO = {"image_0": "p0", "image_1": "p1", "caption_0": "a cat on a mat", "caption_1": "a mat on a cat"}
ORDER = {"image": "p0.png", "caption_options": ["a cat on a mat", "a mat on a cat", "cat mat a a on"]}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(3):
        Image.new("RGB", (20, 10), (60 * i, 10, 200)).save(folder / f"p{i}.png")
    return folder


def save(folder: Path, ending: str, rows: Sequence[dict[str, Any]]) -> Path:
    path = folder / f"t.{ending}"
    if ending == "csv":
        pd.DataFrame(list(rows)).to_csv(path, index=False)
    elif ending == "parquet":
        pd.DataFrame(list(rows)).to_parquet(path)
    elif ending == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    else:
        path.write_text(json.dumps(list(rows)))
    return path


def refused(path: Path, pictures: Path) -> str:
    with pytest.raises(ValueError, match=r"\.$") as caught:
        read_foils(path, pictures)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ----------------------------------------------------------------------------------------------- every layout, any file


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "jsonl"])
@pytest.mark.parametrize(
    ("row", "layout"),
    [(PAIR, "table"), ({**ARO, **BOX}, "ARO"), (WINO, "Winoground"), (ORDER, "ARO order"),
     ({"filename": "p0.png", "caption": "a cat", "negative_caption": "a dog"}, "SugarCrepe"),
     ({"image": "p0.png", "caption": ["A cat, on a red mat.", "A mat under a cat in the house."]}, "ARO order")],
    ids=["own", "aro", "winoground", "order", "sugarcrepe", "captions"],
)  # fmt: skip
def test_a_layout_is_the_same_in_every_kind_of_file(
    row: dict[str, Any], layout: str, ending: str, pictures: Path, tmp_path: Path
):
    found, plain = (read_foils(save(tmp_path, one, [row, row]), pictures) for one in (ending, "json"))
    assert found.layout == layout
    assert found.table.captions == plain.table.captions
    if isinstance(found.table, FoilTable) and isinstance(plain.table, FoilTable):
        assert found.table.foils == plain.table.foils
        assert found.table.kinds == plain.table.kinds
    assert found.pictures == plain.pictures
    told = [note for note in found.notes if "written as text" in note]
    assert bool(told) == (ending == "csv" and any(isinstance(value, list) for value in row.values()))


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_list_is_no_caption(ending: str, pictures: Path, tmp_path: Path):
    for given in ("['a mat', 'a dog']", '["a mat"]', "[]"):
        assert "has a list as its foil; give one text" in refused(
            save(tmp_path, ending, [PAIR, {**PAIR, "foil": given}]), pictures
        )
    kept = read_foils(save(tmp_path, ending, [{**PAIR, "foil": "[sic] a mat [on] a cat]"}]), pictures)
    assert isinstance(kept.table, FoilTable)
    assert kept.table.foils == ("[sic] a mat [on] a cat]",)  # brackets make no list


def test_texts_side_by_side_are_not_glued(pictures: Path, tmp_path: Path):
    """As NumPy prints an array of texts."""
    said = refused(save(tmp_path, "csv", [{"image": "p0.png", "caption_options": "['a cat' 'a mat']"}]), pictures)
    assert "line 2 has no captions in order" in said


# ----------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_only_a_line_feed_ends_a_record(separator: str, pictures: Path, tmp_path: Path):
    caption = f"a red{separator}square"
    line = json.dumps({**PAIR, "caption": caption}, ensure_ascii=False)
    assert separator in line
    (tmp_path / "t.jsonl").write_text(f"{line}\r\n{line}", encoding="utf-8", newline="")
    assert read_foils(tmp_path / "t.jsonl", pictures).table.captions == (caption, caption)


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c"])
def test_separators_that_json_writes_as_escapes_are_told_by_line(separator: str, pictures: Path, tmp_path: Path):
    line = json.dumps({**PAIR, "caption": "a red@square"}).replace("@", separator)
    (tmp_path / "t.jsonl").write_text(line)
    assert "(line 1 is no JSON (Invalid control character" in refused(tmp_path / "t.jsonl", pictures)


@pytest.mark.parametrize(
    ("ending", "named"), [("jsonl", "line 2 has byte 0xe9 in its caption"), ("json", "row 2 has byte 0xe9"),
                          ("csv", "line 3: byte 0xe9 is not UTF-8")],
)  # fmt: skip
def test_bytes_that_are_not_utf8_are_refused_by_row(ending: str, named: str, pictures: Path, tmp_path: Path):
    rows = [PAIR, {**PAIR, "caption": "a caf@ on a mat"}]
    path = save(tmp_path, ending, rows)
    path.write_bytes(path.read_bytes().replace(b"@", b"\xe9"))
    said = refused(path, pictures)
    assert named in said
    assert "save" in said
    if ending != "csv":  # a row of its own can be left out
        left = read_foils(path, pictures, skip=True)
        assert len(left.table.captions) == 1
        assert left.told == f"1 of 2 rows of {path.name} left out"


@pytest.mark.parametrize(("encoding", "name"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-16-be", "")])
def test_other_encodings_are_named(encoding: str, name: str, pictures: Path, tmp_path: Path):
    (tmp_path / "t.json").write_bytes(json.dumps([PAIR]).encode(encoding))
    said = refused(tmp_path / "t.json", pictures)
    assert (f"is written in {name}; save it as UTF-8" if name else "is no JSON") in said


def test_half_characters_and_repeated_names_are_refused(pictures: Path, tmp_path: Path):
    (tmp_path / "t.jsonl").write_text(
        '{"picture": "p0.png", "caption": "a \\ud83d cat", "foil": "x"}\n'
        '{"picture": "p0.png", "caption": "a cat", "foil": "x", "foil": "y"}\n'
        "[1]\n"
        '{"picture": "p0.png", "caption": "a cat"\n'
    )
    said = refused(tmp_path / "t.jsonl", pictures)
    assert "4 of 4 rows can't be used: line 1 has half a character (0xd83d) in its caption" in said
    assert "line 2 has 'foil' twice, of which one would be lost" in said
    assert "line 3 is a list" in said
    assert said.endswith("; and 1 more.")
    (tmp_path / "t.json").write_text('{"1": {}, "1": {}}')
    assert "holds the key '1' twice" in refused(tmp_path / "t.json", pictures)
    (tmp_path / "t.json").write_text("[" * 100_000)
    assert "nested too deeply" in refused(tmp_path / "t.json", pictures)
    (tmp_path / "t.json").write_text(f'[{{"bbox_x": {"9" * 5000}}}]')
    assert "is no JSON" in refused(tmp_path / "t.json", pictures)


def test_one_text_in_two_unicode_forms_is_one(pictures: Path, tmp_path: Path):
    two = unicodedata.normalize("NFD", "un café noir")
    assert "has the foil 'un café noir' equal to its caption" in refused(
        save(tmp_path, "json", [{**PAIR, "caption": "un café noir", "foil": two}]), pictures
    )
    found = read_foils(save(tmp_path, "json", [{**PAIR, "caption": two}]), pictures)
    assert found.table.captions == ("un café noir",)
    assert any("1 text was read in Unicode's composed form" in note for note in found.notes)


def test_words_of_other_tools_are_words(pictures: Path, tmp_path: Path):
    rows = [{**PAIR, "caption": word} for word in ("NA", "None", "null", "True", "007", "1e5")]
    for ending in ("csv", "json", "parquet"):
        assert read_foils(save(tmp_path, ending, rows), pictures).table.captions == tuple(r["caption"] for r in rows)


# -------------------------------------------------------------------------------------------------- bad rows and --skip

BAD = [
    (PAIR, {"foil": "a cat on a mat "}, "has the foil 'a cat on a mat ' equal to its caption"),
    (PAIR, {"foil": None}, "has null as its foil"),
    (PAIR, {"caption": 3}, "has a number as its caption"),
    (PAIR, {"caption": " "}, "has an empty caption"),
    (PAIR, {"picture": "gone.png"}, "names the picture 'gone.png', not found"),
    (PAIR, {"picture": "../p0.png"}, "leads out of"),
    (PAIR, {"picture": "/etc/passwd"}, "leads out of"),
    (PAIR, {"picture": "P0.PNG"}, "(capitals count: there is 'p0.png')"),
    (PAIR, {"picture": "data:image/png;base64," + "A" * 5000}, "holds a picture itself in picture"),
    (PAIR, {"picture": str({"bytes": b"\x89PNG" * 300, "path": None})}, "holds a picture itself in picture"),
    (PAIR, {"picture": {"bytes": "x"}}, "has an object as its picture"),
    (PAIR, {"picture": "https://example.org/p0.png"}, "has an address as its picture"),
    (PAIR, {"picture": "p0\0.png"}, "which is no file's name"),
    (PAIR, {"picture": "x" * 300}, "which can't be looked up"),
    (PAIR, {"picture": "x" * 3000}, "which is no file's name"),
    (PAIR, {"picture": "circle.png"}, "circle.png"),
    (WINO, {"image_1": "p0.png"}, "has the same picture twice"),
    (WINO, {"caption_1": "a cat on a mat"}, "has the second caption 'a cat on a mat' equal to its caption"),
    (ORDER, {"caption_options": ["alone"]}, "has no captions in order"),
    (ORDER, {"caption_options": ["a cat", 3]}, "has a number as its caption_options"),
    *(({**ARO, **BOX}, {"bbox_w": given}, "as its bbox_w; give a whole number of pixels, 1 or more")
      for given in (None, 0, -3, 1.5, "inf", "nan", float("inf"), float("nan"), 10**400, True, "wide", [5], "")),
    ({**ARO, **BOX}, {"bbox_x": None}, "has null as its bbox_x; give a whole number of pixels, 0 or more"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "change", "said"), BAD, ids=[said[:40] for _, _, said in BAD])
def test_bad_rows_are_listed_and_left_out_if_asked(
    row: dict[str, Any], change: dict[str, Any], said: str, pictures: Path, tmp_path: Path
):
    if not (pictures / "circle.png").is_symlink():
        (pictures / "circle.png").symlink_to("circle.png")
    path = tmp_path / "t.json"
    path.write_text(json.dumps([row, row, {**row, **change}, row]))
    message = refused(path, pictures)
    assert "t.json: 1 of 4 rows can't be used: row 3 " in message
    assert said in message
    assert message.endswith("--skip leaves it out.")
    assert len(message) < 900
    left = read_foils(path, pictures, skip=True)
    assert len(left.table.captions) in (3, 6)
    assert left.told == "1 of 4 rows of t.json left out"
    assert said in left.all_notes[-1]


def test_part_of_a_box_is_no_box(pictures: Path, tmp_path: Path):
    part = {name: value for name, value in BOX.items() if name != "bbox_h"}
    assert "has bbox_x but no bbox_h" in refused(save(tmp_path, "json", [{**ARO, **part}]), pictures)
    whole = read_foils(save(tmp_path, "json", [ARO]), pictures)
    assert whole.pictures[0].box is None


def test_rows_are_named_as_an_editor_counts_and_by_their_key(pictures: Path, tmp_path: Path):
    bad = {**PAIR, "foil": PAIR["caption"]}
    assert ": line 3 has the foil" in refused(save(tmp_path, "csv", [PAIR, bad]), pictures)
    assert ": line 2 has the foil" in refused(save(tmp_path, "jsonl", [PAIR, bad]), pictures)
    (tmp_path / "t.json").write_text(json.dumps({"8": PAIR, "9": bad}))
    assert ": row 2 (key '9') has the foil" in refused(tmp_path / "t.json", pictures)


def test_where_all_rows_are_bad_nothing_can_be_skipped(pictures: Path, tmp_path: Path):
    path = save(tmp_path, "json", [{**PAIR, "picture": f"gone{i}.png"} for i in range(9)])
    for skip in (False, True):
        with pytest.raises(ValueError, match=r"9 of 9 rows can't be used: .*gone2.png.*; and 6 more\.$"):
            read_foils(path, pictures, skip=skip)


# -------------------------------------------------------------------------------------------------------- pictures


def test_names_in_another_form_or_system_find_their_picture(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "sub" / unicodedata.normalize("NFC", "café.png"))
    for name in (
        unicodedata.normalize("NFD", "sub/café.png"),
        "sub\\café.png",
        unicodedata.normalize("NFD", "sub\\café"),
    ):
        found = read_foils(save(tmp_path, "json", [{**PAIR, "picture": name}]), tmp_path)
        assert found.pictures[0].path.exists()
        assert any("1 picture was found in another Unicode form or with / for \\" in note for note in found.notes)


def test_a_name_that_two_pictures_have_is_refused(tmp_path: Path):
    for name in ("a.png", "a.jpg"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    said = refused(save(tmp_path, "json", [{**PAIR, "picture": "a"}]), tmp_path)
    assert "names the picture 'a', which a.png and a.jpg both may be; write its ending" in said
    assert read_foils(save(tmp_path, "json", [{**PAIR, "picture": "a.jpg"}]), tmp_path).pictures[0].path.name == "a.jpg"


# ------------------------------------------------------------------------------------------------------- relations


def test_relations_stand_by_themselves_and_their_mean_counts_each_once(
    pictures: Path, tmp_path: Path, documented: Callable[[str], bool]
):
    rows = [{**ARO, "image_path": f"p{i % 3}.png", "relation_name": "on"} for i in range(9)]
    rows += [{**ARO, "true_caption": "a dog", "relation_name": "to the left of"}]

    class Tower:
        """Likes cats on mats, and no dog."""

        kind, fingerprint = "text", None

        def embed(self, items: list[str]) -> torch.Tensor:
            return torch.tensor([[{"a cat on a mat": 1.0, "a mat on a cat": 0.5}.get(i, 0.0), 1.0] for i in items])

    found = read_foils(save(tmp_path, "csv", rows), pictures)
    assert isinstance(found.table, FoilTable)
    judged = {
        row.id: row for row in table_rows("crossmodal.foil.table", torch.tensor([[1.0, 0.0]] * 3), Tower(), found.table)
    }
    assert [id for id in judged if not documented(id)] == []
    assert judged["crossmodal.foil.table"].value == 0.9
    assert judged["crossmodal.foil.table.relation.on"].value == 1.0
    assert judged["crossmodal.foil.table.relation.to the left of"].value == 0.0
    mean = judged["crossmodal.foil.table.relations"]
    assert mean.value == 0.5
    assert mean.low is None
    assert mean.reason == "no interval: 3 objects and 10 scenes (needs 8 and 20)"


def test_the_mean_over_relations_has_an_interval_where_there_are_pictures_enough(tmp_path: Path):
    rows = list[dict[str, str]]()
    for i in range(40):
        Image.new("RGB", (4, 4)).save(tmp_path / f"q{i}.png")
        rows.append({**ARO, "image_path": f"q{i}.png", "relation_name": "on" if i % 4 else "under",
                     **({"true_caption": "no"} if i % 3 == 0 else {})})  # fmt: skip

    class Tower:
        kind, fingerprint = "text", None

        def embed(self, items: list[str]) -> torch.Tensor:
            return torch.tensor([[{"a cat on a mat": 1.0, "a mat on a cat": 0.5}.get(i, 0.0), 1.0] for i in items])

    found = read_foils(save(tmp_path, "json", rows), tmp_path)
    assert isinstance(found.table, FoilTable)
    judged = {row.id: row for row in table_rows("t", torch.tensor([[1.0, 0.0]] * 40), Tower(), found.table)}
    mean, parts = judged["t.relations"], [judged["t.relation.on"], judged["t.relation.under"]]
    assert mean.value == pytest.approx(sum(part.value or 0.0 for part in parts) / 2)
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < (mean.value or 0.0) < mean.high


# ----------------------------------------------------------------------------------------------------------- whole runs


def test_texts_that_are_too_long_are_told_by_row(tiny: Callable[[str], Path], pictures: Path, tmp_path: Path):
    """And pictures that can't be opened: one run with all that is bad, refused at first, then left out."""
    name, long = f"hf:{tiny('clip')}", "red " * 200
    (tmp_path / "broken.png").write_bytes(b"no picture")
    for picture in pictures.glob("p*.png"):
        (tmp_path / picture.name).write_bytes(picture.read_bytes())
    rows = [{**PAIR, "picture": f"p{i % 3}.png", "caption": f"a cat on {'a ' * i}mat"} for i in range(6)]
    rows += [{**PAIR, "foil": long}, {**PAIR, "foil": PAIR["caption"]}]
    path = save(tmp_path, "json", rows)
    tower = load_model(name).towers["text"]
    assert set(too_long(tower, [long, "a cat"])) == {long}
    config: dict[str, Any] = {"embedder": name, "table": path, "runs": tmp_path / "runs", "store": tmp_path / "store"}
    with pytest.raises(ValueError, match="1 of 8 rows can't be used: row 8 has the foil"):
        run_foils(FoilsConfig(**config))
    path = save(tmp_path, "json", rows[:7])
    with pytest.raises(
        ValueError, match=r"row 7 has 'red red .*tokens where this tower reads .*; shorten it\. --skip leaves it"
    ):
        run_foils(FoilsConfig(**config))
    path = save(tmp_path, "json", [*rows, {**PAIR, "picture": "broken.png"}])
    result = run_foils(FoilsConfig(**config, skip=True))
    assert all(str(row.reason).startswith("3 of 9 rows of t.json left out") for row in result.rows)
    assert {row.n for row in result.rows if row.id == "crossmodal.foil.table"} == {6}
    (note,) = [note for note in result.record["notes"] if "left out" in note]
    assert "row 7 has" in note
    assert "row 9 has a picture that can't be used" in note
    path = save(tmp_path, "json", [*rows[:6], {**PAIR, "picture": "broken.png"}])
    with pytest.raises(ValueError, match="1 of 7 rows can't be used: row 7 has a picture that can't be used"):
        run_foils(FoilsConfig(**config))


def test_groups_and_captions_with_several_foils_are_left_out_whole(pictures: Path, tmp_path: Path):
    found = read_foils(save(tmp_path, "json", [ORDER, {**ORDER, "image": "p1"}, {**ORDER, "image": "p2"}]), pictures)
    left = found.without({1: "is bad"}, skip=True)
    assert isinstance(left.table, FoilTable)
    assert left.table.groups is not None
    assert left.table.groups.tolist() == [0, 0, 1, 1]
    assert left.table.rows.tolist() == [0, 0, 2, 2]
    assert left.rows == (0, 0, 2, 2)
    groups = read_foils(save(tmp_path, "json", [WINO, {**WINO, "caption_1": "a dog"}]), pictures).without(
        {0: "is bad"}, skip=True
    )
    assert isinstance(groups.table, GroupTable)
    assert groups.table.captions == (("a cat on a mat", "a dog"),)
    with pytest.raises(ValueError, match="row 1 is bad"):
        found.without({0: "is bad"}, skip=False)
    text = load_model("oracle:pair-bag:8").towers["text"]
    assert all(row.reason and "1 of 3 rows" in row.reason for row in file_rows(left, torch.ones(3, 8), text))
    assert isinstance(found, FoilFile)
