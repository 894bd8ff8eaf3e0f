"""Recipes of training that have a name: the paper's, and pictures against captions."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from colligate.choices import Activation, EncoderKind, LossKind, OptimizerKind
from colligate.training.config import TrainConfig

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

    from colligate.networks.dual import DualShape
    from colligate.scenes.space import ConceptSpace
    from colligate.scenes.sprites import SpriteSheet


@dataclass(frozen=True, kw_only=True)
class PaperConfig(TrainConfig):
    """The README settings of the authors' code: 400 objects, two encoders of 8M parameters, 50,000 steps.

    Differs: the checkpoint is chosen on validation objects, not on test; the temperature's limit is one in training and
    test (theirs 10 and 100); no query is padded; embeddings start at the deviation that Xavier's rule gives the whole
    table, other weights as ours do.

    Example:
        >>> PaperConfig().held_out_negatives, PaperConfig(steps=6000).steps
        (True, 6000)
    """

    hold_out: Literal["objects", "swaps"] = "objects"
    """At random, as the authors' code does; here every value is seen in training."""
    encoder: EncoderKind = "value-tokens"
    """A token for each value, markers, positions."""
    width: int = 256
    """Width of tokens."""
    layers: int = 6
    """Transformer layers of the scene encoder."""
    query_layers: int = 6
    """Transformer layers of the query encoder."""
    hidden: int = 2048
    """Width inside a layer."""
    heads: int = 4
    """Attention heads."""
    towers: Literal["separate", "shared"] = "separate"
    """Queries have an encoder of their own."""
    activation: Activation = "gelu"
    """Plain."""
    dim: int = 64
    """Width of the vectors that are compared."""
    scale: float = 0.08
    """Deviation of the values' vectors at the start."""
    temperature: float = 3.158
    """exp(1.15)."""
    warmest: float = 10.0
    """Most the temperature may become."""
    scenes: str = "random"
    """Independent seen objects."""
    fewer: float = 0.5
    """Scenes have one or two objects, equally often."""
    queries: str = "swaps:64"
    """Up to 64 objects of the batch, and a swap for each scene of two objects."""
    held_out_negatives: bool = True
    """Swaps that land on held-out objects are negatives."""
    loss: LossKind = "scene-to-query"
    """One way, as the authors' code has it (the paper says symmetric)."""
    value_loss: float = 1.0
    """Both losses count alike."""
    batch: int = 512
    """Scenes in a step."""
    steps: int = 50_000
    """Steps of training."""
    optimizer: OptimizerKind = "adamw"
    """AdamW for all."""
    average: float = 0.0
    """The weights themselves."""
    rate: float = 3e-5
    """Learning rate after the warm-up."""
    longest_warmup: ClassVar[int] = 5_000
    """A tenth of the steps."""
    momentum: float = 0.999
    """AdamW's own default."""
    clip: float = 0.0
    """No limit."""
    evaluate_every: int = 200
    """Steps between looks at recognition."""


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
        super().__post_init__()

    def _check_parts(self) -> None:
        """Let every part check its own settings."""
        _ = self.space, self.canvas_sheet
        super()._check_parts()

    @property
    def space(self) -> "ConceptSpace":
        """Colours and shapes."""
        from colligate.scenes.sprites import sprite_space

        return sprite_space(self.values, self.shapes)

    @property
    def canvas_sheet(self) -> "SpriteSheet":
        """Pictures as training shows them.

        Raises:
            ValueError: objects that would leave their place.
        """
        from colligate.scenes.sprites import SpriteSheet, sprite_canvas

        canvas = sprite_canvas(self.side, self.slots, jitter=self.jitter, resize=self.resize)
        return SpriteSheet(canvas, self.space, self.slots)

    @property
    def family(self) -> str:
        """What the model is called in rows."""
        return "pictures"

    def divide(self) -> 'dict[str, Int[Tensor, " object"]]':
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
    def shape(self) -> "DualShape":
        """The two encoders."""
        from colligate.networks.dual import DualShape
        from colligate.networks.encoders import EncoderShape

        pictures = EncoderShape(
            kind="pictures", width=self.width, layers=self.layers, heads=self.heads, hidden=self.hidden, dim=self.dim,
            scale=self.scale, activation=self.activation, side=self.side, patch=self.patch,
        )  # fmt: skip
        captions = replace(pictures, kind="captions", layers=self.query_layers)
        return DualShape(scene=pictures, query=captions, similarity=self.similarity, temperature=self.temperature)
