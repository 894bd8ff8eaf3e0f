"""What a call names as its vectors, labels and world: what is taken, and what is refused and how."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from colligate.binding import object_table
from colligate.choices import EMBEDDERS
from colligate.cli import main
from colligate.embedders.embedding import embed, embed_layers
from colligate.embedders.precomputed import read_vectors
from colligate.embedders.towers import Model
from colligate.engine import Clock
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.worlds import World, labels_bytes, load_world
from colligate.verbs import battery
from colligate.verbs.battery import open_subject
from colligate.verbs.config import EmbedConfig, StudyConfig
from colligate.verbs.sources import Source, open_source, progress_of

SPACE = ConceptSpace(color=["red", "green", "blue"], shape=["cube", "ball", "cone"])
PAIRS, SINGLES = SPACE.all_scenes(2), SPACE.all_scenes(1)
PUG = "world_name,character_name,character2_name,character_texture,character2_texture"


class Layers:
    """A user's tower that shows its layers, and not more than so many items at once."""

    kind, fingerprint = "scene", None

    def embed(self, items: Scenes) -> torch.Tensor:
        return torch.nn.functional.one_hot(items.values + 1, 9).float().flatten(1)

    def embed_depth(self, items: Scenes) -> dict[str, torch.Tensor]:
        assert len(items) <= 1024
        return {"first": self.embed(items), "last": self.embed(items).square()}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Vectors and labels of all pairs, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path / "store"))
    vectors = object_table(SPACE, 2, 8, 0)(PAIRS.values).float()
    save_file({"v": vectors}, "v.safetensors")
    Path("pairs.csv").write_bytes(labels_bytes(World("pairs", PAIRS, CaptionTemplate())))
    return tmp_path


def of_file(**given: Any) -> StudyConfig:
    named: dict[str, Any] = {"embedder": "v.safetensors", "labels": Path("pairs.csv"), **given}
    return StudyConfig(**named)


@pytest.mark.parametrize("prefix", EMBEDDERS)
@pytest.mark.parametrize("rest", ["/models/w.safetensors", "ViT-B-32//models/w.safetensors", "w.npy", "w.pt"])
def test_a_model_is_no_file_of_vectors_whatever_its_weights_are_called(prefix: str, rest: str):
    assert not EmbedConfig(embedder=f"{prefix}:{rest}").of_vectors
    with pytest.raises(ValueError, match="--labels goes with a file of vectors"):
        open_source(EmbedConfig(embedder=f"{prefix}:{rest}", labels=Path("pairs.csv")))


@pytest.mark.parametrize("name", ["v.npy", "a/b.safetensors", "B.PARQUET", "C:/v.npy", "./run:1.npy", "v.pkl"])
def test_a_file_is_known_by_its_suffix(name: str):
    assert EmbedConfig(embedder=name).of_vectors


def test_a_local_checkpoint_is_opened_as_a_model(files: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def load(rest: str, options: object) -> Model:
        asked.append(rest)
        return Model(rest, {"scene": Layers()})

    monkeypatch.setattr("colligate.embedders.open_clip.load", load)
    source = open_source(EmbedConfig(embedder="open_clip:ViT-B-32//there/w.safetensors", scenes="clevr"))
    assert asked == ["ViT-B-32//there/w.safetensors"]
    assert source.model is not None


@pytest.mark.parametrize("name", ["v.pt", "v.pth", "v.pkl", "v.pickle", "v.npz", "v.joblib", "V.PT"])
@pytest.mark.parametrize("labels", [{}, {"labels": Path("pairs.csv")}])
def test_pickles_are_refused_by_their_names(files: Path, name: str, labels: dict[str, Any]):
    (files / name).write_bytes(b"whatever")
    with pytest.raises(ValueError, match=rf"{name} is a pickle, .* save the vectors as \.safetensors"):
        open_source(EmbedConfig(embedder=name, **labels))


def test_vectors_in_another_format_are_told_which_to_take(files: Path):
    (files / "v.h5").write_bytes(b"whatever")
    with pytest.raises(ValueError, match=r"Vectors come as \.safetensors, \.npy or \.parquet; got v\.h5"):
        open_source(of_file(embedder="v.h5"))


@pytest.mark.parametrize(
    "given",
    [
        {"layer": 3},
        {"pooling": "cls"},
        {"tower": "picture"},
        {"caption": "x {color}"},
        {"dtype": "foo"},
        {"device": "cuda"},
        {"online": True},
    ],
)
def test_flags_of_a_model_are_refused_beside_vectors(files: Path, given: dict[str, Any]):
    with pytest.raises(ValueError, match=rf"v\.safetensors holds vectors, made already; --{next(iter(given))} can't"):
        open_source(of_file(**given))
    assert len(open_source(of_file(normalize=True)).embeddings) == len(PAIRS)


def test_all_such_flags_are_named_at_once(files: Path):
    with pytest.raises(ValueError, match="--layer, --pooling can't"):
        open_source(of_file(layer=3, pooling="cls"))
    with pytest.raises(ValueError, match="give --labels or --scenes, not both"):
        open_source(of_file(scenes="clevr2d"))


@pytest.mark.parametrize("given", [{"space": Path("space.json")}, {"keep": ("world_name=Desert",)}])
def test_flags_of_a_table_are_refused_beside_a_built_in_world(files: Path, given: dict[str, Any]):
    (files / "space.json").write_text(json.dumps({"color": 3}))
    with pytest.raises(ValueError, match=f"--{next(iter(given))} goes with a labels table; clevr is a built-in world"):
        open_source(EmbedConfig(embedder="oracle:no-binding", scenes="clevr", **given))


# ------------------------------------------------------------------------------------------------------ rows to keep


@pytest.fixture
def pug(files: Path) -> Path:
    rows = [f"{w},{a},{b},{s},{t}" for w in ("Desert", "Moon") for a, b in (("Crow", "Fox"), ("Fox", "Crow"))
            for s, t in (("Red", "Blue"), ("Blue", "Red"))]  # fmt: skip
    (files / "pug.csv").write_text("\n".join([PUG, *rows]))
    return files / "pug.csv"


def test_rows_of_a_table_are_kept_by_their_cells(pug: Path):
    config = EmbedConfig(embedder="oracle:no-binding:8", scenes=str(pug), keep=("world_name=Desert",))
    source = open_source(config)
    assert len(source.embeddings) == 4
    assert "Of 8 rows of pug.csv, the 4 with world_name 'Desert' were kept." in source.notes
    vectors = torch.eye(4)
    save_file({"v": vectors}, "kept.safetensors")
    kept = open_source(of_file(embedder="kept.safetensors", labels=pug, keep=("world_name=Moon",)))
    assert torch.equal(kept.embeddings.vectors, vectors)
    with pytest.raises(ValueError, match="holds 4 vectors for the 8 rows"):
        open_source(of_file(embedder="kept.safetensors", labels=pug))


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (("Desert",), "--keep takes column=cell, such as world_name=Desert; got 'Desert'"),
        (("=Desert",), "--keep takes column=cell"),
        (("world_name=Desert", "world_name=Moon"), "--keep names the column 'world_name' twice"),
        (("mood=x",), "has no column 'mood' to keep rows by"),
        (("world_name=Sea",), "No row of .* has world_name 'Sea'"),
    ],
)
def test_what_can_not_be_kept_is_refused(pug: Path, keep: tuple[str, ...], message: str):
    with pytest.raises(ValueError, match=message):
        open_source(EmbedConfig(embedder="oracle:no-binding:8", scenes=str(pug), keep=keep))


def test_rows_are_kept_from_the_command_line(pug: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check-data", str(pug), "--keep", "world_name=Desert"]) == 0
    assert "4 scenes: 4 of 2 objects" in capsys.readouterr().out
    words = ["embed", "oracle:no-binding:8", "--scenes", str(pug), "--keep", "world_name=Desert", "character_name=Fox"]
    assert main([*words, "--out", "kept"]) == 0
    assert "2 vectors of 8 dimensions" in capsys.readouterr().out


# --------------------------------------------------------------------------------------- embedded, and read back again


def written(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What `colligate embed` says, after making sure that what it wrote can be read back."""
    assert main(["embed", *words, "--out", "made"]) == 0
    read = read_vectors(Path("made/vectors.safetensors"), Path("made/labels.csv"))
    assert torch.equal(
        read.vectors, open_source(EmbedConfig(embedder=words[0], labels=Path(words[2]))).embeddings.vectors
    )
    return capsys.readouterr().out


def test_vectors_with_singles_are_written_with_all_their_labels(files: Path, capsys: pytest.CaptureFixture[str]):
    rule = object_table(SPACE, 2, 8, 0)
    every = Scenes.join([PAIRS, SINGLES])
    vectors = rule(every.values).float()
    save_file({"scenes": vectors[: len(PAIRS)].clone(), "singles": vectors[len(PAIRS) :].clone()}, "roles.safetensors")
    parts = [("fit", "validation", "test")[i % 3] for i in range(len(PAIRS))]
    Path("parts.csv").write_bytes(labels_bytes(World("parts", PAIRS, CaptionTemplate(), parts=tuple(parts))))
    told = written(capsys, "roles.safetensors", "--labels", "parts.csv")
    assert f"{len(every)} vectors" in told
    assert "Rows of labels.csv whose last slots are empty are scenes of fewer objects." in told
    before = open_subject(StudyConfig(embedder="roles.safetensors", labels=Path("parts.csv")))
    after = open_subject(StudyConfig(embedder="made/vectors.safetensors", labels=Path("made/labels.csv")))
    assert torch.equal(before.scenes.ids, after.scenes.ids)
    assert torch.equal(before.split.test, after.split.test)
    assert before.singles is not None
    assert after.singles is not None
    assert torch.equal(before.singles.scenes.ids, after.singles.scenes.ids)
    assert before.embeddings.captions == after.embeddings.captions


def test_captions_that_would_repeat_are_left_out_and_said(files: Path, capsys: pytest.CaptureFixture[str]):
    twice = Scenes.join([PAIRS, PAIRS])
    vectors = torch.randn(len(twice), 8, generator=torch.Generator().manual_seed(0))
    save_file({"v": vectors}, "twice.safetensors")
    lines = labels_bytes(World("twice", twice, CaptionTemplate())).decode().splitlines()
    numbered = [f"{line},{'filename' if i == 0 else f'{i}.png'}" for i, line in enumerate(lines)]
    Path("twice.csv").write_text("\n".join(numbered))
    said = written(capsys, "twice.safetensors", "--labels", "twice.csv")
    assert "Captions were left out of labels.csv: rows of the same scene have the same one." in said


def test_values_that_no_scene_shows_need_their_space_again(files: Path, capsys: pytest.CaptureFixture[str]):
    (files / "space.json").write_text(
        json.dumps({"color": ["black", "red", "green", "blue"], "shape": list(SPACE.words[1])})
    )
    lines = Path("pairs.csv").read_text().splitlines()
    words = [",".join(cell for i, cell in enumerate(line.split(",")) if i in (1, 3, 5, 7)) for line in lines]
    head = "slot1_color,slot1_shape,slot2_color,slot2_shape"
    Path("words.csv").write_text("\n".join([head, *words[1:]]))
    given = ["v.safetensors", "--labels", "words.csv", "--space", "space.json", "--out", "made"]
    assert main(["embed", *given]) == 0
    assert "No scene shows color black: read labels.csv with the same --space." in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------- given splits


def test_a_given_split_without_validation_serves_the_papers_protocol_only(files: Path):
    parts = tuple("test" if i % 3 == 2 else "fit" for i in range(len(PAIRS)))
    Path("parts.csv").write_bytes(labels_bytes(World("parts", PAIRS, parts=parts)))
    split = open_subject(of_file(labels=Path("parts.csv"), protocol="paper")).split
    assert (len(split.fit), len(split.validation), len(split.test)) == (54, 0, 27)
    with pytest.raises(ValueError, match="names no scene validation, and protocol strict chooses on those; name some"):
        open_subject(of_file(labels=Path("parts.csv")))


# ---------------------------------------------------------------------------------------------------------- progress


def test_the_control_and_the_depth_curve_tell_their_progress(files: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(battery, "random_init", lambda tower, seed: Model("fresh", {"scene": Layers()}))
    monkeypatch.setattr(battery, "_measure", lambda *given: [])
    world = load_world("text8x8").select(torch.arange(1500))
    source = Source(embed(Layers(), world), "layers", world, Layers(), None, (), {})
    told: list[tuple[str, int, int]] = []
    clock = Clock(lambda *what: told.append(what))
    battery._with_control([], ("probes",), StudyConfig(embedder="x:y"), source, clock)
    assert ("control: embedding", 1024, 1500) in told
    rows = torch.arange(1, 1500)
    told_depth = progress_of(clock.report, "depth: embedding")
    found = embed_layers(Layers(), world, rows=rows, progress=told_depth)
    assert {name: torch.equal(vectors, source.embeddings.vectors[rows]) for name, vectors in found.items()} == {
        "first": True,
        "last": True,
    }
    assert [what for what in told if what[0] == "depth: embedding"] == [
        ("depth: embedding", 1024, 1499),
        ("depth: embedding", 1499, 1499),
    ]
