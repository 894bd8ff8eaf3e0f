"""Reading the user's tables and pictures: what is understood, and one clear sentence for what isn't."""

import json
import struct
import zlib
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.files import open_picture
from colligate.scenes.sources import check_pictures, read_labels, read_space
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.worlds import load_world, render

SHARED = Path(__file__).parents[2] / ".." / "shared"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="../shared is absent")

HEAD = "slot1_color,slot1_shape,slot2_color,slot2_shape"
GOOD = f"{HEAD}\nred,cube,blue,ball\nblue,cube,red,ball\n"


def table(folder: Path, text: str | bytes, name: str = "mine.csv") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


# ------------------------------------------------------------------------------------------------ what is understood


def test_words_are_numbered_in_sorted_order_and_indices_as_given(tmp_path: Path) -> None:
    words = read_labels(table(tmp_path, GOOD)).scenes
    assert words.space == ConceptSpace(color=["blue", "red"], shape=["ball", "cube"])
    assert words.values.tolist() == [[[1, 1], [0, 0]], [[0, 1], [1, 0]]]
    indices = read_labels(table(tmp_path, f"{HEAD}\n1,0,0,1\n0,0,1,1\n")).scenes
    assert indices.values.tolist() == [[[1, 0], [0, 1]], [[0, 0], [1, 1]]]
    assert indices.space == ConceptSpace(color=2, shape=2)


def test_words_beside_indices_name_the_values(tmp_path: Path) -> None:
    text = "slot1_color,slot2_color,slot1_color_word,slot2_color_word\n1,0,blue,red\n0,1,red,blue\n"
    assert read_labels(table(tmp_path, text)).scenes.space.words == (("red", "blue"),)


def test_a_given_space_orders_words_allows_gaps_and_may_leave_a_concept_out(tmp_path: Path) -> None:
    space = ConceptSpace(color=["red", "green", "blue"])
    world = read_labels(table(tmp_path, GOOD), space=space)
    assert world.scenes.values[..., 0].tolist() == [[0, 2], [2, 0]]
    assert any("'shape'" in note and "left out" in note for note in world.notes)
    assert "No scene of mine.csv shows color green." in world.notes
    gaps = read_labels(table(tmp_path, "slot1_color,slot2_color\n0,2\n2,0\n"), space=space)
    assert gaps.scenes.describe(0) == "red | blue"


def test_numbers_are_words_where_the_given_space_has_them_as_words(tmp_path: Path) -> None:
    space = ConceptSpace(size=["1", "0", "10"])
    world = read_labels(table(tmp_path, "slot1_size,slot2_size\n10,1\n1,0\n"), space=space)
    assert world.scenes.values[..., 0].tolist() == [[2, 0], [0, 1]]
    assert any("read as words" in note for note in world.notes)


def test_cells_are_kept_as_written(tmp_path: Path) -> None:
    text = 'slot1_word,slot2_word,caption\nNA,null,NA\n1e5,nan, two  blanks \nNone,inf,"a, ""b"""\n'
    world = read_labels(table(tmp_path, text))
    assert world.scenes.space.words == (("1e5", "NA", "None", "inf", "nan", "null"),)
    assert world.captions == ("NA", " two  blanks ", 'a, "b"')


def test_slots_may_be_empty_and_whole_floats_are_indices(tmp_path: Path) -> None:
    world = read_labels(table(tmp_path, f"{HEAD}\n1,0,0.0,1.0\n0,1,,\n"))
    assert world.scenes.counts.tolist() == [2, 1]


def test_captions_pictures_split_and_ignored_columns(tmp_path: Path) -> None:
    text = "id,filename,slot1_c,slot2_c,caption,split,note\n7,p/a.png,x,y,first,fit,?\n8,b.png,y,x,second,test,\n"
    world = read_labels(table(tmp_path, text))
    assert world.name == "mine"
    assert world.pictures == (tmp_path.resolve() / "p" / "a.png", tmp_path.resolve() / "b.png")
    assert (world.captions, world.parts) == (("first", "second"), ("fit", "test"))
    assert world.notes == ("Ignored columns of mine.csv: 'id', 'note'.",)


def test_picture_goes_before_filename(tmp_path: Path) -> None:
    world = read_labels(table(tmp_path, "slot1_c,slot2_c,filename,picture\nx,y,old,a.png\ny,x,old,b.png\n"))
    assert world.pictures is not None
    assert world.notes == ("Ignored columns of mine.csv: 'filename'.",)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_byte_order_marks_line_ends_and_blanks_are_read(tmp_path: Path, separator: str) -> None:
    text = "\ufeff" + GOOD.replace(",", separator).replace("\n", "\r\n").replace("cube", " cube")
    world = read_labels(table(tmp_path, text + "\r\n"))
    assert world.scenes.describe(0) == "red cube | blue ball"
    assert f"mine.csv was read with {separator!r} between its columns." in world.notes
    assert "Blanks around 2 cells of column slot1_shape were removed." in world.notes


def test_parquet_reads_like_csv(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "slot1_color": pd.Categorical(["red", "blue", "red"]),
            "slot1_size": [0, 1, 1],
            "slot2_color": ["blue", None, "red"],
            "slot2_size": [1.0, float("nan"), 0.0],
            "caption": ["NA", "b", "c"],
            "vector": [[0.1], [0.2], [0.3]],
        }
    )
    frame.to_parquet(tmp_path / "mine.parquet")
    columns = ["slot1_color", "slot1_size", "slot2_color", "slot2_size", "caption"]
    frame[columns].to_csv(tmp_path / "same.csv", index=False)
    world, same = read_labels(tmp_path / "mine.parquet"), read_labels(tmp_path / "same.csv")
    assert world.scenes.content_hash == same.scenes.content_hash
    assert world.captions == same.captions
    assert "'vector'" in world.notes[0]


@settings(max_examples=15)
@given(
    objects=st.lists(st.tuples(st.integers(0, 11), st.integers(-1, 11)), min_size=2, max_size=12),
    spelled=st.booleans(),
)
def test_whatever_scenes_are_written_come_back(
    tmp_path_factory: pytest.TempPathFactory, objects: list[tuple[int, int]], spelled: bool
) -> None:
    space = ConceptSpace(color=["é", 'say "so"', "a,b", "7up"], shape=["x", "y", "z"])
    scenes = space.scenes([*objects, (0, 4)])
    rows: list[dict[str, str]] = []
    for values in scenes.values.tolist():
        row: dict[str, str] = {}
        for k, of_slot in enumerate(values):
            for name, words, value in zip(space.names, space.words, of_slot, strict=True):
                row[f"slot{k + 1}_{name}"] = "" if value < 0 else (words[value] if spelled else str(value))
        rows.append(row)
    file = tmp_path_factory.mktemp("tables") / "mine.csv"
    pd.DataFrame(rows).to_csv(file, index=False)
    assert torch.equal(read_labels(file, space=space).scenes.values, scenes.values)


def test_a_rendered_world_comes_back_as_it_was(tmp_path: Path) -> None:
    whole = load_world("clevr2d")
    world = whole.select(torch.arange(560, 600))
    read = read_labels(render(world, tmp_path / "out"), space=world.scenes.space)
    assert torch.equal(read.scenes.values, world.scenes.values)
    assert read.texts() == world.texts()
    check_pictures(read)
    assert read.images(torch.tensor([3]))[0].tobytes() == world.images(torch.tensor([3]))[0].tobytes()


@needs_shared
@pytest.mark.parametrize("name", ["clevr", "clevr2d"])
def test_the_released_clevr_labels_hold_by_index(name: str) -> None:
    read, ours = read_labels(SHARED / "data" / "authors_release" / name / "labels.csv"), load_world("clevr")
    assert read.scenes.space == ours.scenes.space
    assert (ours.scenes.rows_of(read.scenes) >= 0).all()
    assert len(read.scenes.ids.unique()) == 576
    assert any("exchanged against the pictures" in note for note in read.notes)


def test_a_table_that_only_looks_like_the_release_keeps_its_words(tmp_path: Path) -> None:
    head = "filename,object1_color,object1_shape,object2_color,object2_shape,"
    head += "object1_color_idx,object1_shape_idx,object2_color_idx,object2_shape_idx"
    world = read_labels(
        table(tmp_path, f"{head}\n0.png,red,cube,blue,sphere,0,0,1,1\n1.png,red,cylinder,red,cube,0,2,0,0\n")
    )
    assert world.scenes.space.words == (("red", "blue"), ("cube", "sphere", "cylinder"))
    assert world.notes == ()


@needs_shared
def test_the_released_pug_spare_labels_are_our_world() -> None:
    read, ours = read_labels(SHARED / "data" / "authors_release" / "pug_spare" / "labels.csv"), load_world("pug_spare")
    assert read.scenes.space.names == ("animal", "texture")
    assert [w.lower() for w in read.scenes.space.words[0]] == [w.replace(" ", "") for w in ours.scenes.space.words[0]]
    assert set(map(tuple, read.scenes.objects.tolist())) == set(map(tuple, ours.scenes.objects.tolist()))


@needs_shared
@pytest.mark.parametrize("name", ["clevr-text", "exclusions"])
def test_the_golden_tables_are_read_in_their_order(name: str) -> None:
    world = read_labels(SHARED / "golden" / name / "scenes.csv")
    meta = json.loads((SHARED / "golden" / name / "meta.json").read_text())
    assert [list(words) for words in world.scenes.space.words] == meta["words"]
    template = CaptionTemplate("a {colour} {shape}" if name == "clevr-text" else "a {texture} {animal}")
    assert template(world.scenes) == world.texts()


# ---------------------------------------------------------------------------------------------------- what is refused

REFUSED = {
    "empty file": ("", "has no columns of labels|holds no scenes"),
    "no rows": (f"{HEAD}\n", "holds no scenes; the table is empty"),
    "no labels": ("a,b\n1,2\n", "has no columns of labels, such as slot1_color; its columns are 'a', 'b'"),
    "one object": (f"{HEAD}\nred,cube,red,cube\n", "shows one object only"),
    "missing concept": ("slot1_color,slot1_shape,slot2_color\na,b,c\n", "no column for 'shape' in slot 2"),
    "no partner": (
        "slot1_color,slot2_colour\na,b\n",
        "no column for 'color' in slot 2 to go with slot1_color; if that is slot2_colour, give both one name",
    ),
    "slot gap": ("slot1_color,slot3_color\na,b\n", "has slots 1, 3; number them 1, 2"),
    "slot zero": ("slot0_color,slot1_color\na,b\n", "has slots 0, 1; number them 1, 2"),
    "twice": ("slot1_c,slot2_c,slot1_c\na,b,a\n", "has the column 'slot1_c' twice"),
    "in part": (f"{HEAD}\nred,cube,blue,\n", r"line 2, column slot2_shape: the cell is empty but slot 2"),
    "no object": (f"{HEAD}\nred,cube,blue,ball\n,,,\n", r"line 3, column slot1_color: the row holds no obj"),
    "fraction": ("slot1_c,slot2_c\n0,1\n1,1.5\n", r"line 3, column slot2_c: '1.5' is no index of c"),
    "negative": ("slot1_c,slot2_c\n0,1\n1,-1\n", "'-1' is no index of c; use whole numbers from 0 .* leave empty"),
    "huge": ("slot1_c,slot2_c\n0,1\n1,99999999999999999999\n", "is no index of c; use whole numbers from 0 below"),
    "very huge": (f"slot1_c,slot2_c\n0,1\n1,{'9' * 6000}\n", r"'9+\.\.\.' is no index of c"),
    "gap": ("slot1_c,slot2_c\n0,1\n1,3\n", "c has indices up to 3 but no 2; .* list all of them with --space"),
    "from one": ("slot1_c,slot2_c\n1,2\n2,1\n", "c has indices up to 2 but no 0"),
    "mixed": ("slot1_c,slot2_c\n0,1\nred,1\n", "c mixes words \\('red'\\) and indices \\('0'\\).* --space"),
    "two words": ("slot1_c,slot2_c,slot1_c_word\n0,1,a\n1,0,b\n0,1,b\n", r"line 4, column slot1_c_word"),
    "two indices": ("slot1_c,slot2_c,slot1_c_word\n0,1,a\n1,0,a\n", "'a' is 0; words and indices must be one-to-one"),
    "no word": ("slot1_c,slot2_c,slot1_c_word\n0,1,a\n1,0,\n", "one of the two is empty"),
    "lone word": ("slot1_c_word,slot2_c\na,b\n", "slot1_c_word without slot1_c"),
    "unnamed": ("slot1_c,slot2_c,slot1_c_word\n0,1,a\n", "index 1 of c has no word"),
    "ragged rows": (f"{HEAD}\nred,cube,blue\n", "line 2: 3 cells for 4 columns"),
    "open quote": (f'{HEAD}\n"red,cube,blue,ball\n', "save it as plain CSV"),
    "latin-1": (GOOD.replace("blue", "bl\u00fce").encode("latin-1"), r"line 2: byte 0xfc is not UTF-8"),
    "utf-16": (GOOD.encode("utf-16"), "is not UTF-8; save the table as UTF-8"),
    "no caption": ("slot1_c,slot2_c,caption\na,b,x\nb,a, \n", r"line 3, column caption: the caption is em"),
    "bad part": ("slot1_c,slot2_c,split\na,b,fit\nb,a,train\n", "column split: 'train' is no part; use fit, valid"),
    "same caption": (
        "slot1_c,slot2_c,caption\na,b,x\nb,a,y\na,b,x\n",
        "line 2 and line 4 have the same labels",
    ),
    "same picture": ("slot1_c,slot2_c,picture\na,b,x\nb,a,y\na,b,x\n", "line 2 and line 4 have .* the same picture"),
    "no picture": ("slot1_c,slot2_c,picture\na,b,\n", "column picture: '' is no file name"),
    "up": ("slot1_c,slot2_c,picture\na,b,p/../../x.png\n", "leaves the table's folder"),
    "up elsewhere": ("slot1_c,slot2_c,picture\na,b,..\\x.png\n", "leaves the table's folder"),
    "absolute": ("slot1_c,slot2_c,picture\na,b,/etc/x.png\n", "leaves the table's folder"),
    "drive": ("slot1_c,slot2_c,picture\na,b,C:x.png\n", "leaves the table's folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_sentence_says_what_is_wrong(tmp_path: Path, case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as caught:
        read_labels(table(tmp_path, text))
    said = str(caught.value)
    assert "mine.csv" in said
    assert "\n" not in said
    assert said.endswith((".", "?"))


def test_a_missing_file_and_another_kind_of_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.csv can't be read"):
        read_labels(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=r"a \.csv or \.parquet file; got .*mine.xlsx"):
        read_labels(table(tmp_path, "x", "mine.xlsx"))
    with pytest.raises(ValueError, match="is no Parquet file"):
        read_labels(table(tmp_path, "x", "mine.parquet"))


def test_an_unknown_value_is_named_with_what_is_known(tmp_path: Path) -> None:
    space = ConceptSpace(color=["red", "blue"], shape=["cube", "sphere"])
    with pytest.raises(
        ValueError, match=r"line 3, column slot2_color: unknown color 'rde'; .* red, blue. Did you mean 'red'"
    ):
        read_labels(table(tmp_path, f"{HEAD}\nred,cube,blue,cube\nred,cube,rde,cube\n"), space=space)
    with pytest.raises(ValueError, match="'2' is no index of color; use 0 to 1"):
        read_labels(table(tmp_path, f"{HEAD}\n0,0,2,1\n"), space=space)
    with pytest.raises(ValueError, match="no column for 'texture' in slot 1"):
        read_labels(table(tmp_path, GOOD), space=ConceptSpace(color=2, texture=2))
    text = "slot1_color,slot2_color,slot1_color_word\n0,1,blue\n"
    with pytest.raises(ValueError, match="'blue' stands beside index 0, but 0 is 'red'"):
        read_labels(table(tmp_path, text), space=ConceptSpace(color=["red", "blue"]))


def test_replicates_with_their_own_captions_or_pictures_are_fine(tmp_path: Path) -> None:
    text = "slot1_c,slot2_c,caption,picture\na,b,x,1.png\na,b,x,2.png\nb,a,y,3.png\n"
    assert read_labels(table(tmp_path, text)).scenes.ids.unique().numel() == 2
    assert len(read_labels(table(tmp_path, "slot1_c,slot2_c,caption\na,b,x\na,b,y\n")).scenes) == 2


def test_a_concept_of_one_value_is_noted(tmp_path: Path) -> None:
    world = read_labels(table(tmp_path, f"{HEAD}\nred,cube,blue,cube\n"))
    assert world.notes == ("Concept 'shape' has one value only ('cube'); nothing can be told apart by it.",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "must hold an object"),
        ("{}", "must hold an object"),
        ('{"color": "red"}', "concept 'color' must list"),
        ('{"color": true}', "concept 'color' must list"),
        ('{"color": 0}', "concept 'color' must list"),
        ('{"color": ["red", 1]}', "concept 'color' must list"),
        ('{"color": 2, "color": 3}', "lists the concept 'color' twice"),
        ('{"color": ["red", "red"]}', "lists the value 'red' twice"),
    ],
)
def test_a_wrong_space_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_space(table(tmp_path, text, "space.json"))
    assert "space.json" in str(caught.value)


# ----------------------------------------------------------------------------------------------------------- pictures


def pictured(folder: Path, name: str = "a.png") -> Path:
    return table(folder, f"slot1_c,slot2_c,picture\na,b,{name}\n")


def bomb(folder: Path) -> None:
    """A PNG of 57 bytes that says it is 40,000 x 40,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0)
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IEND", b""))


def mild_bomb(folder: Path) -> None:
    Image.new("1", (10_000, 10_000)).save(folder / "a.png")


def truncated(folder: Path) -> None:
    Image.effect_noise((64, 64), 50).save(folder / "a.png")
    content = (folder / "a.png").read_bytes()
    (folder / "a.png").write_bytes(content[: len(content) // 2])


def animated(folder: Path) -> None:
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "blue")]
    frames[0].save(folder / "a.png", format="GIF", save_all=True, append_images=frames[1:])


PICTURES = {
    "missing": (lambda folder: None, "missing; put it there"),
    "truncated": (truncated, "truncated, broken or no picture"),
    "no picture": (lambda folder: table(folder, "hello", "a.png"), "truncated, broken or no picture"),
    "folder": (lambda folder: (folder / "a.png").mkdir(), "it is a folder"),
    "bomb": (bomb, "like a decompression bomb"),
    "mild bomb": (mild_bomb, "like a decompression bomb"),
    "animated": (animated, "is animated"),
    "deep": (lambda folder: Image.new("I;16", (4, 4)).save(folder / "a.png"), "more than 8 bits a channel"),
}


@pytest.mark.parametrize("case", PICTURES)
def test_a_picture_that_cannot_be_shown_names_its_row(tmp_path: Path, case: str) -> None:
    make, message = PICTURES[case]
    make(tmp_path)
    world = read_labels(pictured(tmp_path))
    with pytest.raises(ValueError, match=f"^Row 1: Picture .*a.png .*{message}"):
        check_pictures(world)


def test_links_may_stay_but_not_leave(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "out" / "x.png")
    Image.new("RGB", (2, 2)).save(tmp_path / "in" / "x.png")
    (tmp_path / "in" / "inner.png").symlink_to("x.png")
    (tmp_path / "in" / "outer.png").symlink_to(tmp_path / "out" / "x.png")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "out")
    check_pictures(read_labels(pictured(tmp_path / "in", "inner.png")))
    for name in ("outer.png", "folder/x.png"):
        with pytest.raises(ValueError, match="leaves the table's folder"):
            read_labels(pictured(tmp_path / "in", name))


def test_pictures_are_turned_and_laid_over_white(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (4, 2)).save(tmp_path / "turned.png", exif=exif)
    assert open_picture(tmp_path / "turned.png").size == (2, 4)
    clear = Image.new("RGBA", (1, 1), (0, 0, 0, 0))
    clear.save(tmp_path / "clear.png")
    assert open_picture(tmp_path / "clear.png").getpixel((0, 0)) == (255, 255, 255)
    Image.new("P", (1, 1), 0).save(tmp_path / "clear.gif", transparency=0)
    assert open_picture(tmp_path / "clear.gif").getpixel((0, 0)) == (255, 255, 255)
    Image.new("L", (1, 1), 7).save(tmp_path / "gray.png")
    assert open_picture(tmp_path / "gray.png").getpixel((0, 0)) == (7, 7, 7)


def test_check_pictures_looks_at_the_given_rows_only_and_not_at_drawn_worlds(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    world = read_labels(table(tmp_path, "slot1_c,slot2_c,picture\na,b,a.png\nb,a,lost.png\n"))
    check_pictures(world, torch.tensor([0]))
    with pytest.raises(ValueError, match=r"^Row 2: Picture .*lost\.png is missing"):
        check_pictures(world)
    check_pictures(load_world("clevr2d"))


def test_scenes_of_a_table_are_scenes(tmp_path: Path) -> None:
    assert isinstance(read_labels(table(tmp_path, GOOD)).items("scene"), Scenes)


def test_a_rare_word_near_to_a_frequent_one_is_noted(tmp_path: Path) -> None:
    rows = ["red,blue", "blue,red"] * 12
    path = tmp_path / "typo.csv"
    path.write_text("\n".join(["slot1_colour,slot2_colour", *rows, "rde,blue", "green,blue"]))
    (note,) = read_labels(path).notes
    assert note == f"{path}, line 26, column slot1_colour: 'rde' occurs once; did you mean 'red'?"
