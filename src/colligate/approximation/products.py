"""Product families: additive plus elementwise products of one vector per value.

Products are taken coordinate by coordinate in the embedding's own coordinates, not in its principal axes, where the
same rule would be another. How their factors are found stands in `factors`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from colligate.approximation.approximators import (
    ROWS_AT_ONCE,
    Additive,
    Approximator,
    ByAxis,
    Data,
    Fitted,
    Rule,
    additive_design,
    choose,
    fit_sum,
    generator_of,
    num_columns,
    taken,
    training_r2,
    value_columns,
)
from colligate.approximation.factors import PENALTIES, Search, object_factors, times
from colligate.approximation.scene_factors import scene_factors
from colligate.binding import Positions
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split


@dataclass(frozen=True, eq=False)
class ProductRule:
    """A fitted sum of tables plus products of factors, within each object or over the whole scene.

    Attributes:
        additive: the sum.
        factors: one row for each value (and slot).
        positions: whether each slot has factors of its own.
        within: whether each object has its own product.
        finish: takes the products to the axes of the sum.
    """

    additive: Rule
    factors: Tensor
    positions: Positions
    within: bool
    finish: Callable[[Tensor], Tensor]

    def products(self, scenes: Scenes) -> Float[Tensor, "scene axis"]:
        """The products alone; a value that was never shown makes its product zero."""
        columns = value_columns(scenes, self.positions)
        if self.within:
            total = sum(times(self.factors, own) * (own >= 0).any(1, keepdim=True) for own in columns.unbind(1))
        else:
            total = times(self.factors, columns.flatten(1))
        return self.finish(cast("Tensor", total)).float()

    def __call__(self, scenes: Scenes) -> Float[Tensor, "scene axis"]:
        """Sum plus products."""
        return self.additive(scenes) + self.products(scenes)


Factors = tuple[Tensor, Callable[[Tensor], Tensor]]
"""Factors of every penalty [penalty, column, axis], and what takes their products to the scale of the targets."""


def _left_over(data: Data, split: Split, plain: Rule) -> tuple[Float[Tensor, "scene dim"], Float[Tensor, " dim"]]:
    """What the sum leaves of the fit part, in the embedding's own coordinates, and each coordinate's spread."""
    targets = data.targets[split.fit].double()
    left = (targets - plain(data.scenes[split.fit])) @ data.frame.axes.T
    return left, (targets @ data.frame.axes.T).square().mean(0).sqrt()


def _fit(
    data: Data, splits: Sequence[Split], find: Callable[[Split, Rule], Factors], positions: Positions, *, within: bool
) -> list[Fitted]:
    """Fit factors on each split, refit the sum beside them, and let validation choose the penalty, or no product."""
    full = _jacobian_rank(data.scenes, positions, within=within)
    found = list[list[Rule]]()
    for split in splits:
        plain, _ = fit_sum(data, split.fit, positions)
        factors, finish = find(split, plain)
        fitted = data.scenes[split.fit]
        rules: list[Rule] = [plain]
        for of_penalty in reversed(factors.unbind(0)):
            rule = ProductRule(plain, of_penalty, positions, within, finish)
            left = Data(fitted, data.targets[split.fit] - rule.products(fitted), data.frame)
            rules.append(replace(rule, additive=fit_sum(left, torch.arange(len(fitted)), positions)[0]))
        found.append(rules)
    chosen = choose(data, splits, found)
    words = ["no product", *(f"penalty {p:g}" for p in reversed(PENALTIES))]
    return [
        Fitted(
            ByAxis(rules, pick), _jacobian_rank(data.scenes[split.fit], positions, within=within) == full,
            max(training_r2(data, rule, split.fit) for rule in rules), taken(pick, data, words),
        )
        for split, rules, pick in zip(splits, found, chosen, strict=True)
    ]  # fmt: skip


def _jacobian_rank(scenes: Scenes, positions: Positions, *, within: bool) -> int:
    """Rank of the predictions' derivative in sum and factors, at factors drawn at random (so, almost everywhere)."""
    columns = value_columns(scenes, positions)
    size = num_columns(scenes, positions)
    factors = 0.5 + torch.rand(size, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = torch.zeros(2 * size + scenes.slots + 1, 2 * size + scenes.slots + 1, dtype=torch.float64)
    for rows in torch.arange(len(scenes)).split(ROWS_AT_ONCE):
        derivative = torch.zeros(len(rows), size, dtype=torch.float64)
        for own in columns[rows].unbind(1) if within else (columns[rows].flatten(1),):
            for part, column in enumerate(own.unbind(1)):
                through = times(factors, own, without=part) * (column >= 0)[:, None]
                derivative.scatter_add_(1, column.clamp(min=0)[:, None], through)
        whole = torch.cat([derivative, additive_design(scenes[rows], positions)], dim=1)
        gram += whole.T @ whole
    energies = torch.linalg.eigvalsh(gram)
    return int((energies > energies[-1] * len(energies) * 1e-13).sum())


@dataclass(frozen=True)
class ObjectProducts:
    """Additive plus a product within each object: the printed formula.

        x(s) = additive(s) + sum_k prod_c v[k, c, s[k, c]]

    Paper: arXiv:2605.31503, Sec. 5 (Per-obj. products).
    Differs: searched to convergence from several starts; the authors' code adds a linear map after the product, a
    superset: `networks.ProductHead(within=True)`.

    Args:
        positions: whether each slot has tables of its own.
        search: how hard the factors are searched for.

    Example:
        >>> from colligate.binding import object_product
        >>> from colligate.embeddings import Embeddings
        >>> from colligate.scenes.space import ConceptSpace
        >>> from colligate.scenes.splits import ByObject
        >>> scenes = ConceptSpace(color=5, shape=5).all_scenes(slots=2)
        >>> data = Data.of(Embeddings(object_product(scenes.space, 2, 6)(scenes.values), scenes))
        >>> split = ByObject(coverage=0.8).split(scenes, seed=0)
        >>> fitted = ObjectProducts().fit(data, [split], seed=0)[0]
        >>> fitted.identified, training_r2(data, fitted.rule, split.test) > 0.99
        (True, True)
    """

    positions: Positions = "own"
    search: Search = field(default_factory=Search)

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "object_product" if self.positions == "own" else f"object_product.{self.positions}"

    def contains(self, other: Approximator) -> bool:
        """The product may vanish, and tables of each slot may be equal."""
        return isinstance(other, Additive | ObjectProducts) and self.positions in ("own", other.positions)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Search the factors of each split."""
        axes = data.frame.axes.float()

        def find(split: Split, plain: Rule) -> Factors:
            left, spread = _left_over(data, split, plain)
            draws = generator_of(split, seed)
            factors, size = object_factors(data.scenes[split.fit], left, spread, self.positions, draws, self.search)
            return factors, lambda products: (products * size).float() @ axes

        return _fit(data, splits, find, self.positions, within=True)


@dataclass(frozen=True)
class GlobalProduct:
    """Additive plus one product over all slots and concepts: the printed formula.

        x(s) = additive(s) + prod_k prod_c v[k, c, s[k, c]]

    Paper: arXiv:2605.31503, Sec. 5 (Global product).
    Differs: as `ObjectProducts`; the authors' superset is `networks.ProductHead(within=False)`.

    Args:
        positions: whether each slot has tables of its own (one write-up of the paper), or all share one (the other).
        search: how hard the factors are searched for.

    Example:
        >>> GlobalProduct("shared").name
        'global_product.shared'
    """

    positions: Positions = "own"
    search: Search = field(default_factory=lambda: Search(starts=2, screening=8, kept=1, steps=25))

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "global_product" if self.positions == "own" else f"global_product.{self.positions}"

    def contains(self, other: Approximator) -> bool:
        """The product may vanish, and tables of each slot may be equal."""
        return isinstance(other, Additive | GlobalProduct) and self.positions in ("own", other.positions)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Search the factors of each split."""
        axes = data.frame.axes.float()

        def find(split: Split, plain: Rule) -> Factors:
            left, spread = _left_over(data, split, plain)
            draws = generator_of(split, seed)
            factors, size = scene_factors(data.scenes[split.fit], left, spread, self.positions, draws, self.search)
            return factors, lambda products: (products * size).float() @ axes

        return _fit(data, splits, find, self.positions, within=False)


@dataclass(frozen=True)
class CircularConvolution:
    """Additive plus, for each object, the circular convolution of one vector per value (holographic binding).

        x(s) = additive(s) + sum_k  v[k, 1, s[k, 1]] * ... * v[k, C, s[k, C]],    (a * b)[d] = sum_j a[j] b[d - j]

    The discrete Fourier transform turns convolutions into products of complex numbers, frequency by frequency, so this
    is `ObjectProducts` there. Convolution depends on the order of the coordinates: a rotated embedding is another
    problem.

    After Plate, "Holographic reduced representations", IEEE Trans. Neural Networks 6 (1995); not in the paper.

    Args:
        positions: whether each slot has vectors of its own (its role convolved in), or all share them.
        search: how hard the factors are searched for.

    Example:
        >>> CircularConvolution().name
        'convolution'
    """

    positions: Positions = "own"
    search: Search = field(default_factory=Search)

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "convolution" if self.positions == "own" else f"convolution.{self.positions}"

    def contains(self, other: Approximator) -> bool:
        """The convolution may vanish, and vectors of each slot may be equal."""
        return isinstance(other, Additive | CircularConvolution) and self.positions in ("own", other.positions)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Search the factors of each split, in the Fourier transform."""
        axes, dim = data.frame.axes.float(), len(data.frame.axes)

        def find(split: Split, plain: Rule) -> Factors:
            left, by_axis = _left_over(data, split, plain)
            spread = by_axis.square().mean().sqrt()
            factors, size = object_factors(
                data.scenes[split.fit], torch.fft.rfft(left, norm="ortho"), spread, self.positions,
                generator_of(split, seed), self.search,
            )  # fmt: skip
            return factors, lambda products: torch.fft.irfft(products * size, n=dim, norm="ortho").float() @ axes

        return _fit(data, splits, find, self.positions, within=True)
