"""Two encoders and a temperature: what scores scenes against queries."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from colligate.choices import Similarity
from colligate.networks.encoders import BagEncoder, Encoder, EncoderShape, ProductEncoder, TransformerEncoder
from colligate.networks.pictures import PictureEncoder
from colligate.networks.words import CaptionEncoder
from colligate.scenes.space import ConceptSpace


@dataclass(frozen=True, kw_only=True)
class DualShape:
    """What a dual encoder is made of."""

    scene: EncoderShape = field(default_factory=EncoderShape)
    """Encoder of scenes."""
    query: EncoderShape = field(default_factory=EncoderShape)
    """Encoder of queries."""
    towers: Literal["separate", "shared"] = "separate"
    """Whether queries have an encoder of their own; `shared` takes the scenes' (and its shape)."""
    similarity: Similarity = "cosine"
    """How vectors are compared."""
    temperature: float = 14.0
    """Factor on similarities at the start; it is learned."""

    def __post_init__(self) -> None:
        if self.scene.dim != self.query.dim:
            raise ValueError(f"Both encoders need one output width; got {self.scene.dim} and {self.query.dim}.")
        if self.temperature <= 0:
            raise ValueError(f"The temperature multiplies similarities and must be positive; got {self.temperature:g}.")


class DualEncoder(nn.Module):
    """Score scenes against queries: `scale * cos(f(scene), q(query))`, each member its own.

    Paper: arXiv:2605.31503, Sec. 3.

    Args:
        space: the concepts.
        slots: most objects in a scene.
        shape: of the encoders.
        seeds: one for each member.

    Example:
        >>> model = DualEncoder(ConceptSpace(color=3, shape=2), 2, DualShape(), seeds=[0])
        >>> model.object_queries(torch.arange(6)[None]).shape
        torch.Size([1, 6, 256])
    """

    def __init__(self, space: ConceptSpace, slots: int, shape: DualShape, seeds: Sequence[int]) -> None:
        super().__init__()
        self.space, self.slots, self.shape = space, slots, shape
        self.scene = build_encoder(space, slots, shape.scene, [2 * seed for seed in seeds])
        separate = shape.towers == "separate"
        self.query = build_encoder(space, 1, shape.query, [2 * s + 1 for s in seeds]) if separate else self.scene
        self.log_scale = nn.Parameter(torch.full((len(seeds), 1, 1), math.log(shape.temperature)))
        self.bias = nn.Parameter(torch.zeros(len(seeds), 1, 1))  # of the sigmoid loss

    @property
    def members(self) -> int:
        """Number of networks in the stack."""
        return len(self.log_scale)

    def scenes(self, values: Int[Tensor, "member scene slot concept"]) -> Float[Tensor, "member scene dim"]:
        """Vectors of scenes, as the encoder gives them."""
        return self.scene(values)

    def object_queries(self, objects: Int[Tensor, "member query"]) -> Float[Tensor, "member query dim"]:
        """Vectors of queries that ask for an object, by id."""
        return self.query.encode(self.space.object_values(objects)[:, :, None])

    def value_queries(self) -> Float[Tensor, "member query dim"]:
        """Vectors of queries that ask for a value, concept by concept."""
        return self.query.encode_values()

    def queries(
        self, objects: Int[Tensor, "member query"]
    ) -> tuple[Float[Tensor, "member query dim"], Float[Tensor, "member value dim"]]:
        """Vectors of queries for objects, by id, and for every value."""
        return self.query.encode_queries(self.space.object_values(objects))

    def compared(self, vectors: Float[Tensor, "member item dim"]) -> Float[Tensor, "member item dim"]:
        """Vectors ready for a plain product: of length one under cosine, in float32 at least."""
        wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        return nn.functional.normalize(wide, dim=-1) if self.shape.similarity == "cosine" else wide

    def select(self, member: int) -> "DualEncoder":
        """One member as a network of its own."""
        alone = DualEncoder(self.space, self.slots, self.shape, [0])
        alone.load_state_dict({name: value[member : member + 1] for name, value in self.state_dict().items()})
        return alone.to(self.log_scale.device)


def build_encoder(space: ConceptSpace, slots: int, shape: EncoderShape, seeds: Sequence[int]) -> Encoder:
    """An encoder of the kind that a shape names, a member for each seed.

    Example:
        >>> build_encoder(ConceptSpace(color=3, shape=2), 2, EncoderShape(), [0, 1]).encode_values().shape
        torch.Size([2, 5, 256])
    """
    kinds: dict[str, type[Encoder]] = {
        "product": ProductEncoder, "bag": BagEncoder, "pictures": PictureEncoder, "captions": CaptionEncoder
    }  # fmt: skip
    made: Any = kinds.get(shape.kind, TransformerEncoder)
    return made(space, slots, shape, seeds)
