"""Closed forms from which repair maps start: least squares for a matrix, alternating least squares for products."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from colligate.crossmodal.alignment import ObjectParts, value_columns
from colligate.networks.maps import LinearMap, ProductHead
from colligate.scenes.space import ConceptSpace


def start_linear(
    map: LinearMap, texts: Float[Tensor, "row dim"], goals: Float[Tensor, "row dim"], penalty: float
) -> None:
    """Set a matrix to the ridge regression of goals on texts, drawn towards the identity.

        minimise  sum_i |W t_i - x_i|^2  +  penalty tr(T'T) / dim  |W - 1|^2

    Example:
        >>> points = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
        >>> map = LinearMap(4)
        >>> start_linear(map, points, 2 * points, penalty=1e-9)
        >>> bool((map.weight - 2 * torch.eye(4)).abs().max() < 1e-5)
        True
    """
    wide, missing = texts.double(), (goals - texts).double()
    gram = wide.T @ wide
    gram.diagonal().add_(penalty * gram.diagonal().mean())
    change = torch.linalg.solve(gram, wide.T @ missing).T
    with torch.no_grad():
        map.weight.copy_(torch.eye(len(gram), dtype=torch.float64) + change)


def start_product(
    head: ProductHead, parts: ObjectParts, *, penalty: float, seed: int, sweeps: int = 30, restarts: int = 4
) -> None:
    """Set a product head to the components of known objects: values' components as sums, interactions as products.

        minimise over w, M   sum over known o  | e[o] - M prod_c w[c, o_c] |^2  +  penalty (|w|^2)

    Without M every coordinate is a rank-one table with missing entries, found by alternating least squares from random
    signs, the best of several starts coordinate by coordinate. With M the tables share a few products.

    Args:
        head: what is set.
        parts: objects of the scene tower, NaN where unknown.
        penalty: shrinkage, relative to the size of what is fitted.
        seed: of the starts.
        sweeps: times that each concept's factors are solved for.
        restarts: starts tried.

    Example:
        >>> space = ConceptSpace(color=5, shape=5)
        >>> truth = ProductHead(space, dim=3)
        >>> _ = torch.nn.init.trunc_normal_(truth.product.weight, generator=torch.Generator().manual_seed(0))
        >>> objects = truth(torch.zeros(25, 3), space.object_values(torch.arange(25))[:, None])
        >>> known = torch.arange(25) % 4 > 0
        >>> head = ProductHead(space, dim=3)
        >>> start_product(head, ObjectParts.of(space, objects.detach(), known), penalty=1e-9, seed=0, sweeps=200)
        >>> rebuilt = head(torch.zeros(25, 3), space.object_values(torch.arange(25))[:, None])
        >>> bool((rebuilt - objects)[known].abs().mean() < 0.3)
        True
    """
    space, columns = parts.space, value_columns(parts.space)
    known = parts.known
    goals, columns = parts.interactions[known], columns[known]
    if head.mix is None:
        weight = _rank_one(space, columns, goals, penalty, seed, sweeps, restarts)
    else:
        weight, mix = _mixed(space, columns, goals, head.mix.shape[1], penalty, seed, sweeps)
        with torch.no_grad():
            head.mix.copy_(mix)
    with torch.no_grad():
        head.sum.weight.copy_(parts.values.nan_to_num() + parts.centre / space.num_concepts)
        head.product.weight.copy_(weight)


def _rank_one(
    space: ConceptSpace, columns: Tensor, goals: Tensor, penalty: float, seed: int, sweeps: int, restarts: int
) -> Float[Tensor, "value dim"]:
    generator = torch.Generator().manual_seed(seed)
    size, dim = sum(space.sizes), goals.shape[1]
    scale = goals.square().mean().sqrt().clamp(min=1e-12)
    ridge = penalty * len(goals) / size
    best, least = torch.zeros(size, dim, dtype=torch.float64), torch.full((dim,), torch.inf, dtype=torch.float64)
    for _ in range(restarts):
        drawn = torch.randint(2, (size, dim), generator=generator)
        weight = (2 * drawn.double() - 1) * scale ** (1 / space.num_concepts)
        for _ in range(sweeps):
            for concept in range(space.num_concepts):
                others = [c for c in range(space.num_concepts) if c != concept]
                rest = weight[columns[:, others]].prod(1)
                upper, lower = torch.zeros_like(weight), torch.zeros_like(weight)
                upper.index_add_(0, columns[:, concept], rest * goals)
                lower.index_add_(0, columns[:, concept], rest.square())
                chosen = _of_concept(space, concept)
                weight[chosen] = (upper / (lower + ridge * lower[chosen].mean(0) + 1e-30))[chosen]
        error = (goals - weight[columns].prod(1)).square().sum(0)
        better = error < least
        best, least = torch.where(better, weight, best), torch.where(better, error, least)
    return best


def _of_concept(space: ConceptSpace, concept: int) -> Bool[Tensor, " value"]:
    return torch.tensor([c == concept for c, size in enumerate(space.sizes) for _ in range(size)])


def _mixed(
    space: ConceptSpace, columns: Tensor, goals: Tensor, rank: int, penalty: float, seed: int, sweeps: int
) -> tuple[Float[Tensor, "value rank"], Float[Tensor, "dim rank"]]:
    generator = torch.Generator().manual_seed(seed)
    size, dim = sum(space.sizes), goals.shape[1]
    weight = torch.randn(size, rank, generator=generator, dtype=torch.float64)
    mix = torch.zeros(dim, rank, dtype=torch.float64)
    for _ in range(sweeps):
        products = weight[columns].prod(1)
        gram = products.T @ products
        gram.diagonal().add_(penalty * gram.diagonal().mean() + 1e-12)
        mix = torch.linalg.solve(gram, products.T @ goals).T
        inner = mix.T @ mix
        for concept in range(space.num_concepts):
            others = [c for c in range(space.num_concepts) if c != concept]
            rest, pulled = weight[columns[:, others]].prod(1), goals @ mix
            for value in columns[:, concept].unique().tolist():
                rows = columns[:, concept] == value
                normal = inner * (rest[rows].T @ rest[rows])
                normal.diagonal().add_(penalty * normal.diagonal().mean() + 1e-12)
                weight[value] = torch.linalg.solve(normal, (rest[rows] * pulled[rows]).sum(0))
        weight = weight / weight.square().mean(0).sqrt().clamp(min=1e-12)
    return weight, mix
