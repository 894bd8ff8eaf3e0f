"""Binding functions: maps from concept indices to a vector, the paper's central object.

Random ones are the oracles (embedders whose answer is known), fitted ones the approximators, trained ones the product
encoders. All of them are plain modules: `values[scene, slot, concept] -> vectors[scene, dim]`. An empty slot adds
nothing (or, in a product over slots, multiplies by one).

A table holds one vector per value, for each slot or shared by all slots (`positions`).
"""

from collections.abc import Sequence
from math import prod
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from colligate.scenes.space import ConceptSpace

Positions = Literal["shared", "own"]
"""Whether all slots read one table, or each slot has its own."""


@runtime_checkable
class BindingFunction(Protocol):
    """Anything that turns the values of scenes into vectors."""

    def __call__(self, values: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """One vector for each scene."""
        ...


class ValueTables(nn.Module):
    """One vector for each value of each concept, and for each slot if `positions="own"`.

    Calling it gives the vectors that stand in each slot, concept by concept.

    Example:
        >>> tables = ValueTables(ConceptSpace(color=3, shape=2), slots=2, dim=4, positions="own")
        >>> tables(torch.tensor([[[2, 1], [-1, -1]]])).shape
        torch.Size([1, 2, 2, 4])
    """

    def __init__(self, space: ConceptSpace, slots: int, dim: int, positions: Positions) -> None:
        super().__init__()
        self.space, self.slots, self.positions = space, slots, positions
        rows = sum(space.sizes) * (slots if positions == "own" else 1)
        self.weight = nn.Parameter(torch.zeros(rows, dim))
        starts = [sum(space.sizes[:c]) for c in range(space.num_concepts)]
        offsets = torch.tensor([starts] * slots)
        if positions == "own":
            offsets = offsets + torch.arange(slots)[:, None] * sum(space.sizes)
        self.register_buffer("offsets", offsets, persistent=False)
        self.offsets: Tensor

    def forward(self, values: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene slot concept dim"]:
        """Look up every value; rows of empty slots are arbitrary (mask them)."""
        return self.weight[values.clamp(min=0) + self.offsets[: values.shape[1]]]


class Additive(nn.Module):
    """A sum of one vector for each value: no binding at all.

        x(s) = b + sum_k sum_c u[k, c, s[k, c]]

    Paper: arXiv:2605.31503, Sec. 5 (Additive).

    Example:
        >>> rule = Additive(ConceptSpace(color=3, shape=2), slots=2, dim=8)
        >>> rule(torch.tensor([[[0, 1], [2, 0]]])).shape
        torch.Size([1, 8])
    """

    def __init__(self, space: ConceptSpace, slots: int, dim: int, positions: Positions = "own") -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))
        self.sum = ValueTables(space, slots, dim, positions)

    def forward(self, values: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Sum over slots and concepts."""
        filled = (values >= 0).all(-1)[..., None, None]
        return self.bias + (self.sum(values) * filled).sum((1, 2))


class ObjectProducts(nn.Module):
    """Additive plus, for each object, the elementwise product of one vector per value.

        x(s) = additive(s) + sum_k prod_c v[k, c, s[k, c]]

    The smallest rule that binds: an object's vector is not the sum of its values' vectors.

    Paper: arXiv:2605.31503, Sec. 5 (Per-obj. products).

    Example:
        >>> rule = ObjectProducts(ConceptSpace(color=3, shape=2), slots=2, dim=8)
        >>> rule(torch.tensor([[[0, 1], [2, 0]]])).shape
        torch.Size([1, 8])
    """

    def __init__(self, space: ConceptSpace, slots: int, dim: int, positions: Positions = "own") -> None:
        super().__init__()
        self.additive = Additive(space, slots, dim, positions)
        self.product = ValueTables(space, slots, dim, positions)

    def forward(self, values: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Additive part plus a product within each object."""
        filled = (values >= 0).all(-1)[..., None]
        return self.additive(values) + (self.product(values).prod(2) * filled).sum(1)


class GlobalProduct(nn.Module):
    """Additive plus one elementwise product over all slots and concepts.

        x(s) = additive(s) + prod_k prod_c v[k, c, s[k, c]]

    Paper: arXiv:2605.31503, Sec. 5 (Global product).   Differs: the authors' code puts a linear map after the product.

    Example:
        >>> rule = GlobalProduct(ConceptSpace(color=3, shape=2), slots=2, dim=8)
        >>> rule(torch.tensor([[[0, 1], [2, 0]]])).shape
        torch.Size([1, 8])
    """

    def __init__(self, space: ConceptSpace, slots: int, dim: int, positions: Positions = "own") -> None:
        super().__init__()
        self.additive = Additive(space, slots, dim, positions)
        self.product = ValueTables(space, slots, dim, positions)

    def forward(self, values: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Additive part plus a product over everything in the scene."""
        filled = (values >= 0).all(-1)[..., None, None]
        factors = torch.where(filled, self.product(values), torch.ones((), dtype=self.product.weight.dtype))
        return self.additive(values) + factors.prod(2).prod(1)


class ObjectTable(nn.Module):
    """A sum of one free vector for each object: binding by rote.

        x(s) = b + sum_k w[k, object(s[k])]

    Level-I of the paper. Nothing learned about some objects says anything about the others.

    Example:
        >>> rule = ObjectTable(ConceptSpace(color=3, shape=2), slots=2, dim=8)
        >>> rule(torch.tensor([[[0, 1], [2, 0]]])).shape
        torch.Size([1, 8])
    """

    def __init__(self, space: ConceptSpace, slots: int, dim: int, positions: Positions = "own") -> None:
        super().__init__()
        self.space, self.positions = space, positions
        self.bias = nn.Parameter(torch.zeros(dim))
        self.weight = nn.Parameter(torch.zeros(slots if positions == "own" else 1, space.num_objects, dim))

    def forward(self, values: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Sum over slots."""
        objects = self.space.object_ids(values)
        slot = torch.arange(values.shape[1], device=values.device) if self.positions == "own" else 0
        return self.bias + (self.weight[slot, objects.clamp(min=0)] * (objects >= 0)[..., None]).sum(1)


class SceneTable(nn.Module):
    """A free vector for every scene: memorised, no structure at all.

        x(s) = t[s]

    Raises:
        ValueError: the table would hold more than 50 million numbers.

    Example:
        >>> rule = SceneTable(ConceptSpace(color=3, shape=2), slots=2, dim=8)
        >>> rule(torch.tensor([[[0, 1], [2, 0]]])).shape
        torch.Size([1, 8])
    """

    def __init__(self, space: ConceptSpace, slots: int, dim: int) -> None:
        super().__init__()
        self.space, self.shape = space, (space.num_objects + 1,) * slots
        if prod(self.shape) * dim > 50_000_000:
            raise ValueError(
                f"A table of every scene of {slots} of {space.num_objects} objects in {dim} dimensions is too large; "
                "use a smaller space."
            )
        self.weight = nn.Parameter(torch.zeros(prod(self.shape), dim))

    def forward(self, values: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Look the scene up."""
        if values.shape[1] > len(self.shape):
            raise ValueError(f"A table of scenes of {len(self.shape)} slots got scenes of {values.shape[1]}.")
        row = torch.zeros(len(values), dtype=torch.int64, device=values.device)
        digits = self.space.object_ids(values) + 1
        for k, base in enumerate(self.shape):
            row = row * base + (digits[:, k] if k < digits.shape[1] else 0)
        return self.weight[row]


def _fill(tables: Sequence[Tensor], seed: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for table in tables:
            table.copy_(scale * torch.randn(table.shape, generator=generator, dtype=torch.float64))


def no_binding(
    space: ConceptSpace, slots: int, dim: int, seed: int = 0, *, positions: Positions = "shared"
) -> Additive:
    """A random `Additive`: names every value, can't say which belong together.

    Example:
        >>> space = ConceptSpace(color=3, shape=2)
        >>> scenes = space.scenes([[0, 3]])
        >>> rule = no_binding(space, slots=2, dim=8)
        >>> bool((rule(scenes.values) - rule(scenes.swap(0).values)).abs().max() < 1e-12)
        True
    """
    rule = Additive(space, slots, dim, positions).double().requires_grad_(False)
    _fill([rule.sum.weight], seed)
    return rule


def object_product(
    space: ConceptSpace, slots: int, dim: int, seed: int = 0, *, positions: Positions = "shared"
) -> ObjectProducts:
    """A random `ObjectProducts` without additive part: binds by a rule that carries over to unseen objects.

    Example:
        >>> rule = object_product(ConceptSpace(color=3, shape=2), slots=2, dim=8)
        >>> rule(torch.tensor([[[0, 1], [2, 0]]])).shape
        torch.Size([1, 8])
    """
    rule = ObjectProducts(space, slots, dim, positions).double().requires_grad_(False)
    _fill([rule.product.weight], seed)
    return rule


def object_table(
    space: ConceptSpace, slots: int, dim: int, seed: int = 0, *, positions: Positions = "shared"
) -> ObjectTable:
    """A random `ObjectTable`: binds by rote.

    Example:
        >>> rule = object_table(ConceptSpace(color=3, shape=2), slots=2, dim=8)
        >>> rule(torch.tensor([[[0, 1], [2, 0]]])).shape
        torch.Size([1, 8])
    """
    rule = ObjectTable(space, slots, dim, positions).double().requires_grad_(False)
    _fill([rule.weight], seed)
    return rule


def scene_table(space: ConceptSpace, slots: int, dim: int, seed: int = 0) -> SceneTable:
    """A random `SceneTable`: memorised, nothing to find.

    Example:
        >>> rule = scene_table(ConceptSpace(color=3, shape=2), slots=2, dim=8)
        >>> rule(torch.tensor([[[0, 1], [2, 0]]])).shape
        torch.Size([1, 8])
    """
    rule = SceneTable(space, slots, dim).double().requires_grad_(False)
    _fill([rule.weight], seed)
    return rule
