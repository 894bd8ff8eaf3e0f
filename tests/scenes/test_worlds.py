"""Worlds: against the released labels and captions, and the laws of rows."""

import csv
import json
from pathlib import Path

import PIL.Image
import pytest
import torch

from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.pictures2d import Canvas
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.worlds import WORLDS, World, load_world, render, sample_world, writing

SHARED = Path(__file__).parents[3] / "shared"
RELEASE, GOLDEN = SHARED / "data" / "authors_release", SHARED / "golden"
needs_release = pytest.mark.skipif(not RELEASE.exists(), reason="the authors' release is not beside this checkout")
needs_golden = pytest.mark.skipif(not GOLDEN.exists(), reason="the golden values are not beside this checkout")
SPACE = ConceptSpace(color=["red", "blue"], shape=["square", "circle"])


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("name", "sizes", "pairs", "singles", "kinds"),
    [
        ("text20x20", (20, 20), 160_000, 400, ("text", "scene")),
        ("text8x8", (8, 8), 4_096, 64, ("text", "scene")),
        ("clevr", (8, 3), 576, 24, ("text", "picture", "scene")),
        ("clevr-occluded", (8, 3), 576, 24, ("text", "picture", "scene")),
        ("clevr2d", (8, 3), 576, 24, ("text", "picture", "scene")),
        ("pug_spare", (12, 8), 7_392, 0, ("text", "scene")),
    ],
)
def test_built_in_worlds(name: str, sizes: tuple[int, ...], pairs: int, singles: int, kinds: tuple[str, ...]) -> None:
    world = load_world(name)
    assert (world.name, world.scenes.space.sizes, world.kinds) == (name, sizes, kinds)
    assert world.scenes.counts.tolist() == [2] * pairs + [1] * singles
    assert len(world.scenes.ids.unique()) == len(world) == pairs + singles
    assert world.scenes.objects[pairs:, 0].tolist() == list(range(singles))
    assert (world.scenes.ids[:pairs].diff() > 0).all(), "for a in objects: for b in objects"
    assert len(set(world.texts())) == len(world)


def test_every_built_in_world_is_tested_above() -> None:
    names = {"text20x20", "text8x8", "clevr", "clevr3", "clevr-occluded", "clevr2d", "pug_spare"}
    assert set(WORLDS) == names, "clevr3 is tested below"


def test_three_objects_in_every_combination_come_before_the_singles() -> None:
    world = load_world("clevr3")
    assert world.scenes.counts.tolist() == [3] * 13_824 + [1] * 24
    assert len(world.scenes.ids.unique()) == len(world)
    assert world.texts(torch.tensor([1])) == ["a blue cube and a blue cube and a blue cylinder"]


@needs_release
@pytest.mark.parametrize("name", ["clevr", "clevr2d"])
def test_clevr_holds_the_released_scenes_by_index(name: str) -> None:
    """The release's words for shapes 1 and 2 are exchanged; its indices are those of the pictures."""
    world, rows = load_world(name), table(RELEASE / name / "labels.csv")
    columns = [[f"object{k}_{concept}_idx" for concept in ("color", "shape")] for k in (1, 2)]
    released = Scenes(
        world.scenes.space, torch.tensor([[[int(row[c]) for c in slot] for slot in columns] for row in rows])
    )
    assert len(rows) == 576
    assert sorted(world.scenes.rows_of(released).tolist()) == list(range(576))
    colors = {int(row["object1_color_idx"]): row["object1_color"] for row in rows}
    shapes = {int(row["object1_shape_idx"]): row["object1_shape"] for row in rows}
    assert [colors[i] for i in range(8)] == list(world.scenes.space.words[0])
    assert [shapes[i] for i in range(3)] == ["cube", "sphere", "cylinder"]
    assert list(load_world("clevr").scenes.space.words[1]) == ["cube", "cylinder", "sphere"]
    assert "exchange the names of shapes 1 and 2" in world.notes[0]


@needs_release
def test_pug_spare_holds_the_released_scenes() -> None:
    world, rows = load_world("pug_spare"), table(RELEASE / "pug_spare" / "labels.csv")
    animals, textures = world.scenes.space.words
    animal = {word.replace(" ", ""): i for i, word in enumerate(animals)}
    texture = {word: i for i, word in enumerate(textures)}
    values = [
        [
            [animal[row[f"character{which}_name"].lower()], texture[row[key].lower()]]
            for which, key in (("", "character_texture"), ("2", "character2_texture"))
        ]
        for row in rows
    ]
    assert sorted(world.scenes.rows_of(Scenes(world.scenes.space, torch.tensor(values))).tolist()) == list(range(7392))


@needs_golden
@pytest.mark.parametrize(("folder", "name"), [("clevr-text", "clevr"), ("exclusions", "pug_spare")])
def test_captions_and_order_are_those_of_the_golden_tables(folder: str, name: str) -> None:
    world, rows = load_world(name), table(GOLDEN / folder / "scenes.csv")
    meta = json.loads((GOLDEN / folder / "meta.json").read_text(encoding="utf-8"))
    assert [list(words) for words in world.scenes.space.words] == meta["words"]
    assert world.scenes.objects[: len(rows)].tolist() == [[int(row["object1"]), int(row["object2"])] for row in rows]
    assert world.texts() == [row["caption"] for row in rows] + meta["single_captions"]


def test_text_worlds_say_the_papers_words() -> None:
    large, small = load_world("text20x20"), load_world("text8x8")
    assert large.texts(torch.tensor([0, 1, 400, 159_999, 160_000, 160_399])) == [
        "a red circle and a red circle",
        "a red circle and a red square",
        "a red square and a red circle",
        "a glossy fish and a glossy fish",
        "red circle",
        "glossy fish",
    ]
    part = large.subgrid("text8x8", attribute=8, noun=8)
    assert part.texts() == small.texts()
    assert part.scenes.content_hash == small.scenes.content_hash


def test_an_unknown_world_is_named() -> None:
    with pytest.raises(ValueError, match="No world is called 'clevr3d'; choose text20x20"):
        load_world("clevr3d")


def test_missing_pictures_are_said_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="World 'pug_spare' has no pictures, only text and scene"):
        load_world("pug_spare").items("picture")
    with pytest.raises(ValueError, match="has no captions"):
        sample_world(SPACE, slots=2, num=3, seed=0).describe("text")


def test_items_follow_the_rows_asked_for() -> None:
    world = load_world("clevr2d")
    rows = torch.tensor([599, 30, 0])
    texts, scenes, pictures = (world.items(kind, rows) for kind in ("text", "scene", "picture"))
    assert texts == [world.texts()[row] for row in rows.tolist()]
    assert isinstance(scenes, Scenes)
    assert torch.equal(scenes.values, world.scenes.values[rows])
    whole = world.images()
    assert [picture.tobytes() for picture in pictures] == [whole[row].tobytes() for row in rows.tolist()]  # type: ignore[union-attr]
    assert world.items("scene") is world.scenes


def test_given_captions_and_parts_stay_with_their_rows() -> None:
    scenes = SPACE.all_scenes(slots=1)
    world = World("mine", scenes, ("a", "b", "c", "d"), parts=("fit", "fit", "validation", "test"))
    assert world.items("text", torch.tensor([2, 0])) == ["c", "a"]
    chosen = world.select(torch.tensor([3, 1]))
    assert (chosen.texts(), chosen.parts) == (["d", "b"], ("test", "fit"))
    assert chosen.scenes.objects[:, 0].tolist() == [3, 1]
    assert world.select(scenes.values[:, 0, 0] == 1).texts() == ["c", "d"]
    assert world.select(slice(1, 3)).texts() == ["b", "c"]


def test_subgrids_keep_the_first_values_and_cut_the_captions_words() -> None:
    space = ConceptSpace(color=3, shape=3)
    template = CaptionTemplate(words={"color": ("R", "G", "B")})
    world = World("mine", space.all_scenes(slots=2), template).subgrid(color=2)
    assert (world.name, world.scenes.space.sizes, len(world)) == ("mine[color=2]", (2, 3), 36)
    assert torch.equal(world.scenes.values, world.scenes.space.all_scenes(slots=2).values)
    assert world.texts()[-1] == "a G shape2 and a G shape2"
    for sizes, message in (({"color": 4}, "has 3 values"), ({"color": 0}, "first 0"), ({"hue": 1}, "No concept")):
        with pytest.raises(ValueError, match=message):
            world.subgrid(**sizes) if sizes != {"color": 4} else World("m", space.all_scenes(1)).subgrid(**sizes)
    with pytest.raises(ValueError, match="No scene of world 'mine'"):
        World("mine", space.scenes([[8]])).subgrid(color=1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"captions": ("a", "b")}, "2 captions for 4 scenes"),
        ({"parts": ("fit",)}, "1 parts for 4 scenes"),
        ({"pictures": (Path("a.png"),)}, "1 pictures for 4 scenes"),
        ({"parts": ("fit", "fit", "train", "test")}, "row 3: 'train' is no part"),
        ({"captions": CaptionTemplate("a {color}")}, "never says the shape"),
        ({"pictures": Canvas(shape="color", color="shape")}, "No colour is called 'square'"),
    ],
)
def test_worlds_that_do_not_fit_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World("mine", SPACE.all_scenes(slots=1), **fields)  # type: ignore[arg-type]


def test_repeated_scenes_need_pictures_that_differ() -> None:
    twice = SPACE.scenes([[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="same picture for each row of a repeated scene"):
        World("mine", twice, pictures=Canvas())
    one, two = World("mine", twice, pictures=Canvas(jitter=5.0)).images()
    assert one.tobytes() != two.tobytes()


def test_descriptions_tell_worlds_apart_and_are_json() -> None:
    scenes = SPACE.all_scenes(slots=2)
    template, other = CaptionTemplate(), CaptionTemplate("the {color} {shape}")
    given = World("x", scenes, tuple(map(str, range(16)))), World("x", scenes, tuple(map(str, range(1, 17))))
    texts = [World("x", scenes, template), World("x", scenes, other), World("x", scenes.twins(), template), *given]
    assert len({json.dumps(world.describe("text"), sort_keys=True) for world in texts}) == len(texts)
    assert World("y", scenes, template).describe("text") == texts[0].describe("text"), "a name changes no item"
    drawn = [World("x", scenes, pictures=Canvas(seed=seed)).describe("picture") for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    assert json.loads(json.dumps(drawn[0]))["kind"] == "picture"


def test_picture_files_are_described_by_content_and_opened(tmp_path: Path) -> None:
    scenes = SPACE.all_scenes(slots=1)
    paths = tuple(tmp_path / f"{row}.png" for row in range(4))
    for picture, path in zip(Canvas(side=32).draw(scenes), paths, strict=True):
        picture.save(path)
    before = World("files", scenes, pictures=paths).describe("picture")
    assert World("files", scenes, pictures=paths).describe("picture") == before
    PIL.Image.new("RGB", (32, 32), "red").save(paths[2])
    assert World("files", scenes, pictures=paths).describe("picture") != before
    shown = World("files", scenes, pictures=paths).images(torch.tensor([2]))
    assert shown[0].getpixel((0, 0)) == (255, 0, 0)
    paths[1].unlink()
    with pytest.raises(ValueError, match=r"Row 2: picture .*1\.png can't be read"):
        World("files", scenes, pictures=paths).describe("picture")


def test_sampled_worlds_hold_different_scenes_and_follow_their_seed() -> None:
    space = ConceptSpace(color=9, shape=9)
    for num, slots in ((6000, 2), (500, 4)):
        one, two, other = (sample_world(space, slots=slots, num=num, seed=s).scenes for s in (3, 3, 4))
        assert len(one.ids.unique()) == len(one) == num
        assert torch.equal(one.values, two.values)
        assert not torch.equal(one.values, other.values)
    everything = sample_world(SPACE, slots=2, num=16, seed=0)
    assert sorted(everything.scenes.ids.tolist()) == sorted(SPACE.all_scenes(slots=2).ids.tolist())
    for num in (0, 17):
        with pytest.raises(ValueError, match="There are 16 scenes of 2 of 4 objects"):
            sample_world(SPACE, slots=2, num=num, seed=0)


def drawn_world() -> World:
    scenes = Scenes.join([SPACE.scenes([[0, 3], [1, 2]]), SPACE.scenes([[2]])])
    return World("small", scenes, CaptionTemplate(), Canvas(side=48), parts=("fit", "test", "validation"))


def test_rendering_writes_pictures_and_a_table_that_says_the_scenes(tmp_path: Path) -> None:
    world = drawn_world()
    labels = render(world, tmp_path / "out")
    rows = table(labels)
    assert [row["filename"] for row in rows] == ["0000000.png", "0000001.png", "0000002.png"]
    for row, drawn in zip(rows, world.images(), strict=True):
        with PIL.Image.open(labels.parent / row["filename"]) as picture:
            assert picture.convert("RGB").tobytes() == drawn.tobytes()
    assert rows[1] | {"filename": ""} == {
        "filename": "",
        "slot1_color": "0",
        "slot1_color_word": "red",
        "slot1_shape": "1",
        "slot1_shape_word": "circle",
        "slot2_color": "1",
        "slot2_color_word": "blue",
        "slot2_shape": "0",
        "slot2_shape_word": "square",
        "caption": "a red circle and a blue square",
        "split": "test",
    }
    assert (rows[2]["slot2_color"], rows[2]["caption"], rows[2]["split"]) == ("", "a blue square", "validation")


def test_rendering_resumes_and_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = drawn_world()
    whole = render(world, tmp_path / "whole").parent

    def killed(path: Path, content: bytes, write: object = writing.write_atomic) -> None:
        if path.name == "0000001.png":
            raise KeyboardInterrupt
        write(path, content)  # type: ignore[operator]

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            render(world, tmp_path / "cut")
    assert not (tmp_path / "cut" / "labels.csv").exists(), "the table comes last"
    first = (tmp_path / "cut" / "0000000.png").stat().st_mtime_ns
    render(world, tmp_path / "cut", limit=2)
    assert len(table(tmp_path / "cut" / "labels.csv")) == 2
    render(world, tmp_path / "cut")
    assert (tmp_path / "cut" / "0000000.png").stat().st_mtime_ns == first, "what was there is kept"
    written = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("cut", "whole")]
    assert written[0] == written[1]
    assert len(written[0]) == 5
    assert whole.name == "whole"


def test_rendering_refuses_other_folders_links_and_worlds(tmp_path: Path) -> None:
    world = drawn_world()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(ValueError, match="already holds other files"):
        render(world, tmp_path / "mine")
    render(world, tmp_path / "out", limit=1)
    other = World("other", world.scenes, world.captions, Canvas(side=64))
    with pytest.raises(ValueError, match="holds another render"):
        render(other, tmp_path / "out")
    (tmp_path / "out" / "0000001.png").symlink_to(tmp_path / "mine" / "thesis.txt")
    with pytest.raises(ValueError, match=r"0000001.png leads out of its folder"):
        render(world, tmp_path / "out")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all of it"
    with pytest.raises(ValueError, match="draws no pictures"):
        render(load_world("text8x8"), tmp_path / "text")
    with pytest.raises(ValueError, match="at least 1 picture"):
        render(world, tmp_path / "none", limit=0)
