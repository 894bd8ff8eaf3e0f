"""Swaps measured both ways, so that a preference for some objects can't pass for binding."""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.measures import chance_of_order, recognise
from colligate.scenes.space import Scenes


class BothRight(NamedTuple):
    """Per scene: share of its swaps where the scene and its swap are both right, what chance gives, and how many."""

    hits: Float[Tensor, " scene"]
    chance: Float[Tensor, " scene"]
    swaps: Int[Tensor, " scene"]


def both_right(
    scores: Float[Tensor, "scene object"],
    scenes: Scenes,
    rows: Int[Tensor, " row"],
    unfitted: Bool[Tensor, " scene"],
) -> BothRight:
    """Does a scene's vector put its objects above those of its swap, and the swap's vector the other way round?

    Vectors that can't tell the two have one list of scores for both, which puts one of them first: they are never
    right twice, whatever biases objects have. With noise of its own in each vector they are right twice in 1/36 of
    swaps where all orders of the four objects are alike, and in 1/4 at most: p (1 - p) for whatever p.

    Args:
        scores: of all objects, for every scene of the set.
        scenes: the set.
        rows: which scenes to score.
        unfitted: scenes that the scores weren't fitted on; a swap among others isn't counted.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3], [1, 2]])
        >>> every = torch.ones(2, dtype=torch.bool)
        >>> both_right(scenes.contains_objects().double(), scenes, torch.arange(2), every).hits.tolist()
        [1.0, 1.0]
        >>> both_right(torch.tensor([[1.0, 0, 0, 1]]).expand(2, -1), scenes, torch.arange(2), every).hits.tolist()
        [0.0, 0.0]
    """

    def tell(here: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        mine, theirs = scenes[here].contains_objects(), scenes[other].contains_objects()
        right = recognise(scores[here], mine, theirs & ~mine).hits
        return right, chance_of_order(mine.sum(1), (theirs & ~mine).sum(1))

    return both_ways(tell, scenes, rows, unfitted)


Tell = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Scenes and their swaps, as rows of a set -> whether each scene's objects stand above what the swap alone holds, and
the probability that chance puts them there."""


def both_ways(
    tell: Tell, scenes: Scenes, rows: Int[Tensor, " row"], allowed: Bool[Tensor, " scene"] | None = None
) -> BothRight:
    """The same for any way to tell a scene from its swap; swaps that aren't in the set aren't counted.

    Args:
        tell: judges scenes against their swaps.
        scenes: the set.
        rows: which scenes to score.
        allowed: which scenes may be swaps; all by default.
    """
    own, ids = scenes[rows], scenes.unordered_ids
    there = torch.arange(len(scenes)) if allowed is None else allowed.nonzero()[:, 0]
    known, order = ids[there].sort(stable=True)
    hits, chance = torch.zeros(2, len(rows), dtype=torch.float64)
    counted = torch.zeros(len(rows), dtype=torch.int64)
    for first, second in combinations(range(scenes.slots if len(there) else 0), 2):
        able = (own.filled[:, first] & own.filled[:, second]).nonzero()[:, 0]  # an empty slot has nothing to exchange
        for concept in range(scenes.space.num_concepts if len(able) else 0):
            wanted = own[able].swap(concept, (first, second)).unordered_ids
            place = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
            found = (known[place] == wanted) & (wanted != own.unordered_ids[able])
            chosen, other = able[found], there[order[place[found]]]
            (right, by_chance), (back, back_by_chance) = tell(rows[chosen], other), tell(other, rows[chosen])
            hits[chosen] += (right & back).double()
            chance[chosen] += by_chance * back_by_chance
            counted[chosen] += 1
    return BothRight(hits / counted.clamp(min=1), chance / counted.clamp(min=1), counted)
