"""Pictures against captions: a small image-text model trained from scratch, as any other dual encoder is.

Picture and text meet in three ways, all of them true statements about the picture: the caption of the whole scene
(contrasted with the captions of the batch), an object in it, and a value in it.
"""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from colligate.networks.pictures import PictureEncoder
from colligate.networks.words import SCENES, VALUES, CaptionEncoder
from colligate.training.config import TrainConfig
from colligate.training.data import Batch
from colligate.training.presets import PicturesConfig
from colligate.training.queries import value_targets
from colligate.training.trainer import Trainer


class PairTrainer(Trainer):
    """Train picture and caption encoders; all else is as in `Trainer`.

    Attributes:
        sheet: draws pictures, each time anew where there is jitter.
    """

    def __init__(self, configs: Sequence[PicturesConfig], device: torch.device) -> None:
        super().__init__(configs, device)
        self.asked = configs[0]
        self.sheet = self.asked.canvas_sheet

    def loss(self) -> Float[Tensor, " member"]:
        """The loss of the next batch, for each member."""
        config, model = self.asked, self.model
        batch = config.plan.draw(self.draw, self.pools, self.generators)
        pictures = self._pictures(batch.objects)
        targets = self.choice.choose(self.pools, batch.objects, self.generators)
        reader, teller = cast("PictureEncoder", model.scene), cast("CaptionEncoder", model.query)
        wording = self.step if config.wordings else 0
        space, scale = config.space, model.log_scale.exp().clamp(max=config.warmest)
        with self._autocast():
            scenes = model.compared(reader.encode_pixels(pictures))
        loss = config.caption_loss * self._of_captions(teller, scenes, batch, scale, wording)
        if config.object_loss:
            with self._autocast():
                objects = space.object_values(targets.ids)[:, :, None]
                by_object = teller.encode_words(teller.say(objects, (wording // 3) % len(SCENES)))
            by_object = model.compared(by_object)
            loss = loss + config.object_loss * self.objective(scenes, by_object, targets, scale, model.bias)
        if config.value_loss:
            with self._autocast():
                by_value = model.compared(teller.encode_words(teller.say_values(model.members, wording % len(VALUES))))
            true = value_targets(space, space.object_values(batch.objects))
            loss = loss + config.value_loss * self.value_objective(scenes, by_value, true, scale, model.bias)
        return loss

    def _of_captions(
        self,
        teller: CaptionEncoder,
        scenes: Float[Tensor, "member scene dim"],
        batch: Batch,
        scale: Float[Tensor, "member 1 1"],
        wording: int,
    ) -> Float[Tensor, " member"]:
        """The loss on captions of whole scenes, among scenes of as many objects: there another's caption is false."""
        total, start = scenes.new_zeros(len(scenes)), 0
        for num, count in batch.groups:
            rows = slice(start, start + num)
            objects = batch.objects[:, rows, :count]
            said = _spoken(objects, self.asked.order, self.generators)
            with self._autocast():
                captions, same = self._captions(teller, objects, said, wording)
            share = num / scenes.shape[1]
            total = total + share * caption_loss(scenes[:, rows], self.model.compared(captions), same, scale)
            start += num
        return total

    def _captions(
        self,
        teller: CaptionEncoder,
        objects: Int[Tensor, "member scene slot"],
        said: Int[Tensor, "member scene slot"],
        wording: int,
    ) -> tuple[Float[Tensor, "member scene dim"], Bool[Tensor, "member scene scene"]]:
        """Vectors of the scenes' captions in the wording whose turn it is, and of which scenes each is true.

        The last wording of two objects says which one is on the left, so it isn't true of the scene's twin.
        """
        values, slots = self.config.space.object_values(said), objects.shape[2]
        turn = wording % (len(SCENES) + (slots == 2))
        if turn < len(SCENES):
            return teller.encode_words(teller.say(values, turn)), same_scenes(said)
        words = teller.say_places(values, said[..., 0] == objects[..., 0])
        return teller.encode_words(words), (objects[:, :, None] == objects[:, None]).all(3)

    def _pictures(self, objects: Int[Tensor, "member scene slot"]) -> UInt8[Tensor, "member scene 3 high wide"]:
        """Pictures of scenes, each member's drawn by its own generator."""
        varies = self.sheet.canvas.varies
        drawn = [
            self.sheet.draw(of_member, generator if varies else None)
            for of_member, generator in zip(objects, self.generators, strict=True)
        ]
        return torch.stack(drawn)


def trainer_of(configs: Sequence[TrainConfig], device: torch.device) -> Trainer:
    """What trains members with these settings.

    Raises:
        ValueError: pictures beside token scenes, or settings that can't be stacked.
    """
    pictures = [config for config in configs if isinstance(config, PicturesConfig)]
    if not pictures:
        return Trainer(configs, device)
    if len(pictures) < len(configs):
        raise ValueError("Models of pictures and of token scenes can't be trained as one stack; train them apart.")
    return PairTrainer(pictures, device)


def _spoken(
    objects: Int[Tensor, "member scene slot"], order: str, generators: Sequence[torch.Generator]
) -> Int[Tensor, "member scene slot"]:
    """Objects in the order in which captions mention them."""
    if order == "left-first":
        return objects
    drawn = [torch.rand(o.shape, generator=g, device=o.device) for o, g in zip(objects, generators, strict=True)]
    return objects.gather(2, torch.stack(drawn).argsort(2))


def same_scenes(objects: Int[Tensor, "member scene slot"]) -> Bool[Tensor, "member scene scene"]:
    """Which scenes of a batch hold the same objects, so that one's caption is true of the other.

    Example:
        >>> same_scenes(torch.tensor([[[0, 3], [3, 0], [0, 0]]]))[0].int().tolist()
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    ordered = objects.sort(2).values
    return (ordered[:, :, None] == ordered[:, None]).all(3)


def caption_loss(
    scenes: Float[Tensor, "member scene dim"],
    captions: Float[Tensor, "member scene dim"],
    same: Bool[Tensor, "member scene scene"],
    scale: Float[Tensor, "member 1 1"],
) -> Float[Tensor, " member"]:
    """Contrast pictures with the captions of a batch, both ways, as CLIP does.

        1/2 mean_i [ logsumexp_j z(i, j) - mean_{j ~ i} z(i, j) ]  +  the same over columns

    Where scenes coincide, each caption is true of all of them.

    Args:
        scenes: unit vectors of pictures.
        captions: of their captions.
        same: which captions are true of which scene.
        scale: factor on similarities.

    Example:
        >>> eye = torch.eye(3)[None]
        >>> float(caption_loss(eye, eye, eye.bool(), torch.full((1, 1, 1), 50.0))) < 1e-6
        True
    """
    z = torch.bmm(scenes * scale, captions.transpose(1, 2))
    share = same / same.sum(2, keepdim=True)
    rows = z.logsumexp(2) - (share * z).sum(2)
    columns = z.logsumexp(1) - (share * z).sum(1)  # `same` is symmetric with equal counts in rows and columns
    return (rows.mean(1) + columns.mean(1)) / 2
