"""Readers of the user's files, fed with mutated ones. To add a reader: a function below, and a line in `READERS`."""

import importlib.util
import io
import json
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fuzz.harness import Reader
else:
    if "harness" not in sys.modules:  # loaded by path: tests aren't a package
        spec = importlib.util.spec_from_file_location("harness", Path(__file__).parent / "harness.py")
        sys.modules["harness"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["harness"])
    from harness import Reader

LONG_SECONDS = 110
"""For each reader, in the long form: all of them take about ten minutes."""
TABLE = (
    "slot1_color,slot1_shape,slot2_color,slot2_shape,caption,split\n"
    "red,0,bleu fonc\u00e9,1,a b,fit\nblue,1,red,0,c d,test\nred,1,,,e,validation\n"
)


def labels() -> "Reader":
    import pyarrow as pa
    import pyarrow.parquet as pq

    from colligate.scenes.findings import understand
    from colligate.scenes.sources import read_labels

    held = io.BytesIO()
    cells = [row.split(",") for row in TABLE.splitlines()]
    pq.write_table(pa.table(dict(zip(cells[0], zip(*cells[1:], strict=True), strict=True))), held)
    long = "scene,slot,color,shape\na,1,red,cube\na,2,blue,ball\nb,1,blue,cube\n"
    return Reader(
        lambda path: understand(read_labels(path)).sentences,
        {"labels.csv": TABLE.encode(), "long.csv": long.encode(), "labels.parquet": held.getvalue()},
    )


def space() -> "Reader":
    from colligate.scenes.sources import read_space

    return Reader(read_space, {"space.json": json.dumps({"color": ["red", "blue"], "shape": 3}).encode()})


def vectors() -> "Reader":
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from safetensors.torch import save

    from colligate.embedders.precomputed import read_vectors

    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    npy, parquet, bare = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(npy, rows)
    pq.write_table(pa.table({"v": rows.tolist(), "id": ["x", "y", "z"]}), parquet)
    pq.write_table(pa.table({f"v{i}": rows[:, i] for i in range(4)}), bare)
    table = Path(mkdtemp()) / "labels.csv"
    table.write_text("slot1_c,slot2_c,id\na,b,y\nb,a,x\na,a,z\n", encoding="utf-8")

    def read(path: Path) -> object:
        found = read_vectors(path, table)
        return found.collapse(), float(found.vectors.double().square().sum())

    return Reader(
        read,
        {
            "v.npy": npy.getvalue(), "v.safetensors": save({"v": torch.from_numpy(rows)}),
            "v.parquet": parquet.getvalue(), "bare.parquet": bare.getvalue(),
        },
    )  # fmt: skip


def pictures() -> "Reader":
    from PIL import Image

    from colligate.scenes.decoding import open_picture

    def saved(kind: str, mode: str, **how: object) -> bytes:
        held = io.BytesIO()
        Image.new(mode, (24, 16), 3).save(held, format=kind, **how)
        return held.getvalue()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    exif = Image.Exif()
    exif[0x0112] = 6
    png = saved("PNG", "RGB")
    text = png[:33] + chunk(b"zTXt", b"a\0\0" + zlib.compress(b"x" * 5000)) + png[33:]
    return Reader(
        lambda path: open_picture(path, 0).size,
        {
            "a.png": png, "text.png": text, "clear.png": saved("PNG", "RGBA"), "palette.png": saved("PNG", "P"),
            "a.jpg": saved("JPEG", "RGB", exif=exif), "a.webp": saved("WEBP", "RGB"), "a.gif": saved("GIF", "P"),
            "a.bmp": saved("BMP", "RGB"), "a.tif": saved("TIFF", "RGB", exif=exif),
            "packed.tif": saved("TIFF", "L", compression="tiff_lzw"),
        },
    )  # fmt: skip


READERS: dict[str, Callable[[], "Reader"]] = {
    "labels": labels, "space": space, "vectors": vectors, "pictures": pictures,
}  # fmt: skip


@pytest.mark.parametrize("which", READERS)
def test_mutated_files_end_in_a_sentence(tmp_path: Path, which: str) -> None:
    from harness import feed

    assert feed(READERS[which](), tmp_path, start=0, count=120) == 120


def test_a_reader_that_fails_is_found(tmp_path: Path) -> None:
    from harness import feed

    def failing(path: Path) -> int:
        return {b"good": 1}[path.read_bytes()]

    with pytest.raises(AssertionError, match=r"seed \d+ \(a\): KeyError escaped"):
        feed(Reader(failing, {"a": b"good"}), tmp_path, start=0, count=50)


@pytest.mark.long
@pytest.mark.parametrize("which", READERS)
def test_mutated_files_end_in_a_sentence_for_minutes(tmp_path: Path, which: str) -> None:
    from harness import feed_apart

    assert int(feed_apart(which, tmp_path, start=1000, count=10**9, seconds=LONG_SECONDS)) > 200
