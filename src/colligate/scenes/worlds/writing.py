"""A world as files: its pictures, and the labels table that reads it again."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.records import sweep_temporaries, write_atomic
from colligate.scenes.pictures2d import Canvas
from colligate.scenes.pictures3d import Report, Studio
from colligate.scenes.worlds.world import World


def render(world: World, folder: Path, *, limit: int | None = None, report: Report | None = None) -> Path:
    """Write a world's drawn pictures as PNG files with a table of labels, and return the table's path.

    The table `labels.csv` holds a row for each picture: `filename`; index and word of each slot's concepts
    (`slot1_color`, `slot1_color_word`, ...), empty where a slot is; `caption` and `split` where the world has them.
    Every file is written whole or not at all, the table last; the same call goes on where a killed one stopped.

    Args:
        world: what to draw; its pictures are a canvas or a studio.
        folder: where to, made if it isn't there.
        limit: draw the first so many scenes only.
        report: called with a stage, how much of it is done, and how much there is.

    Raises:
        ValueError: the world draws no pictures, the folder holds something else, or one of its files is a link that
            leads out of it.
        ImportError: the pictures are in 3-D and mitsuba isn't installed.

    Example:
        >>> from colligate.scenes.worlds import load_world
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     labels = render(load_world("clevr2d"), Path(folder), limit=2)
        ...     len(labels.read_text().splitlines()), len(list(labels.parent.glob("*.png")))
        (3, 2)
    """
    if not isinstance(world.pictures, Canvas | Studio):
        raise ValueError(f"World {world.name!r} draws no pictures; choose one that does, such as clevr2d.")
    if limit is not None and limit < 1:
        raise ValueError(f"The limit must be at least 1 picture; got {limit}.")
    facts = json.dumps(json.loads(json.dumps(world.describe("picture"))), indent=1, sort_keys=True)
    stamp = _inside(folder, "render.json")
    if stamp.exists() and stamp.read_text(encoding="utf-8") != facts:
        raise ValueError(f"{folder} holds another render (its render.json differs); name a new folder.")
    if not stamp.exists() and folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise ValueError(f"{folder} already holds other files; name a new or empty folder.")
    sweep_temporaries(folder)
    write_atomic(stamp, facts.encode())
    rows = torch.arange(min(limit or len(world), len(world)))
    names = [f"{row:07d}.png" for row in rows.tolist()]
    missing = [row for row, name in zip(rows.tolist(), names, strict=True) if not _inside(folder, name).exists()]
    for start in range(0, len(missing), 256):
        block = missing[start : start + 256]
        for row, picture in zip(block, world.images(torch.tensor(block), report), strict=True):
            png = io.BytesIO()
            picture.save(png, format="PNG")
            write_atomic(_inside(folder, names[row]), png.getvalue())
        if report is not None:
            report("drawing", start + len(block), len(missing))
    labels = _inside(folder, "labels.csv")
    write_atomic(labels, labels_bytes(world, rows, names))
    return labels


def labels_bytes(
    world: World, rows: Int[Tensor, " row"] | None = None, filenames: Sequence[str] | None = None
) -> bytes:
    """A world's labels table as CSV: what `sources.read_labels` reads back as the same scenes.

    Args:
        world: scenes, and captions and split if it has them.
        rows: rows to list; all by default.
        filenames: a picture file for each row.

    Example:
        >>> from colligate.scenes.worlds import load_world
        >>> print(labels_bytes(load_world("clevr"), torch.tensor([1])).decode().splitlines()[1])
        0,blue,0,cube,0,blue,1,cylinder,a blue cube and a blue cylinder
    """
    listed = torch.arange(len(world)) if rows is None else rows
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(_label_rows(world, listed, filenames))
    return table.getvalue().encode()


def _inside(folder: Path, name: str) -> Path:
    """A path in a folder, after making sure that no link leads out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} leads out of its folder; remove that link or name another folder.")
    return path


def _label_rows(world: World, rows: Int[Tensor, " row"], filenames: Sequence[str] | None) -> Iterator[list[object]]:
    """Header and rows of a labels table."""
    space, scenes = world.scenes.space, world.scenes[rows]
    texts = world.texts(rows) if world.captions is not None else None
    head: list[object] = [] if filenames is None else ["filename"]
    for k in range(scenes.slots):
        head += [column for name in space.names for column in (f"slot{k + 1}_{name}", f"slot{k + 1}_{name}_word")]
    yield head + ["caption"] * (texts is not None) + ["split"] * (world.parts is not None)
    for i, slots in enumerate(scenes.values.tolist()):
        cells: list[object] = [] if filenames is None else [filenames[i]]
        for values in slots:
            for words, value in zip(space.words, values, strict=True):
                cells += [value, words[value]] if value >= 0 else ["", ""]
        cells += [] if texts is None else [texts[i]]
        yield cells + ([] if world.parts is None else [world.parts[int(rows[i])]])
