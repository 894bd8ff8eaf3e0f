"""Vectors find the rows of their labels by the columns that both have; hostile files end in one sentence."""

import os
import struct
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from colligate.embedders.precomputed import read_vectors
from colligate.embeddings import Embeddings
from colligate.scenes.sources import read_labels
from colligate.verbs.config import VectorsConfig
from colligate.verbs.sources import open_source

ROWS = (("a", "b"), ("b", "a"), ("a", "a"), ("b", "b"))
VECTORS = torch.arange(12, dtype=torch.float32).reshape(4, 3)
ORDER = (2, 0, 3, 1)
NAMES = ["0.png", "1.png", "2.png", "3.png"]
SAME = [("picture", "picture"), ("filename", "picture"), ("id", "id"), ("x", "y")]


def labels(
    folder: Path, column: str = "picture", names: tuple[str, ...] = ("0.png", "1.png", "2.png", "3.png")
) -> Path:
    path = folder / "l.csv"
    rows = [f"{a},{b},{name}" for (a, b), name in zip(ROWS, names, strict=True)]
    path.write_text("\n".join([f"slot1_c,slot2_c,{column}", *rows]), encoding="utf-8")
    return path


def shuffled(
    folder: Path, column: str, names: list[str], *, bare: bool = False, order: tuple[int, ...] = ORDER
) -> Path:
    rows = VECTORS[list(order)]
    held = {f"v{i}": rows[:, i].numpy() for i in range(3)} if bare else {"v": rows.tolist()}
    pq.write_table(pa.table({**held, column: [names[i] for i in order]}), folder / "v.parquet")
    return folder / "v.parquet"


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("mine", "theirs"), [("picture", "picture"), ("filename", "picture"), ("id", "id"), ("x", "y")]
)
def test_rows_in_another_order_are_joined_by_the_column_that_both_have(
    tmp_path: Path, mine: str, theirs: str, bare: bool
) -> None:
    found = read_vectors(shuffled(tmp_path, mine, NAMES, bare=bare), labels(tmp_path, theirs))
    assert torch.equal(found.vectors, VECTORS)
    assert f"Vectors of v.parquet were found for each row of l.csv by {theirs}." in str(found.provenance["notes"])


def test_names_are_compared_in_one_unicode_form(tmp_path: Path) -> None:
    names = [f"\u00e9{i}" for i in range(4)]
    there = labels(tmp_path, "id", tuple(unicodedata.normalize("NFD", name) for name in names))
    assert torch.equal(read_vectors(shuffled(tmp_path, "id", names), there).vectors, VECTORS)


def test_a_row_without_its_vector_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no vector for .*l\.csv, line 4, column picture: .* none has '2\.png'"):
        read_vectors(shuffled(tmp_path, "picture", ["0.png", "1.png", "x.png", "3.png"]), labels(tmp_path))


def test_vectors_beyond_the_labels_are_counted(tmp_path: Path) -> None:
    kept = read_labels(labels(tmp_path), keep={"slot1_c": "a"})
    found = read_vectors(shuffled(tmp_path, "picture", NAMES), kept)
    assert torch.equal(found.vectors, VECTORS[[0, 2]])
    assert "2 of 4 vectors belong to no row of the labels." in str(found.provenance["notes"])


def test_a_selected_world_still_finds_its_vectors(tmp_path: Path) -> None:
    world = read_labels(labels(tmp_path)).select(torch.tensor([3, 1]))
    assert torch.equal(read_vectors(shuffled(tmp_path, "picture", NAMES), world).vectors, VECTORS[[3, 1]])


def test_cells_that_repeat_join_nothing_and_another_order_is_refused(tmp_path: Path) -> None:
    there = labels(tmp_path, "batch", ("x", "x", "y", "y"))
    same = shuffled(tmp_path, "batch", ["x", "x", "y", "y"], order=(0, 1, 2, 3))
    assert torch.equal(read_vectors(same, there).vectors, VECTORS)
    with pytest.raises(ValueError, match=r"have batch, but '[xy]' occurs twice and the rows stand in another order"):
        read_vectors(shuffled(tmp_path, "batch", ["x", "x", "y", "y"]), there)


def test_running_numbers_of_other_names_are_no_keys_and_the_order_is_told(tmp_path: Path) -> None:
    there = labels(tmp_path, "number", ("0", "1", "2", "3"))
    found = read_vectors(shuffled(tmp_path, "rank", ["0", "1", "2", "3"]), there)
    assert torch.equal(found.vectors, VECTORS[list(ORDER)])
    (note,) = [note for note in found.provenance["notes"] if "rank" in note]  # type: ignore[attr-defined]
    assert "taken in the order of their rows" in note


def test_a_column_of_the_labels_among_the_numbers_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v0": [0.0, 1.0, 2.0, 3.0], "size": [0.5, 0.0, 0.5, 0.0]}), tmp_path / "v.parquet")
    with pytest.raises(ValueError, match="column 'size' is one of the labels', not of the vectors"):
        read_vectors(tmp_path / "v.parquet", labels(tmp_path, "size"))


def test_what_was_joined_or_ties_is_told_of_the_source(tmp_path: Path) -> None:
    config = VectorsConfig(embedder=str(shuffled(tmp_path, "picture", NAMES)), labels=labels(tmp_path))
    assert any("by picture" in note for note in open_source(config).notes)
    save_file({"v": torch.ones(4, 3)}, tmp_path / "v.safetensors")
    config = VectorsConfig(embedder=str(tmp_path / "v.safetensors"), labels=labels(tmp_path))
    assert any("All 4 vectors are equal" in note for note in open_source(config).notes)


def test_scenes_with_the_same_vector_are_counted(tmp_path: Path) -> None:
    scenes = read_labels(labels(tmp_path)).scenes
    assert Embeddings(VECTORS, scenes).collapse() == ()
    (note,) = Embeddings(VECTORS[[0, 0, 1, 2]], scenes).collapse()
    assert note.startswith("The vectors of 4 different scenes are only 3 different ones")
    assert Embeddings(VECTORS[[0, 1, 2, 3, 0]], scenes[[0, 1, 2, 3, 0]]).collapse() == ()


# ------------------------------------------------------------------------------------------------------- hostile files


@pytest.mark.parametrize("size", [1e200, 1e16])
def test_numbers_too_large_to_compute_with_name_their_rows(tmp_path: Path, size: float) -> None:
    vectors = VECTORS.double()
    vectors[2, 1] = size
    save_file({"v": vectors}, tmp_path / "v.safetensors")
    with pytest.raises(ValueError, match=r"v\.safetensors: Vectors hold numbers as large as 1e\+\d+ in rows 3, whose"):
        read_vectors(tmp_path / "v.safetensors", labels(tmp_path))


def test_numbers_too_small_to_compute_with_are_told(tmp_path: Path) -> None:
    save_file({"v": VECTORS.double() * 1e-310}, tmp_path / "v.safetensors")
    with pytest.raises(ValueError, match=r"no number larger than .*; embed them again, or multiply"):
        read_vectors(tmp_path / "v.safetensors", labels(tmp_path))


@pytest.mark.parametrize("suffix", ["npy", "safetensors"])
def test_vectors_without_width_are_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v.{suffix}"
    np.save(path, np.zeros((4, 0))) if suffix == "npy" else save_file({"v": torch.zeros(4, 0)}, path)
    with pytest.raises(ValueError, match=r"has no width|holds no numbers"):
        read_vectors(path, labels(tmp_path))
    with pytest.raises(ValueError, match="no width"):
        Embeddings(torch.zeros(4, 0), read_labels(labels(tmp_path)).scenes)


HEADERS = {
    "unclosed": (b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3", "broken .npy file"),
    "tokens": (b"{'descr': \x00\x01$$$", "broken .npy file"),
    "nested": (b"(" * 9000, "broken .npy file"),
    "long": (b"{'descr': '<f4'," + b" " * 30_000 + b"'fortran_order': False, 'shape': (4, 3)}", "header is too long"),
    "huge": (
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1000000000000)}",
        r"needs 16,000,000,000,000 bytes",
    ),
    "negative": (b"{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -3)}", "holds no numbers"),
    "words": (b"{'descr': '<U9999999', 'fortran_order': False, 'shape': (4, 3)}", "vectors are floating"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_broken_header_is_one_sentence(tmp_path: Path, case: str) -> None:
    header, message = HEADERS[case]
    path = tmp_path / "v.npy"
    path.write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(48))
    with pytest.raises(ValueError, match=message) as caught:
        read_vectors(path, labels(tmp_path))
    assert "\n" not in str(caught.value)
    assert "pickle" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("suffix", ["npy", "safetensors", "parquet"])
def test_a_pipe_is_no_file_of_vectors(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"v.{suffix}")
    with pytest.raises(ValueError, match="it is a pipe"):
        read_vectors(tmp_path / f"v.{suffix}", labels(tmp_path))


def test_parquet_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colligate.embedders.precomputed._LEAST_BYTES", 1_000_000)
    flat = pa.array(np.zeros(4_000_000, dtype=np.float32))
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(flat, 1_000_000)})
    pq.write_table(table, tmp_path / "v.parquet", compression="zstd")
    with pytest.raises(
        ValueError, match=r"v\.parquet is a broken Parquet file \(it unpacks to more than 1,\d+,\d+ bytes"
    ):
        read_vectors(tmp_path / "v.parquet", labels(tmp_path))
