"""Pictures, captions and foils from files: tables of the user's own, and the layouts of ARO, SugarCrepe, Winoground."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from colligate.crossmodal.foils import FoilTable
from colligate.crossmodal.groups import GroupTable
from colligate.scenes.files import open_picture
from colligate.scenes.tables import read_bytes, read_table

if TYPE_CHECKING:
    from PIL.Image import Image

_PICTURE = ("picture", "filename", "image", "image_path", "images")
_CAPTION = ("caption", "true_caption", "correct_caption")
_FOIL = ("foil", "negative_caption", "false_caption")
_BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
_TWO = ("image_0", "image_1", "caption_0", "caption_1")
_HARD = "hard_text_1"
SUFFIXES = ("", ".png", ".jpg", ".jpeg")
"""What may be missing from a picture's name."""


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
            raise ValueError(f"The box {self.box} leaves the picture {self.path} of {picture.width}x{picture.height}.")
        return picture.crop((left, top, left + width, top + height))


@dataclass(frozen=True, eq=False)
class FoilFile:
    """What a file holds.

    Attributes:
        layout: table, ARO, ARO order, SugarCrepe or Winoground.
        pictures: each once.
        table: pairs or groups that point at them.
        notes: what was left out, and what was made here.
    """

    layout: str
    pictures: tuple[PictureFile, ...]
    table: FoilTable | GroupTable
    notes: tuple[str, ...] = ()


def read_foils(path: Path, pictures: Path, seed: int = 0) -> FoilFile:
    r"""Read captions, foils and the names of their pictures.

    `.csv` and `.parquet`: columns picture (or filename, image, image_path), caption, foil. `.json` and `.jsonl`: ARO's
    VG-Relation and VG-Attribution (image_path, true_caption, false_caption, and the part of the picture that is meant),
    SugarCrepe's (filename, caption, negative_caption), Winoground's (image_0, image_1, caption_0, caption_1), and those
    of ARO's COCO and Flickr30k order sets: with their foils (image, caption_options, the true one first; or, in tables
    too, correct_caption, hard_text_1, hard_text_2, ...), or as downloaded (image, and caption: a list), for which the
    two shuffles that need no parser are made here.

    Args:
        path: the file.
        pictures: folder of the pictures; none may lie outside it.
        seed: of shuffles that are made here.

    Raises:
        ValueError: a file, column or picture is missing, or a foil equals its caption; the message names it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lines = "picture,caption,foil\na.png,a cat on a mat,a mat on a cat\n"
        ...     written = [(Path(folder) / name).write_text(lines) for name in ("a.png", "mine.csv")]
        ...     found = read_foils(Path(folder) / "mine.csv", Path(folder))
        >>> found.layout, found.table.foils, bool(found.table.same_words.all())
        ('table', ('a mat on a cat',), True)
    """
    suffix = path.suffix.lower()
    if suffix in {".csv", ".parquet"}:
        table = read_table(path)
        columns = {name: table.cells(name) for name in table.names}
        rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        return _pairs(path, pictures, rows, "table") if _HARD not in columns else _ordered(path, pictures, rows, seed)
    if suffix not in {".json", ".jsonl"}:
        raise ValueError(f"{path} is no table of foils; give .csv, .parquet, .json or .jsonl.")
    rows = _json_rows(path)
    if all(name in rows[0] for name in _TWO):
        return _groups(path, pictures, rows)
    if "caption_options" in rows[0] or _HARD in rows[0] or isinstance(rows[0].get("caption"), list):
        return _ordered(path, pictures, rows, seed)
    layout = "ARO" if "false_caption" in rows[0] else "SugarCrepe" if "negative_caption" in rows[0] else "table"
    return _pairs(path, pictures, rows, layout)


def _json_rows(path: Path) -> list[Mapping[str, Any]]:
    text = read_bytes(path).decode("utf-8-sig", errors="replace")
    try:
        read: Any = (
            [json.loads(line) for line in text.splitlines() if line.strip()]
            if path.suffix.lower() == ".jsonl"
            else json.loads(text)
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON ({error.msg}, line {error.lineno}); download or save it again.") from None
    rows = list(read.values()) if isinstance(read, dict) else read
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} holds no list of objects with captions and foils; see `read_foils` for the layouts.")
    return rows


def _named(path: Path, row: Mapping[str, Any], place: int, names: Sequence[str]) -> str:
    given = next((row[name] for name in names if name in row), None)
    if given is None:
        raise ValueError(f"{path}, row {place} has no {names[0]} (looked for {', '.join(names)}); add that column.")
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"{path}, row {place}: the {names[0]} is empty or no text; fill it in or leave the row out.")
    return given


def _pairs(path: Path, folder: Path, rows: Sequence[Mapping[str, Any]], layout: str) -> FoilFile:
    files = _Pictures(path, folder)
    shown = [files.place(_named(path, row, i, _PICTURE), i, _box(row)) for i, row in enumerate(rows)]
    captions = tuple(_named(path, row, i, _CAPTION) for i, row in enumerate(rows))
    foils = tuple(_named(path, row, i, _FOIL) for i, row in enumerate(rows))
    table = FoilTable(path.name, torch.tensor(shown), captions, foils)
    return FoilFile(layout, files.checked(), table)


def _groups(path: Path, folder: Path, rows: Sequence[Mapping[str, Any]]) -> FoilFile:
    files = _Pictures(path, folder)
    shown = [[files.place(_named(path, row, i, (name,)), i) for name in _TWO[:2]] for i, row in enumerate(rows)]
    said = tuple((_named(path, row, i, _TWO[2:3]), _named(path, row, i, _TWO[3:])) for i, row in enumerate(rows))
    return FoilFile("Winoground", files.checked(), GroupTable(path.name, torch.tensor(shown), said))


def _ordered(path: Path, folder: Path, rows: Sequence[Mapping[str, Any]], seed: int) -> FoilFile:
    """Captions with several foils each: the same words in other orders."""
    files, generator = _Pictures(path, folder), torch.Generator().manual_seed(seed)
    shown, said, foils, kinds, groups = list[int](), list[str](), list[str](), list[str](), list[int]()
    alike, group = 0, -1
    for i, row in enumerate(rows):
        picture = files.place(_named(path, row, i, _PICTURE), i)
        for caption, others in _options(path, row, i, generator):
            different = [(kind, foil) for kind, foil in others if foil.strip() != caption.strip()]
            alike += len(others) - len(different)
            group += bool(different)
            for kind, foil in different:
                shown.append(picture)
                said.append(caption)
                foils.append(foil)
                kinds.append(kind)
                groups.append(group)
    notes = [f"{alike} foils were left out: their order is the caption's own."] if alike else []
    if "within_trigrams" in kinds:
        notes.append(
            "The file has captions only, so foils were made here: words shuffled within every three, and threes "
            f"shuffled (seed {seed}). ARO's two others move nouns and adjectives, which takes a parser."
        )
    table = FoilTable(
        path.name, torch.tensor(shown, dtype=torch.int64), tuple(said), tuple(foils), kinds=tuple(kinds),
        groups=torch.tensor(groups, dtype=torch.int64),
    )  # fmt: skip
    return FoilFile("ARO order", files.checked(), table, tuple(notes))


def _options(
    path: Path, row: Mapping[str, Any], place: int, generator: torch.Generator
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every caption of a row with its foils, each with its kind."""
    given = row.get("caption_options")
    if isinstance(given, list) and len(given) > 1 and all(isinstance(one, str) and one.strip() for one in given):
        return [(given[0], [(f"foil{n}", foil) for n, foil in enumerate(given[1:], 1)])]
    hard = [name for name in row if re.fullmatch(r"hard_text_\d+", name)]
    if hard:
        foils = [(f"foil{name.rsplit('_', 1)[1]}", _named(path, row, place, (name,))) for name in hard]
        return [(_named(path, row, place, _CAPTION), foils)]
    captions = row.get("caption")
    if not isinstance(captions, list) or not captions or not all(isinstance(c, str) and c.strip() for c in captions):
        raise ValueError(
            f"{path}, row {place} has no captions in order: give caption_options (the true one, then its foils), "
            "correct_caption and hard_text_1, or caption as a list of texts."
        )
    return [(plain := _plain(caption), _shuffles(plain, generator)) for caption in captions]


def _plain(caption: str) -> str:
    """A caption's words alone, in lower case: capitals and stops would tell its order."""
    return " ".join(re.findall(r"[\w'-]+", caption.lower()))


def _shuffles(caption: str, generator: torch.Generator) -> list[tuple[str, str]]:
    """The words of every three shuffled among themselves, and the threes among each other."""
    words = caption.split()
    places = [list(range(start, min(start + 3, len(words)))) for start in range(0, len(words), 3)]

    def order(num: int) -> list[int]:
        return torch.randperm(num, generator=generator).tolist()

    within = [three[i] for three in places for i in order(len(three))]
    among = [place for i in order(len(places)) for place in places[i]]
    return [(name, " ".join(words[i] for i in of)) for name, of in (("within_trigrams", within), ("trigrams", among))]


def _box(row: Mapping[str, Any]) -> tuple[int, int, int, int] | None:
    if not all(name in row for name in _BOX):
        return None
    left, top, width, height = (int(float(row[name])) for name in _BOX)
    return left, top, width, height


class _Pictures:
    """Pictures by name, each once, and those that are missing."""

    def __init__(self, path: Path, folder: Path) -> None:
        if not folder.is_dir():
            raise ValueError(f"There is no folder {folder} of pictures; name the folder that {path.name} speaks of.")
        self.path, self.folder, self.missing = path, folder, list[str]()
        self.files = dict[PictureFile, int]()

    def place(self, name: str, row: int, box: tuple[int, int, int, int] | None = None) -> int:
        """The picture's number; a name may leave out its ending, or lie in a folder called images."""
        for start in (self.folder, self.folder / "images"):
            for suffix in SUFFIXES:
                found = start / f"{name}{suffix}"
                if not found.resolve().is_relative_to(self.folder.resolve()):
                    raise ValueError(f"{self.path}, row {row}: picture {name!r} leads out of {self.folder}.")
                if found.is_file():
                    return self.files.setdefault(PictureFile(found, box), len(self.files))
        self.missing.append(name)
        return -1

    def checked(self) -> tuple[PictureFile, ...]:
        """All pictures, after making sure that none is missing."""
        if self.missing:
            more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
            raise ValueError(
                f"{self.path} names the picture {self.missing[0]!r}{more}, not found in {self.folder}; "
                "put them there, or leave their rows out."
            )
        return tuple(self.files)
