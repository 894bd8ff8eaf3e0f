"""Code lengths of embedders whose simplest rule is known."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from colligate.approximation.approximators import Additive, Approximator, Data, Fitted
from colligate.approximation.code_length import NARROWEST, START, CodeSettings, Gaussian, _code, _stages, code_lengths
from colligate.approximation.contrast import Swaps
from colligate.approximation.counts import BagQuadratic
from colligate.approximation.factors import Search
from colligate.approximation.measurements import ComplexitySettings, code_rows
from colligate.approximation.products import ObjectProducts
from colligate.binding import no_binding, object_product, scene_table
from colligate.embeddings import Embeddings
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import Split

SPACE = ConceptSpace(color=8, shape=8)
SCENES = SPACE.all_scenes(slots=2)[torch.randperm(4096, generator=torch.Generator().manual_seed(0))[:2048]]
HARD = ObjectProducts(search=Search(starts=24, screening=30, kept=4, steps=300))


def bits(rule, *families, scenes=SCENES) -> dict[str, float]:
    found = code_lengths(Embeddings(rule(scenes.values).float(), scenes), families)
    assert all(bool((one.bits >= 0).all()) for one in found)
    return {one.family: one.per_scene for one in found}


def test_a_bag_needs_few_bits_under_a_sum():
    found = bits(no_binding(SPACE, 2, 24), Additive())
    assert found["additive"] < 0.5 * found["gaussian"]


def test_a_product_needs_far_fewer_bits_under_products_than_under_a_sum():
    space = ConceptSpace(color=12, shape=8)
    scenes = space.all_scenes(2)[torch.randperm(96**2, generator=torch.Generator().manual_seed(0))[:4000]]
    found = bits(object_product(space, 2, 6), Additive(), HARD, scenes=scenes)
    assert found["object_product"] < 0.65 * found["additive"]
    assert found["additive"] > 0.9 * found["gaussian"]


def test_memory_gains_nothing_under_any_rule():
    found = bits(scene_table(SPACE, 2, 6), Additive(), HARD)
    assert found["additive"] > found["gaussian"]
    assert found["object_product"] > found["gaussian"]


@dataclass(frozen=True)
class Known:
    """A rule that is right in the widest axis and `noise` beside the mean in all others."""

    noise: float
    name: str = "known"

    def contains(self, other: Approximator) -> bool:
        return False

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        drawn = self.noise * torch.randn(data.targets.shape, generator=torch.Generator().manual_seed(seed))
        found = drawn.to(data.targets.dtype)
        found[:, 0] = data.targets[:, 0]
        key = {tuple(values): i for i, values in enumerate(data.scenes.values.flatten(1).tolist())}

        def rule(scenes: Scenes) -> Tensor:
            return found[torch.tensor([key[tuple(values)] for values in scenes.values.flatten(1).tolist()])]

        return [Fitted(rule, identified=True) for _ in splits]


def test_an_axis_trusts_a_rule_as_far_as_held_out_objects_bear_it_out():
    table = scene_table(SPACE, 2, 6)(SCENES.values).double()
    embeddings = Embeddings((table * torch.tensor([9.0, 1, 1, 1, 1, 1])).float(), SCENES)
    gaussian, silent = (one.per_scene for one in code_lengths(embeddings, [Known(0.0)]))
    _, noisy = (one.per_scene for one in code_lengths(embeddings, [Known(0.5)]))
    assert silent < gaussian - 5  # the axis that is known costs next to nothing
    assert silent - 0.02 < noisy < silent + 0.1  # noise that held-out objects don't bear out costs next to nothing


def test_bits_are_those_of_a_normal_density_at_the_precision():
    generator = torch.Generator().manual_seed(0)
    noise = 3 * torch.randn(4000, 2, generator=generator, dtype=torch.float64)
    found = _code(noise, torch.full((2,), 9.0), delta=0.01)
    entropy = 2 * (0.5 * math.log2(2 * math.pi * math.e * 9) - math.log2(0.01))
    assert float(found.mean()) == pytest.approx(entropy, abs=0.1)


def test_the_variance_of_a_scene_is_that_of_the_scenes_before_it():
    residuals = torch.tensor([[1.0], [2.0], [5.0]], dtype=torch.float64)
    found = _code(residuals, torch.tensor([4.0], dtype=torch.float64), delta=1e-6)
    for i, variance in enumerate([4.0, (START * 4 + 1) / (START + 1), (START * 4 + 5) / (START + 2)]):
        density = torch.distributions.Normal(0.0, variance**0.5).log_prob(residuals[i, 0])
        assert float(found[i]) == pytest.approx(-(float(density) + math.log(1e-6)) / math.log(2), rel=1e-6)


def test_the_densities_of_all_cells_sum_to_one():
    cells = torch.arange(-50, 51, dtype=torch.float64)
    density = torch.exp(-0.5 * (cells / NARROWEST) ** 2) / (NARROWEST * math.sqrt(2 * math.pi))
    assert float(density.sum()) == pytest.approx(1, abs=2e-3)


def test_every_scene_is_coded_after_what_it_is_coded_by():
    splits, stages = _stages(SCENES, CodeSettings(blocks=4))
    coded = torch.cat([split.test for split in splits])
    assert len(coded) == len(coded.unique()) == sum(map(len, stages))
    shown = torch.zeros(0, dtype=torch.int64)
    for split in splits:
        assert split.objects is not None
        before = torch.cat([split.objects["fit"], split.objects["validation"]])
        new = split.objects["test"]
        assert not torch.isin(new, before).any()
        assert torch.isin(SCENES.objects[split.test], new).any(1).all()
        assert torch.isin(SCENES.objects[split.test], torch.cat([before, new])).all()
        assert torch.isin(SCENES.objects[split.fit], split.objects["fit"]).all()
        assert torch.isin(shown, before).all()
        shown = new


def test_the_order_is_one_for_all_families():
    embeddings = Embeddings(no_binding(SPACE, 2, 8)(SCENES.values).float(), SCENES)
    first, second = code_lengths(embeddings, [Additive()])
    assert torch.equal(first.rows, second.rows)
    assert first.family == Gaussian().name


def test_too_few_objects_are_refused():
    small = ConceptSpace(color=3, shape=3).all_scenes(2)
    embeddings = Embeddings(no_binding(small.space, 2, 8)(small.values).float(), small)
    with pytest.raises(ValueError, match="9 objects can't be revealed in 8 blocks"):
        code_lengths(embeddings, [Additive()])


WHOLE = SPACE.all_scenes(slots=2)
NOISE = torch.randn(4096, 12, generator=torch.Generator().manual_seed(7))


def test_a_product_saves_bits_on_the_contrast_and_what_is_blind_to_swaps_exactly_none():
    vectors = object_product(SPACE, 2, 12)(WHOLE.values).float()
    found = code_lengths(Embeddings(vectors + 0.05 * NOISE, WHOLE), [Additive(), BagQuadratic(), ObjectProducts()])
    gaussian, additive, bag, product = found
    assert len(gaussian.pairs) >= 60
    assert all(torch.equal(one.pairs, gaussian.pairs) for one in found)
    assert torch.equal(additive.contrast, gaussian.contrast)
    assert torch.equal(bag.contrast, gaussian.contrast)
    assert gaussian.blind
    assert additive.blind
    assert bag.blind
    assert not product.blind
    assert float(product.contrast.mean()) < 0.85 * float(gaussian.contrast.mean())


def test_rows_of_contrasts_stand_beside_those_of_scenes_and_blind_rules_save_none():
    vectors = object_product(SPACE, 2, 12)(WHOLE.values).float() + 0.05 * NOISE
    settings = ComplexitySettings(coded=("additive", "object_product"))
    found = {(row.id, row.family): row for row in code_rows(Embeddings(vectors, WHOLE), settings)}
    assert len(found) == 10
    blind, product = (found["complexity.bits_saved.swap", family] for family in ("additive", "object_product"))
    assert (blind.value, blind.low, blind.high) == (0.0, 0.0, 0.0)
    assert product.low is not None
    assert product.low > 0
    sums = no_binding(SPACE, 2, 12)(WHOLE.values).float()
    last = code_rows(Embeddings(sums, WHOLE), replace(settings, coded=("additive",)))[-1]
    assert (last.id, last.value) == ("complexity.bits.swap", None)
    assert "no contrast is coded" in (last.reason or "")


def test_a_contrast_of_noise_costs_a_rule_next_to_nothing_and_saves_nothing():
    vectors = no_binding(SPACE, 2, 12)(WHOLE.values).float() + 0.5 * NOISE
    gaussian, product = code_lengths(Embeddings(vectors, WHOLE), [ObjectProducts()])
    assert -1.0 < float((gaussian.contrast - product.contrast).mean()) < 0.1


def test_contrasts_are_coded_of_pairs_that_no_rule_has_learned_from():
    embeddings = Embeddings(NOISE, WHOLE)
    found, swaps = code_lengths(embeddings, [])[0], Swaps.of(WHOLE)
    splits, _ = _stages(WHOLE, CodeSettings())
    each = [swaps.within(split.test) for split in splits if len(swaps.within(split.validation)) >= START]
    assert torch.equal(found.pairs, torch.cat(each))
    for split, pairs in zip(splits, [swaps.within(split.test) for split in splits], strict=True):
        shown = torch.isin(swaps.group[split.fit], swaps.pairs[pairs])
        assert not shown.any()


def test_a_sum_has_no_contrast_to_code():
    found = code_lengths(Embeddings(no_binding(SPACE, 2, 12)(WHOLE.values).float(), WHOLE), [Additive()])
    assert not any(len(one.contrast) for one in found)
