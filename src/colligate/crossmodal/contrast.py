"""What a repair learns from and is chosen by: true texts against false ones, of seen objects only."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from colligate.crossmodal.recognition import CrossRecognition, recognise_queries
from colligate.crossmodal.repair_data import RepairData
from colligate.scenes.splits import Split

MOST_VALIDATED = 2000
"""Most validation scenes that are looked at while a repair is fitted; above it, a seeded choice."""


class Contrast:
    """Scenes of fit objects against the texts that are true of them, and validation scenes to choose by.

        loss = CE(scene -> its caption, among the batch's captions and their swaps)
             + CE(scene -> its objects, among fit objects)  +  mean over concepts CE(scene -> its values)

    Held-out objects take no part: not as positives, not as negatives, not in swaps.

    Args:
        data: which scenes, captions and foils there are; of its vectors only `score` reads any.
        split: by objects.
        seed: of the validation scenes that are looked at, where there are many.

    Raises:
        ValueError: the split holds no objects out, or no swap stays within the fit objects.

    Source: LABCLIP, arXiv:2502.03566 (swap negatives).
    Differs: sees single objects and values too, and no held-out object is a negative.

    Example:
        >>> from colligate.crossmodal.repair_data import repair_data
        >>> from colligate.embedders import load_model
        >>> from colligate.scenes.splits import BySwaps
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr").select(slice(0, 576)), load_model("oracle:pair-aligned:64")
        >>> data = repair_data(model.towers["scene"], model.towers["text"], world)
        >>> contrast = Contrast(data, BySwaps(coverage=0.5).split(world.scenes, seed=0), seed=0)
        >>> len(contrast.fit_objects), contrast.score(data) > 0.9
        (12, True)
    """

    def __init__(self, data: RepairData, split: Split, seed: int) -> None:
        if split.objects is None or not len(split.validation):
            raise ValueError(
                "A repair is judged on objects never seen: give a split by objects with a validation part."
            )
        self.data, self.split = data, split
        self.fit_objects = split.objects["fit"].sort().values
        member = torch.zeros(data.space.num_objects + 1, dtype=torch.bool)
        member[self.fit_objects] = True
        member[-1] = True  # an empty slot
        self.usable = member[data.foils.objects].all(1) & (data.foils.unordered_ids != data.scenes.unordered_ids)
        if not bool(self.usable[split.fit].any()):
            raise ValueError("No swap of a fit scene holds fit objects only; raise the coverage or give more scenes.")
        order = torch.randperm(len(split.validation), generator=torch.Generator().manual_seed(seed))
        self.looked_at = split.validation[order[:MOST_VALIDATED]]
        held = [data.scenes.contains(c) for c in range(data.space.num_concepts)]
        self.values = [present.float() / present.sum(1, keepdim=True) for present in held]

    def foiled(self, rows: Int[Tensor, " row"]) -> Int[Tensor, " foil"]:
        """Those of some fit scenes whose swap is made of fit objects, and so may be said as a false caption."""
        return rows[self.usable[rows]]

    def loss(
        self,
        rows: Int[Tensor, " row"],
        scenes: Float[Tensor, "row dim"],
        texts: Float[Tensor, "text dim"],
        scale: Float[Tensor, ""],
    ) -> Float[Tensor, ""]:
        """The cross-entropies of a batch.

        Args:
            rows: fit scenes.
            scenes: their unit vectors.
            texts: unit vectors of their captions, of the captions of the swaps of `foiled(rows)`, of all values concept
                by concept, and of all objects.
            scale: factor on cosines.
        """
        data, foiled = self.data, self.foiled(rows)
        first = len(rows) + len(foiled)
        said = torch.cat([data.scenes.unordered_ids[rows], data.foils.unordered_ids[foiled]])
        alike = said == data.scenes.unordered_ids[rows][:, None]  # the same objects in another order are no negatives
        alike.fill_diagonal_(False)
        logits = (scale * scenes @ texts[:first].T).masked_fill(alike, -torch.inf)
        total = cross_entropy(logits, torch.arange(len(rows)))
        for concept, size in enumerate(data.space.sizes):
            of_concept = cross_entropy(scale * scenes @ texts[first : first + size].T, self.values[concept][rows])
            total = total + of_concept / data.space.num_concepts
            first += size
        scores = scale * scenes @ texts[first:][self.fit_objects].T
        held = (data.scenes.objects[rows][:, :, None] == self.fit_objects).any(1).float()
        return total + cross_entropy(scores, held / held.sum(1, keepdim=True))

    def back(
        self,
        rows: Int[Tensor, " row"],
        scenes: Float[Tensor, "row dim"],
        captions: Float[Tensor, "row dim"],
        scale: Float[Tensor, ""],
    ) -> Float[Tensor, ""]:
        """The other direction, where scenes can change too: each caption must find its scene among the batch's."""
        same = self.data.scenes.unordered_ids[rows]
        alike = same == same[:, None]
        alike.fill_diagonal_(False)
        logits = (scale * captions @ scenes.T).masked_fill(alike, -torch.inf)
        return cross_entropy(logits, torch.arange(len(rows)))

    def score(self, data: RepairData) -> float:
        """Mean of recognition of objects, of values, and on swaps among validation objects, where there are any.

        Args:
            data: the same scenes as another text tower, or other towers, show them; vectors of `looked_at` are read.
        """
        whole, among = judge(data, self.split, "validation", self.looked_at)
        parts = [whole.objects.double().mean(), whole.concepts.double().mean()]
        if bool(among.swappable.any()):
            parts.append(among.swaps[among.swappable].double().mean())
        return float(torch.stack(parts).mean())


def judge(
    data: RepairData, split: Split, part: str, rows: Int[Tensor, " row"] | None = None
) -> tuple[CrossRecognition, CrossRecognition]:
    """Recognition of a part's scenes against the whole table of objects that occur, and among the part's own objects.

    The swaps of the second hold only objects of the part: like is compared with like.
    """
    assert split.objects is not None
    rows = {"fit": split.fit, "validation": split.validation, "test": split.test}[part] if rows is None else rows
    scenes = data.scenes[rows]
    own = torch.zeros(data.space.num_objects, dtype=torch.bool)
    own[split.objects[part]] = True
    occurring = torch.zeros(data.space.num_objects, dtype=torch.bool)
    occurring[data.scenes.objects[data.scenes.filled].unique()] = True
    return (
        recognise_queries(data.vectors[rows], scenes, data.queries, known=occurring),
        recognise_queries(data.vectors[rows], scenes, data.queries, known=own),
    )
