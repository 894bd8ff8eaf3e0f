"""Groups of two pictures and two captions that go together crosswise: text, image and group score."""

from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from colligate.crossmodal.foils import embed_texts, of_two
from colligate.embedders.towers import Tower
from colligate.measures import tie_tolerance
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import Scenes


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Groups of two pictures and two captions that go together crosswise, as in Winoground.

    Attributes:
        name: of the file or the world.
        rows: the places of both pictures.
        captions: the captions of both, in that order.

    Raises:
        ValueError: columns of unequal length, no row, or two equal captions.
    """

    name: str
    rows: Int[Tensor, "group two"]
    captions: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.captions) or not len(self.captions):
            raise ValueError(
                f"{self.name} has {len(self.rows)} pairs of pictures for {len(self.captions)} of captions."
            )
        for row, (first, second) in enumerate(self.captions):
            if first.strip() == second.strip():
                raise ValueError(
                    f"Group {row + 1} of {self.name} has the caption {first!r} twice; give two that differ."
                )


def swap_groups(scenes: Scenes, captions: CaptionTemplate, *, concept: int = 0) -> GroupTable:
    """Every scene of two objects with the scene after a swap, each pair once.

    Raises:
        ValueError: no scene's swap is among the scenes.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=["red", "blue"], shape=["cube", "ball"]).all_scenes(slots=2)
        >>> swap_groups(scenes, CaptionTemplate()).captions[0]
        ('a red cube and a blue ball', 'a blue cube and a red ball')
    """
    rows = of_two(scenes)
    other = scenes.rows_of(scenes[rows].swap(concept, (0, 1))) if len(rows) else rows
    changed = other >= 0
    changed &= scenes.unordered_ids[rows] != scenes.unordered_ids[other.clamp(min=0)]
    kept = changed & (rows < other)
    if not bool(kept.any()):
        raise ValueError("No scene's swap is among the scenes, so there are no groups of two pictures.")
    first, second = rows[kept], other[kept]
    said = zip(captions(scenes[first]), captions(scenes[second]), strict=True)
    return GroupTable("swaps", torch.stack([first, second], dim=1), tuple(said))


class GroupOutcomes(NamedTuple):
    """Per group, probability of being right when ties are broken at random; and whether any decisive pair ties."""

    text: Float[Tensor, " group"]
    image: Float[Tensor, " group"]
    group: Float[Tensor, " group"]
    ties: Bool[Tensor, " group"]


GROUP_CHANCE = {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}
"""What random scores reach; so does a bag of words, whose four scores tie two by two, and a bag in both towers."""


def judge_groups(pictures: Float[Tensor, "picture dim"], tower: Tower, table: GroupTable) -> GroupOutcomes:
    """Text score, image score and group score of Winoground.

        text: both pictures choose their caption;  image: both captions choose their picture;  group: both

    Source: Winoground, arXiv:2204.03162.   Differs: there a tie is a miss; here ties are broken at random in
    expectation.

    Example:
        >>> from colligate.embedders import load_model
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-aligned:256")
        >>> table = swap_groups(world.scenes, world.captions)
        >>> outcomes = judge_groups(model.towers["scene"].embed(world.scenes), model.towers["text"], table)
        >>> round(outcomes.group.mean().item(), 1)
        1.0
    """
    texts, place = embed_texts(tower, [text for pair in table.captions for text in pair])
    said = texts[torch.tensor([[place[text] for text in pair] for pair in table.captions])]
    shown = normalize(pictures.float(), dim=1)[table.rows]
    scores = torch.einsum("gpd,gtd->gpt", shown, said).flatten(1)  # [group, picture caption]
    difference = scores[:, :, None] - scores[:, None]
    width = tie_tolerance(scores.dtype) * torch.maximum(scores.abs()[:, :, None], scores.abs()[:, None])
    sign = torch.where(difference.abs() <= width, 0.0, difference.sign())
    # Places: 0 picture 0 caption 0, 1 picture 0 caption 1, 2 picture 1 caption 0, 3 picture 1 caption 1.
    needed = {"text": ((0, 1), (3, 2)), "image": ((0, 2), (3, 1)), "group": ((0, 1), (3, 2), (0, 2), (3, 1))}
    orders = list(permutations(range(4)))
    found = {}
    for name, pairs in needed.items():
        total = torch.zeros(len(scores), dtype=torch.float64)
        for order in orders:  # every way to break ties, equally likely
            right = torch.ones(len(scores), dtype=torch.bool)
            for high, low in pairs:
                right &= (sign[:, high, low] > 0) | ((sign[:, high, low] == 0) & (order[high] > order[low]))
            total += right.double()
        found[name] = total / len(orders)
    ties = torch.stack([sign[:, high, low] == 0 for high, low in needed["group"]]).any(0)
    return GroupOutcomes(found["text"], found["image"], found["group"], ties)
