"""Picture files of the user's: where they lie, and opening them so that nothing is shown wrongly."""

import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import Int
from torch import Tensor

from colligate.engine import Report
from colligate.scenes.space import Scenes
from colligate.scenes.tables import Table, shown

if TYPE_CHECKING:
    from PIL.Image import Image

# On any system: a path that goes up, or starts at a root or a drive.
_LEADS_OUT = re.compile(r"(^|[\\/])\.\.([\\/]|$)|^[\\/]|^[A-Za-z]:")
_FOLDERS = ("images", "pictures")
"""Folders beside a table in which its pictures may lie."""
_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
_ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held."""


def open_picture(path: Path, row: int | None = None) -> "Image":
    """A picture file as RGB, turned as its EXIF data say; transparent parts are laid over white.

    Args:
        path: the file.
        row: the row that names it, for errors.

    Raises:
        ValueError: the file is missing, truncated, no picture, animated, has more than 8 bits a channel, or would
            unpack to more pixels than Pillow's limit (a decompression bomb).
    """
    return _opened(path, row)[0]


def _opened(path: Path, row: int | None) -> tuple["Image", str, bool]:
    """The picture as RGB, its mode in the file, and whether it was turned; errors name the row."""
    try:
        return _decoded(path)
    except ValueError as error:
        raise ValueError(str(error) if row is None else f"Row {row + 1}: {error}") from None


def _decoded(path: Path) -> tuple["Image", str, bool]:
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                # A camera's MPO file holds the picture first and previews after it.
                if getattr(opened, "n_frames", 1) > 1 and opened.format != "MPO":
                    raise ValueError(f"Picture {path} is animated or has several pages; give one of them.")
                opened.load()
                mode, rotated = opened.mode, opened.getexif().get(_ORIENTATION, 1) not in (0, 1)
                turned = ImageOps.exif_transpose(opened)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(
            f"Picture {path} unpacks to more than {Image.MAX_IMAGE_PIXELS:,} pixels, like a decompression bomb; "
            "give a smaller one."
        ) from None
    except FileNotFoundError:
        raise ValueError(f"Picture {path} is missing; put it there or leave its row out.") from None
    except (OSError, SyntaxError, EOFError) as error:
        raise ValueError(f"Picture {path} can't be read ({error}); it is truncated, broken or no picture.") from None
    if turned.mode.startswith(("I", "F")):
        raise ValueError(f"Picture {path} has more than 8 bits a channel ({turned.mode}); save it as 8-bit RGB.")
    if turned.has_transparency_data:
        laid = turned.convert("RGBA")
        turned = Image.alpha_composite(Image.new("RGBA", laid.size, "white"), laid)
    return turned.convert("RGB"), mode, rotated


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
    for row, cell in enumerate(cells):
        if not cell.strip() or "\0" in cell:
            raise ValueError(f"{table.where(row, column)}: {shown(cell)} is no file name; name the row's picture.")
    root = table.path.resolve().parent
    folders = _folders(table, root, cells, notes)
    inside: dict[Path, bool] = {}
    pictures: list[Path] = []
    for row, (folder, cell) in enumerate(zip(folders, cells, strict=True)):
        path = root / folder / cell
        stays = not _LEADS_OUT.search(cell) and not _LEADS_OUT.search(folder)
        if stays:
            if path.parent not in inside:
                inside[path.parent] = path.parent.resolve().is_relative_to(root)
            stays = inside[path.parent] and (not path.is_symlink() or path.resolve().is_relative_to(root))
        if not stays:
            raise ValueError(
                f"{table.where(row, column)}: {shown(cell)} leaves the table's folder; put the picture inside it and "
                "name it from there."
            )
        pictures.append(path)
    return tuple(pictures)


def _folders(table: Table, root: Path, cells: Sequence[str], notes: list[str]) -> Sequence[str]:
    """The folder of each row's picture, from the table's."""
    beside = [""] * len(cells)
    choices = [beside, *([name] * len(cells) for name in _FOLDERS)]
    choices += [table.cells("world_name")] if "world_name" in table.names else []
    for tried in choices:
        if not any(_LEADS_OUT.search(name) for name in (tried[0], cells[0])) and (root / tried[0] / cells[0]).exists():
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
    missing = [row for row in listed if not pictures[row].exists()]
    if missing:
        others = f", and so are {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(
            f"Row {missing[0] + 1}: Picture {pictures[missing[0]]} is missing{others}; "
            "put it there or leave its row out."
        )
    first: dict[str, int] = {}
    turned: list[int] = []
    modes: Counter[str] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    for done, row in enumerate(listed, start=1):
        picture, mode, rotated = _opened(pictures[row], row)
        sizes[picture.size] += 1
        modes[mode] += 1
        if rotated:
            turned.append(row)
        digest = hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).hexdigest()
        other = first.setdefault(digest, row)
        if other != row:
            raise ValueError(
                f"Row {row + 1}: Picture {pictures[row]} is the same as row {other + 1}'s {pictures[other].name}, "
                + _clash(scenes, row, other)
            )
        if report is not None:
            report("opening pictures", done, len(listed))
    return _of_files(sizes, modes, turned)


def _clash(scenes: Scenes, row: int, other: int) -> str:
    """What is wrong with one picture in two rows, and what to do."""
    if int(scenes.ids[other]) != int(scenes.ids[row]):
        return f"but the labels differ ({scenes.describe(row)}; {scenes.describe(other)}); put one of them right."
    return f"and so are the labels ({scenes.describe(row)}); leave one out (repeats of a scene need other pictures)."


def _of_files(sizes: "Counter[tuple[int, int]]", modes: "Counter[str]", turned: list[int]) -> tuple[str, ...]:
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
    return tuple(notes)


def unlisted(pictures: tuple[Path, ...]) -> tuple[Path, ...]:
    """Picture files that lie in the same folders as those of a world and that no row names.

    Example:
        >>> unlisted(())
        ()
    """
    known, folders = set(pictures), {path.parent for path in pictures}
    lying = (path for folder in sorted(folders) if folder.is_dir() for path in sorted(folder.iterdir()))
    return tuple(path for path in lying if path.suffix.lower() in _SUFFIXES and path not in known)
