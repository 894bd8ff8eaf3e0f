"""Fitting many small models at once: members are stacked along the first axis of every tensor.

`minimise` is batched L-BFGS. Every member keeps its own curvature pairs, step length and stopping, so that a member is
fitted as if it were alone; members that have converged leave the batch.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@runtime_checkable
class Problem(Protocol):
    """A stack of smooth functions to minimise, written so that a line search costs nothing.

    The function of each member is `value(state)` with a state that may be any tensor linear in the parameters (logits,
    say): along a search direction the state moves on a straight line, so trial steps need no pass over the data.
    """

    def state(
        self, parameters: Float[Tensor, "member parameter"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member ..."]:
        """A linear function of the parameters of the given members."""
        ...

    def value(
        self,
        state: Float[Tensor, "member ..."],
        parameters: Float[Tensor, "member parameter"],
        members: Int[Tensor, " member"],
    ) -> Float[Tensor, " member"]:
        """What is minimised."""
        ...

    def gradient(
        self,
        state: Float[Tensor, "member ..."],
        parameters: Float[Tensor, "member parameter"],
        members: Int[Tensor, " member"],
    ) -> Float[Tensor, "member parameter"]:
        """Its gradient in the parameters."""
        ...


class Minimum(NamedTuple):
    """Parameters and value at the end, the number of steps each member took, and whether it met the tolerance."""

    parameters: Float[Tensor, "member parameter"]
    values: Float[Tensor, " member"]
    steps: Int[Tensor, " member"]
    converged: Bool[Tensor, " member"]


class CurvatureMemory:
    """The last few steps and gradient changes of every member, and the quasi-Newton direction that they give."""

    def __init__(self, history: int) -> None:
        self.history = history
        self.steps: list[Tensor] = []
        self.changes: list[Tensor] = []
        self.scales: list[Tensor] = []

    def add(self, step: Float[Tensor, "member parameter"], change: Float[Tensor, "member parameter"]) -> None:
        """Remember one pair; a member whose curvature isn't positive keeps none from it."""
        curvature = (step * change).sum(1)
        good = curvature > 1e-10 * step.norm(dim=1) * change.norm(dim=1)
        self.steps.append(step)
        self.changes.append(change)
        self.scales.append(torch.where(good, 1 / curvature.clamp(min=1e-38), 0.0))
        if len(self.steps) > self.history:
            del self.steps[0], self.changes[0], self.scales[0]

    def keep(self, members: Bool[Tensor, " member"]) -> None:
        """Forget the members that have left the batch."""
        for pairs in (self.steps, self.changes, self.scales):
            pairs[:] = [pair[members] for pair in pairs]

    def direction(self, gradient: Float[Tensor, "member parameter"]) -> Float[Tensor, "member parameter"]:
        """Minus the inverse Hessian times the gradient, by the two-loop recursion."""
        q = gradient.clone()
        weights: list[Tensor] = []
        for step, change, scale in zip(
            reversed(self.steps), reversed(self.changes), reversed(self.scales), strict=True
        ):
            weight = scale * (step * q).sum(1)
            q -= weight[:, None] * change
            weights.append(weight)
        if self.steps:
            size = (self.steps[-1] * self.changes[-1]).sum(1) / self.changes[-1].square().sum(1).clamp(min=1e-38)
            q *= torch.where(self.scales[-1] > 0, size, 1.0)[:, None]
        for step, change, scale, weight in zip(self.steps, self.changes, self.scales, reversed(weights), strict=True):
            q += (weight - scale * (change * q).sum(1))[:, None] * step
        return -q


def minimise(
    problem: Problem,
    start: Float[Tensor, "member parameter"],
    *,
    max_steps: int = 500,
    tolerance: float = 1e-5,
    history: int = 12,
    stop: Callable[[int, Tensor, Tensor], Bool[Tensor, " member"]] | None = None,
) -> Minimum:
    """Minimise every member of a stack of smooth functions by L-BFGS.

    Args:
        problem: the functions.
        start: where each member starts.
        max_steps: most steps of any member.
        tolerance: a member has converged when its gradient's norm is below this times max(1, its parameters' norm), or
            when ten steps together lower its value by less than `tolerance / 100` of it.
        history: curvature pairs kept.
        stop: called after each step with (step, members, their parameters); members for which it is true stop there.

    Example:
        >>> class Bowl:
        ...     centre = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
        ...     def state(self, parameters, members):
        ...         return parameters
        ...     def value(self, state, parameters, members):
        ...         return (state - self.centre[members]).square().sum(1)
        ...     def gradient(self, state, parameters, members):
        ...         return 2 * (state - self.centre[members])
        >>> minimise(Bowl(), torch.zeros(2, 2, dtype=torch.float64)).parameters.round(decimals=4).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    final = start.clone()
    members = torch.arange(len(start), device=start.device)
    values_out = torch.zeros(len(start), dtype=start.dtype, device=start.device)
    steps_out = torch.zeros(len(start), dtype=torch.int64, device=start.device)
    converged_out = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    memory, x = CurvatureMemory(history), start.clone()
    state = problem.state(x, members)
    value, gradient = problem.value(state, x, members), problem.gradient(state, x, members)
    values_out[members] = value
    before = [value.clone()]
    for step in range(1, max_steps + 1):
        direction = memory.direction(gradient)
        slope = (direction * gradient).sum(1)
        uphill = slope >= 0
        direction = torch.where(uphill[:, None], -gradient, direction)
        slope = torch.where(uphill, -gradient.square().sum(1), slope)
        if step == 1:
            size = 1 / gradient.norm(dim=1).clamp(min=1.0)
            direction, slope = direction * size[:, None], slope * size
        moved = problem.state(direction, members)
        length, new_value = _search(problem, (state, moved), (x, direction), members, value, slope)
        x_new = x + length[:, None] * direction
        state = state + length.reshape(-1, *[1] * (state.ndim - 1)) * moved
        if step % 25 == 0:
            state = problem.state(x_new, members)
        new_gradient = problem.gradient(state, x_new, members)
        memory.add(x_new - x, new_gradient - gradient)
        x, value, gradient = x_new, new_value, new_gradient
        before.append(value.clone())
        flat = gradient.norm(dim=1) <= tolerance * x.norm(dim=1).clamp(min=1)
        if len(before) > 10:
            flat |= (before.pop(0) - value) <= tolerance / 100 * value.abs()
        done = flat | (length == 0)
        leaving = done if stop is None else done | stop(step, members, x)
        final[members], values_out[members], steps_out[members] = x, value, step
        converged_out[members] = done
        if bool(leaving.any()):
            stay = ~leaving
            members, x, value, gradient, state = members[stay], x[stay], value[stay], gradient[stay], state[stay]
            memory.keep(stay)
            before = [old[stay] for old in before]
            if not len(members):
                break
    return Minimum(final, values_out, steps_out, converged_out)


def _search(
    problem: Problem,
    states: tuple[Tensor, Tensor],
    points: tuple[Tensor, Tensor],
    members: Tensor,
    value: Tensor,
    slope: Tensor,
) -> tuple[Tensor, Tensor]:
    """Longest of 1, 1/2, 1/4, ... that lowers each member's value enough; 0 where none does.

    A member for which the next step promises less than rounding can tell has none.
    """
    rounding = torch.finfo(value.dtype).eps * value.abs()
    length = torch.ones_like(value)
    found, waiting = torch.zeros_like(value), torch.ones_like(value, dtype=torch.bool)
    found_value = value.clone()
    for _ in range(20):
        rows = waiting.nonzero()[:, 0]
        along = length[rows]
        state = states[0][rows] + along.reshape(-1, *[1] * (states[0].ndim - 1)) * states[1][rows]
        trial = problem.value(state, points[0][rows] + along[:, None] * points[1][rows], members[rows])
        good = trial <= value[rows] + 1e-4 * along * slope[rows]
        found[rows] = torch.where(good, along, found[rows])
        found_value[rows] = torch.where(good, trial, found_value[rows])
        waiting[rows] = ~good & (along / 2 * slope[rows].abs() > rounding[rows])
        length[rows] = along / 2
        if not bool(waiting.any()):
            break
    return found, found_value
