"""Layers whose every parameter has a leading member axis: many networks of one shape trained in one pass.

A single network is one member. Each member draws its weights from its own generator, so that a member of a stack
starts exactly as the same network does alone.
"""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from colligate.choices import Activation


def generators(seeds: Sequence[int]) -> list[torch.Generator]:
    """One generator a member, on the CPU: weights don't depend on the device."""
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def drawn(members: Sequence[torch.Generator], shape: tuple[int, ...], std: float) -> nn.Parameter:
    """Normal weights `[member, *shape]`, each member's from its own generator."""
    return nn.Parameter(torch.stack([std * torch.randn(shape, generator=g) for g in members]))


_FEW = 4  # pairs of tokens up to which elementwise products are fastest
_STRIDE = 30.0  # numbers for distances are this many times their weights: AdamW moves a weight by its rate at most


class Affine(nn.Module):
    """A linear map with bias for each member: `y = x W + b`.

    Args:
        members: a generator for each member.
        fan_in: width of the input.
        fan_out: width of the output.
        gain: weights are normal with deviation gain / sqrt(fan_in).

    Example:
        >>> Affine(generators([0, 1]), 4, 3)(torch.ones(2, 5, 4)).shape
        torch.Size([2, 5, 3])
    """

    def __init__(self, members: Sequence[torch.Generator], fan_in: int, fan_out: int, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = drawn(members, (fan_in, fan_out), gain * fan_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(len(members), 1, fan_out))

    def forward(self, x: Float[Tensor, "member row dim"]) -> Float[Tensor, "member row _"]:
        """Apply each member's map to its rows."""
        if len(x) == 1:  # a product of two matrices is faster than a batch of one
            return torch.addmm(self.bias.squeeze(0), x.squeeze(0), self.weight.squeeze(0)).unsqueeze(0)
        return torch.baddbmm(self.bias, x, self.weight)


class Table(nn.Module):
    """Rows of vectors for each member.

    Example:
        >>> Table(generators([0]), 6, 4)(torch.tensor([[[0, 5]]])).shape
        torch.Size([1, 1, 2, 4])
    """

    def __init__(self, members: Sequence[torch.Generator], rows: int, dim: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = drawn(members, (rows, dim), scale)

    def forward(self, ids: Int[Tensor, "member ..."]) -> Float[Tensor, "member ... dim"]:
        """Look up each member's rows."""
        members, rows, dim = self.weight.shape
        shift = torch.arange(members, device=ids.device).reshape(-1, *[1] * (ids.ndim - 1)) * rows
        return nn.functional.embedding(ids + shift, self.weight.reshape(members * rows, dim))


class Block(nn.Module):
    """A pre-norm transformer layer for each member: attention, then two affine maps with a nonlinearity between.

    The norms have no weights of their own: the affine map behind each could absorb them. The member axis is folded into
    the batch of the attention.

    Args:
        members: a generator for each member.
        width: of tokens.
        heads: of the attention; divides the width.
        hidden: width between the two maps.
        depth: number of layers in all; the maps that write into the residual start smaller by its root.
        activation: gelu, or gated: one half of the hidden units, after GELU, multiplies the other (GEGLU).
        reach: longest sequence, if attention also depends on how far apart two tokens stand: each head adds a number
            to its scores for each distance, zero at the start; 0 for no such numbers.

    Source: numbers for distances, Raffel et al. 2020 (T5). Differs: they are 30 times the weights that are learned.
    """

    def __init__(
        self,
        members: Sequence[torch.Generator],
        width: int,
        heads: int,
        hidden: int,
        depth: int,
        activation: Activation = "gelu",
        reach: int = 0,
    ) -> None:
        super().__init__()
        self.heads, self.gated = heads, activation == "gated"
        self.near: nn.Parameter | None = None
        if reach:
            self.near = nn.Parameter(torch.zeros(len(members), heads, 2 * reach - 1))  # [member head distance]
        small = (2 * depth) ** -0.5
        self.ask = Affine(members, width, width)
        self.show = Affine(members, width, 2 * width)
        self.out = Affine(members, width, width, small)
        self.up = Affine(members, width, hidden)
        self.down = Affine(members, hidden // 2 if self.gated else hidden, width, small)

    def forward(
        self, x: Float[Tensor, "member item token dim"], mask: Tensor | None, *, last: bool
    ) -> Float[Tensor, "member item _ dim"]:
        """The tokens after this layer; with `last`, the final token alone, whatever else isn't needed left out.

        Args:
            x: tokens.
            mask: which token may look at which; None for all.
            last: whether only the final token is read.
        """
        members, items, tokens, width = x.shape
        normed = nn.functional.layer_norm(x, (width,))
        shown = self.show(normed.reshape(members, -1, width))
        key, value = shown.reshape(members * items, tokens, 2, self.heads, -1).unbind(2)
        if last:
            normed, x = normed.narrow(2, tokens - 1, 1), x.narrow(2, tokens - 1, 1)
            mask = None if mask is None else mask[-1:]
        if self.near is not None:
            mask = self._nearness(tokens, x.shape[2], mask)
        query = self.ask(normed.reshape(members, -1, width)).reshape(members * items, x.shape[2], self.heads, -1)
        x = x + self.out(attend(query, key, value, mask).reshape(members, -1, width)).reshape(x.shape)
        return self.alone(x)

    def _nearness(self, tokens: int, asking: int, mask: Tensor | None) -> Float[Tensor, "member head _ token"]:
        """What each head adds to its scores for the distance of two tokens; minus infinity where it may not look."""
        near = cast("Tensor", self.near) * _STRIDE
        places = torch.arange(tokens, device=near.device)
        apart = places - places[tokens - asking :, None] + near.shape[2] // 2
        added = near[:, :, apart]
        return added if mask is None else added.masked_fill(~mask, -torch.inf)

    def alone(self, x: Float[Tensor, "member item token dim"]) -> Float[Tensor, "member item token dim"]:
        """The tokens after the layer's two maps, each token by itself."""
        normed = nn.functional.layer_norm(x, x.shape[-1:]).reshape(len(x), -1, x.shape[-1])
        inside = self.up(normed)
        if self.gated:
            gate, inside = inside.chunk(2, dim=2)
            inside = nn.functional.gelu(gate) * inside
        else:
            inside = nn.functional.gelu(inside)
        return x + self.down(inside).reshape(x.shape)


def attend(
    query: Float[Tensor, "item asking head dim"],
    key: Float[Tensor, "item token head dim"],
    value: Float[Tensor, "item token head dim"],
    mask: Tensor | None = None,
) -> Float[Tensor, "item asking head dim"]:
    """Softmax attention, by whichever of three equal ways is fastest for these sizes.

    A handful of tokens costs least as sums of elementwise products; bfloat16 on a CPU, and learned numbers that are
    added, as plain matrix products; all else goes through torch's own (see docs/emergence.md for the timings).

    Args:
        query: of the tokens that read.
        key: of the tokens that are read.
        value: of the tokens that are read.
        mask: [asking, token], True where one may look at the other; or what is added to the scores, [member, head,
            asking, token], where items are those of the first member, then of the second, ...; None for everywhere.
    """
    factor = query.shape[-1] ** -0.5
    if mask is None and query.shape[1] * key.shape[1] <= _FEW:
        scores = (query[:, :, None] * key[:, None]).sum(-1) * factor  # [item asking token head]
        return (scores.softmax(2)[..., None] * value[:, None]).sum(2)
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    added = mask is not None and mask.dtype != torch.bool
    if added or (query.dtype == torch.bfloat16 and query.device.type == "cpu"):
        scores = query @ key.transpose(-1, -2) * factor
        if mask is not None:
            scores = (
                (scores.unflatten(0, (len(mask), -1)) + mask[:, None]).flatten(0, 1) if added
                else scores.masked_fill(~mask, -torch.inf)
            )  # fmt: skip
        return (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
