"""Muon against a singular value decomposition, its members against single matrices, averages against a plain loop."""

import pytest
import torch
from torch import nn

from colligate.networks.stacked import Affine, generators
from colligate.training.optimizers import Average, Muon, Optimizers, orthogonalized


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 5, 12), (2, 12, 5)])
def test_singular_vectors_stay_and_values_come_near_one(shape):
    matrix = drawn(*shape)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.mT @ orthogonalized(matrix) @ right.mT
    values = turned.diagonal(dim1=1, dim2=2)
    assert torch.allclose(turned, torch.diag_embed(values), atol=1e-9)
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_bfloat16_comes_near():
    matrix = drawn(1, 16, 24).float()
    exact, near = orthogonalized(matrix), orthogonalized(matrix, dtype=torch.bfloat16)
    assert near.dtype == torch.float32
    assert (exact - near).norm() < 0.1 * exact.norm()


def test_muon_is_the_equation():
    weight = nn.Parameter(drawn(2, 6, 9))
    expected, mean = weight.detach().clone(), torch.zeros(2, 6, 9, dtype=torch.float64)
    optimizer = Muon([weight], rate=0.1, decay=0.5)
    for step in range(3):
        gradient = drawn(2, 6, 9, seed=step + 1)
        weight.grad = gradient.clone()
        optimizer.step()
        mean = 0.95 * mean + 0.05 * gradient
        change = orthogonalized(0.05 * gradient + 0.95 * mean)
        expected = (1 - 0.1 * 0.5) * expected - 0.1 * (9 / 6) ** 0.5 * change
    assert torch.allclose(weight, expected, atol=1e-9)


def test_muon_takes_the_matrices_of_layers_and_adamw_the_rest():
    layer = Affine(generators([0]), 4, 4)
    network = nn.ModuleDict({"layer": layer, "table": nn.Embedding(3, 4)})
    made = Optimizers(
        [network], "muon", rate=1e-3, matrix_rate=0.1, decay=0.0, momentum=0.99, dtype=None
    )  # fmt: skip
    assert {id(p) for p in made.parameters} == {id(p) for p in network.parameters()}
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    for p in network.parameters():
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    made.step(1.0)
    moved = {name: (p - before[name]).abs().max().item() for name, p in network.named_parameters()}
    assert moved["layer.weight"] > 0.02
    assert moved["layer.bias"] == pytest.approx(1e-3, rel=1e-3)  # AdamW's first step is its rate
    assert moved["table.weight"] == pytest.approx(1e-3, rel=1e-3)
    assert {name.split(".")[-1] for name in made.state()} == {"mean", "exp_avg", "exp_avg_sq", "step"}


def test_an_average_is_the_equation_and_gives_the_weights_back():
    network = nn.Linear(3, 2)
    average, expected = Average(network, 0.8), network.weight.detach().clone()
    for step in range(12):
        with torch.no_grad():
            network.weight.add_(torch.randn(2, 3, generator=torch.Generator().manual_seed(step)))
        kept = min(0.8, (1 + step) / (10 + step))
        expected = network.weight.detach().clone() if step == 0 else kept * expected + (1 - kept) * network.weight
        average.follow(step)
    own = network.weight.detach().clone()
    with average.shown():
        assert torch.allclose(network.weight, expected, atol=1e-6)
        assert not torch.allclose(network.weight, own, atol=1e-2)
    assert torch.equal(network.weight, own)


def test_without_memory_the_weights_themselves_are_shown():
    network = nn.Linear(3, 2)
    average = Average(network, 0.0)
    average.follow(0)
    with average.shown():
        network.weight.data.add_(1.0)
    assert average.held == []
