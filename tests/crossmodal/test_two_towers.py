"""Real two-tower classes from local folders, and oracles, through the verbs: recognize, foils, repair, and a repaired
model studied like any other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from PIL import Image

from colligate.cli import main
from colligate.embedders import load_model
from colligate.embedders.embedding import embed
from colligate.embedders.repaired import RepairedTower, parse_captions
from colligate.intervals import Intervals, Over
from colligate.records import read_record, read_sealed, read_table, sealed_json
from colligate.scenes.space import ConceptSpace
from colligate.scenes.worlds import World, labels_bytes, load_world, render
from colligate.verbs.config import RecognizeConfig
from colligate.verbs.crossmodal import recognize


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """144 pairs and 12 singles of CLEVR-2D as a user's table of pictures on disk."""
    folder = tmp_path_factory.mktemp("world")
    return render(load_world("clevr2d").subgrid(color=4), folder)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def called(*words: str) -> tuple[int, str]:
        code = main([*words, "--runs", str(tmp_path / "runs"), "--store", str(tmp_path / "store")])
        out = capsys.readouterr()
        return code, out.out + out.err

    return called


def only(folder: Path, kind: str) -> Path:
    [found] = folder.glob(f"runs/{kind}-*")
    return found


@pytest.mark.parametrize(
    ("builder", "prefix"),
    [
        ("clip", "hf"),
        pytest.param("siglip", "hf", marks=pytest.mark.long),
        pytest.param("open_clip", "open_clip", marks=pytest.mark.long),
    ],
)
def test_real_classes_are_recognized_tested_and_repaired(
    builder: str, prefix: str, tiny: Callable[[str], Path], labels: Path, tmp_path: Path, run: Callable,
    documented: Callable[[str], bool],
):  # fmt: skip
    name, world = f"{prefix}:{tiny(builder)}", ("--scenes", str(labels), "--caption", "a {color} {shape}")
    code, said = run("recognize", name, *world)
    assert code == 0, said
    rows = read_table(only(tmp_path, "recognize") / "table.csv")
    assert [row.id for row in rows if not documented(row.id)] == []
    main_row = next(row for row in rows if row.id == "crossmodal.object")
    assert main_row.value is not None
    assert main_row.random_init is not None  # fresh weights of both towers
    code, said = run("foils", name, *world)
    assert code == 0, said
    foils = {row.id: row for row in read_table(only(tmp_path, "foils") / "table.csv")}
    assert foils["crossmodal.foil.swapped"].n == 72
    code, said = run("repair", name, *world, "--kinds", "linear", "product", "--coverages", "0.5", "--steps", "3")
    assert code == 0, said
    folder = only(tmp_path, "repair")
    assert {"map.safetensors", "repair.json", "record.json", "table.csv"} <= {path.name for path in folder.iterdir()}
    model = load_model(f"repaired:{folder}")
    assert set(model.towers) == {"picture", "text"}
    code, said = run("recognize", f"repaired:{folder}", *world)
    assert code == 0, said


def test_a_repaired_oracle_binds_objects_it_never_saw(tmp_path: Path, run: Callable, documented: Callable):
    scenes = ("--scenes", "clevr")
    code, said = run("repair", "oracle:pair-rotated:16", *scenes, "--coverages", "0.5", "--steps", "0")
    assert code == 0, said
    folder = only(tmp_path, "repair")
    assert "was kept (from least squares" in said
    assert f"colligate recognize repaired:{folder}" in said
    assert [row.id for row in read_table(folder / "table.csv") if not documented(row.id)] == []
    before, after = (load_model(name) for name in ("oracle:pair-rotated:16", f"repaired:{folder}"))
    for name in ("oracle:pair-rotated:16", f"repaired:{folder}"):
        assert run("recognize", name, *scenes)[0] == 0
    values = {}
    for path in tmp_path.glob("runs/recognize-*"):
        table = {row.id: row.value for row in read_table(path / "table.csv")}
        values[read_record(path)["name"]] = table["crossmodal.object.swap"]
    assert values[f"repaired:{folder}"] > 0.45 > 0.2 > values["oracle:pair-rotated:16"]
    tower = after.towers["text"]
    assert isinstance(tower, RepairedTower)
    assert tower.fingerprint != before.towers["text"].fingerprint
    assert run("repair", "oracle:pair-rotated:16", *scenes, "--coverages", "0.5", "--steps", "0")[0] == 0  # found again


def test_a_run_folder_names_its_model(tmp_path: Path, run: Callable):
    assert run("recognize", "oracle:pair-rotated:16", "--scenes", "clevr")[0] == 0
    code, said = run("repair", str(only(tmp_path, "recognize")), "--coverages", "0.5", "--steps", "0")
    assert code == 0, said
    told = json.loads((only(tmp_path, "repair") / "repair.json").read_text())
    assert told["embedder"] == "oracle:pair-rotated:16"


def test_the_product_head_reads_captions_and_says_so(tmp_path: Path, run: Callable):
    code, _ = run(
        "repair", "oracle:pair-mismatched:16", "--scenes", "clevr", "--kinds", "product", "--coverages", "0.5",
        "--steps", "0",
    )  # fmt: skip
    assert code == 0
    model = load_model(f"repaired:{only(tmp_path, 'repair')}")
    if json.loads((only(tmp_path, "repair") / "repair.json").read_text())["fitted"]["chosen"] != "none":
        assert any("parsed from captions" in note for note in model.notes)
        with pytest.raises(ValueError, match="names no value"):
            model.towers["text"].embed(["a purple dream of nothing"[:2]])
    world = load_world("clevr").select(slice(0, 5))
    assert embed(model.towers["text"], world).vectors.norm(dim=1).sub(1).abs().max() < 1e-5


def test_a_map_of_another_tower_is_refused(tmp_path: Path, run: Callable):
    assert run("repair", "oracle:pair-rotated:16", "--scenes", "clevr", "--coverages", "0.5", "--steps", "0")[0] == 0
    told = only(tmp_path, "repair") / "repair.json"
    facts = read_sealed(told, "repair again")
    told.write_bytes(sealed_json(told.name, {**facts, "embedder": "oracle:pair-bag:16"}))
    with pytest.raises(ValueError, match="is another than the one"):
        load_model(f"repaired:{told.parent}")
    told.write_bytes(sealed_json(told.name, {**facts, "embedder": "oracle:no-binding:16"}))
    with pytest.raises(ValueError, match="has no text tower"):
        load_model(f"repaired:{told.parent}")
    with pytest.raises(ValueError, match="leave layer, pooling and normalize out"):
        load_model(f"repaired:{told.parent}", layer=1)


def test_a_table_of_pictures_and_foils_through_the_verb(
    tiny: Callable[[str], Path], tmp_path: Path, run: Callable, documented: Callable
):
    for i in range(3):
        Image.new("RGB", (40, 30), (80 * i, 10, 200)).save(tmp_path / f"p{i}.png")
    rows = [{"picture": f"p{i % 3}.png", "caption": "a cat on a mat", "foil": "a mat on a cat"} for i in range(30)]
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    code, said = run("foils", f"hf:{tiny('clip')}", "--table", str(tmp_path / "t.csv"))
    assert code == 0, said
    found = read_table(only(tmp_path, "foils") / "table.csv")
    assert [row.id for row in found if not documented(row.id)] == []
    assert found[0].n == 30
    assert found[0].family == "table"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("recognize", "oracle:no-binding:8", "--scenes", "clevr"), "has no text tower"),
        (("recognize", "oracle:pair-bag:8", "--scenes", "clevr", "--queries", "a photo"), "has no place for a concept"),
        (("recognize", "oracle:pair-bag:8", "--scenes", "clevr", "--tower", "picture"), "has no picture tower"),
        (("foils", "oracle:pair-bag:8", "--table", "none.csv"), "can't be read"),
        (("repair", "oracle:pair-bag:8", "--scenes", "clevr", "--coverages", "0.999"), "can be had"),
        (("repair", "oracle:no-binding:8", "--scenes", "clevr"), "has no text tower"),
        (("repair", "vectors.safetensors"), "not a file of vectors"),
    ],
)
def test_a_wrong_call_is_one_sentence(words: tuple[str, ...], message: str, run: Callable):
    code, said = run(*words)
    assert code == 2
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_a_table_whose_pictures_are_missing_is_told(labels: Path, tiny: Callable, tmp_path: Path, run: Callable):
    world = load_world("clevr2d").subgrid(color=4)
    (tmp_path / "labels.csv").write_bytes(labels_bytes(world, filenames=[f"{i}.png" for i in range(len(world))]))
    code, said = run("recognize", f"hf:{tiny('clip')}", "--scenes", str(tmp_path / "labels.csv"))
    assert code == 2
    assert "missing" in said or "can't be read" in said


SPACE = ConceptSpace(color=["red", "blue", "light blue"], shape=["cube", "deer stag"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a red cube and a blue deer stag", [[0, 0], [1, 1]]),
        ("A photo of a Light Blue cube.", [[2, 0]]),
        ("something red", [[0, -1]]),
        ("the cube is red, the deer stag is blue", [[0, 0], [1, 1]]),
        ("red blue", [[0, -1], [1, -1]]),
    ],
)
def test_captions_are_parsed_object_by_object(text: str, values: list[list[int]]):
    assert parse_captions([text], SPACE)[0].tolist() == values


def test_parsing_undoes_captions():
    world = load_world("pug_spare").select(slice(0, 300))
    assert torch.equal(parse_captions(world.texts(), world.scenes.space), world.scenes.values)


def test_what_cannot_be_parsed_is_told():
    with pytest.raises(ValueError, match="names no value"):
        parse_captions(["a dog"], SPACE)
    with pytest.raises(ValueError, match="share a word"):
        parse_captions(["red"], ConceptSpace(color=["red"], name=["red"]))


def test_the_oracles_towers_agree_on_scenes_and_captions():
    world: World = load_world("clevr")
    towers: Any = load_model("oracle:pair-aligned:32").towers
    assert torch.equal(towers["scene"].embed(world.scenes), towers["text"].embed(world.texts()))
    with pytest.raises(ValueError, match="names no object"):
        towers["text"].embed(["the"])


def test_a_model_with_queries_of_its_own_is_asked_by_them():
    from colligate.crossmodal.queries import embed_queries, query_tower
    from colligate.embedders.towers import Model
    from colligate.embedders.trained import TrainedTower
    from colligate.networks.dual import DualEncoder, DualShape

    trained = ConceptSpace(color=4, shape=3)
    tower = TrainedTower(DualEncoder(trained, 2, DualShape(), seeds=[0]), "fresh")
    space = ConceptSpace(color=3, shape=2)  # the world shows fewer values than the model knows
    world = World("part", space.all_scenes(slots=2))
    assert query_tower(Model("trained", {"scene": tower})) is tower
    queries = embed_queries(tower, world)
    assert queries.concepts is not None
    assert [len(of) for of in queries.concepts] == [3, 2]
    own = tower.object_queries(torch.tensor([4]))[0]  # values 1 and 1: object 3 here, 4 in the trained space
    torch.testing.assert_close(queries.objects[3], own)


def test_a_model_without_texts_cannot_be_repaired(run: Callable, monkeypatch: pytest.MonkeyPatch):
    from colligate.embedders.towers import Model
    from colligate.embedders.trained import TrainedTower
    from colligate.networks.dual import DualEncoder, DualShape

    tower = TrainedTower(DualEncoder(ConceptSpace(color=8, shape=3), 2, DualShape(), seeds=[0]), "fresh")
    monkeypatch.setattr("colligate.verbs.sources.load_model", lambda *_, **__: Model("trained", {"scene": tower}))
    code, said = run("repair", "mine:model", "--scenes", "clevr")
    assert code == 2
    assert "reads no text, and a repair is a map of texts" in said


def test_every_interval_of_a_run_is_over_what_was_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked = list[str]()

    def noted(objects: torch.Tensor, values: torch.Tensor | None = None, *, over: Over = "values") -> Intervals:
        if values is not None:  # texts and components know no scenes
            asked.append(over)
        return Intervals(objects, values, over=over)

    for module in ("measurements", "foil_rows"):
        monkeypatch.setattr(f"colligate.crossmodal.{module}.Intervals", noted)
    embedder = "oracle:pair-mismatched:16"
    recognize(RecognizeConfig(embedder=embedder, scenes="clevr", intervals="objects", runs=tmp_path, store=tmp_path))
    assert len(asked) > 3
    assert set(asked) == {"objects"}
