"""The user's own scenes: a table of labels, with captions, pictures and a split where it has them.

    filename,slot1_color,slot1_shape,slot2_color,slot2_shape,caption
    0.png,red,cube,blue,ball,a red cube and a blue ball
    1.png,red,cube,,,a red cube

One row is one scene, or one object (see `layouts`). `read_labels` says which columns it knows and what it refuses;
nothing is trimmed, dropped or guessed. The labels released with the paper (`object1_color`, ...) and those of PUG:SPARE
(`character_name`, ...) are read as they are.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.files import check_files, find_pictures
from colligate.scenes.layouts import Layout, check_columns, layout_of, widened
from colligate.scenes.space import EMPTY, ConceptSpace, Scenes
from colligate.scenes.splits import PARTS
from colligate.scenes.tables import Table, kept_rows, listed, read_bytes, read_table, shown
from colligate.scenes.worlds import World

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_WHOLE = re.compile(r"\+?(\d{1,9})(\.0*)?")
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


def read_labels(path: Path, *, space: ConceptSpace | None = None, keep: Mapping[str, str] | None = None) -> World:
    """A world from a table of labels, `.csv` (UTF-8) or `.parquet`, or from a folder with `labels.csv` and pictures.

    Columns:
        `slot1_color`, `slot1_shape`, `slot2_color`, ...: indices from 0, or words; empty where a slot is.
        `slot1_color_word`: the word of an index column, one-to-one with it.
        `caption`, `picture` (or `filename`): what shows the scene. `split`: fit, validation or test.
        Any other column is ignored, with a note. One row an object: `scene`, `slot`, `color`, `shape`, ...

    Values are numbered as the given space has them; else as the indices say; else, for words, in sorted order. Cells
    count as indices if all of a concept's cells are numbers, unless the given space has those numbers as words.

    Args:
        path: the table, or its folder. Pictures lie beside it (`files.find_pictures`) and may not leave its folder.
        space: the concepts and values, where the table alone doesn't tell (`--space`).
        keep: column -> cell; rows that differ in one of them are left out, with a note. The paper's part of PUG:SPARE
            is `{"world_name": "Desert", "character_pos": ""}`.

    Returns:
        The world, named after the file (or the given folder). Pictures are opened when asked for; `check_pictures`
        opens them all.

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
    path, called = _table_of(path)
    given = kept_rows(read_table(path), keep or {})
    table = widened(given)
    layout = layout_of(table)
    slots, concepts = sorted({slot for slot, _ in layout.columns}), list(dict.fromkeys(c for _, c in layout.columns))
    notes = [*table.notes]
    if space is not None:
        unlisted = [name for name in concepts if name not in space.names]
        notes += [f"Concept {name!r} of {path.name} isn't in the given space and is left out." for name in unlisted]
        concepts = list(space.names)
    check_columns(table, layout, slots, concepts)
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
    captions, pictures, parts = _captions(table), find_pictures(table, notes), _parts(table)
    _check_repeats(table, scenes, captions, pictures)
    used = {*layout.columns.values(), *layout.words.values(), "caption", "split", "picture"}
    used |= set() if "picture" in table.names else {"filename"}
    used |= {"scene"} if table is not given else set()
    ignored = [name for name in table.names if name not in used]
    if ignored:
        notes.append(f"Ignored columns of {path.name}: {', '.join(map(shown, ignored))}.")
    notes += _of_pug(table)
    return World(called, scenes, captions, pictures, parts, tuple(notes))


def check_pictures(world: World, rows: Int[Tensor, " row"] | None = None) -> tuple[str, ...]:
    """Open every picture file of a world, or of the given rows, and say what a reader should know of them.

    Raises:
        ValueError: names the first row whose picture is missing or can't be opened, and why; or two rows whose labels
            differ though their pictures are the same.
    """
    if not isinstance(world.pictures, tuple):
        return ()
    return check_files(world.pictures, world.scenes, rows)


def _table_of(path: Path) -> tuple[Path, str]:
    """The table that a path or folder names, and what its world is called."""
    if not path.is_dir():
        return path, path.stem
    found = [path / name for name in ("labels.csv", "labels.parquet") if (path / name).exists()]
    if len(found) != 1:
        what = "both labels.csv and labels.parquet" if found else "no labels.csv or labels.parquet"
        raise ValueError(f"The folder {path} holds {what}; name the table itself.")
    return found[0], path.resolve().name


def _of_pug(table: Table) -> list[str]:
    """What a reader should know of PUG's other factors, which make rows replicates of a scene."""
    notes: list[str] = []
    if "character_name" in table.names and "world_name" in table.names:
        worlds = sorted(set(table.cells("world_name")))
        if len(worlds) > 1:
            notes.append(f"Scenes of {table.path.name} are shown in several worlds ({listed(worlds)}), as replicates.")
        posed = [name for name in ("character_pos", "character2_pos") if name in table.names]
        moved = sum(any(cells) for cells in zip(*(table.cells(name) for name in posed), strict=True)) if posed else 0
        if moved:
            notes.append(f"In {moved} of {table.num_rows} rows of {table.path.name} the characters stand elsewhere.")
    return notes


# --------------------------------------------------------------------------------------------------------- columns


def _labels(table: Table, column: str, notes: list[str]) -> list[str]:
    cells = table.cells(column)
    bare = [cell.strip() for cell in cells]
    changed = sum(a != b for a, b in zip(cells, bare, strict=True))
    if changed:
        notes.append(f"Blanks around {changed} cells of column {column} were removed.")
    return bare


def _check_filled(
    table: Table,
    layout: Layout,
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
            raise self.fail(cell, f"unknown {self.name} {shown(cell)}; known are {listed(known)}.{hint}")
        if numbers:
            word = min(distinct - numbers)
            raise self.fail(
                word,
                f"{self.name} mixes words ({shown(word)}) and indices ({min(numbers)!r}); use one of them, or give "
                "--space if the numbers are words.",
            )
        notes.extend(self._doubtful(distinct))
        return order, {"": EMPTY, **{word: i for i, word in enumerate(order)}}

    def _doubtful(self, distinct: set[str]) -> list[str]:
        """Words in one or two cells that are near to one with ten times as many: perhaps misspelt."""
        counts = Counter(cell for _, cells in self.columns for cell in cells)
        found: list[str] = []
        for word in sorted(word for word in distinct if counts[word] <= 2):
            close = get_close_matches(word, [other for other in distinct if counts[other] >= 10 * counts[word]], 1)
            if close:
                often = "once" if counts[word] == 1 else "twice"
                problem = f"{shown(word)} occurs {often}; did you mean {shown(close[0])}?"
                found.append(str(self.fail(word, problem)))
        return found

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
            notes.append(f"No scene of {table.path.name} shows {name} {listed(never)}.")


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


def _check_repeats(
    table: Table, scenes: Scenes, captions: tuple[str, ...] | None, pictures: tuple[Path, ...] | None
) -> None:
    evidence = pictures or captions
    if evidence is None:
        return
    what = "picture" if pictures else "caption"
    first: dict[tuple[int, str | Path], int] = {}
    shown_by: dict[str | Path, int] = {}
    for row, key in enumerate(zip(scenes.ids.tolist(), evidence, strict=True)):
        if first.setdefault(key, row) != row:
            raise ValueError(
                f"{table.path}, {table.place(first[key])} and {table.place(row)} have the same labels and the same "
                f"{what}; leave one out (repeats of a scene need different {what}s)."
            )
        other = shown_by.setdefault(key[1], row)
        if pictures and other != row:
            raise ValueError(
                f"{table.path}, {table.place(other)} and {table.place(row)} have the same picture and different labels "
                f"({scenes.describe(other)}; {scenes.describe(row)}); put one of them right."
            )
