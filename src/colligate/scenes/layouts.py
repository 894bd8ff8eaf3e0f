"""How tables of labels are laid out: which column holds which concept of which slot.

Wide, one row a scene: `slot1_color`, ...; `object1_color`, ... with `object1_color_idx` beside them, as the paper's
authors write them; `character_name`, ... as PUG:SPARE does. Long, one row an object: `scene` (or `picture`), `slot`,
and a column for each concept.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from colligate.scenes.tables import Table, listed, shown

_SLOT_COLUMN = re.compile(r"slot(\d+)_(.+?)(_word)?")
_OBJECT_COLUMN = re.compile(r"object(\d+)_(.+?)(_idx)?")
_PUG_COLUMNS = {
    (1, "animal"): "character_name",
    (1, "texture"): "character_texture",
    (2, "animal"): "character2_name",
    (2, "texture"): "character2_texture",
}

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


class Layout(NamedTuple):
    """Which columns hold the labels: (slot, concept) -> column of indices or words, and of words beside indices."""

    columns: Mapping[tuple[int, str], str]
    words: Mapping[tuple[int, str], str]
    orders: Mapping[str, tuple[str, ...]] = {}
    release: bool = False

    def order(self, concept: str, distinct: set[str]) -> tuple[str, ...]:
        """The words in the order in which they get their indices: the data set's own, or sorted."""
        own = self.orders.get(concept, ())
        return tuple(word for word in own if word in distinct) if distinct <= set(own) else tuple(sorted(distinct))


def layout_of(table: Table) -> Layout:
    """The layout of a wide table.

    Raises:
        ValueError: no column of labels is known, or a word column stands without its indices.
    """
    slot_columns = [(name, found) for name in table.names if (found := _SLOT_COLUMN.fullmatch(name))]
    if slot_columns:
        columns = {(int(m[1]), m[2]): name for name, m in slot_columns if not m[3]}
        words = {(int(m[1]), m[2]): name for name, m in slot_columns if m[3]}
        for key, name in words.items():
            if key not in columns:
                raise ValueError(
                    f"{table.path} has {name} without slot{key[0]}_{key[1]}; rename it to that if it holds the labels."
                )
        return Layout(columns, words)
    object_columns = [(name, found) for name in table.names if (found := _OBJECT_COLUMN.fullmatch(name))]
    if object_columns:
        plain = {(int(m[1]), m[2]): name for name, m in object_columns if not m[3]}
        indices = {(int(m[1]), m[2]): name for name, m in object_columns if m[3]}
        beside = {key: name for key, name in plain.items() if key in indices}
        return Layout({**plain, **indices}, beside, release=_is_release(table))
    if set(_PUG_COLUMNS.values()) <= set(table.names):
        return Layout(_PUG_COLUMNS, {}, _PUG_WORDS)
    raise ValueError(
        f"{table.path} has no columns of labels, such as slot1_color; its columns are "
        f"{listed([shown(name) for name in table.names]) or 'none'}."
    )


def check_columns(table: Table, layout: Layout, slots: Sequence[int], concepts: Sequence[str]) -> None:
    """Check that slots are numbered 1, 2, ... and that each has a column for every concept.

    Raises:
        ValueError: a gap, or a column without its partner in another slot; names the column.
    """
    if list(slots) != list(range(1, len(slots) + 1)):
        raise ValueError(f"{table.path} has slots {', '.join(map(str, slots))}; number them 1, 2, ... without gaps.")
    for name in concepts:
        lacking = [slot for slot in slots if (slot, name) not in layout.columns]
        if not lacking:
            continue
        there = [column for (_, concept), column in layout.columns.items() if concept == name]
        held = {slot for slot in slots if slot not in lacking}
        others = [column for (slot, concept), column in layout.columns.items()
                  if slot in lacking and not any((one, concept) in layout.columns for one in held)]  # fmt: skip
        close = get_close_matches(there[0], others, 1, 0.8) if there else []
        hint = f"; if that is {close[0]}, give both one name" if close else ""
        example = there[0] if there else next(iter(layout.columns.values()))
        raise ValueError(
            f"{table.path} has no column for {name!r} in slot {lacking[0]} to go with {example}{hint}; each slot needs "
            f"every concept: {', '.join(concepts)}."
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


_OF_SCENE = ("scene", "picture", "filename", "caption", "split", "world_name")
"""Columns of a long table that say something of the whole scene."""


@dataclass(frozen=True)
class _Widened(Table):
    """A long table as a wide one that still names the cells of the long one."""

    given: Table | None = None
    sources: Mapping[tuple[int, str], int] | None = None

    def where(self, row: int, column: str) -> str:
        """The row and column of the long table."""
        assert self.given is not None
        assert self.sources is not None
        found = _SLOT_COLUMN.fullmatch(column)
        slot = found[1] if found else "1"
        source = self.sources.get((row, slot), min(at for (scene, _), at in self.sources.items() if scene == row))
        return self.given.where(source, found[2] if found else column)


def widened(table: Table) -> Table:
    """A table with one row a scene; one with a row for each object is turned into that, any other is given back.

    A long table has a column `slot` (1, 2, ...) and one that tells scenes apart: `scene`, or else `picture` or
    `filename`. Captions, pictures and split must be the same in all rows of a scene; every other column is a concept.
    Scenes come in the order of their first rows.

    Raises:
        ValueError: no column tells scenes apart, a slot that is no number or occurs twice in a scene, or rows of one
            scene that disagree.

    Example:
        >>> from pathlib import Path
        >>> cells = {"scene": ["a", "a", "b"], "slot": ["1", "2", "1"], "color": ["red", "blue", "red"]}
        >>> wide = widened(Table(Path("mine.csv"), tuple(cells), 3, lambda name: cells[name]))
        >>> wide.names, wide.cells("slot2_color")
        (('scene', 'slot1_color', 'slot2_color'), ['blue', ''])
    """
    wide = any(_SLOT_COLUMN.fullmatch(name) or _OBJECT_COLUMN.fullmatch(name) for name in table.names)
    if wide or "slot" not in table.names:
        return table
    key = next((name for name in ("scene", "picture", "filename") if name in table.names), None)
    if key is None:
        raise ValueError(
            f"{table.path} has a row for each object (column slot) and no column that tells scenes apart; add scene."
        )
    columns = {name: list(table.cells(name)) for name in table.names}
    of_scene = [name for name in _OF_SCENE if name in table.names]
    concepts = [name for name in table.names if name != "slot" and name not in of_scene]
    firsts, sources = _gathered(table, columns, key, of_scene)
    cells = {name: [columns[name][row] for row in firsts] for name in of_scene}
    for slot in sorted({int(slot) for _, slot in sources}):
        for name in concepts:
            taken = (sources.get((at, str(slot))) for at in range(len(firsts)))
            cells[f"slot{slot}_{name}"] = ["" if row is None else columns[name][row] for row in taken]
    notes = (*table.notes, f"{table.path.name} was read as one row for each object: {', '.join(concepts)}.")
    lines = tuple(table.lines[row] for row in firsts) if table.lines else ()
    return _Widened(
        table.path, tuple(cells), len(firsts), lambda name: cells[name], lines, notes, given=table, sources=sources
    )


def _gathered(
    table: Table, columns: Mapping[str, list[str]], key: str, of_scene: Sequence[str]
) -> tuple[list[int], dict[tuple[int, str], int]]:
    """The first row of each scene, and the row of each (scene, slot)."""
    scene_of: dict[str, int] = {}
    sources: dict[tuple[int, str], int] = {}
    firsts: list[int] = []
    for row, (scene, cell) in enumerate(zip(columns[key], columns["slot"], strict=True)):
        slot = cell.strip()
        if not re.fullmatch(r"[1-9]\d{0,3}", slot):
            raise ValueError(f"{table.where(row, 'slot')}: {shown(cell)} is no slot; number objects 1, 2, ...")
        at = scene_of.setdefault(scene, len(firsts))
        if at == len(firsts):
            firsts.append(row)
        if (at, slot) in sources:
            raise ValueError(f"{table.where(row, 'slot')}: scene {shown(scene)} has slot {slot} twice; number it anew.")
        sources[at, slot] = row
        for name in of_scene:
            if columns[name][row] != columns[name][firsts[at]]:
                raise ValueError(
                    f"{table.where(row, name)}: {shown(columns[name][row])} differs from {name} in the first row of "
                    f"scene {shown(scene)}; all rows of a scene need the same."
                )
    return firsts, sources
