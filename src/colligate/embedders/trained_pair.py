"""Image-text models that `colligate train --preset pictures` made, as two towers: one of pictures, one of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import normalize

from colligate.networks.dual import DualEncoder
from colligate.networks.pictures import PictureEncoder
from colligate.networks.words import CaptionEncoder

if TYPE_CHECKING:
    import PIL.Image

_BLOCK = 512


@dataclass(frozen=True, eq=False)
class TrainedPairTower:
    """One of the two towers, as the encoder gives its vectors (not divided by their length).

    Pictures of other sizes are resized to the trained one; words that were not learned are refused.

    Attributes:
        network: a dual encoder of pictures and captions, of one member.
        weights: hash that identifies it.
        kind: which of the towers this is.
        unit: divide every vector by its length.

    Example:
        >>> from colligate.networks.dual import DualShape
        >>> from colligate.networks.encoders import EncoderShape
        >>> from colligate.scenes.sprites import sprite_space
        >>> shapes = {"scene": EncoderShape(kind="pictures"), "query": EncoderShape(kind="captions")}
        >>> network = DualEncoder(sprite_space(4, 3), 2, DualShape(**shapes), seeds=[0])
        >>> tower = TrainedPairTower(network, "fresh", "text")
        >>> tower.embed(["a blue square", "something cyan"]).shape, tower.grid
        (torch.Size([2, 256]), 'sprites:4x3')
    """

    network: DualEncoder
    weights: str
    kind: Literal["picture", "text"]
    unit: bool = False

    def __post_init__(self) -> None:
        self.network.eval().requires_grad_(False)

    @property
    def device(self) -> str:
        """Where the network runs."""
        return str(self.network.log_scale.device)

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """The weights determine the vectors, given pictures of the trained size."""
        side = self.network.shape.scene.side
        return {
            "library": "colligate", "trained": f"{self.kind}s", "weights": self.weights, "normalize": self.unit,
            **({"preprocessing": f"RGB, bilinear to {side} x {side}"} if self.kind == "picture" else {}),
        }  # fmt: skip

    @property
    def grid(self) -> str:
        """The world that it was trained in: two objects of its colours and shapes, and single ones."""
        side, sizes = self.network.shape.scene.side, "x".join(map(str, self.network.space.sizes))
        return f"sprites:{sizes}" if side == 32 else f"sprites:{sizes}@{side}"

    def embed(self, items: Sequence["PIL.Image.Image"] | Sequence[str]) -> Float[Tensor, "item dim"]:
        """One vector for each picture, or for each text.

        Raises:
            ValueError: a word that the text tower never learned, or a text that is too long.
        """
        if self.kind == "picture":
            vectors = self._of_pictures(cast("Sequence[PIL.Image.Image]", items))
        else:
            vectors = self._of_texts(cast("Sequence[str]", items))
        return normalize(vectors, dim=1) if self.unit else vectors

    def pixels(self, pictures: Sequence["PIL.Image.Image"]) -> UInt8[Tensor, "item 3 high wide"]:
        """Pictures as the network reads them: RGB, of the trained size."""
        import numpy as np
        from PIL import Image

        side = self.network.shape.scene.side
        read = [one.convert("RGB") for one in pictures]
        sized = [
            one if one.size == (side, side) else one.resize((side, side), Image.Resampling.BILINEAR) for one in read
        ]
        return torch.from_numpy(np.stack([np.asarray(one) for one in sized])).permute(0, 3, 1, 2)

    def _of_pictures(self, pictures: Sequence["PIL.Image.Image"]) -> Float[Tensor, "item dim"]:
        encoder, device = cast("PictureEncoder", self.network.scene), self.network.log_scale.device
        blocks = (pictures[start : start + _BLOCK] for start in range(0, len(pictures), _BLOCK))
        return torch.cat(
            [encoder.encode_pixels(self.pixels(some)[None].to(device))[0].float().cpu() for some in blocks]
        )

    def _of_texts(self, texts: Sequence[str]) -> Float[Tensor, "item dim"]:
        encoder = cast("CaptionEncoder", self.network.query)
        return encoder.encode_texts([encoder.tokenize(text) for text in texts])[0].float().cpu()

    def fresh(self, seed: int) -> "TrainedPairTower":
        """The same architecture with weights drawn anew; both towers of a seed are of one network."""
        network = self.network
        drawn = DualEncoder(network.space, network.slots, network.shape, [seed + 1_000_003])
        return replace(self, network=drawn.to(network.log_scale.device), weights=f"fresh weights, seed {seed}")


def pair_towers(network: DualEncoder, weights: str, *, unit: bool = False) -> dict[str, TrainedPairTower]:
    """Both towers of a model."""
    return {
        "picture": TrainedPairTower(network, weights, "picture", unit),
        "text": TrainedPairTower(network, weights, "text", unit),
    }
