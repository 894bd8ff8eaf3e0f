"""Stacked networks: look-ups, choosing, adequacy, and stacking that changes nothing."""

import pytest
import torch

from colligate.approximation.approximators import Additive, Data, additive_design, training_r2, value_columns
from colligate.approximation.layers import MOST_COLUMNS, HiddenLayer, ProductLayer, read_values
from colligate.approximation.networks import MLP, LowRankBilinear, ProductHead
from colligate.approximation.stacks import Schedule, _members, _Output, _Stack, _train
from colligate.binding import no_binding, object_product
from colligate.embeddings import Embeddings
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByObject

SPACE = ConceptSpace(color=8, shape=8)
SCENES = SPACE.all_scenes(slots=2)[torch.randperm(4096, generator=torch.Generator().manual_seed(0))[:2048]]
FAST = Schedule(steps=60, rates=(0.06,), batch=256)


def data_of(rule, scenes=SCENES) -> Data:
    return Data.of(Embeddings(rule(scenes.values).float(), scenes))


def test_look_ups_are_a_product_with_indicators():
    generator = torch.Generator().manual_seed(0)
    tables = torch.randn(3, 10, 4, generator=generator)
    columns = torch.randint(-1, 10, (3, 6, 5), generator=generator)
    shown = torch.zeros(3, 6, 10).scatter_add_(2, columns.clamp(min=0), (columns >= 0).float())
    assert torch.allclose(read_values(tables, columns), shown @ tables, atol=1e-6)


@pytest.mark.parametrize("columns", [10, MOST_COLUMNS + 10])
def test_a_hidden_layer_is_the_same_whichever_way_values_are_added(columns):
    generator = torch.Generator().manual_seed(0)
    layer, shape = HiddenLayer(4), (2, 6, 2, 2)
    parameters = layer.start(columns, generator)
    stacked = [torch.stack([of, 2 * of]).requires_grad_() for of in parameters]
    places = torch.randint(-1, columns, shape, generator=generator)
    found = layer.features(stacked, places)
    expected = (read_values(stacked[0], places.flatten(2)) + stacked[1]).relu() * 4**-0.5
    assert torch.allclose(found, expected, atol=1e-6)
    ours, theirs = (torch.autograd.grad(of.square().sum(), stacked) for of in (found, expected))
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("within", [True, False])
def test_products_by_hand(within):
    layer = ProductLayer(3, within)
    factors = torch.randn(1, 5, 3)
    scenes = ConceptSpace(color=3, shape=2).scenes([[0, 5], [2, -1]])
    features = layer.features([factors], value_columns(scenes, "shared")[None])[0]
    objects = {o: factors[0, scenes.space.object_values(torch.tensor(o))[0]] *
               factors[0, 3 + scenes.space.object_values(torch.tensor(o))[1]] for o in (0, 2, 5)}  # fmt: skip
    both = objects[0] + objects[5] if within else objects[0] * objects[5]
    assert torch.allclose(features, torch.stack([both, objects[2]]) * 3**-0.5, atol=1e-5)


@pytest.mark.parametrize("width", [16, 900])
def test_the_output_is_least_squares_together_with_the_sum(width):
    """Without a penalty the closed form leaves what numpy's least squares on design and features leaves."""
    data = data_of(object_product(SPACE, 2, 12))
    split = ByObject(coverage=0.6).split(SCENES, seed=0)
    layer = HiddenLayer(width)
    (member,) = _members(data, [split], FAST, "own", 0)
    _train(_Stack(data, layer, [member], "own", 0), Schedule(steps=5, batch=64, rates=(0.05,)))
    output = _Output(layer, data, member, "own")
    assert member.gone is not None
    features = layer.features(member.gone, value_columns(SCENES[split.fit], "own")[None])[0]
    both = torch.cat([additive_design(SCENES[split.fit], "own"), features.double()], dim=1)
    targets = data.targets[split.fit].double()
    exact = both @ torch.linalg.lstsq(both, targets, driver="gelsd").solution
    given = float((targets - targets.mean(0)).square().sum())
    least = float((targets - exact).square().sum())
    assert output.errors[-1] == pytest.approx(least, abs=2e-3 * given)
    every = torch.ones(data.targets.shape[1], dtype=torch.int64)
    for candidate, error in enumerate(output.errors, start=1):
        left = targets - output.rule(candidate * every)(SCENES[split.fit])
        assert float(left.square().sum()) == pytest.approx(error, rel=1e-3, abs=1e-5 * given)
    held = data.targets[split.validation].double()
    for candidate, error in enumerate(output.on_validation().sum(1).tolist()):
        left = held - output.rule(candidate * every)(SCENES[split.validation])
        assert float(left.square().sum()) == pytest.approx(error, rel=1e-3)


def test_a_wide_layer_fits_what_it_is_shown_and_never_falls_below_the_sum():
    data = data_of(object_product(SPACE, 2, 12))
    splits = [ByObject(coverage=c).split(SCENES, seed=0) for c in (0.5, 0.9)]
    sums = Additive().fit(data, splits, 0)
    wide = MLP(512, Schedule(steps=150, rates=(0.06,))).fit(data, splits, 0)
    for split, one, least in zip(splits, wide, sums, strict=True):
        below = training_r2(data, least.rule, split.fit)
        assert one.reached is not None
        assert one.reached > 0.97 > below
        assert training_r2(data, one.rule, split.fit) > below - 1e-6
    # With most objects shown, part of the rule carries over, which a sum can't.
    errors = [((f.rule(SCENES[splits[1].test]) - data.targets[splits[1].test]) ** 2).mean() for f in (wide[1], sums[1])]
    assert errors[0] < 0.9 * errors[1]


def test_a_low_rank_product_is_found_by_the_low_rank_family():
    data = data_of(object_product(SPACE, 2, 3))
    split = ByObject(coverage=0.8).split(SCENES, seed=0)
    fitted = LowRankBilinear(6, Schedule(steps=200, rates=(0.1,))).fit(data, [split], 0)[0]
    least = Additive().fit(data, [split], 0)[0]
    assert fitted.reached is not None
    assert fitted.reached > 0.97
    assert training_r2(data, fitted.rule, split.test) > training_r2(data, least.rule, split.test) + 1


@pytest.mark.parametrize("family", [MLP(32, FAST), ProductHead(within=False, width=32, schedule=FAST)])
def test_stacking_changes_nothing(family):
    data = data_of(object_product(SPACE, 2, 12))
    splits = [ByObject(coverage=c).split(SCENES, seed=0) for c in (0.7, 0.8, 0.4)]
    for split, fitted in zip(splits, family.fit(data, splits, 0), strict=True):
        alone = family.fit(data, [split], 0)[0]
        assert alone.chosen == fitted.chosen
        assert torch.allclose(alone.rule(SCENES), fitted.rule(SCENES), atol=1e-3)


def test_the_same_seed_gives_the_same_rule_and_another_doesnt():
    data = data_of(object_product(SPACE, 2, 12))
    split = ByObject(coverage=0.8).split(SCENES, seed=0)
    rules = [MLP(32, FAST).fit(data, [split], seed)[0].rule(SCENES) for seed in (0, 0, 1)]
    assert torch.equal(rules[0], rules[1])
    assert not torch.equal(rules[0], rules[2])


def test_what_the_sum_leaves_nothing_of_is_left_alone():
    data = data_of(no_binding(SPACE, 2, 32))
    split = ByObject(coverage=0.5).split(SCENES, seed=0)
    fitted = MLP(32, FAST).fit(data, [split], 0)[0]
    assert training_r2(data, fitted.rule, split.test) > 0.999


def test_without_validation_the_last_step_is_taken():
    data = data_of(object_product(SPACE, 2, 12))
    split = ByObject(coverage=0.5, validation=0.0).split(SCENES, seed=0)
    fitted = MLP(128, FAST).fit(data, [split], 0)[0]
    assert fitted.chosen.endswith("penalty 1e-07")
    assert training_r2(data, fitted.rule, split.fit) > 0.8


def test_ragged_scenes_train():
    scenes = Scenes.join([SCENES, SPACE.all_scenes(1)])
    data = data_of(object_product(SPACE, 2, 12), scenes)
    split = ByObject(coverage=0.8).split(scenes, seed=0)
    for family in (MLP(64, FAST), ProductHead(within=True, width=64, schedule=FAST)):
        fitted = family.fit(data, [split], 0)[0]
        assert fitted.reached is not None
        assert fitted.reached > training_r2(data, Additive().fit(data, [split], 0)[0].rule, split.fit) + 0.05
