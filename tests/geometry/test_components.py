"""Decompositions against numpy on explicit designs, averages against slow loops, and the laws that join them."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.binding import no_binding, object_table
from colligate.embeddings import Embeddings
from colligate.geometry.components import (
    Decomposition,
    Design,
    Estimator,
    Parts,
    decompose,
)
from colligate.geometry.objects import object_squares, objects_from_concepts
from colligate.scenes.space import ConceptSpace, Scenes

SPACE = ConceptSpace(color=4, shape=3)
FULL = SPACE.all_scenes(2)
PARTS: list[Parts] = ["concept", "object"]
BOTH = (False, True)
FEW = settings(max_examples=6)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_vectors(scenes: Scenes, dim: int = 5, seed: int = 0) -> Embeddings:
    """Structure and noise, with a mean far from zero."""
    structure = object_table(scenes.space, scenes.slots, dim, seed, positions="own")(scenes.values)
    noise = torch.randn(structure.shape, generator=generator(seed), dtype=torch.float64)
    return Embeddings(structure + noise + 10, scenes)


def worlds() -> dict[str, Scenes]:
    draw = generator()
    mixed = [SPACE.sample_scenes(num, slots, generator=draw) for num, slots in ((150, 2), (60, 3))]
    return {
        "full": FULL,
        "excluding": FULL[~FULL.shares_any()],
        "ragged": Scenes.join([SPACE.all_scenes(1), *mixed]),
        "replicates": Scenes.join([FULL, FULL[:50], FULL[20:60]]),
        "three": SPACE.sample_scenes(200, 3, generator=draw),
        "single": SPACE.all_scenes(1),
    }


WORLDS = worlds()


def explicit_design(scenes: Scenes, parts: str, positions: bool) -> np.ndarray:
    """One-hot columns, written out: an intercept for each number of objects, then a column for each part."""
    space = scenes.space
    if parts == "object":
        names: list[Any] = list(product(*map(range, space.sizes)))
    else:
        names = [(c, v) for c, size in enumerate(space.sizes) for v in range(size)]
    where = {(k, name): i for i, (k, name) in enumerate(product(range(scenes.slots) if positions else [0], names))}
    counts = sorted(set(scenes.counts.tolist()))
    rows = np.zeros((len(scenes), len(counts) + len(where)))
    for row, values in enumerate(scenes.values.tolist()):
        rows[row, counts.index(int(scenes.counts[row]))] = 1
        for k, held in enumerate(values):
            if held[0] < 0:
                continue
            for name in [tuple(held)] if parts == "object" else list(enumerate(held)):
                rows[row, len(counts) + where[k if positions else 0, name]] += 1
    return rows


def centred_within_counts(vectors: np.ndarray, scenes: Scenes) -> np.ndarray:
    left = vectors.copy()
    for count in set(scenes.counts.tolist()):
        rows = (scenes.counts == count).numpy()
        left[rows] -= left[rows].mean(0)
    return left


# ------------------------------------------------------------------------------------------------ least squares


@pytest.mark.parametrize("positions", BOTH)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("world", WORLDS)
def test_least_squares_equals_numpy_on_the_explicit_design(world: str, parts: Parts, positions: bool) -> None:
    embeddings = random_vectors(WORLDS[world])
    design, vectors = explicit_design(embeddings.scenes, parts, positions), embeddings.vectors.numpy()
    solution, _, rank, _ = np.linalg.lstsq(design, vectors, rcond=1e-10)
    found = decompose(embeddings, parts=parts, positions=positions)
    assert found.rank == rank
    # Fitted values are unique even where components aren't.
    np.testing.assert_allclose(found.predict(embeddings.scenes).numpy(), design @ solution, atol=1e-9)
    errors = ((vectors - design @ solution) ** 2).sum()
    totals = (centred_within_counts(vectors, embeddings.scenes) ** 2).sum()
    assert found.r2(embeddings) == pytest.approx(1 - errors / totals, abs=1e-10)


@pytest.mark.parametrize("parts", PARTS)
def test_on_held_out_rows_predictions_are_numpys_and_the_centre_is_the_fit_parts(parts: Parts) -> None:
    embeddings = random_vectors(FULL)
    order = torch.randperm(len(FULL), generator=generator())
    fit, test = order[:100], order[100:]
    design, vectors = explicit_design(FULL, parts, True), embeddings.vectors.numpy()
    solution = np.linalg.lstsq(design[fit], vectors[fit], rcond=1e-10)[0]
    found = decompose(embeddings, fit, parts=parts, positions=True)
    np.testing.assert_allclose(found.predict(FULL[test]).numpy(), design[test] @ solution, atol=1e-9)
    errors = ((vectors[test] - design[test] @ solution) ** 2).sum()
    totals = ((vectors[test] - vectors[fit].mean(0)) ** 2).sum()
    assert found.r2(embeddings[test]) == pytest.approx(1 - errors / totals, abs=1e-10)


def test_half_precision_is_summed_in_full() -> None:
    embeddings = random_vectors(FULL)
    half = Embeddings(embeddings.vectors.half(), FULL)
    exact = Embeddings(half.vectors.double(), FULL)
    assert decompose(half).r2(half) == pytest.approx(decompose(exact).r2(exact), abs=1e-12)


def test_blocks_of_scenes_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = random_vectors(WORLDS["ragged"])
    before = [decompose(embeddings, estimator=e).components for e in ("least_squares", "avg", "avg.set")]
    monkeypatch.setattr("colligate.geometry.components.BLOCK", 7)
    after = [decompose(embeddings, estimator=e) for e in ("least_squares", "avg", "avg.set")]
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other.components)
    assert after[0].r2(embeddings) == pytest.approx(decompose(embeddings).r2(embeddings))


# ------------------------------------------------------------------------------------------------ averages


def averages_by_loops(
    embeddings: Embeddings, parts: str, positions: bool, once: bool
) -> dict[tuple[Any, ...], np.ndarray]:
    scenes, centred = embeddings.scenes, centred_within_counts(embeddings.vectors.numpy(), embeddings.scenes)
    found: dict[tuple[Any, ...], list[np.ndarray]] = {}
    for row, values in enumerate(scenes.values.tolist()):
        seen = set()
        for k, held in enumerate(values):
            if held[0] < 0:
                continue
            for name in [("object", *held)] if parts == "object" else [(c, v) for c, v in enumerate(held)]:
                key = (k if positions else 0, *name)
                if not (once and key in seen):
                    found.setdefault(key, []).append(centred[row])
                seen.add(key)
    return {key: np.mean(rows, axis=0) for key, rows in found.items()}


@pytest.mark.parametrize("once", BOTH)
@pytest.mark.parametrize("positions", BOTH)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("world", ["excluding", "ragged", "replicates"])
def test_averages_equal_slow_loops(world: str, parts: Parts, positions: bool, once: bool) -> None:
    embeddings = random_vectors(WORLDS[world])
    found = decompose(embeddings, parts=parts, positions=positions, estimator="avg.set" if once else "avg")
    expected = averages_by_loops(embeddings, parts, positions, once)
    for (slot, *name), vector in expected.items():
        if parts == "object":
            place = int(SPACE.object_ids(torch.tensor(name[1:])))
        else:
            place = sum(SPACE.sizes[: name[0]]) + name[1]
        np.testing.assert_allclose(found.components[slot * found.design.per_slot + place].numpy(), vector, atol=1e-10)
    assert int(torch.isfinite(found.components).all(1).sum()) == len(expected)


@pytest.mark.parametrize("positions", BOTH)
@pytest.mark.parametrize("parts", PARTS)
def test_in_a_full_factorial_averages_are_least_squares(parts: Parts, positions: bool) -> None:
    embeddings = random_vectors(FULL)
    best = decompose(embeddings, parts=parts, positions=positions)
    average = decompose(embeddings, parts=parts, positions=positions, estimator="avg")
    torch.testing.assert_close(average.predict(FULL), best.predict(FULL), rtol=1e-9, atol=1e-9)
    if not positions:  # a scene with the part in both slots counts once: no longer the best fit
        assert decompose(embeddings, parts=parts, estimator="avg.set").r2(embeddings) < best.r2(embeddings) - 1e-6


@pytest.mark.parametrize("estimator", ["avg", "avg.set"])
@pytest.mark.parametrize("world", ["excluding", "ragged", "three"])
def test_nothing_beats_least_squares_where_it_was_fitted(world: str, estimator: Estimator) -> None:
    embeddings = random_vectors(WORLDS[world])
    for parts in PARTS:
        best = decompose(embeddings, parts=parts).r2(embeddings)
        assert decompose(embeddings, parts=parts, estimator=estimator).r2(embeddings) <= best + 1e-12


def test_richer_designs_explain_no_less() -> None:
    for scenes in WORLDS.values():
        embeddings = random_vectors(scenes)
        r2 = {(p, k): decompose(embeddings, parts=p, positions=k).r2(embeddings) for p in PARTS for k in BOTH}
        for parts in PARTS:
            assert r2[parts, False] <= r2[parts, True] + 1e-10
        for positions in BOTH:
            assert r2["concept", positions] <= r2["object", positions] + 1e-10


def test_single_objects_give_components_from_their_own_mean() -> None:
    alone = random_vectors(SPACE.all_scenes(1), seed=3)
    pairs = random_vectors(FULL)
    found = decompose(pairs, parts="object", estimator="single", singles=alone)
    torch.testing.assert_close(found.components, alone.vectors - alone.vectors.mean(0))
    torch.testing.assert_close(found.means[2], pairs.vectors.mean(0))
    scene = SPACE.scenes([[3, 5]])
    torch.testing.assert_close(found.predict(scene)[0], found.means[2] + found.components[3] + found.components[5])


# ------------------------------------------------------------------------------------------------ laws


def r2s(embeddings: Embeddings) -> list[float]:
    estimators: list[Estimator] = ["least_squares", "avg", "avg.set"]
    return [
        decompose(embeddings, parts=p, positions=k, estimator=e).r2(embeddings)
        for p in PARTS for k in BOTH for e in estimators
    ]  # fmt: skip


@FEW
@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3), far=st.floats(-100, 100))
def test_rotation_scale_and_shift_change_no_r2(seed: int, scale: float, far: float) -> None:
    plain = random_vectors(WORLDS["ragged"], seed=seed)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=generator(seed), dtype=torch.float64))[0]
    assert r2s(Embeddings(scale * plain.vectors @ turn + far, plain.scenes)) == pytest.approx(r2s(plain), abs=1e-8)


def test_a_shift_within_each_number_of_objects_changes_no_r2() -> None:
    plain = random_vectors(WORLDS["ragged"])
    shift = torch.randn(4, 5, generator=generator(5), dtype=torch.float64) * 50
    moved = Embeddings(plain.vectors + shift[plain.scenes.counts], plain.scenes)
    assert r2s(moved) == pytest.approx(r2s(plain), abs=1e-8)


@FEW
@given(order=st.permutations(range(4)))
def test_relabelling_values_permutes_components(order: list[int]) -> None:
    plain = random_vectors(WORLDS["ragged"])
    values = plain.scenes.values.clone()
    names = torch.tensor(order)
    values[..., 0] = torch.where(values[..., 0] >= 0, names[values[..., 0].clamp(min=0)], -1)
    renamed = Embeddings(plain.vectors, Scenes(SPACE, values))
    estimators: list[Estimator] = ["least_squares", "avg", "avg.set"]
    for estimator in estimators:
        first, second = (decompose(e, estimator=estimator) for e in (plain, renamed))
        torch.testing.assert_close(second.components[names], first.components[:4], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(second.components[4:], first.components[4:], rtol=1e-8, atol=1e-8)


def test_exchanging_slots_exchanges_their_tables_and_nothing_else() -> None:
    plain = random_vectors(FULL)
    turned = Embeddings(plain.vectors, FULL.twins())
    for parts in PARTS:
        first, second = (decompose(e, parts=parts, positions=True, estimator="avg").components for e in (plain, turned))
        torch.testing.assert_close(second, first.unflatten(0, (2, -1)).flip(0).flatten(0, 1))
        shared = [decompose(e, parts=parts).components for e in (plain, turned)]
        torch.testing.assert_close(shared[0], shared[1])


def test_the_order_of_rows_does_not_matter() -> None:
    plain = random_vectors(WORLDS["ragged"])
    order = torch.randperm(len(plain), generator=generator())
    for parts in PARTS:
        torch.testing.assert_close(
            decompose(plain[order], parts=parts).predict(FULL.padded(3)),
            decompose(plain, parts=parts).predict(FULL.padded(3)),
        )


def test_oracles_have_the_components_that_made_them() -> None:
    rule = no_binding(SPACE, 2, 8)
    embeddings = Embeddings(rule(FULL.values), FULL)
    found = decompose(embeddings)
    for start, end in ((0, 4), (4, 7)):
        own = rule.sum.weight[start:end]
        torch.testing.assert_close(found.components[start:end], own - own.mean(0))
    assert found.r2(embeddings) == pytest.approx(1)


# ------------------------------------------------------------------------------------------------ objects from concepts


def test_objects_from_concepts_is_a_regression_of_the_components() -> None:
    components = torch.randn(12, 6, generator=generator(), dtype=torch.float64)
    rule = object_table(SPACE, 2, 6)
    rule.weight.copy_(components[None])
    embeddings = Embeddings(rule(FULL.values), FULL)
    design = explicit_design(SPACE.all_scenes(1), "concept", False)
    fitted = design @ np.linalg.lstsq(design, components.numpy(), rcond=1e-10)[0]
    centred = components.numpy() - components.numpy().mean(0)
    expected = 1 - ((components.numpy() - fitted) ** 2).sum() / (centred**2).sum()
    for positions in BOTH:
        found = decompose(embeddings, parts="object", positions=positions)
        assert objects_from_concepts(found) == pytest.approx(expected, abs=1e-9)
    additive = Embeddings(no_binding(SPACE, 2, 6)(FULL.values), FULL)
    assert objects_from_concepts(decompose(additive, parts="object")) == pytest.approx(1)
    with pytest.raises(ValueError, match="parts='object'"):
        objects_from_concepts(decompose(additive, parts="concept"))


# ------------------------------------------------------------------------------------------------ retrieval


@pytest.mark.parametrize("positions", BOTH)
@pytest.mark.parametrize("world", ["ragged", "replicates", "excluding"])
def test_reconstructions_are_looked_up_among_all_scenes_by_cosine(
    world: str, positions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    embeddings = random_vectors(WORLDS[world])
    scenes, rows = embeddings.scenes, torch.arange(0, len(WORLDS[world]), 2)
    for parts in PARTS:
        decomposition = decompose(embeddings, parts=parts, positions=positions)
        found = decomposition.retrieve(embeddings, rows)
        predicted = decomposition.predict(scenes[rows])
        cosines = torch.cosine_similarity(predicted[:, None], embeddings.vectors[None], dim=2)
        assert (found.tied == 1).all()
        assert torch.equal(found.top, cosines.argmax(1))
        for column, ids in enumerate((scenes.ids, scenes.unordered_ids)):
            assert torch.equal(found.hits[:, column] == 1, ids[found.top] == ids[rows])
        monkeypatch.setattr("colligate.geometry.components.SCORES_AT_ONCE", 1)
        assert torch.equal(decomposition.retrieve(embeddings, rows).top, found.top)
        monkeypatch.undo()


def test_a_scene_and_its_twin_share_the_hit_where_nothing_tells_them_apart() -> None:
    embeddings = Embeddings(object_table(SPACE, 2, 16)(FULL.values), FULL)
    found = decompose(embeddings, parts="object").retrieve(embeddings, torch.arange(len(FULL)))
    alone = FULL.objects[:, 0] == FULL.objects[:, 1]
    torch.testing.assert_close(found.hits[:, 0], torch.where(alone, 1.0, 0.5).double())
    assert (found.hits[:, 1] == 1).all()


# ------------------------------------------------------------------------------------------------ bad input


def without(object_id: int) -> tuple[Embeddings, torch.Tensor]:
    return random_vectors(FULL), (FULL.objects != object_id).all(1).nonzero()[:, 0]


@pytest.mark.parametrize("estimator", ["least_squares", "avg", "avg.set"])
def test_a_part_the_fit_part_never_showed_is_named(estimator: Estimator) -> None:
    embeddings, fit = without(7)
    found = decompose(embeddings, fit, parts="object", estimator=estimator)
    assert torch.isfinite(found.predict(FULL[fit])).all()
    for use in (lambda: found.predict(FULL), lambda: found.sum_of_parts(FULL), lambda: found.r2(embeddings)):
        with pytest.raises(ValueError, match="never shows object 'color2 shape1', so its component is unknown"):
            use()


def test_a_part_unknown_in_one_slot_is_named_with_it() -> None:
    embeddings = random_vectors(FULL)
    fit = (FULL.values[:, 1, 0] != 3).nonzero()[:, 0]
    with pytest.raises(ValueError, match="never shows color 'color3' in slot 2"):
        decompose(embeddings, fit, positions=True).predict(FULL)
    assert decompose(embeddings, fit).r2(embeddings) < 1  # known from slot 1


def test_a_number_of_objects_that_was_not_fitted_is_named() -> None:
    embeddings = random_vectors(WORLDS["ragged"])
    fit = (embeddings.scenes.counts < 3).nonzero()[:, 0]
    with pytest.raises(ValueError, match="No scene of 3 objects was fitted"):
        decompose(embeddings, fit).predict(embeddings.scenes)


def test_single_needs_single_objects_and_no_slots() -> None:
    pairs, alone = random_vectors(FULL), random_vectors(SPACE.all_scenes(1))
    with pytest.raises(ValueError, match="give `singles`"):
        decompose(pairs, estimator="single")
    with pytest.raises(ValueError, match="leave `positions` out"):
        decompose(pairs, estimator="single", positions=True, singles=alone)
    with pytest.raises(ValueError, match="No single-object scene shows object 'color1 shape0'"):
        decompose(pairs, parts="object", estimator="single", singles=alone[alone.scenes.objects[:, 0] != 3])


@pytest.mark.parametrize("scale", [0.1, 1 / 3, 1e6])
def test_a_constant_embedder_has_no_variance_to_explain(scale: float) -> None:
    vectors = (scale * torch.linspace(0.1, 1.3, 7, dtype=torch.float64)).expand(len(FULL), 7)
    embeddings = Embeddings(vectors, FULL)
    for parts in PARTS:
        errors, totals = decompose(embeddings, parts=parts).squares(embeddings)
        assert totals.sum() == 0
        assert errors.sum() < 1e-20 * scale**2
    squares = object_squares(decompose(embeddings, parts="object"))
    assert squares[1].sum() == 0


def test_one_value_and_one_slot_are_fitted_as_any_others() -> None:
    space = ConceptSpace(color=5, shape=1)
    for slots in (1, 2):
        scenes = space.all_scenes(slots)
        embeddings = Embeddings(no_binding(space, slots, 4)(scenes.values), scenes)
        assert decompose(embeddings).r2(embeddings) == pytest.approx(1)
        assert isinstance(decompose(embeddings, parts="object", positions=True), Decomposition)


def test_designs_say_what_a_column_stands_for() -> None:
    design = Design(SPACE, 2, "concept", positions=True)
    said = [design.describe(column) for column in range(design.size)]
    assert said[0] == "color 'color0' in slot 1"
    assert said[13] == "shape 'shape2' in slot 2"
    assert len(set(said)) == design.size == 14
    names = [Design(SPACE, 2, p, k).name for p in PARTS for k in BOTH]
    assert names == ["concept", "concept+pos", "object", "object+pos"]


def test_a_number_of_objects_that_occurs_once_has_its_own_mean():
    scenes = Scenes.join([FULL, SPACE.all_scenes(1)[:1]])
    embeddings = random_vectors(scenes)
    means = decompose(embeddings, parts="concept", estimator="avg").means
    assert torch.allclose(means[1], embeddings.vectors[-1].double())
    assert torch.isnan(means[0]).all()
