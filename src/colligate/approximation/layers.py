"""Layers with stacked parameters: what lies between the values of a scene and a linear output.

A layer turns values into features; the output on top of them is linear, so that it can be had in closed form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag


@runtime_checkable
class Layer(Protocol):
    """Features of scenes, for a stack of members."""

    @property
    def width(self) -> int:
        """How many features."""
        ...

    def start(self, columns: int, generator: torch.Generator) -> list[Tensor]:
        """Parameters of one member, for so many values (all slots together)."""
        ...

    def features(
        self, parameters: Sequence[Tensor], columns: Int[Tensor, "member row slot concept"]
    ) -> Float[Tensor, "member row unit"]:
        """Features of every member's scenes, of about unit length; -1 stands for an empty slot."""
        ...


def read_values(
    tables: Float[Tensor, "member column unit"], columns: Int[Tensor, "member row part"]
) -> Float[Tensor, "member row unit"]:
    """Sum of the rows that each scene reads, -1 reading nothing: a first layer without a matrix product.

    Example:
        >>> read_values(torch.eye(3)[None], torch.tensor([[[0, 2], [1, -1]]])).tolist()
        [[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]]
    """
    member = torch.arange(len(tables))[:, None, None] * tables.shape[1]
    places = (columns.clamp(min=0) + member).flatten(0, 1)
    filled = None if bool((columns >= 0).all()) else (columns >= 0).flatten(0, 1).to(tables.dtype)
    read = embedding_bag(places, tables.flatten(0, 1), mode="sum", per_sample_weights=filled)
    return read.unflatten(0, columns.shape[:2])


MOST_COLUMNS = 128
"""Up to so many values a matrix product with indicators is quicker, forward and back, than looking them up."""


def add_values(
    tables: Float[Tensor, "member column unit"],
    columns: Int[Tensor, "member row part"],
    bias: Float[Tensor, "member one unit"],
) -> Float[Tensor, "member row unit"]:
    """The same plus a bias, by whichever way is quicker.

    Example:
        >>> add_values(torch.eye(3)[None], torch.tensor([[[0, 2], [1, -1]]]), torch.ones(1, 1, 3)).tolist()
        [[[2.0, 1.0, 2.0], [1.0, 2.0, 1.0]]]
    """
    if tables.shape[1] > MOST_COLUMNS:
        return read_values(tables, columns) + bias
    shown = torch.zeros(*columns.shape[:2], tables.shape[1], dtype=tables.dtype)
    shown.scatter_add_(2, columns.clamp(min=0), (columns >= 0).to(tables.dtype))
    return torch.baddbmm(bias, shown, tables)


@dataclass(frozen=True)
class HiddenLayer:
    """Rectified units on a sum of tables.

        h(s) = relu( b + sum_k sum_c t[k, c, s[k, c]] ) / sqrt(width)

    The same functions as a hidden layer on concatenated learned embeddings of the values: t is their product.

    Example:
        >>> HiddenLayer(64).width
        64
    """

    width: int

    def start(self, columns: int, generator: torch.Generator) -> list[Tensor]:
        """Tables of unit size."""
        return [
            torch.randn(columns, self.width, generator=generator) * 0.7,
            0.1 * torch.randn(1, self.width, generator=generator),
        ]

    def features(
        self, parameters: Sequence[Tensor], columns: Int[Tensor, "member row slot concept"]
    ) -> Float[Tensor, "member row unit"]:
        """Look up and rectify."""
        tables, bias = parameters
        scale = self.width**-0.5  # a rectifier passes scale on: that of the tables costs less than that of the features
        return add_values(tables * scale, columns.flatten(2), bias * scale).relu()


@dataclass(frozen=True)
class ProductLayer:
    """Elementwise products of one vector per value.

    h(s) = sum_k prod_c v[k, c, s[k, c]] / sqrt(width)         within=True
    h(s) = prod_k prod_c v[k, c, s[k, c]] / sqrt(width)        within=False

    Example:
        >>> ProductLayer(64, within=True).width
        64
    """

    width: int
    within: bool

    def start(self, columns: int, generator: torch.Generator) -> list[Tensor]:
        """Factors of unit size."""
        return [torch.randn(columns, self.width, generator=generator)]

    def features(
        self, parameters: Sequence[Tensor], columns: Int[Tensor, "member row slot concept"]
    ) -> Float[Tensor, "member row unit"]:
        """Look up and multiply."""
        (factors,) = parameters
        filled = columns >= 0
        ragged = not bool(filled.all())
        total: Tensor | None = None
        for k in range(columns.shape[2]):
            product: Tensor | None = None
            for c in range(columns.shape[3]):
                read = read_values(factors, columns[:, :, k, c, None].clamp(min=0))
                if ragged:
                    read = torch.where(filled[:, :, k, c, None], read, 1.0)
                product = read if product is None else product * read
            assert product is not None
            if self.within:
                product = product * filled[:, :, k, :1] if ragged else product
                total = product if total is None else total + product
            else:
                total = product if total is None else total * product
        assert total is not None
        return total * self.width**-0.5
