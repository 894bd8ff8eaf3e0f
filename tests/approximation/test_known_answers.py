"""What is said of rules, on embedders whose answer is known: by contrasts and probes, whatever the scale of axes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from colligate.approximation.approximators import Data
from colligate.approximation.contrast import Swaps
from colligate.approximation.curves import CurveSettings, coverage_curve
from colligate.approximation.measurements import ComplexitySettings, complexity_rows
from colligate.approximation.metric import Metric
from colligate.binding import no_binding, object_product
from colligate.embeddings import Embeddings
from colligate.probes import ProbeSettings
from colligate.records import Row
from colligate.report.verdict.claims import Measured
from colligate.report.verdict.rules import carried, complexity_tile
from colligate.scenes.space import ConceptSpace

SPACE = ConceptSpace(color=8, shape=8)
SCENES = SPACE.all_scenes(slots=2)
FAMILIES = ("additive", "bag_quadratic", "object_product")
LOWEST = 0.8
"""Least R2 of the contrast for products on an oracle."""


def draws(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows_of(vectors: Tensor) -> list[Row]:
    curves = CurveSettings(families=FAMILIES, coverages=(0.65,), pooled=6, probes=ProbeSettings(strengths=(1e-6,)))
    return complexity_rows(Embeddings(vectors, SCENES), ComplexitySettings(curves=curves, coded=()))


def product() -> Tensor:
    return object_product(SPACE, 2, 48)(SCENES.values).float()


def bag() -> Tensor:
    return no_binding(SPACE, 2, 12)(SCENES.values).float() + 0.3 * draws(len(SCENES), 12)


def large_noise(vectors: Tensor) -> Tensor:
    noise = draws(len(vectors), 3) * (1000 * vectors.var(0).mean()).sqrt()
    return torch.cat([vectors, noise], dim=1)


def scaled(vectors: Tensor) -> Tensor:
    return vectors * 10 ** (3 * torch.linspace(0, 1, vectors.shape[1]))


def offset(vectors: Tensor) -> Tensor:
    return vectors + 20 * draws(1, vectors.shape[1])


def duplicated(vectors: Tensor) -> Tensor:
    return torch.cat([vectors, vectors[:, :7], vectors[:, :7]], dim=1)


def as_it_is(vectors: Tensor) -> Tensor:
    return vectors


CHANGES = [large_noise, *(pytest.param(one, marks=pytest.mark.long) for one in (as_it_is, scaled, offset, duplicated))]


@pytest.mark.parametrize("change", CHANGES)
def test_a_product_carries_over_whatever_the_axes(change: Callable[[Tensor], Tensor]):
    found = carried(Measured(rows_of(change(product()))))
    assert (found.answer, found.coverages) == ("yes", (0.65,))
    assert found.row is not None
    assert found.row.family == "object_product"
    assert (found.row.value or 0.0) > 0.8


@pytest.mark.long
@pytest.mark.parametrize("change", [as_it_is, large_noise, scaled])
def test_a_bag_never_carries_over(change: Callable[[Tensor], Tensor]):
    assert carried(Measured(rows_of(change(bag())))).answer not in ("yes", "largely", "partly")


def rotation(size: int) -> Tensor:
    return torch.linalg.qr(draws(size, size).double())[0]


def test_contrasts_are_measured_alike_under_any_invertible_map():
    """A noisy product, mapped: the metric's squared lengths of the vectors stay what they were."""
    scenes, half = SCENES, torch.arange(0, len(SCENES), 2)
    vectors = (object_product(SPACE, 2, 12)(SCENES.values).float() + 0.1 * draws(len(SCENES), 12)).double()
    maps = [rotation(12), torch.diag(10 ** (3 * torch.linspace(0, 1, 12).double())), rotation(12) * 5 + 1]

    def lengths(given: Tensor) -> Tensor:
        data = Data.of(Embeddings(given, scenes), least=1e-11)
        metric = Metric.of(data.targets, scenes, half)
        return (data.targets.double() @ metric.measure).square().sum(1)

    plain = lengths(vectors)
    for one in maps:
        assert torch.allclose(lengths(vectors @ one), plain, rtol=0.02, atol=0.05)


def test_what_is_blind_to_swaps_predicts_none_of_the_contrast():
    rows = rows_of(large_noise(product()))
    for row in rows:
        contrast = row.id in ("complexity.r2.swap", "complexity.r2.swap.weighted", "complexity.contrast")
        if contrast and row.family in ("additive", "bag_quadratic") and row.value is not None:
            assert row.value == pytest.approx(0.0, abs=1e-6)
    found = {row.family: row for row in rows if row.id == "complexity.contrast"}
    raw = {row.family: row for row in rows if row.id == "complexity.r2.swap"}
    assert (found["object_product"].value or 0.0) > 0.5
    assert (raw["object_product"].value or 0.0) < 0.2  # of what is nearly all noise


def test_a_contrast_averages_over_orders_and_leaves_nothing_of_a_sum():
    swaps = Swaps.of(SCENES)
    rows = torch.arange(len(SCENES))
    sums = no_binding(SPACE, 2, 5)(SCENES.values)
    every = torch.arange(len(swaps.pairs))
    assert len(swaps.within(rows)) == len(swaps.pairs) == (8 * 7 // 2) ** 2
    assert swaps.contrasts(every, rows, sums).abs().max() < 1e-5
    assert swaps.contrasts(every, rows, product()).abs().max() > 0.1
    some = torch.arange(len(SCENES) // 2)
    few = Swaps.of(SCENES[some])
    assert all(len(few.within(some[:k])) <= len(few.pairs) for k in (0, 10))


def test_a_scene_of_one_order_alone_has_no_contrast():
    once = SCENES[SCENES.objects[:, 0] <= SCENES.objects[:, 1]]
    assert not len(Swaps.of(once).pairs)
    three = ConceptSpace(color=3, shape=3).all_scenes(slots=3)
    assert len(Swaps.of(three).pairs)


def test_low_coverages_at_which_nothing_is_determined_do_not_decide():
    found = [
        Row(id="rescaled.complexity.object", on="test", family="mlp64", coverage=c, value=v, low=v - 0.1, high=v + 0.1,
            bag_of_concepts=0.2, n=400, objects=40)
        for c, v in ((0.6, -0.28), (0.8, 0.63))
    ]  # fmt: skip
    found.append(Row(id="complexity.contrast", on="test", family="mlp64", value=0.4, low=0.2, high=0.5, n=100))
    told = carried(Measured(found))
    assert (told.answer, told.coverages) == ("yes", (0.8,))
    blind = [row if row.id != "complexity.contrast" else Row(id=row.id, on="test", family="mlp64", value=0.0, low=-0.01,
             high=0.02, n=100) for row in found]  # fmt: skip
    assert carried(Measured(blind)).answer == "no"


def test_validation_objects_choose_among_rules():
    found = list[Row]()
    for family, height, validated in (("additive", 0.0, 0.1), ("mlp64", 0.9, 0.3), ("mlp256", 0.4, 0.8)):
        found.append(Row(id="rescaled.complexity.object", on="test", family=family, coverage=0.8, value=height,
                         low=height - 0.1, high=height + 0.1, bag_of_concepts=0.2, n=400, objects=40))  # fmt: skip
        found.append(Row(id="complexity.validated", on="test", family=family, coverage=0.8, value=validated))
    told = carried(Measured(found))
    assert told.row is not None
    assert told.row.family == "mlp256"


def test_a_verdict_names_the_hidden_layers_that_it_leaves_out():
    why = "not fitted: R2 on scenes of the validation objects is 0.040 below that of bag_quadratic"
    found = [
        Row(id="rescaled.complexity.object", on="test", family="additive", coverage=0.8, value=0.0, low=0.0, high=0.0,
            bag_of_concepts=0.2, n=400, objects=40),
        Row(id="complexity.adequate", on="test", family="mlp64", coverage=0.8, value=0.0, reason=why),
        Row(id="complexity.adequate", on="test", family="mlp256", coverage=0.8, value=0.2),
    ]  # fmt: skip
    told = carried(Measured(found))
    assert told.unfitted == ("mlp64",)
    assert [row.family for row in told.tried] == ["additive"]
    sentence = complexity_tile(Measured(found), "", "").sentence
    assert "left out as not fitted (a quadratic bag of concepts explains more): hidden layer of 64 units" in sentence


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4))])
def test_products_predict_the_contrasts_of_a_known_product_and_a_sum_none(seed: int):
    """The positive control of R2 of the contrast: 10 x 10 values, half of the objects, a sum plus products.

    A review found .83 in this setting with its own fits, where a sum had 0 and hidden layers on MiniLM were below 0.
    Here five draws give .92 to .99, so the band is .8 to 1; below it, products are fitted worse or the measure changed.
    """
    space = ConceptSpace(color=10, shape=10)
    scenes = space.all_scenes(slots=2)
    vectors = object_product(space, 2, 48, seed)(scenes.values) + no_binding(space, 2, 48, seed)(scenes.values)
    probes = ProbeSettings(strengths=(1e-4,), objects=False)
    chosen = CurveSettings(families=FAMILIES, coverages=(0.5,), seeds=4, probes=probes)
    points = {point.family: point for point in coverage_curve(Embeddings(vectors.float(), scenes), chosen).points}
    assert len(points["object_product"].swaps) > 50
    assert LOWEST < points["object_product"].swap.r2 <= 1.0
    for blind in ("additive", "bag_quadratic"):
        assert points[blind].swap.r2 == pytest.approx(0.0, abs=1e-6)
