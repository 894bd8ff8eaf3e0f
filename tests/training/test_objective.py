"""The loss and its gradient against plain loops, and blocks against the whole."""

import math
from typing import Any

import pytest
import torch

from colligate.training.objective import Objective
from colligate.training.queries import Targets, repeats

KINDS = ("scene-to-query", "query-to-scene", "both", "sigmoid")


def batch(members=2, scenes=7, queries=5, dim=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(members, scenes, dim, generator=g, dtype=torch.float64).requires_grad_()
    y = torch.randn(members, queries, dim, generator=g, dtype=torch.float64).requires_grad_()
    columns = torch.randint(-1, queries - 1, (members, scenes, 2), generator=g)  # the last query is in no scene
    columns[:, 0] = -1  # a scene without positives
    columns[:, 1] = 2  # the same positive twice
    ids = torch.arange(queries).expand(members, -1)
    targets = Targets(ids, None, columns.clamp(min=0), repeats(columns).double())
    scale = torch.full((members, 1, 1), 3.0, dtype=torch.float64).requires_grad_()
    bias = torch.full((members, 1, 1), -0.5, dtype=torch.float64).requires_grad_()
    return x, y, columns, targets, scale, bias


def plainly(kind, x, y, columns, scale, bias, valid=None) -> Any:
    """The loss of one member, by loops."""
    scenes, queries = range(len(x)), [q for q in range(len(y)) if valid is None or valid[q]]
    z = {(s, q): scale * (x[s] @ y[q]) + (bias if kind == "sigmoid" else 0) for s in scenes for q in queries}
    true = {s: {c for c in columns[s].tolist() if c >= 0} for s in scenes}
    if kind == "sigmoid":
        pairs = [torch.log1p(torch.exp(-z[s, q] if q in true[s] else z[s, q])) for s in scenes for q in queries]
        return sum(pairs) / len(x)
    total = torch.zeros((), dtype=torch.float64)
    if kind in {"scene-to-query", "both"}:
        terms = [
            torch.stack([z[s, q] for q in queries]).exp().sum().log() - sum(z[s, q] for q in true[s]) / len(true[s])
            for s in scenes if true[s]
        ]  # fmt: skip
        total = total + sum(terms) / len(terms)
    if kind in {"query-to-scene", "both"}:
        holders = {q: [s for s in scenes if q in true[s]] for q in queries}
        terms = [
            torch.stack([z[s, q] for s in scenes]).exp().sum().log()
            - sum(z[s, q] for s in holders[q]) / len(holders[q])
            for q in queries if holders[q]
        ]  # fmt: skip
        total = total + sum(terms) / len(terms)
    return total / 2 if kind == "both" else total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_once", [2**24, 1, 11])
def test_loss_and_gradient_are_those_of_plain_loops(kind, at_once):
    x, y, columns, targets, scale, bias = batch()
    loss = Objective(kind, at_once)(x, y, targets, scale, bias)
    expected = torch.stack([plainly(kind, x[m], y[m], columns[m], scale[m, 0, 0], bias[m, 0, 0]) for m in range(2)])
    assert torch.allclose(loss, expected, atol=1e-12)
    given = (x, y, scale, bias) if kind == "sigmoid" else (x, y, scale)
    for found, wanted in zip(
        torch.autograd.grad(loss.sum(), given), torch.autograd.grad(expected.sum(), given), strict=True
    ):
        assert torch.allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_that_dont_count_change_nothing(kind):
    x, y, _columns, targets, scale, bias = batch(members=1)
    masked = targets._replace(valid=torch.tensor([[True, True, True, True, False]]))
    loss = Objective(kind)(x, y, masked, scale, bias)
    short = targets._replace(ids=targets.ids[:, :4])
    assert torch.allclose(loss, Objective(kind)(x, y[:, :4], short, scale, bias), atol=1e-12)
    gradient = torch.autograd.grad(loss.sum(), y)[0]
    assert float(gradient[:, 4].abs().max()) == 0
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("kind", KINDS)
def test_members_dont_touch_each_other(kind):
    x, y, _columns, targets, scale, bias = batch()
    both = Objective(kind)(x, y, targets, scale, bias)
    one = Targets(targets.ids[1:], None, targets.columns[1:], targets.shares[1:])
    assert torch.allclose(both[1], Objective(kind)(x[1:], y[1:], one, scale[1:], bias[1:])[0], atol=1e-12)
    assert float(torch.autograd.grad(both[1], x)[0][0].abs().max()) == 0


def test_a_perfect_model_has_the_entropy_of_its_targets():
    """Two objects in each scene: the least softmax loss is log 2, however sharp."""
    y = torch.eye(4, dtype=torch.float64)[None]
    columns = torch.tensor([[[0, 1], [2, 3]]])
    x = torch.stack([y[0, 0] + y[0, 1], y[0, 2] + y[0, 3]])[None]
    targets = Targets(torch.arange(4)[None], None, columns, repeats(columns).double())
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    assert float(Objective("scene-to-query")(x, y, targets, 50 * one, 0 * one)) == pytest.approx(math.log(2))
