"""Batched L-BFGS finds what scipy finds, member by member."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colligate.fitting import CurvatureMemory, Minimum, Problem, minimise


class Logistic:
    """Penalised softmax regression, a different set of targets and penalty for each member."""

    def __init__(self, members: int, seed: int, dtype: torch.dtype = torch.float64) -> None:
        generator = torch.Generator().manual_seed(seed)
        scales = torch.logspace(-1, 1, 5)  # badly scaled on purpose
        self.features = (torch.randn(30, 5, generator=generator) * scales).to(dtype)
        self.targets = torch.softmax(3 * torch.randn(members, 30, 3, generator=generator), 2).to(dtype)
        self.penalties = torch.logspace(-3, -1, members).to(dtype)

    def state(self, parameters: Tensor, members: Tensor) -> Tensor:
        return self.features @ parameters.unflatten(1, (5, 3))

    def value(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        loss = (state.logsumexp(2) - (self.targets[members] * state).sum(2)).mean(1)
        return loss + self.penalties[members] / 2 * parameters.square().sum(1)

    def gradient(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        by_state = (state.softmax(2) - self.targets[members]) / 30
        return (self.features.T @ by_state).flatten(1) + self.penalties[members, None] * parameters

    def only(self, member: int) -> "Logistic":
        alone = Logistic(1, 0, self.features.dtype)
        alone.features = self.features
        alone.targets, alone.penalties = self.targets[[member]], self.penalties[[member]]
        return alone


class Valley:
    """Rosenbrock's function around other places: not convex, so that line searches and skipped pairs matter."""

    def __init__(self, places: list[float]) -> None:
        self.places = torch.tensor(places, dtype=torch.float64)

    def state(self, parameters: Tensor, members: Tensor) -> Tensor:
        return parameters

    def value(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        x, y = state.unbind(1)
        return (self.places[members] - x).square() + 20 * (y - x.square()).square()

    def gradient(self, state: Tensor, parameters: Tensor, members: Tensor) -> Tensor:
        x, y = state.unbind(1)
        bend = y - x.square()
        return torch.stack([-2 * (self.places[members] - x) - 80 * x * bend, 40 * bend], dim=1)


def by_scipy(problem: Problem, start: Tensor, member: int) -> Any:
    index = torch.tensor([member])

    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.as_tensor(flat)[None]
        state = problem.state(parameters, index)
        value, gradient = problem.value(state, parameters, index), problem.gradient(state, parameters, index)
        return value.item(), gradient[0].numpy()

    return scipy.optimize.minimize(
        both, start[member].numpy(), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000}
    )


def tight(problem: Problem, start: Tensor) -> Minimum:
    return minimise(problem, start, max_steps=2000, tolerance=1e-10)


@settings(max_examples=3)
@given(seed=st.integers(0, 1000))
def test_every_member_reaches_the_minimum_that_scipy_finds(seed: int) -> None:
    problem, start = Logistic(4, seed), torch.zeros(4, 15, dtype=torch.float64)
    found = tight(problem, start)
    for member in range(4):
        reference = by_scipy(problem, start, member)
        assert found.values[member].item() == pytest.approx(reference.fun, rel=1e-9)
        # The flattest direction is held by the penalty, at least 1e-3: values equal to 1e-12 place it within 1e-4.
        np.testing.assert_allclose(found.parameters[member].numpy(), reference.x, atol=1e-4)


def test_curved_valleys_are_followed_to_their_end() -> None:
    problem = Valley([1.0, -0.5, 1.5])
    start = torch.tensor([[-1.2, 1.0], [2.0, -1.0], [0.0, 0.0]], dtype=torch.float64)
    found = tight(problem, start)
    for member in range(3):
        assert by_scipy(problem, start, member).fun < 1e-12
    torch.testing.assert_close(found.parameters[:, 0], problem.places, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.parameters[:, 1], problem.places.square(), atol=1e-5, rtol=0)
    assert found.converged.all()


def test_a_member_is_fitted_in_a_stack_as_if_alone() -> None:
    problem, start = Logistic(5, 3), torch.zeros(5, 15, dtype=torch.float64)
    # The stack only changes the order of additions. On this badly scaled problem (condition 1e4) a step multiplies
    # rounding by about ten at the worst: 1e-12 after ten steps, while all end in the same minimum.
    for steps, apart in ((10, 1e-12), (500, 1e-5)):
        together = minimise(problem, start, max_steps=steps)
        for member in range(5):
            alone = minimise(problem.only(member), start[[member]], max_steps=steps)
            torch.testing.assert_close(alone.parameters[0], together.parameters[member], rtol=0, atol=apart)
            torch.testing.assert_close(alone.values[0], together.values[member], rtol=1e-10, atol=0)
    assert together.steps.unique().numel() > 1  # members do leave at different times


def test_the_value_given_is_that_of_the_parameters_given() -> None:
    problem, start = Logistic(3, 0), torch.zeros(3, 15, dtype=torch.float64)
    members = torch.arange(3)
    for steps in (0, 1, 7, 40, 500):
        found = minimise(problem, start, max_steps=steps)
        expected = problem.value(problem.state(found.parameters, members), found.parameters, members)
        torch.testing.assert_close(found.values, expected, rtol=1e-9, atol=0)
        assert (found.steps <= steps).all()


def test_more_steps_never_end_higher() -> None:
    problem, start = Logistic(3, 1), torch.zeros(3, 15, dtype=torch.float64)
    values = torch.stack([minimise(problem, start, max_steps=n, tolerance=0.0).values for n in range(1, 20)])
    assert (values.diff(dim=0) <= 0).all()


def test_a_caller_can_stop_members_one_by_one() -> None:
    problem, start = Logistic(3, 2), torch.zeros(3, 15, dtype=torch.float64)
    wanted = torch.tensor([2, 4, 3])
    found = minimise(problem, start, tolerance=0.0, stop=lambda step, members, parameters: step >= wanted[members])
    assert found.steps.tolist() == wanted.tolist()
    for member, steps in enumerate(wanted.tolist()):
        alone = minimise(problem.only(member), start[[member]], max_steps=steps, tolerance=0.0)
        torch.testing.assert_close(alone.parameters[0], found.parameters[member])


def test_a_member_that_starts_at_its_minimum_stays_there() -> None:
    problem = Valley([1.0, 1.0])
    start = torch.tensor([[1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    found = tight(problem, start)
    assert torch.equal(found.parameters[0], start[0])
    assert found.steps[0] == 1
    assert found.converged.all()


def test_single_precision_ends_within_its_rounding() -> None:
    exact = tight(Logistic(2, 5), torch.zeros(2, 15, dtype=torch.float64))
    coarse = minimise(Logistic(2, 5, torch.float32), torch.zeros(2, 15), tolerance=1e-5)
    torch.testing.assert_close(coarse.values.double(), exact.values, rtol=1e-5, atol=0)


def test_the_direction_without_memory_is_steepest_descent_and_with_exact_pairs_newton() -> None:
    hessian = torch.diag(torch.tensor([1.0, 10.0], dtype=torch.float64))
    gradient = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    memory = CurvatureMemory(5)
    assert torch.equal(memory.direction(gradient), -gradient)
    for step in torch.eye(2, dtype=torch.float64):
        memory.add(step[None], (hessian @ step)[None])
    torch.testing.assert_close(memory.direction(gradient), -torch.linalg.solve(hessian, gradient[0])[None])
    uphill = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    before = memory.direction(gradient)
    memory.add(uphill, -uphill)  # negative curvature teaches nothing but the lack of a scale
    torch.testing.assert_close(memory.direction(gradient), before)
