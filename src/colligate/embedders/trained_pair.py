"""Image-text models that `colligate train --preset pictures` made, as two towers: one of pictures, one of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

import torch
from jaxtyping import Float
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
        """The world that it was trained in: two objects of its colors and shapes, and single ones."""
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

    def _of_pictures(self, pictures: Sequence["PIL.Image.Image"]) -> Float[Tensor, "item dim"]:
        import numpy as np
        from PIL import Image

        encoder, side = cast("PictureEncoder", self.network.scene), self.network.shape.scene.side
        parts: list[Tensor] = []
        for start in range(0, len(pictures), _BLOCK):
            block = [one.convert("RGB") for one in pictures[start : start + _BLOCK]]
            read = [
                one if one.size == (side, side) else one.resize((side, side), Image.Resampling.BILINEAR)
                for one in block
            ]
            pixels = torch.from_numpy(np.stack([np.asarray(one) for one in read])).permute(0, 3, 1, 2)
            parts.append(encoder.encode_pixels(pixels[None].to(self.network.log_scale.device))[0].float().cpu())
        return torch.cat(parts)

    def _of_texts(self, texts: Sequence[str]) -> Float[Tensor, "item dim"]:
        encoder = cast("CaptionEncoder", self.network.query)
        words = [encoder.tokenize(text) for text in texts]
        vectors = torch.empty(len(texts), encoder.dim)
        by_length: dict[int, list[int]] = {}
        for row, of_text in enumerate(words):
            by_length.setdefault(len(of_text), []).append(row)
        for rows in by_length.values():
            ids = torch.tensor([words[row] for row in rows], device=self.network.log_scale.device)
            found = [encoder.encode_words(some[None])[0].float().cpu() for some in ids.split(_BLOCK)]
            vectors[torch.tensor(rows)] = torch.cat(found)
        return vectors

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
