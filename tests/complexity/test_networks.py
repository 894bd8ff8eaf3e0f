"""Stacked networks: look-ups, choosing, adequacy, and stacking that changes nothing."""

import pytest
import torch

from colligate.binding import no_binding, object_product
from colligate.complexity.approximators import Additive, Data, training_r2, value_columns
from colligate.complexity.networks import (
    MLP,
    HiddenLayer,
    LowRankBilinear,
    ProductHead,
    ProductLayer,
    Schedule,
    read_values,
)
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


@pytest.mark.parametrize("within", [True, False])
def test_products_by_hand(within):
    layer = ProductLayer(3, within)
    factors, out = torch.randn(1, 5, 3), torch.randn(1, 3, 2)
    scenes = ConceptSpace(color=3, shape=2).scenes([[0, 5], [2, -1]])
    predicted = layer.forward([factors, out], value_columns(scenes, "shared")[None])[0]
    objects = {o: factors[0, scenes.space.object_values(torch.tensor(o))[0]] *
               factors[0, 3 + scenes.space.object_values(torch.tensor(o))[1]] for o in (0, 2, 5)}  # fmt: skip
    both = objects[0] + objects[5] if within else objects[0] * objects[5]
    expected = torch.stack([both, objects[2]]) @ out[0] * 3**-0.5
    assert torch.allclose(predicted, expected, atol=1e-5)


@pytest.mark.parametrize("network", [HiddenLayer(8), ProductLayer(8, within=True), ProductLayer(8, within=False)])
def test_networks_start_from_nothing(network):
    parameters = [of[None] for of in network.start(32, 5, torch.Generator().manual_seed(0))]
    assert not network.forward(parameters, value_columns(SCENES[:20], "own")[None]).any()


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
    assert fitted.chosen.endswith("step 60")
    assert training_r2(data, fitted.rule, split.fit) > 0.8


def test_ragged_scenes_train():
    scenes = Scenes.join([SCENES, SPACE.all_scenes(1)])
    data = data_of(object_product(SPACE, 2, 12), scenes)
    split = ByObject(coverage=0.8).split(scenes, seed=0)
    for family in (MLP(64, FAST), ProductHead(within=True, width=64, schedule=FAST)):
        fitted = family.fit(data, [split], 0)[0]
        assert fitted.reached is not None
        assert fitted.reached > training_r2(data, Additive().fit(data, [split], 0)[0].rule, split.fit) + 0.05
