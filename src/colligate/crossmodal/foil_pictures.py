"""Pictures that files of foils name: where they lie, and the part of them that is meant."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colligate.crossmodal.foil_lines import Line, RowError, kind_of
from colligate.scenes.files import open_picture
from colligate.scenes.tables import shown

if TYPE_CHECKING:
    from PIL.Image import Image

BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
"""Columns of the part of a picture that is meant: left, top, width and height, in pixels."""
SUFFIXES = (".png", ".jpg", ".jpeg")
"""What may be missing from a picture's name."""
WIDEST = 1_000_000
"""Pixels that a side may have at most."""
LONGEST_NAME = 1_000


@dataclass(frozen=True)
class PictureFile:
    """A picture on disk, or a part of it.

    Attributes:
        path: where it lies.
        box: left, top, width and height of the part, in pixels; None: all of it.
    """

    path: Path
    box: tuple[int, int, int, int] | None = None

    def open(self) -> "Image":
        """The picture as RGB.

        Raises:
            ValueError: it can't be read, or the part lies outside it.
        """
        picture = open_picture(self.path)
        if self.box is None:
            return picture
        left, top, width, height = self.box
        if left < 0 or top < 0 or left + width > picture.width or top + height > picture.height:
            raise ValueError(
                f"The box {self.box} leaves the picture {self.path} of {picture.width}x{picture.height}; "
                "give one that lies inside."
            )
        return picture.crop((left, top, left + width, top + height))


def box_of(row: Line) -> tuple[int, int, int, int] | None:
    """The part of the picture that a row means; None where it names no part.

    Raises:
        RowError: some of the four numbers are missing, or one is no whole number of pixels.
    """
    given = [name for name in BOX if name in row.cells]
    if not given:
        return None
    missing = [name for name in BOX if name not in row.cells]
    if missing:
        raise RowError(
            f"has {given[0]} but no {missing[0]}; give {', '.join(BOX)}, or none of them for the whole picture"
        )
    left, top, width, height = (_pixels(row.cells, name, least=int(name in BOX[2:])) for name in BOX)
    return left, top, width, height


def _pixels(cells: Mapping[str, Any], name: str, least: int) -> int:
    given = cells[name]
    expected = f"a whole number of pixels, {least} or more"
    try:
        number = float(given) if isinstance(given, int | float | str) and not isinstance(given, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not number.is_integer() or not least <= number <= WIDEST:
        what = kind_of(given) if given is None or isinstance(given, bool | list | dict) else shown(str(given))
        raise RowError(f"has {what} as its {name}; give {expected}")
    return int(number)


class Pictures:
    """Pictures by name, each once.

    Args:
        path: of the file that names them.
        folder: where they lie.

    Raises:
        ValueError: there is no such folder.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        if not folder.is_dir():
            raise ValueError(f"There is no folder {folder} of pictures; name the folder that {path.name} speaks of.")
        self.folder, self.root = folder, folder.resolve()
        self.files = dict[PictureFile, int]()
        self.renamed = dict[str, Path]()
        self._found = dict[str, Path]()
        self._lying = dict[Path, dict[str, str]]()

    def place(self, value: Any, name: str, box: tuple[int, int, int, int] | None = None) -> int:
        """The picture's number; a name may leave out its ending, or lie in a folder called images.

        Raises:
            RowError: no picture has that name, or more than one has.
        """
        if not isinstance(value, str):
            raise RowError(f"has {kind_of(value)} as its {name}; save the picture as a file and give its name")
        self._check(value, name)
        if value not in self._found:
            self._found[value] = self._look(value, name)
        return self.files.setdefault(PictureFile(self._found[value], box), len(self.files))

    @staticmethod
    def _check(value: str, name: str) -> None:
        """Refuse what is no file's name."""
        start = value.lstrip()[:60].lower()
        if not start:
            raise RowError(f"has an empty {name}; fill it in")
        if start.startswith("data:") or (start.startswith("{") and ("bytes" in start or "path" in start)):
            raise RowError(f"holds a picture itself in {name} ({shown(value)}); save it as a file and give its name")
        if start.startswith(("http://", "https://")):
            raise RowError(f"has an address as its {name} ({shown(value)}); download it and give the file's name")
        if "\0" in value or len(value) > LONGEST_NAME:
            raise RowError(f"has {shown(value)} as its {name}, which is no file's name")

    def _look(self, value: str, name: str) -> Path:
        for said in _spellings(value):
            for start in (self.folder, self.folder / "images"):
                exact = self._file(start, said, name)
                endings = [file for suffix in SUFFIXES if (file := self._file(start, f"{said}{suffix}", name))]
                if exact is None and len(endings) > 1:
                    both = " and ".join(file.name for file in endings[:2])
                    raise RowError(f"names the picture {shown(value)}, which {both} both may be; write its ending")
                found = exact or next(iter(endings), None)
                if found is not None:
                    if said != value:
                        self.renamed[value] = found
                    return found
        raise RowError(f"names the picture {shown(value)}, not found in {self.folder}{self._hint(value)}; put it there")

    def _file(self, start: Path, said: str, name: str) -> Path | None:
        """The file of that name if there is one inside the folder."""
        path = start / said
        try:
            inside = path.resolve().is_relative_to(self.root)
            there = inside and path.is_file()
        except (OSError, RuntimeError, ValueError):  # links in a circle, a name that is too long, half a character
            raise RowError(f"has {shown(said)} as its {name}, which can't be looked up; name a file") from None
        if not inside:
            raise RowError(f"names the picture {shown(said)}, which leads out of {self.folder}; put it inside")
        return path if there else None

    def _hint(self, value: str) -> str:
        """A file whose name differs in capitals only, or one that is no regular file."""
        path = self.folder / value.replace("\\", "/")
        try:
            if path.exists():
                return " as a regular file"
            if path.parent not in self._lying:
                names = (one.name for one in path.parent.iterdir()) if path.parent.is_dir() else ()
                self._lying[path.parent] = {name.casefold(): name for name in names}
        except OSError:
            return ""
        alike = next(
            (self._lying[path.parent][name.casefold()] for name in (path.name, *(path.name + s for s in SUFFIXES))
             if name.casefold() in self._lying[path.parent]), None,
        )  # fmt: skip
        return "" if alike is None else f" (capitals count: there is {shown(alike)})"

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell of them."""
        if not self.renamed:
            return ()
        first, path = next(iter(self.renamed.items()))
        many = "1 picture was" if len(self.renamed) == 1 else f"{len(self.renamed)} pictures were"
        return (f"{many} found in another Unicode form or with / for \\ ({shown(first)} is {shown(path.name)}).",)


def _spellings(value: str) -> Sequence[str]:
    """A name as it stands, then with this system's separators and in Unicode's two forms."""
    forms = (form for said in (value, value.replace("\\", "/")) for form in (
        said, unicodedata.normalize("NFC", said), unicodedata.normalize("NFD", said)
    ))  # fmt: skip
    return tuple(dict.fromkeys(forms))
