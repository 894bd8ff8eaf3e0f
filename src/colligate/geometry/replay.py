"""Edits from a list in a file, so that the very edits of someone else can be scored again.

Two kinds of table (CSV or Parquet), told apart by their columns; others are ignored.

    base_row,slot,target_row                                       rows of the labels from 0, slots from 1
    attr1,noun1,attr2,noun2,target_attr,edited_slot,control_row    the authors' lists, which name values

A list by rows may name them by a column of the labels instead: base_picture,slot,target_picture for labels with a
column `picture`. Where it has such columns they count, whatever the rows' order. Every line is checked: the target must
be the base scene with one object exchanged.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.geometry.interventions import Edits
from colligate.scenes.space import Scenes
from colligate.scenes.tables import Table, read_table, shown
from colligate.scenes.words import composed

ROWS = ("base_row", "slot", "target_row")
"""Columns of a list of edits by rows."""
VALUES = ("attr1", "noun1", "attr2", "noun2", "target_attr", "edited_slot", "control_row")
"""Columns of the authors' lists: value indices of the edited concept (attr) and of the other one (noun)."""


def read_edit_list(
    path: Path,
    scenes: Scenes,
    *,
    concept: str | None = None,
    labels: Table | None = None,
    rows: Int[Tensor, " scene"] | None = None,
) -> Edits:
    """Read which edits to make.

    Args:
        path: the list.
        scenes: the scenes that are edited; every scene of a list by values must stand there once.
        concept: the concept that a list by values edits. By default the one under which every line is consistent: its
            indices fit, and its target is the base scene with that value exchanged.
        labels: the table of labels, by whose columns a list may name its rows.
        rows: the row of the labels that shows each scene; by default every row does, in order.

    Raises:
        ValueError: columns of neither kind, a cell that isn't a row, slot or value, a key that no row of the labels has
            or that several have, keys and rows that name different ones, a target that isn't the base scene
            with one object exchanged, or a list that fits no concept or both.

    Example:
        >>> import tempfile
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "edits.csv"
        ...     _ = path.write_text(chr(10).join(["base_row,slot,target_row", "0,1,12", "0,2,2"]))
        ...     read_edit_list(path, scenes).slot.tolist()
        [0, 1]
    """
    table, of = read_table(path), _Shown(scenes, rows)
    keys = {end: _keys(table, labels, end) for end in ("base", "target")}
    if "slot" in table.names and all(keys[end] or f"{end}_row" in table.names for end in keys):
        base, target = (_rows_named(table, labels, end, keys[end]) for end in ("base", "target"))
        slot = _whole_numbers(table, "slot")
        _check_range(table, "slot", slot, 1, scenes.slots)
        names = keys["base"] or ROWS[0], "slot", keys["target"] or ROWS[2]
        edits = _by_rows(table, of, base, slot - 1, target, names)
        _check_exchange(table, edits, names[2])
        return edits
    if set(VALUES) <= set(table.names):
        return _by_values(table, of, concept)
    raise ValueError(
        f"{path} has the columns {', '.join(table.names)}; a list of edits has {', '.join(ROWS)} "
        f"(or {', '.join(VALUES)})."
    )


def edit_list_bytes(edits: Edits) -> bytes:
    """The edits as a CSV list by rows, which `read_edit_list` reads back.

    Example:
        >>> from colligate.geometry.interventions import concept_edits
        >>> from colligate.scenes.space import ConceptSpace
        >>> edits = concept_edits(ConceptSpace(color=2, shape=1).all_scenes(slots=2), concept=0)
        >>> edit_list_bytes(edits).decode().splitlines()[:2]
        ['base_row,slot,target_row', '0,1,2']
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ROWS)
    writer.writerows(zip(edits.base.tolist(), (edits.slot + 1).tolist(), edits.target.tolist(), strict=True))
    return text.getvalue().encode()


class _Shown(NamedTuple):
    """Scenes, and the row of the labels that shows each; None where every row does, in order."""

    scenes: Scenes
    rows: Int[Tensor, " scene"] | None

    def place(self, table: Table, name: str, rows: Tensor) -> Tensor:
        """Where these rows of the labels stand among the scenes.

        Raises:
            ValueError: there is no such row, or it shows no scene of several objects.
        """
        if self.rows is None:
            _check_range(table, name, rows, 0, len(self.scenes) - 1)
            return rows
        places = torch.full((int(self.rows.max()) + 1,), -1)
        places[self.rows] = torch.arange(len(self.rows))
        _check_range(table, name, rows, 0, len(places) - 1)
        alone = (places[rows] < 0).nonzero()[:, 0].tolist()
        if alone:
            raise ValueError(
                f"{table.where(alone[0], name)}: row {int(rows[alone[0]])} of the labels is no scene of several "
                "objects; edit one that is."
            )
        return places[rows]


def _keys(table: Table, labels: Table | None, end: str) -> str:
    """The column of the list that names rows of the labels by a column of theirs; "" for none."""
    named = [f"{end}_{name}" for name in (() if labels is None else labels.names)]
    return next((name for name in named if name in table.names and name != f"{end}_row"), "")


def _rows_named(table: Table, labels: Table | None, end: str, key: str) -> Tensor:
    """The rows of the labels that a list names, by its key where it has one.

    Raises:
        ValueError: a key that no row has, or several; a row that is another than the key's.
    """
    counted = _whole_numbers(table, f"{end}_row") if f"{end}_row" in table.names else None
    if not key or labels is None:
        assert counted is not None
        return counted
    column = key.removeprefix(f"{end}_")
    places: dict[str, list[int]] = {}
    for row, cell in enumerate(labels.cells(column)):
        places.setdefault(composed(cell.strip()), []).append(row)
    named = list[int]()
    for row, cell in enumerate(table.cells(key)):
        held = places.get(composed(cell.strip()), [])
        if len(held) != 1:
            what = "no row" if not held else f"{len(held)} rows"
            raise ValueError(f"{table.where(row, key)}: {what} of {labels.path.name} have the {column} {shown(cell)}.")
        if counted is not None and int(counted[row]) != held[0]:
            raise ValueError(
                f"{table.where(row, key)}: {shown(cell)} is row {held[0]} of {labels.path.name}, and {end}_row says "
                f"{int(counted[row])}; leave one of the two columns out."
            )
        named.append(held[0])
    return torch.tensor(named, dtype=torch.int64)


def _whole_numbers(table: Table, name: str) -> Int[Tensor, " edit"]:
    cells = table.cells(name)
    numbers: list[int] = []
    for row, cell in enumerate(cells):
        if not (cell.strip().isascii() and cell.strip().isdigit() and len(cell.strip()) < 18):
            raise ValueError(f"{table.where(row, name)}: {cell!r} is not a whole number from 0; give an index.")
        numbers.append(int(cell))
    return torch.tensor(numbers, dtype=torch.int64)


def _check_range(table: Table, name: str, numbers: Tensor, low: int, high: int) -> None:
    outside = ((numbers < low) | (numbers > high)).nonzero()[:, 0].tolist()
    if outside:
        raise ValueError(
            f"{table.where(outside[0], name)}: {int(numbers[outside[0]])} is outside {low}..{high}; "
            "the list must belong to these scenes."
        )


def _by_rows(table: Table, of: _Shown, base: Tensor, slot: Tensor, target: Tensor, names: Sequence[str]) -> Edits:
    scenes = of.scenes
    base, target = of.place(table, names[0], base), of.place(table, names[2], target)
    return _checked(table, scenes, base, slot, target, names)


def _checked(table: Table, scenes: Scenes, base: Tensor, slot: Tensor, target: Tensor, names: Sequence[str]) -> Edits:
    """The edits, none of an empty slot."""
    empty = (~scenes.filled[base, slot]).nonzero()[:, 0].tolist()
    if empty:
        raise ValueError(
            f"{table.where(empty[0], names[1])}: slot {int(slot[empty[0]]) + 1} of scene {int(base[empty[0]])} is "
            "empty; edit a slot that holds an object."
        )
    return Edits(scenes, base, slot, target)


def _check_exchange(table: Table, edits: Edits, name: str) -> None:
    """The target holds another object in the edited slot, and the same ones in all others."""
    rows = torch.arange(len(edits))
    differs = edits.scenes.objects[edits.base] != edits.scenes.objects[edits.target]
    wanted = torch.zeros_like(differs)
    wanted[rows, edits.slot] = True
    gone = edits.scenes.objects[edits.target][rows, edits.slot] < 0
    wrong = ((differs != wanted).any(1) | gone).nonzero()[:, 0].tolist()
    if wrong:
        first = wrong[0]
        raise ValueError(
            f"{table.where(first, name)}: scene {int(edits.target[first])} is not scene {int(edits.base[first])} with "
            f"another object in slot {int(edits.slot[first]) + 1}; name the scene that the edit should give."
        )


def _by_values(table: Table, of: _Shown, concept: str | None) -> Edits:
    scenes, space = of.scenes, of.scenes.space
    if space.num_concepts != 2 or scenes.slots != 2:
        raise ValueError(
            f"{table.path} lists edits of two concepts in two slots, but these scenes have {space.num_concepts} and "
            f"{scenes.slots}; list them by {', '.join(ROWS)}."
        )
    columns = {name: _whole_numbers(table, name) for name in VALUES}
    tried = [space.concept(concept)] if concept is not None else [0, 1]
    found: list[Edits] = []
    errors: list[ValueError] = []
    for which in tried:
        try:
            found.append(_for_concept(table, of, columns, which))
        except ValueError as error:
            errors.append(error)
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{table.path} fits edits of {space.names[0]} and of {space.names[1]}; say which concept.")
    if len(errors) == 1:
        raise errors[0]
    raise ValueError(
        f"{table.path} fits no concept. As edits of {space.names[0]}: {errors[0]} As edits of {space.names[1]}: "
        f"{errors[1]}"
    )


def _for_concept(table: Table, of: _Shown, columns: dict[str, Tensor], concept: int) -> Edits:
    """The edits, taking attr for values of this concept and noun for those of the other."""
    scenes, space, other = of.scenes, of.scenes.space, 1 - concept
    for name in VALUES[:5]:
        which = other if name.startswith("noun") else concept
        _check_range(table, name, columns[name], 0, space.sizes[which] - 1)
    _check_range(table, "edited_slot", columns["edited_slot"], 1, 2)
    values = torch.empty(table.num_rows, 2, 2, dtype=torch.int64)
    for slot in (0, 1):
        values[:, slot, concept] = columns[f"attr{slot + 1}"]
        values[:, slot, other] = columns[f"noun{slot + 1}"]
    named = Scenes(space, values)
    base, slot = scenes.rows_of(named), columns["edited_slot"] - 1
    absent = (base < 0).nonzero()[:, 0].tolist()
    if absent:
        raise ValueError(
            f"{table.where(absent[0], 'attr1')}: the scene {named.describe(absent[0])!r} isn't there; "
            "the list must belong to these scenes."
        )
    ids, counts = scenes.ids.unique(return_counts=True)
    repeated = (counts[torch.searchsorted(ids, named.ids)] > 1).nonzero()[:, 0].tolist()
    if repeated:
        raise ValueError(
            f"{table.where(repeated[0], 'attr1')}: the scene {named.describe(repeated[0])!r} stands in several rows; "
            f"list the edits by {', '.join(ROWS)}."
        )
    target = of.place(table, "control_row", columns["control_row"])
    edits = _checked(table, scenes, base, slot, target, ("attr1", "edited_slot", "control_row"))
    values[torch.arange(table.num_rows), slot, concept] = columns["target_attr"]
    wrong = (scenes.ids[edits.target] != Scenes(space, values).ids).nonzero()[:, 0].tolist()
    if wrong:
        raise ValueError(
            f"{table.where(wrong[0], 'control_row')}: row {int(edits.target[wrong[0]])} shows "
            f"{scenes.describe(int(edits.target[wrong[0]]))!r}, but changing {space.names[concept]} gives "
            f"{Scenes(space, values).describe(wrong[0])!r}."
        )
    _check_exchange(table, edits, "control_row")
    return edits
