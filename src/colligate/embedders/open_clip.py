"""CLIP models of the OpenCLIP library: an architecture with a pretrained tag or a checkpoint file, or a folder."""

import json
import logging
import pickle  # noqa: TID251 (only to name the refusal that it raises)
import zipfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from colligate.embedders.folders import Told, look_over, misfit, read_json, room_for, shapes_of, told_plainly_of
from colligate.embedders.towers import LoadOptions, Model, Network, Reader, Reading
from colligate.embedders.unreadable import outside
from colligate.embedders.weights import first_line, hub, model_folder, sha256_of_text, unreachable

_PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")


@dataclass(frozen=True, eq=False)
class TextReader:
    """Reads captions.

    A causal tower that pools at the end of the text is cut to the longest caption of the batch. Whether the vectors
    stay the same is measured when the model is loaded; where they don't, or the tower sees later tokens, it reads its
    full length as it was trained.

    Poolings: `projected` is the vector in the space shared with pictures; `last` the end-of-text token, `mean` the mean
    over the caption's tokens (causal towers only).
    """

    network: Network
    tokenizer: Any
    tokenizer_hash: str
    architecture: str
    settings: Mapping[str, object]
    trims: bool

    @property
    def kind(self) -> Literal["text"]:
        """Reads captions."""
        return "text"

    @property
    def _tower(self) -> Any:
        module: Any = self.network.module
        return getattr(module, "text", module)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Vectors of the model's own."""
        return ("projected",)

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings over tokens."""
        return ("last", "mean") if self.trims else ()

    @property
    def num_layers(self) -> int:
        """Layers of the text tower."""
        return len(self._tower.transformer.resblocks) if self.trims else 0

    @property
    def max_tokens(self) -> int:
        """Positions of the text tower."""
        return int(self.tokenizer.context_length)

    @property
    def facts(self) -> Mapping[str, object]:
        """What determines the vectors beside the weights."""
        return {
            "library": f"open_clip {metadata.version('open_clip_torch')}",
            "architecture": self.architecture,
            **self.settings,
            "tokenizer": self.tokenizer_hash,
            "tokenizer_class": type(self.tokenizer).__name__,
            "max_tokens": self.max_tokens,
            "padding": "to the longest caption of the batch" if self.trims else f"to {self.max_tokens} tokens",
        }

    def lengths(self, items: Sequence[str]) -> list[int]:
        """Tokens of each caption, special ones included."""
        if hasattr(self.tokenizer, "tokenizer"):
            clean = [self.tokenizer.clean_fn(text) for text in items]
            return [len(ids) for ids in self.tokenizer.tokenizer(clean, truncation=False)["input_ids"]]
        return [len(self.tokenizer.encode(text)) + 2 for text in items]

    def refused(self, items: Sequence[str]) -> dict[int, str]:
        """Captions with a token that the network has no vector for, or one that is read for the end of the text."""
        table = getattr(self._tower, "token_embedding", None)
        inner = getattr(self.tokenizer, "tokenizer", None)
        if inner is None or not isinstance(table, nn.Embedding):
            return {}
        ids = inner([self.tokenizer.clean_fn(text) for text in items], truncation=False)["input_ids"]
        reasons = outside(ids, table.num_embeddings, inner)
        if _pool_type(self._tower) == "argmax" and _ends_right(self._tower, self.tokenizer):
            for i, each in enumerate(ids):
                if (highest := max(each)) != inner.eos_token_id and i not in reasons:
                    name = inner.convert_ids_to_tokens([highest])[0]
                    reasons[i] = f"holds {name!r}, which this tower takes for the end of the text"
        return reasons

    def read(self, items: Sequence[str], *, layers: bool) -> Reading:
        """One pass of the text tower."""
        module: Any = self.network.module
        ids = self.tokenizer(list(items)).to(self.network.device)
        if not self.trims:
            return Reading({"projected": module.encode_text(ids, normalize=False)}, {}, None, None, {})
        return _read_causal(self._tower, ids, layers=layers)


def _read_causal(tower: Any, ids: Tensor, *, layers: bool) -> Reading:
    """The text tower's own computation on as many positions as the longest caption takes."""
    end = _end_of_text(tower, ids)
    length = int(end.max()) + 1
    ids = ids[:, :length]
    dtype = tower.transformer.get_cast_dtype()
    x = tower.token_embedding(ids).to(dtype) + tower.positional_embedding[:length].to(dtype)  # item token dim
    mask = tower.attn_mask[:length, :length]
    with _tokens_of(tower.transformer, every=layers) as seen:
        final = tower.ln_final(tower.transformer(x, attn_mask=mask))
    pooled = final[torch.arange(len(ids), device=ids.device), end]
    project = tower.text_projection
    if project is not None:
        pooled = project(pooled) if isinstance(project, nn.Linear) else pooled @ project
    real = torch.arange(length, device=ids.device) <= end[:, None]
    return Reading({"projected": pooled}, seen if layers else {}, final, real, {"last": end})


@contextmanager
def _tokens_of(transformer: Any, *, every: bool) -> Generator[dict[int, Tensor], None, None]:
    """Tokens [item token dim] that pass through a transformer: before it (0) and after each block, or the last only."""
    seen: dict[int, Tensor] = {}

    def keep(layer: int, tokens: Tensor) -> None:
        seen[layer] = tokens if transformer.batch_first else tokens.transpose(0, 1)

    blocks = list(transformer.resblocks)
    hooks = [blocks[0].register_forward_pre_hook(lambda _, given: keep(0, given[0]))] if every else []
    for layer, block in enumerate(blocks, start=1):
        if every or layer == len(blocks):
            hooks.append(block.register_forward_hook(lambda _, __, tokens, layer=layer: keep(layer, tokens)))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _end_of_text(tower: Any, ids: Tensor) -> Tensor:
    """Position of the token that is pooled."""
    if _pool_type(tower) == "argmax":
        return ids.argmax(dim=-1)
    return (ids == getattr(tower, "eos_id", getattr(tower, "text_eos_id", None))).int().argmax(dim=-1)


def _ends_right(tower: Any, tokenizer: Any) -> bool:
    """Whether the token that is pooled of a plain caption is the tokenizer's own end token."""
    inner = getattr(tokenizer, "tokenizer", None)
    end = getattr(tokenizer, "eot_token_id", None) if inner is None else inner.eos_token_id
    ids = tokenizer(["a red cube"])
    return end is not None and int(ids[0, int(_end_of_text(tower, ids))]) == end


def _pool_type(tower: Any) -> str:
    return getattr(tower, "pool_type", getattr(tower, "text_pool_type", ""))


def _trims(module: Any, tokenizer: Any) -> bool:
    """Whether cutting off the padding leaves the vectors as they are, by the build and by measurement."""
    tower = getattr(module, "text", module)
    causal = getattr(tower, "attn_mask", None) is not None and _pool_type(tower) in {"argmax", "eos"}
    if not causal or getattr(tower, "cls_emb", None) is not None or not hasattr(tower, "transformer"):
        return False
    ids = tokenizer(["a red cube", "a red cube and a small blue sphere"]).to(tower.attn_mask.device)
    with torch.no_grad():
        full = module.encode_text(ids, normalize=False).float()
        cut = _read_causal(tower, ids, layers=False).outputs["projected"].float()
    tolerance = 1e-5 if module.logit_scale.dtype in {torch.float32, torch.float64} else 2e-2
    return bool((full - cut).abs().max() <= tolerance * full.abs().max().clamp(min=1))


@dataclass(frozen=True, eq=False)
class PictureReader:
    """Reads pictures, prepared as the pretrained tag or the folder says.

    Poolings: `projected` is the vector in the space shared with captions; at a layer of a vision transformer also
    `cls`, the class token, and `mean`, the mean over patches.
    """

    network: Network
    transform: Any
    architecture: str
    settings: Mapping[str, object]

    @property
    def kind(self) -> Literal["picture"]:
        """Reads pictures."""
        return "picture"

    @property
    def _tower(self) -> Any:
        module: Any = self.network.module
        return module.visual

    @property
    def outputs(self) -> tuple[str, ...]:
        """Vectors of the model's own."""
        return ("projected",)

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings over tokens; none for convolutional and timm towers."""
        return ("cls", "mean") if type(self._tower).__name__ == "VisionTransformer" else ()

    @property
    def num_layers(self) -> int:
        """Layers of a vision transformer."""
        return len(self._tower.transformer.resblocks) if self.poolings else 0

    @property
    def max_tokens(self) -> None:
        """Pictures have no limit of tokens; they are resized."""
        return None

    @property
    def facts(self) -> Mapping[str, object]:
        """What determines the vectors beside the weights."""
        return {
            "library": f"open_clip {metadata.version('open_clip_torch')}",
            "architecture": self.architecture,
            **self.settings,
            "preprocessing": json.loads(json.dumps(self._tower.preprocess_cfg, default=str)),
        }

    def lengths(self, items: Sequence[Any]) -> list[int]:
        """All pictures take the same."""
        return [0] * len(items)

    def refused(self, items: Sequence[Any]) -> dict[int, str]:
        """No picture is."""
        del items
        return {}

    def pixels(self, items: Sequence[Any]) -> Tensor:
        """The pixels that the network is shown."""
        return torch.stack([self.transform(picture.convert("RGB")) for picture in items])

    def read(self, items: Sequence[Any], *, layers: bool) -> Reading:
        """One pass of the picture tower."""
        module: Any = self.network.module
        pixels = self.pixels(items).to(self.network.device, self.network.dtype)
        if not self.poolings:
            return Reading({"projected": module.encode_image(pixels, normalize=False)}, {}, None, None, {})
        with _tokens_of(self._tower.transformer, every=layers) as seen:
            projected = module.encode_image(pixels, normalize=False)
        final = seen[self.num_layers]
        mask = torch.ones(final.shape[:2], dtype=torch.bool, device=pixels.device)
        mask[:, 0] = False
        places = {"cls": torch.zeros(len(pixels), dtype=torch.int64, device=pixels.device)}
        return Reading({"projected": projected}, seen if layers else {}, final, mask, places)


def load(name: str, options: LoadOptions) -> Model:
    """Load `ARCH/TAG`, `ARCH/FILE`, or a folder with open_clip_config.json.

    Raises:
        ImportError: open_clip is not installed.
        FileNotFoundError: the weights are not on this machine.
        ValueError: the architecture or tag does not exist, or the file is TorchScript or holds code.
    """
    open_clip = _library(name)
    notes: list[str] = []
    precision = {"float32": "fp32", "bfloat16": "pure_bf16", "float16": "pure_fp16", "float64": "fp32"}[options.dtype]
    build: dict[str, Any] = {"precision": precision, "device": "cpu", "weights_only": True}
    with hub(offline=options.offline), _quiet():
        if (folder := Path(name).expanduser()).is_dir():
            architecture, weights = f"local-dir:{folder}", None
            config = _folder_config(folder)
        else:
            architecture, _, source = name.partition("/")
            weights, extra, note = _resolve(architecture, source, offline=options.offline)
            _refuse_torchscript(Path(weights))
            build.update(extra)
            notes.extend(note)
            config = dict(open_clip.get_model_config(architecture))
        try:
            with told_plainly_of(f"The model open_clip:{name}"):
                _refuse_misfits(architecture, weights or folder, build)
                module = _created(name, architecture, weights, build)
                tokenizer = _tokenizer(architecture, config, offline=options.offline)
        except OSError as error:
            raise FileNotFoundError(f"open_clip:{name} needs a file that is not on this machine: {error}") from error
    module = module.to(device=options.torch_device, dtype=options.torch_dtype)
    with told_plainly_of(f"The preprocessing of open_clip:{name}"):
        transform = open_clip.transform.image_transform_v2(
            open_clip.transform.PreprocessCfg(**module.visual.preprocess_cfg), is_train=False
        )
    network = Network(module, rebuild=lambda: _anew(architecture, build))
    quick = bool(build.get("force_quick_gelu") or config.get("quick_gelu"))
    settings = {"config": sha256_of_text(json.dumps(config, sort_keys=True, default=str)),
                "activation": "quick_gelu" if quick else "gelu"}  # fmt: skip
    label = "local folder" if weights is None else architecture
    tower = getattr(module, "text", module)
    if _pool_type(tower) in {"argmax", "eos"} and not _ends_right(tower, tokenizer):
        notes.append(
            "This text tower doesn't read the tokenizer's own end token, so captions may be read in part only: compare "
            "text_cfg's pool_type and eos_id with the tokenizer."
        )
    readers: list[Reader] = [
        TextReader(network, tokenizer, _tokenizer_hash(tokenizer), label, settings, trims=_trims(module, tokenizer)),
        PictureReader(network, transform, label, settings),
    ]
    return Model(f"open_clip:{name}", options.towers(readers), tuple(notes))


def _created(name: str, architecture: str, weights: str | None, build: Mapping[str, Any]) -> Any:
    """The network with its weights.

    Raises:
        Told: they aren't its weights, or more than weights.
    """
    try:
        return _library(name).create_model(architecture, pretrained=weights, require_pretrained=True, **build)
    except (RuntimeError, KeyError, AssertionError, pickle.UnpicklingError) as error:
        if "Required pretrained" in str(error):
            lacking = f"{name} holds no weights; put open_clip_model.safetensors beside open_clip_config.json."
            raise FileNotFoundError(lacking) from error
        said = " ".join(line.strip() for line in str(error).splitlines()[:2])[:300]
        raise Told(ValueError(
            f"The weights of open_clip:{name} do not fit this architecture, or hold more than weights: {said}"
        )) from error  # fmt: skip


def _refuse_misfits(architecture: str, source: str | Path, build: Mapping[str, Any]) -> None:
    """Compare the header of a safetensors file with the network that the config describes.

    The library makes room for what the config says before it looks at the file, and resizes positions that differ.

    Raises:
        Told: the network is larger than its file, or a tensor has another shape.
    """
    path = Path(source)
    found = sorted(path.glob("*.safetensors"), key=lambda one: one.name != "open_clip_model.safetensors")
    file = path if path.is_file() else found[0] if found else None
    if file is None or file.suffix != ".safetensors":
        return
    try:
        held = shapes_of(file)
        try:
            with torch.device("meta"):
                empty = _anew(architecture, {**build, "device": "meta"})
        except Exception:
            return  # what is wrong is said where it is built in earnest
        room_for(empty, file.parent)
        for tensor, wanted in ((name, tuple(value.shape)) for name, value in empty.state_dict().items()):
            given = held.get(tensor, held.get(tensor.removeprefix("text.")))
            single = {given, wanted} <= {(), (1,)}  # one number may be written as a list of one
            if given is not None and given != wanted and not single:
                raise misfit(file.parent, tensor, given, wanted)
    except ValueError as error:
        raise Told(error) from None


def _library(name: str) -> Any:
    """The open_clip library, or which extra brings it."""
    try:
        import open_clip
    except ImportError as error:
        raise ImportError(
            f"open_clip:{name} needs open_clip: pip install 'colligate[open-clip]' (missing: {error.name})."
        ) from error
    return open_clip


def _resolve(architecture: str, source: str, *, offline: bool) -> tuple[str, dict[str, Any], list[str]]:
    """The checkpoint file, what to tell `create_model` beside it, and what to tell the reader."""
    open_clip = _library(architecture)
    pretrained = open_clip.pretrained

    if open_clip.get_model_config(architecture) is None:
        raise ValueError(
            f"OpenCLIP has no architecture {architecture!r}; write open_clip:ARCH/TAG, for example "
            "open_clip:ViT-B-32/laion2b_s34b_b79k, or name a folder that exists."
        )
    tags = pretrained.list_pretrained_tags_by_model(architecture)
    path = Path(source).expanduser()
    if source and path.is_file():
        found = [_preprocessing(pretrained.get_pretrained_cfg(architecture, tag)) for tag in tags]
        if any(each != found[0] for each in found):
            raise ValueError(
                f"The pretrained versions of {architecture} prepare pictures differently, and {path.name} does not say "
                "how: put it in a folder with an open_clip_config.json that holds preprocess_cfg, and name the folder."
            )
        notes = [
            f"{path.name} does not say which activation it was trained with: {architecture}'s own is used "
            "(a name that ends in -quickgelu chooses QuickGELU)."
        ]
        return str(path), {"force_preprocess_cfg": found[0]} if found else {}, notes
    if not source or source not in tags:
        raise ValueError(
            f"open_clip:{architecture}/{source} is neither a file nor a pretrained version; OpenCLIP lists "
            f"{', '.join(tags) or 'none for this architecture'}."
        )
    told = pretrained.get_pretrained_cfg(architecture, source)
    quick = bool(told.get("quick_gelu"))
    if not quick and open_clip.get_model_config(architecture).get("quick_gelu"):
        raise ValueError(
            f"{source} was trained with GELU, and {architecture} uses QuickGELU; "
            f"load open_clip:{architecture.removesuffix('-quickgelu')}/{source}."
        )
    weights, reason = _on_this_machine(told), ""
    if not weights and not offline:
        reason = unreachable(None if told.get("hf_hub") else told.get("url")) or ""
        try:
            weights = None if reason else pretrained.download_pretrained(told)
        except Exception as error:
            reason = first_line(error)
    if not weights:
        where = told.get("hf_hub", "").strip("/") or told.get("url", "")
        if quick and open_clip.get_model_config(f"{architecture}-quickgelu") is not None:
            file_of = f"{architecture}-quickgelu"  # a bare file does not bring its tag's activation
        else:
            file_of = architecture
        why = f" and could not be fetched: {reason}; fetch" if reason else ": fetch"
        more = "" if not offline else "; or add --online (offline=False)"
        raise FileNotFoundError(
            f"The weights of open_clip:{architecture}/{source} are not on this machine{why} {where} where there is a "
            f"network and name the file, open_clip:{file_of}/PATH/TO/FILE{more}."
        )
    return weights, {"force_quick_gelu": quick, "force_preprocess_cfg": _preprocessing(told)}, []


def _preprocessing(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in _PREPROCESSING if name in told}


def _on_this_machine(told: Mapping[str, Any]) -> str | None:
    """The checkpoint of a pretrained tag where a download would have left it."""
    from huggingface_hub import try_to_load_from_cache

    repository, _, file = told.get("hf_hub", "").rpartition("/")
    names = [file, file.rsplit(".", 1)[0] + ".safetensors"] if file else [
        "open_clip_model.safetensors", "open_clip_pytorch_model.bin"
    ]  # fmt: skip
    for each in names if repository else []:
        found = try_to_load_from_cache(repository, each)
        if isinstance(found, str):
            return found
    url = told.get("url", "")
    kept = Path("~/.cache/clip").expanduser() / url.rsplit("/", 1)[-1]
    return str(kept) if url and kept.is_file() else None


def _folder_config(folder: Path) -> dict[str, Any]:
    path = folder / "open_clip_config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no OpenCLIP model: open_clip_config.json is not there.")
    look_over(folder, path.name)
    told = read_json(path)
    if not isinstance(told.get("model_cfg"), dict):
        raise ValueError(f"{path} has no model_cfg; save the model with open_clip's push_to_hf_hub.save_for_hf.")
    return told["model_cfg"]


def _tokenizer(architecture: str, config: Mapping[str, Any], *, offline: bool) -> Any:
    """The tokenizer, its files looked for on this machine first."""
    open_clip = _library(architecture)

    text = config.get("text_cfg", {})
    named = text.get("hf_tokenizer_name")
    if not named or architecture.startswith("local-dir:"):
        return open_clip.get_tokenizer(architecture)
    folder = model_folder(named, prefix="open_clip", offline=offline)
    settings = {"context_length": text.get("context_length", 77), "tokenizer_mode": text.get("tokenizer_mode")}
    return open_clip.tokenizer.HFTokenizer(str(folder), **settings, **text.get("tokenizer_kwargs", {}))


def _tokenizer_hash(tokenizer: Any) -> str:
    inner = getattr(tokenizer, "tokenizer", None)
    vocabulary = inner.get_vocab() if inner is not None else tokenizer.encoder
    return sha256_of_text(json.dumps(vocabulary, sort_keys=True))


def _refuse_torchscript(path: Path) -> None:
    """TorchScript archives hold code; weights don't need any."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if any(entry.endswith("constants.pkl") for entry in archive.namelist()):
                raise ValueError(
                    f"{path} is a TorchScript archive, which holds code and is refused; "
                    "save its state_dict as safetensors and name that file."
                )


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Keep open_clip, which logs to the root logger, from setting up handlers and from reporting every step."""
    root, before = logging.getLogger(), logging.root.manager.disable
    handler = logging.NullHandler()
    root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
        root.removeHandler(handler)


def _anew(architecture: str, build: Mapping[str, Any]) -> nn.Module:
    """The architecture with newly drawn weights."""
    open_clip = _library(architecture)

    with _quiet():
        return open_clip.create_model(architecture, **{**build, "pretrained_text": False, "load_weights": False})
