"""Factors of one product over a whole scene, found scene by scene or, where they fill a grid, from both halves of each.

What the additive part takes of a product is projected out. Where the contents of the first slots meet those of the last
ones often enough to lay scenes out as a grid, that projection, and so the whole error, follows from vectors as long as
one side of the grid, but for the inner product with the targets.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.approximation.approximators import Projection, additive_design, num_columns, value_columns
from colligate.approximation.factors import (
    PENALTIES,
    FactorStack,
    Search,
    add_gradient,
    live_coordinates,
    search_factors,
    times,
    whole_factors,
)
from colligate.binding import Positions
from colligate.scenes.space import Scenes

NUMBERS_AT_ONCE = 20_000_000
"""Targets of all starts that are held at a time."""
EMPTY = 16
"""A grid may have so many times as many places as there are scenes: one pass over it replaces many over the scenes."""


class _Half:
    """One half of every scene's slots: its distinct contents, and how numbers go from them to scenes and back."""

    def __init__(self, columns: Int[Tensor, "scene part"], size: int) -> None:
        self.units, self.of = torch.unique(columns, dim=0, return_inverse=True)
        self.reads = torch.zeros(len(self.units), size)
        self.reads.scatter_add_(1, self.units.clamp(min=0), (self.units >= 0).float())

    def spread(self, by_unit: Float[Tensor, "unit member"]) -> Float[Tensor, "scene member"]:
        """To scenes."""
        return by_unit.index_select(0, self.of)

    def collect(self, by_scene: Float[Tensor, "scene member"]) -> Float[Tensor, "unit member"]:
        """Sum over the scenes of each unit."""
        return torch.zeros(len(self.units), by_scene.shape[-1]).index_add_(0, self.of, by_scene)


class _SceneProblem:
    """One product over the whole scene: f = |M (x - P)|^2 / scenes, M projecting the additive part out.

    Targets come without their additive part. The product splits into that of the first slots and that of the last ones;
    each distinct half is multiplied once.
    """

    def __init__(
        self, scenes: Scenes, targets: Tensor, positions: Positions, factors: FactorStack, penalty: Tensor
    ) -> None:
        self.penalty, self.factors, self.num, self.counts = penalty, factors, len(scenes), scenes.counts
        columns = value_columns(scenes, positions)
        middle = (scenes.slots + 1) // 2
        self.halves = [
            _Half(half.flatten(1), factors.columns)
            for half in (columns[:, :middle], columns[:, middle:]) if half.shape[1]
        ]  # fmt: skip
        design = additive_design(scenes, positions)
        self.projection = Projection(design.T @ design, scenes.slots + 1)
        self.targets = targets
        self._members = len(penalty)
        self._last: tuple[Tensor, tuple[Tensor, list[Tensor], Tensor]] | None = None

    def _leave(self, vectors: Float[Tensor, "scene member"]) -> Float[Tensor, "scene member"]:
        """What the additive part leaves of these, in place."""
        sums = torch.zeros(self.factors.columns + len(self.projection.means), vectors.shape[-1])
        for half in self.halves:
            sums[: self.factors.columns] += half.reads.T @ half.collect(vectors)
        sums[self.factors.columns :].index_add_(0, self.counts, vectors)
        solved = self.projection.solve(sums)
        tables, intercepts = solved[: self.factors.columns], solved[self.factors.columns :]
        for half in self.halves:
            vectors -= half.spread(half.reads @ tables)
        vectors -= intercepts.index_select(0, self.counts)
        return vectors

    def state(self, parameters: Tensor, members: Tensor) -> Tensor:
        del members
        return parameters

    def _left(self, state: Tensor, members: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """Factors, products of each half, and what is left of the targets; kept for the gradient after a value."""
        if self._last is not None and self._last[0].shape == state.shape and torch.equal(self._last[0], state):
            return self._last[1]
        factors = self.factors.read(state)
        by_half = [times(factors, half.units) for half in self.halves]
        products = self.halves[0].spread(by_half[0])
        products = products * self.halves[1].spread(by_half[1]) if len(self.halves) > 1 else products.clone()
        found = (factors, by_half, self._targets(members) - self._leave(products))
        self._last = (state, found)
        return found

    def _targets(self, members: Tensor) -> Tensor:
        if len(members) < self._members:  # some have left for good, or wait during a line search
            return self.targets.index_select(-1, members)
        return self.targets

    def value(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        _, _, left = self._left(state, members)
        squares = left.square().sum(0)
        return squares / self.num + self.penalty[members] * state.square().sum(1)

    def gradient(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        factors, by_half, left = self._left(state, members)
        found = torch.zeros_like(factors)
        for place, half in enumerate(self.halves):
            other = 1 - place
            through = left if len(self.halves) == 1 else left * self.halves[other].spread(by_half[other])
            add_gradient(factors, half.units, -2 / self.num * half.collect(through), found)
        return self.factors.write(found) + 2 * self.penalty[members, None] * state


class _GridProblem:
    """The same from a grid: how often each content of the first slots meets each of the last ones.

    With p and q the products of the halves, N[i, j] the number of scenes that hold both, X the sums of their targets,
    and a the sums of the products over the scenes of each column of the additive design, whose Gram matrix is G:

        |M (x - P)|^2 = |x|^2 - 2 p' X q + (p^2)' N q^2 - a' G^- a,    a = R_1' (p * N q) + R_2' (q * N' p)

    Only the first product needs the targets: one pass over them for a value, a second one for a gradient. The rest is
    small and taken in float64: a large product may be additive but for a trace, and the difference must not be noise.
    """

    def __init__(self, grid: "_Grid", targets: Tensor, energy: Tensor, factors: FactorStack, penalty: Tensor) -> None:
        self.grid, self.factors, self.penalty = grid, factors, penalty
        self.targets, self.energy = targets, energy
        self._read: tuple[Tensor, Tensor] = (torch.arange(len(targets)), self.targets)
        self._last: tuple[Tensor, tuple[Tensor, ...]] | None = None

    def state(self, parameters: Tensor, members: Tensor) -> Tensor:
        del members
        return parameters

    def _targets(self, members: Tensor) -> Float[Tensor, "member first second"]:
        if len(members) == len(self.targets):
            return self.targets
        if torch.equal(self._read[0], members):
            return self._read[1]
        found = self.targets[members]
        if 2 * len(members) > len(self._read[0]):  # not the few that a line search goes on with
            self._read = (members, found)
        return found

    def _parts(self, state: Tensor, members: Tensor) -> tuple[Tensor, ...]:
        """Factors, p, q, N q, N' p, sums by column and X q; kept for the gradient after a value."""
        if self._last is not None and torch.equal(self._last[0], state):
            return self._last[1]
        factors, reads = self.factors.read(state).double(), self.grid.reads
        first, second = (times(factors, half.units) for half in self.grid.halves)  # unit, member
        met, meets = self.grid.times @ second, self.grid.times.T @ first
        sums = reads[0].T @ (first * met) + reads[1].T @ (second * meets)
        pulled = torch.bmm(self._targets(members), second.T.float().unsqueeze(2))[:, :, 0].T
        found = (factors, first, second, met, meets, sums, pulled)
        self._last = (state, found)
        return found

    def value(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        _, first, second, met, _, sums, pulled = self._parts(state, members)
        own = (first.square() * (self.grid.times @ second.square())).sum(0)
        total = (first * met).sum(0)
        taken = (self.grid.root @ (sums - self.grid.means * total)).square().sum(0) + total.square() / self.grid.num
        fit = own - taken - 2 * (first * pulled).sum(0)
        return (self.energy[members] + fit / self.grid.num).float() + self.penalty[members] * state.square().sum(1)

    def gradient(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        factors, first, second, met, meets, sums, pulled = self._parts(state, members)
        pushed = torch.bmm(first.T.float().unsqueeze(1), self._targets(members))[:, 0].T
        total = (first * met).sum(0)
        tables = self.grid.root.T @ (self.grid.root @ (sums - self.grid.means * total))
        level = total / self.grid.num - (self.grid.means * tables).sum(0)
        (one, other), reads = self.grid.halves, self.grid.reads
        along, across = reads[0] @ tables, reads[1] @ tables
        through = first * (self.grid.times @ second.square()) - pulled
        through -= (along + level) * met + self.grid.times @ (second * across)
        found = torch.zeros_like(factors)
        add_gradient(factors, one.units, 2 / self.grid.num * through, found)
        through = second * (self.grid.times.T @ first.square()) - pushed
        through -= (across + level) * meets + self.grid.times.T @ (first * along)
        add_gradient(factors, other.units, 2 / self.grid.num * through, found)
        return self.factors.write(found).float() + 2 * self.penalty[members, None] * state


class _Grid:
    """Scenes of equally many objects, laid out by what the halves of their slots hold."""

    def __init__(self, scenes: Scenes, halves: list[_Half], projection: Projection) -> None:
        self.halves, self.num = halves, len(scenes)
        sides = [len(half.units) for half in halves]
        self.places = halves[0].of * sides[1] + halves[1].of
        self.times = torch.bincount(self.places, minlength=sides[0] * sides[1]).reshape(sides).double()
        self.reads = [half.reads.double() for half in halves]
        self.means = projection.means[int(scenes.counts[0])][:, None]
        self.root = projection.root

    @classmethod
    def of(cls, scenes: Scenes, positions: Positions, columns: int) -> "_Grid | None":
        """The grid of these scenes, where they fill enough of it."""
        if scenes.slots < 2 or len(scenes.counts.unique()) > 1:
            return None
        parts, middle = value_columns(scenes, positions), (scenes.slots + 1) // 2
        halves = [_Half(half.flatten(1), columns) for half in (parts[:, :middle], parts[:, middle:])]
        if len(halves[0].units) * len(halves[1].units) > EMPTY * len(scenes):
            return None
        design = additive_design(scenes, positions)
        return cls(scenes, halves, Projection(design.T @ design, scenes.slots + 1))

    def laid(self, targets: Float[Tensor, "scene axis"]) -> Float[Tensor, "axis first second"]:
        """Sums of the targets at every place."""
        places = torch.zeros(self.times.numel(), targets.shape[1]).index_add_(0, self.places, targets)
        return places.T.reshape(-1, *self.times.shape).contiguous()


def scene_factors(
    scenes: Scenes, left: Tensor, spread: Tensor, positions: Positions, generator: torch.Generator, search: Search
) -> tuple[Tensor, Tensor]:
    """Factors of one product over each whole scene for what the additive part leaves, and each coordinate's scale."""
    live, size = live_coordinates(left, spread)
    scaled = (left[:, live] / size[live]).float()
    factors = FactorStack(num_columns(scenes, positions), complex_numbers=False)
    found = [torch.zeros(len(PENALTIES), factors.columns, 0)]
    grid = _Grid.of(scenes, positions, factors.columns)
    places = len(scenes) if grid is None else grid.times.numel()
    for block in scaled.split(max(1, NUMBERS_AT_ONCE // (places * search.starts)), dim=1) if scaled.shape[1] else ():
        laid = None if grid is None else grid.laid(block)

        def make(
            which: Tensor, penalty: Tensor, block: Tensor = block, laid: Tensor | None = laid
        ) -> _SceneProblem | _GridProblem:
            if grid is None or laid is None:
                return _SceneProblem(scenes, block[:, which], positions, factors, penalty)
            energy = block[:, which].double().square().sum(0) / len(scenes)
            return _GridProblem(grid, laid[which], energy, factors, penalty)

        found.append(search_factors(make, factors, block.shape[1], generator, search))
    columns = value_columns(scenes, positions)
    return whole_factors(torch.cat(found, dim=2), live, columns[columns >= 0]), size
