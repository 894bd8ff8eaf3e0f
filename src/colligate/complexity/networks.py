"""Families fitted by gradient steps: a hidden layer, products with a linear map, low-rank bilinear.

All members (splits, and so coverages and seeds) of a family train together as stacked tensors, on what the
least-squares sum leaves of their targets and starting from nothing, so that no member falls below the sum. Validation
objects choose the rate and the step, pooled over the splits of one coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from colligate.binding import Positions
from colligate.complexity.approximators import (
    ROWS_AT_ONCE,
    Additive,
    Approximator,
    Data,
    Fitted,
    Rule,
    fit_sum,
    generator_of,
    group_of,
    num_columns,
    value_columns,
)
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

NUMBERS_AT_ONCE = 150_000_000
"""Targets and hidden units of one stack of members that are held at a time."""


@dataclass(frozen=True)
class Schedule:
    """How members are trained: Adam, rate falling to 0 along a half cosine after a short rise."""

    steps: int = 120
    """Steps."""
    rates: tuple[float, ...] = (0.015, 0.03, 0.06)
    """Rates tried on the splits of the middle coverage; the best on validation serves all."""
    batch: int = 512
    """Most scenes in a step."""
    every: int = 10
    """Steps between two looks at the validation part."""
    enough: float = 1e-3
    """A member stops when this share of what it is given to fit is left."""


@runtime_checkable
class Network(Protocol):
    """A rule with stacked parameters; it starts out predicting zero."""

    def start(self, columns: int, axes: int, generator: torch.Generator) -> list[Tensor]:
        """Parameters of one member, for so many values (all slots together) and axes."""
        ...

    def forward(
        self, parameters: Sequence[Tensor], columns: Int[Tensor, "member row slot concept"]
    ) -> Float[Tensor, "member row axis"]:
        """Predictions of every member; -1 stands for an empty slot."""
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


@dataclass(frozen=True)
class HiddenLayer:
    """One hidden layer of rectified units on a sum of tables.

        x(s) = relu( b + sum_k sum_c t[k, c, s[k, c]] ) W / sqrt(width)

    The same functions as a hidden layer on concatenated learned embeddings of the values: t is their product.
    """

    width: int

    def start(self, columns: int, axes: int, generator: torch.Generator) -> list[Tensor]:
        """Tables of unit size, no output."""
        return [
            torch.randn(columns, self.width, generator=generator) * 0.7,
            0.1 * torch.randn(1, self.width, generator=generator),
            torch.zeros(self.width, axes),
        ]

    def forward(
        self, parameters: Sequence[Tensor], columns: Int[Tensor, "member row slot concept"]
    ) -> Float[Tensor, "member row axis"]:
        """Look up, rectify, map."""
        tables, bias, out = parameters
        hidden = (read_values(tables, columns.flatten(2)) + bias).relu()
        return torch.bmm(hidden, out) * self.width**-0.5


@dataclass(frozen=True)
class ProductLayer:
    """Elementwise products of one vector per value, then a linear map.

    x(s) = ( sum_k prod_c v[k, c, s[k, c]] ) W / sqrt(width)         within=True
    x(s) = ( prod_k prod_c v[k, c, s[k, c]] ) W / sqrt(width)        within=False
    """

    width: int
    within: bool

    def start(self, columns: int, axes: int, generator: torch.Generator) -> list[Tensor]:
        """Factors of unit size, no output."""
        return [torch.randn(columns, self.width, generator=generator), torch.zeros(self.width, axes)]

    def forward(
        self, parameters: Sequence[Tensor], columns: Int[Tensor, "member row slot concept"]
    ) -> Float[Tensor, "member row axis"]:
        """Look up, multiply, map."""
        factors, out = parameters
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
        return torch.bmm(total, out) * self.width**-0.5


@dataclass(frozen=True, eq=False)
class NetworkRule:
    """One trained member on top of its sum."""

    network: Network
    parameters: Sequence[Tensor]
    additive: Rule
    scale: float
    positions: Positions

    def __call__(self, scenes: Scenes) -> Float[Tensor, "scene axis"]:
        """Sum plus network, in blocks."""
        total = self.additive(scenes)
        columns = value_columns(scenes, self.positions)
        with torch.no_grad():
            for block in torch.arange(len(scenes)).split(ROWS_AT_ONCE):
                total[block] += self.scale * self.network.forward(self.parameters, columns[block][None])[0]
        return total


@dataclass(eq=False)
class _Member:
    """A split to train on: its rows, what the sum leaves of them, and what has been found so far."""

    split: Split
    additive: Rule
    left: Float[Tensor, "fit axis"]
    unseen: Float[Tensor, "validation axis"]
    scale: float
    shuffler: torch.Generator
    best: list[Tensor] | None = None
    best_step: int = 0
    error: float = 1.0
    gone: list[Tensor] | None = None
    """Parameters with which it left its stack."""
    share_left: float = 1.0
    """Least share of `left` that any step left, on the fit part."""


def _members(data: Data, splits: Sequence[Split], positions: Positions, seed: int) -> list[_Member]:
    found = list[_Member]()
    for split in splits:
        additive, _ = fit_sum(data, split.fit, positions)
        left = data.targets[split.fit] - additive(data.scenes[split.fit])
        unseen = data.targets[split.validation] - additive(data.scenes[split.validation])
        spread = float(data.targets[split.fit].square().mean().sqrt())
        scale = max(float(left.square().mean().sqrt()), 1e-5 * spread)
        found.append(_Member(split, additive, left / scale, unseen / scale, scale, generator_of(split, seed + 1)))
    return found


def _stacks(members: Sequence[_Member], batch: int, width: int) -> list[list[_Member]]:
    """Members with about as many rows to read in a step, few enough to be held together."""
    stacks = list[list[_Member]]()
    for member in sorted(members, key=lambda one: min(len(one.left), batch)):
        rows = min(len(member.left), batch)
        if stacks:
            held = (len(stacks[-1]) + 1) * (member.left.numel() + rows * width)
            if rows <= 1.5 * min(len(stacks[-1][0].left), batch) and held <= NUMBERS_AT_ONCE:
                stacks[-1].append(member)
                continue
        stacks.append([member])
    return stacks


class _Stack:
    """Members that step together."""

    def __init__(
        self, data: Data, network: Network, members: Sequence[_Member], positions: Positions, seed: int
    ) -> None:
        self.network, self.members = network, list(members)
        columns = value_columns(data.scenes, positions)
        self.columns = [columns[m.split.fit] for m in members]
        self.checked = [columns[m.split.validation] for m in members]
        sizes = (num_columns(data.scenes, positions), data.targets.shape[1])
        started = [network.start(*sizes, generator_of(m.split, seed)) for m in members]
        self.parameters = [torch.stack(same).requires_grad_() for same in zip(*started, strict=True)]

    def batch(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Columns, targets and weights of the next step: all rows of a small member, random ones of a large one."""
        longest = min(size, max(len(m.left) for m in self.members))
        columns, targets, weights = [], [], []
        for member, own in zip(self.members, self.columns, strict=True):
            if len(own) > longest:
                rows = torch.randint(len(own), (longest,), generator=member.shuffler)
            else:
                rows = torch.arange(longest).clamp(max=len(own) - 1)
            columns.append(own[rows])
            targets.append(member.left[rows])
            weights.append((torch.arange(longest) < len(own)).float() / min(len(own), longest))
        return torch.stack(columns), torch.stack(targets), torch.stack(weights)

    def loss(self, batch: tuple[Tensor, Tensor, Tensor]) -> Float[Tensor, " member"]:
        """Mean squared error of each member, what the sum leaves being one."""
        columns, targets, weights = batch
        squares = (self.network.forward(self.parameters, columns) - targets).square().mean(2)
        return (squares * weights).sum(1)

    def share_left(self, rows: int) -> list[float]:
        """The same, on up to so many rows of each fit part."""
        with torch.no_grad():
            return [
                float((self.network.forward(self.of(i), own[None, :rows])[0] - m.left[:rows]).square().mean())
                for i, (m, own) in enumerate(zip(self.members, self.columns, strict=True))
            ]

    def of(self, member: int) -> list[Tensor]:
        """Parameters of one member, as a stack of one."""
        return [of.detach()[member : member + 1] for of in self.parameters]

    def errors(self) -> list[float]:
        """Error on each validation part, relative to that of the sum alone."""
        with torch.no_grad():
            return [
                float((self.network.forward(self.of(i), own[None])[0] - m.unseen).square().sum())
                / max(float(m.unseen.square().sum()), 1e-12)
                if len(own) else float("nan")
                for i, (m, own) in enumerate(zip(self.members, self.checked, strict=True))
            ]  # fmt: skip

    def keep(self, staying: Tensor, optimiser: torch.optim.Adam) -> torch.optim.Adam:
        """Let members go; the others' moments stay."""
        group = optimiser.param_groups[0]
        states = [optimiser.state[of] for of in self.parameters]
        self.parameters = [of.detach()[staying].requires_grad_() for of in self.parameters]
        fresh = torch.optim.Adam(self.parameters, lr=group["lr"], fused=True)
        for of, state in zip(self.parameters, states, strict=True):
            fresh.state[of] = {
                "step": state["step"], "exp_avg": state["exp_avg"][staying].contiguous(),
                "exp_avg_sq": state["exp_avg_sq"][staying].contiguous(),
            }  # fmt: skip
        places = staying.nonzero()[:, 0].tolist()
        self.members = [self.members[i] for i in places]
        self.columns = [self.columns[i] for i in places]
        self.checked = [self.checked[i] for i in places]
        return fresh


def _train(stack: _Stack, schedule: Schedule, rate: float) -> float:
    """Train a stack at one rate; members keep their best step. Returns the mean of the groups' least errors."""
    optimiser = torch.optim.Adam(stack.parameters, lr=rate, fused=True)
    best = {group_of(member.split): 1.0 for member in stack.members}
    warm = max(1, schedule.steps // 20)
    everyone = list(stack.members)
    for step in range(1, schedule.steps + 1):
        falling = 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / schedule.steps)))
        optimiser.param_groups[0]["lr"] = rate * min(1.0, step / warm) * float(falling)
        optimiser.zero_grad(set_to_none=True)
        losses = stack.loss(stack.batch(schedule.batch))
        losses.sum().backward()
        optimiser.step()
        if step % schedule.every and step < schedule.steps:
            continue
        _look(stack, everyone, best, step)
        done = torch.tensor(stack.share_left(2048))
        for member, share in zip(stack.members, done.tolist(), strict=True):
            member.share_left = min(member.share_left, share)
        staying = done > schedule.enough
        for i in (~staying).nonzero()[:, 0].tolist():
            stack.members[i].gone = [of.clone() for of in stack.of(i)]
        if not bool(staying.all()):
            if not bool(staying.any()):
                break
            optimiser = stack.keep(staying, optimiser)
    return sum(best.values()) / len(best)


def _look(stack: _Stack, everyone: Sequence[_Member], best: dict[int, float], step: int) -> None:
    """Keep this step for the groups whose error on validation, pooled over splits, is the least so far.

    Members that have left count with what they left at; where there is no validation part, the last step is kept.
    """
    for member, error in zip(stack.members, stack.errors(), strict=True):
        member.error = error
    for group in best:
        own = [member for member in everyone if group_of(member.split) == group]
        pooled = sum(member.error for member in own) / len(own)
        if pooled >= best[group]:
            continue
        best[group] = pooled if pooled == pooled else best[group]
        for member in own:
            if member.gone is None:
                member.best = [of.clone() for of in stack.of(stack.members.index(member))]
            else:
                member.best = member.gone
            member.best_step = step


def fit_networks(
    network: Network, data: Data, splits: Sequence[Split], schedule: Schedule, positions: Positions, seed: int
) -> list[Fitted]:
    """Train a network on every split, stacked, and give back each split's best step on validation.

    Args:
        network: the rule.
        data: scenes and targets.
        splits: one member each.
        schedule: how.
        positions: whether each slot has tables of its own.
        seed: of starts and batches.
    """
    width = getattr(network, "width", 0)
    members = _members(data, splits, positions, seed)
    rate = schedule.rates[0]
    if len(schedule.rates) > 1:
        middle = sorted(members, key=lambda m: len(m.left))[len(members) // 2]
        pilots = [m for m in members if group_of(m.split) == group_of(middle.split)][:3]
        errors = list[tuple[float, float]]()
        for tried in schedule.rates:
            fresh = [replace(m, shuffler=generator_of(m.split, seed + 1)) for m in pilots]
            error = sum(
                _train(_Stack(data, network, s, positions, seed), schedule, tried)
                for s in _stacks(fresh, schedule.batch, width)
            )
            left = sum(m.share_left for m in fresh) / len(fresh)
            errors.append((error, left))
        least = min(error for error, _ in errors)
        # Among rates that do about as well on validation, the one that fits best.
        rate = min(
            (left, tried) for (error, left), tried in zip(errors, schedule.rates, strict=True) if error <= least + 0.02
        )[1]
    for stacked in _stacks(members, schedule.batch, width):
        _train(_Stack(data, network, stacked, positions, seed), schedule, rate)
    return [_finished(network, data, member, positions, rate) for member in members]


def _finished(network: Network, data: Data, member: _Member, positions: Positions, rate: float) -> Fitted:
    targets = data.targets[member.split.fit].double()
    spread = float((targets - targets.mean(0)).square().sum())
    given = float((member.left.double() * member.scale).square().sum())
    rule = member.additive
    if member.best is not None:
        rule = NetworkRule(network, member.best, member.additive, member.scale, positions)
    reached = 1 - given * min(member.share_left, 1.0) / spread if spread > 0 else None
    return Fitted(rule, None, reached, f"rate {rate:g}, step {member.best_step}")


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
    schedule: Schedule = Schedule()

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return f"mlp{self.width}"

    def contains(self, other: Approximator) -> bool:
        """Units may idle."""
        return isinstance(other, Additive) or (isinstance(other, MLP) and other.width < self.width)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Train all splits together."""
        return fit_networks(HiddenLayer(self.width), data, splits, self.schedule, "own", seed)


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
    schedule: Schedule = Schedule()

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
        return fit_networks(ProductLayer(self.width, self.within), data, splits, self.schedule, self.positions, seed)


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
    schedule: Schedule = Schedule()

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return f"bilinear{self.rank}"

    def contains(self, other: Approximator) -> bool:
        """Products may vanish."""
        return isinstance(other, Additive) or (isinstance(other, LowRankBilinear) and other.rank < self.rank)

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Train all splits together."""
        return fit_networks(ProductLayer(self.rank, within=True), data, splits, self.schedule, "own", seed)
