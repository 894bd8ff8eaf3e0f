"""A scene minus its swap: what is left of a vector once all that a bag of concepts knows is taken off.

R2 on unseen objects counts the variance of a scene, nearly all of which its values explain whatever goes with which.
The contrast holds only what tells a scene from the one in which two objects have exchanged a value.
"""

from dataclasses import dataclass
from itertools import combinations
from math import factorial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.scenes.space import ConceptSpace, Scenes


@dataclass(frozen=True, eq=False)
class Swaps:
    """Pairs of a scene and its swap, both there in every order of their objects.

        contrast(s) = mean over the orders of s of x  -  mean over the orders of its swap of x

    Over all orders a sum of values is the same for both, whether or not slots have vectors of their own: it predicts 0,
    as does anything else that is blind to swaps.

    Attributes:
        group: which scenes hold the same objects, in whatever order.
        pairs: groups that are swaps of each other, each pair once.
        objects: the objects of both, one after the other; -1 for empty slots.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> swaps = Swaps.of(ConceptSpace(color=2, shape=2).all_scenes(slots=2))
        >>> swaps.pairs.shape, swaps.objects.tolist()
        (torch.Size([1, 2]), [[1, 2, 0, 3]])
    """

    group: Int[Tensor, " scene"]
    pairs: Int[Tensor, "pair two"]
    objects: Int[Tensor, "pair place"]

    @classmethod
    def of(cls, scenes: Scenes) -> "Swaps":
        """All pairs among these scenes."""
        known, group = scenes.unordered_ids.unique(return_inverse=True)
        first = torch.zeros(len(known), dtype=torch.int64)
        first[group.flip(0)] = torch.arange(len(scenes)).flip(0)
        whole = _orders(scenes, group, len(known)) == _possible(scenes[first])
        several = first[whole & (scenes.counts[first] > 1)]
        found = [torch.zeros(0, 2, dtype=torch.int64)]
        for concept in range(scenes.space.num_concepts):
            for slots in combinations(range(scenes.slots), 2):
                rows = several[scenes.filled[several][:, list(slots)].all(1)]
                swapped = scenes[rows].swap(concept, slots).unordered_ids
                place = torch.searchsorted(known, swapped).clamp(max=len(known) - 1)
                there = (known[place] == swapped) & whole[place]
                found.append(torch.stack([group[rows], place], dim=1)[there])
        pairs = torch.cat(found)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]].sort(dim=1).values.unique(dim=0)
        return cls(group, pairs, scenes.objects[first[pairs]].flatten(1))

    def within(self, rows: Int[Tensor, " row"]) -> Int[Tensor, " pair"]:
        """Pairs of which every scene, in every order, is among these rows."""
        outside = torch.ones(len(self.group), dtype=torch.bool)
        outside[rows] = False
        lacking = torch.zeros(int(self.group.max()) + 1 if len(self.group) else 0, dtype=torch.bool)
        lacking[self.group[outside]] = True
        return (~lacking[self.pairs].any(1)).nonzero()[:, 0]

    def shared(
        self, pairs: Int[Tensor, " pair"], space: ConceptSpace
    ) -> tuple[Int[Tensor, "pair place"], Int[Tensor, "pair place concept"]]:
        """Objects and values of both scenes of these pairs, -1 for empty slots: what pairs may have in common."""
        objects = self.objects[pairs]
        values = space.object_values(objects.clamp(min=0))
        return objects, values.masked_fill(objects[..., None] < 0, -1)

    def contrasts(
        self, pairs: Int[Tensor, " pair"], rows: Int[Tensor, " row"], vectors: Float[Tensor, "row axis"]
    ) -> Float[Tensor, "pair axis"]:
        """The contrast of each pair, given the vectors of rows that hold them all."""
        groups, place = self.group[rows].unique(return_inverse=True)
        sums = torch.zeros(len(groups), vectors.shape[1], dtype=torch.float64).index_add_(0, place, vectors.double())
        means = sums / torch.bincount(place, minlength=len(groups))[:, None]
        one, other = torch.searchsorted(groups, self.pairs[pairs]).unbind(1)
        return means[one] - means[other]


def _orders(scenes: Scenes, group: Int[Tensor, " scene"], groups: int) -> Int[Tensor, " group"]:
    """In how many orders the objects of each group are there."""
    each = torch.stack([group, scenes.ids], dim=1).unique(dim=0)
    return torch.bincount(each[:, 0], minlength=groups)


def _possible(scenes: Scenes) -> Int[Tensor, " scene"]:
    """In how many orders these objects can stand in the slots that they fill."""
    found = torch.ones(len(scenes), dtype=torch.int64)
    ordered = scenes.objects.sort(dim=1, descending=True).values
    run = torch.ones(len(scenes), dtype=torch.int64)
    for slot in range(1, scenes.slots):
        again = (ordered[:, slot] == ordered[:, slot - 1]) & (ordered[:, slot] >= 0)
        run = torch.where(again, run + 1, 1)
        found *= torch.where(again, run, 1)
    whole = torch.tensor([factorial(n) for n in range(scenes.slots + 1)])
    return whole[scenes.counts] // found
