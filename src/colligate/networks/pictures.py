"""An encoder of pictures: a small patch transformer, stacked, that draws the scenes it is asked for."""

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from colligate.networks.encoders import Encoder, EncoderShape
from colligate.networks.stacked import Affine, Block, Table, generators
from colligate.scenes.space import ConceptSpace
from colligate.scenes.sprites import SpriteSheet, as_floats, sprite_canvas


class PictureEncoder(Encoder):
    """A pre-norm transformer over the patches of a picture, read at a token of its own.

        tokens   W x_p + t_p for each patch x_p of side x side pixels,  and t_read
        vector   of the last token after the layers, through an affine map

    Nothing in it knows where objects are. `encode` draws scenes without jitter; `encode_pixels` takes any pictures.

    Args:
        space: colors and shapes.
        slots: most objects in a scene.
        shape: sizes; `side` and `patch` are those of pictures.
        seeds: one for each member.

    Example:
        >>> from colligate.scenes.sprites import sprite_space
        >>> shape = EncoderShape(kind="pictures", width=16, heads=2, dim=8)
        >>> encoder = PictureEncoder(sprite_space(3, 2), 2, shape, seeds=[0])
        >>> encoder(torch.tensor([[[[0, 1], [2, 0]], [[1, 1], [-1, -1]]]])).shape
        torch.Size([1, 2, 8])
    """

    def __init__(self, space: ConceptSpace, slots: int, shape: EncoderShape, seeds: Sequence[int]) -> None:
        super().__init__(space, slots, shape.dim)
        self.side, self.patch, self.width = shape.side, shape.patch, shape.width
        members = generators(seeds)
        pixels, patches = 3 * shape.patch**2, (shape.side // shape.patch) ** 2
        self.look = Affine(members, pixels, shape.width)
        self.table = Table(members, patches + 1, shape.width, shape.scale)
        self.blocks = nn.ModuleList(
            Block(members, shape.width, shape.heads, shape.inner, shape.layers, shape.activation)
            for _ in range(shape.layers)
        )
        self.head = Affine(members, shape.width, shape.dim)

    @cached_property
    def sheet(self) -> SpriteSheet:
        """The objects, drawn when first needed."""
        return SpriteSheet(sprite_canvas(self.side, self.slots), self.space, self.slots)

    def encode(self, values: Int[Tensor, "member item slot concept"]) -> Float[Tensor, "member item dim"]:
        """A vector for the picture of each scene."""
        objects = self.space.object_ids(values)
        drawn = self.sheet.draw(objects.flatten(0, 1))
        return self.encode_pixels(drawn.unflatten(0, objects.shape[:2]))

    def encode_values(self) -> Float[Tensor, "member query dim"]:
        """Nothing: a value alone can't be drawn.

        Raises:
            ValueError: always; values are asked for in words.
        """
        raise ValueError("A value alone has no picture; ask for it by the text encoder.")

    def encode_pixels(self, pixels: UInt8[Tensor, "member item 3 high wide"]) -> Float[Tensor, "member item dim"]:
        """A vector for each picture.

        Raises:
            ValueError: pictures of another size.
        """
        members, items, _, high, wide = pixels.shape
        if (high, wide) != (self.side, self.side):
            raise ValueError(
                f"This encoder reads pictures of {self.side} x {self.side} pixels; got {wide} x {high}. Resize them."
            )
        across = self.side // self.patch
        cut = as_floats(pixels).reshape(members, items, 3, across, self.patch, across, self.patch)
        patches = cut.permute(0, 1, 3, 5, 2, 4, 6).reshape(members, items * across**2, -1)
        seen = self.look(patches).reshape(members, items, across**2, self.width)
        places = self.table.weight[:, None]
        tokens = torch.cat([seen + places[:, :, :-1], places[:, :, -1:].expand(-1, items, -1, -1)], 2)
        for i, block in enumerate(self.blocks):
            tokens = block(tokens, None, last=i == len(self.blocks) - 1)
        return self.head(nn.functional.layer_norm(tokens[:, :, -1], (self.width,)))
