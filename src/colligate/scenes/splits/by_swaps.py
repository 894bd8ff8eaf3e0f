"""Objects held out in blocks, so that swaps of unseen objects are unseen too."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits.parts import (
    DRAWS,
    PARTS,
    Split,
    check_coverage,
    show_all,
    split_by_objects,
    swaps_within,
)


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
        check_coverage(self.coverage, self.validation)

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
        for _ in range(DRAWS):
            if show_all(every, object_codes == 0):
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
