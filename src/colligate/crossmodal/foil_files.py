"""Pictures, captions and foils from files: tables of the user's own, and the layouts of ARO, SugarCrepe, Winoground."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from colligate.crossmodal.foil_lines import Line, Lines, RowError, Texts, list_of, read_lines
from colligate.crossmodal.foil_pictures import PictureFile as PictureFile
from colligate.crossmodal.foil_pictures import Pictures, box_of
from colligate.crossmodal.foils import FoilTable
from colligate.crossmodal.groups import GroupTable
from colligate.scenes.tables import listed, shown

_PICTURE = ("picture", "filename", "image", "image_path", "images")
_CAPTION = ("caption", "true_caption", "correct_caption")
_FOIL = ("foil", "negative_caption", "false_caption")
_RELATION = ("relation_name", "relation")
_TWO = ("image_0", "image_1", "caption_0", "caption_1")
_HARD = re.compile(r"hard_text_\d+")
NAMED = 3
"""Bad rows that are told each by itself; of the others there is the count."""


@dataclass(frozen=True, eq=False)
class FoilFile:
    """What a file holds.

    Attributes:
        layout: table, ARO, ARO order, SugarCrepe or Winoground.
        pictures: each once.
        table: pairs or groups that point at them.
        notes: what a reader should know about how it was read.
        path: the file.
        places: how each row of the file is named.
        rows: for each pair or group, its row of the file.
        left_out: row of the file -> why it isn't used.
    """

    layout: str
    pictures: tuple[PictureFile, ...]
    table: FoilTable | GroupTable
    notes: tuple[str, ...]
    path: Path
    places: tuple[str, ...]
    rows: tuple[int, ...]
    left_out: Mapping[int, str]

    @property
    def told(self) -> str | None:
        """How many rows were left out, as every number of the file says it; None where none were."""
        if not self.left_out:
            return None
        return f"{len(self.left_out)} of {len(self.places)} rows of {self.path.name} left out"

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Notes, and which rows were left out and why."""
        if not self.left_out:
            return self.notes
        return (*self.notes, f"{self.told}: {_listed(self.places, self.left_out)}.")

    def without(self, bad: Mapping[int, str], *, skip: bool) -> "FoilFile":
        """The same without rows that turned out bad.

        Args:
            bad: row of the file -> why.
            skip: leave them out; else they are refused.

        Raises:
            ValueError: there are such rows and they mayn't be left out, or no others are left.
        """
        if not bad:
            return self
        kept = [i for i, row in enumerate(self.rows) if row not in bad]
        together = {**self.left_out, **bad}
        if not skip or not kept:
            raise refusal(self.path, self.places, together)
        table, index = self.table, torch.tensor(kept)
        if isinstance(table, GroupTable):
            left = GroupTable(table.name, table.rows[index], tuple(table.captions[i] for i in kept))
        else:
            groups = None if table.groups is None else table.groups[index].unique(return_inverse=True)[1]
            columns = {
                name: tuple(getattr(table, name)[i] for i in kept)
                for name in ("captions", "foils", "kinds", "relations") if getattr(table, name)
            }  # fmt: skip
            left = replace(table, rows=table.rows[index], groups=groups, **columns)
        return replace(self, table=left, rows=tuple(self.rows[i] for i in kept), left_out=together)


def refusal(path: Path, places: Sequence[str], bad: Mapping[int, str]) -> ValueError:
    """The sentence on rows that can't be used."""
    remedy = "" if len(bad) == len(places) else " --skip leaves " + ("it" if len(bad) == 1 else "them") + " out."
    return ValueError(f"{path}: {len(bad)} of {len(places)} rows can't be used: {_listed(places, bad)}.{remedy}")


def _listed(places: Sequence[str], bad: Mapping[int, str]) -> str:
    told = [f"{places[row]} {bad[row]}" for row in sorted(bad)[:NAMED]]
    return "; ".join(told) + (f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else "")


def read_foils(path: Path, pictures: Path, seed: int = 0, *, skip: bool = False) -> FoilFile:
    r"""Read captions, foils and the names of their pictures.

    `.csv`, `.parquet`, `.json` and `.jsonl` all hold the same layouts: tables of one's own (picture or filename, image,
    image_path; caption; foil); ARO's VG-Relation and VG-Attribution (image_path, true_caption, false_caption, the part
    of the picture that is meant, relation_name), SugarCrepe's (filename, caption, negative_caption), Winoground's
    (image_0, image_1, caption_0, caption_1), and those of ARO's COCO and Flickr30k order sets: with their foils (image,
    caption_options, the true one first; or correct_caption, hard_text_1, hard_text_2, ...), or as downloaded (image,
    and caption: a list), for which the two shuffles that need no parser are made here.

    Args:
        path: the file.
        pictures: folder of the pictures; none may lie outside it.
        seed: of shuffles that are made here.
        skip: leave out rows that can't be used, and count them.

    Raises:
        ValueError: the file can't be read or lacks a column, or rows can't be used; the message counts and names them.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lines = "picture,caption,foil\na.png,a cat on a mat,a mat on a cat\n"
        ...     written = [(Path(folder) / name).write_text(lines) for name in ("a.png", "mine.csv")]
        ...     found = read_foils(Path(folder) / "mine.csv", Path(folder))
        >>> found.layout, found.table.foils, bool(found.table.same_words.all())
        ('table', ('a mat on a cat',), True)
    """
    lines = read_lines(path)
    reader = _Reader(lines, Pictures(path, pictures))
    names = lines.names
    if all(name in names for name in _TWO):
        return _groups(reader, skip=skip)
    foil = next((name for name in _FOIL if name in names), None)
    if "caption_options" in names or any(map(_HARD.fullmatch, names)) or (foil is None and _lists(lines, "caption")):
        return _ordered(reader, seed, skip=skip)
    for wanted in (_PICTURE, _CAPTION, _FOIL):
        if not any(name in names for name in wanted):
            raise ValueError(f"{path} has no {wanted[0]} (looked for {listed(wanted)}); add it to every row.")
    layout = {"false_caption": "ARO", "negative_caption": "SugarCrepe"}.get(str(foil), "table")
    return _pairs(reader, layout, skip=skip)


def _lists(lines: Lines, name: str) -> bool:
    return any(list_of(row.cells.get(name)) is not None for row in lines.rows)


class _Reader:
    """Rows turned into pairs or groups one after the other, those aside that can't be."""

    def __init__(self, lines: Lines, pictures: Pictures) -> None:
        self.lines, self.pictures, self.texts = lines, pictures, Texts()
        self.bad = dict[int, str]()
        self.as_text = 0

    def read(self, turn: Callable[[Line], Any]) -> list[tuple[int, Any]]:
        """Each usable row's number, and what it becomes."""
        made = list[tuple[int, Any]]()
        for i, row in enumerate(self.lines.rows):
            try:
                if row.problem is not None:
                    raise RowError(row.problem)
                made.append((i, turn(row)))
            except RowError as bad:
                self.bad[i] = str(bad)
        return made

    def picture(self, row: Line, names: Sequence[str], box: tuple[int, int, int, int] | None = None) -> int:
        """The number of a row's picture."""
        name = next((name for name in names if name in row.cells), None)
        if name is None:
            raise RowError(f"has no {names[0]}{f' (looked for {listed(names)})' if len(names) > 1 else ''}; add it")
        return self.pictures.place(row.cells[name], name, box)

    def listed_texts(self, row: Line, name: str) -> list[str] | None:
        """The texts of a cell that holds a list; None where it holds none."""
        value = row.cells.get(name)
        items = list_of(value)
        if items is None:
            return None
        self.as_text += isinstance(value, str) and name not in self.lines.lists
        return [self.texts.plain(item, name) for item in items]

    def done(
        self, layout: str, table: FoilTable | GroupTable, rows: Sequence[int], notes: Sequence[str] = ()
    ) -> FoilFile:
        """The file as read."""
        many = "1 list was" if self.as_text == 1 else f"{self.as_text} lists were"
        lists = (f"{many} written as text, and read as lists.",) if self.as_text else ()
        return FoilFile(
            layout, tuple(self.pictures.files), table,
            (*self.lines.notes, *self.texts.notes, *self.pictures.notes, *lists, *notes),
            self.lines.path, self.places, tuple(rows), self.bad,
        )  # fmt: skip

    def refuse(self, left: int, *, skip: bool) -> None:
        """Refuse bad rows unless they may be left out and others remain."""
        if self.bad and not (skip and left):
            raise refusal(self.lines.path, self.places, self.bad)

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(row.place for row in self.lines.rows)


def _differ(caption: str, foil: str, what: str = "foil") -> None:
    if caption.strip() == foil.strip():
        raise RowError(f"has the {what} {shown(foil)} equal to its caption; give another")


def _pairs(reader: _Reader, layout: str, *, skip: bool) -> FoilFile:
    related = next((name for name in _RELATION if name in reader.lines.names), None)

    def turn(row: Line) -> tuple[int, str, str, str]:
        caption, foil = reader.texts.single(row, _CAPTION), reader.texts.single(row, _FOIL)
        _differ(caption, foil)
        relation = "" if related is None else reader.texts.of(row, (related,)).strip()
        return reader.picture(row, _PICTURE, box_of(row)), caption, foil, relation

    made = reader.read(turn)
    reader.refuse(len(made), skip=skip)
    shown_, captions, foils, relations = zip(*(one for _, one in made), strict=True)
    table = FoilTable(
        reader.lines.path.name, torch.tensor(shown_), captions, foils, relations=relations if related else ()
    )
    return reader.done(layout, table, [i for i, _ in made])


def _groups(reader: _Reader, *, skip: bool) -> FoilFile:
    def turn(row: Line) -> tuple[list[int], tuple[str, str]]:
        first, second = (reader.texts.single(row, (name,)) for name in _TWO[2:])
        _differ(first, second, "second caption")
        places = [reader.picture(row, (name,)) for name in _TWO[:2]]
        if places[0] == places[1]:
            raise RowError("has the same picture twice; give two")
        return places, (first, second)

    made = reader.read(turn)
    reader.refuse(len(made), skip=skip)
    table = GroupTable(
        reader.lines.path.name, torch.tensor([places for _, (places, _) in made]), tuple(said for _, (_, said) in made)
    )
    return reader.done("Winoground", table, [i for i, _ in made])


def _ordered(reader: _Reader, seed: int, *, skip: bool) -> FoilFile:
    """Captions with several foils each: the same words in other orders."""
    generator = torch.Generator().manual_seed(seed)

    def turn(row: Line) -> tuple[int, list[tuple[str, list[tuple[str, str]]]]]:
        options = _options(reader, row, generator)
        return reader.picture(row, _PICTURE, box_of(row)), options

    made = reader.read(turn)
    reader.refuse(len(made), skip=skip)
    rows, places, said, foils = list[int](), list[int](), list[str](), list[str]()
    kinds, groups, alike, group = list[str](), list[int](), 0, -1
    for i, (picture, captions) in made:
        for caption, others in captions:
            different = [(kind, foil) for kind, foil in others if foil.strip() != caption.strip()]
            alike += len(others) - len(different)
            group += bool(different)
            for kind, foil in different:
                rows.append(i)
                places.append(picture)
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
        reader.lines.path.name, torch.tensor(places, dtype=torch.int64), tuple(said), tuple(foils), kinds=tuple(kinds),
        groups=torch.tensor(groups, dtype=torch.int64),
    )  # fmt: skip
    return reader.done("ARO order", table, rows, notes)


def _options(
    reader: _Reader, row: Line, generator: torch.Generator
) -> list[tuple[str, list[tuple[str, str]]]]:  # fmt: skip
    """Every caption of a row with its foils, each with its kind."""
    given = reader.listed_texts(row, "caption_options")
    if given is not None and len(given) > 1:
        return [(given[0], [(f"foil{n}", foil) for n, foil in enumerate(given[1:], 1)])]
    hard = [name for name in row.cells if _HARD.fullmatch(name)]
    if hard:
        foils = [(f"foil{name.rsplit('_', 1)[1]}", reader.texts.single(row, (name,))) for name in hard]
        return [(reader.texts.single(row, _CAPTION), foils)]
    captions = reader.listed_texts(row, "caption")
    if not captions:
        raise RowError(
            "has no captions in order: give caption_options (a list, the true one first), correct_caption and "
            "hard_text_1, or caption as a list of texts"
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
