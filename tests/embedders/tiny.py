"""Tiny random models in the real file formats, every parameter away from its initial value."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

COLOURS = ["red", "blue", "green", "gray", "purple", "brown", "cyan", "yellow"]
SHAPES = ["square", "circle", "triangle", "cube", "sphere", "cylinder"]
WORDS = ["a", "an", "and", "the", *COLOURS, *SHAPES, "small", "large"]

_ENDS = {"bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0}


def perturb(module: nn.Module) -> None:
    """Move every parameter, so that none keeps a value that initialisation would give again."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator) + 0.05)


def seeded(build: Callable[[], Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return build()


def word_tokenizer(specials: dict[str, str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate([*dict.fromkeys(specials.values()), *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=specials["unk_token"]))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    end = specials.get("sep_token") or specials["eos_token"]
    start = specials.get("cls_token")
    inner.post_processor = processors.TemplateProcessing(
        single=f"{start + ' ' if start else ''}$A {end}",
        special_tokens=[(token, vocabulary[token]) for token in filter(None, (start, end))],
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, padding_side="right", **specials)


def clip(folder: Path) -> Path:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPTokenizer

    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77).save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = CLIPConfig(
        text_config={
            **sizes, "vocab_size": len(tokens), "max_position_embeddings": 77, "bos_token_id": len(tokens) - 2,
            "eos_token_id": len(tokens) - 1, "pad_token_id": len(tokens) - 1,
        },
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        projection_dim=24,
    )  # fmt: skip
    return save(seeded(lambda: CLIPModel(config)), folder)


def siglip(folder: Path) -> Path:
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    tokenizer = word_tokenizer({"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"})
    tokenizer.save_pretrained(folder)
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 20, "projection_size": 32}
    config = SiglipConfig(
        text_config={**sizes, **_ENDS, **text}, vision_config={**sizes, "image_size": 32, "patch_size": 8}
    )
    return save(seeded(lambda: SiglipModel(config)), folder)


def dinov2(folder: Path) -> Path:
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    BitImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}).save_pretrained(folder)
    config = Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=28, patch_size=7
    )
    return save(seeded(lambda: Dinov2Model(config)), folder)


def dinov2_with_registers(folder: Path) -> Path:
    from transformers import BitImageProcessor, Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    BitImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}).save_pretrained(folder)
    config = Dinov2WithRegistersConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=7, num_register_tokens=4
    )
    return save(seeded(lambda: Dinov2WithRegistersModel(config)), folder)


def siglip2(folder: Path) -> Path:
    """The variant that takes pictures of any shape, with a mask over patches."""
    from transformers import Siglip2Config, Siglip2ImageProcessor, Siglip2Model, Siglip2Tokenizer

    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Siglip2Tokenizer(vocab={token: i for i, token in enumerate(tokens)}, merges=[], padding_side="right")
    tokenizer.save_pretrained(folder)
    Siglip2ImageProcessor(patch_size=8, max_num_patches=20).save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {"vocab_size": len(tokens), "max_position_embeddings": 64, "projection_size": 32}
    config = Siglip2Config(
        text_config={**sizes, **_ENDS, **text}, vision_config={**sizes, "num_patches": 16, "patch_size": 8}
    )
    return save(seeded(lambda: Siglip2Model(config)), folder)


def save(module: Any, folder: Path) -> Path:
    perturb(module)
    module.save_pretrained(folder)
    return folder


def sbert(folder: Path) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    inner = folder.parent / f"{folder.name}-bert"
    specials = {name: f"[{name[:3].upper()}]" for name in ("pad_token", "unk_token", "cls_token", "sep_token")}
    tokenizer = word_tokenizer({**specials, "mask_token": "[MASK]"})
    tokenizer.save_pretrained(inner)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=40,
    )  # fmt: skip
    save(seeded(lambda: BertModel(config)), inner)
    transformer = Transformer(str(inner), max_seq_length=32)
    pipeline = SentenceTransformer(modules=[transformer, Pooling(32, "mean"), Normalize()], device="cpu")
    pipeline.save(str(folder), create_model_card=False)
    return folder


OPEN_CLIP = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


def open_clip(folder: Path, **changes: Any) -> Path:
    """A folder as open_clip saves it for the hub."""
    import open_clip as library
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {**OPEN_CLIP, **changes}
    preprocess = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "interpolation": "bicubic", "resize_mode": "squash"}
    told = {"model_cfg": config, "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(told))
    module = seeded(lambda: library.create_model(f"local-dir:{folder}", load_weights=False))
    perturb(module)
    save_file({k: v.contiguous() for k, v in module.state_dict().items()}, folder / "open_clip_model.safetensors")
    return folder


def pictures(folder: Path) -> Path:
    """What `colligate train --preset pictures` leaves."""
    from colligate.networks.checkpoint import save_checkpoint
    from colligate.networks.dual import DualEncoder, DualShape
    from colligate.networks.encoders import EncoderShape
    from colligate.scenes.sprites import sprite_space

    reader = EncoderShape(kind="pictures", width=16, heads=2, dim=12)
    shape = DualShape(scene=reader, query=replace(reader, kind="captions"))
    network = DualEncoder(sprite_space(8, 3), 2, shape, seeds=[3])
    perturb(network)
    save_checkpoint(folder, network.requires_grad_(False), {"config": {"coverage": 0.8}, "step": 5})
    return folder


def tokens(folder: Path) -> Path:
    """What `colligate train` leaves."""
    from colligate.networks.checkpoint import save_checkpoint
    from colligate.networks.dual import DualEncoder, DualShape
    from colligate.networks.encoders import EncoderShape
    from colligate.scenes.space import ConceptSpace

    shape = EncoderShape(kind="object-tokens", width=16, heads=2, dim=12, activation="gated")
    network = DualEncoder(ConceptSpace(color=8, shape=3), 2, DualShape(scene=shape, query=shape), seeds=[3])
    perturb(network)
    save_checkpoint(folder, network.requires_grad_(False), {"config": {"coverage": 0.8}, "step": 5})
    return folder
