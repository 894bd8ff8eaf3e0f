"""Scenes divided one by one: at random, as the authors' code does, or as the user says."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from colligate.scenes.space import Scenes
from colligate.scenes.splits.parts import (
    PARTS,
    Split,
    assemble,
)


@dataclass(frozen=True)
class ByScene:
    """Divide scenes at random, keeping replicates and (by default) a scene and its reorderings in one part.

    Shares are of scenes, not rows: a scene with many replicates counts once. Within each number of objects the parts
    get their shares. The fit part sees every value, and every object where it has room for a scene of each.

    Args:
        fit: share of scenes to fit on.
        validation: share to choose on; the rest is for the test. Zero leaves the validation part empty.
        twins_together: whether the same objects in other slots count as the same scene.
        singles: where single-object scenes go if there are others: all of them to `"fit"` (they are few, and the
            estimator `single` is made of them), or `"split"` like the rest.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=3).all_scenes(slots=2)
        >>> split = ByScene(fit=0.6, validation=0.2).split(scenes, seed=0)
        >>> len(split.fit) + len(split.validation) + len(split.test)
        81
    """

    fit: float = 0.6
    validation: float = 0.2
    twins_together: bool = True
    singles: Literal["fit", "split"] = "fit"

    def __post_init__(self) -> None:
        if not (0 < self.fit < 1 and self.validation >= 0 and self.fit + self.validation < 1):
            raise ValueError(
                f"Shares must leave something to fit and to test on, 0 < fit and fit + validation < 1; "
                f"got fit={self.fit}, validation={self.validation}."
            )

    def split(self, scenes: Scenes, seed: int) -> Split:
        """Divide the scenes.

        Raises:
            ValueError: too few scenes for the parts, or for the fit part to see every value.
        """
        divided = torch.ones(len(scenes), dtype=torch.bool)
        if self.singles == "fit" and (scenes.counts > 1).any():
            divided = scenes.counts > 1
        codes = torch.zeros(len(scenes), dtype=torch.int64)
        codes[divided], notes = self._divide(scenes[divided], torch.Generator().manual_seed(seed))
        name = f"by scene, fit {self.fit:g}, validation {self.validation:g}, seed {seed}"
        return assemble(scenes, codes, name, notes=notes, empty_validation=self.validation == 0)

    def _divide(self, scenes: Scenes, generator: torch.Generator) -> tuple[Int[Tensor, " scene"], tuple[str, ...]]:
        keys = scenes.unordered_ids if self.twins_together else scenes.ids
        _, group = keys.unique(return_inverse=True)
        num = int(group.max()) + 1 if len(group) else 0
        if not num:
            raise ValueError("There are no scenes to divide; the table of scenes is empty.")
        first_row = torch.full((num,), len(scenes)).scatter_reduce_(0, group, torch.arange(len(scenes)), "amin")
        shown = scenes[first_row]
        counts, stratum, sizes = shown.counts.unique(return_inverse=True, return_counts=True)
        shares = torch.tensor([self._shares(size) for size in sizes.tolist()])
        # Scenes come in random order; those with the commonest number of objects are asked first to show a value.
        rank = torch.randperm(num, generator=generator)
        rank = (sizes.argsort(descending=True).argsort()[stratum] * num + rank).argsort().argsort()
        notes: tuple[str, ...] = ()
        cover = _first_showing([shown.objects], shown.filled, rank)
        if (torch.bincount(stratum[cover], minlength=len(counts)) > shares[:, 0]).any():
            notes = ("There are too few scenes to fit on for each object to be seen; each value is.",)
            cover = _first_showing(list(shown.values.unbind(2)), shown.filled, rank)
        late = torch.ones(num, dtype=torch.int64)
        late[cover] = 0
        order = ((stratum * 2 + late) * num + rank).argsort()
        place = torch.empty(num, dtype=torch.int64)
        place[order] = torch.arange(num) - (sizes.cumsum(0) - sizes)[stratum[order]]
        part = (place[:, None] >= shares.cumsum(1)[stratum][:, :2]).sum(1)
        if (part[cover] > 0).any():
            raise ValueError(
                f"{num} scenes are too few: showing every value takes {len(cover)} of them, more than a fit share of "
                f"{self.fit:g}; raise the share or give more scenes."
            )
        return part[group], notes

    def _shares(self, num: int) -> tuple[int, int, int]:
        validation = max(1, math.floor(self.validation * num + 0.5)) if self.validation else 0
        test = max(1, math.floor((1 - self.fit - self.validation) * num + 0.5))
        validation, test = min(validation, max(num - 2, 0)), min(test, num - 1)
        return num - validation - test, validation, test


@dataclass(frozen=True)
class PaperScenes:
    """Divide rows as the authors' code does: a random share to fit on, all others for the test.

        first int(fit * N) rows of torch.randperm(N), under a generator seeded with `seed`

    There is no validation part, a scene and its twin may stand in different parts, and nothing ensures that the fit
    part sees every value; a note names those that it misses.

    Paper: arXiv:2605.31503: fit = 0.4 for probes, 0.99 for the components that are removed.

    Args:
        fit: share of rows to fit on.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> split = PaperScenes().split(ConceptSpace(color=3, shape=2).all_scenes(slots=2), seed=0)
        >>> len(split.fit), len(split.validation), len(split.test)
        (14, 0, 22)
    """

    fit: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.fit < 1:
            raise ValueError(f"The share to fit on must lie strictly between 0 and 1; got fit={self.fit:g}.")

    def split(self, scenes: Scenes, seed: int) -> Split:
        """Divide the rows.

        Raises:
            ValueError: a part would be empty.
        """
        order = torch.randperm(len(scenes), generator=torch.Generator().manual_seed(seed))
        codes = torch.full((len(scenes),), PARTS.index("test"))
        codes[order[: int(self.fit * len(scenes))]] = PARTS.index("fit")
        name = f"by row as the paper's code, fit {self.fit:g}, seed {seed}"
        return assemble(scenes, codes, name, empty_validation=True, report_unseen=True)


@dataclass(frozen=True)
class Given:
    """Take the parts as a table gives them: "fit", "validation" or "test" for each row.

    Rows past the given ones must be single-object scenes (those that come with a vectors file); they belong to fit.

    Args:
        parts: a part for each row.
        protocol: under `paper`, which chooses on test, the validation part may be empty.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3], [3, 0], [1, 2], [0, 1]])
        >>> Given(("fit", "validation", "fit", "test")).split(scenes, seed=0).fit.tolist()
        [0, 2]
    """

    parts: tuple[str, ...]
    protocol: Literal["strict", "paper"] = "strict"

    def split(self, scenes: Scenes, seed: int = 0) -> Split:
        """Take the parts; the seed isn't used.

        Raises:
            ValueError: another word, rows and parts differ in number, an empty part, or a value the fit part misses.
        """
        for row, part in enumerate(self.parts):
            if part not in PARTS:
                raise ValueError(f"Row {row} is given to part {part!r}; the parts are {', '.join(PARTS)}.")
        extra = len(scenes) - len(self.parts)
        if extra < 0 or (scenes.counts[len(self.parts) :] > 1).any():
            raise ValueError(f"{len(self.parts)} parts are given for {len(scenes)} scenes; give one for each.")
        codes = torch.tensor([PARTS.index(part) for part in self.parts] + [0] * extra, dtype=torch.int64)
        if not (codes == PARTS.index("validation")).any() and self.protocol == "strict":
            raise ValueError(
                "The split as given names no scene validation, and protocol strict chooses on those; name some of the "
                "fit scenes validation, or take protocol paper, which has no such part."
            )
        remedy = "give it rows in the column split"
        return assemble(scenes, codes, "as given", empty_validation=True, remedy=remedy)


def _first_showing(
    shown: Sequence[Int[Tensor, "scene slot"]], filled: Bool[Tensor, "scene slot"], rank: Int[Tensor, " scene"]
) -> Int[Tensor, " cover"]:
    """For each thing shown (an object, or a value of each concept), the scene of least rank that shows it."""
    by_rank = rank.argsort()
    ranks = rank[:, None].expand_as(filled)[filled]
    first: list[Tensor] = []
    for of_concept in shown:
        _, thing = of_concept[filled].unique(return_inverse=True)
        least = torch.full((int(thing.max()) + 1,), len(rank)).scatter_reduce_(0, thing, ranks, "amin")
        first.append(by_rank[least])
    return torch.cat(first).unique()
