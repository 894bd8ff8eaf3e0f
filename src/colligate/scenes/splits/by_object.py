"""Objects, or pairs of values, held out: scenes follow what stands in their slots."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.space import Scenes
from colligate.scenes.splits.parts import (
    DRAWS,
    PARTS,
    Split,
    assemble,
    check_coverage,
    codes_of_scenes,
    in_trouble,
    show_all,
)


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
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=4, shape=5).all_scenes(slots=2)
        >>> split = ByObject(coverage=0.5, validation=0.3).split(scenes, seed=0)
        >>> [len(split.objects[part]) for part in PARTS], len(split.test)
        ([10, 3, 7], 49)
    """

    coverage: float = 0.7
    validation: float = 0.3
    unseen: Literal["error", "report"] = "error"

    def __post_init__(self) -> None:
        check_coverage(self.coverage, self.validation)

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
        >>> from colligate.scenes.space import ConceptSpace
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
        check_coverage(self.coverage, self.validation)
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
        return codes, codes_of_scenes(codes[place], scenes.filled)

    report = rule.unseen == "report"
    order = torch.randperm(len(units), generator=generator)
    codes, scene_codes = drawn(order)
    for attempt in range(DRAWS):
        if report or (show_all(units, order[:fit]) and not in_trouble(scenes, scene_codes, rule.validation == 0)):
            break
        # A random draw that happens to see every value is preferred; failing that, values are sought out.
        order = torch.randperm(len(units), generator=generator)
        order = order if attempt < DRAWS // 2 else _values_first(units, order)
        if attempt == DRAWS - 1 or show_all(units, order[:fit]):
            codes, scene_codes = drawn(order)
    objects = {part: present[codes == i] for i, part in enumerate(PARTS)}
    return assemble(
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
