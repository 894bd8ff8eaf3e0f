"""Names, factories and `embed`: what users meet first."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from colligate.cli import main
from colligate.embedders import load_model
from colligate.embedders.controls import NoControl, random_init
from colligate.embedders.embedding import embed, embed_layers
from colligate.embedders.inspection import check_model
from colligate.embedders.oracles import Oracle
from colligate.embedders.towers import Model
from colligate.embedders.unreadable import UnreadableItemsError
from colligate.records import WorkError
from colligate.scenes.sources import read_labels
from colligate.scenes.space import Scenes
from colligate.scenes.worlds import World, load_world, render
from colligate.store import Store
from colligate.verbs.sources import crop_notes


@pytest.fixture(scope="module")
def world() -> World:
    return load_world("text8x8")


class Counting:
    """A user's tower: letters of the caption, counted."""

    kind = "text"

    def __init__(self) -> None:
        self.fingerprint: dict[str, object] | None = {"letters": "abc", "version": 1}
        self.given: list[int] = []

    def embed(self, items: list[str]) -> torch.Tensor:
        self.given.append(len(items))
        return torch.tensor([[text.count(letter) for letter in "abcdefghijklmno"] for text in items]).float()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MiniLM", "names no embedder; write one of sbert:"),
        ("sbert:", "names no embedder"),
        (":x", "names no embedder"),
        ("no_such_module:tower", "There is no module 'no_such_module'"),
        ("colligate.no_such_module:tower", "There is no module 'colligate.no_such_module'"),
        ("json:no_such_function", "has no function 'no_such_function'"),
        ("json:JSONDecoder", "expected an object with embed"),
        ("oracle:nobinding", "choose one of no-binding, object-product"),
        ("oracle:no-binding?width=3", "dim=NUMBER and seed=NUMBER"),
        ("oracle:no-binding:0", "at least one dimension"),
    ],
)
def test_a_name_that_means_nothing_is_told_in_one_sentence(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_model(name)


@pytest.mark.parametrize("name", ["sbert:no/such-model", "hf:no/such-model", "hf:./no/such/folder"])
def test_missing_weights_say_what_to_fetch(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"fetch them once with `hf download|There is no folder"):
        load_model(name)


@pytest.mark.parametrize(
    ("library", "name", "extra"),
    [
        ("sentence_transformers", "sbert:x/y", "sbert"),
        ("transformers", "hf:x/y", "hf"),
        ("open_clip", "open_clip:ViT-B-32/openai", "open-clip"),
    ],
)
def test_a_missing_library_says_which_extra_to_install(
    library: str, name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"pip install 'colligate\[{extra}\]'"):
        load_model(name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float8"}, "float32, bfloat16, float16, float64"),
        ({"device": "abacus"}, "This machine has no device 'abacus'"),
    ],
)
def test_options_that_do_not_exist_are_refused(
    options: dict[str, Any], message: str, tiny: Callable[[str], Path]
) -> None:
    with pytest.raises(ValueError, match=message):
        load_model(f"sbert:{tiny('sbert')}", **options)


@pytest.mark.parametrize("options", [{"layer": 1}, {"pooling": "mean"}, {"normalize": True}])
def test_oracles_and_factories_take_no_reading_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="oracle"):
        load_model("oracle:no-binding", **options)
    with pytest.raises(ValueError, match="your own embedder"):
        load_model("json:loads", **options)


FACTORIES = """
import torch
class Lengths:
    kind = "text"
    def embed(self, items):
        return torch.tensor([[float(len(text)), 1.0] for text in items])
def tower():
    return Lengths()
def towers():
    return {"text": Lengths()}
def misfiled():
    return {"picture": Lengths()}
def broken():
    return {"text": 3}
"""


def test_a_factory_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_towers.py").write_text(FACTORIES)
    (tmp_path / "lacking.py").write_text("import no_such_library_at_all\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    for factory in ("tower", "towers"):
        model = load_model(f"my_own_towers:{factory}")
        assert list(model.towers) == ["text"]
        assert model.name == f"my_own_towers:{factory}"
    with pytest.raises(ValueError, match="under 'picture'"):
        load_model("my_own_towers:misfiled")
    with pytest.raises(ValueError, match="expected an object with embed"):
        load_model("my_own_towers:broken")
    (tmp_path / "kindless.py").write_text("class NK:\n    def embed(self, items): ...\n\ntower = NK\n")
    said = r'^kindless:tower gave a NK without `kind`; set kind to "text", "picture" or "scene"\.$'
    with pytest.raises(ValueError, match=said):
        load_model("kindless:tower")
    with pytest.raises(WorkError, match=r"^lacking:tower raised ModuleNotFound.*no_such_library.*lacking.py, li"):
        load_model("lacking:tower")
    assert sys.path == before


RAISING = """import json
import torch
from colligate.embedders import load_model

def lookup():
    return {}["weights"]

def library():
    return json.loads("{")

def ours():
    return load_model("oracle:nothing")

def silent():
    raise RuntimeError

class Late:
    kind, fingerprint = "text", {"of": "late"}
    def embed(self, items):
        return torch.ones(len(items), 2) @ torch.ones(3)
    def embed_depth(self, items):
        return {"layer 0": items.vectors}

def late():
    return Late()
"""


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("lookup", r"raised KeyError: 'weights' \(.*raising.py, line 6\); put"),
        ("library", r"raised JSONDecodeError: Expecting property name .* \(.*raising.py, line 9\); put"),
        ("ours", r"raised ValueError: .*nothing.* \(.*raising.py, line 12\); put"),
        ("silent", r"raised RuntimeError \(.*raising.py, line 15\); put"),
    ],
)
def test_a_factory_that_raises_is_told_in_one_sentence(
    factory: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raising.py").write_text(RAISING)
    monkeypatch.chdir(tmp_path)
    assert main(["check-model", f"raising:{factory}"]) == 1
    assert re.fullmatch(rf"colligate: raising:{factory} {said} that right there\.\n", capsys.readouterr().err)


def test_a_tower_that_raises_is_told_in_one_sentence(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising.py").write_text(RAISING)
    (tmp_path / "halfway.py").write_text("def tower(:\n")
    monkeypatch.chdir(tmp_path)
    tower: Any = load_model("raising:late").towers["text"]
    with pytest.raises(WorkError, match=r"^raising:late raised RuntimeError: .*raising.py, line 20\)"):
        embed(tower, world, rows=torch.arange(2))
    with pytest.raises(WorkError, match=r"^raising:late raised AttributeError: .*raising.py, line 22\)"):
        tower.embed_depth(["red"])
    with pytest.raises(WorkError, match=r"^halfway:tower raised SyntaxError: .*halfway.py, line 1\)"):
        load_model("halfway:tower")


def test_a_model_files_its_towers_by_kind() -> None:
    with pytest.raises(ValueError, match="has no tower"):
        Model("empty", {})
    with pytest.raises(ValueError, match="under 'text'"):
        Model("wrong", {"text": Oracle("no-binding")})


def test_embed_keeps_rows_scenes_captions_and_provenance_together(world: World) -> None:
    rows = torch.tensor([4, 2, 9])
    tower = Counting()
    embeddings = embed(tower, world, rows=rows)
    assert torch.equal(embeddings.scenes.values, world.scenes[rows].values)
    assert embeddings.captions is not None
    texts = world.items("text", rows)
    assert list(embeddings.captions) == texts
    assert torch.equal(embeddings.vectors, tower.embed(texts))  # pyright: ignore[reportArgumentType]
    assert embeddings.provenance["tower"] == tower.fingerprint
    assert embeddings.provenance["items"] == world.describe("text")
    assert embeddings.provenance["dtype"] == "float32"


def test_embed_gives_the_tower_no_more_than_the_batch_size_and_tells_progress(world: World) -> None:
    tower, seen = Counting(), list[tuple[int, int]]()
    embed(tower, world, rows=torch.arange(10), batch_size=4, progress=lambda done, total: seen.append((done, total)))
    assert tower.given == [4, 4, 2]
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_embed_with_a_store_computes_once_and_progress_never_goes_back(world: World, tmp_path: Path) -> None:
    store, tower, seen = Store(tmp_path, rows_per_shard=6), Counting(), list[int]()
    options: dict[str, Any] = {"rows": torch.arange(20), "store": store, "batch_size": 4}
    first = embed(tower, world, **options, progress=lambda done, _: seen.append(done))
    asked = len(tower.given)
    second = embed(tower, world, **options, progress=lambda done, _: seen.append(done))
    assert torch.equal(first.vectors, second.vectors)
    assert len(tower.given) == asked == 7  # shards of 6, 6, 6 and 2 rows, at most 4 items at once
    assert seen[: seen.index(20) + 1] == sorted(seen[: seen.index(20) + 1])
    assert seen[-4:] == [6, 12, 18, 20]


def test_other_rows_or_items_are_other_entries_of_the_store(world: World, tmp_path: Path) -> None:
    store, tower = Store(tmp_path), Counting()
    embed(tower, world, rows=torch.tensor([1, 2]), store=store)
    embed(tower, world, rows=torch.tensor([2, 1]), store=store)
    changed = Counting()
    changed.fingerprint = {"letters": "abc", "version": 2}
    embed(changed, world, rows=torch.tensor([1, 2]), store=store)
    assert len(list(tmp_path.rglob("meta.json"))) == 3
    everything = torch.arange(len(world.scenes))
    embed(tower, world, store=store)
    calls = len(tower.given)
    embed(tower, world, rows=everything, store=store)
    assert len(tower.given) == calls


def test_a_tower_without_fingerprint_is_never_kept(world: World, tmp_path: Path) -> None:
    tower = Counting()
    tower.fingerprint = None
    for _ in range(2):
        embed(tower, world, rows=torch.arange(3), store=Store(tmp_path))
    assert len(tower.given) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "given",
    [torch.zeros(2, 4), torch.zeros(3), torch.zeros(3, 4, dtype=torch.int64)],
    ids=["too few", "not two-dimensional", "integers"],
)
def test_a_tower_that_gives_something_else_is_refused(given: torch.Tensor, world: World) -> None:
    class Wrong(Counting):
        def embed(self, items: list[str]) -> torch.Tensor:
            return given

    with pytest.raises(WorkError, match=r"The Wrong tower gave .* for 3 items"):
        embed(Wrong(), world, rows=torch.arange(3))


def _sparse(rows: int) -> Any:
    return torch.eye(rows).to_sparse()


def _rows_of_scipy(rows: int) -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix(np.eye(rows))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (lambda rows: None, "gave None for 3 items"),
        (_sparse, "gave a sparse Tensor for 3 items"),
        (_rows_of_scipy, "gave a sparse csr_matrix for 3 items"),
        (lambda rows: "red", "gave a str for 3 items"),
        (lambda rows: [[1.0], [1.0, 2.0], [3.0]], "gave a list for 3 items"),
        (lambda rows: [object()] * rows, "gave a list for 3 items"),
        (lambda rows: torch.zeros(rows, 2, dtype=torch.complex64), "gave torch.complex64"),
    ],
    ids=["None", "sparse", "scipy", "text", "ragged", "objects", "complex"],
)
def test_what_is_no_vector_is_told_as_such(given: Callable[[int], Any], what: str, world: World) -> None:
    class Wrong(Counting):
        def embed(self, items: list[str]) -> Any:
            return given(len(items))

    with pytest.raises(WorkError, match=rf"The Wrong tower {what}.*expected one floating vector each"):
        embed(Wrong(), world, rows=torch.arange(3))


def test_rows_of_numpy_seen_backwards_are_taken(world: World) -> None:
    class Backwards(Counting):
        def embed(self, items: list[str]) -> Any:
            return np.asarray(super().embed(items))[:, ::-1]

    found = embed(Backwards(), world, rows=torch.arange(3)).vectors
    assert torch.equal(found, embed(Counting(), world, rows=torch.arange(3)).vectors.flip(1))


APART = """
import os, sys
import numpy as np
import torch

class Tower:
    kind, fingerprint = "text", None
    def embed(self, items):
        print("one more batch")
        os.system("echo by a program")
        assert torch.get_default_dtype() == torch.float64, "what the factory set holds in its own code"
        assert os.path.basename(os.getcwd()) == "elsewhere"
        weights = torch.ones(2, 3, dtype=torch.float64)
        return torch.tensor([[float(len(text)), 1.0] for text in items]) @ weights

def tower():
    print("loading")
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    os.makedirs("elsewhere", exist_ok=True)
    os.chdir("elsewhere")
    return Tower()

def ends():
    sys.exit()

class Ending(Tower):
    def embed(self, items):
        sys.exit(0)

def ends_late():
    return Ending()

class Told(Tower):
    def __init__(self, told):
        self.fingerprint = told

def told_array():
    return Told({"weights": np.ones(2)})

def told_text():
    return Told("v1")

def told_nan():
    return Told({"scale": [1.0, float("nan")]})

def told_set():
    return Told({"words": {"a"}})

def told_number():
    return Told({3: "layers"})
"""


def test_what_an_own_model_prints_and_sets_stays_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], world: World
) -> None:
    (tmp_path / "apart.py").write_text(APART)
    monkeypatch.chdir(tmp_path)
    tower = load_model("apart:tower").towers["text"]
    found = embed(tower, world, rows=torch.arange(3))
    assert found.vectors.dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert Path.cwd() == tmp_path
    printed = capfd.readouterr()
    assert printed.out == ""
    assert [line for line in printed.err.splitlines() if line] == ["loading", "one more batch", "by a program"]


@pytest.mark.parametrize("verb", ["check-model", "probe"])
@pytest.mark.parametrize("factory", ["ends", "ends_late"])
def test_an_own_model_that_ends_the_program_is_no_success(
    verb: str, factory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "apart.py").write_text(APART)
    monkeypatch.chdir(tmp_path)
    assert main([verb, f"apart:{factory}"]) == 1
    said = capsys.readouterr().err
    assert re.search(
        rf"apart:{factory} ended the program \(sys.exit\((None|0)\)\) \(.*apart.py, line \d+\); raise", said
    )


@pytest.mark.parametrize("factory", ["told_array", "told_text", "told_nan", "told_set", "told_number"])
def test_a_fingerprint_that_is_no_json_is_refused(
    factory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apart.py").write_text(APART)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"^apart:{factory} has a .*fingerprint.*; give facts in JSON .*or None"):
        load_model(f"apart:{factory}")


class OfItsBatch(Counting):
    """Reads single items apart, and takes a batch's mean off the others: the order changes nothing."""

    share = 0.5

    def embed(self, items: list[str]) -> torch.Tensor:
        vectors = super().embed(items)
        return vectors if len(items) == 1 else vectors + self.share * (vectors - vectors.mean(0))


class OfItsSize(Counting):
    """Other vectors in batches of more than forty, which is more than are tried at once otherwise."""

    def embed(self, items: list[str]) -> torch.Tensor:
        return super().embed(items).flip(1) if len(items) > 40 else super().embed(items)


class OfItsTwins(Counting):
    """Other vectors where most of a batch are copies of one item."""

    def embed(self, items: list[str]) -> torch.Tensor:
        vectors = super().embed(items)
        return vectors.flip(1) if len(items) > 2 * len(set(items)) - 2 > 2 else vectors


@pytest.mark.parametrize("tower", [OfItsBatch(), OfItsSize(), OfItsTwins()], ids=lambda tower: type(tower).__name__)
def test_check_model_tells_vectors_that_depend_on_their_batch(tower: Counting, world: World) -> None:
    found = check_model(Model("mine", {"text": tower}), world)
    bad = [finding.name for finding in found if finding.verdict == "bad"]
    assert bad, [(finding.name, finding.value) for finding in found]
    assert all(finding.note == "Vectors depend on their batch." for finding in found if "difference" in finding.name and
               finding.verdict == "bad")  # fmt: skip
    plain = check_model(Model("mine", {"text": Counting()}), world)
    assert not [finding for finding in plain if finding.verdict == "bad"]


def _wide_pictures(folder: Path) -> Path:
    """Two squares at the two ends of a picture three times as wide as high."""
    from PIL import Image, ImageDraw

    folder.mkdir()
    lines = ["picture,slot1_color,slot2_color"]
    for row, colors in enumerate([("red", "blue"), ("blue", "red"), ("green", "red"), ("red", "green")]):
        picture = Image.new("RGB", (192, 64), "white")
        for left, color in zip((4, 164), colors, strict=True):
            ImageDraw.Draw(picture).rectangle((left, 20, left + 23, 43), fill=color)
        picture.save(folder / f"{row}.png")
        lines.append(f"{row}.png,{','.join(colors)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder / "labels.csv"


@pytest.mark.parametrize(
    ("name", "prefix", "cut"),
    [("clip", "hf", True), ("siglip", "hf", False), ("siglip2", "hf", False), ("open_clip", "open_clip", False)],
)
def test_a_crop_that_cuts_objects_off_is_told(
    name: str, prefix: str, cut: bool, tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    wide = read_labels(_wide_pictures(tmp_path / "wide"))
    model = load_model(f"{prefix}:{tiny(name)}")
    (shown,) = (one for one in check_model(model, wide) if one.name == "shown of the pictures")
    assert (shown.value, shown.verdict) == (("0%", "mind") if cut else ("100%", "good"))
    if cut:
        assert re.search(
            r"crops pictures to 3[2-5]% of their width and 100% of their height: it shows 0% of", shown.note
        )
    assert [bool(note) for note in crop_notes(model.towers["picture"], wide)] == ([True] if cut else [])
    assert crop_notes(model.towers["picture"], load_world("clevr2d")) == (), "nothing is cut off a square picture"


def test_a_tower_may_give_numpy(world: World) -> None:
    class Numpy(Counting):
        def embed(self, items: list[str]) -> Any:
            return np.asarray(super().embed(items))

    assert torch.equal(
        embed(Numpy(), world, rows=torch.arange(5)).vectors, embed(Counting(), world, rows=torch.arange(5)).vectors
    )


def test_captions_that_are_too_long_are_named_by_their_rows(world: World, tiny: Callable[[str], Path]) -> None:
    tower: Any = load_model(f"hf:{tiny('siglip')}").towers["text"]
    long, longer = "red " * 20, "blue " * 30
    with pytest.raises(UnreadableItemsError) as found:
        tower.embed(["red", long, "blue", longer, long])
    assert found.value.reasons == {
        row: f"takes {n} tokens and this tower reads 20" for row, n in ((1, 21), (3, 31), (4, 21))
    }
    assert found.value.captions == {1: long, 3: longer, 4: long}
    assert tower.unreadable(["red", long]) == {1: "takes 21 tokens and this tower reads 20"}
    assert tower.unreadable([]) == tower.unreadable(["red"]) == {}
    said = tuple(
        f"a {'red ' * 20}one" if row == 8 else text for row, text in enumerate(cast("list[str]", world.items("text")))
    )
    with pytest.raises(
        UnreadableItemsError, match=r"^Caption 9 takes 23 tokens .*; change it, or leave it out\.$"
    ) as of_world:
        embed(tower, replace(world, captions=said), rows=torch.tensor([3, 8]))
    assert list(of_world.value.reasons) == [8]
    assert [*embed_layers(tower, world, rows=torch.tensor([3]))]
    with pytest.raises(UnreadableItemsError, match=r"^Caption 9 takes"):
        embed_layers(tower, replace(world, captions=said), rows=torch.tensor([3, 8]))


def test_vectors_that_are_not_finite_name_their_rows(world: World) -> None:
    class Broken(Counting):
        def embed(self, items: list[str]) -> torch.Tensor:
            vectors = super().embed(items)
            vectors[1] = float("nan")
            return vectors

    with pytest.raises(WorkError, match="rows 2"):
        embed(Broken(), world, rows=torch.arange(3))


def test_vectors_that_are_not_finite_are_never_kept(world: World, tmp_path: Path) -> None:
    class Broken(Counting):
        broken = True

        def embed(self, items: list[str]) -> torch.Tensor:
            vectors = super().embed(items)
            vectors[1] = float("inf") if self.broken else vectors[1]
            return vectors

    tower, store = Broken(), Store(tmp_path)
    for _ in range(2):
        with pytest.raises(WorkError, match="The Broken tower gave NaN or infinity for rows 4; its weights may be"):
            embed(tower, world, rows=torch.tensor([7, 3, 5]), store=store)
    assert not list(tmp_path.rglob("*.safetensors"))
    tower.broken = False
    assert embed(tower, world, rows=torch.tensor([7, 3, 5]), store=store).vectors.isfinite().all()


@pytest.mark.parametrize("form", ["@dataclass(frozen=True)", "@dataclass(slots=True)"])
def test_a_tower_that_takes_no_attributes_needs_no_fingerprint(
    form: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
from dataclasses import dataclass
import torch
{form}
class Fixed:
    scale: float = 2.0
    @property
    def kind(self):
        return "text"
    def embed(self, items):
        return torch.tensor([[self.scale * len(text), 1.0] for text in items])
def make():
    return Fixed()
"""
    name = f"fixed_tower_{'frozen' if 'frozen' in form else 'slotted'}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    model = load_model(f"{name}:make")
    found = embed(model.towers["text"], world, rows=torch.arange(3), store=Store(tmp_path / "store"))
    assert found.provenance["tower"] is None
    assert not (tmp_path / "store").exists()
    assert all(finding.verdict != "bad" for finding in check_model(model))
    assert getattr(model.towers["text"], "scale", None) == 2.0, "what else it has can be reached"
    assert not hasattr(model.towers["text"], "embed_depth")
    fresh = random_init(model)
    assert isinstance(fresh, NoControl)
    assert fresh.reason.startswith("Fixed is the user's own")


class Pixels(Counting):
    """A user's tower: the mean color of a picture."""

    kind = "picture"

    def embed(self, items: Any) -> torch.Tensor:
        self.given.append(len(items))
        return torch.stack([torch.tensor(np.asarray(item).mean((0, 1))) for item in items]).float()


def test_the_users_pictures_are_checked_before_any_is_embedded(tmp_path: Path) -> None:
    drawn = load_world("clevr2d").select(torch.arange(6))
    labels = render(drawn, tmp_path / "pictures")
    first, last = labels.parent / "0000000.png", labels.parent / "0000005.png"
    whole = last.read_bytes()
    for content, message in (
        (whole[: len(whole) // 2], r"Row 6: Picture .*0000005\.png can't be read"),
        (first.read_bytes(), r"Row 6: Picture .* is the same as row 1's 0000000\.png, but the labels differ"),
    ):
        last.write_bytes(content)
        tower = Pixels()
        with pytest.raises(ValueError, match=message):
            embed(tower, read_labels(labels), store=Store(tmp_path / "store"), batch_size=2)
        assert tower.given == [], "nothing was embedded"
    last.write_bytes(whole)
    tower, told = Pixels(), list[tuple[str, int, int]]()
    options: dict[str, Any] = {"store": Store(tmp_path / "store"), "report": lambda *what: told.append(what)}
    once = embed(tower, read_labels(labels), **options)
    assert told == [("opening pictures", done, 6) for done in range(1, 7)]
    again = embed(tower, read_labels(labels), **options)
    assert torch.equal(once.vectors, again.vectors)
    assert len(told) == len(tower.given) * 6 == 6, "what is kept was checked"


def test_the_same_picture_twice_of_one_scene_is_refused(tmp_path: Path) -> None:
    labels = render(load_world("clevr2d").select(torch.arange(2)), tmp_path / "pictures")
    lines = labels.read_text().splitlines()
    (labels.parent / "copy.png").write_bytes((labels.parent / "0000000.png").read_bytes())
    labels.write_text("\n".join([*lines, lines[1].replace("0000000.png", "copy.png")]))
    with pytest.raises(ValueError, match=r"Row 3: .* is the same as row 1's 0000000\.png, and so are the labels"):
        embed(Pixels(), read_labels(labels))
    assert embed(Counting(), read_labels(labels)).vectors.shape == (3, 15), "a text tower opens no pictures"


def test_a_world_that_shows_no_pictures_is_refused(world: World) -> None:
    class Picture(Counting):
        kind = "picture"

    with pytest.raises(ValueError, match="reads pictures and world 'text8x8' shows"):
        embed(Picture(), world)


def test_no_rows_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="no rows"):
        embed(Counting(), world, rows=torch.tensor([], dtype=torch.int64))


@pytest.mark.parametrize("family", ["no-binding", "object-product", "object-table", "scene-table"])
def test_oracles_give_a_scene_its_vector_whichever_rows_are_asked(family: str, world: World) -> None:
    oracle = load_model(f"oracle:{family}?dim=8&seed=3").towers["scene"]
    chosen: Scenes = load_world("clevr2d").scenes
    rows = torch.tensor([0, 599, 17])
    assert torch.equal(oracle.embed(chosen)[rows], oracle.embed(chosen[rows]))
    assert not torch.allclose(oracle.embed(chosen), load_model(f"oracle:{family}:8").towers["scene"].embed(chosen))
