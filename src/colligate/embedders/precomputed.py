"""The user's own vectors, read from a file and locked to a table of labels: no model needed.

Nothing that could run code is opened: pickles (and `.pt`, `.npz` and object arrays, which hold them) are refused by
their content, whatever they are called.
"""

import hashlib
import io
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from colligate.choices import PICKLES
from colligate.embedders.joining import join, shared_columns
from colligate.embeddings import Embeddings, check_scale
from colligate.scenes.regular import open_regular
from colligate.scenes.sources import read_labels
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.tables import Table, first_line, read_table, table_of
from colligate.scenes.words import composed
from colligate.scenes.worlds import World

_LEAST_BYTES, _MOST_PACKED = 512 * 1024 * 1024, 256
"""Bytes that a Parquet file may always unpack to, and how many for each of its own: more are a bomb."""
_LONGEST_HEADER = 100_000
"""Bytes at the start of a .npy file that may hold its header."""
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_vectors(path: Path, labels: Path | World, *, space: ConceptSpace | None = None) -> Embeddings:
    """Vectors from `.safetensors`, `.npy` or `.parquet`, one row for each row of the labels.

    A Parquet file that has columns in common with the labels (`picture`, an id) is joined by them, and so is a
    safetensors file whose metadata names its rows: `rows`, a JSON list of texts, and `key`, the labels' column that
    holds them (default: picture). Else, and in .npy, the order counts. A safetensors file holds one tensor of any name,
    or `scenes` (the labels' rows) and `singles` (one vector for each object alone, in the order of object ids); singles
    are joined after the scenes as scenes of one object. A Parquet file holds one column of lists, or floating columns
    only. Vectors stay in their own precision and, where the format allows, on disk until they are used.

    Args:
        path: the vectors.
        labels: the table of labels, or the world that was read from it.
        space: the concepts and values, where a labels table alone doesn't tell.

    Returns:
        Vectors with their scenes, the labels' captions and where all of it came from.

    Raises:
        ValueError: a pickle or another kind of file, a broken one, rows and labels that differ in number, a vector that
            isn't finite, or the same labels with bitwise the same vector in two rows.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     labels, vectors = Path(folder) / "mine.csv", Path(folder) / "mine.safetensors"
        ...     _ = labels.write_text(chr(10).join(["slot1_color,slot2_color", "red,blue", "blue,red"]))
        ...     save_file({"scenes": torch.eye(4)[:2], "singles": torch.eye(4)[2:]}, vectors)
        ...     read_vectors(vectors, labels).scenes.counts.tolist()
        [2, 2, 1, 1]
    """
    file = _read(path)  # first: of a file that is no such file, nothing else need be said
    world = labels if isinstance(labels, World) else read_labels(labels, space=space)
    facts: dict[str, object] = {"source": "vectors file", "file": path.name, "sha256": _sha256(path)}
    if isinstance(labels, Path):
        facts["labels"] = {"file": labels.name, "sha256": _sha256(labels)}
    return _locked(path, file, world, facts)


def vectors_of(given: Any, world: World, *, name: str = "vectors") -> Embeddings:
    """Vectors that are in memory, locked to the rows of a world as `read_vectors` locks those of a file.

    Args:
        given: a tensor or array [row, dim]; a pandas DataFrame of floating columns, or with one column of lists, whose
            other columns join it to the world's table where both have them; or a mapping of `scenes` and `singles`.
        world: what the rows show.
        name: what messages call the vectors.

    Raises:
        ValueError: as `read_vectors`.

    Example:
        >>> from colligate.scenes.worlds import load_world
        >>> world = load_world("clevr")
        >>> len(vectors_of(torch.randn(600, 8), world))
        600
    """
    path = Path(name)
    return _locked(path, _checked(path, _in_memory(path, given)), world, {"source": "vectors in memory"})


def _in_memory(path: Path, given: Any) -> "_File":
    if isinstance(given, Mapping):
        return _File({str(key): _tensor(path, value) for key, value in given.items()})
    if not hasattr(given, "columns"):
        return _File({"vectors": _tensor(path, given)})
    of_lists = [name for name in given.columns if isinstance(given[name].iloc[0], list | tuple | np.ndarray)]
    if len(of_lists) > 1:
        raise ValueError(f"{path} has the columns of lists {', '.join(map(str, of_lists))}; keep one.")
    numeric = of_lists or [name for name in given.columns if given[name].dtype.kind == "f"]
    others = [name for name in given.columns if name not in numeric]
    table = table_of(given[others], name=str(path)) if others else None
    held = np.stack([np.asarray(cell) for cell in given[of_lists[0]]]) if of_lists else given[numeric].to_numpy()
    return _File({"vectors": _tensor(path, held)}, table=table, others=tuple(map(str, others)), bare=not of_lists)


def _tensor(path: Path, given: Any) -> Tensor:
    """A copy on the CPU, of the type that it has."""
    try:
        if isinstance(given, Tensor):
            return given.detach().cpu()
        array = np.asarray(given)
        return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} is no array of numbers ({first_line(error)}); give floating [row, dim].") from None


def _locked(path: Path, file: "_File", world: World, facts: Mapping[str, object]) -> Embeddings:
    """The vectors of a file with the scenes of a world, row by row."""
    scenes, captions = world.scenes, world.texts() if "text" in world.kinds else None
    if len(file.tensors) == 1:
        vectors = next(iter(file.tensors.values()))
    elif set(file.tensors) == {"scenes", "singles"}:
        vectors, singles = file.tensors["scenes"], file.tensors["singles"]
        if singles.shape[0] != scenes.space.num_objects:
            raise ValueError(
                f"{path} holds {singles.shape[0]} singles for {scenes.space.num_objects} objects; give exactly one "
                "vector for each object, in the order of object ids."
            )
        if singles.shape[1] != vectors.shape[1] or singles.dtype != vectors.dtype:
            raise ValueError(
                f"{path}: scenes are {vectors.dtype} of width {vectors.shape[1]}, singles {singles.dtype} of width "
                f"{singles.shape[1]}; embed both the same way."
            )
    else:
        raise ValueError(
            f"{path} holds the tensors {', '.join(map(repr, file.tensors)) or 'none'}; "
            "it must hold one tensor, or 'scenes' and 'singles'."
        )
    vectors, told = _joined(path, file, vectors, world)
    if len(vectors) != len(scenes):
        raise ValueError(_mismatch(path, len(vectors), world))
    if len(file.tensors) == 2:
        vectors = torch.cat([vectors, file.tensors["singles"]])
        scenes = Scenes.join([scenes, scenes.space.all_scenes(slots=1)])
        named = [scenes.space.describe_object(o) for o in range(scenes.space.num_objects)]
        captions = None if captions is None else [*captions, *named]
    provenance = _provenance(file, world, told, facts)
    try:
        check_scale(vectors)
        embeddings = Embeddings(vectors, scenes, captions, provenance)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    _check_repeats(path, embeddings)
    return embeddings


class _File(NamedTuple):
    """Tensors by name; of Parquet the table, its columns beside the vectors, and whether those are bare columns."""

    tensors: Mapping[str, Float[Tensor, "row dim"]]
    metadata: Mapping[str, str] = {}
    table: Table | None = None
    others: tuple[str, ...] = ()
    bare: bool = False


def _joined(
    path: Path, file: _File, vectors: Float[Tensor, "row dim"], world: World
) -> tuple[Float[Tensor, "scene dim"], tuple[str, ...]]:
    """The vectors in the order of the labels where both have columns in common, and what a reader should know.

    Raises:
        ValueError: they can't be joined, or a column is neither numbers nor one of the labels'.
    """
    if file.table is None:
        return vectors, ()
    shared = {} if world.table is None else shared_columns(file.table, file.others, world.table)
    both = [name for name in file.table.names if world.table is not None and name in world.table.names]
    if file.bare and (twice := [name for name in both if name not in file.others]):
        raise ValueError(f"{path}: column {twice[0]!r} is one of the labels', not of the vectors; leave it out.")
    idle = [name for name in file.others if name not in shared]
    if idle and file.bare:
        raise ValueError(
            f"{path}: column {idle[0]!r} is not floating and not one of the labels' columns; leave only the vectors' "
            "columns and those that the labels have too, or put the vectors into one column of lists."
        )
    told: tuple[str, ...] = ()
    if idle:
        order = "" if shared else "; none is a column of the labels, so vectors are taken in the order of their rows"
        told = (f"Ignored columns of {path.name}: {', '.join(map(repr, idle))}{order}.",)
    if not shared or world.table is None:
        return vectors, told
    rows, notes = join(path, file.table, shared, world.table)
    return vectors[rows], (*notes, *told)


def _mismatch(path: Path, num: int, world: World) -> str:
    objects = world.scenes.space.num_objects
    remedy = "give exactly one vector for each row"
    if num == len(world.scenes) + objects:
        remedy += f" (if the last {objects} are single objects, add their rows, with the other slots empty)"
    return f"{path} holds {num} vectors for the {len(world.scenes)} rows of labels {world.name!r}; {remedy}."


def _provenance(file: _File, world: World, told: tuple[str, ...], source: Mapping[str, object]) -> dict[str, object]:
    facts: dict[str, object] = {
        **source,
        "tensors": {name: list(tensor.shape) for name, tensor in file.tensors.items()},
        "dtype": str(next(iter(file.tensors.values())).dtype).removeprefix("torch."),
        "world": world.name,
        "scenes": world.scenes.content_hash,
        "notes": [*world.notes, *told],
    }
    if file.metadata:
        facts["metadata"] = dict(file.metadata)
    return facts


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_suffix(path: Path) -> None:
    """Refuse what is, or may hold, a pickle by its name.

    Raises:
        ValueError: it is one; the message says how to save vectors.
    """
    if path.suffix.lower() in PICKLES:
        raise ValueError(_refusal(path))


def _read(path: Path) -> _File:
    check_suffix(path)
    try:
        with open_regular(path) as opened:
            head = opened.read(16)
    except FileNotFoundError as error:
        raise ValueError(str(error)) from None
    # A safetensors file may well begin with the byte of a pickle (its header's length), but then has "{" at 8.
    safetensors = head[8:9] == b"{"
    if head.startswith(b"PK\x03\x04") or (head[:1] == b"\x80" and not safetensors):
        raise ValueError(_refusal(path))
    suffix = path.suffix.lower()
    if suffix == ".safetensors" and safetensors:
        file = _read_safetensors(path)
    elif suffix == ".npy" and head.startswith(b"\x93NUMPY"):
        file = _File({"vectors": _read_npy(path)})
    elif suffix == ".parquet" and head.startswith(b"PAR1"):
        file = _read_parquet(path)
    elif suffix in {".safetensors", ".npy", ".parquet"}:
        raise ValueError(f"{path} is no {suffix} file by its content; save the vectors again.")
    else:
        raise ValueError(f"Vectors come as .safetensors, .npy or .parquet; got {path}.")
    return _checked(path, file)


def _checked(path: Path, file: _File) -> _File:
    """Refuse tensors that are no vectors."""
    for name, tensor in file.tensors.items():
        if tensor.ndim != 2 or tensor.dtype not in _DTYPES:
            raise ValueError(
                f"{path}: {name!r} is {str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}; "
                "vectors are floating [row, dim], of 16, 32 or 64 bits."
            )
        if not tensor.shape[1]:
            raise ValueError(f"{path}: {name!r} has no width (shape {tuple(tensor.shape)}); embed the scenes again.")
    return file


def _refusal(path: Path) -> str:
    return (
        f"{path} is a pickle, or an archive that may hold one, and opening it could run code; save the vectors as "
        ".safetensors, or as .npy with numbers only."
    )


def _read_safetensors(path: Path) -> _File:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in sorted(file.keys())}, file.metadata() or {}
    except MemoryError:
        raise
    except Exception as error:  # whatever the library raises here is of the file
        kind = (
            "broken safetensors file" if isinstance(error, SafetensorError) else "safetensors file that can't be read"
        )
        raise ValueError(f"{path} is a {kind} ({first_line(error)}); save the vectors again.") from None
    return _named_rows(path, _File(tensors, metadata))


def _named_rows(path: Path, file: _File) -> _File:
    """The file with a table of the names that its metadata gives its rows, where they do.

    Raises:
        ValueError: `rows` isn't a JSON list of a text for each row.
    """
    if "rows" not in file.metadata or len(file.tensors) != 1:
        return file
    num = len(next(iter(file.tensors.values())))
    try:
        names = json.loads(file.metadata["rows"])
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or len(names) != num or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: its metadata `rows` must be a JSON list of {num} texts, one for each row.")
    column = composed(file.metadata.get("key", "picture"))
    metadata = {name: text for name, text in file.metadata.items() if name != "rows"}
    table = Table(path, (column,), num, lambda name: names)
    return _File(file.tensors, metadata, table, (column,))


def _read_npy(path: Path) -> Tensor:
    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")  # of headers as old versions wrote them
            head = io.BytesIO(file.read(_LONGEST_HEADER))  # a header may claim to be 4 GB long
            version = np.lib.format.read_magic(head)
            read_header = (
                np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = read_header(head)
            start, size = head.tell(), path.stat().st_size
    except MemoryError:
        raise
    except Exception as error:  # the header is a piece of Python, so any error of reading one may come
        said = "its header is too long" if "max_header_size" in str(error) else first_line(error)
        raise ValueError(f"{path} is a broken .npy file ({said}); save the vectors again.") from None
    if dtype.hasobject:
        raise ValueError(_refusal(path))
    if dtype.kind != "f" or dtype.itemsize not in (2, 4, 8) or len(shape) != 2:
        raise ValueError(f"{path} is {dtype} of shape {shape}; vectors are floating [row, dim], of 16, 32 or 64 bits.")
    if min(shape) < 1:
        raise ValueError(f"{path} holds no numbers (shape {shape}); embed the scenes again.")
    if shape[0] * shape[1] * dtype.itemsize > size - start:
        raise ValueError(
            f"{path} is a broken .npy file (shape {shape} needs {shape[0] * shape[1] * dtype.itemsize:,} bytes, "
            f"{size - start:,} are there); save the vectors again."
        )
    # Copy on write: the array stays on disk, and torch may take it without a copy.
    array = np.memmap(path, dtype, mode="c", offset=start, shape=shape, order="F" if fortran else "C")
    return torch.from_numpy(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def _read_parquet(path: Path) -> _File:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        # Not asking for the columns' metadata, which ends the process where they are broken.
        most, batches, held = max(_LEAST_BYTES, _MOST_PACKED * path.stat().st_size), list[Any](), 0
        for batch in file.iter_batches(batch_size=4096):
            batches.append(batch)
            held += batch.nbytes
            if held > most:
                raise ValueError(f"it unpacks to more than {most:,} bytes")
        table = pa.Table.from_batches(batches, schema=file.schema_arrow)
    except pa.ArrowMemoryError as error:  # mostly a broken length; if not, the remedy is the same
        raise ValueError(
            f"{path} is a broken Parquet file, or needs more memory than there is ({first_line(error)}); save it again."
        ) from None
    except Exception as error:  # whatever the library raises here is of the file
        raise ValueError(f"{path} is a broken Parquet file ({first_line(error)}); save it again.") from None
    twice = [name for name in table.column_names if table.column_names.count(name) > 1]
    if twice:
        raise ValueError(f"{path} has the column {twice[0]!r} twice; keep one of them.")
    are_lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    lists = [field.name for field in table.schema if any(is_list(field.type) for is_list in are_lists)]
    if len(lists) > 1:
        raise ValueError(f"{path} has the columns of lists {', '.join(lists)}; keep the one that holds the vectors.")
    if lists:
        others = tuple(composed(name) for name in table.column_names if name != lists[0])
        vectors = _of_lists(path, table.column(lists[0]))
        return _File({lists[0]: vectors}, table=read_table(path) if others else None, others=others)
    floating = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    if not floating or any(table.column(name).null_count for name in floating):
        raise ValueError(f"{path} has empty cells, or no columns; each row needs every number of its vector.")
    others = tuple(composed(name) for name in table.column_names if name not in floating)
    vectors = torch.from_numpy(np.stack([table.column(name).to_numpy() for name in floating], axis=1))
    return _File({"vectors": vectors}, table=read_table(path), others=others, bare=True)


def _of_lists(path: Path, column: Any) -> Tensor:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.call_function("list_value_length", [column]).to_numpy()
    if column.null_count or not len(column) or (lengths != lengths[0]).any() or not lengths[0]:
        odd = next((i for i, length in enumerate(lengths) if length != lengths[0] or not length), 0)
        raise ValueError(
            f"{path}, row {odd + 1}: the vector has another length than row 1, or none; all must be as long."
        )
    flat = pa.concat_arrays([chunk.flatten() for chunk in column.chunks])
    if flat.null_count or not pa.types.is_floating(flat.type):
        raise ValueError(f"{path}: the lists must hold floating numbers, none missing; got {flat.type}.")
    return torch.from_numpy(flat.to_numpy(zero_copy_only=False).reshape(len(column), -1).copy())


def _check_repeats(path: Path, embeddings: Embeddings) -> None:
    """Refuse the same scene with bitwise the same vector twice; only rows of repeated scenes are looked at."""
    repeated = embeddings.replicates > 0
    ids = embeddings.scenes.ids
    rows = torch.isin(ids, ids[repeated]).nonzero()[:, 0]
    first: dict[tuple[int, bytes], int] = {}
    for row in rows.tolist():
        content = embeddings.vectors[row].contiguous().view(torch.uint8).numpy().tobytes()
        key = (int(ids[row]), hashlib.sha256(content).digest())
        if first.setdefault(key, row) != row:
            raise ValueError(
                f"{path}, rows {first[key] + 1} and {row + 1} have the same labels "
                f"({embeddings.scenes.describe(row)}) and the same vector; leave one out (repeats of a scene need "
                "vectors of their own)."
            )
