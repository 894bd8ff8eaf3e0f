"""Vectors on disk, under the hash of everything that determines them.

A set of vectors is a folder named by the sha256 of its facts (weights, preprocessing, layer, pooling, dtype, items).
It holds shards of a fixed number of rows. A shard counts only if the checksum in its header fits its bytes, and it is
written in one piece, so a run that is killed at any moment resumes at the first missing shard. Two processes share
the work: each takes the next shard that nobody holds.
"""

import errno
import hashlib
import json
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from colligate.records import WorkError, write_atomic

Progress = Callable[[int, int], None]
"""Called with rows done and rows in all."""

_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Store:
    """Keep computed vectors, and compute only what is missing.

        folder = root / key[:2] / key,    key = sha256(facts, rows, shard size)

    Args:
        root: folder of the store; made when first needed.
        rows_per_shard: rows in one file, and the most that a killed run computes twice.

    Example:
        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> store.get_or_compute({"of": "ones"}, 3, lambda rows: torch.ones(rows.stop - rows.start, 2)).tolist()
        [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    root: Path
    rows_per_shard: int = 2048

    def __post_init__(self) -> None:
        if self.rows_per_shard < 1:
            raise ValueError(f"A shard needs at least one row; got rows_per_shard={self.rows_per_shard}.")

    def folder(self, facts: Mapping[str, object], num_rows: int) -> Path:
        """Where the vectors with these facts lie.

        Raises:
            TypeError: a fact is not JSON; guessing a text for it could mix up two sets of vectors.
        """
        text = json.dumps({"facts": facts, "rows": num_rows, "rows_per_shard": self.rows_per_shard}, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        return self.root / key[:2] / key

    def get_or_compute(
        self,
        facts: Mapping[str, object],
        num_rows: int,
        compute: Callable[[slice], Tensor],
        progress: Progress | None = None,
    ) -> Float[Tensor, "row dim"]:
        """The vectors with these facts: read where they are stored, else computed shard by shard and stored.

        Args:
            facts: JSON-able; everything that determines the vectors.
            num_rows: number of rows in all.
            compute: gives the vectors of a slice of rows; must give the same for the same slice.
            progress: called after each shard, read or computed.

        Raises:
            OSError: the disk is full or the folder can't be written; finished shards stay good.
            WorkError: `compute` gives another number of rows than asked for, or numbers that are not finite.
        """
        if num_rows < 1:
            raise ValueError("There are no rows to embed; the table of scenes is empty.")
        folder = self.folder(facts, num_rows)
        with _told_plainly(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "meta.json").exists():
                meta = {"facts": facts, "rows": num_rows, "rows_per_shard": self.rows_per_shard}
                write_atomic(folder / "meta.json", json.dumps(meta, indent=1, sort_keys=True).encode())
        vectors: Tensor | None = None
        done = 0
        starts = range(0, num_rows, self.rows_per_shard)
        waiting = [slice(start, min(start + self.rows_per_shard, num_rows)) for start in starts]
        patient = False
        while waiting:
            held_elsewhere: list[slice] = []
            for rows in waiting:
                shard = self._read_or_compute(folder, rows, compute, patient=patient)
                if shard is None:
                    held_elsewhere.append(rows)
                    continue
                if vectors is None:
                    vectors = torch.empty(num_rows, shard.shape[1], dtype=shard.dtype)
                vectors[rows] = shard
                done += len(shard)
                if progress is not None:
                    progress(done, num_rows)
            waiting, patient = held_elsewhere, True
        assert vectors is not None
        return vectors

    def _read_or_compute(
        self, folder: Path, rows: slice, compute: Callable[[slice], Tensor], *, patient: bool
    ) -> Tensor | None:
        """One shard, or None if another process is computing it and we need not wait yet."""
        path = folder / f"shard-{rows.start // self.rows_per_shard:05d}.safetensors"
        shard = _read(path, rows)
        if shard is not None:
            return shard
        with ExitStack() as stack:
            try:
                stack.enter_context(FileLock(path.with_suffix(".lock"), timeout=-1 if patient else 0))
            except Timeout:
                return None
            except NotImplementedError:
                pass  # some network drives can't lock: two processes may both compute a shard, slower but never wrong
            except OSError as error:
                if error.errno in _FULL | {errno.EACCES, errno.EROFS}:
                    with _told_plainly(folder):
                        raise
            shard = _read(path, rows)
            if shard is None:
                shard = compute(rows).detach().cpu().contiguous()
                if shard.ndim != 2 or len(shard) != rows.stop - rows.start:
                    raise WorkError(
                        f"Rows {rows.start} to {rows.stop - 1} gave vectors of shape {tuple(shard.shape)}; "
                        f"expected {rows.stop - rows.start} rows."
                    )
                if not torch.isfinite(shard).all():
                    raise WorkError(
                        f"Rows {rows.start} to {rows.stop - 1} gave NaN or infinity, which is never kept; "
                        "compute those again."
                    )
                checksum = {"sha256": _checksum(shard, rows)}
                with _told_plainly(folder):
                    write_atomic(path, save({"vectors": shard}, metadata=checksum))
            with suppress(OSError):
                path.with_suffix(".lock").unlink()
        return shard


def _read(path: Path, rows: slice) -> Tensor | None:
    """The shard if it is there and whole; None, with a warning if it is there and broken."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            stored, shard = (file.metadata() or {}).get("sha256"), file.get_tensor("vectors")
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        problem = str(error)
    else:
        whole = stored == _checksum(shard, rows)
        if whole and torch.isfinite(shard).all():
            return shard
        problem = "they hold NaN or infinity" if whole else "its checksum does not fit its bytes"
    warnings.warn(f"Stored vectors {path} are broken ({problem}); computing these rows again.", stacklevel=4)
    return None


def _checksum(shard: Tensor, rows: slice) -> str:
    digest = hashlib.sha256(f"{shard.dtype} {tuple(shard.shape)} {rows.start} {rows.stop} ".encode())
    digest.update(shard.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def _told_plainly(folder: Path) -> Generator[None, None, None]:
    """Turn an error of the disk into one sentence that names the folder and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(
                f"The disk that holds {folder} is full; free some space and run again: "
                "what is stored so far is whole and will be used."
            ) from error
        raise OSError(
            f"Can't write vectors to {folder} ({error.strerror or error}); choose a store you can write to."
        ) from error
