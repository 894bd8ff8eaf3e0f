"""Vectors from files: every row finds its scene, and nothing that could run code is opened."""

import io
import json
import pickle
import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from colligate.embedders.precomputed import read_vectors
from colligate.scenes.sources import read_labels
from colligate.scenes.space import ConceptSpace

SHARED = Path(__file__).parents[2] / ".." / "shared"
ROWS = ["slot1_c,slot1_s,slot2_c,slot2_s,caption", "0,0,1,1,a b", "1,0,0,1,c d", "0,1,,,e", "1,1,,,f"]
VECTORS = torch.arange(24, dtype=torch.float32).reshape(4, 6)


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(ROWS))
    return path


def as_safetensors(path: Path, vectors: torch.Tensor) -> None:
    save_file({"anything": vectors}, path)


def as_npy(path: Path, vectors: torch.Tensor) -> None:
    np.save(path, vectors.numpy())


def as_columns(path: Path, vectors: torch.Tensor) -> None:
    pd.DataFrame(vectors.numpy(), columns=[f"v{i}" for i in range(vectors.shape[1])]).to_parquet(path)


def as_lists(path: Path, vectors: torch.Tensor) -> None:
    half = (
        pa.array(vectors[:1].tolist(), pa.list_(pa.float32())),
        pa.array(vectors[1:].tolist(), pa.list_(pa.float32())),
    )
    pq.write_table(pa.table({"id": list(range(len(vectors))), "vector": pa.chunked_array(half)}), path)


def as_fixed_lists(path: Path, vectors: torch.Tensor) -> None:
    flat = pa.array(vectors.flatten().numpy())
    pq.write_table(pa.table({"vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])}), path)


WRITERS: dict[str, tuple[str, Callable[[Path, torch.Tensor], None]]] = {
    "safetensors": ("v.safetensors", as_safetensors),
    "npy": ("v.npy", as_npy),
    "columns": ("v.parquet", as_columns),
    "lists": ("v.parquet", as_lists),
    "fixed lists": ("v.parquet", as_fixed_lists),
}


@pytest.mark.parametrize("form", WRITERS)
def test_every_format_gives_the_same_rows(tmp_path: Path, labels: Path, form: str) -> None:
    name, write = WRITERS[form]
    write(tmp_path / name, VECTORS)
    found = read_vectors(tmp_path / name, labels)
    assert torch.equal(found.vectors, VECTORS)
    assert found.scenes.counts.tolist() == [2, 2, 1, 1]
    assert list(found.captions or []) == ["a b", "c d", "e", "f"]
    assert found.provenance["file"] == name
    json.dumps(dict(found.provenance))


@pytest.mark.parametrize("form", WRITERS)
def test_rows_that_differ_in_number_are_counted(tmp_path: Path, labels: Path, form: str) -> None:
    name, write = WRITERS[form]
    write(tmp_path / name, VECTORS[:3])
    with pytest.raises(ValueError, match="holds 3 vectors for the 4 rows of labels 'mine'"):
        read_vectors(tmp_path / name, labels)


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_vectors_that_are_not_finite_name_file_and_rows(tmp_path: Path, labels: Path, form: str, bad: float) -> None:
    name, write = WRITERS[form]
    broken = VECTORS.clone()
    broken[[1, 3], 2] = bad
    write(tmp_path / name, broken)
    with pytest.raises(ValueError, match=rf"{name}(: Vectors hold NaN or infinity in rows 2, 4| has empty cells)"):
        read_vectors(tmp_path / name, labels)


def test_singles_are_joined_after_the_scenes_in_object_order(tmp_path: Path, labels: Path) -> None:
    path = tmp_path / "v.safetensors"
    save_file({"singles": 100 + VECTORS, "scenes": VECTORS}, path, metadata={"model": "m"})
    found = read_vectors(path, labels)
    assert torch.equal(found.vectors, torch.cat([VECTORS, 100 + VECTORS]))
    assert found.scenes.objects[4:].tolist() == [[0, -1], [1, -1], [2, -1], [3, -1]]
    assert list(found.captions or [])[4] == "c0 s0"
    assert found.provenance["metadata"] == {"model": "m"}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"scenes": VECTORS, "singles": VECTORS[:3]}, "holds 3 singles for 4 objects"),
        ({"scenes": VECTORS, "singles": VECTORS[:, :2].contiguous()}, "width 6, singles .* of width 2"),
        ({"scenes": VECTORS, "singles": VECTORS.double()}, "scenes are torch.float32 .* singles torch.float64"),
        ({"a": VECTORS, "b": VECTORS}, "holds the tensors 'a', 'b'; it must hold one tensor, or"),
        ({}, "holds the tensors none"),
        ({"a": VECTORS[0]}, r"'a' is float32 of shape \(6,\)"),
        ({"a": VECTORS.long()}, "'a' is int64"),
        ({"a": VECTORS.to(torch.float8_e4m3fn)}, "'a' is float8_e4m3fn"),
        (
            {"a": torch.cat([VECTORS, VECTORS])},
            r"holds 8 vectors .* \(if the last 4 are single objects, add their rows",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, labels: Path, tensors: dict[str, torch.Tensor], message: str
) -> None:
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, tmp_path / "v.safetensors")
    with pytest.raises(ValueError, match=message):
        read_vectors(tmp_path / "v.safetensors", labels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precision_is_kept(tmp_path: Path, labels: Path, dtype: torch.dtype) -> None:
    save_file({"a": VECTORS.to(dtype)}, tmp_path / "v.safetensors")
    found = read_vectors(tmp_path / "v.safetensors", labels)
    assert (found.vectors.dtype, found.provenance["dtype"]) == (dtype, str(dtype).removeprefix("torch."))


def test_numpy_arrays_of_any_layout_are_read_without_touching_the_file(tmp_path: Path, labels: Path) -> None:
    for array in (np.asfortranarray(VECTORS.numpy()), VECTORS.numpy().astype(">f8"), VECTORS.numpy().astype("<f2")):
        np.save(tmp_path / "v.npy", array)
        before = (tmp_path / "v.npy").read_bytes()
        found = read_vectors(tmp_path / "v.npy", labels)
        assert torch.equal(found.vectors.float(), VECTORS)
        found.vectors[0, 0] = 5
        assert (tmp_path / "v.npy").read_bytes() == before


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.write_text, (self.path, "ran")


def old_torch(path: Path, content: object) -> bytes:
    del path
    stream = io.BytesIO()
    torch.save(content, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


def new_torch(path: Path, content: object) -> bytes:
    del path
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def object_npy(path: Path, content: object) -> bytes:
    del path
    stream = io.BytesIO()
    np.save(stream, np.array([content], dtype=object), allow_pickle=True)
    return stream.getvalue()


def npz(path: Path, content: object) -> bytes:
    del path
    stream = io.BytesIO()
    np.savez(stream, np.array([content], dtype=object))
    return stream.getvalue()


PICKLES: dict[str, Callable[[Path, object], bytes]] = {
    **{f"protocol {p}": (lambda path, content, p=p: pickle.dumps(content, protocol=p)) for p in (2, 3, 4, 5)},
    "old torch": old_torch,
    "new torch": new_torch,
    "object npy": object_npy,
    "npz": npz,
}


DISGUISES = [
    (form, suffix)
    for form in PICKLES
    for suffix in (".npy", ".safetensors", ".parquet", ".pt", ".pkl")
    if form != "object npy" or suffix == ".npy"
]


@pytest.mark.parametrize(("form", "suffix"), DISGUISES)
def test_pickles_are_refused_by_content_and_never_run(tmp_path: Path, labels: Path, form: str, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    path.write_bytes(PICKLES[form](tmp_path, Bomb(tmp_path / "ran")))
    with pytest.raises(ValueError, match="is a pickle, or an archive that may hold one, and opening it could run code"):
        read_vectors(path, labels)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".parquet"])
def test_a_pickle_without_a_mark_is_no_such_file(tmp_path: Path, labels: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "ran"), protocol=0))
    with pytest.raises(ValueError, match=f"is no {suffix} file by its content"):
        read_vectors(path, labels)
    assert not (tmp_path / "ran").exists()


def test_a_safetensors_file_may_begin_with_the_byte_of_a_pickle(tmp_path: Path, labels: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [4, 6], "data_offsets": [0, 96]}}).encode().ljust(128)
    path = tmp_path / "v.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + VECTORS.numpy().tobytes())
    assert path.read_bytes()[:1] == b"\x80"
    assert torch.equal(read_vectors(path, labels).vectors, VECTORS)


@pytest.mark.parametrize("form", ["safetensors", "npy", "columns"])
def test_a_cut_off_file_is_broken(tmp_path: Path, labels: Path, form: str) -> None:
    name, write = WRITERS[form]
    write(tmp_path / name, VECTORS)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-40])
    with pytest.raises(ValueError, match=f"{name} is a broken"):
        read_vectors(tmp_path / name, labels)


def test_missing_files_and_other_kinds_are_named(tmp_path: Path, labels: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.npy can't be read"):
        read_vectors(tmp_path / "nowhere.npy", labels)
    (tmp_path / "v.txt").write_text("1 2 3")
    with pytest.raises(ValueError, match=r"Vectors come as .safetensors, .npy or .parquet; got .*v.txt"):
        read_vectors(tmp_path / "v.txt", labels)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"row": [0, 1, 2, 3], "v": [0.0, 1.0, 2.0, 3.0]}, "column 'row' is not floating and not one"),
        ({"v": ["a", "b", "c", "d"]}, "column 'v' is not floating|has empty cells, or no columns"),
        ({"v": [[0.0], [1.0, 2.0], [1.0], [2.0]]}, "row 2: the vector has another length"),
        ({"v": [[0.0], None, [1.0], [2.0]]}, "row 2: the vector has another length than row 1, or none"),
        ({"v": [[1], [2], [3], [4]]}, "must hold floating numbers"),
        ({"v": [[1.0], [2.0], [3.0], [4.0]], "w": [[1.0]] * 4}, "columns of lists v, w; keep the one"),
    ],
)
def test_parquet_that_is_no_table_of_vectors_is_refused(
    tmp_path: Path, labels: Path, columns: dict[str, list[object]], message: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "v.parquet")
    with pytest.raises(ValueError, match=message):
        read_vectors(tmp_path / "v.parquet", labels)


def test_the_same_scene_with_the_same_vector_is_refused_and_with_another_is_fine(tmp_path: Path) -> None:
    labels = tmp_path / "mine.csv"
    labels.write_text("slot1_c,slot2_c\n0,1\n1,0\n0,1\n")
    as_npy(tmp_path / "v.npy", VECTORS[:3])
    assert read_vectors(tmp_path / "v.npy", labels).replicates.tolist() == [0, 0, 1]
    as_npy(tmp_path / "v.npy", VECTORS[[0, 0, 1]])
    assert len(read_vectors(tmp_path / "v.npy", labels)) == 3
    as_npy(tmp_path / "v.npy", VECTORS[[0, 1, 0]])
    with pytest.raises(ValueError, match=r"rows 1 and 3 have the same labels \(c0 | c1\) and the same vector"):
        read_vectors(tmp_path / "v.npy", labels)


def test_a_world_may_stand_for_its_labels(tmp_path: Path, labels: Path) -> None:
    as_npy(tmp_path / "v.npy", VECTORS)
    found = read_vectors(tmp_path / "v.npy", read_labels(labels))
    assert found.scenes.content_hash == read_vectors(tmp_path / "v.npy", labels).scenes.content_hash
    assert "labels" not in found.provenance
    named = read_vectors(tmp_path / "v.npy", labels, space=ConceptSpace(c=["x", "y"], s=3))
    assert named.scenes.describe(0) == "x s0 | y s1"


@pytest.mark.skipif(not SHARED.exists(), reason="../shared is absent")
@pytest.mark.parametrize(("name", "counts"), [("clevr-text", [24, 576]), ("exclusions", [0, 7392])])
def test_golden_vectors_find_their_scenes(name: str, counts: list[int]) -> None:
    found = read_vectors(SHARED / "golden" / name / "vectors.safetensors", SHARED / "golden" / name / "scenes.csv")
    assert [int((found.scenes.counts == k).sum()) for k in (1, 2)] == counts
    assert 5 <= float(found.vectors.norm(dim=1).mean()) <= 7.3


def test_a_safetensors_file_that_names_its_rows_is_joined_by_them(tmp_path: Path) -> None:
    names = ["a.png", "b.png", "c.png", "d.png"]
    table = tmp_path / "labels.csv"
    table.write_text(
        "id,slot1_color,slot2_color\n"
        + "\n".join(f"{name},{a},{b}" for name, (a, b) in zip(names, product(["red", "blue"], repeat=2), strict=True))
    )
    path, order = tmp_path / "v.safetensors", [2, 0, 3, 1]
    rows = json.dumps([names[row] for row in order])
    save_file({"v": torch.eye(4)[order].contiguous()}, path, metadata={"rows": rows, "key": "id"})
    assert torch.equal(read_vectors(path, table).vectors, torch.eye(4))
    for wrong, message in (("[1, 2]", "must be a JSON list of 4 texts"), ("no", "must be a JSON list of 4 texts")):
        save_file({"v": torch.eye(4)}, path, metadata={"rows": wrong, "key": "id"})
        with pytest.raises(ValueError, match=message):
            read_vectors(path, table)
    save_file({"v": torch.eye(4)}, path, metadata={"rows": json.dumps([*names[:3], "x.png"]), "key": "id"})
    with pytest.raises(ValueError, match=r"none has 'd.png'"):
        read_vectors(path, table)
