"""Files that are whole or not there, and that tell when they were damaged."""

import fcntl
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor


class WorkError(RuntimeError):
    """The work failed, though the call was right: a model gave no usable vectors, a file of ours is damaged."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that it is either all there or not there.

    What is written first is a temporary file that this process holds; one that nobody holds was left by a kill.

    Raises:
        OSError: the disk is full or the folder can't be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = _temporary(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)  # temporary files are private; results are as readable as the user's others
            Path(name).replace(path)  # while it is still held
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


PART = ".part"
"""How names of temporary files end."""
LOCK = ".lock"
"""Name of the file whose holder writes a folder; it is gone when nobody does."""
_LEFT = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(PART)}|{re.escape(LOCK)}")


def _temporary(path: Path) -> tuple[int, str]:
    """A temporary file beside the path, held by this process."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        with suppress(OSError):  # some network drives know no locks: there, nothing is held, and nothing swept
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # swept by another before it was held


def sweep_temporaries(folder: Path) -> None:
    """Take away what a kill has left in a folder: temporary files of `write_atomic` and its lock; those in use stay.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     (Path(folder) / ".table.csv.0a1b2c3d.part").touch()
        ...     sweep_temporaries(Path(folder))
        ...     list(Path(folder).iterdir())
        []
    """
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if _LEFT.fullmatch(path.name)]:
            with suppress(OSError):
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(handle)


def content_key(facts: Mapping[str, object]) -> str:
    """Ten hex digits that name a run by its settings and inputs."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:10]


def tensors_hash(tensors: Mapping[str, "Tensor"], beside: str = "") -> str:
    """The sha256 of tensors: names, types, shapes and bytes, whatever their order.

    Args:
        tensors: on the CPU.
        beside: text that counts too.

    Example:
        >>> import torch
        >>> tensors_hash({"a": torch.ones(2)}) == tensors_hash({"b": torch.ones(2)})
        False
    """
    import torch

    digest = hashlib.sha256(beside.encode())
    for name in sorted(tensors):
        one = tensors[name].contiguous()
        digest.update(f"{name} {one.dtype} {tuple(one.shape)} ".encode())
        digest.update(one.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def sealed_json(name: str, content: Mapping[str, object], indent: int | None = None, *, of: str = "") -> bytes:
    """A JSON object with the hash of the rest of it under `seal`, by which `read_sealed` finds any damage.

    Args:
        name: of the file, for the message.
        content: JSON-able.
        indent: as in `json.dumps`.
        of: what it is of, where its place says so and it doesn't; the seal covers it too.

    Raises:
        WorkError: a number that JSON can't hold, such as NaN.
    """
    return plain_json(name, {**content, "seal": _seal(json.loads(plain_json(name, content)), of)}, indent)


def plain_json(name: str, content: object, indent: int | None = None) -> bytes:
    """Content as JSON.

    Raises:
        WorkError: a number that JSON can't hold, such as NaN.
    """
    try:
        return json.dumps(content, indent=indent, allow_nan=False).encode()
    except ValueError as error:
        raise WorkError(f"A number of {name} is not finite ({error}), so the run can't be kept.") from None


def read_sealed(path: Path, again: str, *, of: str = "") -> dict[str, Any]:
    """Read a JSON object and compare it with its seal; one without (no run of this version leaves such) as it is.

    Args:
        path: of the file.
        again: the remedy, such as "train again".
        of: what it is of, as `sealed_json` was told.

    Raises:
        WorkError: it is no JSON object, or another than was written.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "model.json"
        ...     write_atomic(path, sealed_json(path.name, {"step": 7}))
        ...     read_sealed(path, "train again")
        {'step': 7}
    """
    return read_seal(path, again, of=of)[0]


def read_seal(path: Path, again: str, *, of: str = "") -> tuple[dict[str, Any], bool]:
    """The same, and whether it has a seal at all.

    Raises:
        WorkError: as `read_sealed`.
    """
    if not path.is_file():
        raise WorkError(f"{path} is missing or no file; {again}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise WorkError(f"{path} is no JSON ({error}); {again}.") from None
    if not isinstance(content, dict):
        raise WorkError(f"{path} holds a {type(content).__name__} where an object is expected; {again}.")
    found = cast("dict[str, Any]", content)
    seal = found.pop("seal", None)
    if seal is not None and seal != _seal(found, of):
        raise WorkError(f"{path} is damaged (its checksum differs); {again}.")
    return found, seal is not None


def _seal(content: Any, of: str = "") -> str:
    return hashlib.sha256(of.encode() + json.dumps(content, sort_keys=True).encode()).hexdigest()
