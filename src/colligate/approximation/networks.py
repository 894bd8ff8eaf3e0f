"""Families fitted by gradient steps: a hidden layer, products with a linear map, low-rank bilinear.

Each stands on top of the least-squares sum, so that none falls below it; how they are fitted stands in `stacks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from colligate.approximation.approximators import Additive, Approximator, Data, Fitted
from colligate.approximation.layers import HiddenLayer, ProductLayer
from colligate.approximation.stacks import Schedule, fit_layer
from colligate.binding import Positions
from colligate.scenes.splits import Split


@dataclass(frozen=True)
class MLP:
    """A hidden layer on top of the least-squares sum: the paper's measure of complexity is its width.

        x(s) = additive(s) + relu( b + sum_k sum_c t[k, c, s[k, c]] ) W

    Identification doesn't apply: a wide layer can fit anything, and what it says of unseen objects is its bias.

    Paper: arXiv:2605.31503, Sec. 5 (binding approximator).
    Differs: the paper's has no additive part and trains by Adam at a constant 1e-2, at which it doesn't fit its own
    training scenes; `paper.PaperMLP` does just that.

    Args:
        width: hidden units.
        schedule: how it is trained.

    Example:
        >>> MLP(256).name, MLP(256).contains(MLP(64)), MLP(256).contains(Additive())
        ('mlp256', True, True)
    """

    width: int
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return f"mlp{self.width}"

    def contains(self, other: Approximator) -> bool:
        """Units may idle."""
        return isinstance(other, Additive) or (isinstance(other, MLP) and other.width < self.width)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Train all splits together."""
        return fit_layer(HiddenLayer(self.width), data, splits, self.schedule, "own", seed)


@dataclass(frozen=True)
class ProductHead:
    """Sum plus a linear map of products: what the authors' code fits, a superset of the printed formulas.

        x(s) = additive(s) + ( sum_k prod_c v[k, c, s[k, c]] ) W        within=True
        x(s) = additive(s) + ( prod_k prod_c v[k, c, s[k, c]] ) W       within=False (the authors' default)

    With as many products as the embedding has coordinates it contains `products.ObjectProducts` or
    `products.GlobalProduct`, and on few objects it can fit anything.

    Paper: arXiv:2605.31503, Sec. 5; `approximate_complexity_scenes.py`, profiles mult_linear and sum_mult_linear.

    Args:
        within: whether each object has its own product.
        width: number of products.
        positions: whether each slot has tables of its own.
        schedule: how it is trained.

    Example:
        >>> ProductHead(within=False).name
        'global_product.head'
    """

    within: bool
    width: int = 384
    positions: Positions = "own"
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def name(self) -> str:
        """As in the `family` column."""
        shared = "" if self.positions == "own" else f".{self.positions}"
        return f"{'object' if self.within else 'global'}_product.head{shared}"

    def contains(self, other: Approximator) -> bool:
        """The products may vanish."""
        return isinstance(other, Additive) and self.positions in ("own", other.positions)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Train all splits together."""
        return fit_layer(ProductLayer(self.width, self.within), data, splits, self.schedule, self.positions, seed)


@dataclass(frozen=True)
class LowRankBilinear:
    """Low-rank bilinear pooling of the values of each object: `ProductHead(within=True)` with few products.

        x(s) = additive(s) + sum_k ( prod_c v[k, c, s[k, c]] ) W,    v of `rank` numbers

    After Kim et al., "Hadamard product for low-rank bilinear pooling" (ICLR 2017); not in the paper.

    Args:
        rank: number of products.
        schedule: how it is trained.

    Example:
        >>> LowRankBilinear(16).name
        'bilinear16'
    """

    rank: int = 16
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return f"bilinear{self.rank}"

    def contains(self, other: Approximator) -> bool:
        """Products may vanish."""
        return isinstance(other, Additive) or (isinstance(other, LowRankBilinear) and other.rank < self.rank)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Train all splits together."""
        return fit_layer(ProductLayer(self.rank, within=True), data, splits, self.schedule, "own", seed)
