"""The cells of one concept: which of them are words, which are indices, and which value each one names."""

import re
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from colligate.scenes.space import EMPTY
from colligate.scenes.tables import Table, listed, shown
from colligate.scenes.words import composed, look_alikes

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_WHOLE = re.compile(r"(0|[1-9][0-9]{0,8})(\.0+)?")
_SPELT = re.compile(r"\+[0-9]+(\.[0-9]*)?|0[0-9]+(\.[0-9]*)?|[0-9]+\.")
"""Numbers as no program writes an index (`01`, `+1`, `1.`): codes, which are words."""
_RELEASE_SHAPES = ("cube", "cylinder", "sphere")
_LONG = 100
"""Signs up to which a word is compared with others for misspellings: the time grows with their product."""
_MOST_COMPARED = 20_000
"""Pairs of words that are compared for misspellings."""


class Concept(NamedTuple):
    """The cells of one concept, slot by slot.

    Attributes:
        table: the table that they are from, to name them in errors.
        name: the concept.
        columns: for each slot, its column's name and cells.
    """

    table: Table
    name: str
    columns: list[tuple[str, list[str]]]

    @property
    def distinct(self) -> set[str]:
        """Its different cells; an empty one is none."""
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
        """The words (or number) of the concept's values, and the index of each cell.

        Args:
            known: the words in index order, where they are given.
            beside: for each slot, the column of words that stands beside the indices, and its cells; or none.
            order: its different cells in the order in which they are numbered if they are words.
            release: whether these are the labels released with the paper.
            notes: what a reader should know is added to them.

        Raises:
            ValueError: a cell that is no value of the concept; names its row and column.
        """
        distinct = self.distinct
        numbers = {cell for cell in distinct if _NUMBER.fullmatch(cell)}
        place = {composed(word): i for i, word in enumerate(known or ())}
        if known is not None and distinct <= set(place):
            if numbers:
                notes.append(f"Values of {self.name!r} such as {min(numbers)!r} are read as words of the given space.")
            return known, {"": EMPTY, **{word: place[word] for word in distinct}}
        odd = sorted(cell for cell in numbers if _SPELT.fullmatch(cell))
        if len(odd) == len(numbers) < len(distinct) and known is None:
            pass  # codes such as 007 among words
        elif numbers == distinct and odd and known is None and not any(beside):
            notes.append(
                f"Values of {self.name!r} such as {odd[0]!r} are no plain numbers, so all its cells are read as words; "
                "for indices write 0, 1, 2, ..."
            )
        elif numbers == distinct:
            index = self._indices(distinct, known)
            notes.extend(self._merged(index))
            words = self._words_beside(index, beside, known, release, notes)
            return words, {"": EMPTY, **index}
        elif known is not None:
            cell = next(c for _, cells in self.columns for c in cells if c and c not in place)
            close = get_close_matches(cell, known, 1) if len(cell) <= _LONG else []
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise self.fail(cell, f"unknown {self.name} {shown(cell)}; known are {listed(known)}.{hint}")
        elif numbers:
            word = min(distinct - numbers)
            raise self.fail(
                word,
                f"{self.name} mixes words ({shown(word)}) and indices ({min(numbers)!r}); use one of them, or give "
                "--space if the numbers are words.",
            )
        notes.extend(self._doubtful(distinct))
        return order, {"": EMPTY, **{word: i for i, word in enumerate(order)}}

    def _merged(self, index: Mapping[str, int]) -> list[str]:
        """Indices that are spelt in two ways, such as `1` and `1.0`."""
        spelt: dict[int, list[str]] = {}
        for cell, i in index.items():
            spelt.setdefault(i, []).append(cell)
        twice = [cells for cells in spelt.values() if len(cells) > 1]
        if not twice:
            return []
        more = f", and so are others of {len(twice) - 1} more indices" if len(twice) > 1 else ""
        return [f"Cells {' and '.join(map(repr, twice[0]))} of {self.name!r} are read as one index{more}."]

    def _doubtful(self, distinct: set[str]) -> list[str]:
        """Words in one or two cells that are near to one with ten times as many: perhaps misspelt."""
        found = [
            f"Values {' and '.join(map(shown, group))} of {self.name!r} look alike and are read as "
            f"{len(group)} different words; make them one if they are."
            for group in look_alikes(distinct)
        ]
        counts = Counter(cell for _, cells in self.columns for cell in cells)
        rare = sorted(word for word in distinct if counts[word] <= 2 and len(word) <= _LONG)
        often = [word for word in distinct if counts[word] >= 10 and len(word) <= _LONG]
        if len(rare) * len(often) > _MOST_COMPARED:
            return [*found, f"{self.name!r} has too many rare values ({len(rare):,}) to look for misspelt ones."]
        for word in rare:
            close = get_close_matches(word, [other for other in often if counts[other] >= 10 * counts[word]], 1)
            if close:
                times = "once" if counts[word] == 1 else "twice"
                problem = f"{shown(word)} occurs {times}; did you mean {shown(close[0])}?"
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
