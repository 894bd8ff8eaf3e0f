"""Tables as text: columns of cells from CSV or Parquet, and how to name a cell to the user.

Every cell is kept as it was written ("NA", "1e5", "007"); whether it is a number is for the reader of a column to say.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


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


def read_bytes(path: Path) -> bytes:
    """The file's content.

    Raises:
        ValueError: the file can't be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} can't be read ({error.strerror}); name a file that is there.") from None


def read_table(path: Path) -> Table:
    """A table from `.csv` (UTF-8; commas, or semicolons or tabs where the header has no comma) or `.parquet`.

    In Parquet, null and NaN are empty cells and whole floats are written without a point.

    Raises:
        ValueError: another kind of file, not UTF-8, rows of unequal length, a repeated column, or no row.
    """
    if path.suffix.lower() not in {".csv", ".parquet"}:
        raise ValueError(f"A table of labels is a .csv or .parquet file; got {path}.")
    table = _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)
    repeated = [name for name in table.names if table.names.count(name) > 1]
    if repeated:
        raise ValueError(f"{path} has the column {repeated[0]!r} twice; keep one of them.")
    if not table.num_rows:
        raise ValueError(f"{path} holds no scenes; the table is empty.")
    return table


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
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; save it as plain CSV.") from None
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    notes = () if separator == "," else (f"{path.name} was read with {separator!r} between its columns.",)
    return Table(path, names, len(rows), lambda name: columns[name], tuple(lines), notes)


def _read_parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is no Parquet file ({str(error).splitlines()[0]}); save it again.") from None

    def cells(name: str) -> list[str]:
        try:
            return [_text_of(value) for value in file.read(columns=[name]).column(name).to_pylist()]
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}, column {name}: broken ({str(error).splitlines()[0]}); save it again.") from None

    return Table(path, tuple(file.schema_arrow.names), file.metadata.num_rows, cells)


def _text_of(value: object) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    for name in keep:
        if name not in table.names:
            raise ValueError(f"{table.path} has no column {name!r} to keep rows by; it has {listed(table.names)}.")
    columns = {name: table.cells(name) for name in keep}
    rows = [row for row in range(table.num_rows) if all(columns[name][row] == cell for name, cell in keep.items())]
    said = " and ".join(f"{name} {cell!r}" if cell else f"no {name}" for name, cell in keep.items())
    if not rows:
        raise ValueError(f"No row of {table.path} has {said}; keep rows by other cells.")
    if len(rows) == table.num_rows:
        return table
    note = f"Of {table.num_rows} rows of {table.path.name}, the {len(rows)} with {said} were kept."
    lines = tuple(table.lines[row] for row in rows) if table.lines else ()

    def cells(name: str) -> list[str]:
        column = table.cells(name)
        return [column[row] for row in rows]

    return Table(table.path, table.names, len(rows), cells, lines, (*table.notes, note))


def listed(words: Sequence[str]) -> str:
    """Words as errors list them: the first twelve, and how many more."""
    return ", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")


def shown(text: str) -> str:
    """A cell as errors quote it: escaped, and cut if it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
