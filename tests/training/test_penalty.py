"""The distance from simple binding functions: zero for their members, honest for others, a gradient that shrinks it."""

import pytest
import torch

from colligate.binding import no_binding, object_product, object_table
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.training.penalty import Distance

SPACE = ConceptSpace(a=5, b=4)
SCENES = Scenes.join([SPACE.all_scenes(slots=2), SPACE.all_scenes(slots=1)])
VALUES = SCENES.values[None]


def vectors(rule):
    return rule(SPACE, 2, 6)(SCENES.values).float()[None]


def test_a_sum_of_values_is_at_no_distance_from_sums():
    distance = Distance("additive", SPACE, 2, 6, [0])
    assert float(distance(vectors(no_binding), VALUES)) < 1e-4
    shifted = vectors(no_binding) + 3 * (SCENES.counts == 1).float()[None, :, None]
    assert float(distance(shifted, VALUES)) < 1e-4  # one intercept for each number of objects


def test_what_binds_is_at_the_distance_that_least_squares_says():
    found = float(Distance("additive", SPACE, 2, 6, [0])(vectors(object_product), VALUES))
    design = [torch.nn.functional.one_hot(SCENES.counts - 1, 2), *(SCENES.multiplicity(c) for c in range(2))]
    table, x = torch.cat(design, 1).double(), vectors(object_product)[0].double()
    error = x - table @ torch.linalg.lstsq(table, x, driver="gelsd").solution
    assert found == pytest.approx(float(error.square().sum() / (x - x.mean(0)).square().sum()), abs=1e-3)
    assert found > 0.3


@pytest.mark.parametrize(("rule", "reached"), [(object_product, True), (object_table, False)])
def test_the_rules_own_tables_find_products_and_nothing_where_there_are_none(rule, reached):
    distance = Distance("object-products", SPACE, 2, 6, [0])
    target = vectors(rule)
    optimizer = torch.optim.Adam(distance.parameters(), lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        distance(target, VALUES).sum().backward()
        optimizer.step()
    assert (float(distance(target, VALUES).detach()) < 0.05) is reached


@pytest.mark.parametrize("kind", ["additive", "object-products"])
def test_the_gradient_pulls_vectors_nearer(kind):
    distance = Distance(kind, SPACE, 2, 6, [0])
    x = vectors(object_table).requires_grad_()
    before = distance(x, VALUES).sum()
    [pull] = torch.autograd.grad(before, x)
    after = distance(x - 1.0 * pull / pull.norm(), VALUES).sum()
    assert float(after.detach()) < float(before.detach())


@pytest.mark.parametrize("kind", ["additive", "object-products"])
def test_members_are_apart(kind):
    both = Distance(kind, SPACE, 2, 6, [3, 8])
    x = torch.cat([vectors(object_product), vectors(object_table)])
    found = both(x, VALUES.expand(2, -1, -1, -1))
    for m, seed in enumerate((3, 8)):
        assert torch.allclose(found[m], Distance(kind, SPACE, 2, 6, [seed])(x[m : m + 1], VALUES)[0], atol=1e-5)
