"""Folders of models, looked at before a library opens them, and what libraries say of them told in one sentence.

A library builds what a config describes before it looks at the weights: a number with three digits too many fills the
memory or builds layers without end. Headers and configs are small, so they are read first, and compared.
"""

import copy
import json
import pickle  # noqa: TID251 (only to name the refusal that it raises)
import stat
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

MOST_JSON = 256 << 20
"""Bytes of a JSON file of a model that are read; the largest tokenizers take 35 MB."""
MOST_COUNT = 1000
"""A count in a config that needs no weights to bear it out."""
SPARE = 1 << 24
"""Numbers that a network may have beside those in its files: tables of positions, masks."""
_SIZES = ("width", "heads", "depth", "hidden_dim", "in_features", "out_features", "embed_dim", "context_length")
"""Names of sizes beside those that say so (num_..., n_..., ...layer...)."""
_WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model's folder.

    Raises:
        ValueError: it is no regular file, too large, or holds something else.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is no regular file; fetch the model again.")
    if path.stat().st_size > MOST_JSON:
        raise ValueError(f"{path} is larger than any config ({path.stat().st_size:,} bytes); fetch the model again.")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError(f"{path} holds no JSON that can be read; fetch the model again.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__} and not settings by name; fetch the model again.")
    return cast("dict[str, Any]", found)


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    """Name of every tensor in a safetensors file -> its shape, read from the header alone.

    Raises:
        ValueError: the header is broken, or the file ends before its last tensor.
    """
    size = path.stat().st_size
    broken = ValueError(f"{path} is no whole safetensors file (its header and its {size:,} bytes don't go together); "
                        "fetch the model again.")  # fmt: skip
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if not 2 <= length <= min(size - 8, MOST_JSON):
                raise broken
            told = json.loads(file.read(length))
            shapes, ends = dict[str, tuple[int, ...]](), [0]
            for name, one in told.items():
                if name == "__metadata__":
                    continue
                shape, (start, end) = tuple(one["shape"]), one["data_offsets"]
                numbers = 1
                for width in shape:
                    if type(width) is not int or width < 0:
                        raise broken
                    numbers *= width
                if not 0 <= start <= end <= size - 8 - length or numbers * _WIDTHS.get(one["dtype"], 0) > end - start:
                    raise broken
                shapes[name] = shape
                ends.append(end)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise broken from None
    if max(ends) != size - 8 - length:
        raise broken
    return shapes


def look_over(folder: Path, *configs: str) -> None:
    """Refuse a folder whose config describes a network that its weights can't fill.

    Args:
        folder: of a model.
        configs: JSON files in it that say how the network is built; those that aren't there are passed over.

    Raises:
        ValueError: a file is none that may be opened, is broken, or a count in a config is beyond the weights.
    """
    for path in sorted(folder.iterdir()):
        if not (path.is_dir() or path.is_file()):
            raise ValueError(f"{path} is no regular file, so {folder} can't be read as a model; fetch it again.")
    shapes = [shape for path in sorted(folder.glob("*.safetensors")) for shape in shapes_of(path).values()]
    most = max([MOST_COUNT, len(shapes), *(width for shape in shapes for width in shape)])
    for name in configs:
        if (folder / name).is_file():
            _counts_fit(read_json(folder / name), folder / name, most)


def _counts_fit(told: Any, path: Path, most: int) -> None:
    """No count in a config is larger than what a file of weights could hold of it: each would be a loop.

    And what is added to a variance before its root is taken (..._eps) is a number, or the first text would fail.
    """
    for name, value in told.items() if isinstance(told, Mapping) else enumerate(told):
        if isinstance(value, Mapping | list):
            _counts_fit(value, path, most)
        elif (
            isinstance(name, str)
            and name.endswith("_eps")
            and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"))
        ):
            raise ValueError(f"{path} says {name}: {value!r}; it must be a small number: fetch the model again.")
        elif type(value) is int and isinstance(name, str) and value > most and _counts(name):
            raise ValueError(
                f"{path} says {name}: {value:,}, more than the weights beside it can hold (at most {most:,}); fetch "
                "the model again."
            )


def _counts(name: str) -> bool:
    """Whether a setting by this name says how many of something there are."""
    return name.startswith(("num_", "n_")) or "layer" in name or name in _SIZES


def room_for(network: nn.Module, folder: Path) -> None:
    """Refuse to make room for a network that is larger than its files.

    Args:
        network: as the config says, without weights (on torch's meta device).
        folder: that holds the weights.

    Raises:
        ValueError: it has more numbers than the files have bytes.
    """
    suffixes = (".safetensors", ".bin", ".pt", ".pth")
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in suffixes)
    needed = sum(one.numel() for one in (*network.parameters(), *network.buffers()))
    if needed > held + SPARE:
        raise ValueError(
            f"The config in {folder} describes a network of {needed:,} numbers, and its weights are {held:,} bytes; "
            "they are not of one model: fetch it again."
        )


def misfit(folder: Path | str, tensor: str, held: Sequence[int], wanted: Sequence[int]) -> ValueError:
    """The sentence on a tensor that doesn't fit."""
    return ValueError(
        f"The weights in {folder} don't fit its config: {tensor} is {_size(held)} in the file and {_size(wanted)} by "
        "the config; fetch the model again, or mend the config."
    )


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) if len(shape) else "a single number"


@contextmanager
def told_plainly_of(what: str) -> Generator[None, None, None]:
    """Turn whatever a library raises while it reads a model into one sentence that names the model.

    A file that isn't there, and a pickle that is refused, have sentences of their own and pass.

    Args:
        what: the model, as the sentence names it.

    Raises:
        ValueError: the library raised.
    """
    try:
        yield
    except (MemoryError, OSError, pickle.UnpicklingError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a tokenizer's Rust code raises a PanicException, which is no Exception
        if isinstance(error, Told):
            raise error.sentence from None
        said = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])[:300].rstrip(".:")
        raise ValueError(
            f"{what} can't be read: its config, weights or tokenizer are damaged or not of one model (the library says "
            f"{type(error).__name__}{f': {said}' if said else ''}); fetch it again."
        ) from error


class Told(Exception):  # noqa: N818 (it carries an error through a library, and is none itself)
    """A sentence that passes through a library's own handling of errors."""

    def __init__(self, sentence: ValueError) -> None:
        super().__init__(str(sentence))
        self.sentence = sentence


@contextmanager
def every_weight_fits(folder: Path, spare: tuple[str, ...] = ()) -> Generator[None, None, None]:
    """Let transformers load networks of which every tensor comes from the file, in its own shape; refuse others.

    The library draws what is missing at random and says so in its log; a sentence embedder's loader hides even that.
    Its one door is `PreTrainedModel.from_pretrained`, so that is watched while the folder is read.

    Args:
        folder: of the model.
        spare: beginnings of names of tensors that may be missing, since nothing here reads them; they become zeros, so
            that a fingerprint is the same each time.

    Raises:
        Told: a tensor is missing or has another shape, or the config describes a network larger than the files.
    """
    from transformers import PreTrainedModel

    door: Any = PreTrainedModel.__dict__["from_pretrained"]

    def watched(cls: Any, *args: Any, **kwargs: Any) -> Any:
        asked = kwargs.pop("output_loading_info", False)
        config = kwargs.get("config")
        if config is not None and (empty := _without_weights(cls, config)) is not None:
            _carried(room_for, empty, folder)
        info = {"output_loading_info": True, "ignore_mismatched_sizes": True}
        network, found = door.__func__(cls, *args, **{**kwargs, **info})
        _carried(_refuse_misfits, network, found, folder, spare)
        return (network, found) if asked else network

    PreTrainedModel.from_pretrained = classmethod(watched)  # type: ignore[method-assign]
    try:
        yield
    finally:
        PreTrainedModel.from_pretrained = door


def _carried(check: Callable[..., None], *given: Any) -> None:
    try:
        check(*given)
    except ValueError as error:
        raise Told(error) from None


def _without_weights(cls: Any, config: Any) -> nn.Module | None:
    """The network on the meta device; None where it can't be built there (then loading says what is wrong)."""
    try:
        with torch.device("meta"):
            return cls(copy.deepcopy(config))
    except Exception:
        return None


def _refuse_misfits(network: Any, found: Mapping[str, Any], folder: Path, spare: tuple[str, ...]) -> None:
    misfits = cast("list[tuple[str, Sequence[int], Sequence[int]]]", sorted(found.get("mismatched_keys") or []))
    if misfits:
        raise misfit(folder, *misfits[0])
    missing = sorted(found.get("missing_keys") or ())
    lacking = [name for name in missing if not name.startswith(spare)] if spare else missing
    if lacking:
        raise ValueError(
            f"The weights in {folder} lack {len(lacking)} tensors of {type(network).__name__} (first: {lacking[0]}), "
            "which would be drawn at random; fetch the model again."
        )
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for name in missing:
            if name in parameters:
                parameters[name].zero_()
    own = {_pattern(name) for name in network.state_dict()}
    for name in sorted(found.get("unexpected_keys") or ()):
        bare = name.removeprefix(f"{network.base_model_prefix}.")
        if _pattern(bare) in own and bare not in parameters:
            raise ValueError(
                f"The weights in {folder} hold {name}, of a layer that its config doesn't have; fetch the model "
                "again, or mend the config."
            )


def _pattern(name: str) -> str:
    """A tensor's name with every number of a layer left open."""
    return ".".join("#" if part.isdigit() else part for part in name.split("."))
