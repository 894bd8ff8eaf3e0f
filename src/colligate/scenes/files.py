"""Picture files of the user's: where they lie, and what they and their labels disagree on."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jaxtyping import Int
from torch import Tensor

from colligate.engine import Report
from colligate.scenes.decoding import decode
from colligate.scenes.decoding import open_picture as open_picture
from colligate.scenes.space import Scenes
from colligate.scenes.tables import Table, shown
from colligate.scenes.words import looks

# On any system: a path that goes up, or starts at a root or a drive.
_LEADS_OUT = re.compile(r"(^|[\\/])\.\.([\\/]|$)|^[\\/]|^[A-Za-z]:")
_FOLDERS = ("images", "pictures")
"""Folders beside a table in which its pictures may lie."""
_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
_LONGEST = 255
"""Bytes that a part of a path may take, on all systems that we know."""


def find_pictures(table: Table, notes: list[str]) -> tuple[Path, ...] | None:
    """Paths of the pictures that a table names, after making sure that none leaves the table's folder.

    They lie beside the table; or all in `images` or `pictures` there; or, where the table has a column `world_name`
    (PUG), each in the folder of its world. The first of these that holds the first row's picture is taken, and noted.

    Raises:
        ValueError: a cell that names no file, or one outside the folder.
    """
    column = next((name for name in ("picture", "filename") if name in table.names), None)
    if column is None:
        return None
    cells = table.cells(column)
    _check_names(table, column, cells)
    root = table.path.resolve().parent
    folders = _folders(table, root, cells, notes)
    inside: dict[Path, bool] = {}
    pictures: list[Path] = []
    respelt: list[int] = []
    for row, (folder, cell) in enumerate(zip(folders, cells, strict=True)):
        if _LEADS_OUT.search(cell) or _LEADS_OUT.search(folder):
            raise _leaves(table, row, column, cell)
        path = _as_spelt(root / folder, cell)
        if path != root / folder / cell:
            respelt.append(row)
        try:
            stays = _stays(path, root, inside)
        except (OSError, RuntimeError, ValueError):
            raise ValueError(
                f"{table.where(row, column)}: {shown(cell)} can't be followed (its links run in a circle, or no file "
                "can have this name); name the picture itself."
            ) from None
        if not stays:
            raise _leaves(table, row, column, cell)
        pictures.append(path)
    if respelt:
        notes.append(
            f"{len(respelt)} pictures of {table.path.name} (first: {table.place(respelt[0])}) were found under a name "
            "in another Unicode form or with the other separator of folders."
        )
    return tuple(pictures)


def _stays(path: Path, root: Path, inside: dict[Path, bool]) -> bool:
    """Whether a path and the links on it stay in the root; what is known of folders is kept in `inside`."""
    if path.parent not in inside:
        inside[path.parent] = path.parent.resolve().is_relative_to(root)
    return inside[path.parent] and (not path.is_symlink() or path.resolve().is_relative_to(root))


def _leaves(table: Table, row: int, column: str, cell: str) -> ValueError:
    return ValueError(
        f"{table.where(row, column)}: {shown(cell)} leaves the table's folder; put the picture inside it and name it "
        "from there."
    )


def _check_names(table: Table, column: str, cells: Sequence[str]) -> None:
    for row, cell in enumerate(cells):
        if problem := _no_name(cell):
            raise ValueError(f"{table.where(row, column)}: {shown(cell)} {problem}")


def _no_name(cell: str) -> str | None:
    """Why a cell can't be the name of a picture file, and what to do; None if it can."""
    if not cell.strip() or "\0" in cell:
        return "is no file name; name the row's picture."
    if re.match(r"data:|b['\"]|\{['\"]", cell):
        return "holds a picture itself, not its name; save the pictures as files and name these."
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", cell):
        return "is an address, and nothing is fetched; put the picture beside the table and name its file."
    parts = re.split(r"[\\/]", cell)
    if len(cell) > 4000 or any(len(part.encode(errors="replace")) > _LONGEST for part in parts):
        return "is too long for a file name; name the row's picture."
    if parts[-1].startswith("._"):
        return "is a shadow file of another system, no picture; name the file without the leading dot and underscore."
    return None


def _as_spelt(folder: Path, cell: str) -> Path:
    """The file that a cell names, if need be in another Unicode form or with the other separator of folders."""
    path = folder / cell
    if (cell.isascii() and "\\" not in cell) or is_there(path):
        return path
    spelt = (
        folder / unicodedata.normalize(form, name)
        for name in (cell, cell.replace("\\", "/"))
        for form in ("NFC", "NFD")
    )
    return next((other for other in spelt if is_there(other)), path)


def is_there(path: Path) -> bool:
    """Whether a path names something; one that no file can have names nothing.

    Example:
        >>> is_there(Path("a" * 5000))
        False
    """
    try:
        return path.exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _folders(table: Table, root: Path, cells: Sequence[str], notes: list[str]) -> Sequence[str]:
    """The folder of each row's picture, from the table's."""
    beside = [""] * len(cells)
    choices = [beside, *([name] * len(cells) for name in _FOLDERS)]
    choices += [table.cells("world_name")] if "world_name" in table.names else []
    for tried in choices:
        if not any(_LEADS_OUT.search(name) for name in (tried[0], cells[0])) and is_there(
            _as_spelt(root / tried[0], cells[0])
        ):
            if tried is not beside:
                where = f"the folder {tried[0]}" if tried[0] in _FOLDERS else "the folder of each row's world_name"
                notes.append(f"The pictures of {table.path.name} lie in {where}.")
            return tried
    return beside


def check_files(
    pictures: tuple[Path, ...],
    scenes: Scenes,
    rows: Int[Tensor, " row"] | None = None,
    report: Report | None = None,
) -> tuple[str, ...]:
    """Open the picture of every row, or of the given ones, and say what a reader should know of them.

    Pictures are the same if their pixels are, whatever their files are called and however they were saved.

    Args:
        pictures: a file for each row.
        scenes: the labels of the rows.
        rows: rows to look at; all by default.
        report: called with a stage, how many pictures were opened, and how many there are.

    Raises:
        ValueError: names the first row whose picture is missing or can't be opened, or two rows with the same picture:
            their labels differ, or they show the same scene twice.
    """
    listed = range(len(pictures)) if rows is None else rows.tolist()
    missing = [row for row in listed if not is_there(pictures[row])]
    if missing:
        others = f", and so are {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(
            f"Row {missing[0] + 1}: Picture {pictures[missing[0]]} is missing{others}; "
            f"put it there or leave its row out.{_near(pictures[missing[0]])}"
        )
    first: dict[str, int] = {}
    turned: list[int] = []
    vanished: list[int] = []
    modes: Counter[str] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    for done, row in enumerate(listed, start=1):
        picture, mode, rotated, gone = decode(pictures[row], row)
        sizes[picture.size] += 1
        modes[mode] += 1
        if rotated:
            turned.append(row)
        if gone:
            vanished.append(row)
        digest = hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).hexdigest()
        other = first.setdefault(digest, row)
        if other != row:
            raise ValueError(
                f"Row {row + 1}: Picture {pictures[row]} is the same as row {other + 1}'s {pictures[other].name}, "
                + ("once both are laid over white, on which all that they show vanishes; " if gone else "")
                + _clash(scenes, row, other)
            )
        if report is not None:
            report("opening pictures", done, len(listed))
    return _of_files(sizes, modes, turned, vanished)


def _clash(scenes: Scenes, row: int, other: int) -> str:
    """What is wrong with one picture in two rows, and what to do."""
    if int(scenes.ids[other]) != int(scenes.ids[row]):
        return f"but the labels differ ({scenes.describe(row)}; {scenes.describe(other)}); put one of them right."
    return f"and so are the labels ({scenes.describe(row)}); leave one out (repeats of a scene need other pictures)."


def _near(path: Path) -> str:
    """A file in the same folder whose name differs in case or Unicode form only."""
    try:
        beside = [other.name for other in path.parent.iterdir() if looks(other.name) == looks(path.name)]
    except OSError:
        return ""
    return f" There is {shown(min(beside))}; names must agree in every letter." if beside else ""


def _of_files(
    sizes: "Counter[tuple[int, int]]", modes: "Counter[str]", turned: list[int], vanished: list[int]
) -> tuple[str, ...]:
    """What was found in the pictures, in sentences."""
    notes: list[str] = []
    if len(sizes) > 1:
        (width, height), count = sizes.most_common(1)[0]
        notes.append(f"The pictures have {len(sizes)} sizes; {count} of {sizes.total()} are {width}x{height}.")
    other = {mode: count for mode, count in modes.items() if mode != "RGB"}
    if other:
        listed = ", ".join(f"{count} {mode}" for mode, count in sorted(other.items()))
        notes.append(f"Not all pictures are RGB ({listed}); they are read as RGB, transparent parts over white.")
    if turned:
        notes.append(f"Pictures turned upright as their EXIF data say: {len(turned)} (first: row {turned[0] + 1}).")
    if vanished:
        notes.append(
            f"In {len(vanished)} pictures (first: row {vanished[0] + 1}) all content vanishes once transparent parts "
            "lie over white; save them with a background."
        )
    return tuple(notes)


def unlisted(pictures: tuple[Path, ...]) -> tuple[Path, ...]:
    """Picture files that lie in the same folders as those of a world and that no row names.

    Hidden files are none, among them the shadow files of other systems (`._x.png`).

    Example:
        >>> unlisted(())
        ()
    """
    known, folders = set(pictures), {path.parent for path in pictures}
    lying = (path for folder in sorted(folders) if folder.is_dir() for path in sorted(folder.iterdir()))
    return tuple(
        path
        for path in lying
        if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".") and path not in known
    )
