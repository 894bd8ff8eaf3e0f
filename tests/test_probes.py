"""Linear read-outs: the right problem, solved, and judged as the measures say."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from colligate.binding import no_binding, object_product, object_table
from colligate.embeddings import Embeddings
from colligate.fitting import minimise
from colligate.measures import recognise
from colligate.probes import (
    Axes,
    LinearReadouts,
    Probes,
    ProbeSettings,
    SoftmaxLoss,
    both_right,
    fit_paper_probes,
    fit_probes,
    soft_targets,
    swap_foils,
)
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByScene, PaperScenes, Split

SPACE = ConceptSpace(color=4, shape=3)
SCENES = SPACE.all_scenes(2)
SPLIT = ByScene().split(SCENES, seed=0)
QUICK = ProbeSettings(strengths=(1e-8, 1e-2), max_steps=100)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noisy(seed: int = 0, dim: int = 24) -> Embeddings:
    """Binds, with noise, so that probes make some mistakes."""
    vectors = object_product(SPACE, 2, dim, seed)(SCENES.values)
    return Embeddings(vectors + 1.5 * torch.randn(vectors.shape, generator=generator(seed)), SCENES)


# ------------------------------------------------------------------------------------------------ the problem


@pytest.fixture
def readouts() -> tuple[LinearReadouts, Tensor]:
    features = torch.randn(30, 6, generator=generator(1)) * torch.logspace(0, -2, 6)
    targets = torch.stack([soft_targets(SCENES.contains(0)[:30], torch.float32)] * 2)
    loss = SoftmaxLoss(targets, torch.tensor([0, 1]))
    problem = LinearReadouts(features, loss, 4, torch.tensor([1e-6, 1e-1]), 1e-3)
    return problem, 0.5 * torch.randn(2, 24, generator=generator(2))


def test_the_gradient_is_that_of_autograd(readouts: tuple[LinearReadouts, Tensor]) -> None:
    problem, parameters = readouts
    members = torch.arange(2)
    leaf = parameters.clone().requires_grad_()
    problem.value(problem.state(leaf, members), leaf, members).sum().backward()
    state = problem.state(parameters, members)
    torch.testing.assert_close(problem.gradient(state, parameters, members), leaf.grad, rtol=1e-4, atol=1e-6)


def test_the_value_is_soft_cross_entropy_plus_the_stated_penalty(readouts: tuple[LinearReadouts, Tensor]) -> None:
    problem, parameters = readouts
    members = torch.arange(2)
    found = problem.value(problem.state(parameters, members), parameters, members)
    second_moment = problem.features.square().mean(0)
    for m, shrinkage in enumerate((1e-6, 1e-1)):
        weights = problem.weights(parameters, members)[m]  # axis, query
        logits = problem.features @ weights
        expected = torch.nn.functional.cross_entropy(logits, soft_targets(SCENES.contains(0)[:30], torch.float32))
        energy = (weights.square() * (second_moment + shrinkage)[:, None]).sum()
        assert found[m].item() == pytest.approx((expected + 1e-3 / 2 * energy).item(), rel=1e-5)


def test_members_of_the_stack_are_independent(readouts: tuple[LinearReadouts, Tensor]) -> None:
    problem, parameters = readouts
    both = problem.state(parameters, torch.arange(2))
    for m in range(2):
        alone = problem.state(parameters[[m]], torch.tensor([m]))
        torch.testing.assert_close(alone[0], both[m])


def test_the_fit_reaches_the_minimum_that_scipy_finds(readouts: tuple[LinearReadouts, Tensor]) -> None:
    problem, _ = readouts
    found = minimise(problem, torch.zeros(2, 24), max_steps=500)
    features, targets = problem.features.double(), soft_targets(SCENES.contains(0)[:30], torch.float64)
    for m in range(2):
        scale = problem.scale[m].double()[:, None]

        def value(flat: np.ndarray, scale: Tensor = scale) -> float:
            parameters = torch.as_tensor(flat).reshape(6, 4)
            logits = features @ (parameters * scale)
            loss = torch.nn.functional.cross_entropy(logits, targets)
            return (loss + 1e-3 / 2 * parameters.square().sum()).item()

        reference = scipy.optimize.minimize(value, np.zeros(24), method="L-BFGS-B", options={"maxfun": 20000})
        assert found.values[m].item() == pytest.approx(reference.fun, rel=1e-4)


def test_axes_keep_inner_products_up_to_one_scale() -> None:
    vectors = torch.randn(40, 7, generator=generator()) * torch.logspace(0, -1, 7) + 2
    features = Axes.of(vectors).features(vectors)
    size = (vectors.double() - vectors.double().mean(0)).square().sum(1).mean()
    torch.testing.assert_close(features @ features.T, (vectors @ vectors.T) / size.float(), rtol=1e-4, atol=1e-4)
    energy = features.square().sum(0)
    assert (energy.diff() <= 1e-3).all()


# ------------------------------------------------------------------------------------------------ judging


def test_swap_foils_are_the_objects_of_all_swaps_that_were_not_there() -> None:
    space = ConceptSpace(color=2, shape=3, size=2)
    scenes = Scenes.join([space.sample_scenes(30, n, generator=generator(n)) for n in (1, 2, 3)])
    found = swap_foils(scenes)
    for row, values in enumerate(scenes.values.tolist()):
        objects = [tuple(v) for v in values if v[0] >= 0]
        foils = set()
        for i in range(len(objects)):
            for j in range(i):
                for c in range(3):
                    a, b = list(objects[i]), list(objects[j])
                    a[c], b[c] = b[c], a[c]
                    foils |= {tuple(a), tuple(b)}
        expected = {int(space.object_ids(torch.tensor(o))) for o in foils - set(objects)}
        assert set(found[row].nonzero()[:, 0].tolist()) == expected


def test_judging_compares_with_the_right_alternatives() -> None:
    probes = fit_probes(noisy(), SPLIT, QUICK)
    outcomes = probes.recognise(noisy().vectors, SCENES)
    assert probes.objects is not None
    assert outcomes.objects is not None
    assert outcomes.swaps is not None
    foils = swap_foils(SCENES)
    vectors = noisy().vectors.float()
    for row in range(0, len(SCENES), 5):
        for c in range(2):
            scores = (probes.concepts[c] @ vectors[row]).tolist()
            held = set(SCENES.values[row, :, c].tolist())
            best_absent = max(s for v, s in enumerate(scores) if v not in held)
            assert outcomes.concepts[row, c].item() == (min(scores[v] for v in held) > best_absent)
        scores, held = (probes.objects @ vectors[row]).tolist(), set(SCENES.objects[row].tolist())
        lowest = min(scores[o] for o in held)
        assert outcomes.objects[row].item() == (lowest > max(s for o, s in enumerate(scores) if o not in held))
        swapped = foils[row].nonzero()[:, 0].tolist()
        assert outcomes.swaps[row].item() == (bool(swapped) and lowest > max(scores[o] for o in swapped))


def test_objects_that_occur_nowhere_are_no_alternatives() -> None:
    scenes = SCENES[(SCENES.objects != 5).all(1)]
    split = ByScene().split(scenes, seed=0)
    embeddings = Embeddings(object_table(SPACE, 2, 32)(scenes.values), scenes)
    probes = fit_probes(embeddings, split, QUICK)
    assert (~probes.known).nonzero()[:, 0].tolist() == [5]
    scores = probes.scores(embeddings.vectors.float())
    scores[:, sum(SPACE.sizes) + 5] = 1e6
    judged = probes.judge(scores, scenes)
    assert judged.objects is not None
    assert judged.objects[split.test].all()


# ------------------------------------------------------------------------------------------------ fitting


def test_probes_read_what_is_there_and_nothing_else() -> None:
    for oracle, objects in ((object_table, True), (object_product, True), (no_binding, False)):
        embeddings = Embeddings(oracle(SPACE, 2, 32)(SCENES.values).float(), SCENES)
        outcomes = fit_probes(embeddings, SPLIT).recognise(embeddings.vectors[SPLIT.test], SCENES[SPLIT.test])
        assert outcomes.concepts.all()
        assert outcomes.objects is not None
        assert outcomes.objects.all().item() is objects


def test_test_rows_have_no_part_in_the_fit() -> None:
    plain, changed = noisy(), noisy().vectors.clone()
    changed[SPLIT.test] = 0
    first, second = fit_probes(plain, SPLIT, QUICK), fit_probes(Embeddings(changed, SCENES), SPLIT, QUICK)
    assert torch.equal(first.matrix, second.matrix)


def test_rotation_and_scale_of_the_vectors_change_no_outcome() -> None:
    plain = noisy()
    turn = torch.linalg.qr(torch.randn(24, 24, generator=generator(7), dtype=torch.float64))[0]
    changed = Embeddings(50 * plain.vectors @ turn, SCENES)
    first, second = (fit_probes(e, SPLIT, QUICK) for e in (plain, changed))
    assert first.strengths == second.strengths
    # The same minimum in other axes: scores agree to the fit's tolerance, and so do the losses.
    left, right = first.scores(plain.vectors), second.scores(changed.vectors)
    assert (left - right).abs().max() < 0.02 * left.abs().max()
    assert first.losses == pytest.approx(second.losses, rel=1e-3)


def test_relabelling_values_permutes_the_rows_of_the_probe() -> None:
    plain = noisy()
    names = torch.tensor([2, 0, 3, 1])
    values = SCENES.values.clone()
    values[..., 0] = names[values[..., 0]]
    renamed = Embeddings(plain.vectors, Scenes(SPACE, values))
    first, second = (fit_probes(e, SPLIT, QUICK) for e in (plain, renamed))
    torch.testing.assert_close(second.concepts[0][names], first.concepts[0], rtol=0.01, atol=0.01)
    torch.testing.assert_close(second.concepts[1], first.concepts[1], rtol=0.01, atol=0.01)


def test_the_strength_chosen_is_the_best_on_validation() -> None:
    """What tells objects apart lies in small directions beside three loud ones: shrinking towards those must lose."""
    loud = 40 * torch.randn(len(SCENES), 3, generator=generator(3)) @ torch.randn(3, 24, generator=generator(5))
    vectors = object_table(SPACE, 2, 24)(SCENES.values) + loud
    embeddings = Embeddings(vectors + 0.5 * torch.randn(vectors.shape, generator=generator(4)), SCENES)
    strengths, validation, hits = (1.0, 1e-4), SPLIT.validation, dict[float, float]()
    for strength in strengths:
        alone = fit_probes(embeddings, SPLIT, ProbeSettings(strengths=(strength,), penalty=3e-5))
        outcomes = alone.recognise(embeddings.vectors[validation], SCENES[validation])
        assert outcomes.objects is not None
        hits[strength] = outcomes.objects.double().mean().item()
    assert hits[1.0] < 0.4
    assert hits[1e-4] > 0.8
    assert fit_probes(embeddings, SPLIT, ProbeSettings(strengths=strengths, penalty=3e-5)).strengths["object"] == 1e-4


def test_the_paper_protocol_follows_its_seeds_and_learns() -> None:
    embeddings = Embeddings(object_table(SPACE, 2, 32)(SCENES.values).float(), SCENES)
    split = PaperScenes(0.7).split(SCENES, seed=0)
    settings = ProbeSettings(protocol="paper", paper_steps=150)
    together = fit_paper_probes(embeddings, split, [0, 1], settings)
    alone = [fit_probes(embeddings, split, replace(settings, seed=seed)) for seed in (0, 1)]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one.matrix, other.matrix, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(together[0].matrix, together[1].matrix, atol=0.05)
    judged = together[0].recognise(embeddings.vectors, SCENES)
    assert judged.concepts.double().mean() > 0.95


def test_the_paper_protocol_takes_the_steps_of_adam_on_the_sum_of_losses() -> None:
    embeddings = noisy()
    split = PaperScenes(0.7).split(SCENES, seed=0)
    steps = 5
    found = fit_probes(embeddings, split, ProbeSettings(protocol="paper", paper_steps=steps))
    draw = generator(0)
    bound = embeddings.dim**-0.5
    layers = [
        (((torch.rand(size, embeddings.dim, generator=draw) * 2 - 1) * bound).requires_grad_(), present)
        for size, present in ((4, SCENES.contains(0)), (3, SCENES.contains(1)), (12, SCENES.contains_objects()))
    ]
    optimiser = torch.optim.Adam([weight for weight, _ in layers], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    vectors = embeddings.vectors.float()[split.fit]
    for _ in range(steps):
        optimiser.zero_grad()
        losses = [
            torch.nn.functional.cross_entropy(vectors @ weight.T, soft_targets(present[split.fit], torch.float32))
            for weight, present in layers
        ]
        torch.stack(losses).sum().backward()
        optimiser.step()
        schedule.step()
    torch.testing.assert_close(found.matrix, torch.cat([weight.detach() for weight, _ in layers]), rtol=1e-3, atol=1e-5)


# ------------------------------------------------------------------------------------------------ bad input


def only(rows: Tensor) -> Split:
    rest = torch.tensor([row for row in range(len(SCENES)) if row not in set(rows.tolist())])
    return Split(rows, rest[::2], rest[1::2], "by hand")


def test_what_the_fit_part_never_shows_is_named() -> None:
    without_value = only((SCENES.values[..., 1] != 2).all(1).nonzero()[:, 0])
    with pytest.raises(ValueError, match="never shows shape 'shape2'"):
        fit_probes(noisy(), without_value, QUICK)
    without_object = only((SCENES.objects != 7).all(1).nonzero()[:, 0])
    with pytest.raises(ValueError, match="never shows the object 'color2 shape1'"):
        fit_probes(noisy(), without_object, QUICK)
    assert fit_probes(noisy(), without_object, replace(QUICK, objects=False)).objects is None


def test_without_validation_there_is_nothing_to_choose_on() -> None:
    split = ByScene(validation=0.0).split(SCENES, seed=0)
    with pytest.raises(ValueError, match="no validation part"):
        fit_probes(noisy(), split)
    assert isinstance(fit_probes(noisy(), split, ProbeSettings(strengths=(1e-4,))), Probes)


def test_a_constant_embedder_is_read_at_no_more_than_a_guess() -> None:
    for constant in (torch.zeros(8), torch.linspace(0.1, 1e4, 8)):
        embeddings = Embeddings(constant.expand(len(SCENES), 8), SCENES)
        probes = fit_probes(embeddings, SPLIT, QUICK)
        assert torch.isfinite(probes.matrix).all()
        outcomes = probes.recognise(embeddings.vectors, SCENES)
        assert outcomes.objects is not None
        assert outcomes.objects.sum() <= 3  # one guess a, b: right for (a, b), (b, a) and (a, a)


def test_a_concept_of_one_value_is_always_recognised() -> None:
    space = ConceptSpace(color=4, shape=1)
    scenes = space.all_scenes(2)
    embeddings = Embeddings(object_table(space, 2, 16)(scenes.values), scenes)
    probes = fit_probes(embeddings, ByScene().split(scenes, seed=0), QUICK)
    assert probes.recognise(embeddings.vectors, scenes).concepts[:, 1].all()


def test_strengths_compared_on_some_scenes_end_at_the_optimum_of_all():
    scenes = ConceptSpace(color=5, shape=4).all_scenes(slots=2)
    embeddings = Embeddings(object_product(scenes.space, 2, 48)(scenes.values).float(), scenes)
    split = ByScene().split(scenes, seed=0)
    settings = ProbeSettings(strengths=(1e-2,), tolerance=1e-6)
    whole = fit_probes(embeddings, split, settings)
    screened = fit_probes(embeddings, split, replace(settings, screened=60))
    assert screened.strengths == whole.strengths
    for name in whole.losses:
        assert screened.losses[name] == pytest.approx(whole.losses[name], rel=1e-4)


def test_a_value_that_no_scene_shows_is_no_alternative():
    space = ConceptSpace(color=3, shape=2)
    scenes = space.all_scenes(slots=2)
    without = scenes[~scenes.contains(0)[:, 2]]
    embeddings = Embeddings(object_product(space, 2, 32)(without.values).float(), without)
    split = ByScene().split(without, seed=0)
    probes = fit_probes(embeddings, split)
    assert probes.shown is not None
    assert probes.shown.tolist() == [True, True, False, True, True]
    scores = probes.scores(embeddings.vectors)
    scores[:, 2] = 1e6
    assert probes.judge(scores, without).concepts[:, 0].float().mean() > 0.9


def test_a_value_that_the_fit_part_lacks_is_named_but_for_the_papers_protocol():
    scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
    embeddings = Embeddings(object_product(scenes.space, 2, 32)(scenes.values).float(), scenes)
    has = scenes.contains(0)[:, 2]
    split = Split((~has).nonzero()[:, 0], torch.tensor([], dtype=torch.int64), has.nonzero()[:, 0], "given")
    strict = ProbeSettings(objects=False, strengths=(1e-4,))
    with pytest.raises(ValueError, match="The fit part never shows color 'color2', so no probe can learn it"):
        fit_probes(embeddings, split, strict)
    assert fit_probes(embeddings, split, replace(strict, protocol="paper", paper_steps=3)).concepts[0].shape[0] == 3


# ------------------------------------------------------------------------------------------------ swaps both ways


def test_biases_of_objects_win_half_of_swaps_but_never_a_scene_and_its_swap() -> None:
    scenes = ConceptSpace(color=6, shape=6).all_scenes(2)
    favoured = torch.rand(36, generator=generator(), dtype=torch.float64)
    # The best that scores can do which are the same for a scene and its swap: favour the scene that comes first.
    scores = favoured.expand(len(scenes), -1).clone()
    swapped = scenes.swap(0)
    first = torch.minimum(scenes.unordered_ids, swapped.unordered_ids)
    chosen = torch.where((scenes.unordered_ids == first)[:, None], scenes.objects, swapped.objects)
    scores.scatter_add_(1, chosen, torch.full(chosen.shape, 2.0, dtype=torch.float64))
    different = ~scenes.shares_any()
    foils = swap_foils(scenes)
    won = recognise(scores, scenes.contains_objects(), foils).hits[different].double().mean()
    assert won.item() == pytest.approx(0.5)
    found = both_right(scores, scenes, torch.arange(len(scenes)), torch.ones(len(scenes), dtype=torch.bool))
    assert (found.swaps > 0).equal(different)
    assert found.hits.sum() == 0
    assert found.chance[different].tolist() == pytest.approx([1 / 36] * int(different.sum()))


def test_a_swap_among_the_scenes_fitted_on_is_not_counted() -> None:
    scenes = SPACE.all_scenes(2)
    present = scenes.contains_objects().double()
    unfitted = torch.zeros(len(scenes), dtype=torch.bool)
    row = int((~scenes.shares_any()).nonzero()[0])
    every = both_right(present, scenes, torch.tensor([row]), ~unfitted)
    assert (every.hits.item(), every.swaps.item()) == (1, 2)  # either concept exchanged, to the same scene or its twin
    assert both_right(present, scenes, torch.tensor([row]), unfitted).swaps.item() == 0


def test_independent_noise_is_right_both_ways_as_often_as_chance_says() -> None:
    scenes = ConceptSpace(color=8, shape=8).all_scenes(2)
    scores = torch.rand(len(scenes), 64, generator=generator(), dtype=torch.float64)
    found = both_right(scores, scenes, torch.arange(len(scenes)), torch.ones(len(scenes), dtype=torch.bool))
    counted = found.swaps > 0
    # About 1,600 independent pairs at 1 / 36: three standard errors are 0.013.
    assert found.hits[counted].mean().item() == pytest.approx(1 / 36, abs=0.013)


def test_an_empty_slot_has_no_swap() -> None:
    scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3, -1], [-1, 1, 2], [0, -1, -1]])
    present = scenes.contains_objects().double()
    found = both_right(present, scenes, torch.arange(3), torch.ones(3, dtype=torch.bool))
    assert found.hits.tolist() == [1, 1, 0]
    assert found.swaps.tolist() == [2, 2, 0]
