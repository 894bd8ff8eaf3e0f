"""Product families: additive plus elementwise products of one vector per value.

Products are taken coordinate by coordinate in the embedding's own coordinates, not in its principal axes, where the same
rule would be another. Each coordinate is a small problem of its own. The additive part is projected out, so that only the factors are searched, by
batched L-BFGS over coordinates, starts and strengths of a small penalty (coordinates x starts x strengths are the members of one
stack). Products within an object need only sums over objects: the cost of a step doesn't depend on how many scenes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.binding import Positions
from colligate.complexity.approximators import (
    ROWS_AT_ONCE,
    Additive,
    Approximator,
    Data,
    Fitted,
    Projection,
    Rule,
    additive_design,
    fit_sum,
    num_columns,
    training_r2,
    value_columns,
)
from colligate.fitting import Minimum, minimise
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

PENALTIES = (1e-6, 1e-3)
"""Weights of the penalty on the factors' squares that are tried, the first as good as none."""
STARTS = 3
NUMBERS_AT_ONCE = 20_000_000


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
            total = sum(_times(self.factors, own) * (own >= 0).any(1, keepdim=True) for own in columns.unbind(1))
        else:
            total = _times(self.factors, columns.flatten(1))
        return self.finish(cast("Tensor", total)).float()

    def __call__(self, scenes: Scenes) -> Float[Tensor, "scene axis"]:
        """Sum plus products."""
        return self.additive(scenes) + self.products(scenes)


class _Factors:
    """Where the factors of a stack of members lie: real numbers, or pairs that make complex ones."""

    def __init__(self, columns: int, complex_numbers: bool) -> None:
        self.columns, self.complex = columns, complex_numbers

    @property
    def parameters(self) -> int:
        return self.columns * (2 if self.complex else 1)

    def read(self, parameters: Float[Tensor, "member parameter"]) -> Tensor:
        """Factors [column, member]."""
        if not self.complex:
            return parameters.T.contiguous()
        return torch.view_as_complex(parameters.reshape(len(parameters), self.columns, 2)).T.contiguous()

    def write(self, factors: Tensor) -> Float[Tensor, "member parameter"]:
        """The inverse of `read`."""
        rows = factors.T.contiguous()
        return torch.view_as_real(rows).flatten(1) if self.complex else rows


def _times(factors: Tensor, columns: Int[Tensor, "unit part"], without: int | None = None) -> Tensor:
    """Product over parts of the factors that each unit reads, empty parts counting as one: [unit, member]."""
    total: Tensor | None = None
    for part, column in enumerate(columns.unbind(1)):
        if part == without:
            continue
        read = factors[column.clamp(min=0)]
        if bool((column < 0).any()):
            read = torch.where(column[:, None] >= 0, read, torch.ones((), dtype=read.dtype))
        total = read if total is None else total * read
    if total is None:
        return torch.ones(len(columns), factors.shape[1], dtype=factors.dtype)
    return total


def _back(factors: Tensor, columns: Int[Tensor, "unit part"], by_unit: Tensor, into: Tensor) -> None:
    """Add the gradient in the factors, given the gradient in the products."""
    for part, column in enumerate(columns.unbind(1)):
        through = by_unit * _times(factors, columns, without=part).conj()
        filled = column >= 0
        into.index_add_(0, column[filled], through[filled])


class _ObjectProblem:
    """Products within each object, from group sums: f(h) = h' Q h - 2 h' S + 1 for each axis.

    h[u] is the product at unit u (an object in a slot); Q counts how often two units share a scene, S sums the vectors of
    a unit's scenes, both after projecting the additive part out and over the number of scenes; axes have unit variance.
    """

    def __init__(self, quadratic: Tensor, linear: Tensor, columns: Tensor, factors: _Factors, penalty: Tensor) -> None:
        self.quadratic, self.linear, self.columns = quadratic, linear, columns
        self.factors, self.penalty = factors, penalty

    def state(self, parameters: Tensor, members: Tensor) -> Tensor:
        del members
        return parameters

    def _products(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        factors = self.factors.read(state)
        products = _times(factors, self.columns)
        return factors, products, self.quadratic @ products

    def value(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        _, products, pulled = self._products(state)
        fit = (products.conj() * (pulled - 2 * self.linear[:, members])).sum(0)
        return 1 + (fit.real if fit.is_complex() else fit) + self.penalty[members] * state.square().sum(1)

    def gradient(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        factors, _, pulled = self._products(state)
        found = torch.zeros_like(factors)
        _back(factors, self.columns, 2 * (pulled - self.linear[:, members]), found)
        return self.factors.write(found) + 2 * self.penalty[members, None] * state


class _SceneProblem:
    """One product over the whole scene, row by row: f = |M (x - P)|^2 / scenes, M projecting the additive part out.

    The product splits into that of the first slots and that of the last ones; each distinct half is multiplied once.
    """

    def __init__(self, scenes: Scenes, targets: Tensor, positions: Positions, penalty: Tensor) -> None:
        self.targets, self.penalty, self.rows = targets, penalty, len(scenes)
        self.factors = _Factors(num_columns(scenes, positions), complex_numbers=False)
        columns = value_columns(scenes, positions)
        middle = (scenes.slots + 1) // 2
        self.halves = [
            torch.unique(half.flatten(1), dim=0, return_inverse=True)
            for half in (columns[:, :middle], columns[:, middle:])
            if half.shape[1]
        ]
        self.counts = scenes.counts
        self.one_count = bool((self.counts == self.counts[0]).all())
        design = additive_design(scenes, positions)
        self.projection = Projection(design.T @ design, scenes.slots + 1)
        self.reads = [self._design(units) for units, _ in self.halves]

    def _design(self, units: Tensor) -> Tensor:
        design = torch.zeros(len(units), self.factors.columns)
        return design.scatter_add_(1, units.clamp(min=0), (units >= 0).float())

    def project(self, vectors: Float[Tensor, "scene member"]) -> Float[Tensor, "scene member"]:
        """What the additive part leaves of these."""
        sums = torch.zeros(len(self.projection.inverse) + len(self.projection.means), vectors.shape[1])
        for (units, of), reads in zip(self.halves, self.reads, strict=True):
            by_unit = torch.zeros(len(units), vectors.shape[1]).index_add_(0, of, vectors)
            sums[: self.factors.columns] += reads.T @ by_unit
        sums[self.factors.columns :].index_add_(0, self.counts, vectors)
        solved = self.projection.solve(sums)
        tables, intercepts = solved[: self.factors.columns], solved[self.factors.columns :]
        left = vectors
        for place, ((_, of), reads) in enumerate(zip(self.halves, self.reads, strict=True)):
            by_unit = reads @ tables
            if place == 0 and self.one_count:
                by_unit = by_unit + intercepts[self.counts[0]]
            left = left - by_unit[of]
        return left if self.one_count else left - intercepts[self.counts]

    def state(self, parameters: Tensor, members: Tensor) -> Tensor:
        del members
        return parameters

    def _left(self, state: Tensor, members: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        factors = self.factors.read(state)
        by_half = [_times(factors, units) for units, _ in self.halves]
        products = by_half[0][self.halves[0][1]]
        for half, (_, of) in zip(by_half[1:], self.halves[1:], strict=True):
            products = products * half[of]
        return factors, by_half, self.targets[:, members] - self.project(products)

    def value(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        _, _, left = self._left(state, members)
        return left.square().sum(0) / self.rows + self.penalty[members] * state.square().sum(1)

    def gradient(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        factors, by_half, left = self._left(state, members)
        by_row, found = -2 / self.rows * left, torch.zeros_like(factors)
        for place, (units, of) in enumerate(self.halves):
            through = by_row
            for other, (_, of_other) in enumerate(self.halves):
                if other != place:
                    through = through * by_half[other][of_other]
            by_unit = torch.zeros(len(units), factors.shape[1]).index_add_(0, of, through)
            _back(factors, units, by_unit, found)
        return self.factors.write(found) + 2 * self.penalty[members, None] * state


def group_of(split: Split) -> int:
    """Splits with the same number choose together: how many objects (or scenes) they fit on."""
    return len(split.fit) if split.objects is None else len(split.objects["fit"])


def generator_of(split: Split, seed: int) -> torch.Generator:
    """Draws that depend on the seed and on the fit part alone, not on what else is fitted beside it."""
    import zlib

    return torch.Generator().manual_seed(zlib.crc32(split.fit.numpy().tobytes(), seed))


def choose(data: Data, splits: Sequence[Split], candidates: Sequence[Sequence[Rule]]) -> list[int]:
    """The candidate with least error on the validation parts of each group of splits; the last if there are none."""
    errors: dict[int, Tensor] = {}
    for split, rules in zip(splits, candidates, strict=True):
        rows = split.validation
        found = torch.zeros(len(rules), dtype=torch.float64)
        if len(rows):
            targets = data.targets[rows]
            scale = (targets - data.targets[split.fit].mean(0)).square().sum().clamp(min=1e-30)
            for i, rule in enumerate(rules):
                found[i] = (targets - rule(data.scenes[rows])).square().sum() / scale
        errors[group_of(split)] = errors.get(group_of(split), 0) + found
    best = {group: len(of) - 1 if not of.any() else int(of.argmin()) for group, of in errors.items()}
    return [best[group_of(split)] for split in splits]


def _search(
    problem: _ObjectProblem | _SceneProblem, axes: int, generator: torch.Generator, steps: int
) -> Float[Tensor, "penalty column axis"]:
    """The best of several starts for each axis and penalty."""
    if not axes:
        return torch.zeros(len(PENALTIES), problem.factors.columns, 0, dtype=problem.penalty.dtype)
    members = len(PENALTIES) * STARTS * axes
    start = torch.randn(members, problem.factors.parameters, generator=generator, dtype=problem.penalty.dtype)
    start = start * (0.5 if problem.factors.complex else 0.7)
    best: Minimum = minimise(problem, start, max_steps=steps, tolerance=1e-5)
    values = best.values.reshape(len(PENALTIES), STARTS, axes)
    which = values.nan_to_num(torch.inf).argmin(1)
    factors = problem.factors.read(best.parameters)
    factors = factors.reshape(len(factors), len(PENALTIES), STARTS, axes).permute(1, 2, 0, 3)
    return torch.gather(factors, 1, which[:, None, None].expand(-1, 1, len(factors[0, 0]), -1))[:, 0]


def _member_penalties(axes: int, dtype: torch.dtype) -> Float[Tensor, " member"]:
    return torch.tensor(PENALTIES, dtype=dtype).repeat_interleave(STARTS * axes)


Factors = tuple[Tensor, Callable[[Tensor], Tensor]]
"""Factors of every penalty [penalty, column, axis], and what takes their products to the scale of the targets."""


def _object_factors(
    scenes: Scenes, left: Tensor, spread: float, positions: Positions, generator: torch.Generator, steps: int
) -> tuple[Tensor, Tensor]:
    """Factors of products within objects for what the additive part leaves, and the scale of each coordinate."""
    space, slots = scenes.space, scenes.slots
    places = torch.where(scenes.filled, scenes.objects + torch.arange(slots) * space.num_objects, -1)
    used, unit = places.unique(return_inverse=True)
    first = int(used[0] < 0)
    unit, used = unit - first, used[first:]
    design = additive_design(scenes, positions)
    projection = Projection(design.T @ design, slots + 1)
    sums = torch.zeros(len(used), left.shape[1], dtype=left.dtype)
    reads = torch.zeros(len(used), design.shape[1], dtype=torch.float64)
    together = torch.zeros(len(used) ** 2, dtype=torch.float64)
    for k in range(slots):
        filled = scenes.filled[:, k]
        sums.index_add_(0, unit[filled, k], left[filled])
        reads.index_add_(0, unit[filled, k], design[filled])
        for other in range(slots):
            both = filled & scenes.filled[:, other]
            together += torch.bincount(unit[both, k] * len(used) + unit[both, other], minlength=len(together))
    quadratic = (together.reshape(len(used), -1) - reads @ projection.solve(reads.T.contiguous())) / len(scenes)
    live, size = _live(left, spread)
    linear = sums[:, live] / (len(scenes) * size[live])
    columns = value_columns(space.scenes((used % space.num_objects)[:, None]), "shared")[:, 0]
    if positions == "own":
        columns = columns + (used // space.num_objects * sum(space.sizes))[:, None]
    axes = linear.shape[1]
    problem = _ObjectProblem(
        quadratic.to(linear.dtype), linear.repeat(1, len(PENALTIES) * STARTS), columns,
        _Factors(num_columns(scenes, positions), left.is_complex()), _member_penalties(axes, torch.float64),
    )  # fmt: skip
    return _whole(_search(problem, axes, generator, steps), live, columns), size


def _scene_factors(
    scenes: Scenes, left: Tensor, spread: float, positions: Positions, generator: torch.Generator, steps: int
) -> tuple[Tensor, Tensor]:
    """The same for one product over each whole scene."""
    live, size = _live(left, spread)
    scaled = (left[:, live] / size[live]).float()
    step = max(1, NUMBERS_AT_ONCE // (len(scenes) * len(PENALTIES) * STARTS))
    found = [torch.zeros(len(PENALTIES), num_columns(scenes, positions), 0)]
    for block in scaled.split(step, dim=1) if scaled.shape[1] else ():
        repeated = block.repeat(1, len(PENALTIES) * STARTS)
        penalty = _member_penalties(block.shape[1], torch.float32)
        found.append(_search(_SceneProblem(scenes, repeated, positions, penalty), block.shape[1], generator, steps))
    columns = value_columns(scenes, positions)
    return _whole(torch.cat(found, dim=2), live, columns[columns >= 0]), size


def _left_over(data: Data, split: Split, plain: Rule) -> tuple[Float[Tensor, "scene dim"], float]:
    """What the sum leaves of the fit part, in the embedding's own coordinates, and the coordinates' mean spread."""
    targets = data.targets[split.fit].double()
    left = (targets - plain(data.scenes[split.fit])) @ data.frame.axes.T
    return left, float(targets.square().sum() / left.numel()) ** 0.5


def _live(left: Tensor, spread: float) -> tuple[Tensor, Tensor]:
    """Coordinates in which more than rounding is left to fit, and the root mean square of each."""
    size = left.abs().square().mean(0).sqrt()
    return size > 1e-5 * spread, size


def _whole(found: Tensor, live: Tensor, columns: Tensor) -> Tensor:
    """Factors of all axes: zero where nothing was left to fit, and for values that were never shown."""
    whole = torch.zeros(*found.shape[:2], len(live), dtype=found.dtype)
    whole[..., live] = found
    unseen = torch.ones(whole.shape[1], dtype=torch.bool)
    unseen[columns.flatten()] = False
    whole[:, unseen] = 0
    return whole


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
            rules[pick], _jacobian_rank(data.scenes[split.fit], positions, within=within) == full,
            max(training_r2(data, rule, split.fit) for rule in rules), words[pick],
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
                through = _times(factors, own, without=part) * (column >= 0)[:, None]
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
    Differs: searched to convergence from several starts; the authors' code adds a linear map after the product, which is
    `networks.ProductHead(within=True)`, a superset.

    Args:
        positions: whether each slot has tables of its own.
        steps: most L-BFGS steps.

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
    steps: int = 300

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "object_product" if self.positions == "own" else f"object_product.{self.positions}"

    def contains(self, other: Approximator) -> bool:
        """The product may vanish, and tables of each slot may be equal."""
        return isinstance(other, Additive | ObjectProducts) and self.positions in ("own", other.positions)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Search the factors of each split."""

        def find(split: Split, plain: Rule) -> Factors:
            scenes = data.scenes[split.fit]
            left, spread = _left_over(data, split, plain)
            factors, size = _object_factors(scenes, left, spread, self.positions, generator_of(split, seed), self.steps)
            return factors, lambda products: (products * size) @ data.frame.axes

        return _fit(data, splits, find, self.positions, within=True)


@dataclass(frozen=True)
class GlobalProduct:
    """Additive plus one product over all slots and concepts: the printed formula.

        x(s) = additive(s) + prod_k prod_c v[k, c, s[k, c]]

    Paper: arXiv:2605.31503, Sec. 5 (Global product).
    Differs: as `ObjectProducts`; the authors' superset is `networks.ProductHead(within=False)`.

    Args:
        positions: whether each slot has tables of its own (one write-up of the paper), or all share one (the other).
        steps: most L-BFGS steps.

    Example:
        >>> GlobalProduct("shared").name
        'global_product.shared'
    """

    positions: Positions = "own"
    steps: int = 150

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "global_product" if self.positions == "own" else f"global_product.{self.positions}"

    def contains(self, other: Approximator) -> bool:
        """The product may vanish, and tables of each slot may be equal."""
        return isinstance(other, Additive | GlobalProduct) and self.positions in ("own", other.positions)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Search the factors of each split."""

        def find(split: Split, plain: Rule) -> Factors:
            scenes = data.scenes[split.fit]
            left, spread = _left_over(data, split, plain)
            factors, size = _scene_factors(scenes, left, spread, self.positions, generator_of(split, seed), self.steps)
            return factors, lambda products: (products * size) @ data.frame.axes

        return _fit(data, splits, find, self.positions, within=False)


@dataclass(frozen=True)
class CircularConvolution:
    """Additive plus, for each object, the circular convolution of one vector per value (holographic binding).

        x(s) = additive(s) + sum_k  v[k, 1, s[k, 1]] * ... * v[k, C, s[k, C]],    (a * b)[d] = sum_j a[j] b[d - j]

    The discrete Fourier transform turns convolutions into products of complex numbers, frequency by frequency, so this is
    `ObjectProducts` there. Convolution depends on the order of the coordinates: a rotated embedding is another problem.

    After Plate, "Holographic reduced representations", IEEE Trans. Neural Networks 6 (1995); not in the paper.

    Args:
        positions: whether each slot has vectors of its own (its role convolved in), or all share them.
        steps: most L-BFGS steps.

    Example:
        >>> CircularConvolution().name
        'convolution'
    """

    positions: Positions = "own"
    steps: int = 300

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "convolution" if self.positions == "own" else f"convolution.{self.positions}"

    def contains(self, other: Approximator) -> bool:
        """The convolution may vanish, and vectors of each slot may be equal."""
        return isinstance(other, Additive | CircularConvolution) and self.positions in ("own", other.positions)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Search the factors of each split, in the Fourier transform."""
        axes, dim = data.frame.axes, len(data.frame.axes)

        def find(split: Split, plain: Rule) -> Factors:
            left, spread = _left_over(data, split, plain)
            factors, size = _object_factors(
                data.scenes[split.fit], torch.fft.rfft(left, norm="ortho"), spread, self.positions,
                generator_of(split, seed), self.steps,
            )  # fmt: skip
            return factors, lambda products: torch.fft.irfft(products * size, n=dim, norm="ortho") @ axes

        return _fit(data, splits, find, self.positions, within=True)
