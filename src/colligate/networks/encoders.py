"""Encoders of scenes and queries, stacked: transformers over tokens, a product that binds, a bag that can't.

All of them read values and give vectors. A query names an object (a scene of one object) or a single value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from colligate.choices import Activation, EncoderKind
from colligate.networks.stacked import Affine, Block, Table, generators
from colligate.scenes.space import ConceptSpace

ShownKind = Literal["pictures", "captions"]
"""What reads the values as people see and say them: a patch transformer over pictures, a transformer over words."""


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """Kind and sizes of an encoder."""

    kind: EncoderKind | ShownKind = "object-tokens"
    """What reads the values."""
    width: int = 128
    """Width of tokens."""
    layers: int = 2
    """Transformer layers."""
    heads: int = 4
    """Attention heads."""
    hidden: int = 0
    """Width inside a layer's two maps; 0 for four times the width."""
    dim: int = 256
    """Width of the vector that comes out."""
    scale: float = 1.0
    """Deviation of the values' vectors at the start."""
    activation: Activation = "gelu"
    """What stands between the two maps of a layer."""
    side: int = 32
    """Width and height of pictures, in pixels."""
    patch: int = 8
    """Width and height of their patches."""

    def __post_init__(self) -> None:
        if not 0 < self.patch <= self.side or self.side % self.patch:
            raise ValueError(
                f"Patches of {self.patch} pixels don't tile pictures of {self.side}; give a side that is a multiple."
            )
        if min(self.width, self.layers, self.heads, self.dim) < 1 or self.hidden < 0:
            raise ValueError(f"Width, layers, heads and dim must be at least 1; got {self}.")
        if ("tokens" in self.kind or self.kind == "captions") and self.width % (2 * self.heads):
            raise ValueError(
                f"Width {self.width} must be a multiple of twice the {self.heads} heads; choose another width."
            )

    @property
    def inner(self) -> int:
        """Width inside a layer's two maps."""
        return self.hidden or 4 * self.width


class Encoder(nn.Module):
    """Turn values into vectors, for each member.

    Scenes of different numbers of objects are encoded apart, so that no empty slot costs anything or changes a vector.

    Args:
        space: the concepts.
        slots: most objects in a scene.
        dim: width of the vectors.
    """

    def __init__(self, space: ConceptSpace, slots: int, dim: int) -> None:
        super().__init__()
        if slots < 1:
            raise ValueError(f"An encoder reads scenes of at least one object; got slots={slots}.")
        self.space, self.slots, self.dim = space, slots, dim
        starts = torch.tensor([sum(space.sizes[:c]) for c in range(space.num_concepts)])
        self.register_buffer("starts", starts, persistent=False)
        self.starts: Tensor

    def forward(self, values: Int[Tensor, "member item slot concept"]) -> Float[Tensor, "member item dim"]:
        """A vector for each scene; a slot that holds -1 is empty, and an item has as many objects for every member.

        Raises:
            ValueError: more objects than slots, or members that differ in their number of objects.
        """
        filled = (values >= 0).all(-1)
        counts = filled.sum(-1)
        if bool((counts != counts[:1]).any()):
            raise ValueError("The members of a stack must have the same number of objects in each item.")
        found = torch.empty(0)
        for count in counts[0].unique().tolist():
            if not 1 <= count <= self.slots:
                raise ValueError(
                    f"This encoder reads scenes of 1 to {self.slots} objects; got one of {count}. Build it with more "
                    "slots."
                )
            rows = (counts[0] == count).nonzero()[:, 0]
            some = values[:, rows]
            held = some[filled[:, rows]].reshape(len(values), len(rows), count, -1)
            vectors = self.encode(held)
            if len(rows) == values.shape[1]:
                return vectors
            if not len(found):
                found = vectors.new_empty(len(values), values.shape[1], self.dim)
            found = found.index_copy(1, rows, vectors)
        return found

    def encode(self, values: Int[Tensor, "member item slot concept"]) -> Float[Tensor, "member item dim"]:
        """A vector for each scene; all have the same number of objects and no slot is empty."""
        raise NotImplementedError

    def encode_values(self) -> Float[Tensor, "member query dim"]:
        """A vector for each value alone, concept by concept: the queries that ask for a value."""
        raise NotImplementedError

    def encode_queries(
        self, values: Int[Tensor, "member query concept"]
    ) -> tuple[Float[Tensor, "member query dim"], Float[Tensor, "member value dim"]]:
        """Vectors of objects and of each value alone; in one pass where their sequences are equally long."""
        return self.encode(values[:, :, None]), self.encode_values()


class TransformerEncoder(Encoder):
    """A pre-norm transformer over the tokens of a scene, read at the last one.

    value tokens: SOO, a token for each value, EOO for each object, then EOS; vectors plus sinusoidal positions
    object tokens: for each object the sum of its values' vectors, then EOS; no positions
    relative tokens: the value tokens' sequence; instead of positions, each head adds a learned number to its scores for
    each distance between two tokens, zero at the start

    Grouped, the first of several layers stays within an object (a token of an object attends to nothing else there, so
    that only the two maps of the layer are left).

    The last layer is computed for the token that is read, no other.

    Paper: arXiv:2605.31503, Sec. 6.   Differs: norms have no weights (the map behind each absorbs them); the causal
    variant is read at its last token.

    Example:
        >>> space = ConceptSpace(color=3, shape=2)
        >>> shape = EncoderShape(kind="value-tokens", width=16, heads=2, dim=8)
        >>> encoder = TransformerEncoder(space, 2, shape, seeds=[0])
        >>> encoder(torch.tensor([[[[0, 1], [2, 0]], [[1, 1], [-1, -1]]]])).shape, encoder.encode_values().shape
        (torch.Size([1, 2, 8]), torch.Size([1, 5, 8]))
    """

    def __init__(self, space: ConceptSpace, slots: int, shape: EncoderShape, seeds: Sequence[int]) -> None:
        super().__init__(space, slots, shape.dim)
        self.kind, self.width = shape.kind, shape.width
        members = generators(seeds)
        self.start, self.end, self.read = (sum(space.sizes) + i for i in range(3))
        self.table = Table(members, sum(space.sizes) + 3, shape.width, shape.scale)
        longest = slots * (space.num_concepts + 2) + 1
        reach = longest if shape.kind == "relative-tokens" else 0
        self.blocks = nn.ModuleList(
            Block(members, shape.width, shape.heads, shape.inner, shape.layers, shape.activation, reach)
            for _ in range(shape.layers)
        )
        self.head = Affine(members, shape.width, shape.dim)
        self.register_buffer("positions", sinusoids(longest, shape.width), persistent=False)
        self.positions: Tensor

    def encode(self, values: Int[Tensor, "member item slot concept"]) -> Float[Tensor, "member item dim"]:
        """A vector for each scene."""
        members, items, slots, concepts = values.shape
        ids = values + self.starts
        if self.of_objects:
            return self._of_objects(self.table(ids).sum(3))
        start, end = (ids.new_full((members, items, slots, 1), mark) for mark in (self.start, self.end))
        tokens = torch.cat([start, ids, end], dim=-1).reshape(members, items, -1)
        grouped = slots if self.kind == "grouped-tokens" else None
        return self._transform(self._placed(tokens), grouped, concepts + 2)

    def encode_values(self) -> Float[Tensor, "member query dim"]:
        """A vector for each value alone: a sequence of its token and EOS."""
        members, num = len(self.table.weight), sum(self.space.sizes)
        ids = torch.arange(num, device=self.starts.device).expand(members, num)[..., None]
        if self.of_objects:
            return self._of_objects(self.table(ids))
        return self._transform(self._placed(ids), None)

    def encode_queries(
        self, values: Int[Tensor, "member query concept"]
    ) -> tuple[Float[Tensor, "member query dim"], Float[Tensor, "member value dim"]]:
        """Vectors of objects and of each value alone."""
        if not self.of_objects:
            return super().encode_queries(values)
        objects, each = self.table(values + self.starts).sum(2), self.table.weight[:, : self.start]
        tokens = torch.cat([objects, each], 1)[:, :, None]
        found = self._of_objects(tokens)
        return found[:, : values.shape[1]], found[:, values.shape[1] :]

    @property
    def of_objects(self) -> bool:
        """Whether a token stands for an object."""
        return self.kind in {"object-tokens", "grouped-objects"}

    def _of_objects(self, tokens: Float[Tensor, "member item token dim"]) -> Float[Tensor, "member item _"]:
        """Read tokens of objects; grouped, they pass the first of several layers alone."""
        if self.kind == "object-tokens" or len(self.blocks) == 1:
            return self._transform(self._with_read(tokens), None)
        return self._transform(self._with_read(cast("Block", self.blocks[0]).alone(tokens)), None, skip=1)

    def _with_read(self, tokens: Float[Tensor, "member item token dim"]) -> Float[Tensor, "member item _ dim"]:
        """The tokens and the read-out token."""
        read = self.table.weight[:, self.read, None, None].expand(-1, tokens.shape[1], -1, -1)
        return torch.cat([tokens, read], dim=2)

    def _placed(self, ids: Int[Tensor, "member item token"]) -> Float[Tensor, "member item _ dim"]:
        """Vectors of the tokens and EOS, with positions."""
        tokens = self._with_read(self.table(ids))
        if self.kind == "relative-tokens":
            return tokens
        return tokens + self.positions[: tokens.shape[2]]

    def _transform(
        self,
        tokens: Float[Tensor, "member item token dim"],
        grouped: int | None,
        of_object: int = 0,
        *,
        skip: int = 0,
    ) -> Float[Tensor, "member item _"]:
        """Through the layers (less those to skip), and read the last token."""
        mask = None
        length = tokens.shape[2]
        if self.kind == "causal-tokens":
            mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        depth = len(self.blocks)
        for i, block in list(enumerate(self.blocks))[skip:]:
            first = grouped is not None and i == 0 and depth > 1
            within = within_objects(grouped, of_object, tokens.device) if first and grouped else mask
            tokens = block(tokens, within, last=i == depth - 1)
        read = nn.functional.layer_norm(tokens[:, :, -1], (self.width,))
        return self.head(read)


class ProductEncoder(Encoder):
    """The smallest rule that binds: a product of one vector for each value, summed over objects, and a sum of values.

        x(s) = sum_k ( sum_c u[c, s[k, c]]  +  prod_c v[c, s[k, c]] )

    `colligate.binding.ObjectProducts` with shared positions, stacked. It binds by construction, whatever it was trained
    on: an upper bound, not evidence of emergence. A value alone has the vector u.

    Example:
        >>> encoder = ProductEncoder(ConceptSpace(color=3, shape=2), 2, EncoderShape(kind="product", dim=8), [0])
        >>> encoder(torch.tensor([[[[0, 1], [2, 0]]]])).shape
        torch.Size([1, 1, 8])
    """

    def __init__(self, space: ConceptSpace, slots: int, shape: EncoderShape, seeds: Sequence[int]) -> None:
        super().__init__(space, slots, shape.dim)
        members = generators(seeds)
        self.sums = Table(members, sum(space.sizes), shape.dim, shape.scale * shape.dim**-0.5)
        self.factors = Table(
            members, sum(space.sizes), shape.dim, shape.scale * shape.dim ** (-0.5 / space.num_concepts)
        )

    def encode(self, values: Int[Tensor, "member item slot concept"]) -> Float[Tensor, "member item dim"]:
        """A vector for each scene."""
        ids = values + self.starts
        return self.sums(ids).sum((2, 3)) + self.factors(ids).prod(3).sum(2)

    def encode_values(self) -> Float[Tensor, "member query dim"]:
        """A vector for each value alone."""
        return self.sums.weight


class BagEncoder(Encoder):
    """A bag of concepts: the sum of one vector for each value, through an MLP. A scene and its swaps coincide.

    x(s) = MLP( sum_k sum_c u[c, s[k, c]] )

    Example:
        >>> space = ConceptSpace(color=3, shape=2)
        >>> encoder = BagEncoder(space, 2, EncoderShape(kind="bag", width=8, heads=1, dim=4), [0])
        >>> scenes = space.scenes([[0, 3]])
        >>> bool((encoder(scenes.values[None]) - encoder(scenes.swap(0).values[None])).abs().max() < 1e-6)
        True
    """

    def __init__(self, space: ConceptSpace, slots: int, shape: EncoderShape, seeds: Sequence[int]) -> None:
        super().__init__(space, slots, shape.dim)
        members = generators(seeds)
        self.table = Table(members, sum(space.sizes), shape.width, shape.scale)
        self.up = Affine(members, shape.width, shape.inner)
        self.down = Affine(members, shape.inner, shape.dim)

    def encode(self, values: Int[Tensor, "member item slot concept"]) -> Float[Tensor, "member item dim"]:
        """A vector for each scene."""
        return self._through(self.table(values + self.starts).sum((2, 3)))

    def encode_values(self) -> Float[Tensor, "member query dim"]:
        """A vector for each value alone."""
        return self._through(self.table.weight)

    def _through(self, x: Float[Tensor, "member item dim"]) -> Float[Tensor, "member item _"]:
        return self.down(nn.functional.gelu(self.up(nn.functional.layer_norm(x, x.shape[-1:]))))


def sinusoids(length: int, width: int) -> Float[Tensor, "token dim"]:
    """Sinusoidal positions: sines and cosines of wave lengths from 2 pi to 20,000 pi.

    Example:
        >>> sinusoids(3, 4)[0].tolist()
        [0.0, 1.0, 0.0, 1.0]
    """
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(length, width)


def within_objects(objects: int, of_object: int, device: torch.device | None = None) -> Tensor:
    """Which token may look at which when attention stays within an object; the last token (EOS) sees itself.

    Example:
        >>> within_objects(2, 1).int().tolist()
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    """
    owner = torch.arange(objects, device=device).repeat_interleave(of_object)
    owner = torch.cat([owner, owner.new_full((1,), objects)])
    return owner[:, None] == owner
