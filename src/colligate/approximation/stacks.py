"""Fitting layers: the values' tables by gradient steps, the linear output in closed form.

All members (splits, and so coverages and seeds) of a family take their steps together as stacked tensors. A layer
stands on top of a least-squares sum, and is trained on what the sum leaves of the targets in the few axes that hold
most of it; the output is then solved for in all axes, together with the sum, under a penalty that validation chooses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.approximation.approximators import (
    ROWS_AT_ONCE,
    Data,
    Fitted,
    Projection,
    Rule,
    SumRule,
    additive_design,
    choose_by,
    fit_sum,
    generator_of,
    group_of,
    num_columns,
    taken,
    value_columns,
)
from colligate.approximation.layers import Layer
from colligate.binding import Positions
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

NUMBERS_AT_ONCE = 100_000_000
"""Targets and hidden units of one stack of members that are held at a time."""
STRENGTHS = (1e-2, 1e-3, 1e-4, 1e-7)
"""Penalties on the output that are tried, as shares of the features' energy; the last as good as none."""
WIDE = 512
"""Layers of more units take half the scenes in a step."""
NARROW = 1e-4
"""Penalties from this on are solved for in float32."""
PILOTS = 3
"""Members on which the rate is chosen."""


@dataclass(frozen=True)
class Schedule:
    """How tables are trained: Adam, rate falling to 0 along a half cosine after a short rise."""

    steps: int = 80
    """Steps."""
    rates: tuple[float, ...] = (0.04, 0.1)
    """Rates tried on splits of the middle coverage; the best on validation serves all."""
    longer: int = 5
    """How many times as many steps are tried there too, at the best rate."""
    worth: float = 0.2
    """Share of the error on validation that more steps must save to be taken."""
    batch: int = 256
    """Most scenes in a step; half as many for more than 512 units, of which each step moves enough."""
    axes: int = 32
    """In how many axes of what the sum leaves the tables are trained."""
    enough: float = 1e-3
    """A member stops when this share of what it is given to fit is left."""


@dataclass(frozen=True, eq=False)
class NetworkRule:
    """A sum, and a linear map of one member's features."""

    layer: Layer
    parameters: Sequence[Tensor]
    out: Float[Tensor, "unit axis"]
    additive: Rule
    positions: Positions

    def __call__(self, scenes: Scenes) -> Float[Tensor, "scene axis"]:
        """Sum plus features through the map, in blocks."""
        total = self.additive(scenes)
        columns = value_columns(scenes, self.positions)
        with torch.no_grad():
            for block in torch.arange(len(scenes)).split(ROWS_AT_ONCE):
                total[block] += self.layer.features(self.parameters, columns[block][None])[0] @ self.out
        return total


@dataclass(eq=False)
class _Member:
    """A split to train on."""

    split: Split
    additive: SumRule
    left: Float[Tensor, "fit axis"]
    """What the sum leaves in its leading axes, of unit size."""
    shuffler: torch.Generator
    gone: list[Tensor] | None = None
    """Parameters with which it left its stack."""


def _members(data: Data, splits: Sequence[Split], schedule: Schedule, positions: Positions, seed: int) -> list[_Member]:
    found = list[_Member]()
    for split in splits:
        additive, _ = fit_sum(data, split.fit, positions)
        left = data.targets[split.fit] - additive(data.scenes[split.fit])
        if data.metric is not None:  # large axes of noise would lead, and be all that the tables are trained on
            left = left * data.metric.shared.float()
        draws = generator_of(split, seed + 1)
        few = min(schedule.axes, *left.shape)
        probing = torch.randn(left.shape[1], few, generator=draws)
        leading = torch.linalg.qr(left.T @ (left @ (left.T @ (left @ probing))))[0]
        left = torch.nn.functional.pad(left @ leading, (0, min(schedule.axes, left.shape[1]) - few))
        found.append(_Member(split, additive, left / left.square().sum(1).mean().sqrt().clamp(min=1e-20), draws))
    return found


def _stacks(members: Sequence[_Member], batch: int, width: int) -> list[list[_Member]]:
    """Members with about as many rows to read in a step, few enough to be held together."""
    stacks = list[list[_Member]]()
    for member in sorted(members, key=lambda one: min(len(one.left), batch)):
        rows = min(len(member.left), batch)
        if stacks:
            held = (len(stacks[-1]) + 1) * rows * width
            if rows <= 1.5 * min(len(stacks[-1][0].left), batch) and held <= NUMBERS_AT_ONCE:
                stacks[-1].append(member)
                continue
        stacks.append([member])
    return stacks


class _Stack:
    """Members that step together."""

    def __init__(self, data: Data, layer: Layer, members: Sequence[_Member], positions: Positions, seed: int) -> None:
        self.layer, self.members = layer, list(members)
        columns = value_columns(data.scenes, positions)
        self.columns = [columns[m.split.fit] for m in members]
        size = num_columns(data.scenes, positions)
        started = [layer.start(size, generator_of(m.split, seed)) for m in members]
        out = torch.zeros(len(members), layer.width, members[0].left.shape[1])
        self.parameters = [torch.stack(same).requires_grad_() for same in zip(*started, strict=True)]
        self.parameters.append(out.requires_grad_())

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
        """Squared error of each member, what the sum leaves being one."""
        columns, targets, weights = batch
        *tables, out = self.parameters
        squares = (torch.bmm(self.layer.features(tables, columns), out) - targets).square().sum(2)
        return (squares * weights).sum(1)

    def of(self, member: int) -> list[Tensor]:
        """The layer's parameters of one member, as a stack of one."""
        return [of.detach()[member : member + 1].clone() for of in self.parameters[:-1]]

    def keep(self, staying: Tensor, optimiser: torch.optim.Adam) -> torch.optim.Adam:
        """Let members go; the others' moments stay."""
        for i in (~staying).nonzero()[:, 0].tolist():
            self.members[i].gone = self.of(i)
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
        return fresh


def _train(stack: _Stack, schedule: Schedule) -> None:
    """Train a stack at the first rate; every member ends with its parameters in `gone`."""
    rate = schedule.rates[0]
    optimiser = torch.optim.Adam(stack.parameters, lr=rate, fused=True)
    warm = max(1, schedule.steps // 20)
    for step in range(1, schedule.steps + 1):
        falling = 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / schedule.steps)))
        optimiser.param_groups[0]["lr"] = rate * min(1.0, step / warm) * float(falling)
        optimiser.zero_grad(set_to_none=True)
        losses = stack.loss(stack.batch(schedule.batch))
        losses.sum().backward()
        optimiser.step()
        if step % 10 == 0:
            staying = losses.detach() > schedule.enough
            if not bool(staying.any()):
                break
            if not bool(staying.all()):
                optimiser = stack.keep(staying, optimiser)
    for i, member in enumerate(stack.members):
        member.gone = stack.of(i)


class _Output:
    """The linear output on trained features, solved for together with the sum: one map for each penalty.

    With H the features, A the design of the sum and P the projection on it, W solves
    ((I - P) H)' ((I - P) H) W + penalty W = ((I - P) H)' Y, which is what both together minimise.
    """

    def __init__(self, layer: Layer, data: Data, member: _Member, positions: Positions) -> None:
        assert member.gone is not None
        self.layer, self.data, self.member = layer, data, member
        self.positions: Positions = positions
        self.columns = value_columns(data.scenes, positions)
        size, width = num_columns(data.scenes, positions) + data.scenes.slots + 1, layer.width
        designs = torch.zeros(size, size, dtype=torch.float64)
        mixed = torch.zeros(size, width, dtype=torch.float64)
        for design, features, _ in self._blocks(member.split.fit):
            designs += design.T @ design
            mixed += design.T @ features
        self.carried = Projection(designs, data.scenes.slots + 1).solve(mixed)  # column, unit
        self.spread = 0.0
        self.kept = torch.zeros(0, width)
        """Features of the fit part, where there are fewer scenes than units: maps are combinations of them."""
        self.solved, self.errors = self._solve(width)

    def _blocks(self, rows: Int[Tensor, " row"]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Design, features and what the sum leaves, block by block."""
        assert self.member.gone is not None
        for block in rows.split(ROWS_AT_ONCE):
            scenes = self.data.scenes[block]
            with torch.no_grad():
                features = self.layer.features(self.member.gone, self.columns[block][None])[0].double()
            left = (self.data.targets[block] - self.member.additive(scenes)).double()
            yield additive_design(scenes, self.positions), features, left

    def _solve(self, width: int) -> tuple[list[Tensor], list[float]]:
        """What gives each penalty's map, and the squared error that it leaves on the fit part.

        Penalties of some size are solved for in float32; the one that is as good as none isn't well conditioned.
        """
        rows, few = self.member.split.fit, len(self.member.split.fit) <= width
        gram = torch.zeros(width, width, dtype=torch.float64)
        sums = torch.zeros(width, self.data.targets.shape[1], dtype=torch.float64)
        for design, features, left in self._blocks(rows):
            own = (features - design @ self.carried).float()
            self.spread += float(left.square().sum())
            if few:
                self.kept, gram, sums = own, (own @ own.T).double(), left
            else:
                gram += own.T @ own
                sums += own.T @ left.float()
        found, errors = list[Tensor](), list[float]()
        energy, ones = max(float(gram.trace()), 1e-30), torch.eye(len(gram), dtype=torch.float64)
        for strength in STRENGTHS:
            kind = torch.float32 if strength >= NARROW else torch.float64
            penalised = (gram + strength * energy * ones).to(kind)
            solved = torch.cholesky_solve(sums.to(kind), torch.linalg.cholesky(penalised)).double()
            if few:
                errors.append(float((strength * energy * solved).square().sum()))
            else:
                taken = (solved * sums).sum() + strength * energy * solved.square().sum()
                errors.append(self.spread - float(taken))
            found.append(solved.float())
        return found, errors

    def on_validation(self) -> Float[Tensor, "candidate axis"]:
        """Squared errors of the sum alone, then under every penalty, axis by axis."""
        found = torch.zeros(1 + len(self.solved), self.data.targets.shape[1], dtype=torch.float64)
        for design, features, left in self._blocks(self.member.split.validation):
            own = (features - design @ self.carried).float()
            found[0] += left.square().sum(0)
            through = own @ self.kept.T if len(self.kept) else own
            for i, solved in enumerate(self.solved):
                found[1 + i] += (left - through @ solved).square().sum(0)
        return found

    def rule(self, picks: Int[Tensor, " axis"]) -> Rule:
        """The rule that takes of each axis the candidate picked for it, numbered as `on_validation` does."""
        if not picks.any():
            return self.member.additive
        assert self.member.gone is not None
        every = torch.stack([torch.zeros_like(self.solved[0]), *self.solved])
        solved = every[picks, :, torch.arange(len(picks))].T
        out = self.kept.T @ solved if len(self.kept) else solved
        coefficients = self.member.additive.coefficients - self.carried @ out.double()
        additive = SumRule(coefficients, self.positions)
        return NetworkRule(self.layer, self.member.gone, out, additive, self.positions)


def fit_layer(
    layer: Layer, data: Data, splits: Sequence[Split], schedule: Schedule, positions: Positions, seed: int
) -> list[Fitted]:
    """Train a layer on every split, stacked, and solve for its output.

    Args:
        layer: what is trained.
        data: scenes and targets.
        splits: one member each.
        schedule: how.
        positions: whether each slot has tables of its own.
        seed: of starts and batches.
    """
    if layer.width > WIDE:
        schedule = replace(schedule, batch=max(1, schedule.batch // 2))
    members = _members(data, splits, schedule, positions, seed)
    if len(schedule.rates) > 1:
        schedule = _tried(layer, data, members, schedule, positions, seed)
    for stacked in _stacks(members, schedule.batch, layer.width):
        _train(_Stack(data, layer, stacked, positions, seed), schedule)
    found: list[Fitted | None] = [None] * len(members)
    for group in dict.fromkeys(group_of(split) for split in splits):
        own = [i for i, split in enumerate(splits) if group_of(split) == group]
        outputs = [_Output(layer, data, members[i], positions) for i in own]
        picks = choose_by(data, [splits[i] for i in own], [output.on_validation() for output in outputs])
        for i, output, pick in zip(own, outputs, picks, strict=True):
            found[i] = _finished(data, splits[i], output, pick, schedule)
    return [one for one in found if one is not None]


def _tried(
    layer: Layer, data: Data, members: Sequence[_Member], schedule: Schedule, positions: Positions, seed: int
) -> Schedule:
    """The rate and the number of steps with the least error on validation (on the fit part, where there is none).

    More steps are taken only where they save much: rules that multiply values are learned late, others soon.
    """
    middle = sorted(members, key=lambda m: len(m.left))[len(members) // 2]
    pilots = [m for m in members if group_of(m.split) == group_of(middle.split)][:PILOTS]

    def best(steps: int, rates: Sequence[float]) -> tuple[float, Schedule]:
        found = list[tuple[float, Schedule]]()
        for rate in rates:
            tried = replace(schedule, steps=steps, rates=(rate,))
            fresh = [replace(m, shuffler=generator_of(m.split, seed + 2)) for m in pilots]
            for stacked in _stacks(fresh, tried.batch, layer.width):
                _train(_Stack(data, layer, stacked, positions, seed), tried)
            outputs = [_Output(layer, data, m, positions) for m in fresh]
            pooled = sum((output.on_validation()[1:] for output in outputs), start=torch.zeros(()))
            left = float(pooled.amin(0).sum()) if bool(pooled.any()) else sum(o.errors[-1] for o in outputs)
            found.append((left, tried))
        return min(found, key=lambda one: one[0])

    short = best(schedule.steps, schedule.rates)
    if schedule.longer <= 1:
        return short[1]
    long = best(schedule.longer * schedule.steps, short[1].rates)
    return long[1] if long[0] < (1 - schedule.worth) * short[0] else short[1]


def _finished(data: Data, split: Split, output: _Output, picks: Int[Tensor, " axis"], schedule: Schedule) -> Fitted:
    targets = data.targets[split.fit].double()
    total = float((targets - targets.mean(0)).square().sum())
    reached = 1 - min(output.errors[-1], output.spread) / total if total > 0 else None
    trained = f"{schedule.steps} steps at {schedule.rates[0]:g}"
    words = ("no hidden layer", *(f"{trained}, penalty {strength:g}" for strength in STRENGTHS))
    return Fitted(output.rule(picks), None, reached, taken(picks, data, words))
