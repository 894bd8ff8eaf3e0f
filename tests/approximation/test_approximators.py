"""Fitted rules against rules whose answer is known, and against dense linear algebra."""

import itertools

import pytest
import torch

from colligate.approximation.approximators import (
    Additive,
    Approximator,
    Data,
    Fitted,
    Frame,
    additive_design,
    choose,
    fit_sum,
    training_r2,
    value_columns,
)
from colligate.approximation.curves import CurveSettings, coverage_curve
from colligate.approximation.families import family
from colligate.approximation.networks import Schedule
from colligate.binding import no_binding, object_product, object_table
from colligate.embeddings import Embeddings
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByObject, Split

SPACE = ConceptSpace(color=5, shape=4)
SCENES = SPACE.all_scenes(slots=2)


def data_of(rule, scenes=SCENES) -> Data:
    return Data.of(Embeddings(rule(scenes.values).float(), scenes))


def held_out(data: Data, fitted: Fitted, split: Split) -> float:
    return training_r2(data, fitted.rule, split.test)


def test_the_frame_gives_vectors_back():
    vectors = torch.randn(30, 8, generator=torch.Generator().manual_seed(0))
    frame = Frame.of(vectors)
    assert frame.axes.shape[1] == 8
    assert torch.allclose(frame.restore(frame.reduce(vectors)), vectors, atol=1e-5)


def test_the_frame_leaves_out_empty_axes():
    flat = torch.cat([torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.ones(30, 5)], dim=1)
    frame = Frame.of(flat)
    assert frame.axes.shape[1] == 3
    assert frame.dropped < 1e-12


def test_equal_vectors_are_refused():
    with pytest.raises(ValueError, match="equal"):
        Frame.of(torch.full((10, 4), 0.3))


def test_columns_and_design_agree_in_ragged_scenes():
    scenes = SPACE.scenes([[3, 7, -1], [-1, 2, 19]])
    for positions in ("own", "shared"):
        columns, design = value_columns(scenes, positions), additive_design(scenes, positions)
        for row in range(2):
            read = columns[row][columns[row] >= 0].tolist()
            assert sorted(read) == sorted(
                itertools.chain.from_iterable([i] * int(n) for i, n in enumerate(design[row, :-4]))
            )
    assert design[:, -4:].tolist() == [[0, 0, 1, 0]] * 2


@pytest.mark.parametrize("positions", ["own", "shared"])
def test_the_sum_is_least_squares(positions):
    data = data_of(object_product(SPACE, 2, 12))
    rows = torch.arange(0, len(SCENES), 3)
    rule, rank = fit_sum(data, rows, positions)
    design = additive_design(data.scenes[rows], positions)
    exact = torch.linalg.lstsq(design, data.targets[rows].double(), driver="gelsd")
    assert rank == exact.rank
    assert torch.allclose(rule(data.scenes[rows]).double(), design @ exact.solution, atol=1e-5)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_the_sum_fits_a_sum_at_every_coverage_that_identifies_it(slots):
    scenes = SPACE.all_scenes(slots)[torch.arange(0, 20**slots, 1 if slots < 3 else 7)]
    data = data_of(no_binding(SPACE, slots, 16), scenes)
    for coverage in (0.4, 0.6, 0.8):
        split = ByObject(coverage=coverage).split(scenes, seed=1)
        fitted = Additive().fit(data, [split], 0)[0]
        assert fitted.identified == (training_r2(data, fitted.rule, torch.arange(len(scenes))) > 1 - 1e-6)
    assert fitted.identified


def test_the_sum_of_ragged_scenes_has_an_intercept_for_each_count():
    scenes = Scenes.join([SCENES, SPACE.all_scenes(1), SPACE.all_scenes(3)[torch.arange(0, 8000, 9)]])
    vectors = no_binding(SPACE, 3, 16)(scenes.values).float()
    shift = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    data = Data.of(Embeddings(vectors + shift[scenes.counts], scenes))
    rule, _ = fit_sum(data, torch.arange(len(scenes)), "own")
    assert training_r2(data, rule, torch.arange(len(scenes))) > 1 - 1e-6


def test_a_value_never_shown_counts_as_the_mean_of_those_shown():
    data = data_of(no_binding(SPACE, 2, 16))
    shown = (SCENES.values[..., 0] > 0).all(1).nonzero()[:, 0]
    rule, _ = fit_sum(data, shown, "own")
    unknown = rule(SPACE.scenes([[0, 8]]))
    known = torch.stack([rule(SPACE.scenes([[4 * c, 8]])) for c in range(1, 5)]).mean(0)
    assert torch.allclose(unknown, known, atol=1e-4)


def test_rote_is_fitted_by_nothing():
    data = data_of(object_table(SPACE, 2, 24))
    split = ByObject(coverage=0.7).split(SCENES, seed=0)
    for name in ("additive", "object_product", "mlp64"):
        fitted = family(name, Schedule(steps=60, rates=(0.06,))).fit(data, [split], 0)[0]
        assert held_out(data, fitted, split) < 0.2, name


def test_choosing_pools_the_splits_of_one_coverage():
    data = data_of(no_binding(SPACE, 2, 16))
    splits = [ByObject(coverage=0.6).split(SCENES, seed=s) for s in range(2)]

    def off(by: float):
        return lambda scenes: data.targets[SCENES.rows_of(scenes)] + by

    # The first is best on split 0, the second on the two together.
    for picks in choose(data, splits, [[off(0.0), off(0.1)], [off(9.0), off(0.1)]]):
        assert bool((picks == 1).all())
    assert not choose(data, splits[:1], [[off(0.0), off(0.1)]])[0].any()


def test_every_axis_chooses_for_itself():
    """An axis of a thousand times the variance has no say in what the others take."""
    data = data_of(no_binding(SPACE, 2, 16))
    split = ByObject(coverage=0.6).split(SCENES, seed=0)
    away = torch.zeros(data.targets.shape[1])
    away[0] = 1000.0

    def wrong(where: torch.Tensor):
        return lambda scenes: data.targets[SCENES.rows_of(scenes)] + where

    (picks,) = choose(data, [split], [[wrong(away), wrong(0.01 * (away == 0))]])
    assert picks.tolist() == [1] + [0] * (len(away) - 1)


class Mean:
    """A user's own approximator, as the protocol's docstring gives it."""

    name = "mean"

    def contains(self, other):
        return False

    def fit(self, data, splits, seed):
        means = [data.targets[split.fit].mean(0) for split in splits]
        return [Fitted(lambda scenes, mean=mean: mean.expand(len(scenes), -1)) for mean in means]


def test_a_users_own_approximator_is_one_class():
    assert isinstance(Mean(), Approximator)
    data = Embeddings(no_binding(SPACE, 2, 16)(SCENES.values).float(), SCENES)
    point = coverage_curve(data, CurveSettings(families=(Mean(),), coverages=(0.7,), pooled=1)).points[0]
    assert point.family == "mean"
    assert abs(point.r2) < 1e-6
