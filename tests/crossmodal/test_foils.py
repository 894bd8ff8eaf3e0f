"""Foils, groups, biases and files of them: every type on a table of at least 1,000 rows, ties apart."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from PIL import Image

from colligate.crossmodal.foil_files import read_foils
from colligate.crossmodal.foil_rows import bias_rows, foil_rows, group_rows, table_rows
from colligate.crossmodal.foils import (
    FOILS,
    ExchangedOrder,
    FoilTable,
    FoilType,
    LeftRight,
    ReplacedValue,
    SwappedValue,
    compare,
    judge_foils,
)
from colligate.crossmodal.groups import GroupTable, judge_groups, swap_groups
from colligate.embedders import load_model
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import ConceptSpace
from colligate.scenes.worlds import World, load_world, sample_world


@pytest.fixture(scope="module")
def world() -> World:
    return load_world("text8x8").subgrid(attribute=6, noun=7)  # 1,764 pairs


@pytest.mark.parametrize("kind", [*FOILS, SwappedValue("noun"), ReplacedValue("attribute")], ids=lambda k: k.name)
def test_every_type_on_a_large_table(kind: FoilType, world: World):
    captions = world.captions
    assert isinstance(captions, CaptionTemplate)
    table = kind.table(world.scenes, captions, seed=0)
    assert isinstance(kind, FoilType)
    assert len(table.rows) >= 1000
    assert len(set(zip(table.captions, table.foils, strict=True))) == len(table.rows)
    same = table.same_words
    assert bool(same.all()) == (kind.name != "replaced" and kind.name != "replaced.attribute")
    if "replaced" in kind.name:
        assert not bool(same.any())  # a bag of words tells every one
    model = load_model("oracle:pair-aligned:256")
    outcomes = judge_foils(model.towers["scene"].embed(world.scenes), model.towers["text"], table)
    expected = {"swapped": 0.99, "replaced": 0.99, "order": 0.5, "left_right": 0.5}[kind.name.split(".")[0]]
    assert outcomes.hits.mean().item() == pytest.approx(expected, abs=0.011)
    assert outcomes.ties.double().mean().item() == pytest.approx(0 if expected > 0.9 else 1, abs=0.01)


def test_a_bag_ties_on_swaps_and_tells_replaced_values(world: World):
    model = load_model("oracle:pair-bag:256")
    captions = world.captions
    assert isinstance(captions, CaptionTemplate)
    vectors = model.towers["scene"].embed(world.scenes)
    swapped = judge_foils(vectors, model.towers["text"], SwappedValue().table(world.scenes, captions, seed=0))
    assert swapped.hits.mean() == 0.5
    assert bool(swapped.ties.all())
    replaced = judge_foils(vectors, model.towers["text"], ReplacedValue().table(world.scenes, captions, seed=0))
    assert replaced.hits.mean() > 0.99
    groups = judge_groups(vectors, model.towers["text"], swap_groups(world.scenes, captions))
    assert groups.text.mean().item() == pytest.approx(0.25)  # Winoground's own chance
    assert bool(groups.ties.all())


def test_a_bag_in_both_towers_reaches_chance_in_groups(world: World):
    captions = world.captions
    assert isinstance(captions, CaptionTemplate)
    text = load_model("oracle:pair-bag:64").towers["text"]
    vectors = torch.as_tensor(text.embed(captions(world.scenes)))
    groups = judge_groups(vectors, text, swap_groups(world.scenes, captions))
    for name, chance in {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}.items():
        assert getattr(groups, name).mean().item() == pytest.approx(chance)


class Lettered:
    """Texts that are numbers, as vectors: any table of scores can be made of it."""

    kind, fingerprint = "text", None

    def embed(self, items: list[str]) -> torch.Tensor:
        return torch.eye(len(items)) if len(set(items)) == len(items) else torch.zeros(0)


@pytest.mark.parametrize(
    ("scores", "text", "image", "group"),
    [
        ([[2.0, 1.0], [1.0, 2.0]], 1.0, 1.0, 1.0),
        ([[1.0, 2.0], [2.0, 1.0]], 0.0, 0.0, 0.0),
        ([[2.0, 1.0], [3.0, 4.0]], 1.0, 0.0, 0.0),
        ([[2.0, 3.0], [1.0, 4.0]], 0.0, 1.0, 0.0),
        ([[1.0, 1.0], [0.5, 2.0]], 0.5, 1.0, 0.5),
        ([[1.0, 1.0], [1.0, 1.0]], 0.25, 0.25, 1 / 6),
    ],
)
def test_group_scores_by_hand(scores: list[list[float]], text: float, image: float, group: float):
    pictures = torch.tensor(scores)
    rest = (25 - pictures.square().sum(1, keepdim=True)).sqrt()  # lengths alike, so that cosines order as the scores do
    vectors = torch.cat([pictures, rest], dim=1)

    class Axes(Lettered):
        def embed(self, items: list[str]) -> torch.Tensor:
            return torch.eye(3)[: len(items)]

    outcomes = judge_groups(vectors, Axes(), GroupTable("mine", torch.tensor([[0, 1]]), (("one", "two"),)))
    assert (outcomes.text.item(), outcomes.image.item()) == (text, image)
    assert outcomes.group.item() == pytest.approx(group)


def test_left_right_captions_name_the_relation():
    space = ConceptSpace(color=["red", "orange"], shape=["cube", "ball"])
    table = LeftRight("to the left of").table(space.scenes([[0, 3]]), CaptionTemplate(article=True), seed=0)
    assert table.captions == ("a red cube to the left of an orange ball",)
    assert table.foils == ("an orange ball to the left of a red cube",)
    assert bool(table.same_words.all())  # articles are alike


def test_rows_are_documented_and_hold_ties_and_chance(pair: Callable, documented: Callable[[str], bool]):
    it = pair("mismatched", 256)
    rows = foil_rows(it.scenes, it.model.towers["text"], it.world.captions)
    rows += bias_rows(it.scenes, it.queries)
    assert [row.id for row in rows if not documented(row.id)] == []
    found = {row.id: row for row in rows}
    assert found["crossmodal.foil.swapped"].chance == 0.5
    assert "no preference" in str(found["crossmodal.foil.order"].reason)
    assert found["crossmodal.bias.scene.first"].value == pytest.approx(0.5, abs=0.01)


def test_a_larger_object_that_weighs_more_is_found():
    space = ConceptSpace(color=4, size=["small", "large"])
    world = sample_world(space, slots=2, num=40, seed=0)
    one = torch.eye(8)
    weight = torch.where(space.object_values(torch.arange(8))[:, 1] == 1, 2.0, 1.0)
    vectors = (one * weight[:, None])[world.scenes.objects].sum(1)
    from colligate.crossmodal.queries import QueryVectors
    from colligate.embeddings import Embeddings

    rows = bias_rows(Embeddings(vectors, world.scenes), QueryVectors(space, None, one))
    assert rows[1].value == 1.0
    assert rows[0].value == pytest.approx(0.5, abs=0.2)


# ------------------------------------------------------------------------------------------------------- files


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(4):
        Image.new("RGB", (20, 10), (60 * i, 10, 200)).save(folder / f"p{i}.png")
    return folder


ROWS = [{"picture": f"p{i % 4}.png", "caption": f"cat {i} on mat", "foil": f"mat on cat {i}"} for i in range(1200)]
SUGAR = {str(i): {"filename": r["picture"], "caption": r["caption"], "negative_caption": r["foil"]}
         for i, r in enumerate(ROWS)}  # fmt: skip
ARO = [{"image_path": r["picture"], "true_caption": r["caption"], "false_caption": r["foil"], "bbox_x": 1, "bbox_y": 2,
        "bbox_w": 5, "bbox_h": 6} for r in ROWS]  # fmt: skip
WINO = [{"id": i, "image_0": "p0", "image_1": "p1", "caption_0": r["caption"], "caption_1": r["foil"]}
        for i, r in enumerate(ROWS)]  # fmt: skip
ORDER = [{"image": f"p{i % 4}.png", "caption_options": [f"a cat {i} lies on the mat", f"cat a {i} lies on the mat",
          f"on the mat a cat {i} lies", f"lies a cat on the mat {i}", f"the mat lies on a cat {i}"]}
         for i in range(1200)]  # fmt: skip
HARD = [{"images": row["image"], "correct_caption": said[0]} | {f"hard_text_{n}": said[n] for n in range(1, 5)}
        for row in ORDER for said in [row["caption_options"]]]  # fmt: skip
KARPATHY = [{"image": f"p{i % 4}.png", "caption": [f"A cat, number {i}, lies on the red mat by the door.",
                                                  f"A mat under cat number {i} in the house of its owner."]}
            for i in range(600)]  # fmt: skip


def written(folder: Path, layout: str) -> Path:
    path = folder / {"csv": "t.csv", "parquet": "t.parquet", "Winoground": "w.jsonl"}.get(layout, f"{layout}.json")
    if layout == "csv":
        pd.DataFrame(ROWS).to_csv(path, index=False)
    elif layout == "parquet":
        pd.DataFrame(ROWS).to_parquet(path)
    elif layout == "Winoground":
        path.write_text("\n".join(map(json.dumps, WINO)))
    else:
        path.write_text(json.dumps(SUGAR if layout == "SugarCrepe" else ARO))
    return path


@pytest.mark.parametrize("layout", ["csv", "parquet", "SugarCrepe", "ARO", "Winoground"])
def test_tables_of_a_thousand_rows_go_through_the_same_code(layout: str, pictures: Path, tmp_path: Path):
    found = read_foils(written(tmp_path, layout), pictures)
    assert found.layout == ("table" if layout in ("csv", "parquet") else layout)
    assert len(found.table.rows) == 1200
    assert len(found.pictures) == (2 if layout == "Winoground" else 4)
    shown = found.pictures[0].open()
    assert shown.size == ((5, 6) if layout == "ARO" else (20, 10))
    text = load_model("oracle:pair-bag:32").towers["text"]
    vectors = torch.randn(len(found.pictures), 32, generator=torch.Generator().manual_seed(0))
    if isinstance(found.table, FoilTable):
        pairs = table_rows("crossmodal.foil.table", vectors, text, found.table)
        values = {row.id: row.value or 0.0 for row in pairs}
        assert values["crossmodal.foil.table.ties"] > 0  # the same words in another order
    else:
        rows = {row.id: row.value for row in group_rows("crossmodal.groups.table", vectors, text, found.table)}
        assert rows["crossmodal.groups.table.text"] == pytest.approx(0.25)


@pytest.mark.parametrize("layout", ["options.json", "hard.jsonl", "hard.csv", "karpathy.json"])
def test_sets_of_word_orders_are_read_in_all_their_layouts(
    layout: str, pictures: Path, tmp_path: Path, documented: Callable[[str], bool]
):
    path = tmp_path / layout
    rows = {"options.json": ORDER, "karpathy.json": KARPATHY}.get(layout, HARD)
    if layout.endswith(".csv"):
        pd.DataFrame(rows).to_csv(path, index=False)
    else:
        path.write_text("\n".join(map(json.dumps, rows)) if layout.endswith("jsonl") else json.dumps(rows))
    found = read_foils(path, pictures)
    assert found.layout == "ARO order"
    table = found.table
    assert isinstance(table, FoilTable)
    assert table.groups is not None
    captions, each = 1200, 2 if "karpathy" in layout else 4
    assert len(table.rows) > 0.95 * captions * each  # a shuffle may give the caption's own order
    assert int(table.groups.max()) == captions - 1
    assert bool(table.same_words.all())
    assert all(("left out" in note) or ("made here" in note) for note in found.notes)
    bag = load_model("oracle:pair-bag:32").towers["text"]
    vectors = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))

    class Bag:
        """A bag of words: the same vector for any order."""

        kind, fingerprint = bag.kind, None

        def embed(self, items: list[str]) -> torch.Tensor:
            drawn = [torch.Generator().manual_seed(sum(map(ord, "".join(sorted(text))))) for text in items]
            return torch.stack([torch.randn(32, generator=g) for g in drawn])

    judged = {row.id: row for row in table_rows("crossmodal.foil.table", vectors, Bag(), table)}
    assert [id for id in judged if not documented(id)] == []
    assert judged["crossmodal.foil.table"].value == 0.5
    assert judged["crossmodal.foil.table.ties"].value == 1.0
    best = judged["crossmodal.foil.table.all"]  # all tie: one of the caption and its foils at random
    assert best.n == captions
    assert best.value == pytest.approx(best.chance)
    kinds = {"within_trigrams", "trigrams"} if "karpathy" in layout else {f"foil{n}" for n in range(1, 5)}
    assert kinds == set(table.kinds)
    assert all(judged[f"crossmodal.foil.table.{kind}"].value == 0.5 for kind in kinds)


def test_shuffles_keep_threes_and_the_words_within_them(pictures: Path, tmp_path: Path):
    path = tmp_path / "captions.json"
    path.write_text(json.dumps([{"image": "p0.png", "caption": ["One two three, four five six: seven."]}]))
    tables = [read_foils(path, pictures, seed).table for seed in range(20)]
    threes = [["one", "two", "three"], ["four", "five", "six"], ["seven"]]
    within, among = set[str](), set[str]()
    for table in tables:
        assert isinstance(table, FoilTable)
        assert set(table.captions) == {"one two three four five six seven"}
        for kind, foil in zip(table.kinds, table.foils, strict=True):
            words = foil.split()
            if kind == "within_trigrams":
                assert [sorted(words[i : i + 3]) for i in (0, 3, 6)] == [sorted(three) for three in threes]
                within.add(foil)
            else:
                assert all(" ".join(three) in foil for three in threes)
                among.add(foil)
    assert min(len(within), len(among)) > 3


def test_a_caption_must_beat_all_its_foils():
    class Axes(Lettered):
        def embed(self, items: list[str]) -> torch.Tensor:
            return torch.tensor([[{"right": 1.0, "near": 1.0, "wrong": 0.5, "worse": 0.0, "best": 2.0}[i], 1.0]
                                 for i in items])  # fmt: skip

    table = FoilTable(
        "mine", torch.zeros(6, dtype=torch.int64), ("right",) * 6, ("wrong", "worse", "wrong", "near", "best", "worse"),
        kinds=("a", "b") * 3, groups=torch.tensor([0, 0, 1, 1, 2, 2]),
    )  # fmt: skip
    found = {row.id: row for row in table_rows("t", torch.tensor([[1.0, 0.0]]), Axes(), table)}
    assert found["t.all"].value == pytest.approx((1 + 0.5 + 0) / 3)
    assert found["t.all"].chance == pytest.approx(1 / 3)
    assert found["t.a"].value == pytest.approx(2 / 3)
    assert found["t.b"].value == pytest.approx(2.5 / 3)


def test_orders_without_foils_are_told(pictures: Path, tmp_path: Path):
    (tmp_path / "a.json").write_text('[{"image": "p0.png", "caption_options": ["alone"]}]')
    with pytest.raises(ValueError, match="row 1 has no captions in order"):
        read_foils(tmp_path / "a.json", pictures)
    (tmp_path / "b.json").write_text('[{"image": "p0.png", "caption_options": ["a b", "a b"]}]')
    with pytest.raises(ValueError, match="has no pairs of caption and foil"):
        read_foils(tmp_path / "b.json", pictures)


def test_bag_identical_rows_stand_apart(pictures: Path, tmp_path: Path):
    rows = [*ROWS[:30], *({**r, "foil": "a dog"} for r in ROWS[30:60])]
    (tmp_path / "t.csv").write_text(pd.DataFrame(rows).to_csv(index=False))
    found = read_foils(tmp_path / "t.csv", pictures)
    assert isinstance(found.table, FoilTable)
    assert int(found.table.same_words.sum()) == 30
    text = load_model("oracle:pair-bag:32").towers["text"]
    judged = table_rows("crossmodal.foil.table", torch.eye(4, 32) + 1, text, found.table)
    ids = {row.id: row for row in judged}
    assert ids["crossmodal.foil.table.same_words"].n == 30
    assert ids["crossmodal.foil.table.same_words.ties"].value == 1.0
    assert ids["crossmodal.foil.table.same_words"].value == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"foil": "cat 0 on mat"}, "has the foil 'cat 0 on mat' equal to its caption"),
        ({"picture": "gone.png"}, "names the picture 'gone.png', not found"),
        ({"picture": "../secret.png"}, "leads out of"),
        ({"caption": ""}, "line 2 has an empty caption"),
    ],
)
def test_bad_rows_are_told_by_row(change: dict[str, Any], message: str, pictures: Path, tmp_path: Path):
    (tmp_path / "bad.csv").write_text(pd.DataFrame([{**ROWS[0], **change}, ROWS[1]]).to_csv(index=False))
    with pytest.raises(ValueError, match=message):
        read_foils(tmp_path / "bad.csv", pictures)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "picture,caption\np0.png,x\n", "has no foil .looked for foil, negative_caption"),
        ("a.json", "{", "is no JSON"),
        ("a.json", "[]", "holds no list of objects"),
        ("a.txt", "x", "is no table of foils"),
        (
            "a.json",
            '[{"filename": "p0.png", "caption": 3, "negative_caption": "y"}]',
            "row 1 has a number as its caption; give a text",
        ),
    ],
)
def test_bad_files_are_told(name: str, content: str, message: str, pictures: Path, tmp_path: Path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_foils(tmp_path / name, pictures)


def test_missing_files_and_boxes_outside_are_told(pictures: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="can't be read"):
        read_foils(tmp_path / "none.json", pictures)
    path = written(tmp_path, "csv")
    with pytest.raises(ValueError, match="There is no folder"):
        read_foils(path, tmp_path / "nowhere")
    (tmp_path / "aro.json").write_text(json.dumps([{**ARO[0], "bbox_w": 500}]))
    with pytest.raises(ValueError, match="leaves the picture"):
        read_foils(tmp_path / "aro.json", pictures).pictures[0].open()


def test_pictures_of_foils_are_opened_like_all_others(tmp_path: Path):
    """Turned upright and made RGB; animations and broken files are one sentence."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (4, 2)).save(tmp_path / "turned.png", exif=exif)
    Image.new("L", (4, 2)).save(tmp_path / "gray.png")
    frames = [Image.new("RGB", (4, 2), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "broken.png").write_bytes(b"no picture")
    names = ("turned.png", "gray.png", "moving.gif", "broken.png")
    rows = [{"picture": name, "caption": "a cat on a mat", "foil": "a mat on a cat"} for name in names]
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    turned, gray, moving, broken = read_foils(tmp_path / "t.csv", tmp_path).pictures
    assert turned.open().size == (2, 4)
    assert gray.open().mode == "RGB"
    with pytest.raises(ValueError, match="is animated"):
        moving.open()
    with pytest.raises(ValueError, match="can't be read"):
        broken.open()


def test_what_cannot_be_compared_is_told():
    text = load_model("oracle:pair-bag:8").towers["text"]
    table = FoilTable("mine", torch.tensor([0, 5]), ("a cat", "a dog"), ("a dog", "a cat"))
    with pytest.raises(ValueError, match="points at picture 6 of 3"):
        judge_foils(torch.zeros(3, 8), text, table)
    with pytest.raises(ValueError, match="9 wide and texts' 8"):
        judge_foils(torch.zeros(6, 9), text, table)
    with pytest.raises(ValueError, match="need a text tower"):
        judge_foils(torch.zeros(6, 8), load_model("oracle:no-binding:8").towers["scene"], table)
    with pytest.raises(ValueError, match="give one of each"):
        FoilTable("mine", torch.tensor([0]), ("a", "b"), ("c", "d"))
    with pytest.raises(ValueError, match="no pairs"):
        FoilTable("mine", torch.zeros(0, dtype=torch.int64), (), ())
    with pytest.raises(ValueError, match="twice"):
        GroupTable("mine", torch.tensor([[0, 1]]), (("a", "a"),))
    single = ConceptSpace(color=3).all_scenes(slots=1)
    for kind in (SwappedValue(), ExchangedOrder(), LeftRight()):
        with pytest.raises(ValueError, match="No scene has a foil"):
            kind.table(single, CaptionTemplate("a {color}"), seed=0)
    with pytest.raises(ValueError, match="No scene's swap"):
        swap_groups(single, CaptionTemplate("a {color}"))


def test_ties_follow_the_tolerance():
    outcomes = compare(torch.tensor([1.0, 1.0]), torch.tensor([1.0 + 1e-7, 1.0 - 1e-4]))
    assert outcomes.ties.tolist() == [True, False]
    assert outcomes.hits.tolist() == [0.5, 1.0]
