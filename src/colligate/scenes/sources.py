"""The user's own scenes: a table of labels, with captions, pictures and a split where it has them.

    filename,slot1_color,slot1_shape,slot2_color,slot2_shape,caption
    0.png,red,cube,blue,ball,a red cube and a blue ball
    1.png,red,cube,,,a red cube

One row is one scene, or one object (see `layouts`). `read_labels` says which columns it knows and what it refuses;
nothing is trimmed, dropped or guessed. The labels released with the paper (`object1_color`, ...) and those of PUG:SPARE
(`character_name`, ...) are read as they are.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.concepts import Concept
from colligate.scenes.files import check_files, find_pictures
from colligate.scenes.layouts import Layout, check_columns, layout_of, widened
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import PARTS
from colligate.scenes.tables import Table, first_line, kept_rows, listed, read_bytes, read_table, shown
from colligate.scenes.words import composed
from colligate.scenes.worlds import World

_MOST_VALUES = 1_000_000
"""Values of a concept that a space file may list, or ask for by their number."""

_MOST_OBJECTS = 20_000
"""Objects that concepts may allow: whatever is measured holds a number for each."""


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
        if isinstance(error, UnicodeDecodeError | json.JSONDecodeError) or str(path) not in str(error):
            raise ValueError(f"{path} is not JSON ({first_line(error)}); it must hold {wanted}.") from None
        raise
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply; it must hold {wanted}.") from None
    if not (isinstance(pairs, list) and pairs and all(isinstance(pair, tuple) for pair in pairs)):
        raise ValueError(f"{path} must hold {wanted}.")
    concepts: dict[str, int | list[str]] = {}
    for name, given in pairs:
        _check_listed(path, name, given)
        own = composed(name)
        if own in concepts:
            raise ValueError(f"{path} lists the concept {shown(name)} twice; list it once.")
        concepts[own] = given if isinstance(given, int) else [composed(word) for word in given]
    if sum(given if isinstance(given, int) else len(given) for given in concepts.values()) > _MOST_VALUES:
        raise ValueError(f"{path} lists more than {_MOST_VALUES:,} values in all; list those that occur.")
    try:
        return ConceptSpace(concepts)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_objects(said: str, space: ConceptSpace) -> None:
    """Refuse concepts whose objects, all that they allow, are more than tables of them should hold."""
    if space.num_objects > _MOST_OBJECTS:
        raise ValueError(
            f"{said}: {space.num_concepts} concepts allow {space.num_objects:,} objects, and at most {_MOST_OBJECTS:,} "
            "are numbered; name fewer of the concepts, or those that matter, with --space."
        )


def _check_listed(path: Path, name: str, given: object) -> None:
    """Refuse what is neither a list of words nor a number of values, or more of them than memory should hold."""
    said = shown(name)
    words = isinstance(given, list) and all(isinstance(word, str) for word in given)
    number = isinstance(given, int) and not isinstance(given, bool) and given > 0
    if not (words or number):
        raise ValueError(f"{path}: concept {said} must list its values' words (or their number, 1 or more).")
    if isinstance(given, int) and given > _MOST_VALUES:
        raise ValueError(f"{path}: concept {said} has more than {_MOST_VALUES:,} values; list those that occur.")
    for word in (name, *(given if isinstance(given, list) else ())):
        if not word.strip() or any("\ud800" <= sign <= "\udfff" for sign in word):
            raise ValueError(f"{path}: concept {said} holds {shown(word)}, which is no word; write another.")


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
    return world_of(read_table(path), called, space=space, keep=keep)


def world_of(
    given: Table, called: str, *, space: ConceptSpace | None = None, keep: Mapping[str, str] | None = None
) -> World:
    """A world from a table that was read, as `read_labels` does.

    Args:
        given: the table.
        called: the world's name.
        space: the concepts and values, where the table alone doesn't tell.
        keep: column -> cell; rows that differ in one of them are left out, with a note.

    Raises:
        ValueError: whatever in the table can't be taken as it stands.
    """
    path, given = given.path, kept_rows(given, keep or {})
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
        concept = Concept(table, name, [(layout.columns[k, name], cells[k, name]) for k in slots])
        beside = [
            (layout.words[k, name], _labels(table, layout.words[k, name], notes)) if (k, name) in layout.words else None
            for k in slots
        ]
        words[name], index = concept.read(known, beside, layout.order(name, concept.distinct), layout.release, notes)
        values.append(torch.tensor([[index[cell] for cell in column] for _, column in concept.columns]).T)
    space = space or ConceptSpace(words)
    _check_objects(str(path), space)
    scenes = Scenes(space, torch.stack(values, dim=2))
    _check_scenes(table, scenes, notes)
    captions, pictures, parts = _captions(table, notes), find_pictures(table, notes), _parts(table)
    _check_repeats(table, scenes, captions, pictures)
    used = {*layout.columns.values(), *layout.words.values(), "caption", "split", "picture"}
    used |= set() if "picture" in table.names else {"filename"}
    used |= {"scene"} if table is not given else set()
    ignored = [name for name in table.names if name not in used]
    if ignored:
        notes.append(f"Ignored columns of {path.name}: {', '.join(map(shown, ignored))}.")
    notes += _of_pug(table)
    return World(called, scenes, captions, pictures, parts, tuple(notes), table)


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
    words = [composed(cell) for cell in bare]
    forms = [word for word, cell in zip(words, bare, strict=True) if word != cell]
    if forms:
        notes.append(
            f"Words of column {column} stand in another Unicode form ({len(forms)} cells, such as {shown(forms[0])}); "
            "forms of one word are read as one."
        )
    return words


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


def _captions(table: Table, notes: list[str]) -> tuple[str, ...] | None:
    if "caption" not in table.names:
        return None
    captions = tuple(table.cells("caption"))
    forms = [row for row, caption in enumerate(captions) if composed(caption) != caption]
    if forms:
        notes.append(
            f"{len(forms)} captions (first: {table.place(forms[0])}) aren't in Unicode's composed form; they are "
            "kept as written, and a model may read them as other words."
        )
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
