"""Rows of files of foils, each with the place by which it is named, and what may stand in a cell."""

import ast
import io
import json
import re
import tokenize
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from colligate.scenes.tables import listed, read_bytes, read_table, shown

_ENCODINGS = {
    b"\xff\xfe\x00\x00": "UTF-32", b"\x00\x00\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16",
}  # fmt: skip
"""How files of other encodings begin."""
LONGEST_LIST = 100_000
"""Characters of a text that is still looked at as a list."""


class RowError(ValueError):
    """A row that can't be used, and why: a clause that goes on from the row's place."""


class _Repeated(dict[str, Any]):
    """An object of JSON in which a name stands twice, of which one would be lost."""

    name = ""


@dataclass(frozen=True)
class Line:
    """A row of a file.

    Attributes:
        place: how it is named to the user: its line, or its row from 1 and its key.
        cells: what it holds, by column.
        problem: why it can't be read at all.
    """

    place: str
    cells: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str | None = None


@dataclass(frozen=True)
class Lines:
    """The rows of a file.

    Attributes:
        path: the file.
        rows: in their order.
        lists: columns that are typed as lists, where the file has types.
        notes: what a reader should know about how it was read.
    """

    path: Path
    rows: tuple[Line, ...]
    lists: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, None]:
        """All columns."""
        return dict.fromkeys(name for row in self.rows for name in row.cells)


def read_lines(path: Path) -> Lines:
    """The rows of a `.csv`, `.parquet`, `.json` or `.jsonl` file.

    Raises:
        ValueError: another kind of file, or one that holds no rows.
    """
    suffix = path.suffix.lower()
    if suffix in {".csv", ".parquet"}:
        table = read_table(path, lists=True)
        columns = {name: table.cells(name) for name in table.names}
        rows = (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))
        lines = tuple(Line(table.place(i), row) for i, row in enumerate(rows))
        return Lines(path, lines, _typed_lists(path) if suffix == ".parquet" else frozenset(), table.notes)
    if suffix not in {".json", ".jsonl"}:
        raise ValueError(f"{path} is no table of foils; give .csv, .parquet, .json or .jsonl.")
    raw = read_bytes(path)
    encoding = next((name for start, name in _ENCODINGS.items() if raw.startswith(start)), None)
    if encoding is not None:
        raise ValueError(f"{path} is written in {encoding}; save it as UTF-8.")
    # Bytes that aren't UTF-8 are kept apart as half characters, so that the row and the field that hold them are named.
    text = raw.decode("utf-8", errors="surrogateescape").removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    rows = _of_lines(text) if suffix == ".jsonl" else _of_document(path, text)
    if not rows or not any(row.cells for row in rows):
        first = next((f" ({row.place} {row.problem})" for row in rows if row.problem), "")
        raise ValueError(f"{path} holds no list of objects with captions and foils{first}; {_LAYOUTS}")
    return Lines(path, rows)


_LAYOUTS = "docs/cross-modal.md lists the layouts that are read."


def _typed_lists(path: Path) -> frozenset[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return frozenset(
        one.name for one in pq.read_schema(path) if pa.types.is_list(one.type) or pa.types.is_large_list(one.type)
    )


def _of_lines(text: str) -> tuple[Line, ...]:
    """Rows of JSON, one a line; other line separators than the line feed are text."""
    rows = list[Line]()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows.append(_line(f"line {number}", json.loads(line, object_pairs_hook=_object)))
            except (ValueError, RecursionError) as error:
                rows.append(Line(f"line {number}", problem=f"is no JSON ({_reason(error)}); write it again"))
    return tuple(rows)


def _of_document(path: Path, text: str) -> tuple[Line, ...]:
    """Rows of a list, or of an object of them by key."""
    try:
        read: Any = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        where = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"{path} is no JSON ({_reason(error)}{where}); download or save it again.") from None
    if isinstance(read, _Repeated):
        raise ValueError(f"{path} holds the key {shown(read.name)} twice; give every row a key of its own.")
    if isinstance(read, dict):
        keyed = cast("dict[str, Any]", read)
        return tuple(
            _line(f"row {i}" if key == str(i) else f"row {i} (key {shown(key)})", row)
            for i, (key, row) in enumerate(keyed.items(), start=1)
        )
    rows = cast("list[Any]", read) if isinstance(read, list) else []
    return tuple(_line(f"row {i}", row) for i, row in enumerate(rows, start=1))


def _line(place: str, row: Any) -> Line:
    if isinstance(row, _Repeated):
        return Line(place, dict(row), f"has {shown(row.name)} twice, of which one would be lost; keep one")
    if not isinstance(row, dict):
        return Line(place, problem=f"is {kind_of(row)}; give an object with a caption and a foil")
    return Line(place, cast("dict[str, Any]", row))


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    names = [name for name, _ in pairs]
    repeated = _Repeated(found)
    repeated.name = next(name for name in names if names.count(name) > 1)
    return repeated


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error).split(";")[0]


def kind_of(value: object) -> str:
    """What JSON calls a value.

    Example:
        >>> kind_of(3), kind_of(None), kind_of({"bytes": ""})
        ('a number', 'null', 'an object')
    """
    if value is None:
        return "null"
    kinds: dict[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return kinds.get(type(value), "an object")


class Texts:
    """Texts of cells in one Unicode form, counting those that were in another."""

    def __init__(self) -> None:
        self.composed = 0

    def of(self, row: Line, names: Sequence[str]) -> str:
        """The text of the first of these columns that the row has.

        Raises:
            RowError: it has none, or no text stands there.
        """
        name = next((name for name in names if name in row.cells), None)
        if name is None:
            looked = f" (looked for {listed(names)})" if len(names) > 1 else ""
            raise RowError(f"has no {names[0]}{looked}; add it")
        return self.plain(row.cells[name], name)

    def plain(self, value: Any, name: str) -> str:
        """A value as text.

        Raises:
            RowError: it is empty, no text, not UTF-8, or half a character.
        """
        if not isinstance(value, str):
            raise RowError(f"has {kind_of(value)} as its {name}; give a text")
        if not value.strip():
            raise RowError(f"has an empty {name}; fill it in")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            code = ord(value[error.start])
            if 0xDC80 <= code <= 0xDCFF:
                raise RowError(
                    f"has byte {code - 0xDC00:#04x} in its {name}, which is not UTF-8; save it as UTF-8"
                ) from None
            raise RowError(f"has half a character ({code:#06x}) in its {name}; write it whole") from None
        composed = unicodedata.normalize("NFC", value)
        self.composed += composed != value
        return composed

    def single(self, row: Line, names: Sequence[str]) -> str:
        """The same where a list, written as text or not, would be several texts.

        Raises:
            RowError: also where it is a list.
        """
        name = next((name for name in names if name in row.cells), names[0])
        if list_of(row.cells.get(name)) is not None:
            raise RowError(f"has a list as its {name}; give one text, and each foil a row of its own")
        return self.of(row, names)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell of them."""
        if not self.composed:
            return ()
        many = "1 text was" if self.composed == 1 else f"{self.composed} texts were"
        return (f"{many} read in Unicode's composed form (NFC), in which the same letters are the same text.",)


def list_of(value: Any) -> list[Any] | None:
    """The items of a list, also of one that is written as text (in JSON's or Python's way); None for anything else.

    Example:
        >>> list_of('["a cat", "a dog"]'), list_of("['a cat', 'a dog']"), list_of("[sic] a cat"), list_of("['a' 'b']")
        (['a cat', 'a dog'], ['a cat', 'a dog'], None, None)
    """
    if isinstance(value, list):
        return cast("list[Any]", value)
    if not isinstance(value, str) or len(value) > LONGEST_LIST or not re.fullmatch(r"\s*\[.*\]\s*", value, re.DOTALL):
        return None
    try:
        found: Any = json.loads(value)
    except (ValueError, RecursionError):
        return _python_list(value.strip())
    return cast("list[Any]", found) if isinstance(found, list) else None


def _python_list(text: str) -> list[Any] | None:
    """A list of texts as Python writes it; texts side by side without a comma would be glued, so they are no list."""
    try:
        tokens = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.string.strip()]
        strings, commas = tokens[1:-1:2], tokens[2:-1:2]
        if any(one.type != tokenize.STRING for one in strings) or any(one.string != "," for one in commas):
            return None
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, tokenize.TokenError, IndentationError, RecursionError, MemoryError):
        return None
    return [*found] if isinstance(found, list) else None
