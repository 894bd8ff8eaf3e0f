"""What a split is, and what makes one of rows that know their part."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from colligate.scenes.space import Scenes

PARTS = ("fit", "validation", "test")
"""The three parts, in the order of their codes."""
UNUSED = -1
"""Code of a row in no part."""
DRAWS = 100
"""Most draws in search of a division whose fit part shows every value."""


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
        >>> from colligate.scenes.space import ConceptSpace
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
        >>> from colligate.scenes.space import ConceptSpace
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
        >>> from colligate.scenes.space import ConceptSpace
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
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3], [3, 0], [1, 1], [2, 2], [0, 1]])
        >>> parts = {"fit": torch.tensor([0, 3]), "validation": torch.tensor([1]), "test": torch.tensor([2])}
        >>> split_by_objects(scenes, parts, "mine").fit.tolist()
        [0, 1]
    """
    codes = torch.full((scenes.space.num_objects,), UNUSED)
    for code, part in enumerate(PARTS):
        codes[objects[part]] = code
    of_scenes = codes_of_scenes(codes[scenes.objects.clamp(min=0)], scenes.filled)
    return assemble(scenes, of_scenes, name, objects=objects, empty_validation=empty_validation)


def check_coverage(coverage: float, validation: float) -> None:
    """Refuse shares that leave nothing to fit or to test on.

    Raises:
        ValueError: one of them is out of range.
    """
    if not (0 < coverage < 1 and 0 <= validation < 1):
        raise ValueError(
            f"Coverage must lie strictly between 0 and 1 and validation in [0, 1); got {coverage:g} and {validation:g}."
        )


def assemble(
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
    """The split of coded rows, after checking that no part is empty and that the fit part sees every value.

    Raises:
        ValueError: an empty part, or a value the fit part misses.
    """
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


def show_all(values: Int[Tensor, "unit concept"], rows: Tensor) -> bool:
    """Whether the given rows (indices or a mask) have every value that occurs."""
    return all(len(column[rows].unique()) == len(column.unique()) for column in values.unbind(1))


def in_trouble(scenes: Scenes, codes: Int[Tensor, " scene"], empty_validation: bool) -> bool:
    """Whether a part is empty or the fit part misses a value."""
    sizes = [int((codes == i).sum()) for i in range(len(PARTS))]
    empty = not sizes[0] or not sizes[2] or not (sizes[1] or empty_validation)
    return empty or bool(unseen_values(scenes, (codes == 0).nonzero()[:, 0]))


def codes_of_scenes(codes: Int[Tensor, "scene slot"], filled: Bool[Tensor, "scene slot"]) -> Int[Tensor, " scene"]:
    """The code that all objects of a scene share, or unused."""
    low = codes.masked_fill(~filled, len(PARTS)).amin(1)
    return torch.where(low == codes.masked_fill(~filled, UNUSED).amax(1), low, UNUSED)
