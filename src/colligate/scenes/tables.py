"""Tables as text: columns of cells from CSV or Parquet, and how to name a cell to the user.

Every cell is kept as it was written ("NA", "1e5", "007"); whether it is a number is for the reader of a column to say.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colligate.scenes.regular import open_regular, read_regular
from colligate.scenes.words import composed

if TYPE_CHECKING:
    import pandas as pd

MOST_CELLS = 20_000_000
"""Cells up to which a table is read: its text must fit into memory."""


@dataclass(frozen=True)
class Table:
    """Columns of text, and how to name a cell of them to the user.

    Attributes:
        path: the file.
        names: the columns' names, in order.
        num_rows: number of rows below the header.
        cells: the text of each cell of a column.
        lines: the line of the file on which each row ends (CSV only).
        notes: what a reader should know about how the file was read.
    """

    path: Path
    names: tuple[str, ...]
    num_rows: int
    cells: Callable[[str], Sequence[str]]
    lines: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def where(self, row: int, column: str) -> str:
        """The file, place of a row (counted from 0) and column, as errors name them."""
        return f"{self.path}, {self.place(row)}, column {column}"

    def place(self, row: int) -> str:
        """Where a row (counted from 0) stands, as an editor counts: its line in a CSV file, else its row from 1."""
        return f"line {self.lines[row]}" if self.lines else f"row {row + 1}"

    def taken(self, rows: Sequence[int]) -> "Table":
        """The table of the given rows, in that order.

        Example:
            >>> Table(Path("a.csv"), ("id",), 2, lambda name: ("x", "y")).taken([1]).cells("id")
            ['y']
        """
        lines = tuple(self.lines[row] for row in rows) if self.lines else ()

        def cells(name: str) -> list[str]:
            column = self.cells(name)
            return [column[row] for row in rows]

        return Table(self.path, self.names, len(rows), cells, lines, self.notes)


def read_bytes(path: Path) -> bytes:
    """The file's content.

    Raises:
        ValueError: the file can't be read: none is there, it isn't regular (a pipe, a device), or it is too large.
    """
    try:
        return read_regular(path)
    except FileNotFoundError as error:
        raise ValueError(str(error)) from None


def read_table(path: Path, *, lists: bool = False) -> Table:
    """A table from `.csv` (UTF-8; commas, or semicolons or tabs where the header has no comma) or `.parquet`.

    In Parquet, null and NaN are empty cells, whole floats are written without a point, and True and False as Python
    and pandas write them into CSV.

    Args:
        path: file.
        lists: cells of Parquet may be lists, which are written as Python writes them; else a cell is text or a number.

    Raises:
        ValueError: another kind of file, not UTF-8, rows of unequal length, a repeated column, no row, or too many.
    """
    if path.suffix.lower() not in {".csv", ".parquet"}:
        raise ValueError(f"A table of labels is a .csv or .parquet file; got {path}.")
    return _looked_over(_read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path, lists=lists))


def table_of(frame: "pd.DataFrame", name: str = "labels") -> Table:
    """A table from a pandas DataFrame, its cells written as those of Parquet are; the index is left out.

    Args:
        frame: the columns.
        name: what messages call it.

    Raises:
        ValueError: a repeated column, a cell that is neither text nor a number, no row, or too many.

    Example:
        >>> import pandas as pd
        >>> table_of(pd.DataFrame({"slot1_color": ["red", None], "id": [1.0, 2.0]})).cells("slot1_color")
        ['red', '']
    """
    names, path = tuple(map(str, frame.columns)), Path(name)
    if len(frame) * max(len(names), 1) > MOST_CELLS:
        raise ValueError(_too_many(path))

    def cells(column: str) -> list[str]:
        written = list[str]()
        for row, value in enumerate(frame.iloc[:, names.index(column)].tolist()):
            text = _text_of(None if _is_missing(value) else value)
            if isinstance(text, bytes) or isinstance(value, list | tuple | dict | set):
                raise ValueError(
                    f"{path}, row {row + 1}, column {column}: a {type(value).__name__}; a cell is text or a number."
                )
            written.append(text)
        return written

    return _looked_over(Table(path, names, len(frame), cells))


def _is_missing(value: object) -> bool:
    """Whether pandas counts a cell as missing."""
    import pandas as pd

    return value is pd.NA or value is pd.NaT or value is None


def _looked_over(table: Table) -> Table:
    """The table with its names in one form.

    Raises:
        ValueError: a repeated column, or no row.
    """
    table = _in_one_form(table)
    repeated = [name for name in table.names if table.names.count(name) > 1]
    if repeated:
        raise ValueError(f"{table.path} has the column {repeated[0]!r} twice; keep one of them.")
    if not table.num_rows:
        raise ValueError(f"{table.path} holds no scenes; the table is empty.")
    return table


def _in_one_form(table: Table) -> Table:
    """The table with its columns' names in Unicode's composed form, so that a name is found however it is written."""
    names = tuple(composed(name) for name in table.names)
    if names == table.names:
        return table
    given = dict(zip(names, table.names, strict=True))
    changed = next(name for name, old in given.items() if name != old)
    note = f"Columns of {table.path.name} are in another Unicode form, such as {shown(changed)}; they are read as one."
    return replace(table, names=names, cells=lambda name: table.cells(given[name]), notes=(*table.notes, note))


def _read_csv(path: Path) -> Table:
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: byte {raw[error.start]:#04x} is not UTF-8; save the table as UTF-8."
        ) from None
    header = text.split("\n", 1)[0]
    separator = "," if "," in header else next((s for s in ";\t" if s in header), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows, lines = [], []
    try:
        names = tuple(name.strip() for name in next(reader, []))
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise ValueError(
                    f"{path}, line {reader.line_num}: {len(row)} cells for {len(names)} columns; "
                    "give each column one cell, and quote cells that hold the separator."
                )
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) * len(names) > MOST_CELLS:
                raise ValueError(_too_many(path))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; save it as plain CSV.") from None
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    notes = () if separator == "," else (f"{path.name} was read with {separator!r} between its columns.",)
    return Table(path, names, len(rows), lambda name: columns[name], tuple(lines), notes)


def _too_many(path: Path) -> str:
    return f"{path} has more than {MOST_CELLS:,} cells, which is more than is read; divide the table."


def _read_parquet(path: Path, *, lists: bool) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        open_regular(path).close()  # a pipe or a folder is told before the library opens it
        file = pq.ParquetFile(path)
        names, num_rows, schema = tuple(file.schema_arrow.names), file.metadata.num_rows, file.schema_arrow
    except FileNotFoundError as error:
        raise ValueError(str(error)) from None
    except (pa.ArrowException, OSError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"{path} is no Parquet file ({first_line(error)}); save it again.") from None
    if num_rows * max(len(names), 1) > MOST_CELLS:
        raise ValueError(_too_many(path))

    def cells(name: str) -> list[str]:
        kind = schema.field(name).type
        listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if pa.types.is_nested(kind) and not (lists and listed):
            raise ValueError(f"{path}, column {name} holds {shown(str(kind))}; a cell is text or a number.")
        try:
            # Each word once, whatever number of rows holds it.
            words = [] if listed else [name]
            column = pq.ParquetFile(path, read_dictionary=words).read(columns=[name]).column(name)
            given = [value for chunk in column.chunks for value in _of_chunk(chunk)]
        except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path}, column {name}: broken ({first_line(error)}); save it again.") from None
        if len(given) != num_rows:
            raise ValueError(f"{path}, column {name}: broken ({len(given)} cells of {num_rows} rows); save it again.")
        for row, value in enumerate(given):
            if isinstance(value, bytes):
                raise ValueError(f"{path}, row {row + 1}, column {name}: the cell is not UTF-8; save it as text.")
        return [str(value) for value in given]

    return Table(path, names, num_rows, cells)


def _of_chunk(chunk: Any) -> list[str | bytes]:
    """The cells of a piece of a Parquet column as text; one that isn't UTF-8 stays bytes."""
    import pyarrow as pa

    if pa.types.is_dictionary(chunk.type):
        words = _of_chunk(chunk.dictionary)
        return ["" if index is None else words[index] for index in chunk.indices.to_pylist()]
    if any(is_text(chunk.type) for is_text in (pa.types.is_string, pa.types.is_large_string)):
        chunk = chunk.cast(pa.large_binary())
    return [_text_of(value) for value in chunk.to_pylist()]


def _text_of(value: object) -> str | bytes:
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return str(value)


def first_line(error: BaseException) -> str:
    """What a library said of a file, in one line and not at length."""
    lines = str(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__


def keep_of(words: Sequence[str]) -> dict[str, str]:
    """Column -> cell of the rows to keep, from words such as `world_name=Desert`; nothing after the sign: empty cells.

    Raises:
        ValueError: a word without a column or sign, or a column given twice.

    Example:
        >>> keep_of(["world_name=Desert", "character_pos="])
        {'world_name': 'Desert', 'character_pos': ''}
    """
    found: dict[str, str] = {}
    for word in words:
        name, sign, cell = word.partition("=")
        if not name or not sign:
            raise ValueError(f"--keep takes column=cell, such as world_name=Desert; got {word!r}.")
        if name in found:
            raise ValueError(f"--keep names the column {name!r} twice; a row has one cell in it, so give it once.")
        found[name] = cell
    return found


def kept_rows(table: Table, keep: Mapping[str, str]) -> Table:
    """The rows whose cells are as asked for, with a note.

    Raises:
        ValueError: no such column, or no row has those cells.
    """
    keep = {composed(name): cell for name, cell in keep.items()}
    for name in keep:
        if name not in table.names:
            raise ValueError(f"{table.path} has no column {name!r} to keep rows by; it has {listed(table.names)}.")
    columns = {name: [composed(cell) for cell in table.cells(name)] for name in keep}
    wanted = {name: composed(cell) for name, cell in keep.items()}
    rows = [row for row in range(table.num_rows) if all(columns[name][row] == cell for name, cell in wanted.items())]
    said = " and ".join(f"{name} {cell!r}" if cell else f"no {name}" for name, cell in keep.items())
    if not rows:
        raise ValueError(f"No row of {table.path} has {said}; keep rows by other cells.")
    if len(rows) == table.num_rows:
        return table
    note = f"Of {table.num_rows} rows of {table.path.name}, the {len(rows)} with {said} were kept."
    return replace(table.taken(rows), notes=(*table.notes, note))


def listed(words: Sequence[str]) -> str:
    """Words as errors list them: the first twelve, and how many more."""
    return ", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")


def shown(text: str) -> str:
    """A cell as errors quote it: escaped, and cut if it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
