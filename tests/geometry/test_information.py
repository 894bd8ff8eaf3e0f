"""Binding information: alternatives counted by enumeration, 0 without binding, 1 with it, never more than there is."""

from collections import Counter
from collections.abc import Callable
from math import log2

import pytest
import torch
from torch import Tensor

from colligate.binding import BindingFunction, no_binding, object_product, object_table, scene_table
from colligate.embeddings import Embeddings
from colligate.geometry.information import (
    LinearScores,
    QuadraticScores,
    Scores,
    alternatives,
    attention_information,
    binding_information,
)
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByScene, Split

SPACE = ConceptSpace(color=4, shape=3)
PAIRS = SPACE.all_scenes(2)
DIM = 48  # more than the 12 objects, so that a linear read-out can tell them apart


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def worlds() -> dict[str, Scenes]:
    draw = generator()
    return {
        "pairs": PAIRS,
        "unbalanced": Scenes.join([PAIRS, PAIRS[:70], PAIRS[:30]]),
        "excluding": PAIRS[~PAIRS.shares_any()],
        "triples": ConceptSpace(color=2, shape=2, size=2).sample_scenes(300, 3, generator=draw),
        "ragged": Scenes.join([SPACE.sample_scenes(100, n, generator=draw) for n in (1, 2, 3)]),
    }


WORLDS = worlds()


def as_sets(scenes: Scenes) -> list[tuple[int, ...]]:
    return [tuple(sorted(o for o in row if o >= 0)) for row in scenes.objects.tolist()]


def facts(scenes: Scenes) -> list[tuple[tuple[int, ...], ...]]:
    """The values of each concept, counted."""
    return [
        tuple(tuple(sorted(v[c] for v in row if v[0] >= 0)) for c in range(scenes.space.num_concepts))
        for row in scenes.values.tolist()
    ]


@pytest.mark.parametrize("world", WORLDS)
def test_alternatives_are_the_sets_that_occur_with_the_same_values(world: str) -> None:
    scenes = WORLDS[world]
    found = alternatives(scenes)
    sets, known = as_sets(scenes), facts(scenes)
    times = Counter(zip(known, sets, strict=True))
    for row in range(len(scenes)):
        agreeing = {s: n for (f, s), n in times.items() if f == known[row]}
        exists = torch.isfinite(found.log_prior[row])
        listed = [tuple(sorted(o for o in one if o >= 0)) for one in found.objects[row][exists].tolist()]
        assert listed[0] == sets[row]
        assert sorted(listed) == sorted(agreeing)
        expected = [agreeing[s] / sum(agreeing.values()) for s in listed]
        torch.testing.assert_close(found.log_prior[row][exists].exp(), torch.tensor(expected, dtype=torch.float64))
        assert (found.objects[row][~exists] == -1).all()


@pytest.mark.parametrize("world", WORLDS)
def test_entropy_is_counted_exactly(world: str) -> None:
    scenes = WORLDS[world]
    joint, given = Counter(zip(facts(scenes), as_sets(scenes), strict=True)), Counter(facts(scenes))
    expected = sum(-n * log2(n / given[f]) for (f, _), n in joint.items()) / len(scenes)
    assert alternatives(scenes).entropy.mean().item() == pytest.approx(expected, abs=1e-9)


def test_two_objects_that_differ_in_two_concepts_leave_one_bit() -> None:
    entropy = alternatives(PAIRS).entropy
    differ = ~PAIRS.shares_any()
    torch.testing.assert_close(entropy, differ.double())


def test_choosing_rows_keeps_each_with_its_alternatives() -> None:
    every = alternatives(PAIRS)
    rows = torch.tensor([5, 90, 17])
    assert torch.equal(every[rows].objects, every.objects[rows])
    assert torch.equal(every[rows].entropy, every.entropy[rows])


FORMS: list[Scores] = [LinearScores(), QuadraticScores(rank=3)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize(("oracle", "expected"), [(no_binding, 0.0), (object_product, 1.0), (object_table, 1.0)])
def test_oracles_have_the_information_that_made_them(
    oracle: Callable[..., BindingFunction], expected: float, form: Scores
) -> None:
    embeddings = Embeddings(oracle(SPACE, 2, DIM)(PAIRS.values).float(), PAIRS)
    found = binding_information(embeddings, ByScene().split(PAIRS, seed=0), form)
    assert found.ratio == pytest.approx(expected, abs=0.02)  # exact rules; the fit's tolerance
    assert found.bits == pytest.approx(expected * found.entropy.mean().item(), abs=0.02)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_is_memorised_tells_nothing_about_other_scenes(form: Scores) -> None:
    embeddings = Embeddings(scene_table(SPACE, 2, DIM)(PAIRS.values).float(), PAIRS)
    # What chance gained on the few validation scenes is lost on test, so the bound may fall below zero; never above.
    assert binding_information(embeddings, ByScene().split(PAIRS, seed=0), form).ratio < 0.05


@pytest.mark.parametrize("world", ["triples", "ragged"])
def test_a_sum_of_values_has_none_and_a_sum_of_objects_all_whatever_their_number(world: str) -> None:
    scenes = WORLDS[world]
    split = ByScene().split(scenes, seed=0)
    for oracle, expected in ((no_binding, 0.0), (object_table, 1.0)):
        embeddings = Embeddings(oracle(scenes.space, 3, DIM)(scenes.values).float(), scenes)
        assert binding_information(embeddings, split).ratio == pytest.approx(expected, abs=0.02)


def noisy(noise: float) -> Embeddings:
    vectors = object_table(SPACE, 2, DIM)(PAIRS.values)
    return Embeddings((vectors + noise * torch.randn(vectors.shape, generator=generator())).float(), PAIRS)


def test_noise_takes_information_away_and_no_vector_holds_more_than_there_is() -> None:
    split = ByScene().split(PAIRS, seed=0)
    found = [binding_information(noisy(noise), split) for noise in (0.0, 5.0, 100.0)]
    ratios = [one.ratio for one in found]
    assert ratios[0] > 0.95 > ratios[1] > 0.1 > ratios[2]
    for one in found:
        assert (one.left >= 0).all()
        assert one.bits <= one.entropy.mean().item()
        assert torch.equal(one.rows, split.test)


def test_what_is_left_untold_is_the_cross_entropy_of_the_true_set() -> None:
    """A read-out that ignores the vector leaves the entropy itself, on every row."""
    embeddings = Embeddings(torch.ones(len(PAIRS), 4), PAIRS)
    found = binding_information(embeddings, ByScene().split(PAIRS, seed=0))
    torch.testing.assert_close(found.left, found.entropy, rtol=0, atol=1e-6)  # single precision
    assert found.bits == pytest.approx(0, abs=1e-6)


def test_rotation_and_scale_change_no_information() -> None:
    plain, split = noisy(2.0), ByScene().split(PAIRS, seed=0)
    turn = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator(3)))[0]
    turned = Embeddings(30 * plain.vectors @ turn, PAIRS)
    first, second = (binding_information(e, split).bits for e in (plain, turned))
    assert first == pytest.approx(second, abs=0.02)  # the same convex problem, stopped at its tolerance


def test_quadratic_scores_equal_their_formula() -> None:
    space = ConceptSpace(color=3, shape=2, size=2)
    form = QuadraticScores(rank=4)
    read = torch.randn(5, form.queries(space), generator=generator(), dtype=torch.float64)
    linear, factors = read[:, :12], read[:, 12:].reshape(5, 7, 4)  # value, rank
    found = form.scores(read, space)
    for number, values in enumerate(space.object_values(torch.arange(12)).tolist()):
        product: Tensor = torch.ones(5, 4, dtype=torch.float64)
        for start, value in zip((0, 3, 5), values, strict=True):
            product = product * factors[:, start + value]
        torch.testing.assert_close(found[:, number], linear[:, number] + product.sum(1))


def test_a_quadratic_read_out_finds_a_binding_that_no_linear_one_can() -> None:
    """The sign of a vector carries nothing, its square all: x = sign * (code of the set), linear scores cancel."""
    space = ConceptSpace(color=2, shape=2)
    pairs = space.all_scenes(2)
    scenes = Scenes.join([pairs[~pairs.shares_any()]] * 60)
    bound = object_table(space, 2, 6)(scenes.values)
    sign = torch.randint(2, (len(scenes), 1), generator=generator()) * 2.0 - 1
    noise = 0.02 * torch.randn(bound.shape, generator=generator(1), dtype=torch.float64)
    embeddings = Embeddings(((bound + noise) * sign).float(), scenes)
    order = torch.randperm(len(scenes), generator=generator(2))
    split = Split(order[:120].sort().values, order[120:180].sort().values, order[180:].sort().values, "by row")
    assert binding_information(embeddings, split).ratio < 0.1
    assert binding_information(embeddings, split, QuadraticScores()).ratio > 0.9


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "scenes", [SPACE.all_scenes(1), ConceptSpace(color=9).all_scenes(2), ConceptSpace(color=6, shape=1).all_scenes(2)]
)
def test_where_values_tell_all_there_is_nothing_to_measure(scenes: Scenes) -> None:
    embeddings = Embeddings(torch.randn(len(scenes), 5, generator=generator()), scenes)
    with pytest.raises(ValueError, match="no binding to measure"):
        binding_information(embeddings, ByScene().split(scenes, seed=0))


def test_without_validation_there_is_nothing_to_choose_on() -> None:
    with pytest.raises(ValueError, match="use a split with a validation part"):
        binding_information(noisy(0.0), ByScene(validation=0.0).split(PAIRS, seed=0))


@pytest.mark.parametrize("told", [True, False])
def test_axes_along_which_all_tokens_are_alike_are_no_number_that_is_none(told: bool) -> None:
    scenes = ConceptSpace(color=4, shape=4).all_scenes(slots=2)
    tokens = torch.nn.functional.one_hot(scenes.objects, 16).float() * told  # never used axes: columns of zeros
    tokens = torch.cat([tokens, torch.ones(*tokens.shape[:2], 2), torch.zeros(*tokens.shape[:2], 2)], dim=2)
    mask = torch.ones(tokens.shape[:2], dtype=torch.bool)
    split = ByScene().split(scenes, seed=0)
    ratio = attention_information(tokens, mask, scenes, split).ratio
    assert ratio == pytest.approx(float(told), abs=0.05)


def test_tokens_that_are_all_alike_tell_nothing():
    scenes = ConceptSpace(color=4, shape=4).all_scenes(2)
    mask = torch.ones(len(scenes), 2, dtype=torch.bool)
    split = ByScene().split(scenes, seed=0)
    told = attention_information(torch.ones(len(scenes), 2, 5), mask, scenes, split, steps=60)
    assert told.ratio == pytest.approx(0, abs=0.05)
