"""Pictures against captions: a small image-text model trained from scratch, as any other dual encoder is.

Picture and text meet in three ways, all of them true statements about the picture: the caption of the whole scene
(contrasted with the captions of the batch), an object in it, and a value in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from colligate.networks.dual import DualShape
from colligate.networks.encoders import EncoderKind, EncoderShape
from colligate.networks.pictures import PictureEncoder
from colligate.networks.words import SCENES, VALUES, CaptionEncoder
from colligate.scenes.space import ConceptSpace
from colligate.scenes.sprites import SpriteSheet, sprite_canvas, sprite_space
from colligate.training.config import TrainConfig
from colligate.training.data import Batch
from colligate.training.optimizers import OptimizerKind
from colligate.training.queries import value_targets
from colligate.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class PicturesConfig(TrainConfig):
    """A small image-text model trained from scratch on pictures and captions of some objects.

    Example:
        >>> config = PicturesConfig()
        >>> config.space.num_objects, {part: len(ids) for part, ids in config.divide().items()}
        (144, {'fit': 116, 'validation': 8, 'test': 20})
    """

    concepts: Literal[2] = 2
    """Color and shape."""
    values: int = 16
    """Number of colours, up to 16."""
    shapes: int = 9
    """Number of shapes, up to 9."""
    hold_out: Literal["objects", "swaps"] = "swaps"
    """How objects are held out: in closed swap quadruples, or at random. Below a coverage of about 0.5 quadruples would
    hide whole shapes, and are plenty at random."""
    validation: float = 0.3
    """Share of the held-out objects that choose the checkpoint."""
    encoder: EncoderKind = "value-tokens"
    """Not to be chosen here: pictures are read patch by patch, captions word by word."""
    side: int = 32
    """Width and height of pictures, in pixels."""
    patch: int = 8
    """Width and height of their patches."""
    jitter: int = 1
    """Most pixels by which an object moves from its place, each time it is drawn."""
    resize: float = 0.0
    """Largest change of an object's radius, as a fraction, each time it is drawn."""
    order: Literal["either", "left-first"] = "either"
    """Which object a caption mentions first."""
    wordings: bool = True
    """Say texts in several ways, in turn ("a photo of ..."); otherwise as the world's captions do."""
    caption_loss: float = 1.0
    """Weight of the loss on captions of whole scenes."""
    object_loss: float = 1.0
    """Weight of the loss on texts that say one object; 0 leaves it to captions to teach what goes together."""
    width: int = 128
    """Width of tokens."""
    layers: int = 3
    """Transformer layers of the picture encoder."""
    query_layers: int = 2
    """Transformer layers of the caption encoder."""
    optimizer: OptimizerKind = "adamw"
    """What steps the matrices of layers; the recipe was found with adamw; muon learns faster (docs/emergence.md)."""
    average: float = 0.0
    """Memory of the exponential average of the weights; 0 for the weights themselves."""
    steps: int = 600
    """Steps of training; it stops by steps, never by the clock."""
    longest_warmup: ClassVar[int] = 100
    """Steps of the warm-up where none are asked for and training isn't short."""
    towers: Literal["separate", "shared"] = "separate"
    """Not to be chosen here: pictures and captions have an encoder each."""
    evaluate_every: int = 250
    """Steps between looks at recognition."""
    fewer: float = 0.15
    """Share of scenes with fewer objects than slots."""

    def __post_init__(self) -> None:
        if self.encoder != "value-tokens":
            raise ValueError("Pictures and captions have encoders of their own; leave encoder out.")
        if self.towers != "separate" or self.penalty != "none":
            raise ValueError("Pictures and captions take separate towers and no penalty; leave both out.")
        if min(self.caption_loss, self.object_loss, self.value_loss) < 0 or not self.caption_loss + self.object_loss:
            raise ValueError("Weights of losses are not negative, and captions or objects need one above 0.")
        _ = self.space, self.canvas_sheet
        super().__post_init__()

    @property
    def space(self) -> ConceptSpace:
        """Colours and shapes."""
        return sprite_space(self.values, self.shapes)

    @property
    def canvas_sheet(self) -> SpriteSheet:
        """Pictures as training shows them.

        Raises:
            ValueError: objects that would leave their place.
        """
        canvas = sprite_canvas(self.side, self.slots, jitter=self.jitter, resize=self.resize)
        return SpriteSheet(canvas, self.space, self.slots)

    @property
    def family(self) -> str:
        """What the model is called in rows."""
        return "pictures"

    def divide(self) -> dict[str, Int[Tensor, " object"]]:
        """Object ids of fit, validation and test.

        Raises:
            ValueError: the coverage leaves a value unseen or a part empty.
        """
        try:
            return super().divide()
        except ValueError as error:
            if self.hold_out == "objects":
                raise
            raise ValueError(f"{error} Or hold out objects at random: --hold-out objects.") from None

    @property
    def shape(self) -> DualShape:
        """The two encoders."""
        pictures = EncoderShape(
            kind="pictures", width=self.width, layers=self.layers, heads=self.heads, hidden=self.hidden, dim=self.dim,
            scale=self.scale, activation=self.activation, side=self.side, patch=self.patch,
        )  # fmt: skip
        captions = replace(pictures, kind="captions", layers=self.query_layers)
        return DualShape(scene=pictures, query=captions, similarity=self.similarity, temperature=self.temperature)


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
