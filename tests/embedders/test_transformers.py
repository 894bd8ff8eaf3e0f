"""CLIP, SigLIP and DINO through transformers, against the library's own calls."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colligate.embedders import load_model
from colligate.embedders.towers import NetworkTower
from colligate.embedders.transformers import TextReader
from colligate.embedders.unreadable import UnreadableItemsError
from colligate.scenes.worlds import load_world

CAPTIONS = ["red", "a blue sphere and a green cube", "a large brown cylinder and a purple square"]


@pytest.fixture(scope="module")
def pictures() -> list[Any]:
    return load_world("clevr2d").images(torch.tensor([0, 100, 599]))


def library(folder: Path) -> tuple[Any, Any, Any]:
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder) if hasattr(model.config, "text_config") else None
    return model, tokenizer, AutoImageProcessor.from_pretrained(folder)


def network_tower(folder: Path, kind: str, **options: Any) -> NetworkTower:
    tower = load_model(f"hf:{folder}", **options).towers[kind]
    assert isinstance(tower, NetworkTower)
    return tower


@pytest.mark.parametrize(("name", "length"), [("clip", 77), ("siglip", 20), ("siglip2", 64)])
def test_captions_get_the_library_s_vectors_at_full_length(name: str, length: int, tiny: Callable[[str], Path]) -> None:
    model, tokenizer, _ = library(tiny(name))
    inputs = tokenizer(CAPTIONS, padding="max_length", max_length=length, return_tensors="pt")
    if name != "clip":
        inputs = {"input_ids": inputs["input_ids"]}
    with torch.no_grad():
        expected = model.get_text_features(**inputs)
    expected = getattr(expected, "pooler_output", expected)
    assert torch.allclose(network_tower(tiny(name), "text").embed(CAPTIONS), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["clip", "siglip", "siglip2", "dinov2", "dinov2_with_registers"])
def test_pictures_get_the_library_s_vectors(name: str, tiny: Callable[[str], Path], pictures: list[Any]) -> None:
    model, _, processor = library(tiny(name))
    inputs = processor(images=pictures, return_tensors="pt")
    with torch.no_grad():
        found = model(**inputs) if name.startswith("dino") else model.get_image_features(**inputs)
    expected = getattr(found, "pooler_output", found)
    assert torch.allclose(network_tower(tiny(name), "picture").embed(pictures), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "layer"),
    [("projected", None), ("pooler", None), ("last", None), ("mean", None), ("last", 1), ("mean", 1)],
)
def test_a_trimmed_causal_tower_gives_the_vectors_of_the_padded_one(
    pooling: str, layer: int | None, tiny: Callable[[str], Path]
) -> None:
    tower = network_tower(tiny("clip"), "text", pooling=f"text={pooling}", layer=layer)
    assert isinstance(tower.reader, TextReader)
    padded = replace(tower, reader=replace(tower.reader, pad_to_full=True))
    assert tower.fingerprint["padding"] != padded.fingerprint["padding"]
    assert torch.allclose(tower.embed(CAPTIONS), padded.embed(CAPTIONS), atol=1e-5)


def test_trimming_reads_fewer_tokens(tiny: Callable[[str], Path]) -> None:
    read: list[int] = []

    def note(_: Any, __: Any, given: dict[str, torch.Tensor]) -> None:
        read.append(given["input_ids"].shape[1])

    for name in ("clip", "siglip"):
        tower = network_tower(tiny(name), "text")
        module: Any = tower.reader.network.module
        module.text_model.register_forward_pre_hook(note, with_kwargs=True)
        tower.embed(["red", "a cube"])
    assert read == [7, 20]  # letters and two ends; SigLIP always its full length


def test_siglip_would_be_wrong_without_its_padding(tiny: Callable[[str], Path]) -> None:
    model, tokenizer, _ = library(tiny("siglip"))
    short = tokenizer(CAPTIONS[:1], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        wrong = model.get_text_features(input_ids=short)
    wrong = getattr(wrong, "pooler_output", wrong)
    assert not torch.allclose(network_tower(tiny("siglip"), "text").embed(CAPTIONS[:1]), wrong, atol=1e-2)


def test_pooler_and_projection_differ_by_the_projection(tiny: Callable[[str], Path], pictures: list[Any]) -> None:
    for kind, items, name in (("text", CAPTIONS, "text_projection"), ("picture", pictures, "visual_projection")):
        projected, pooler = (network_tower(tiny("clip"), kind, pooling=p) for p in ("projected", "pooler"))
        module: Any = projected.reader.network.module
        assert torch.allclose(projected.embed(items), getattr(module, name)(pooler.embed(items)), atol=1e-5)


@pytest.mark.parametrize(("name", "activation"), [("clip", "quick_gelu"), ("siglip", "gelu_pytorch_tanh")])
def test_activation_and_preprocessing_are_recorded(
    name: str, activation: str, tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    told = network_tower(tiny(name), "picture").fingerprint
    assert told["activation"] == activation
    copy = tmp_path / name
    shutil.copytree(tiny(name), copy)
    path = copy / "preprocessor_config.json"
    path = path if path.exists() else copy / "processor_config.json"
    mean = "0.5" if name == "siglip" else "0.48145466"
    path.write_text(path.read_text().replace(mean, "0.25", 1))
    assert network_tower(copy, "picture").fingerprint != told


def test_a_pooling_for_one_tower_leaves_the_other_as_it_is(tiny: Callable[[str], Path]) -> None:
    model = load_model(f"hf:{tiny('clip')}", pooling="picture=cls")
    read = {kind: tower.read_at for kind, tower in model.towers.items() if isinstance(tower, NetworkTower)}
    assert read == {"text": (None, "projected"), "picture": (None, "cls")}
    with pytest.raises(ValueError, match=r"of this text tower; choose one of .* \(for one tower of several: text="):
        load_model(f"hf:{tiny('clip')}", pooling="cls")


def test_a_caption_that_would_be_cut_is_refused(tiny: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match="Caption 1 takes 21 tokens and this tower reads 20"):
        network_tower(tiny("siglip"), "text").embed(["red " * 20])


def test_another_family_is_refused(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ValueError, match=r"of the family 'bert'; hf: reads clip, siglip"):
        load_model(f"hf:{tmp_path}")
    with pytest.raises(FileNotFoundError, match=r"config\.json is not there"):
        load_model(f"hf:{tmp_path.parent}")


def test_weights_with_holes_are_refused_not_filled_at_random(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "holes"
    shutil.copytree(tiny("dinov2"), folder)
    weights = load_file(folder / "model.safetensors")
    weights.pop(next(name for name in sorted(weights) if name.endswith("norm1.weight")))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lack 1 tensors of Dinov2Model \(first: .*norm1.weight"):
        load_model(f"hf:{folder}")


def changed(folder: Path, copy: Path, **changes: Any) -> Path:
    """A copy of a model whose config says something else, such as text_config__num_hidden_layers=3."""
    shutil.copytree(folder, copy)
    told = json.loads((copy / "config.json").read_text())
    for name, value in changes.items():
        *outer, last = name.split("__")
        (told[outer[0]] if outer else told)[last] = value
    (copy / "config.json").write_text(json.dumps(told))
    return copy


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("clip", {"text_config__intermediate_size": 48}, r"mlp\.fc1\.bias is 64 in the file and 48 by the config"),
        ("clip", {"vision_config__patch_size": 4}, r"patch_embedding\.weight is 32 x 3 x 8 x 8 in the file and 32 "),
        ("clip", {"text_config__num_hidden_layers": 1}, r"hold text_model\S+\.layers\.1\..*, of a layer that its "),
        ("siglip", {"text_config__num_hidden_layers": 3}, r"lack 16 tensors of SiglipModel \(first: text_\S+\.2\."),
        ("dinov2", {"num_hidden_layers": 10**9}, r"config\.json says num_hidden_layers: 1,000,000,000, more than the "),
        ("clip", {"text_config__max_position_embeddings": 10**10}, r"describes a network of 3\d\d,000,\S+ numbers"),
        ("clip", {"vision_config__hidden_size": "wide"}, r"can't be read: its config, weights or tokenizer are "),
        ("clip", {"vision_config__num_attention_heads": 5}, r"can't be read: its config, weights or tokenizer are "),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_their_config_name_folder_tensor_and_shapes(
    name: str, change: dict[str, Any], said: str, tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = changed(tiny(name), tmp_path / "changed", **change)
    with pytest.raises(ValueError, match=rf"{folder}.*{said}") as found:
        load_model(f"hf:{folder}")
    assert len(str(found.value).splitlines()) == 1


def test_a_broken_file_of_weights_is_told_as_such(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny("dinov2"), folder)
    whole = (folder / "model.safetensors").read_bytes()
    for content in (whole[:-40], whole[:4], whole + b"more", b"\xff" * 8 + whole[8:]):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match=r"\.safetensors is no whole safetensors file .*; fetch the model "):
            load_model(f"hf:{folder}")
    (folder / "model.safetensors").write_bytes(whole)
    assert load_model(f"hf:{folder}")
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"config\.json holds no JSON that can be read"):
        load_model(f"hf:{folder}")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises((ValueError, FileNotFoundError), match=r"no regular file|is not there"):
        load_model(f"hf:{folder}")


@pytest.fixture
def added_token(tiny: Callable[[str], Path], tmp_path: Path) -> Callable[[int], Path]:
    """CLIP with a token added after its end token, whose config names this id as the end."""

    def build(end: int) -> Path:
        from transformers import AutoTokenizer, CLIPModel

        folder = tmp_path / f"added{end}"
        shutil.copytree(tiny("clip"), folder)
        tokenizer, old = AutoTokenizer.from_pretrained(folder), CLIPModel.from_pretrained(folder)
        tokenizer.add_tokens(["<new>"])
        config: Any = old.config
        config.text_config.vocab_size, config.text_config.eos_token_id = len(tokenizer), end
        weights = old.state_dict()
        name = "text_model.embeddings.token_embedding.weight"
        weights[name] = torch.cat([weights[name], torch.full((1, 32), 0.3)])
        network = CLIPModel(config)
        network.load_state_dict(weights)
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return build


@pytest.mark.parametrize(("end", "told"), [(2, "the highest id, which an added token has"), (7, "id 7"), (53, "")])
def test_a_caption_is_read_at_the_tokenizer_s_own_end_token(
    end: int, told: str, added_token: Callable[[int], Path]
) -> None:
    folder, captions = added_token(end), ["a <new> red cube", "a <new> blue ball", "a red cube"]
    model = load_model(f"hf:{folder}")
    assert [note for note in model.notes if "end token" in note] == list(model.notes)
    assert (told in model.notes[0]) if told else not model.notes
    projected, last = (network_tower(folder, "text", pooling=f"text={pooling}") for pooling in ("projected", "last"))
    vectors = projected.embed(captions)
    assert (vectors[0] - vectors[1]).abs().max() > 0.01, "words after an added token count"
    network: Any = projected.reader.network.module
    assert torch.allclose(network.text_projection(last.embed(captions)), vectors, atol=1e-6)
    reference, tokenizer, _ = library(folder)  # the library's own vectors, under a config that names the end token
    reference.text_model.eos_token_id = tokenizer.eos_token_id
    inputs = tokenizer(captions, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = reference.get_text_features(**inputs)
    assert torch.allclose(vectors, getattr(expected, "pooler_output", expected), atol=1e-5)


def test_captions_that_the_network_can_not_read_are_named(added_token: Callable[[int], Path], tiny: Any) -> None:
    folder = added_token(53)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny("clip") / name, folder / name)  # the network as it was, the tokenizer with one token more
    tower = network_tower(folder, "text")
    with pytest.raises(UnreadableItemsError, match=r"^Caption 2 holds the token '<new>' \(id 54\), and the network "):
        tower.embed(["a red cube", "a <new> cube"])
    assert tower.unreadable(["red", "red <|endoftext|> cube"]) == {
        1: "says <|endoftext|>, after which this tower reads nothing"
    }


def test_a_tokenizer_that_ends_nothing_is_refused(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "endless"
    shutil.copytree(tiny("clip"), folder)
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    told["post_processor"] = None
    path.write_text(json.dumps(told))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # CLIP's own class would put the end token back
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"ends 'a red cube' with 'e</w>' and not with its end token '<\|endof"):
        load_model(f"hf:{folder}")


def test_siglip_is_given_lower_case_whatever_its_tokenizer_does(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    """SigLIP 2 of one picture size is of the family siglip, with Gemma's tokenizer, which keeps case."""
    name, folder = "siglip", tmp_path / "cased"
    shutil.copytree(tiny(name), folder)
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    told["normalizer"] = None
    path.write_text(json.dumps(told))
    whole, cased = (load_model(f"hf:{each}") for each in (tiny(name), folder))
    assert not whole.notes
    assert ["lower-cased" in note for note in cased.notes] == [True]
    upper, lower = (cased.towers["text"].embed([text]) for text in ("A Red CUBE", "a red cube"))
    assert torch.equal(upper, lower)
    fingerprints = [model.towers["text"].fingerprint or {} for model in (whole, cased)]
    assert "case" not in fingerprints[0]
    assert "lower-cased" in str(fingerprints[1]["case"])


class Evil:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("/nonexistent/pwned"),)


def test_a_pickle_is_never_run(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "evil"
    shutil.copytree(tiny("dinov2"), folder)
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump({"weight": Evil()}, file, protocol=2)
    with pytest.raises(FileNotFoundError, match="lacks readable weights"):
        load_model(f"hf:{folder}")


def test_a_folder_without_weights_is_told_in_one_sentence(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "hollow"
    shutil.copytree(tiny("clip"), folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="lacks readable weights, preprocessing or tokenizer"):
        load_model(f"hf:{folder}")


@pytest.mark.parametrize("name", ["clip", "siglip", "dinov2"])
def test_no_library_reaches_for_the_network(
    name: str, tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, pictures: list[Any]
) -> None:
    import socket

    from huggingface_hub import constants

    folder = tiny(name)
    tried: list[object] = []

    def refuse(*given: object, **_: object) -> None:
        tried.append(given)
        raise OSError("no network here")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for what in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, what, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    network_tower(folder, "picture").embed(pictures)
    with pytest.raises(FileNotFoundError, match="not on this machine"):
        load_model("hf:no/such-model")
    with pytest.raises(FileNotFoundError, match="not on this machine"):
        load_model("sbert:no/such-model")
    with pytest.raises(FileNotFoundError, match="not on this machine"):
        load_model("open_clip:ViT-B-32/laion2b_s34b_b79k")
    assert tried == []
    assert constants.HF_HUB_OFFLINE is False
