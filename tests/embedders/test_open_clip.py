"""OpenCLIP: trimmed text, activation and preprocessing as the weights were trained, no code in checkpoints."""

import importlib
import json
import logging
import pickle
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from colligate.embedders import load_model
from colligate.embedders import open_clip as adapter
from colligate.embedders.open_clip import TextReader
from colligate.embedders.towers import NetworkTower
from colligate.scenes.worlds import load_world

CAPTIONS = ["red", "a blue sphere and a green cube", "a large brown cylinder and a purple square"]


@pytest.fixture(scope="module")
def pictures() -> list[Any]:
    return load_world("clevr2d").images(torch.tensor([0, 100, 599]))


@pytest.fixture
def tiny_architecture(tmp_path: Path, tiny: Callable[[str], Path]) -> Iterator[str]:
    """The tiny architecture under a name, as if OpenCLIP had it built in."""
    from open_clip import factory

    told = json.loads((tiny("open_clip") / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "tiny-colligate.json").write_text(json.dumps(told))
    factory.add_model_config(tmp_path / "tiny-colligate.json")
    yield "tiny-colligate"
    factory._MODEL_CONFIGS.pop("tiny-colligate")
    factory._MODEL_CONFIG_PATHS.remove(tmp_path / "tiny-colligate.json")


def network_tower(name: str, kind: str, **options: Any) -> NetworkTower:
    tower = load_model(name, **options).towers[kind]
    assert isinstance(tower, NetworkTower)
    return tower


@pytest.mark.parametrize("variant", [{}, {"custom_text": True}], ids=["CLIP", "CustomTextCLIP"])
def test_trimmed_captions_get_the_library_s_vectors(variant: dict[str, Any], tiny: Any, tmp_path: Path) -> None:
    open_clip: Any = importlib.import_module("open_clip")

    folder = tiny("open_clip")
    if variant:
        shutil.copytree(folder, tmp_path / "variant")
        folder = tmp_path / "variant"
        (folder / "open_clip_model.safetensors").unlink()
        path = folder / "open_clip_config.json"
        told = json.loads(path.read_text())
        told["model_cfg"].update(variant)
        path.write_text(json.dumps(told))
        from safetensors.torch import save_file

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = open_clip.create_model(f"local-dir:{folder}", load_weights=False)
        save_file({k: v.contiguous() for k, v in module.state_dict().items()}, folder / "open_clip_model.safetensors")
    tower = network_tower(f"open_clip:{folder}", "text")
    assert tower.fingerprint["padding"] == "to the longest caption of the batch"
    model = open_clip.create_model(f"local-dir:{folder}").eval()
    with torch.no_grad():
        expected = model.encode_text(open_clip.get_tokenizer(f"local-dir:{folder}")(CAPTIONS))
    assert torch.allclose(tower.embed(CAPTIONS), expected, atol=1e-5)
    assert isinstance(tower.reader, TextReader)
    padded = replace(tower, reader=replace(tower.reader, trims=False))
    assert torch.allclose(padded.embed(CAPTIONS), expected, atol=1e-6)


def test_a_text_tower_that_sees_later_tokens_is_not_trimmed(tiny: Any, tmp_path: Path) -> None:
    open_clip: Any = importlib.import_module("open_clip")
    from safetensors.torch import save_file

    folder = tmp_path / "both-ways"
    shutil.copytree(tiny("open_clip"), folder)
    (folder / "open_clip_model.safetensors").unlink()
    path = folder / "open_clip_config.json"
    told = json.loads(path.read_text())
    told["model_cfg"]["custom_text"] = True
    told["model_cfg"]["text_cfg"] |= {"no_causal_mask": True, "pool_type": "last"}
    path.write_text(json.dumps(told))
    module = open_clip.create_model(f"local-dir:{folder}", load_weights=False)
    save_file({k: v.contiguous() for k, v in module.state_dict().items()}, folder / "open_clip_model.safetensors")
    tower = network_tower(f"open_clip:{folder}", "text")
    assert tower.fingerprint["padding"] == "to 77 tokens"
    assert tower.embed_depth(CAPTIONS) == {}
    with pytest.raises(ValueError, match="exposes no tokens"):
        tower.embed_tokens(CAPTIONS)
    with pytest.raises(ValueError, match="exposes no layers"):
        load_model(f"open_clip:{folder}", layer=1)


def test_pictures_get_the_library_s_vectors_under_the_folder_s_preprocessing(
    tiny: Callable[[str], Path], pictures: list[Any]
) -> None:
    open_clip: Any = importlib.import_module("open_clip")

    name = f"local-dir:{tiny('open_clip')}"
    model, _, transform = open_clip.create_model_and_transforms(name)
    with torch.no_grad():
        expected = model.eval().encode_image(torch.stack([transform(picture) for picture in pictures]))
    tower = network_tower(f"open_clip:{tiny('open_clip')}", "picture")
    assert torch.allclose(tower.embed(pictures), expected, atol=1e-5)
    told: Any = tower.fingerprint["preprocessing"]
    assert (told["mean"], told["resize_mode"]) == ([0.5, 0.5, 0.5], "squash")


def test_a_checkpoint_file_loads_into_a_named_architecture(
    tiny: Callable[[str], Path], tiny_architecture: str, tmp_path: Path
) -> None:
    weights = tiny("open_clip") / "open_clip_model.safetensors"
    torch.save(load_file(weights), tmp_path / "weights.pt")
    folder = network_tower(f"open_clip:{tiny('open_clip')}", "text").embed(CAPTIONS)
    for file in (weights, tmp_path / "weights.pt"):
        model = load_model(f"open_clip:{tiny_architecture}/{file}")
        assert torch.equal(model.towers["text"].embed(CAPTIONS), folder)
        assert "does not say which activation" in model.notes[0]


@pytest.mark.parametrize("quick", [True, False])
def test_a_tag_brings_its_own_activation_and_preprocessing(
    quick: bool, tiny: Callable[[str], Path], tiny_architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from open_clip import pretrained

    told = {"hf_hub": "nobody/nothing/", "quick_gelu": quick, "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5),
            "interpolation": "bilinear", "resize_mode": "longest"}  # fmt: skip
    monkeypatch.setitem(pretrained._PRETRAINED, tiny_architecture, {"ours": told})
    name = f"open_clip:{tiny_architecture}/ours"
    with pytest.raises(FileNotFoundError, match=r"fetch nobody/nothing where there is a network and name the file"):
        load_model(name)
    monkeypatch.setattr(adapter, "_on_this_machine", lambda _: str(tiny("open_clip") / "open_clip_model.safetensors"))
    tower = network_tower(name, "picture")
    assert tower.fingerprint["activation"] == ("quick_gelu" if quick else "gelu")
    used: Any = tower.fingerprint["preprocessing"]
    assert (used["mean"], used["interpolation"], used["resize_mode"]) == ([0.1, 0.2, 0.3], "bilinear", "longest")
    text = network_tower(name, "text").embed(CAPTIONS)
    same = torch.allclose(text, network_tower(f"open_clip:{tiny('open_clip')}", "text").embed(CAPTIONS), atol=1e-4)
    assert same is not quick


def test_a_file_borrows_the_preprocessing_its_architecture_s_tags_agree_on(
    tiny: Callable[[str], Path], tiny_architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from open_clip import pretrained

    tags = {"one": {"mean": (0.5, 0.5, 0.5)}, "two": {"mean": (0.5, 0.5, 0.5)}}
    monkeypatch.setitem(pretrained._PRETRAINED, tiny_architecture, tags)
    name = f"open_clip:{tiny_architecture}/{tiny('open_clip') / 'open_clip_model.safetensors'}"
    used: Any = network_tower(name, "picture").fingerprint["preprocessing"]
    assert used["mean"] == [0.5, 0.5, 0.5]
    tags["two"] = {"mean": (0.1, 0.1, 0.1)}
    with pytest.raises(ValueError, match="prepare pictures differently"):
        load_model(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("open_clip:NoSuchArch/openai", "OpenCLIP has no architecture 'NoSuchArch'"),
        ("open_clip:ViT-B-32", "neither a file nor a pretrained version; OpenCLIP lists openai"),
        ("open_clip:ViT-B-32/no_such_tag", "neither a file nor a pretrained version"),
        ("open_clip:ViT-B-32-quickgelu/laion2b_s34b_b79k", "neither a file nor a pretrained version"),
    ],
)
def test_a_name_that_does_not_exist_is_told_in_one_sentence(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_model(name)


def test_weights_to_be_fetched_are_to_be_named_under_their_own_activation() -> None:
    with pytest.raises(FileNotFoundError, match="open_clip:ViT-B-32-quickgelu/PATH/TO/FILE"):
        load_model("open_clip:ViT-B-32/openai")
    with pytest.raises(FileNotFoundError, match="open_clip:ViT-B-32/PATH/TO/FILE"):
        load_model("open_clip:ViT-B-32/laion2b_s34b_b79k")


def test_torchscript_is_refused(tiny_architecture: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "scripted.pt", "w") as archive:
        for entry in ("archive/data.pkl", "archive/constants.pkl", "archive/code/model.py"):
            archive.writestr(entry, b"")
    with pytest.raises(ValueError, match="TorchScript archive, which holds code and is refused"):
        load_model(f"open_clip:{tiny_architecture}/{tmp_path / 'scripted.pt'}")


class Evil:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("/nonexistent/pwned"),)


@pytest.mark.parametrize("modern", [True, False])
def test_a_pickle_is_never_run(modern: bool, tiny_architecture: str, tmp_path: Path) -> None:
    if modern:
        torch.save({"state_dict": Evil()}, tmp_path / "evil.pt")
    else:
        (tmp_path / "evil.pt").write_bytes(pickle.dumps({"state_dict": Evil()}, protocol=2))
    with pytest.raises(ValueError, match="or hold more than weights"):
        load_model(f"open_clip:{tiny_architecture}/{tmp_path / 'evil.pt'}")


def test_weights_of_another_architecture_are_refused(tiny_architecture: str, tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="do not fit this architecture"):
        load_model(f"open_clip:{tiny_architecture}/{tmp_path / 'other.pt'}")


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"open_clip_config\.json is not there"):
        load_model(f"open_clip:{tmp_path}")
    (tmp_path / "open_clip_config.json").write_text("{}")
    with pytest.raises(ValueError, match="has no model_cfg"):
        load_model(f"open_clip:{tmp_path}")


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("text_cfg", {"width": 64}, r"positional_embedding is 77 x 32 in the file and 77 x 64 by the config"),
        ("vision_cfg", {"image_size": 64}, r"visual\.positional_embedding is 17 x 64 in the file and 65 x 64 by"),
        ("text_cfg", {"vocab_size": 10**11}, r"describes a network of 3,200,000,\S+ numbers, and its weights"),
        ("text_cfg", {"layers": 10**9}, r"says layers: 1,000,000,000, more than the weights"),
        ("text_cfg", {"layers": 3}, r"do not fit this architecture.*transformer\.resblocks\.2"),
        ("vision_cfg", {"patch_size": 0}, r"can't be read|do not fit this architecture"),
    ],
)
def test_weights_that_do_not_fit_their_config_are_refused(
    part: str, change: dict[str, int], said: str, tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(tiny("open_clip"), folder)
    path = folder / "open_clip_config.json"
    told = json.loads(path.read_text())
    told["model_cfg"][part] |= change
    path.write_text(json.dumps(told))
    with pytest.raises(ValueError, match=rf"{folder}.*{said}"):
        load_model(f"open_clip:{folder}")


def test_a_folder_without_weights_is_refused(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    shutil.copy(tiny("open_clip") / "open_clip_config.json", tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no weights"):
        load_model(f"open_clip:{tmp_path}")


def test_a_caption_that_would_be_cut_is_refused(tiny: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match="takes 82 tokens and this tower reads 77"):
        network_tower(f"open_clip:{tiny('open_clip')}", "text").embed(["red " * 80])


def test_loading_leaves_the_user_s_logging_as_it_was(tiny: Callable[[str], Path]) -> None:
    before = (list(logging.getLogger().handlers), logging.root.manager.disable)
    load_model(f"open_clip:{tiny('open_clip')}")
    assert (list(logging.getLogger().handlers), logging.root.manager.disable) == before
