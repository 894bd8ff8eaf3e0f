"""The user's own scenes: a table of labels, with captions, pictures and a split where it has them.

    filename,slot1_color,slot1_shape,slot2_color,slot2_shape,caption
    0.png,red,cube,blue,ball,a red cube and a blue ball
    1.png,red,cube,,,a red cube

One row is one scene. `read_labels` says which columns it knows and what it refuses; nothing is trimmed, dropped or
guessed. The labels released with the paper (`object1_color`, ...) and those of PUG:SPARE (`character_name`, ...) are
read as they are.
"""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.space import EMPTY, ConceptSpace, Scenes
from colligate.scenes.splits import PARTS
from colligate.scenes.tables import Table, read_bytes, read_table, shown
from colligate.scenes.worlds import World

if TYPE_CHECKING:
    from PIL.Image import Image

_SLOT_COLUMN = re.compile(r"slot(\d+)_(.+?)(_word)?")
_OBJECT_COLUMN = re.compile(r"object(\d+)_(.+?)(_idx)?")
_PUG_COLUMNS = {
    (1, "animal"): "character_name",
    (1, "texture"): "character_texture",
    (2, "animal"): "character2_name",
    (2, "texture"): "character2_texture",
}
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_WHOLE = re.compile(r"\+?(\d{1,9})(\.0*)?")
# On any system: a path that goes up, or starts at a root or a drive.
_LEADS_OUT = re.compile(r"(^|[\\/])\.\.([\\/]|$)|^[\\/]|^[A-Za-z]:")

_PUG_WORDS = {
    "animal": (
        *("Crow", "Fox", "DeerStag", "DeerDoe", "Wolf", "Crocodile"),
        *("Elephant", "Hippopotamus", "Lion", "Lioness", "Rhinoceros", "Zebra"),
    ),
    "texture": ("Red", "Blue", "Green", "Yellow", "Brown", "Purple", "Cyan", "Gray"),
}
_RELEASE_WORDS = {
    "color": ("blue", "brown", "cyan", "gray", "green", "purple", "red", "yellow"),
    "shape": ("cube", "sphere", "cylinder"),
}
_RELEASE_SHAPES = ("cube", "cylinder", "sphere")


def read_space(path: Path) -> ConceptSpace:
    """Concepts and their values from a JSON file: the words in index order, or their number.

        {"color": ["red", "blue"], "shape": ["cube", "ball", "cone"]}

    Raises:
        ValueError: no such file, no JSON, or not a concept space.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "space.json"
        ...     _ = file.write_text('{"color": ["red", "blue"], "shape": 3}')
        ...     read_space(file).sizes
        (2, 3)
    """
    wanted = 'an object such as {"color": ["red", "blue"], "shape": ["cube", "ball"]}'
    try:
        pairs = json.loads(read_bytes(path).decode("utf-8-sig"), object_pairs_hook=list)
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError | json.JSONDecodeError):
            raise ValueError(f"{path} is not JSON ({error}); it must hold {wanted}.") from None
        raise
    if not (isinstance(pairs, list) and pairs and all(isinstance(pair, tuple) for pair in pairs)):
        raise ValueError(f"{path} must hold {wanted}.")
    concepts: dict[str, int | list[str]] = {}
    for name, given in pairs:
        words = isinstance(given, list) and all(isinstance(word, str) for word in given)
        number = isinstance(given, int) and not isinstance(given, bool) and given > 0
        if not (words or number):
            raise ValueError(f"{path}: concept {name!r} must list its values' words (or their number, 1 or more).")
        if name in concepts:
            raise ValueError(f"{path} lists the concept {name!r} twice; list it once.")
        concepts[name] = given
    try:
        return ConceptSpace(concepts)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_labels(path: Path, *, space: ConceptSpace | None = None) -> World:
    """A world from a table of labels, `.csv` (UTF-8) or `.parquet`, one row a scene.

    Columns:
        `slot1_color`, `slot1_shape`, `slot2_color`, ...: indices from 0, or words; empty where a slot is.
        `slot1_color_word`: the word of an index column, one-to-one with it.
        `caption`, `picture` (or `filename`): what shows the scene. `split`: fit, validation or test.
        Any other column is ignored, with a note.

    Values are numbered as the given space has them; else as the indices say; else, for words, in sorted order. Cells
    count as indices if all of a concept's cells are numbers, unless the given space has those numbers as words.

    Args:
        path: the table. Pictures are relative to its folder and may not leave it.
        space: the concepts and values, where the table alone doesn't tell (`--space`).

    Returns:
        The world, named after the file. Pictures are opened when asked for; `check_pictures` opens them all.

    Raises:
        ValueError: whatever in the table can't be taken as it stands; names file, row, column and the remedy.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "mine.csv"
        ...     rows = "slot1_color,slot1_shape,slot2_color,slot2_shape", "red,cube,blue,ball", "red,ball,,"
        ...     _ = file.write_text(chr(10).join(rows))
        ...     read_labels(file).scenes.describe(0)
        'red cube | blue ball'
    """
    table = read_table(path)
    layout = _layout(table)
    slots, concepts = sorted({slot for slot, _ in layout.columns}), list(dict.fromkeys(c for _, c in layout.columns))
    notes = [*table.notes]
    if space is not None:
        unlisted = [name for name in concepts if name not in space.names]
        notes += [f"Concept {name!r} of {path.name} isn't in the given space and is left out." for name in unlisted]
        concepts = list(space.names)
    _check_columns(table, layout, slots, concepts)
    cells = {key: _labels(table, column, notes) for key, column in layout.columns.items() if key[1] in concepts}
    _check_filled(table, layout, cells, slots, concepts)
    words, values = {}, []
    for name in concepts:
        known = None if space is None else space.words[space.concept(name)]
        concept = _Concept(table, name, [(layout.columns[k, name], cells[k, name]) for k in slots])
        beside = [
            (layout.words[k, name], _labels(table, layout.words[k, name], notes)) if (k, name) in layout.words else None
            for k in slots
        ]
        words[name], index = concept.read(known, beside, layout.order(name, concept.distinct), layout.release, notes)
        values.append(torch.tensor([[index[cell] for cell in column] for _, column in concept.columns]).T)
    scenes = Scenes(space or ConceptSpace(words), torch.stack(values, dim=2))
    _check_scenes(table, scenes, notes)
    captions, pictures, parts = _captions(table), _pictures(table), _parts(table)
    _check_repeats(table, scenes, captions, pictures)
    used = {*layout.columns.values(), *layout.words.values(), "caption", "split", "picture"}
    used |= set() if "picture" in table.names else {"filename"}
    ignored = [name for name in table.names if name not in used]
    if ignored:
        notes.append(f"Ignored columns of {path.name}: {', '.join(map(shown, ignored))}.")
    return World(path.stem, scenes, captions, pictures, parts, tuple(notes))


def open_picture(path: Path) -> "Image":
    """A picture file as RGB, turned as its EXIF data say; transparent parts are laid over white.

    Raises:
        ValueError: the file is missing, truncated, no picture, animated, has more than 8 bits a channel, or would
            unpack to more pixels than Pillow's limit (a decompression bomb).
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                # A camera's MPO file holds the picture first and previews after it.
                if getattr(opened, "n_frames", 1) > 1 and opened.format != "MPO":
                    raise ValueError(f"Picture {path} is animated or has several pages; give one of them.")
                opened.load()
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
    return turned.convert("RGB")


def check_pictures(world: World, rows: Int[Tensor, " row"] | None = None) -> None:
    """Open every picture file of a world, or of the given rows.

    Raises:
        ValueError: names the first row whose picture can't be opened, and why.
    """
    if not isinstance(world.pictures, tuple):
        return
    for row in range(len(world.scenes)) if rows is None else rows.tolist():
        try:
            open_picture(world.pictures[row])
        except ValueError as error:
            raise ValueError(f"Row {row}: {error}") from None


# --------------------------------------------------------------------------------------------------------- columns


class _Layout(NamedTuple):
    """Which columns hold the labels: (slot, concept) -> column of indices or words, and of words beside indices."""

    columns: Mapping[tuple[int, str], str]
    words: Mapping[tuple[int, str], str]
    orders: Mapping[str, tuple[str, ...]] = {}
    release: bool = False

    def order(self, concept: str, distinct: set[str]) -> tuple[str, ...]:
        """The words in the order in which they get their indices: the data set's own, or sorted."""
        own = self.orders.get(concept, ())
        return tuple(word for word in own if word in distinct) if distinct <= set(own) else tuple(sorted(distinct))


def _layout(table: Table) -> _Layout:
    slot_columns = [(name, found) for name in table.names if (found := _SLOT_COLUMN.fullmatch(name))]
    if slot_columns:
        columns = {(int(m[1]), m[2]): name for name, m in slot_columns if not m[3]}
        words = {(int(m[1]), m[2]): name for name, m in slot_columns if m[3]}
        for key, name in words.items():
            if key not in columns:
                raise ValueError(
                    f"{table.path} has {name} without slot{key[0]}_{key[1]}; rename it to that if it holds the labels."
                )
        return _Layout(columns, words)
    object_columns = [(name, found) for name in table.names if (found := _OBJECT_COLUMN.fullmatch(name))]
    if object_columns:
        plain = {(int(m[1]), m[2]): name for name, m in object_columns if not m[3]}
        indices = {(int(m[1]), m[2]): name for name, m in object_columns if m[3]}
        beside = {key: name for key, name in plain.items() if key in indices}
        return _Layout({**plain, **indices}, beside, release=_is_release(table))
    if set(_PUG_COLUMNS.values()) <= set(table.names):
        return _Layout(_PUG_COLUMNS, {}, _PUG_WORDS)
    raise ValueError(
        f"{table.path} has no columns of labels, such as slot1_color; its columns are "
        f"{', '.join(map(shown, table.names[:12])) or 'none'}."
    )


def _is_release(table: Table) -> bool:
    """Whether these are the labels released with the paper, whose words for shapes 1 and 2 are exchanged."""
    names = {f"object{k}_{c}{end}" for k in (1, 2) for c in _RELEASE_WORDS for end in ("", "_idx")}
    if set(table.names) != {"filename", *names} or table.num_rows != 576:
        return False
    return all(
        set(zip(table.cells(f"object{k}_{c}_idx"), table.cells(f"object{k}_{c}"), strict=True))
        == {(str(i), word) for i, word in enumerate(words)}
        for k in (1, 2)
        for c, words in _RELEASE_WORDS.items()
    )


def _check_columns(table: Table, layout: _Layout, slots: list[int], concepts: list[str]) -> None:
    if slots != list(range(1, len(slots) + 1)):
        raise ValueError(f"{table.path} has slots {', '.join(map(str, slots))}; number them 1, 2, ... without gaps.")
    example = next(iter(layout.columns.values()))
    for slot in slots:
        for name in concepts:
            if (slot, name) not in layout.columns:
                raise ValueError(
                    f"{table.path} has no column for {name!r} in slot {slot} (as {example} is one); each slot needs "
                    f"every concept: {', '.join(concepts)}."
                )


def _labels(table: Table, column: str, notes: list[str]) -> list[str]:
    cells = table.cells(column)
    bare = [cell.strip() for cell in cells]
    changed = sum(a != b for a, b in zip(cells, bare, strict=True))
    if changed:
        notes.append(f"Blanks around {changed} cells of column {column} were removed.")
    return bare


def _check_filled(
    table: Table,
    layout: _Layout,
    cells: Mapping[tuple[int, str], list[str]],
    slots: list[int],
    concepts: list[str],
) -> None:
    holds = [False] * table.num_rows
    for slot in slots:
        for row, held in enumerate(zip(*(cells[slot, name] for name in concepts), strict=True)):
            if all(held):
                holds[row] = True
            elif any(held):
                column = layout.columns[slot, concepts[held.index("")]]
                raise ValueError(
                    f"{table.where(row, column)}: the cell is empty but slot {slot} has other values; "
                    "fill in all of a slot's concepts or none."
                )
    if not all(holds):
        column = layout.columns[1, concepts[0]]
        raise ValueError(f"{table.where(holds.index(False), column)}: the row holds no object; leave it out.")


class _Concept(NamedTuple):
    """The cells of one concept, slot by slot."""

    table: Table
    name: str
    columns: list[tuple[str, list[str]]]

    @property
    def distinct(self) -> set[str]:
        return set().union(*(cells for _, cells in self.columns)) - {""}

    def fail(self, cell: str, problem: str) -> ValueError:
        """An error that names the first row and column that hold a cell."""
        row, column = min((cells.index(cell), column) for column, cells in self.columns if cell in cells)
        return ValueError(f"{self.table.where(row, column)}: {problem}")

    def read(
        self,
        known: tuple[str, ...] | None,
        beside: list[tuple[str, list[str]] | None],
        order: tuple[str, ...],
        release: bool,
        notes: list[str],
    ) -> tuple[tuple[str, ...] | int, dict[str, int]]:
        """The words (or number) of the concept's values, and the index of each cell."""
        distinct = self.distinct
        numbers = {cell for cell in distinct if _NUMBER.fullmatch(cell)}
        if known is not None and distinct <= set(known):
            if numbers:
                notes.append(f"Values of {self.name!r} such as {min(numbers)!r} are read as words of the given space.")
            return known, {"": EMPTY, **{word: known.index(word) for word in distinct}}
        if numbers == distinct:
            index = self._indices(distinct, known)
            words = self._words_beside(index, beside, known, release, notes)
            return words, {"": EMPTY, **index}
        if known is not None:
            cell = next(c for _, cells in self.columns for c in cells if c and c not in known)
            close = get_close_matches(cell, known, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise self.fail(cell, f"unknown {self.name} {shown(cell)}; known are {_listed(known)}.{hint}")
        if numbers:
            word = min(distinct - numbers)
            raise self.fail(
                word,
                f"{self.name} mixes words ({shown(word)}) and indices ({min(numbers)!r}); use one of them, or give "
                "--space if the numbers are words.",
            )
        return order, {"": EMPTY, **{word: i for i, word in enumerate(order)}}

    def _indices(self, distinct: set[str], known: tuple[str, ...] | None) -> dict[str, int]:
        index: dict[str, int] = {}
        for cell in sorted(distinct):
            whole = _WHOLE.fullmatch(cell)
            if whole is None or (known is not None and int(whole[1]) >= len(known)):
                allowed = f"0 to {len(known) - 1}" if known is not None else "whole numbers from 0 below 10^9"
                raise self.fail(
                    cell, f"{shown(cell)} is no index of {self.name}; use {allowed}, and leave empty slots empty."
                )
            index[cell] = int(whole[1])
        used = set(index.values())
        if known is None and len(used) <= max(used):
            gap = next(i for i in range(len(used) + 1) if i not in used)
            raise ValueError(
                f"{self.table.path}: {self.name} has indices up to {max(used)} but no {gap}; number the values from 0 "
                "without gaps, or list all of them with --space."
            )
        return index

    def _words_beside(
        self,
        index: dict[str, int],
        beside: list[tuple[str, list[str]] | None],
        known: tuple[str, ...] | None,
        release: bool,
        notes: list[str],
    ) -> tuple[str, ...] | int:
        """The words that stand beside the indices, after checking that they are one-to-one."""
        if release and self.name == "shape":
            notes.append(
                "These are the labels released with the paper: their words for shapes 1 and 2 (sphere, cylinder) are "
                "exchanged against the pictures, so the indices hold and the words are put right."
            )
            return known or _RELEASE_SHAPES
        size = len(known) if known is not None else max(index.values()) + 1
        word_of: dict[int, str] = {} if known is None else dict(enumerate(known))
        index_of = {word: i for i, word in word_of.items()}
        for (_, cells), given in zip(self.columns, beside, strict=True):
            column, said = given or ("", [])
            for row, (cell, word) in enumerate(zip(cells, said, strict=False)):
                if not cell and not word:
                    continue
                i = index.get(cell, EMPTY)
                if word_of.setdefault(i, word) != word or index_of.setdefault(word, i) != i or not cell or not word:
                    raise ValueError(
                        f"{self.table.where(row, column)}: word {shown(word)} stands beside index {cell or 'none'}, "
                        f"but {self._pairing(i, word, word_of, index_of)}; words and indices must be one-to-one."
                    )
        if not any(beside):
            return known or size
        missing = [i for i in range(size) if i not in word_of]
        if missing:
            raise ValueError(f"{self.table.path}: index {missing[0]} of {self.name} has no word; give each one a word.")
        return tuple(word_of[i] for i in range(size))

    @staticmethod
    def _pairing(i: int, word: str, word_of: dict[int, str], index_of: dict[str, int]) -> str:
        if i == EMPTY or not word:
            return "one of the two is empty"
        return f"{i} is {shown(word_of[i])}" if word_of[i] != word else f"{shown(word)} is {index_of[word]}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")


# ------------------------------------------------------------------------------------------- what shows the scenes


def _check_scenes(table: Table, scenes: Scenes, notes: list[str]) -> None:
    if len(scenes.objects[scenes.filled].unique()) == 1:
        raise ValueError(
            f"{table.path} shows one object only ({scenes.space.describe_object(int(scenes.objects.max()))}); binding "
            "can't be studied without at least two values of a concept."
        )
    for c, (name, words) in enumerate(zip(scenes.space.names, scenes.space.words, strict=True)):
        used = torch.bincount(scenes.values[..., c][scenes.filled], minlength=len(words)) > 0
        if len(words) == 1:
            notes.append(f"Concept {name!r} has one value only ({words[0]!r}); nothing can be told apart by it.")
        never = [words[i] for i in (~used).nonzero()[:, 0].tolist()]
        if never:
            notes.append(f"No scene of {table.path.name} shows {name} {_listed(never)}.")


def _captions(table: Table) -> tuple[str, ...] | None:
    if "caption" not in table.names:
        return None
    captions = tuple(table.cells("caption"))
    for row, caption in enumerate(captions):
        if not caption.strip():
            raise ValueError(f"{table.where(row, 'caption')}: the caption is empty; write one or drop the column.")
    return captions


def _parts(table: Table) -> tuple[str, ...] | None:
    if "split" not in table.names:
        return None
    parts = tuple(table.cells("split"))
    for row, part in enumerate(parts):
        if part not in PARTS:
            raise ValueError(f"{table.where(row, 'split')}: {shown(part)} is no part; use {', '.join(PARTS)}.")
    return parts


def _pictures(table: Table) -> tuple[Path, ...] | None:
    """Paths of the pictures, after making sure that none leaves the table's folder."""
    column = next((name for name in ("picture", "filename") if name in table.names), None)
    if column is None:
        return None
    root = table.path.resolve().parent
    folders: dict[Path, bool] = {}
    pictures: list[Path] = []
    for row, cell in enumerate(table.cells(column)):
        if not cell.strip() or "\0" in cell:
            raise ValueError(f"{table.where(row, column)}: {shown(cell)} is no file name; name the row's picture.")
        path = root / cell
        inside = not _LEADS_OUT.search(cell)
        if inside:
            if path.parent not in folders:
                folders[path.parent] = path.parent.resolve().is_relative_to(root)
            inside = folders[path.parent] and (not path.is_symlink() or path.resolve().is_relative_to(root))
        if not inside:
            raise ValueError(
                f"{table.where(row, column)}: {shown(cell)} leaves the table's folder; put the picture inside it and "
                "name it from there."
            )
        pictures.append(path)
    return tuple(pictures)


def _check_repeats(
    table: Table, scenes: Scenes, captions: tuple[str, ...] | None, pictures: tuple[Path, ...] | None
) -> None:
    evidence = pictures or captions
    if evidence is None:
        return
    what = "picture" if pictures else "caption"
    first: dict[tuple[int, str | Path], int] = {}
    for row, key in enumerate(zip(scenes.ids.tolist(), evidence, strict=True)):
        if first.setdefault(key, row) != row:
            raise ValueError(
                f"{table.path}, rows {first[key]} and {row} have the same labels and the same {what}; leave one out "
                f"(repeats of a scene need different {what}s)."
            )
