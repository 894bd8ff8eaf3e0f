"""Splits of scenes into fit, validation and test: fit on the first, choose on the second, report on the third.

A rule is a frozen dataclass with `split(scenes, seed) -> Split`. `ByScene` divides scenes, `ByObject` and `ByValuePair`
hold out what can stand in a slot, `BySwaps` holds out objects so that binding can be tested among unseen objects only,
`Given` takes a column of the user's table, `PaperScenes` is the authors' split.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from colligate.scenes.space import ConceptSpace, Scenes

PARTS = ("fit", "validation", "test")
"""The three parts, in the order of their codes."""

_UNUSED = -1
_DRAWS = 100


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit on, to choose on and to report on; rows in no part are left unused.

    Attributes:
        fit: row indices, ascending.
        validation: row indices, ascending.
        test: row indices, ascending.
        name: the rule and its seed, in words.
        objects: where objects were divided, the object ids of each part.
        notes: what a reader of the results should know about this split.

    Raises:
        ValueError: a row stands in two parts.
    """

    fit: Int[Tensor, " fit"]
    validation: Int[Tensor, " validation"]
    test: Int[Tensor, " test"]
    name: str
    objects: Mapping[str, Tensor] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows, counts = torch.cat([self.fit, self.validation, self.test]).unique(return_counts=True)
        if (counts > 1).any():
            raise ValueError(f"Row {int(rows[counts > 1][0])} stands in two parts of a split; put it in one.")


@runtime_checkable
class SplitRule(Protocol):
    """Whatever divides scenes into the three parts."""

    def split(self, scenes: Scenes, seed: int) -> Split:
        """The parts of these scenes; the same seed gives the same parts."""
        ...


def require_seen(scenes: Scenes, rows: Int[Tensor, " fit"]) -> None:
    """Check that the given rows show every value that occurs in the scenes.

    Raises:
        ValueError: names the values that the rows never show.

    Example:
        >>> scenes = ConceptSpace(color=["red", "blue"], shape=2).scenes([[0, 1], [3, 2]])
        >>> require_seen(scenes, torch.tensor([0]))
        Traceback (most recent call last):
        ValueError: The fit part never shows color 'blue'; give it more scenes or objects, or leave that value out.
    """
    unseen = unseen_values(scenes, rows)
    if unseen:
        which, named = ("that value", unseen[0]) if len(unseen) == 1 else ("those values", ", ".join(unseen))
        raise ValueError(f"The fit part never shows {named}; give it more scenes or objects, or leave {which} out.")


def unseen_values(scenes: Scenes, rows: Int[Tensor, " fit"]) -> list[str]:
    """The values that occur in the scenes but not in the given rows, in words.

    Example:
        >>> scenes = ConceptSpace(color=["red", "blue"], shape=2).scenes([[0, 1], [3, 2]])
        >>> unseen_values(scenes, torch.tensor([1]))
        ["color 'red'"]
    """
    missing: list[str] = []
    everywhere, within = scenes.values[scenes.filled], scenes.values[rows][scenes.filled[rows]]
    for c, (name, words) in enumerate(zip(scenes.space.names, scenes.space.words, strict=True)):
        occurs = torch.bincount(everywhere[:, c], minlength=len(words)) > 0
        seen = torch.bincount(within[:, c], minlength=len(words)) > 0
        missing += [f"{name} {words[value]!r}" for value in (occurs & ~seen).nonzero()[:, 0].tolist()]
    return missing


def swaps_within(scenes: Scenes, objects: Int[Tensor, " object"]) -> Bool[Tensor, " scene"]:
    """Which scenes hold objects of the given set only and can swap one concept's value into others of that set.

        (a, b) | (c, d)  ->  (c, b) | (a, d),    all four in the set

    A fair test of binding among unseen objects: both the scene and its foil are unseen (DESIGN: like with like).

    Args:
        scenes: the scenes.
        objects: ids of the objects in the set.

    Returns:
        True for a scene if any pair of its slots and any concept gives such a swap.

    Example:
        >>> scenes = ConceptSpace(color=3, shape=3).scenes([[0, 4], [0, 1], [0, 8]])
        >>> swaps_within(scenes, torch.tensor([0, 1, 3, 4])).tolist()
        [True, False, False]
    """
    member = torch.zeros(scenes.space.num_objects, dtype=torch.bool)
    member[objects] = True
    inside = (member[scenes.objects.clamp(min=0)] | ~scenes.filled).all(1)
    found = torch.zeros(len(scenes), dtype=torch.bool)
    for first, second in combinations(range(scenes.slots), 2):
        rows = (inside & scenes.filled[:, first] & scenes.filled[:, second]).nonzero()[:, 0]
        pair = scenes.values[rows][:, [first, second]]
        for concept in range(scenes.space.num_concepts):
            swapped = pair.clone()
            swapped[..., concept] = pair[..., concept].flip(1)
            before, after = (scenes.space.object_ids(of).sort(1).values for of in (pair, swapped))
            found[rows] |= member[after].all(1) & (before != after).any(1)
    return found


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
        return _assemble(scenes, codes, name, notes=notes, empty_validation=self.validation == 0)

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
        return _assemble(scenes, codes, name, empty_validation=True, report_unseen=True)


@dataclass(frozen=True)
class ByObject:
    """Hold out objects: a scene belongs to a part when all of its objects do, and to none when they are mixed.

        coverage = fit objects / all objects that occur,    number of fit objects = floor(coverage * all)

    Validation objects come out of the held-out ones.

    Paper: arXiv:2605.31503, Sec. 5 (coverage).
    Differs: the paper has no validation part, and nothing there makes sure that the fit part sees every value.

    Args:
        coverage: share of objects to fit on.
        validation: share of the held-out objects to choose on (at least one object unless zero).
        unseen: what to do when the fit part misses a value: `"error"` draws the objects again until it misses none,
            and raises if that can't be; `"report"` keeps the first draw and says so in the notes.

    Example:
        >>> scenes = ConceptSpace(color=4, shape=5).all_scenes(slots=2)
        >>> split = ByObject(coverage=0.5, validation=0.3).split(scenes, seed=0)
        >>> [len(split.objects[part]) for part in PARTS], len(split.test)
        ([10, 3, 7], 49)
    """

    coverage: float = 0.7
    validation: float = 0.3
    unseen: Literal["error", "report"] = "error"

    def __post_init__(self) -> None:
        _check_coverage(self.coverage, self.validation)

    def split(self, scenes: Scenes, seed: int) -> Split:
        """Divide the objects, and the scenes by them.

        Raises:
            ValueError: too few objects for the parts, a part without scenes, or a value that no fit part shows.
        """
        name = f"by object, coverage {self.coverage:g}, validation {self.validation:g}, seed {seed}"
        concepts = tuple(range(scenes.space.num_concepts))
        return _split_held_out(scenes, concepts, self, "objects", name, torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class ByValuePair:
    """Hold out pairs of values of two concepts (red with cube), whatever the other concepts are.

    A scene belongs to a part when the pairs of all of its objects do. With two concepts this is `ByObject`.

    Args:
        first: name of a concept.
        second: name of another concept.
        coverage: share of the pairs that occur to fit on.
        validation: share of the held-out pairs to choose on (at least one unless zero).
        unseen: as in `ByObject`.

    Example:
        >>> scenes = ConceptSpace(color=3, shape=3, size=2).all_scenes(slots=2)
        >>> split = ByValuePair("color", "shape", coverage=0.7, validation=0.3).split(scenes, seed=0)
        >>> [len(split.objects[part]) for part in PARTS]
        [12, 2, 4]
    """

    first: str
    second: str
    coverage: float = 0.7
    validation: float = 0.3
    unseen: Literal["error", "report"] = "error"

    def __post_init__(self) -> None:
        _check_coverage(self.coverage, self.validation)
        if self.first == self.second:
            raise ValueError(f"A pair of values needs two concepts; got {self.first!r} twice.")

    def split(self, scenes: Scenes, seed: int) -> Split:
        """Divide the pairs of values, and the scenes by them.

        Raises:
            ValueError: no such concept, too few pairs for the parts, a part without scenes, or an unseen value.
        """
        concepts = (scenes.space.concept(self.first), scenes.space.concept(self.second))
        kept = f"coverage {self.coverage:g}, validation {self.validation:g}, seed {seed}"
        name, things = f"by pair of {self.first} and {self.second}, {kept}", f"pairs of {self.first} and {self.second}"
        return _split_held_out(scenes, concepts, self, things, name, torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class BySwaps:
    """Hold out closed swap quadruples, so that swaps among unseen objects exist in number.

        (a, b), (c, d), (c, b), (a, d)    are held out together, in one part

    Held-out objects are blocks: a group of values of the concept with most values, times a random subset of the values
    of each other concept. Any two objects of a block stay inside it when they swap a value. Groups don't overlap, so
    every value of that concept loses the same share of its objects, and no part can leak into another.

    Args:
        coverage: least share of the space's objects to fit on (blocks are whole, so it may be a little more).
        validation: share of the held-out objects to choose on.

    Example:
        >>> scenes = ConceptSpace(color=8, shape=3).all_scenes(slots=2)
        >>> split = BySwaps(coverage=0.5).split(scenes, seed=0)
        >>> [len(split.objects[part]) for part in PARTS], split.notes
        ([12, 4, 8], ('24 of 64 test scenes can swap a value and still hold only objects of the test part.',))
    """

    coverage: float = 0.75
    validation: float = 0.3

    def __post_init__(self) -> None:
        _check_coverage(self.coverage, self.validation)

    def split(self, scenes: Scenes, seed: int) -> Split:
        """Divide the objects, and the scenes by them.

        Raises:
            ValueError: too few values for closed quadruples at this coverage, no scene of the test part has a swap
                inside it, or no draw lets the fit part see every value.
        """
        objects = self.objects(scenes.space, seed)
        name = f"by swaps, coverage {self.coverage:g}, validation {self.validation:g}, seed {seed}"
        split = split_by_objects(scenes, objects, name, empty_validation=self.validation == 0)
        if not swaps_within(scenes[split.test], objects["test"]).any():
            raise ValueError(
                f"None of the {len(split.test)} scenes of held-out objects can swap a value inside the test part; "
                "give more of the combinations of objects, or lower the coverage."
            )
        return split

    def objects(self, space: ConceptSpace, seed: int) -> dict[str, Int[Tensor, " object"]]:
        """The objects of each part, without any scenes.

        Raises:
            ValueError: too few values for closed quadruples at this coverage.

        Example:
            >>> parts = BySwaps(coverage=0.5).objects(ConceptSpace(color=8, shape=3), seed=0)
            >>> [len(parts[part]) for part in PARTS]
            [12, 4, 8]
        """
        generator = torch.Generator().manual_seed(seed)
        wide, sides, lines = self._plan(space)
        every = space.object_values(torch.arange(space.num_objects))
        object_codes = self._draw(space, wide, sides, lines, generator)
        for _ in range(_DRAWS):
            if _show_all(every, object_codes == 0):
                break
            object_codes = self._draw(space, wide, sides, lines, generator)
        return {part: object_codes.eq(i).nonzero()[:, 0] for i, part in enumerate(PARTS)}

    def _plan(self, space: ConceptSpace) -> tuple[int, list[int], tuple[int, int]]:
        """Which concept is grouped, how many values of each other one a block has, and lines for validation, test.

        Raises:
            ValueError: too few values for closed quadruples at this coverage; the message names one that leaves some.
        """
        plan = self._planned(space)
        if plan is None:
            lower = (round(0.05 * step, 2) for step in range(19, 0, -1) if 0.05 * step < self.coverage)
            most = next((c for c in lower if replace(self, coverage=c)._planned(space) is not None), None)
            advice = f"the highest coverage that leaves some is {most:g}" if most else "use values in greater number"
            raise ValueError(
                f"Closed swap quadruples can't be held out of {'x'.join(map(str, space.sizes))} values at coverage "
                f"{self.coverage:g}; {advice}."
            )
        return plan

    def _planned(self, space: ConceptSpace) -> tuple[int, list[int], tuple[int, int]] | None:
        """The plan, or None where no two lines are left to test on."""
        wide = max(range(space.num_concepts), key=lambda c: space.sizes[c])
        others = [size for c, size in enumerate(space.sizes) if c != wide]
        roots = max(1, sum(size > 2 for size in others))
        share = (1 - self.coverage) ** (1 / roots)
        sides = [1 if size < 3 else min(max(math.floor(size * share + 0.5), 2), size - 1) for size in others]
        across = math.prod(sides)
        held = space.num_objects - math.ceil(self.coverage * space.num_objects - 1e-9)
        lines = min(held // across, space.sizes[wide])
        validation = max(2, math.floor(self.validation * lines + 0.5)) if self.validation else 0
        if across < 2 or lines - validation < 2:
            return None
        return wide, sides, (validation, lines - validation)

    @staticmethod
    def _draw(
        space: ConceptSpace, wide: int, sides: list[int], lines: tuple[int, int], generator: torch.Generator
    ) -> Int[Tensor, " object"]:
        """The part of each object."""
        others = [c for c in range(space.num_concepts) if c != wide]
        order, start = torch.randperm(space.sizes[wide], generator=generator), 0
        codes = torch.zeros(space.num_objects, dtype=torch.int64)
        for code, num in zip((1, 2), lines, strict=True):
            groups = max(1, num // 4)
            for group in order[start : start + num].tensor_split(groups) if num else ():
                chosen: list[Tensor] = [group] * space.num_concepts
                for c, side in zip(others, sides, strict=True):
                    chosen[c] = torch.randperm(space.sizes[c], generator=generator)[:side]
                block = torch.cartesian_prod(*chosen)
                codes[space.object_ids(block)] = code
            start += num
        return codes


@dataclass(frozen=True)
class Given:
    """Take the parts as a table gives them: "fit", "validation" or "test" for each row.

    Rows past the given ones must be single-object scenes (those that come with a vectors file); they belong to fit.

    Args:
        parts: a part for each row.
        protocol: under `paper`, which chooses on test, the validation part may be empty.

    Example:
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
        return _assemble(scenes, codes, "as given", empty_validation=True, remedy=remedy)


def split_by_objects(
    scenes: Scenes, objects: Mapping[str, Int[Tensor, " object"]], name: str, *, empty_validation: bool = False
) -> Split:
    """Scenes follow their objects into a part; scenes of objects of several parts, or of none, are left unused.

    Args:
        scenes: to be divided.
        objects: the object ids of each part.
        name: of the split, in words.
        empty_validation: whether there may be no scene to choose on.

    Raises:
        ValueError: an empty part, or a value the fit part misses.

    Example:
        >>> scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3], [3, 0], [1, 1], [2, 2], [0, 1]])
        >>> parts = {"fit": torch.tensor([0, 3]), "validation": torch.tensor([1]), "test": torch.tensor([2])}
        >>> split_by_objects(scenes, parts, "mine").fit.tolist()
        [0, 1]
    """
    codes = torch.full((scenes.space.num_objects,), _UNUSED)
    for code, part in enumerate(PARTS):
        codes[objects[part]] = code
    of_scenes = _codes_of_scenes(codes[scenes.objects.clamp(min=0)], scenes.filled)
    return _assemble(scenes, of_scenes, name, objects=objects, empty_validation=empty_validation)


def _check_coverage(coverage: float, validation: float) -> None:
    if not (0 < coverage < 1 and 0 <= validation < 1):
        raise ValueError(
            f"Coverage must lie strictly between 0 and 1 and validation in [0, 1); got {coverage:g} and {validation:g}."
        )


def _assemble(
    scenes: Scenes,
    codes: Int[Tensor, " scene"],
    name: str,
    *,
    empty_validation: bool,
    remedy: str = "change its shares or give more scenes",
    objects: Mapping[str, Tensor] | None = None,
    notes: tuple[str, ...] = (),
    report_unseen: bool = False,
) -> Split:
    """The split of coded rows, after checking that no part is empty and that the fit part sees every value."""
    fit, validation, test = ((codes == i).nonzero()[:, 0] for i in range(len(PARTS)))
    for part, rows in zip(PARTS, (fit, validation, test), strict=True):
        if not len(rows) and not (part == "validation" and empty_validation):
            raise ValueError(f"The split {name} leaves no scene in the {part} part; {remedy}.")
    if not report_unseen:
        require_seen(scenes, fit)
    elif unseen := unseen_values(scenes, fit):
        notes = (*notes, f"The fit part never shows {', '.join(unseen)}.")
    if objects is not None:
        num = int(swaps_within(scenes[test], objects["test"]).sum())
        closed = f"{num} of {len(test)} test scenes can swap a value and still hold only objects of the test part."
        notes = (*notes, closed)
    return Split(fit, validation, test, name, objects, notes)


def _show_all(values: Int[Tensor, "unit concept"], rows: Tensor) -> bool:
    """Whether the given rows (indices or a mask) have every value that occurs."""
    return all(len(column[rows].unique()) == len(column.unique()) for column in values.unbind(1))


def _trouble(scenes: Scenes, codes: Int[Tensor, " scene"], empty_validation: bool) -> bool:
    """Whether a part is empty or the fit part misses a value."""
    sizes = [int((codes == i).sum()) for i in range(len(PARTS))]
    empty = not sizes[0] or not sizes[2] or not (sizes[1] or empty_validation)
    return empty or bool(unseen_values(scenes, (codes == 0).nonzero()[:, 0]))


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


def _codes_of_scenes(codes: Int[Tensor, "scene slot"], filled: Bool[Tensor, "scene slot"]) -> Int[Tensor, " scene"]:
    """The code that all objects of a scene share, or unused."""
    low = codes.masked_fill(~filled, len(PARTS)).amin(1)
    return torch.where(low == codes.masked_fill(~filled, _UNUSED).amax(1), low, _UNUSED)


def _split_held_out(
    scenes: Scenes,
    concepts: tuple[int, ...],
    rule: ByObject | ByValuePair,
    things: str,
    name: str,
    generator: torch.Generator,
) -> Split:
    """Divide the units (objects, or pairs of values) that occur; scenes follow their units."""
    space = scenes.space
    present = scenes.objects[scenes.filled].unique()
    units, unit_of_present = space.object_values(present)[:, list(concepts)].unique(dim=0, return_inverse=True)
    fit = math.floor(rule.coverage * len(units) + 1e-9)
    held = len(units) - fit
    validation = min(max(1, math.floor(rule.validation * held + 0.5)), held - 1) if rule.validation else 0
    if fit < 1 or held < 1 or (rule.validation and validation < 1):
        raise ValueError(
            f"Coverage {rule.coverage:g} of {len(units)} {things} leaves {fit} to fit on and {held} to hold out; "
            f"it needs at least 1 and {2 if rule.validation else 1}, so change the coverage."
        )
    place = torch.searchsorted(present, scenes.objects.clamp(min=int(present[0])))

    def drawn(order: Int[Tensor, " unit"]) -> tuple[Int[Tensor, " object"], Int[Tensor, " scene"]]:
        unit_codes = torch.empty(len(units), dtype=torch.int64)
        unit_codes[order] = (torch.arange(len(units))[:, None] >= torch.tensor([fit, fit + validation])).sum(1)
        codes = unit_codes[unit_of_present]
        return codes, _codes_of_scenes(codes[place], scenes.filled)

    report = rule.unseen == "report"
    order = torch.randperm(len(units), generator=generator)
    codes, scene_codes = drawn(order)
    for attempt in range(_DRAWS):
        if report or (_show_all(units, order[:fit]) and not _trouble(scenes, scene_codes, rule.validation == 0)):
            break
        # A random draw that happens to see every value is preferred; failing that, values are sought out.
        order = torch.randperm(len(units), generator=generator)
        order = order if attempt < _DRAWS // 2 else _values_first(units, order)
        if attempt == _DRAWS - 1 or _show_all(units, order[:fit]):
            codes, scene_codes = drawn(order)
    objects = {part: present[codes == i] for i, part in enumerate(PARTS)}
    return _assemble(
        scenes, scene_codes, name, objects=objects, empty_validation=rule.validation == 0, report_unseen=report
    )


def _values_first(units: Int[Tensor, "unit concept"], order: Int[Tensor, " unit"]) -> Int[Tensor, " unit"]:
    """The order, with units moved to the front that between them show every value, each adding the most new ones."""
    values = units[order]
    new = [torch.ones(int(values[:, c].max()) + 1, dtype=torch.bool) for c in range(values.shape[1])]
    front: list[int] = []
    while True:
        gain = torch.stack([new[c][values[:, c]] for c in range(values.shape[1])]).sum(0)
        best = int(gain.argmax())
        if not gain[best]:
            break
        front.append(best)
        for c, of_concept in enumerate(new):
            of_concept[values[best, c]] = False
    rest = torch.ones(len(order), dtype=torch.bool)
    rest[front] = False
    return torch.cat([order[front], order[rest]])
