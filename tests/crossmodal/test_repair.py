"""Repair lifts the gaps that can be closed, and claims none of those that can't."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from colligate.crossmodal.contrast import judge
from colligate.crossmodal.repair import RepairSettings, fit_repair, query_values
from colligate.crossmodal.repair_data import RepairData, repair_data, swap_scenes
from colligate.crossmodal.repairing import find, repair_curve, repair_rows
from colligate.embedders import load_model
from colligate.embedders.embedding import embed
from colligate.scenes.space import ConceptSpace
from colligate.scenes.splits import ByScene, BySwaps, Split
from colligate.scenes.worlds import World, load_world, sample_world


@pytest.fixture(scope="module")
def split(grid: World) -> Split:
    return BySwaps(coverage=0.7).split(grid.scenes, seed=0)


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few scenes for what a repair costs and for choosing, since tests are many."""
    monkeypatch.setattr("colligate.crossmodal.repairing.MOST_FOUND", 300)
    monkeypatch.setattr("colligate.crossmodal.contrast.MOST_VALIDATED", 300)


def rows_of(data: RepairData, split: Split, **settings: Any) -> dict[str, Any]:
    found = repair_rows(data, split, RepairSettings(**settings)).rows
    return {row.id.removeprefix("crossmodal.repair."): row for row in found}


CLOSABLE = [("rotated", "linear", 45), ("mismatched", "product", 0), ("bag", "product", 0)]
NOT = [("mismatched", "linear", 45), ("bag", "linear", 45), ("bag", "mlp", 45), ("rote", "linear", 45),
       ("rote", "product", 0), ("mismatched", "low_rank", 45)]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "steps"), CLOSABLE)
def test_a_gap_that_can_be_closed_is_lifted_by_more_than_its_interval(
    gap: Callable[[str], RepairData], split: Split, name: str, kind: Any, steps: int
):
    found = rows_of(gap(name), split, kind=kind, steps=steps)
    for what in ("object", "object.unseen", "object.swap"):
        assert found[f"lift.{what}"].low > 0
    assert found["after.object.swap"].low > found["before.object.swap"].high
    assert found["lift.object.swap"].low > 0.3
    level = found["after.object.unseen"].bag_of_concepts
    assert found["after.object.unseen"].low > level  # binding, not more concepts


@pytest.mark.parametrize(("name", "kind", "steps"), NOT)
def test_a_gap_that_cannot_be_closed_is_not_claimed(
    gap: Callable[[str], RepairData], split: Split, name: str, kind: Any, steps: int
):
    found = rows_of(gap(name), split, kind=kind, steps=steps)
    assert not found["lift.object.swap"].low > 0
    assert found["after.object.swap"].value < 0.3
    assert not found["after.object.unseen"].low > found["after.object.unseen"].bag_of_concepts + 0.15


def test_aligned_towers_stay_as_good_as_they_are(gap: Callable[[str], RepairData], split: Split):
    found = rows_of(gap("aligned"), split, steps=0)
    assert found["after.object.swap"].value > 0.9
    assert found["validation.after"].value >= found["validation.before"].value


def test_no_linear_map_tells_a_caption_from_its_swap_in_an_additive_tower(gap: Callable[[str], RepairData]):
    data = gap("bag")
    torch.testing.assert_close(data.captions, data.foil_captions)  # so every function of the vector is blind too


def test_held_out_objects_take_no_part(gap: Callable[[str], RepairData], split: Split):
    data = gap("rotated")
    settings = RepairSettings(kind="linear", steps=5, every=5, penalties=(1e-3,))
    one = fit_repair(data, split, settings)
    assert split.objects is not None
    held = torch.cat([split.objects["validation"], split.objects["test"]])
    member = torch.zeros(data.space.num_objects, dtype=torch.bool)
    member[held] = True
    touched = member[data.scenes.objects].any(1)
    vectors, captions = data.vectors.clone(), data.captions.clone()
    test_only = touched.clone()
    test_only[split.validation] = False  # validation scenes may choose, all others with held-out objects may not matter
    vectors[test_only], captions[test_only] = 7.0, -3.0
    foils = data.foil_captions.clone()
    foils[member[data.foils.objects].any(1)] = 5.0
    other = fit_repair(replace(data, vectors=vectors, captions=captions, foil_captions=foils), split, settings)
    for a, b in zip(one.map.parameters(), other.map.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_same_seed_gives_the_same_map(gap: Callable[[str], RepairData], split: Split):
    settings = RepairSettings(kind="mlp", steps=10, hidden=16, seed=3)
    first, again = (fit_repair(gap("rotated"), split, settings) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.map.parameters(), again.map.parameters(), strict=True))


def test_swaps_change_the_objects_and_nothing_else():
    world = sample_world(ConceptSpace(color=3, shape=3, size=2), slots=3, num=200, seed=0)
    foils = swap_scenes(world.scenes, seed=1)
    changed = foils.unordered_ids != world.scenes.unordered_ids
    for concept in range(3):
        assert torch.equal(foils.multiplicity(concept), world.scenes.multiplicity(concept))
    able = torch.stack([
        world.scenes.swap(c, s).unordered_ids != world.scenes.unordered_ids
        for c in range(3) for s in ((0, 1), (0, 2), (1, 2))
    ]).any(0)  # fmt: skip
    assert torch.equal(changed, able)
    assert torch.equal(foils.values[~changed], world.scenes.values[~changed])


def test_judging_matches_recognition_of_unseen_objects(gap: Callable[[str], RepairData], split: Split):
    data = gap("aligned")
    whole, among = judge(data, split, "test")
    assert len(whole.objects) == len(split.test)
    assert bool((among.objects | ~whole.objects).all())  # fewer alternatives can only help
    assert int(among.swappable.sum()) == int(split.notes[0].split()[0])


def test_a_curve_holds_every_kind_at_every_coverage():
    world, model = load_world("clevr"), load_model("oracle:pair-rotated:12")
    data = repair_data(model.towers["scene"], model.towers["text"], world)
    singles = embed(model.towers["scene"], world.select(world.scenes.counts == 1))
    kinds = [RepairSettings(kind="linear", steps=0), RepairSettings(kind="product", steps=0)]
    found, rows = repair_curve(data, kinds, (0.5, 0.7), singles=singles)
    assert set(found) == {(kind, coverage) for kind in ("linear", "product") for coverage in (0.5, 0.7)}
    cost = [row for row in rows if row.id == "crossmodal.repair.cost.single.object.after"]
    assert all(row.value is not None for row in cost)
    noted = [row for row in rows if row.id == "crossmodal.repair.after.object" and row.coverage == 0.7]
    assert all("at random" in str(row.reason) for row in noted)  # 8 x 3 values are too few for quadruples there


def test_bad_input_is_told(gap: Callable[[str], RepairData], grid: World):
    data = gap("rotated")
    with pytest.raises(ValueError, match="judged on objects never seen"):
        fit_repair(data, ByScene().split(grid.scenes, seed=0))
    with pytest.raises(ValueError, match="40 and 64 wide"):
        replace(data, vectors=torch.randn(len(data.vectors), 64, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(ValueError, match="give exactly one for each"):
        replace(data, captions=data.captions[:-1])
    text, scene = (load_model("oracle:pair-rotated:8").towers[kind] for kind in ("text", "scene"))
    with pytest.raises(ValueError, match="has no caption template"):
        repair_data(scene, text, replace(grid, captions=("a",) * len(grid)))
    with pytest.raises(ValueError, match="no scene of two objects"):
        repair_data(scene, text, World("one", ConceptSpace(color=3, shape=3).all_scenes(slots=1), grid.captions))
    with pytest.raises(ValueError, match="steps >= 0"):
        RepairSettings(steps=-1)
    with pytest.raises(ValueError, match=r"No coverage of 0\.99 can be had"):
        repair_curve(data, [RepairSettings()], (0.99,))


def test_finding_counts_a_tie_in_part():
    scenes = ConceptSpace(color=3).scenes([[0, 1], [1, 2]])
    assert find(torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]]), scenes).tolist() == [0.5, 0.5]


def test_queries_name_single_values_then_objects():
    values = query_values(ConceptSpace(color=2, shape=2))
    assert values[:4, 0].tolist() == [[0, -1], [1, -1], [-1, 0], [-1, 1]]
    assert values[4:, 0].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_every_id_is_documented(gap: Callable[[str], RepairData], split: Split, documented: Callable[[str], bool]):
    rows = repair_rows(gap("rotated"), split, RepairSettings(steps=0)).rows
    assert [row.id for row in rows if not documented(row.id)] == []
