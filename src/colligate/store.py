"""Vectors on disk, under the hash of everything that determines them.

A set of vectors is a folder named by the sha256 of its facts (weights, preprocessing, layer, pooling, dtype, items).
It holds shards of a fixed number of rows, each with one tensor or several by name. A shard counts only if the checksum
in its header fits its bytes, its rows and the folder's name, so that a file from another folder isn't taken for it. It
is written in one piece: a run that is killed at any moment resumes at the first missing shard. Two processes share the
work: each takes the next shard that nobody holds. What is all there is read without writing anything.
"""

import errno
import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from filelock import FileLock, Timeout
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from colligate.records import WorkError, sweep_temporaries, tell, tensors_hash, write_atomic

Progress = Callable[[int, int], None]
"""Called with rows done and rows in all."""

LAYOUT = 3
"""Number of the shards' layout; vectors in another are computed again."""
_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Store:
    """Keep computed vectors, and compute only what is missing.

        folder = root / key[:2] / key,    key = sha256(facts, rows, shard size, layout)

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
        key = hashlib.sha256(json.dumps(self._meta(facts, num_rows), sort_keys=True).encode()).hexdigest()
        return self.root / key[:2] / key

    def _meta(self, facts: Mapping[str, object], num_rows: int) -> dict[str, object]:
        return {"facts": facts, "rows": num_rows, "rows_per_shard": self.rows_per_shard, "layout": LAYOUT}

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
        return self.get_or_compute_named(facts, num_rows, lambda rows: {"vectors": compute(rows)}, progress)["vectors"]

    def get_or_compute_named(
        self,
        facts: Mapping[str, object],
        num_rows: int,
        compute: Callable[[slice], Mapping[str, Tensor]],
        progress: Progress | None = None,
    ) -> dict[str, Tensor]:
        """Several tensors of the same rows, by name, that are computed together: the layers of a network.

        Args:
            facts: JSON-able; everything that determines them.
            num_rows: number of rows in all.
            compute: gives the tensors of a slice of rows, rows first; the names are the same for every slice.
            progress: called after each shard, read or computed.

        Raises:
            OSError: the disk is full or the folder can't be written; finished shards stay good.
            WorkError: `compute` gives another number of rows than asked for, or numbers that are not finite.

        Example:
            >>> import tempfile
            >>> store = Store(Path(tempfile.mkdtemp()), rows_per_shard=2)
            >>> def layers(rows):
            ...     return {"layer 0": torch.zeros(rows.stop - rows.start, 2), "layer 1": torch.ones(2, 4)}
            >>> {name: tuple(kept.shape) for name, kept in store.get_or_compute_named({}, 4, layers).items()}
            {'layer 0': (4, 2), 'layer 1': (4, 4)}
        """
        if num_rows < 1:
            raise ValueError("There are no rows to embed; the table of scenes is empty.")
        folder = self.folder(facts, num_rows)
        meta = json.dumps(self._meta(facts, num_rows), indent=1, sort_keys=True).encode()
        gathered = dict[str, Tensor]()
        done = 0
        starts = range(0, num_rows, self.rows_per_shard)
        waiting = [slice(start, min(start + self.rows_per_shard, num_rows)) for start in starts]
        patient = False
        while waiting:
            held_elsewhere: list[slice] = []
            for rows in waiting:
                shard = self._read_or_compute(folder, rows, compute, meta, patient=patient)
                if shard is None:
                    held_elsewhere.append(rows)
                    continue
                for name, part in shard.items():
                    if name not in gathered:
                        gathered[name] = part.new_empty(num_rows, *part.shape[1:])
                    gathered[name][rows] = part
                done += rows.stop - rows.start
                if progress is not None:
                    progress(done, num_rows)
            waiting, patient = held_elsewhere, True
        return gathered

    def _read_or_compute(
        self,
        folder: Path,
        rows: slice,
        compute: Callable[[slice], Mapping[str, Tensor]],
        meta: bytes,
        *,
        patient: bool,
    ) -> dict[str, Tensor] | None:
        """One shard, or None if another process is computing it and we need not wait yet."""
        path = folder / f"shard-{rows.start // self.rows_per_shard:05d}.safetensors"
        lock = path.with_suffix(".lock")
        shard = _read(path, rows)
        if shard is not None:
            if lock.exists():  # left by a kill after the shard was written
                with suppress(OSError):
                    lock.unlink()
            return shard
        with _told_plainly(folder):
            _prepare(folder, meta)
        with ExitStack() as stack:
            try:
                stack.enter_context(FileLock(lock, timeout=-1 if patient else 0))
            except Timeout:
                return None
            except NotImplementedError:
                pass  # some network drives can't lock: two processes may both compute a shard, slower but never wrong
            except OSError as error:
                if error.errno in _FULL | {errno.EACCES, errno.EROFS}:
                    with _told_plainly(folder):
                        raise
            shard = _read(path, rows, quiet=True)
            if shard is None:
                shard = {name: part.detach().cpu().contiguous() for name, part in compute(rows).items()}
                for part in shard.values():
                    _check(part, rows)
                with _told_plainly(folder):
                    write_atomic(path, save(shard, metadata={"sha256": _checksum(shard, folder, rows)}))
            with suppress(OSError):
                lock.unlink()
        return shard


def _prepare(folder: Path, meta: bytes) -> None:
    """Make the folder ready to be written: what a kill left there is swept, and `meta.json` says what it is of."""
    folder.mkdir(parents=True, exist_ok=True)
    sweep_temporaries(folder)
    path = folder / "meta.json"
    if not path.is_file() or path.read_bytes() != meta:
        write_atomic(path, meta)


def _check(part: Tensor, rows: slice) -> None:
    """Refuse what must not be kept."""
    if part.ndim < 2 or len(part) != rows.stop - rows.start:
        raise WorkError(
            f"Rows {rows.start} to {rows.stop - 1} gave vectors of shape {tuple(part.shape)}; "
            f"expected {rows.stop - rows.start} rows."
        )
    if not torch.isfinite(part).all():
        raise WorkError(
            f"Rows {rows.start} to {rows.stop - 1} gave NaN or infinity, which is never kept; compute those again."
        )


def _read(path: Path, rows: slice, *, quiet: bool = False) -> dict[str, Tensor] | None:
    """The shard if it is there and whole; None, with a word about it if it is there and broken.

    Args:
        path: of the shard.
        rows: that it should hold.
        quiet: say nothing, as it was said before.
    """
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            stored = (file.metadata() or {}).get("sha256")
            shard = {str(name): cast("Tensor", file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 (no dict)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        problem = str(error)
    else:
        whole = stored == _checksum(shard, path.parent, rows)
        if whole and all(bool(torch.isfinite(part).all()) for part in shard.values()):
            return shard
        problem = (
            "they hold NaN or infinity"
            if whole
            else "its checksum does not fit its bytes, or it was copied from another folder"
        )
    if not quiet:
        tell(f"Stored vectors {path} are broken ({problem}); computing these rows again.")
    return None


def _checksum(shard: Mapping[str, Tensor], folder: Path, rows: slice) -> str:
    return tensors_hash(shard, f"{folder.name} {rows.start} {rows.stop} ")


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
