"""Checkpoints of dual encoders: weights as safetensors, and a JSON file that rebuilds the network.

`model.json` names the weights file and its hash and is written last, so that a folder always holds a whole checkpoint:
the new one or, if the write was cut short, the one before.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from colligate.networks.dual import DualEncoder, DualShape
from colligate.networks.encoders import EncoderShape
from colligate.records import WorkError, read_sealed, sealed_json, write_atomic
from colligate.scenes.space import ConceptSpace

SCHEMA = 1
"""Number of the checkpoint layout; another one is refused."""


class Checkpoint(NamedTuple):
    """A network and what is known of it."""

    model: DualEncoder
    facts: Mapping[str, Any]
    """What `save_checkpoint` was given: training settings, step, objects."""
    weights: str
    """sha256 of the weights file."""


def save_checkpoint(
    folder: Path, model: DualEncoder, facts: Mapping[str, object], *, dtype: torch.dtype = torch.float32
) -> Path:
    """Write a single network so that it can be rebuilt, and return the JSON file's path.

    Args:
        folder: where to; a checkpoint there is replaced.
        model: of one member.
        facts: JSON-able; kept beside the shape.
        dtype: of the weights on disk; they are rounded to it.

    Raises:
        ValueError: a stack of several members, or weights that the dtype can't hold.
        OSError: the disk is full or the folder can't be written; the checkpoint that was there still is.

    Example:
        >>> import tempfile
        >>> space = ConceptSpace(color=3, shape=2)
        >>> model = DualEncoder(space, 2, DualShape(), seeds=[0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_checkpoint(Path(folder), model, {"step": 7})
        ...     load_checkpoint(Path(folder)).facts["step"], path.name
        (7, 'model.json')
    """
    from safetensors.torch import save

    if model.members != 1:
        raise ValueError(f"A checkpoint holds one network; select one of these {model.members} members.")
    weights = {name: value.detach().cpu().to(dtype).contiguous() for name, value in _own_state(model).items()}
    for name, value in weights.items():
        if not bool(value.isfinite().all()):
            raise ValueError(f"{name} has values that {str(dtype).removeprefix('torch.')} can't hold; keep float32.")
    content = save(weights)
    digest = hashlib.sha256(content).hexdigest()
    name = f"weights-{digest[:10]}.safetensors"
    write_atomic(folder / name, content)
    described = {
        "schema": SCHEMA, "kind": "dual-encoder", "weights": name, "sha256": digest, "space": dict(
            zip(model.space.names, map(list, model.space.words), strict=True)
        ), "slots": model.slots, "shape": asdict(model.shape), "facts": dict(facts),
    }  # fmt: skip
    write_atomic(folder / "model.json", sealed_json("model.json", described, indent=1))
    for old in folder.glob("weights-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)
    return folder / "model.json"


def load_checkpoint(folder: Path) -> Checkpoint:
    """Rebuild the network of a checkpoint's folder.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: another schema.
        WorkError: a file that is damaged or was changed, or weights that don't fit the shape.
    """
    from safetensors.torch import load

    path = folder / "model.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no model.json; give the folder of a finished `colligate train` run.")
    described = read_sealed(path, "train again with --force")
    if described.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} has checkpoint schema {described.get('schema')!r}; this version reads {SCHEMA}. Train again, or "
            "load it with the version that wrote it."
        )
    file = folder / str(described["weights"])
    if file.resolve().parent != folder.resolve() or not file.is_file():
        raise WorkError(f"{path} names weights {described['weights']!r} that aren't beside it; copy both files.")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != described["sha256"]:
        raise WorkError(f"{file} isn't the file that {path.name} describes (its hash differs); copy it again.")
    try:
        sizes: dict[str, Any] = described["shape"]
        sizes |= {name: EncoderShape(**sizes[name]) for name in ("scene", "query")}
        shape = DualShape(**sizes)
        model = DualEncoder(ConceptSpace(described["space"]), described["slots"], shape, [0])
        _load_own(model, load(content))
    except (KeyError, TypeError, RuntimeError) as error:
        raise WorkError(f"{path} doesn't describe these weights ({error}); train again with --force.") from None
    return Checkpoint(model, described["facts"], described["sha256"])


def _own_state(model: DualEncoder) -> dict[str, torch.Tensor]:
    """Weights by name, those of a shared encoder once."""
    return {
        name: value
        for name, value in model.state_dict().items()
        if model.query is not model.scene or not name.startswith("query.")
    }


def _load_own(model: DualEncoder, weights: dict[str, torch.Tensor]) -> None:
    missing = set(_own_state(model)) ^ set(weights)
    if missing:
        raise KeyError(f"weights differ in {sorted(missing)[0]}")
    model.load_state_dict(weights, strict=False)
