"""Which vector belongs to which row of the labels: by the columns that both tables have, never by order alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.tables import Table, shown
from colligate.scenes.words import composed

_PICTURE = ("picture", "filename")
"""Two names of one column."""
_MOST_TRIED = 8
"""Columns of each table whose cells are compared where no name is the same."""


def shared_columns(table: Table, others: Sequence[str], labels: Table) -> Mapping[str, str]:
    """Columns of a table of vectors that the labels have too -> their name there.

    The same name, or `picture` and `filename`; where there is none, columns of text that hold the same different cells.

    Args:
        table: the table of vectors.
        others: its columns that hold no numbers of vectors.
        labels: the table of labels.
    """
    named = {name: name for name in others if name in labels.names}
    for one, other in (_PICTURE, _PICTURE[::-1]):
        if one in others and one not in named and other in labels.names and other not in named.values():
            named[one] = other
    if named or table.num_rows != labels.num_rows:
        return named
    cells = {name: _cells(table, name) for name in others[:_MOST_TRIED]}
    for theirs in labels.names[:_MOST_TRIED]:
        wanted = _cells(labels, theirs)
        if len(set(wanted)) < len(wanted) or all(cell.replace(".", "", 1).isdigit() for cell in wanted):
            continue  # no key, or running numbers that may count anything
        for mine, held in cells.items():
            if set(held) == set(wanted):
                return {mine: theirs}
    return {}


def join(
    path: Path, table: Table, shared: Mapping[str, str], labels: Table
) -> tuple[Int[Tensor, " row"], tuple[str, ...]]:
    """For each row of the labels, the row of the vectors' table that has the same cells; and what a reader should know.

    Raises:
        ValueError: a row of the labels without a vector, or cells that occur twice and stand in another order.

    Example:
        >>> def of(*cells):
        ...     return Table(Path("a.csv"), ("id",), len(cells), lambda name: cells)
        >>> join(Path("v.parquet"), of("b", "a"), {"id": "id"}, of("a", "b"))[0].tolist()
        [1, 0]
    """
    said = " and ".join(theirs for theirs in shared.values())
    held = list(zip(*(_cells(table, mine) for mine in shared), strict=True))
    wanted = list(zip(*(_cells(labels, theirs) for theirs in shared.values()), strict=True))
    place = {key: row for row, key in reversed(list(enumerate(held)))}
    lacking = next((row for row, key in enumerate(wanted) if key not in place), None)
    if lacking is not None:
        raise ValueError(
            f"{path} has no vector for {labels.where(lacking, next(iter(shared.values())))}: its rows are found by "
            f"{said}, and none has {' and '.join(map(shown, wanted[lacking]))}; add it, or leave the row out."
        )
    if len(place) < len(held) or len(set(wanted)) < len(wanted):
        if held == wanted:
            return torch.arange(len(held)), ()
        again = next(row for row, key in enumerate(held) if place[key] != row) if len(place) < len(held) else 0
        key = held[again] if again else next(key for key in wanted if wanted.count(key) > 1)
        raise ValueError(
            f"{path} and {labels.path.name} both have {said}, but {' and '.join(map(shown, key))} occurs twice and the "
            "rows stand in another order, so it is unknown which vector belongs to which row; give both a column of "
            "different names, such as picture."
        )
    rows = torch.tensor([place[key] for key in wanted])
    notes = (f"Vectors of {path.name} were found for each row of {labels.path.name} by {said}.",)
    if len(held) > len(wanted):
        notes += (f"{len(held) - len(wanted):,} of {len(held):,} vectors belong to no row of the labels.",)
    return rows, notes


def _cells(table: Table, name: str) -> list[str]:
    """A column's cells as keys: in one Unicode form, with no blanks around."""
    return [composed(cell.strip()) for cell in table.cells(name)]
