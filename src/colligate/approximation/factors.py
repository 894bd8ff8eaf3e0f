"""The search for factors: batched L-BFGS over coordinates, starts and strengths of a small penalty.

Each coordinate is a small problem of its own, and the additive part is projected out of it, so that only the factors
are searched; coordinates x starts x strengths are the members of one stack. Products within an object need only sums
over objects: the cost of a step doesn't depend on how many scenes there are.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from colligate.approximation.approximators import Projection, additive_design, num_columns, value_columns
from colligate.binding import Positions
from colligate.fitting import Problem, minimise
from colligate.scenes.space import Scenes

PENALTIES = (1e-6, 1e-3)
"""Weights of the penalty on the factors' squares that are tried, the first as good as none."""
SOLVED, RULED = 3e-4, 1e-2
"""What a coordinate that follows the rule may leave, as a share; what most must leave at most for others to be tried
again, if they leave ten times as much."""
TOLERANCE = 1e-4
"""Of the search; see `fitting.minimise`."""


@dataclass(frozen=True)
class Search:
    """How hard factors are searched for."""

    starts: int = 3
    """Random starts of each coordinate."""
    screening: int = 12
    """L-BFGS steps that all of them take."""
    kept: int = 1
    """How many of each coordinate go on, under every penalty."""
    steps: int = 40
    """Most steps that those take; three times as many where they are searched again."""


class FactorStack:
    """Where the factors of a stack of members lie: real numbers, or pairs that make complex ones."""

    def __init__(self, columns: int, complex_numbers: bool) -> None:
        self.columns, self.complex = columns, complex_numbers

    @property
    def parameters(self) -> int:
        """Real numbers of one member."""
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


def times(factors: Tensor, columns: Int[Tensor, "unit part"], without: int | None = None) -> Tensor:
    """Product over parts of the factors that each unit reads, empty parts counting as one: [unit, member]."""
    total: Tensor | None = None
    for part, column in enumerate(columns.unbind(1)):
        if part == without:
            continue
        read = factors.index_select(0, column.clamp(min=0))
        if bool((column < 0).any()):
            read = torch.where(column[:, None] >= 0, read, torch.ones((), dtype=read.dtype))
        total = read if total is None else total * read
    if total is None:
        return torch.ones(len(columns), factors.shape[1], dtype=factors.dtype)
    return total


def add_gradient(factors: Tensor, columns: Int[Tensor, "unit part"], by_unit: Tensor, into: Tensor) -> None:
    """Add the gradient in the factors, given the gradient in the products."""
    for part, column in enumerate(columns.unbind(1)):
        through = by_unit * times(factors, columns, without=part).conj()
        filled = column >= 0
        into.index_add_(0, column[filled], through[filled])


class _ObjectProblem:
    """Products within each object, from group sums: f(h) = h' Q h - 2 h' S + 1 for each axis.

    h[u] is the product at unit u (an object in a slot); Q counts how often two units share a scene, S sums the
    vectors of a unit's scenes, both without their additive part and over the number of scenes; axes have unit variance.
    With Q = R' R and S = R' T that is |R h - T|^2 + 1 - |T|^2, which rounding can't make fall without end where few
    scenes leave Q next to nothing.
    """

    def __init__(self, root: Tensor, wanted: Tensor, columns: Tensor, factors: FactorStack, penalty: Tensor) -> None:
        self.root, self.wanted, self.columns = root, wanted, columns
        self.least = 1 - wanted.abs().square().sum(0)
        self.factors, self.penalty = factors, penalty
        self._last: tuple[Tensor, tuple[Tensor, Tensor]] | None = None

    def state(self, parameters: Tensor, members: Tensor) -> Tensor:
        del members
        return parameters

    def _left(self, state: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Factors, and R h - T; kept for the gradient after a value."""
        if self._last is not None and torch.equal(self._last[0], state):
            return self._last[1]
        factors = self.factors.read(state)
        found = (factors, self.root @ times(factors, self.columns) - self.wanted[:, members])
        self._last = (state, found)
        return found

    def value(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        _, left = self._left(state, members)
        return self.least[members] + left.abs().square().sum(0) + self.penalty[members] * state.square().sum(1)

    def gradient(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        factors, left = self._left(state, members)
        found = torch.zeros_like(factors)
        add_gradient(factors, self.columns, 2 * self.root.T @ left, found)
        return self.factors.write(found) + 2 * self.penalty[members, None] * state


Make = Callable[[Tensor, Tensor], Problem]
"""Coordinate of every member, its penalty -> the stacked problem."""


def search_factors(
    make: Make, factors: FactorStack, coordinates: int, generator: torch.Generator, search: Search
) -> Inexact[Tensor, "penalty column axis"]:
    """The best of several starts for each coordinate and penalty.

    Where most coordinates turn out to follow the rule, those that don't were caught in local minima and are searched
    again, from more starts.
    """
    every = torch.arange(coordinates)
    if not coordinates:
        return factors.read(torch.zeros(0, factors.parameters))[None].repeat(len(PENALTIES), 1, 1)
    found, values = _descend(make, factors, every, generator, search)
    for more in (4, 16):
        usual = values[0].median()
        caught = (values[0] > (10 * usual).clamp(min=SOLVED)).nonzero()[:, 0]
        if not len(caught) or usual > RULED:
            break
        harder = replace(search, starts=search.starts * more, screening=25, steps=3 * search.steps)
        again, lower = _descend(make, factors, every[caught], generator, harder)
        better = lower < values[:, caught]
        found[:, :, caught] = torch.where(better[:, None], again, found[:, :, caught])
        values[:, caught] = torch.where(better, lower, values[:, caught])
    return found


def _descend(
    make: Make, factors: FactorStack, which: Int[Tensor, " axis"], generator: torch.Generator, search: Search
) -> tuple[Inexact[Tensor, "penalty column axis"], Float[Tensor, "penalty axis"]]:
    """Search these coordinates once: factors, and what they leave."""
    axes, starts, kept, size = len(which), search.starts, search.kept, factors.parameters
    start = torch.randn(starts * axes, size, generator=generator) * (0.5 if factors.complex else 0.7)
    problem = make(which.repeat(starts), torch.full((starts * axes,), PENALTIES[0]))
    tried = minimise(problem, start, max_steps=search.screening, tolerance=TOLERANCE)
    order = tried.values.nan_to_num(torch.inf).reshape(starts, axes).argsort(0)[:kept, :, None]
    going = tried.parameters.unflatten(0, (starts, axes)).gather(0, order.expand(-1, -1, size)).flatten(0, 1)
    # The strongest penalty first; each weaker one goes on from what it found, and needs fewer steps.
    by_penalty = list[tuple[Tensor, Tensor]]()
    for i, penalty in enumerate(reversed(PENALTIES)):
        problem = make(which.repeat(kept), torch.full((kept * axes,), penalty))
        steps = search.steps if i == 0 else search.steps // 2
        precise = TOLERANCE if i + 1 == len(PENALTIES) else 10 * TOLERANCE
        best = minimise(problem, going, max_steps=steps, tolerance=precise)
        going, values = best.parameters, best.values.nan_to_num(torch.inf).reshape(kept, axes)
        first = values.argmin(0)
        found = factors.read(going).unflatten(1, (kept, axes))  # column, kept, axis
        by_penalty.append((found[:, first, torch.arange(axes)], values.amin(0)))
    by_penalty.reverse()
    return torch.stack([found for found, _ in by_penalty]), torch.stack([values for _, values in by_penalty])


def object_factors(
    scenes: Scenes, left: Tensor, spread: Tensor, positions: Positions, generator: torch.Generator, search: Search
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
    live, size = live_coordinates(left, spread)
    linear = sums[:, live] / (len(scenes) * size[live])
    columns = value_columns(space.scenes((used % space.num_objects)[:, None]), "shared")[:, 0]
    if positions == "own":
        columns = columns + (used // space.num_objects * sum(space.sizes))[:, None]
    factors = FactorStack(num_columns(scenes, positions), left.is_complex())

    narrow = torch.complex64 if left.is_complex() else torch.float32
    energies, vectors = torch.linalg.eigh(quadratic)
    good = energies > float(together.max()) / len(scenes) * len(energies) * 1e-12
    root = (vectors[:, good] * energies[good].sqrt()).T
    wanted = (vectors[:, good] / energies[good].sqrt()).T.to(linear.dtype) @ linear
    root, wanted = root.to(narrow), wanted.to(narrow)

    def make(which: Tensor, penalty: Tensor) -> _ObjectProblem:
        return _ObjectProblem(root, wanted[:, which], columns, factors, penalty)

    found = search_factors(make, factors, linear.shape[1], generator, search)
    return whole_factors(found, live, columns), size


def live_coordinates(left: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates in which more than rounding is left to fit, and the root mean square of each."""
    size = left.abs().square().mean(0).sqrt()
    return (size > 1e-5 * spread) & (size > 0), size


def whole_factors(found: Tensor, live: Tensor, columns: Tensor) -> Tensor:
    """Factors of all axes: zero where nothing was left to fit, and for values that were never shown."""
    whole = torch.zeros(*found.shape[:2], len(live), dtype=found.dtype)
    whole[..., live] = found
    unseen = torch.ones(whole.shape[1], dtype=torch.bool)
    unseen[columns.flatten()] = False
    whole[:, unseen] = 0
    return whole
