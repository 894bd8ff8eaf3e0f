"""Ceilings of a repair: known where the scene tower follows a rule, where it follows none, where it holds nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from colligate.binding import no_binding
from colligate.crossmodal.repair_data import RepairData
from colligate.records import Row
from colligate.scenes.splits import BySwaps, Split
from colligate.scenes.worlds import World
from colligate.verbs.ceiling import ceiling_rows


@pytest.fixture(scope="module")
def split(grid: World) -> Split:
    return BySwaps(coverage=0.7).split(grid.scenes, seed=0)


def found(data: RepairData, split: Split, *rules: str) -> dict[tuple[str, str | None], Row]:
    rows = ceiling_rows(data, split, rules=rules, coverage=0.7, over="objects")
    return {(row.id.removeprefix("crossmodal.repair.ceiling."), row.family): row for row in rows}


def test_a_tower_of_products_is_predicted_by_products_alone(
    gap: Callable[[str], RepairData], split: Split, documented: Callable[[str], bool]
):
    rows = found(gap("mismatched"), split, "additive", "object_product")
    probe, additive = rows["probe.object.swap", None], rows["rule.object.swap", "additive"]
    product = rows["rule.object.swap", "object_product"]
    assert probe.value == 1.0
    assert product.low is not None
    assert additive.high is not None
    assert product.low > 0.75 > 0.3 > additive.high
    assert probe.n == product.n == int(split.notes[0].split()[0])  # the scenes that repairs report, and no others
    assert {row.coverage for row in rows.values()} == {0.7}
    assert [row.id for row in rows.values() if not documented(row.id)] == []
    for way in ("object", "object.unseen"):
        assert rows["probe." + way, None].n == len(split.test)


def test_a_tower_by_rote_is_read_by_probes_and_predicted_by_no_rule(gap: Callable[[str], RepairData], split: Split):
    rows = found(gap("rote"), split, "additive", "object_product")
    assert rows["probe.object.swap", None].value == 1.0
    for rule in ("additive", "object_product"):
        assert (rows["rule.object.swap", rule].value or 0.0) < 0.3


def test_a_tower_that_binds_nothing_gives_probes_no_more_than_a_bag(
    gap: Callable[[str], RepairData], grid: World, split: Split
):
    sums = no_binding(grid.scenes.space, 2, 40, seed=3)(grid.scenes.values).float()
    rows = found(replace(gap("bag"), vectors=sums), split, "additive")
    assert (rows["probe.object.swap", None].value or 0.0) < 0.35  # a sum and its swap are one vector, split by noise


def test_noise_is_not_read_from_a_rule_that_learned_it(gap: Callable[[str], RepairData], grid: World, split: Split):
    """Rule, probes and scored scenes share no scene, so what is read from noise is chance: one in six for a swap."""
    noise = torch.randn(len(grid), 40, generator=torch.Generator().manual_seed(5))
    rows = found(replace(gap("bag"), vectors=noise), split, "additive")
    for key in (("probe.object.swap", None), ("rule.object.swap", "additive")):
        assert (rows[key].value or 0.0) < 0.35
    for key in (("probe.object", None), ("rule.object", "additive")):
        assert (rows[key].value or 0.0) < 0.02


def test_objects_that_no_other_scene_shows_are_told(gap: Callable[[str], RepairData], grid: World, split: Split):
    assert split.objects is not None
    held = torch.zeros(grid.scenes.space.num_objects, dtype=torch.bool)
    held[split.objects["test"]] = True
    once = torch.zeros(len(grid), dtype=torch.bool)
    once[split.test[:20]] = True
    kept = ~held[grid.scenes.objects].any(1) | once
    part = grid.select(kept)
    place = kept.cumsum(0) - 1
    smaller = replace(
        split, fit=place[split.fit], validation=place[split.validation], test=place[split.test[:20]], notes=()
    )
    data = gap("aligned")
    cut = replace(
        data, vectors=data.vectors[kept], captions=data.captions[kept], foil_captions=data.foil_captions[kept],
        scenes=part.scenes, foils=data.foils[kept],
    )  # fmt: skip
    [probe, rule] = ceiling_rows(cut, smaller, rules=("additive",))
    assert probe.value is rule.value is None
    assert "too seldom for probes" in str(probe.reason)
