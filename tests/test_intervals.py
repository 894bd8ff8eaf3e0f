"""Intervals against textbook formulas, brute force, laws, and populations whose number is known."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.intervals import MIN_OBJECTS, MIN_SCENES, Estimate, Intervals, _Design, _Factor, student_quantile
from colligate.scenes.space import ConceptSpace, Scenes

FEW = settings(max_examples=12, deadline=None)
SPACE = ConceptSpace(color=4, shape=4)
SCENES = SPACE.all_scenes(2)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def of(scenes: Scenes) -> Intervals:
    return Intervals(scenes.objects, scenes.values)


def ends(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None, estimate.reason
    assert estimate.high is not None
    return estimate.low, estimate.high


def test_scenes_that_share_nothing_get_students_interval() -> None:
    outcomes = torch.randn(40, generator=generator(), dtype=torch.float64)
    low, high = ends(Intervals(torch.arange(40)[:, None]).mean(outcomes))
    half = student_quantile(39.0) * outcomes.std().item() / 40**0.5
    assert (low, high) == pytest.approx((outcomes.mean().item() - half, outcomes.mean().item() + half))


def test_expected_sums_of_squares_are_those_of_the_dense_tables() -> None:
    scenes = SPACE.sample_scenes(60, 3, generator=generator(1))
    design = _Design(scenes.objects.numpy(), scenes.values.numpy())
    tables = [one.held.toarray() for one in design._factors]
    assert len(tables) >= 2
    centring = np.eye(60) - 1 / 60
    tables.append(np.eye(60))
    expected, adds = design._expected
    for a, first in enumerate(tables):
        assert adds[a] == pytest.approx(((first.T @ np.ones(60) / 60) ** 2).sum())
        for b, other in enumerate(tables):
            assert expected[a, b] == pytest.approx(((first.T @ centring @ other) ** 2).sum())


def test_variances_of_random_effects_are_found_again() -> None:
    """The mean over many draws of the estimated variance of a mean is the variance that the draws' means have."""
    scenes = ConceptSpace(color=12, shape=12).sample_scenes(1000, 2, generator=generator(2))
    intervals, means, told = of(scenes), [], []
    rows = torch.ones(len(scenes), dtype=torch.bool)
    for seed in range(120):
        draw = generator(seed)
        effects = [torch.randn(12, generator=draw, dtype=torch.float64) * size for size in (0.5, 0.2)]
        outcomes = sum(effect[scenes.values[:, :, c]].sum(1) for c, effect in enumerate(effects))
        outcomes += (torch.randn(144, generator=draw, dtype=torch.float64) * 0.4)[scenes.objects].sum(1)
        outcomes += torch.randn(len(scenes), generator=draw, dtype=torch.float64)
        means.append(outcomes.mean().item())
        told.append(intervals.spread((outcomes - outcomes.mean()) / len(scenes), rows).variance)
    # 120 draws: the variance of the means is known to about 13 %, the estimates' mean to about 3 %
    assert np.mean(told) == pytest.approx(np.var(means), rel=0.35)


def test_degrees_of_freedom_are_those_of_the_concept_with_few_values() -> None:
    alone = _Factor.of(np.arange(8)[:, None] % 8)
    both = _Factor.of(np.arange(24)[:, None] % 8, np.arange(24)[:, None] // 8)
    assert alone.freedom == pytest.approx(7)
    # 8 values seen 3 times each, 3 values seen 8 times: sums of squares 72 and 192
    assert both.freedom == pytest.approx(264**2 / (72**2 / 7 + 192**2 / 2))


@FEW
@given(
    seed=st.integers(0, 1000), slots=st.sampled_from([1, 2, 3]), share=st.floats(0.0, 1.0), rows=st.integers(20, 300)
)
def test_an_interval_has_width_and_holds_its_value(seed: int, slots: int, share: float, rows: int) -> None:
    scenes = ConceptSpace(color=4, shape=3).sample_scenes(rows, slots, generator=generator(seed))
    outcomes = torch.rand(rows, generator=generator(seed), dtype=torch.float64)
    mask = torch.rand(rows, generator=generator(seed + 1)) < 0.7
    hits = (outcomes < share).double()
    for found in (
        of(scenes).mean(hits), of(scenes).mean(hits, mask), of(scenes).mean(outcomes), of(scenes).mean(0 * hits + 1),
        of(scenes).explained(outcomes * share, outcomes + 0.1), of(scenes).explained(0 * outcomes, outcomes + 0.1),
    ):  # fmt: skip
        if found.low is not None and found.high is not None and found.value is not None:
            assert found.low < found.high <= 1.0
            assert found.low <= found.value <= found.high
        else:
            assert found.reason is not None


def test_shares_stay_between_zero_and_one_and_other_means_need_not() -> None:
    none, some = torch.zeros(len(SCENES)), (SCENES.objects[:, 0] == 3).double()
    assert ends(of(SCENES).mean(none)) == (0.0, pytest.approx(1 - 0.05 ** (1 / 8)))  # eight values, a trial each
    assert 0 < ends(of(SCENES).mean(some))[0] < some.mean() < ends(of(SCENES).mean(some))[1] < 1
    assert ends(of(SCENES).mean(some - 0.5))[0] < -0.4


def test_without_a_failure_the_bound_knows_the_number_of_groups_and_not_of_scenes() -> None:
    lows = [
        ends(Intervals(s.objects, s.values, over="objects").mean(torch.ones(len(s))))[0] for s in (SCENES, SCENES[:120])
    ]
    assert lows[0] == pytest.approx(0.05 ** (1 / 16))  # 16 objects
    several = {len(s.objects.unique()): ends(of(s).mean(torch.ones(len(s))))[0] for s in (
        ConceptSpace(color=3, shape=3).all_scenes(2), SCENES, ConceptSpace(color=8, shape=8).all_scenes(2)
    )}  # fmt: skip
    assert list(several.values()) == sorted(several.values())


def test_intervals_over_values_are_wider_where_values_are_what_is_hard() -> None:
    scenes = ConceptSpace(color=8, shape=8).all_scenes(2)
    hard = (scenes.contains(0)[:, :2].any(1)).double()  # scenes with one of two colours fail
    narrow = ends(Intervals(scenes.objects, scenes.values, over="objects").mean(1 - hard))
    wide = ends(of(scenes).mean(1 - hard))
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_what_both_models_find_hard_cancels() -> None:
    first = (torch.rand(len(SCENES), generator=generator()) < 0.5).double()
    other, ones = first.clone(), torch.ones(len(SCENES))
    other[::21] = 1 - other[::21]
    paired = ends(of(SCENES).difference((first, ones), (other, ones), shares=True))
    alone = ends(of(SCENES).mean(first))
    assert paired[1] - paired[0] < (alone[1] - alone[0]) / 2
    same = of(SCENES).difference((first, ones), (first, ones), shares=True)
    assert ends(same) == (pytest.approx(-(1 - 0.05 ** (1 / 8))), pytest.approx(1 - 0.05 ** (1 / 8)))


def test_an_interval_of_r2_does_not_depend_on_the_scale_of_the_vectors() -> None:
    errors = torch.rand(len(SCENES), generator=generator(), dtype=torch.float64)
    totals = errors + torch.rand(len(SCENES), generator=generator(1), dtype=torch.float64)
    small, large = (of(SCENES).explained(errors * by, totals * by) for by in (1e-8, 1e8))
    assert (small.value, small.low, small.high) == pytest.approx((large.value, large.low, large.high))
    assert ends(large)[1] < 1


def test_an_empty_slot_changes_nothing() -> None:
    outcomes = torch.rand(len(SCENES), generator=generator(), dtype=torch.float64)
    assert of(SCENES).mean(outcomes) == of(SCENES.padded(3)).mean(outcomes)


@FEW
@given(seed=st.integers(0, 500))
def test_intervals_do_not_depend_on_the_order_of_rows(seed: int) -> None:
    order = list(range(len(SCENES)))
    random.Random(seed).shuffle(order)
    outcomes = torch.rand(len(SCENES), generator=generator(seed))
    first, second = of(SCENES).mean(outcomes), of(SCENES[order]).mean(outcomes[order])
    assert (first.value, first.low, first.high) == pytest.approx((second.value, second.low, second.high))


def test_no_interval_is_given_for_too_few_objects_or_scenes() -> None:
    few_objects = ConceptSpace(color=MIN_OBJECTS - 1).all_scenes(2)
    enough = ConceptSpace(color=MIN_OBJECTS).all_scenes(2)
    for objects, num in ((few_objects.objects, len(few_objects)), (enough.objects, MIN_SCENES - 1)):
        found = Intervals(objects[:num]).mean(torch.ones(num))
        assert (found.value, found.low, found.high) == (1, None, None)
        assert "no interval" in str(found.reason)
    alike = of(SCENES).mean(torch.full((len(SCENES),), 3.5))  # no share: what others would be can't be bounded
    assert (alike.value, alike.low) == (3.5, None)
    assert alike.reason == "no interval: all 256 scored scenes are alike"


def test_nothing_to_score_and_no_variance_are_said() -> None:
    nothing, ones = torch.zeros(len(SCENES), dtype=torch.bool), torch.ones(len(SCENES))
    assert of(SCENES).mean(ones, nothing).reason == "nothing to score"
    assert of(SCENES).explained(0 * ones, 0 * ones).reason == "no variance"
    assert of(SCENES[:0]).mean(ones[:0]).reason == "nothing to score"


def test_empty_slots_weigh_nothing_in_the_count_of_objects() -> None:
    space = ConceptSpace(color=10, shape=2)
    ragged = Scenes.join([space.all_scenes(1), space.sample_scenes(30, 3, generator=generator())])
    found = of(ragged).mean(torch.ones(len(ragged)))
    assert found.objects == len(set(ragged.objects[ragged.filled].tolist()))
    assert found.high == 1


def test_rows_of_one_scene_are_one_piece_of_evidence() -> None:
    objects = torch.stack([torch.arange(400) % 20, torch.arange(400) // 20], dim=1)
    hits = torch.ones(400)
    few = Intervals(objects, scenes=torch.arange(400) % 8).mean(hits)
    assert (few.value, few.low, few.n) == (1.0, None, 400)
    assert few.reason == "no interval: 20 objects and 8 scenes (needs 8 and 20)"
    assert Intervals(objects, scenes=torch.arange(400) % 30).mean(hits).low is not None


@pytest.mark.parametrize(
    ("name", "by", "over", "truth", "size"),
    [
        ("hits", "object", "objects", 0.96, 24),
        ("hits", "value", "values", 0.64, 64),
        ("R2", "value", "values", 0.5, 64),
    ],
)
def test_intervals_cover_the_truth_about_95_times_in_100(
    name: str, by: str, over: str, truth: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small part of `python benchmarks/interval_coverage.py`, whose table stands in docs/metrics.md."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import interval_coverage as benchmark  # pyright: ignore

    held, _ = benchmark.coverage(name, size, by, over, truth, 40)
    sys.modules.pop("interval_coverage", None)
    assert held >= 0.85  # 40 draws at .95 have a standard error of .035
