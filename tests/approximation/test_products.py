"""Product families against random products, and their gradients against autograd."""

import pytest
import torch

from colligate.approximation import factors as module
from colligate.approximation.approximators import Data, additive_design, training_r2, value_columns
from colligate.approximation.factors import FactorStack, Search, _ObjectProblem, object_factors, times
from colligate.approximation.products import CircularConvolution, GlobalProduct, ObjectProducts
from colligate.approximation.scene_factors import _Grid, _GridProblem, _SceneProblem
from colligate.binding import GlobalProduct as GlobalOracle
from colligate.binding import no_binding, object_product, scene_table
from colligate.embeddings import Embeddings
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByObject, Split

SPACE = ConceptSpace(color=6, shape=5)
SCENES = SPACE.all_scenes(slots=2)
HARD = Search(starts=24, screening=30, kept=4, steps=400)


def data_of(vectors, scenes=SCENES) -> Data:
    return Data.of(Embeddings(vectors.float(), scenes))


@pytest.mark.parametrize("slots", [2, 3])
def test_products_of_objects_carry_over_where_identified(slots):
    scenes = SPACE.all_scenes(slots)[torch.arange(0, 30**slots, 1 if slots == 2 else 11)]
    data = data_of(object_product(SPACE, slots, 5)(scenes.values), scenes)
    split = ByObject(coverage=0.8).split(scenes, seed=0)
    fitted = ObjectProducts(search=HARD).fit(data, [split], 0)[0]
    assert fitted.identified
    assert training_r2(data, fitted.rule, split.test) > 0.999


def test_additive_plus_product_needs_twice_the_values_less_four_objects():
    data = data_of(object_product(SPACE, 2, 5)(SCENES.values))
    for coverage in (0.5, 0.8):
        split = ByObject(coverage=coverage).split(SCENES, seed=0)
        fitted = ObjectProducts(search=Search(starts=1, screening=1, kept=1, steps=1)).fit(data, [split], 0)[0]
        assert split.objects is not None
        # Values of both concepts, twice, less one for each gauge: a necessary number.
        assert not fitted.identified or len(split.objects["fit"]) >= 2 * (6 + 5) - 4


def test_a_global_product_is_found_by_its_own_family_alone():
    rule = GlobalOracle(SPACE, 2, 4).double().requires_grad_(False)
    rule.product.weight.copy_(torch.randn(rule.product.weight.shape, generator=torch.Generator().manual_seed(3)))
    data = data_of(rule(SCENES.values))
    split = ByObject(coverage=0.8).split(SCENES, seed=0)
    own = GlobalProduct(search=HARD).fit(data, [split], 0)[0]
    other = ObjectProducts(search=HARD).fit(data, [split], 0)[0]
    assert own.identified
    assert training_r2(data, own.rule, split.test) > 0.999
    assert training_r2(data, other.rule, split.test) < 0.5


def test_a_convolution_is_found_by_its_own_family_alone():
    generator = torch.Generator().manual_seed(0)
    tables = torch.randn(2, 11, 7, generator=generator, dtype=torch.float64)
    columns = value_columns(SCENES, "shared")
    spectra = [torch.fft.fft(tables[k][columns[:, k]]).prod(1) for k in range(2)]
    data = data_of(torch.fft.ifft(spectra[0] + spectra[1]).real)
    split = ByObject(coverage=0.8).split(SCENES, seed=0)
    own = CircularConvolution(search=HARD).fit(data, [split], 0)[0]
    other = ObjectProducts(search=HARD).fit(data, [split], 0)[0]
    assert training_r2(data, own.rule, split.test) > 0.99
    assert training_r2(data, other.rule, split.test) < 0.5


def test_nothing_carries_over_from_memory():
    data = data_of(scene_table(SPACE, 2, 8)(SCENES.values))
    split = ByObject(coverage=0.7).split(SCENES, seed=0)
    for family in (ObjectProducts(), GlobalProduct()):
        assert training_r2(data, family.fit(data, [split], 0)[0].rule, split.test) < 0.05


def test_together_equals_one_by_one():
    data = data_of(object_product(SPACE, 2, 5)(SCENES.values))
    splits = [ByObject(coverage=c).split(SCENES, seed=0) for c in (0.6, 0.8)]
    together = ObjectProducts().fit(data, splits, 0)
    for split, fitted in zip(splits, together, strict=True):
        alone = ObjectProducts().fit(data, [split], 0)[0]
        assert torch.allclose(alone.rule(SCENES), fitted.rule(SCENES), atol=1e-6)


@pytest.mark.parametrize("family", [ObjectProducts(), GlobalProduct(), CircularConvolution()], ids=lambda one: one.name)
def test_few_scenes_of_all_but_additive_vectors_leave_factors_finite(family):
    """What the sum leaves there is next to nothing, some of it rounding, which must not be followed without end."""
    noise = torch.randn(len(SCENES), 24, generator=torch.Generator().manual_seed(0))
    data, none = data_of(no_binding(SPACE, 2, 24)(SCENES.values).float() + 1e-3 * noise), torch.zeros(0).long()
    splits = list[Split]()
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.isin(SCENES.objects, torch.randperm(30, generator=generator)[:4]).all(1).nonzero()[:, 0]
        _, twins = SCENES[rows].unordered_ids.unique(return_inverse=True)
        half = (torch.randperm(10, generator=generator) % 2 == 0)[twins]
        splits.append(Split(rows[half], none, rows[~half], f"seed {seed}"))
    for split, fitted in zip(splits, family.fit(data, splits, 0), strict=True):
        assert bool(fitted.rule(SCENES).isfinite().all()), split.name


def test_shared_factors_know_no_slots():
    data = data_of(object_product(SPACE, 2, 5)(SCENES.values))
    split = ByObject(coverage=0.8).split(SCENES, seed=0)
    for family in (ObjectProducts("shared"), GlobalProduct("shared")):
        rule = family.fit(data, [split], 0)[0].rule
        assert torch.allclose(rule(SCENES), rule(SCENES.twins()), atol=1e-5), family.name


RAGGED = Scenes.join([SCENES, SPACE.all_scenes(1)])
SPARSE = SPACE.all_scenes(3)[torch.arange(0, 27000, 131)]


TRIPLES = SPACE.all_scenes(3)[(SPACE.all_scenes(3).objects < 6).all(1)]
TWICE = Scenes.join([SCENES[torch.randperm(900, generator=torch.Generator().manual_seed(0))[:400]]] * 2)


@pytest.mark.parametrize("scenes", [SCENES, SCENES[torch.arange(0, 900, 2)], RAGGED, SPARSE, TRIPLES, TWICE], ids=len)
@pytest.mark.parametrize("positions", ["own", "shared"])
def test_the_gradient_of_a_global_product_is_that_of_its_value(scenes, positions):
    generator = torch.Generator().manual_seed(0)
    factors = FactorStack(11 * (scenes.slots if positions == "own" else 1), complex_numbers=False)
    design = additive_design(scenes, positions)
    project = torch.eye(len(scenes)).double() - design @ torch.linalg.pinv(design)
    targets = (project @ torch.randn(len(scenes), 3, generator=generator).double()).float()
    problem = _SceneProblem(scenes, targets, positions, factors, torch.full((3,), 1e-2))
    parameters = torch.randn(3, factors.parameters, generator=generator)
    exact = parameters.double().requires_grad_()
    products = times(exact.T, value_columns(scenes, positions).flatten(1))
    expected = (targets.double() - project @ products).square().mean(0) + 1e-2 * exact.square().sum(1)
    expected.sum().backward()
    members = torch.arange(3)
    problems: list[_SceneProblem | _GridProblem] = [problem]
    if (grid := _Grid.of(scenes, positions, factors.columns)) is not None:
        energy = targets.double().square().mean(0)
        problems.append(_GridProblem(grid, grid.laid(targets), energy, factors, torch.full((3,), 1e-2)))
    # Not those of different numbers of objects, nor where most places of the grid are empty.
    assert len(problems) == 1 + (len(scenes) not in (len(RAGGED), len(SPARSE)))
    assert exact.grad is not None
    scale = float(exact.grad.abs().max())
    for one in problems:
        assert torch.allclose(one.value(parameters, parameters, members).double(), expected, rtol=1e-3)
        assert torch.allclose(one.gradient(parameters, parameters, members).double(), exact.grad, atol=1e-4 * scale)
        few = members[[2, 0]]
        some = one.gradient(parameters[few], parameters[few], few).double()
        assert torch.allclose(some, exact.grad[few], atol=1e-4 * scale)


@pytest.mark.parametrize("complex_numbers", [False, True])
def test_the_gradient_of_object_products_is_that_of_its_value(complex_numbers):
    generator = torch.Generator().manual_seed(0)
    kind = torch.complex128 if complex_numbers else torch.float64
    root = torch.randn(30, 30, generator=generator, dtype=torch.float64)
    wanted = torch.randn(30, 4, generator=generator, dtype=kind)
    columns = value_columns(SPACE.scenes(torch.arange(30)[:, None]), "shared")[:, 0]
    factors = FactorStack(11, complex_numbers)
    problem = _ObjectProblem(root.to(kind), wanted, columns, factors, torch.full((4,), 0.1).double())
    parameters = torch.randn(4, factors.parameters, generator=generator, dtype=torch.float64).requires_grad_()
    problem.value(parameters, parameters, torch.arange(4)).sum().backward()
    assert parameters.grad is not None
    gradient = problem.gradient(parameters.detach(), parameters.detach(), torch.arange(4))
    assert torch.allclose(gradient, parameters.grad)


def test_group_sums_say_what_the_scenes_say():
    """The quadratic form in objects is the squared error over scenes after the additive part is taken out."""
    generator = torch.Generator().manual_seed(1)
    seen = {}

    class Spy(_ObjectProblem):
        def __init__(self, root, wanted, columns, factors, penalty):
            super().__init__(root, wanted, columns, factors, penalty)
            seen.update(root=root.double(), wanted=wanted[:, :1].double())

    left = torch.randn(len(SCENES), 1, generator=generator, dtype=torch.float64)
    design = additive_design(SCENES, "own")
    project = torch.eye(len(SCENES)).double() - design @ torch.linalg.pinv(design)
    left = project @ left
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ObjectProblem", Spy)
        object_factors(
            SCENES, left, torch.tensor(1.0).double(), "own", generator, Search(starts=1, screening=1, kept=1, steps=1)
        )
    h = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    by_scene = h[SCENES.objects[:, 0]] + h[30 + SCENES.objects[:, 1]]
    size = left.square().mean().sqrt()
    direct = (project @ (left / size - by_scene)).square().mean()
    form = 1 - seen["wanted"].square().sum() + (seen["root"] @ h - seen["wanted"]).square().sum()
    assert torch.allclose(direct, form, rtol=1e-5)
