"""The user's own tables and pictures in other layouts: long tables, folders, PUG, and pictures that disagree."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from colligate.scenes.files import check_files, open_picture, unlisted
from colligate.scenes.findings import understand
from colligate.scenes.sources import check_pictures, read_labels
from colligate.scenes.space import ConceptSpace
from colligate.scenes.worlds import World, load_world, render

SHARED = Path(__file__).parents[3] / "shared" / "data" / "authors_release"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the authors' release is not beside this checkout")
LONG = """scene,slot,color,shape,picture,caption
a,1,red,cube,a.png,two things
a,2,blue,ball,a.png,two things
b,2,red,ball,b.png,two others
b,1,blue,cube,b.png,two others
c,1,red,cube,c.png,one thing
"""
PUG = "filename,world_name,character_name,character2_name,character_texture,character2_texture,"
PUG += "character_pos,character2_pos"
PUG_ROWS = ["0.png,Desert,Crow,Fox,Red,Blue,,", "1.png,Desert,Fox,Crow,Blue,Red,,", "0.png,Island,Crow,Fox,Red,Blue,,"]


def table(folder: Path, text: str, name: str = "labels.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def picture(path: Path, seed: int = 0, **settings: Image.Exif) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 6, 3), dtype=np.uint8)).save(
        path, None, **settings
    )


# ------------------------------------------------------------------------------------------------------- long tables


def test_a_row_for_each_object_reads_like_a_row_for_each_scene(tmp_path: Path) -> None:
    world = read_labels(table(tmp_path, LONG))
    wide = "picture,caption,slot1_color,slot1_shape,slot2_color,slot2_shape\n"
    wide += "a.png,two things,red,cube,blue,ball\nb.png,two others,blue,cube,red,ball\nc.png,one thing,red,cube,,\n"
    same = read_labels(table(tmp_path, wide, "wide.csv"))
    assert world.scenes.content_hash == same.scenes.content_hash
    assert (world.captions, world.pictures) == (same.captions, same.pictures)
    assert world.notes == ("labels.csv was read as one row for each object: color, shape.",)


def test_scenes_of_a_long_table_may_be_told_apart_by_their_picture_and_its_rows_may_be_mixed(tmp_path: Path) -> None:
    text = "filename,slot,color\na.png,1,red\nb.png,2,red\na.png,2,blue\nb.png,1,blue\n"
    world = read_labels(table(tmp_path, text))
    assert [world.scenes.describe(row) for row in range(2)] == ["red | blue", "blue | red"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("b,2,red,ball,b.png", "b,two,red,ball,b.png"), r"line 4, column slot: 'two' is no slot"),
        (("b,2,red,ball,b.png", "b,1,red,ball,b.png"), r"line 5, column slot: scene 'b' has slot 1 twice"),
        (("a,2,blue,ball,a.png", "a,2,blue,ball,x.png"), r"line 3, column picture: 'x.png' differs from"),
        (("blue,ball,a.png,two things", "blue,ball,a.png,no"), r"line 3, column caption: 'no' differs from caption"),
        (("c,1,red,cube", "c,1,red,"), r"line 6, column shape: the cell is empty but slot 1 has other val"),
        (("c,1,red,cube", "c,3,red,cube"), None),
        (("b,2,red,ball,b.png", "b,3,red,ball,b.png"), None),
    ],
)
def test_long_tables_name_the_rows_as_they_were_written(
    tmp_path: Path, change: tuple[str, str], message: str | None
) -> None:
    path = table(tmp_path, LONG.replace(*change))
    if message is None:
        assert read_labels(path).scenes.slots == 3, "empty slots in between are kept"
        return
    with pytest.raises(ValueError, match=message) as caught:
        read_labels(path)
    assert "\n" not in str(caught.value)


def test_a_long_table_needs_something_that_tells_scenes_apart(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"row for each object \(column slot\) .* add scene"):
        read_labels(table(tmp_path, "slot,color\n1,red\n2,blue\n"))


# ------------------------------------------------------------------------------------------------------------ folders


def test_a_folder_with_labels_is_a_world_named_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    table(folder, "filename,object1_color,object1_shape,object2_color,object2_shape\n0.png,red,cube,blue,ball\n")
    for lying in ("images", "pictures"):
        picture(folder / lying / "0.png")
        world = read_labels(folder)
        assert world.name == "mine"
        assert world.pictures == (folder.resolve() / "images" / "0.png",)
        assert "The pictures of labels.csv lie in the folder images." in world.notes
    picture(folder / "0.png")
    assert read_labels(folder).pictures == (folder.resolve() / "0.png",), "beside the table goes first"
    with pytest.raises(ValueError, match=r"holds no labels\.csv or labels\.parquet; name the table"):
        read_labels(folder / "images")


def test_pug_is_read_from_a_folder_for_each_world(tmp_path: Path) -> None:
    path = table(tmp_path, "\n".join([PUG, *PUG_ROWS]))
    for i, (world, name) in enumerate([("Desert", "0.png"), ("Desert", "1.png"), ("Island", "0.png")]):
        picture(tmp_path / world / name, seed=i)
    world = read_labels(path)
    assert world.pictures is not None
    assert [p.parent.name for p in world.pictures] == ["Desert", "Desert", "Island"]  # type: ignore[union-attr]
    assert world.scenes.describe(1) == "Fox Blue | Crow Red"
    assert "The pictures of labels.csv lie in the folder of each row's world_name." in world.notes
    assert "Scenes of labels.csv are shown in several worlds (Desert, Island), as replicates." in world.notes
    assert check_pictures(world) == ()
    kept = read_labels(path, keep={"world_name": "Desert", "character_pos": ""})
    assert len(kept) == 2
    assert "Of 3 rows of labels.csv, the 2 with world_name 'Desert' and no character_pos were kept." in kept.notes
    with pytest.raises(ValueError, match="has no column 'mood' to keep rows by"):
        read_labels(path, keep={"mood": "x"})
    with pytest.raises(ValueError, match=r"No row of .* has world_name 'Moon'"):
        read_labels(path, keep={"world_name": "Moon"})
    moved = read_labels(table(tmp_path, "\n".join([PUG, PUG_ROWS[0], "9.png,Desert,Fox,Crow,Blue,Red,left,right"])))
    assert "In 1 of 2 rows of labels.csv the characters stand elsewhere." in moved.notes


def test_folders_of_worlds_may_not_lead_out(tmp_path: Path) -> None:
    picture(tmp_path / "out" / "0.png")
    path = table(tmp_path / "in", "\n".join([PUG, PUG_ROWS[0].replace("Desert", "../out"), PUG_ROWS[1]]))
    world = read_labels(path)
    with pytest.raises(ValueError, match="is missing"):
        check_pictures(world)
    picture(tmp_path / "in" / "Desert" / "1.png")
    path = table(tmp_path / "in", "\n".join([PUG, PUG_ROWS[1], PUG_ROWS[0].replace("Desert", "../out")]))
    with pytest.raises(ValueError, match="leaves the table's folder"):
        read_labels(path)


@needs_shared
def test_the_release_is_understood() -> None:
    clevr = understand(read_labels(SHARED / "clevr"), open_pictures=False)
    assert clevr.scenes == (
        "576 scenes: 576 of 2 objects; all different.",
        "24 of 24 objects occur; the world shows picture, scene.",
    )
    assert clevr.missing == ("No object occurs alone in a scene; the estimator `single` needs them.",)
    pug = understand(read_labels(SHARED / "pug_spare"), open_pictures=False)
    assert "Two objects of a scene never have the same animal." in pug.missing
    assert "Of 9,216 ordered scenes of 2 objects, 7,392 are here." in pug.missing


# ------------------------------------------------------------------------------------------- pictures that disagree


def test_pictures_that_disagree_with_their_labels_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "slot1_c,slot2_c,picture\nx,y,a.png\ny,x,b.png\nx,y,c.png\n")
    for name, seed in (("a.png", 0), ("b.png", 0), ("c.png", 0)):
        picture(tmp_path / name, seed)
    with pytest.raises(ValueError, match=r"Row 2: Picture .*b\.png is the same as row 1's a\.png, but .* \(y \| x; x"):
        check_pictures(read_labels(path))
    picture(tmp_path / "b.png", 1)
    with pytest.raises(
        ValueError, match=r"Row 3: Picture .*c\.png is the same as row 1's a\.png, and so are the labels"
    ):
        check_pictures(read_labels(path))
    Image.open(tmp_path / "a.png").save(tmp_path / "c.png", compress_level=1)
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "c.png").read_bytes()
    with pytest.raises(ValueError, match=r"Row 3: .*leave one out \(repeats of a scene need other pictures\)"):
        check_pictures(read_labels(path))
    picture(tmp_path / "c.png", 2)
    told: list[tuple[str, int, int]] = []
    world = read_labels(path)
    assert isinstance(world.pictures, tuple)
    assert check_files(world.pictures, world.scenes, report=lambda *what: told.append(what)) == ()
    assert told == [("opening pictures", done, 3) for done in (1, 2, 3)]
    assert check_files(world.pictures, world.scenes, torch.tensor([2, 2])) == (), "the same row is no repeat"
    with pytest.raises(ValueError, match="line 2 and line 3 have the same picture and different labels"):
        read_labels(table(tmp_path, "slot1_c,slot2_c,picture\nx,y,a.png\ny,x,a.png\n"))


def test_missing_pictures_are_counted_and_others_listed(tmp_path: Path) -> None:
    path = table(tmp_path, "slot1_c,slot2_c,picture\nx,y,a.png\ny,x,b.png\ny,y,c.png\n")
    picture(tmp_path / "a.png")
    world = read_labels(path)
    with pytest.raises(ValueError, match=r"Row 2: Picture .*b\.png is missing, and so are 1 more; put it there"):
        check_pictures(world)
    for seed, name in enumerate(["b.png", "c.png", "d.png", "e.jpg"], start=1):
        picture(tmp_path / name, seed)
    assert [p.name for p in unlisted(world.pictures)] == ["d.png", "e.jpg"]  # type: ignore[arg-type]
    found = understand(world).pictures
    assert found == ("All pictures open.", "Pictures that lie beside those and that no row names: 2 (d.png, e.jpg).")


def test_turned_gray_and_unequal_pictures_are_noted(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(tmp_path / "turned.jpg", exif=exif)
    Image.new("L", (6, 8), 7).save(tmp_path / "gray.png")
    Image.new("CMYK", (6, 8)).save(tmp_path / "print.jpg")
    scenes = ConceptSpace(c=3).all_scenes(slots=1)
    files = tuple(tmp_path / name for name in ("turned.jpg", "gray.png", "print.jpg"))
    assert open_picture(files[0]).size == (8, 6)
    assert check_files(files, scenes) == (
        "The pictures have 2 sizes; 2 of 3 are 6x8.",
        "Not all pictures are RGB (1 CMYK, 1 L); they are read as RGB, transparent parts over white.",
        "Pictures turned upright as their EXIF data say: 1 (first: row 1).",
    )
    assert check_files(files, scenes, torch.tensor([1])) == (
        "Not all pictures are RGB (1 L); they are read as RGB, transparent parts over white.",
    )


# --------------------------------------------------------------------------------------------------------- findings


def test_a_balanced_world_lacks_nothing_and_others_say_what() -> None:
    whole = load_world("clevr2d")
    assert understand(whole).missing == ()
    space = ConceptSpace(color=["red", "blue"], shape=["cube", "ball"])
    few = understand(World("few", space.scenes([[0, 3], [0, 2]]))).missing
    assert few == (
        "Objects that never occur: 1 (red ball).",
        "Two objects of a scene never have the same color.",
        "Of 4 pairs of color and shape, 3 occur in an object.",
        "Of 16 ordered scenes of 2 objects, 2 are here.",
        "Scenes that lack their twin (the same objects in the opposite order): 2.",
        "No object occurs alone in a scene; the estimator `single` needs them.",
    )
    uneven = understand(World("uneven", space.scenes([[0, 3], [0, 2], [1, 3], [3, 0]]))).missing
    assert "Slot 1 holds some objects 1 times and others 2 times." in uneven
    alone = understand(World("alone", space.all_scenes(slots=1))).missing
    assert alone == ("No scene holds more than one object, so nothing can be said about binding.",)
    same = understand(World("same", space.scenes([[0, 1], [2, 3]]))).missing
    assert "In every scene two objects have the same color, which then tells no object from another." in same


def test_possible_divisions_are_counted_and_others_give_their_reason() -> None:
    whole = load_world("clevr2d")
    parts = tuple("fit" if row % 3 else "test" for row in range(len(whole)))
    found = understand(World("given", whole.scenes, parts=parts)).splits
    assert found[0].startswith("As the column split says: ")
    assert [said.split(":")[0] for said in found[1:]] == ["By scene", "By object", "By swaps", "By color and shape"]
    assert found[3].startswith("By swaps: not possible. ")
    for said in (found[1], found[2]):
        numbers = [int(word.strip(".,")) for word in said.split() if word.strip(".,").isdigit()]
        assert len(numbers) == 3
        assert sum(numbers) <= 600


def test_what_render_writes_is_understood(tmp_path: Path) -> None:
    world = load_world("clevr2d").subgrid(color=2, shape=2)
    folder = render(world, tmp_path / "out").parent
    with (folder / "labels.csv").open() as file:
        assert len(list(csv.reader(file))) == 21
    found = understand(read_labels(folder))
    assert found.missing == ()
    assert found.pictures == ("All pictures open.",)
    assert found.sentences[0] == "20 scenes: 16 of 2 objects, 4 of 1; all different."
    assert found.sentences[1].startswith(
        "A scene of fewer objects leaves the cells of its last slots empty. Scenes of one"
    )
    assert not any("empty" in said for said in understand(world.select(slice(0, 16))).sentences)
