"""Binding functions: each equals its formula written as loops, and binds what it should."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from colligate.binding import (
    Additive,
    BindingFunction,
    GlobalProduct,
    ObjectProducts,
    ObjectTable,
    Positions,
    SceneTable,
    ValueTables,
    no_binding,
    object_product,
    object_table,
    scene_table,
)
from colligate.scenes.space import ConceptSpace, Scenes

SPACE = ConceptSpace(color=4, shape=3, size=2)
PAIRS = SPACE.sample_scenes(40, 2, generator=torch.Generator().manual_seed(0))
RAGGED = Scenes.join([SPACE.sample_scenes(20, n, generator=torch.Generator().manual_seed(n)) for n in (1, 2, 3)])
ORACLES = [no_binding, object_product, object_table, scene_table]
POSITIONS: list[Positions] = ["shared", "own"]


def filled_at_random(rule: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    rule = rule.double().requires_grad_(False)
    for parameter in rule.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return rule


def row(tables: ValueTables, slot: int, concept: int, value: int) -> Tensor:
    """Where the documentation says a value's vector stands."""
    start = sum(SPACE.sizes[:concept]) + value
    return tables.weight[start + (slot * sum(SPACE.sizes) if tables.positions == "own" else 0)]


def by_loops(scenes: Scenes, of_scene: Callable[[list[tuple[int, list[int]]]], Tensor]) -> Tensor:
    """Apply a formula to each scene, given as (slot, values) of its objects."""
    listed = scenes.values.tolist()
    return torch.stack([of_scene([(k, v) for k, v in enumerate(scene) if v[0] >= 0]) for scene in listed])


def summed(rule: Additive, objects: list[tuple[int, list[int]]]) -> Tensor:
    total = rule.bias.clone()
    for slot, values in objects:
        for concept, value in enumerate(values):
            total = total + row(rule.sum, slot, concept, value)
    return total


@pytest.mark.parametrize("positions", POSITIONS)
def test_additive_is_a_sum_over_slots_and_concepts(positions: Positions) -> None:
    rule = filled_at_random(Additive(SPACE, 3, 6, positions))
    assert isinstance(rule, Additive)
    expected = by_loops(RAGGED, lambda objects: summed(rule, objects))
    torch.testing.assert_close(rule(RAGGED.values), expected)


@pytest.mark.parametrize("positions", POSITIONS)
def test_products_run_within_an_object_or_over_the_whole_scene(positions: Positions) -> None:
    within = filled_at_random(ObjectProducts(SPACE, 3, 6, positions))
    across = filled_at_random(GlobalProduct(SPACE, 3, 6, positions))
    assert isinstance(within, ObjectProducts)
    assert isinstance(across, GlobalProduct)

    def factors(rule: ObjectProducts | GlobalProduct, slot: int, values: list[int]) -> Tensor:
        product = torch.ones(6, dtype=torch.float64)
        for concept, value in enumerate(values):
            product = product * row(rule.product, slot, concept, value)
        return product

    def of_objects(objects: list[tuple[int, list[int]]]) -> Tensor:
        return summed(within.additive, objects) + sum(factors(within, k, v) for k, v in objects)

    def of_scene(objects: list[tuple[int, list[int]]]) -> Tensor:
        product = torch.ones(6, dtype=torch.float64)
        for slot, values in objects:
            product = product * factors(across, slot, values)
        return summed(across.additive, objects) + product

    torch.testing.assert_close(within(RAGGED.values), by_loops(RAGGED, of_objects))
    torch.testing.assert_close(across(RAGGED.values), by_loops(RAGGED, of_scene))


@pytest.mark.parametrize("positions", POSITIONS)
def test_object_table_is_a_sum_of_one_vector_for_each_object(positions: Positions) -> None:
    rule = filled_at_random(ObjectTable(SPACE, 3, 6, positions))
    assert isinstance(rule, ObjectTable)

    def of_scene(objects: list[tuple[int, list[int]]]) -> Tensor:
        total = rule.bias.clone()
        for slot, values in objects:
            number = int(SPACE.object_ids(torch.tensor(values)))
            total = total + rule.weight[slot if positions == "own" else 0, number]
        return total

    torch.testing.assert_close(rule(RAGGED.values), by_loops(RAGGED, of_scene))


def test_scene_table_gives_each_scene_a_vector_of_its_own() -> None:
    scenes = Scenes.join([SPACE.all_scenes(1), SPACE.all_scenes(2)])
    vectors = scene_table(SPACE, 2, 5)(scenes.values)
    assert len(vectors.unique(dim=0)) == len(scenes)
    again = scene_table(SPACE, 2, 5)(scenes.values.flip(0)).flip(0)
    assert torch.equal(vectors, again)


def test_scene_table_refuses_what_it_has_no_row_for() -> None:
    with pytest.raises(ValueError, match="2 slots got scenes of 3"):
        SceneTable(SPACE, 2, 4)(RAGGED.values)
    with pytest.raises(ValueError, match="too large"):
        SceneTable(ConceptSpace(color=100, shape=100), 2, 64)


def test_a_scene_and_its_swap_coincide_without_binding_and_only_then() -> None:
    both = PAIRS.swap(0)
    swapped = ~torch.tensor([a == b for a, b in zip(PAIRS.unordered_ids, both.unordered_ids, strict=True)])
    assert swapped.sum() > 10
    for oracle in ORACLES:
        rule = oracle(SPACE, 2, 16)
        distance = (rule(PAIRS.values) - rule(both.values)).norm(dim=1)[swapped]
        if oracle is no_binding:
            assert distance.max() < 1e-12  # sums of the same four numbers in another order
        else:
            assert distance.min() > 0.1


def test_twins_coincide_unless_slots_have_tables_of_their_own() -> None:
    twins = PAIRS.twins()
    different = (PAIRS.ids != twins.ids).nonzero()[:, 0]
    for oracle in (no_binding, object_product, object_table):
        shared, own = oracle(SPACE, 2, 16), oracle(SPACE, 2, 16, positions="own")
        torch.testing.assert_close(shared(PAIRS.values), shared(twins.values))
        assert (own(PAIRS.values) - own(twins.values))[different].norm(dim=1).min() > 0.1


@pytest.mark.parametrize("oracle", ORACLES)
def test_oracles_follow_their_seed_alone(oracle: Callable[..., BindingFunction]) -> None:
    before = torch.get_rng_state()
    first, again, other = (oracle(SPACE, 2, 8, seed)(PAIRS.values) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert first.dtype == torch.float64
    assert not first.requires_grad
    assert torch.equal(before, torch.get_rng_state())
    assert isinstance(oracle(SPACE, 2, 8, 0), BindingFunction)


def test_an_empty_slot_adds_nothing() -> None:
    for oracle in (no_binding, object_product, object_table):
        rule = oracle(SPACE, 3, 8)
        torch.testing.assert_close(rule(PAIRS.values), rule(PAIRS.padded(3).values))
