"""Factors of one product over a whole scene, found from scenes or, where they form a grid, from both halves of each.

What the additive part takes of a product is projected out. On a grid of all pairs of objects that projection, and so
the whole error, follows from vectors as long as one side of the grid, but for the inner product with the targets.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.binding import Positions
from colligate.complexity.approximators import Projection, additive_design, num_columns, value_columns
from colligate.complexity.factors import (
    PENALTIES,
    FactorStack,
    Search,
    add_gradient,
    live_coordinates,
    search_factors,
    times,
    whole_factors,
)
from colligate.scenes.space import Scenes

NUMBERS_AT_ONCE = 20_000_000
"""Targets of all starts that are held at a time."""


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
    """The same where scenes are all pairs of the contents of two slots, each with tables of its own.

    With p and q the products within each slot, M = p q' and the projection P on sums of tables,

        |(I - P) (X - M)|^2 = |X|^2 - 2 p' X q + |p|^2 |q|^2 - |A p|^2 n q*^2 - m p*^2 |B q|^2 + m n p*^2 q*^2

    where A and B project on the sums of one slot, m and n are the sides, stars are means, and X is projected already.
    """

    def __init__(self, halves: list[_Half], grid: Tensor, which: Tensor, factors: FactorStack, penalty: Tensor) -> None:
        self.halves, self.factors, self.penalty = halves, factors, penalty
        self.sides = grid.shape[1:]
        self.num = self.sides[0] * self.sides[1]
        self.onto = [_onto_tables(half) for half in halves]
        self.targets, self.energy = grid[which], (grid.square().sum((1, 2)) / self.num)[which]
        self._read: tuple[Tensor, Tensor] = (torch.arange(len(which)), self.targets)
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
        """Factors, products of both slots, their projections, and the targets times the second; kept for a gradient."""
        if self._last is not None and torch.equal(self._last[0], state):
            return self._last[1]
        factors = self.factors.read(state)
        first, second = (times(factors, half.units) for half in self.halves)  # unit, member
        pulled = torch.bmm(self._targets(members), second.T.unsqueeze(2))[:, :, 0].T
        found = (factors, first, second, self.onto[0] @ first, self.onto[1] @ second, pulled)
        self._last = (state, found)
        return found

    def value(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        _, first, second, along, across, pulled = self._parts(state, members)
        m, n = self.sides
        level, other = first.mean(0).square(), second.mean(0).square()
        own = first.square().sum(0) * second.square().sum(0)
        taken = along.square().sum(0) * n * other + m * level * across.square().sum(0) - m * n * level * other
        fit = own - taken - 2 * (first * pulled).sum(0)
        return self.energy[members] + fit / self.num + self.penalty[members] * state.square().sum(1)

    def gradient(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        del parameters
        factors, first, second, along, across, pulled = self._parts(state, members)
        m, n = self.sides
        pushed = torch.bmm(first.T.unsqueeze(1), self._targets(members))[:, 0].T
        found = torch.zeros_like(factors)
        for half, own, other, mine, its, drawn, far in (
            (self.halves[0], first, second, along, across, pulled, n),
            (self.halves[1], second, first, across, along, pushed, m),
        ):
            level, across_level = own.mean(0), other.mean(0).square()
            through = own * other.square().sum(0) - mine * far * across_level - drawn
            through += level * (far * across_level - its.square().sum(0))
            add_gradient(factors, half.units, 2 / self.num * through, found)
        return self.factors.write(found) + 2 * self.penalty[members, None] * state


def _onto_tables(half: _Half) -> Float[Tensor, "unit unit"]:
    """Projection on sums of one vector per value and a constant."""
    reads = torch.cat([half.reads, torch.ones(len(half.reads), 1)], dim=1).double()
    basis, sizes, _ = torch.linalg.svd(reads, full_matrices=False)
    basis = basis[:, sizes > sizes[0] * 1e-10]
    return (basis @ basis.T).float()


def _grid(scenes: Scenes, positions: Positions, factors: FactorStack) -> tuple[list[_Half], Tensor] | None:
    """Both halves, and the scene at each place, where scenes are all pairs of what two slots hold, each once."""
    if scenes.slots != 2 or positions != "own" or not bool(scenes.filled.all()):
        return None
    columns = value_columns(scenes, positions)
    halves = [_Half(columns[:, k], factors.columns) for k in range(2)]
    places = halves[0].of * len(halves[1].units) + halves[1].of
    if len(scenes) != len(halves[0].units) * len(halves[1].units) or len(places.unique()) < len(scenes):
        return None
    return halves, places.argsort()


def scene_factors(
    scenes: Scenes, left: Tensor, spread: float, positions: Positions, generator: torch.Generator, search: Search
) -> tuple[Tensor, Tensor]:
    """Factors of one product over each whole scene for what the additive part leaves, and each coordinate's scale."""
    live, size = live_coordinates(left, spread)
    scaled = (left[:, live] / size[live]).float()
    factors = FactorStack(num_columns(scenes, positions), complex_numbers=False)
    found = [torch.zeros(len(PENALTIES), factors.columns, 0)]
    step = max(1, NUMBERS_AT_ONCE // (len(scenes) * search.starts))
    grid = _grid(scenes, positions, factors)
    for block in scaled.split(step, dim=1) if scaled.shape[1] else ():

        def make(which: Tensor, penalty: Tensor, block: Tensor = block) -> _SceneProblem | _GridProblem:
            if grid is None:
                return _SceneProblem(scenes, block[:, which], positions, factors, penalty)
            halves, order = grid
            laid = block[order].T.reshape(-1, len(halves[0].units), len(halves[1].units))
            return _GridProblem(halves, laid, which, factors, penalty)

        found.append(search_factors(make, factors, block.shape[1], generator, search))
    columns = value_columns(scenes, positions)
    return whole_factors(torch.cat(found, dim=2), live, columns[columns >= 0]), size
