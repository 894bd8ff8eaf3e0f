"""CLIP, SigLIP and DINO families through the transformers library: a hub id or a local folder."""

import copy
import inspect
import json
import pickle  # noqa: TID251 (only to name the refusal that it raises)
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from colligate.embedders.folders import every_weight_fits, look_over, read_json, told_plainly_of
from colligate.embedders.towers import LoadOptions, Model, Network, Reader, Reading
from colligate.embedders.unreadable import outside
from colligate.embedders.weights import config_facts, hub, model_folder, sha256_of_files


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the networks of one family are built.

    Attributes:
        causal: whether the text tower sees only earlier tokens, so that padding can be cut off without effect.
        projections: names of the maps into the space the two towers share; None where the pooler gives it.
        prefix: tokens before the picture's patches.
    """

    text: bool
    causal: bool = False
    projections: tuple[str, str] | None = None
    prefix: int


_FAMILIES = {
    "clip": Family(text=True, causal=True, projections=("text_projection", "visual_projection"), prefix=1),
    "siglip": Family(text=True, prefix=0),
    "siglip2": Family(text=True, prefix=0),
    "dinov2": Family(text=False, prefix=1),
    "dinov2_with_registers": Family(text=False, prefix=1),
    "dinov3_vit": Family(text=False, prefix=1),
}


@dataclass(frozen=True, eq=False)
class TextReader:
    """Reads captions.

    A causal tower (CLIP) is padded to the longest caption of the batch: later tokens can't reach the one that is read.
    A bidirectional tower without a mask (SigLIP) is padded to its full length, as it was trained.

    Poolings: `projected` is the vector in the space shared with pictures, `pooler` the same before CLIP's projection;
    `last` is the token that the pooler reads (CLIP: end of text; SigLIP: the last of the padded length), `mean` is over
    the caption's own tokens.

    CLIP's pooler is told by the config where a text ends: the highest id in old configs, which an added token takes
    from the end token. Here the tokenizer's own end token is read, whatever the config says, so that `projected` is the
    projection of `last`. SigLIP's towers learned lower-case captions; where the tokenizer keeps case, captions are
    lower-cased before.
    """

    network: Network
    family: Family
    tokenizer: Any
    tokenizer_hash: str
    pad_to_full: bool = False
    lowers: bool = False

    @property
    def kind(self) -> Literal["text"]:
        """Reads captions."""
        return "text"

    @property
    def _config(self) -> Any:
        module: Any = self.network.module
        return module.config.text_config

    @property
    def outputs(self) -> tuple[str, ...]:
        """Vectors of the model's own."""
        return ("projected", "pooler") if self.family.projections else ("projected",)

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings over tokens."""
        return ("last", "mean")

    @property
    def num_layers(self) -> int:
        """Layers of the text tower."""
        return int(self._config.num_hidden_layers)

    @property
    def max_tokens(self) -> int:
        """Positions of the text tower."""
        return int(self._config.max_position_embeddings)

    @property
    def _trims(self) -> bool:
        return self.family.causal and not self.pad_to_full

    @property
    def facts(self) -> Mapping[str, object]:
        """What determines the vectors beside the weights."""
        return {
            "library": f"transformers {metadata.version('transformers')}",
            "architecture": type(self.network.module).__name__,
            "config": config_facts(self._config),
            "activation": self._config.hidden_act,
            "tokenizer": self.tokenizer_hash,
            "tokenizer_class": type(self.tokenizer).__name__,
            "max_tokens": self.max_tokens,
            "padding": "to the longest caption of the batch" if self._trims else f"to {self.max_tokens} tokens",
            "padding_side": self.tokenizer.padding_side,
            **({"case": "captions are lower-cased, which the tokenizer doesn't do"} if self.lowers else {}),
        }

    def _said(self, items: Sequence[str]) -> list[str]:
        return [text.lower() for text in items] if self.lowers else list(items)

    def lengths(self, items: Sequence[str]) -> list[int]:
        """Tokens of each caption, special ones included."""
        return [len(ids) for ids in self.tokenizer(self._said(items), truncation=False)["input_ids"]]

    def refused(self, items: Sequence[str]) -> dict[int, str]:
        """Captions with a token that the network has no vector for, or that say the end token themselves."""
        every = self.tokenizer(self._said(items), truncation=False)["input_ids"]
        known = self.network.module.text_model.get_input_embeddings().num_embeddings  # type: ignore[union-attr]
        reasons = outside(every, known, self.tokenizer)
        end = self.tokenizer.eos_token_id
        for i, ids in enumerate(every if self.family.causal else []):
            if end in ids[:-1]:
                reasons[i] = f"says {self.tokenizer.eos_token}, after which this tower reads nothing"
        return reasons

    def read(self, items: Sequence[str], *, layers: bool) -> Reading:
        """One pass of the text tower."""
        module: Any = self.network.module
        padding: dict[str, Any] = (
            {"padding": "longest"} if self._trims else {"padding": "max_length", "max_length": self.max_tokens}
        )
        tokens = self.tokenizer(self._said(items), return_tensors="pt", return_attention_mask=True, **padding)
        ids, mask = (tokens[name].to(self.network.device) for name in ("input_ids", "attention_mask"))
        given = {"input_ids": ids, "attention_mask": mask} if self.family.causal else {"input_ids": ids}
        found = module.text_model(**given, output_hidden_states=layers, return_dict=True)
        outputs = {"projected": found.pooler_output}
        last = mask.sum(1) - 1 if self.family.causal else torch.full_like(mask[:, 0], mask.shape[1] - 1)
        if self.family.projections:
            project = getattr(module, self.family.projections[0])
            pooled = found.last_hidden_state[torch.arange(len(last), device=last.device), last]
            outputs = {"projected": project(pooled), "pooler": pooled}
        hidden = dict(enumerate(found.hidden_states)) if layers else {}
        return Reading(outputs, hidden, found.last_hidden_state, mask.bool(), {"last": last})


@dataclass(frozen=True, eq=False)
class PictureReader:
    """Reads pictures, prepared by the processor in the model's own folder.

    Poolings: `projected` is the vector in the space shared with captions (CLIP, SigLIP); `pooler` is the class token
    after the last norm (CLIP, DINO); `cls` is the class token, `mean` the mean over patches, registers left out.
    """

    network: Network
    family: Family
    processor: Any

    @property
    def kind(self) -> Literal["picture"]:
        """Reads pictures."""
        return "picture"

    @property
    def _config(self) -> Any:
        module: Any = self.network.module
        return module.config.vision_config if self.family.text else module.config

    @property
    def outputs(self) -> tuple[str, ...]:
        """Vectors of the model's own."""
        if not self.family.text:
            return ("pooler",)
        return ("projected", "pooler") if self.family.projections else ("projected",)

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings over tokens."""
        return ("cls", "mean") if self.family.prefix else ("mean",)

    @property
    def num_layers(self) -> int:
        """Layers of the picture tower."""
        return int(self._config.num_hidden_layers)

    @property
    def max_tokens(self) -> None:
        """Pictures have no limit of tokens; the processor resizes them."""
        return None

    @property
    def facts(self) -> Mapping[str, object]:
        """What determines the vectors beside the weights."""
        settings = json.loads(json.dumps(self.processor.to_dict(), sort_keys=True, default=str))
        return {
            "library": f"transformers {metadata.version('transformers')}",
            "architecture": type(self.network.module).__name__,
            "config": config_facts(self._config),
            "activation": self._config.hidden_act,
            "preprocessing": {"class": type(self.processor).__name__, **settings},
        }

    def lengths(self, items: Sequence[Any]) -> list[int]:
        """All pictures take the same."""
        return [0] * len(items)

    def refused(self, items: Sequence[Any]) -> dict[int, str]:
        """No picture is."""
        del items
        return {}

    def _prepared(self, items: Sequence[Any]) -> Any:
        return self.processor(images=[picture.convert("RGB") for picture in items], return_tensors="pt")

    def pixels(self, items: Sequence[Any]) -> Tensor:
        """The pixels that the network is shown."""
        return self._prepared(items)["pixel_values"]

    def read(self, items: Sequence[Any], *, layers: bool) -> Reading:
        """One pass of the picture tower."""
        module: Any = self.network.module
        inputs = self._prepared(items)
        given = {name: value.to(self.network.device) for name, value in inputs.items() if isinstance(value, Tensor)}
        given["pixel_values"] = given["pixel_values"].to(self.network.dtype)
        tower = module.vision_model if self.family.text else module
        patches = given.get("pixel_attention_mask")
        if patches is not None and "pixel_attention_mask" not in inspect.signature(tower.forward).parameters:
            given["attention_mask"] = given.pop("pixel_attention_mask")  # its name before transformers 5
        found = tower(**given, output_hidden_states=layers, return_dict=True)
        name = self.outputs[0]
        outputs = {name: found.pooler_output}
        if self.family.projections:
            project = getattr(module, self.family.projections[1])
            outputs = {"projected": project(found.pooler_output), "pooler": found.pooler_output}
        final = found.last_hidden_state
        mask = torch.ones(final.shape[:2], dtype=torch.bool, device=final.device) if patches is None else patches.bool()
        prefix = self.family.prefix + (getattr(self._config, "num_register_tokens", 0) or 0)
        mask[:, :prefix] = False
        places = {"cls": torch.zeros(len(final), dtype=torch.int64, device=final.device)} if self.family.prefix else {}
        hidden = dict(enumerate(found.hidden_states)) if layers else {}
        return Reading(outputs, hidden, final, mask, places)


def load(name: str, options: LoadOptions) -> Model:
    """Load a CLIP, SigLIP, SigLIP 2, DINOv2 or DINOv3 model from a folder or a hub id.

    Raises:
        ImportError: transformers is not installed.
        FileNotFoundError: the weights are not on this machine.
        ValueError: the folder holds a network of another family.
    """
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            f"hf:{name} needs transformers: pip install 'colligate[hf]' (missing: {error.name})."
        ) from error
    folder = model_folder(name, prefix="hf", offline=options.offline)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no model: config.json is not there.")
    look_over(folder, "config.json", "preprocessor_config.json")
    kind = str(read_json(folder / "config.json").get("model_type"))
    if kind not in _FAMILIES:
        raise ValueError(
            f"{name} is of the family {kind!r}; hf: reads {', '.join(_FAMILIES)}. Sentence embedders load with sbert:."
        )
    family = _FAMILIES[kind]
    try:
        with hub(offline=options.offline), told_plainly_of(f"The model in {folder}"), every_weight_fits(folder):
            module = transformers.AutoModel.from_pretrained(
                folder, dtype=options.torch_dtype, local_files_only=True, trust_remote_code=False
            )
            processor = transformers.AutoImageProcessor.from_pretrained(folder, local_files_only=True)
            tokenizer = (
                transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True) if family.text else None
            )
    except (OSError, pickle.UnpicklingError) as error:
        first = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{folder} lacks readable weights, preprocessing or tokenizer: {first}") from error
    config = copy.deepcopy(module.config)
    dtype = options.torch_dtype
    network = Network(
        module.to(options.torch_device), rebuild=lambda: transformers.AutoModel.from_config(config, dtype=dtype)
    )
    readers: list[Reader] = [PictureReader(network, family, processor)]
    notes: tuple[str, ...] = ()
    if tokenizer is not None:
        if family.causal and tokenizer.padding_side != "right":
            raise ValueError(
                f"The tokenizer in {folder} pads on the {tokenizer.padding_side}, and a causal tower must be padded on "
                "the right; set padding_side in its tokenizer_config.json."
            )
        files = sorted(p for p in Path(folder).iterdir() if p.name in _TOKENIZER_FILES)
        lowers = _lowers(tokenizer, kind)
        readers.insert(0, TextReader(network, family, tokenizer, sha256_of_files(files), lowers=lowers))
        notes = _text_notes(tokenizer, module, family, folder, lowers)
    return Model(f"hf:{name}", options.towers(readers), notes)


def _lowers(tokenizer: Any, kind: str) -> bool:
    """Whether captions must be lower-cased here: SigLIP learned such ones, and not all its tokenizers do it."""
    ids = [tokenizer(text)["input_ids"] for text in ("A RED CUBE", "a red cube")]
    return kind.startswith("siglip") and ids[0] != ids[1]


def _text_notes(tokenizer: Any, module: Any, family: Family, folder: Path, lowers: bool) -> tuple[str, ...]:
    """What a reader should know about how captions become tokens.

    Raises:
        ValueError: a causal tower's tokenizer doesn't end captions with its end token.
    """
    notes = list[str]()
    if lowers:
        notes.append("Captions are lower-cased, as this family was trained; the tokenizer itself keeps case.")
    if not family.causal:
        return tuple(notes)
    ids, end, told = (
        tokenizer("a red cube")["input_ids"],
        tokenizer.eos_token_id,
        module.config.text_config.eos_token_id,
    )
    if end is None or ids[-1] != end:
        raise ValueError(
            f"The tokenizer in {folder} ends 'a red cube' with {tokenizer.convert_ids_to_tokens(ids[-1])!r} and not "
            f"with its end token {tokenizer.eos_token!r}, which this tower reads; put the model's own tokenizer there."
        )
    above = max(tokenizer.get_vocab().values()) > end
    if (told == 2 and above) or told not in (2, end):
        what = "the highest id, which an added token has" if told == 2 else f"id {told}"
        notes.append(
            f"The end of a caption is read at {tokenizer.eos_token} (id {end}), the tokenizer's own end token; the "
            f"config names {what}, where the library's own pooling would read."
        )
    return tuple(notes)


_TOKENIZER_FILES = {
    "tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "spiece.model", "tokenizer.model",
    "special_tokens_map.json",
}  # fmt: skip
