"""What a tower gives for the scenes of a world: vectors, layers and tokens, looked up in the store first."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.embedders.towers import Tower
from colligate.embedders.unreadable import UnreadableItemsError
from colligate.embeddings import Embeddings, check_scale, listed_rows
from colligate.engine import Report
from colligate.records import WorkError
from colligate.scenes.files import check_files
from colligate.scenes.worlds import Kind, World
from colligate.store import Progress, Store


class DeepTower(Tower, Protocol):
    """A tower that shows its layers."""

    def embed_depth(self, items: Any) -> Mapping[str, Tensor]:
        """Vectors [item dim] of every layer and read-out, by name; empty where none is shown."""
        ...


class TokenTower(Tower, Protocol):
    """A tower that shows the tokens of its items."""

    def embed_tokens(self, items: Any) -> tuple[Tensor, Tensor]:
        """The tokens [item token dim], and which of them are real [item token]."""
        ...


def embed(
    tower: Tower,
    world: World,
    *,
    rows: Int[Tensor, " row"] | None = None,
    store: Store | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
    report: Report | None = None,
) -> Embeddings:
    """Embed the scenes of a world as the tower reads them: captions, pictures or integers.

    Args:
        tower: anything with `kind` and `embed`; without `fingerprint`, or where it is None, vectors are never kept.
        world: scenes and what can be shown of them.
        rows: rows to embed, in this order; None for all.
        store: where vectors are looked up and kept; a tower without fingerprint is never kept.
        batch_size: the most items the tower is given at once; None: 1024, pictures 256.
        progress: called with rows done and rows in all.
        report: told of work on the pictures: opening the user's own, each once before any is embedded, and tracing
            those in 3-D.

    Raises:
        ValueError: the world doesn't show what the tower reads, a picture is broken or stands in two rows (see
            `files.check_files`), or the tower gives something else than one finite vector an item.

    Example:
        >>> from colligate.embedders.oracles import Oracle
        >>> from colligate.scenes.worlds import load_world
        >>> embed(Oracle("no-binding", dim=8), load_world("text8x8"), rows=torch.tensor([5, 0])).vectors.shape
        torch.Size([2, 8])
    """
    started = time.perf_counter()
    index = _index(world, rows)

    def look(items: Any, part: Tensor) -> dict[str, Tensor]:
        return {"vectors": embed_items(tower, items, part)}

    vectors = _looked_up(tower, world, index, look, "vectors", store, batch_size, progress, report)["vectors"]
    fingerprint = getattr(tower, "fingerprint", None)
    provenance: dict[str, object] = {
        "tower": None if fingerprint is None else dict(fingerprint),
        "kind": tower.kind,
        "world": world.name,
        "items": world.describe(cast("Kind", tower.kind)),
        "dtype": str(vectors.dtype).removeprefix("torch."),
        "device": getattr(tower, "device", "cpu"),
        "seconds": round(time.perf_counter() - started, 3),
    }
    captions = world.items("text", rows) if "text" in world.kinds else None
    scenes = world.scenes if rows is None else world.scenes[rows]
    check_scale(vectors)
    return Embeddings(vectors, scenes, cast("list[str] | None", captions), provenance)


def embed_layers(
    tower: DeepTower,
    world: World,
    *,
    rows: Int[Tensor, " row"] | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
    report: Report | None = None,
) -> dict[str, Float[Tensor, "row dim"]]:
    """Every layer and read-out of a tower for the scenes of a world, by name; kept as vectors are, all in one reading.

    Args:
        tower: one that shows its layers.
        world: scenes and what can be shown of them.
        rows: rows to embed, in this order; None for all.
        store: where they are looked up and kept; those of a tower without fingerprint are never kept.
        progress: called with rows done and rows in all.
        report: told of work on the pictures, as `embed` does.

    Raises:
        ValueError: as `embed`.
    """

    def look(items: Any, part: Tensor) -> dict[str, Tensor]:
        with _rows_named(part):
            given = tower.embed_depth(items)
        return {name: checked(tower, vectors, part) for name, vectors in given.items()}

    return _looked_up(tower, world, _index(world, rows), look, "layers", store, None, progress, report)


def embed_tokens(
    tower: TokenTower,
    world: World,
    *,
    most: int,
    rows: Int[Tensor, " row"] | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
    report: Report | None = None,
) -> tuple[Float[Tensor, "row token dim"], Bool[Tensor, "row token"]]:
    """The tokens of each scene's item, and which of them are real; kept as vectors are, in one piece.

    Args:
        tower: one that shows its tokens.
        world: scenes and what can be shown of them.
        most: numbers that they may be in all.
        rows: rows to embed, in this order; None for all.
        store: where they are looked up and kept; those of a tower without fingerprint are never kept.
        progress: called with rows done and rows in all.
        report: told of work on the pictures, as `embed` does.

    Raises:
        ValueError: as `embed`, or they would be more numbers than `most`.
    """
    index = _index(world, rows)

    def look(items: Any, part: Tensor) -> dict[str, Tensor]:
        with _rows_named(part):
            tokens, mask = tower.embed_tokens(items)
        numbers = tokens.shape[1] * tokens.shape[2] * len(index)
        if numbers > most:
            raise ValueError(f"the tokens of all scenes would be {numbers:,} numbers (at most {most:,} are read)")
        return {"tokens": tokens, "mask": mask}

    whole = None if store is None else replace(store, rows_per_shard=max(len(index), 1))
    found = _looked_up(tower, world, index, look, "tokens", whole, None, progress, report)
    return found["tokens"], found["mask"]


def _index(world: World, rows: Int[Tensor, " row"] | None) -> Int[Tensor, " row"]:
    return torch.arange(len(world.scenes)) if rows is None else rows


def _looked_up(
    tower: Tower,
    world: World,
    index: Int[Tensor, " row"],
    look: Callable[[Any, Tensor], dict[str, Tensor]],
    what: str,
    store: Store | None,
    batch_size: int | None,
    progress: Progress | None,
    report: Report | None,
) -> dict[str, Tensor]:
    """What `look` makes of the items of some rows, a batch at a time, or what the store holds of it.

    Args:
        tower: that reads the items.
        world: that shows them.
        index: its rows.
        look: gives tensors by name, a row each, of a batch of items and their rows.
        what: name of what it looks at, for the store.
        store: where it is looked up and kept.
        batch_size: the most items at once; None: 1024, pictures 256.
        progress: called with rows done and rows in all.
        report: told of work on the pictures.
    """
    kind = _kind(tower, world, index)
    size = batch_size or (256 if kind == "picture" else 1024)
    finished, unchecked = 0, kind == "picture" and isinstance(world.pictures, tuple)

    def tell(done: int, total: int) -> None:
        nonlocal finished
        finished = done
        if progress is not None:
            progress(done, total)

    def compute(part: slice) -> dict[str, Tensor]:
        nonlocal unchecked
        if unchecked:  # all at once and first: hours of embedding don't end at a broken file; what is kept was checked
            check_files(cast("tuple[Path, ...]", world.pictures), world.scenes, index, report)
            unchecked = False
        found = list[dict[str, Tensor]]()
        before = finished
        for start in range(part.start, part.stop, size):
            chunk = index[start : min(start + size, part.stop)]
            found.append(look(world.items(kind, chunk, report), chunk))
            if not found[0]:
                return {}  # this tower shows nothing of the kind
            if progress is not None:
                progress(before + start - part.start + len(chunk), len(index))
        return {name: _joined([one[name] for one in found]) for name in found[0]}

    fingerprint = getattr(tower, "fingerprint", None)
    if store is None or fingerprint is None:
        return compute(slice(0, len(index)))
    whole = torch.equal(index, torch.arange(len(world.scenes)))
    facts = {
        "read": what,
        "tower": dict(fingerprint),
        "items": world.describe(kind),
        "scenes": (world.scenes if whole else world.scenes[index]).content_hash,
        "rows": None if whole else index.tolist(),
    }
    return store.get_or_compute_named(facts, len(index), compute, tell)


def _kind(tower: Tower, world: World, index: Int[Tensor, " row"]) -> Kind:
    """What the tower reads, and the world shows."""
    if tower.kind not in world.kinds:
        raise ValueError(
            f"This tower reads {tower.kind}s and world {world.name!r} shows {', '.join(world.kinds)}; choose another."
        )
    if not len(index):
        raise ValueError(f"World {world.name!r} has no rows to embed.")
    return tower.kind


def _joined(parts: list[Tensor]) -> Tensor:
    """Rows one after the other; those of tokens as wide as the widest."""
    if parts[0].ndim == 2 and parts[0].dtype.is_floating_point:
        return torch.cat(parts)
    widest = max(part.shape[1] for part in parts)
    joined = parts[0].new_zeros(sum(map(len, parts)), widest, *parts[0].shape[2:])
    for start, part in zip(accumulate(map(len, parts), initial=0), parts, strict=False):
        joined[start : start + len(part), : part.shape[1]] = part
    return joined


def embed_items(tower: Tower, items: Any, rows: Int[Tensor, " row"] | None = None) -> Tensor:
    """What a tower gives for some items, checked: one finite vector each.

    Args:
        tower: anything with `embed`.
        items: what it reads.
        rows: which rows of a world they are, for the message; None: their places.

    Raises:
        UnreadableItemsError: the tower can't read some of them; it names them by their rows.
        WorkError: the tower gives something else.
    """
    index = torch.arange(len(items)) if rows is None else rows
    with _rows_named(index):
        given = tower.embed(items)
    return checked(tower, given, index)


@contextmanager
def _rows_named(rows: Int[Tensor, " row"]) -> Generator[None, None, None]:
    """Items that a tower can't read are named by the rows that hold them."""
    try:
        yield
    except UnreadableItemsError as error:
        raise error.at(rows.tolist()) from None


def _is_sparse(given: Any) -> bool:
    """Whether something holds only what isn't zero: a sparse tensor, or a sparse matrix of scipy."""
    return (isinstance(given, Tensor) and given.layout != torch.strided) or hasattr(given, "tocsr")


def _as_tensor(given: Any) -> Tensor | None:
    """What a tower gave as a tensor on the CPU; None where it is none, nor becomes one."""
    if given is None or isinstance(given, str | bytes) or _is_sparse(given):
        return None
    try:
        whole = given if isinstance(given, Tensor) else torch.as_tensor(np.ascontiguousarray(given))
        return whole.detach().cpu()
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return None


def checked(tower: Tower, given: Any, rows: Int[Tensor, " row"]) -> Tensor:
    """Vectors that a tower gave for these rows, on the CPU; what is not finite must neither be kept nor measured.

    Raises:
        WorkError: not one finite vector for each row.
    """
    name = type(tower).__name__
    found = _as_tensor(given)
    if found is None:
        what = f"a sparse {type(given).__name__}" if _is_sparse(given) else f"a {type(given).__name__}"
        what = "None" if given is None else what
        raise WorkError(
            f"The {name} tower gave {what} for {len(rows)} items; expected one floating vector each, a tensor or array "
            "[item, dim] that isn't sparse."
        )
    if found.ndim != 2 or len(found) != len(rows) or not found.dtype.is_floating_point:
        raise WorkError(
            f"The {name} tower gave {found.dtype} {tuple(found.shape)} for {len(rows)} items; "
            "expected one floating vector each, [item, dim]."
        )
    bad = rows[~torch.isfinite(found).all(1)].tolist()
    if bad:
        raise WorkError(
            f"The {name} tower gave NaN or infinity for rows {listed_rows(bad)}; "
            "its weights may be broken, or its dtype too narrow: try dtype float32."
        )
    return found
