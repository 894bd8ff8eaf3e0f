"""Edits against explicit vectors and brute-force cosines; removal against what an additive oracle must leave."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colligate.binding import no_binding, object_product, object_table
from colligate.embeddings import Embeddings
from colligate.geometry import interventions
from colligate.geometry.components import Parts, decompose
from colligate.geometry.interventions import (
    MISSES,
    Editor,
    Edits,
    classify_misses,
    concept_edits,
    interference,
    object_edits,
    retrieve_edits,
)
from colligate.geometry.removal import permute_names, remove
from colligate.scenes.space import ConceptSpace, Scenes

SPACE = ConceptSpace(color=4, shape=3)
FULL = SPACE.all_scenes(2)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


RAGGED = Scenes.join([FULL, SPACE.sample_scenes(80, 3, generator=generator()), FULL[:10]])


def random_vectors(scenes: Scenes, dim: int = 7, seed: int = 0) -> Embeddings:
    structure = object_table(scenes.space, scenes.slots, dim, seed, positions="own")(scenes.values)
    return Embeddings(structure + torch.randn(structure.shape, generator=generator(seed), dtype=torch.float64), scenes)


def listed(edits: Edits) -> list[tuple[int, int, int]]:
    return list(zip(edits.base.tolist(), edits.slot.tolist(), edits.target.tolist(), strict=True))


def by_enumeration(scenes: Scenes, concepts: list[int]) -> set[tuple[int, int, int]]:
    """Every (base row, slot, first row of the target) in which all the given concepts change, and no others."""
    rows: dict[str, int] = {}
    values = scenes.values.tolist()
    for row, scene in enumerate(values):
        rows.setdefault(str(scene), row)
    found = set()
    for row, scene in enumerate(values):
        for slot, held in enumerate(scene):
            if held[0] < 0:
                continue
            for new in SPACE.object_values(torch.arange(12)).tolist():
                if any((new[c] == held[c]) is (c in concepts) for c in range(2)):
                    continue
                target = rows.get(str([new if k == slot else old for k, old in enumerate(scene)]))
                if target is not None:
                    found.add((row, slot, target))
    return found


# ------------------------------------------------------------------------------------------------ which edits there are


@pytest.mark.parametrize("scenes", [FULL, RAGGED, FULL[~FULL.shares_any()]], ids=["full", "ragged", "excluding"])
def test_edits_are_all_changes_whose_target_exists(scenes: Scenes) -> None:
    for concept in range(2):
        found = listed(concept_edits(scenes, concept))
        assert len(found) == len(set(found))
        assert set(found) == by_enumeration(scenes, [concept])
    found = listed(object_edits(scenes))
    assert len(found) == len(set(found))
    assert set(found) == by_enumeration(scenes, [0, 1])


def test_a_budget_draws_edits_each_as_likely_as_any_other() -> None:
    every = concept_edits(FULL, 0)
    part, again, other = (every.draw(50, seed) for seed in (0, 0, 1))
    assert listed(part) == listed(again) != listed(other)
    assert len(part) == 50
    assert set(listed(part)) < set(listed(every))
    assert len(part.base.unique()) > 25
    assert every.draw(len(every), 0) is every
    taken = torch.zeros(len(every))
    for seed in range(400):
        taken += torch.isin(_keys(every), _keys(every.draw(len(every) // 4, seed)))
    assert (taken / 400 - 0.25).abs().max() < 5 * (0.25 * 0.75 / 400) ** 0.5


def _keys(edits: Edits) -> Tensor:
    return (edits.base * 10 + edits.slot) * 10_000 + edits.target


@pytest.mark.parametrize("part", ["all", "half"])
def test_too_many_object_edits_are_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    rows = torch.arange(len(FULL)) if part == "all" else torch.arange(0, len(FULL), 2)
    every = set(listed(object_edits(FULL, rows=rows)))
    monkeypatch.setattr(interventions, "MOST_LISTED", 0)
    few = object_edits(FULL, budget=30, rows=rows)
    assert len(few) == len(set(listed(few))) == 30
    assert set(listed(few)) <= every
    assert len(few.base.unique()) > 15
    assert set(listed(object_edits(FULL, budget=len(every), rows=rows))) == every


def test_within_keeps_edits_that_stay_in_the_part() -> None:
    rows = torch.arange(0, len(FULL), 2)
    inside = set(rows.tolist())
    every = concept_edits(FULL, 0)
    expected = [e for e in listed(every) if e[0] in inside and e[2] in inside]
    assert listed(every.within(rows)) == expected
    assert 0 < len(expected) < len(every)


def test_shared_says_which_values_the_base_scene_holds_twice() -> None:
    edits = concept_edits(RAGGED, 1)
    for (base, _, _), shared in zip(listed(edits), edits.shared.tolist(), strict=True):
        held = [v for v in RAGGED.values[base].tolist() if v[0] >= 0]
        assert shared == [len({v[c] for v in held}) < len(held) for c in range(2)]


# ------------------------------------------------------------------------------------------------ what an edit does


def editors(embeddings: Embeddings, strength: float = 1.0) -> dict[str, Editor]:
    of: list[tuple[Parts, bool]] = [("concept", False), ("concept", True), ("object", False), ("object", True)]
    found = {f"{p}{k}": Editor(decompose(embeddings, parts=p, positions=k), strength) for p, k in of}
    return found | {
        f"{name} orthogonal": Editor(one.decomposition, strength, orthogonal=True) for name, one in found.items()
    }


def explicit(embeddings: Embeddings, edit: tuple[int, int, int], editor: Editor) -> Tensor:
    """The edited vector, written out."""
    base, slot, target = edit
    design, components = editor.decomposition.design, editor.decomposition.components
    scenes = embeddings.scenes
    before, after = (design.columns(scenes)[row].tolist() for row in (base, target))
    change = sum(components[c] for c in after[slot]) - sum(components[c] for c in before[slot])
    assert isinstance(change, Tensor)
    if editor.orthogonal:
        others = [components[c] for k, part in enumerate(before) if k != slot for c in part if c >= 0]
        other = torch.stack(others).sum(0)
        change = change - (change @ other) / (other @ other) * other
    return embeddings.vectors[base].double() + editor.strength * change


@pytest.mark.parametrize("strength", [1.0, 0.4])
@pytest.mark.parametrize("scenes", [FULL, RAGGED], ids=["full", "ragged"])
def test_every_editor_makes_the_vector_of_its_formula_and_finds_the_nearest(scenes: Scenes, strength: float) -> None:
    embeddings = random_vectors(scenes)
    edits = Edits.draw(concept_edits(scenes, 0), 60, 0)
    ways = editors(embeddings, strength)
    outcomes = retrieve_edits(embeddings, edits, ways)
    for name, editor in ways.items():
        moved = editor.apply(embeddings, edits)
        expected = torch.stack([explicit(embeddings, edit, editor) for edit in listed(edits)])
        torch.testing.assert_close(moved, expected)
        cosines = torch.cosine_similarity(expected[:, None], embeddings.vectors[None], dim=2)
        nearest = cosines.argmax(1)
        assert torch.equal(outcomes[name].nearest, nearest)
        assert torch.equal(outcomes[name].hits == 1, scenes.ids[nearest] == scenes.ids[edits.target])
        unordered = scenes.unordered_ids
        assert torch.equal(outcomes[name].hits_up_to_order == 1, unordered[nearest] == unordered[edits.target])


def test_tied_scenes_share_a_hit() -> None:
    embeddings = Embeddings(object_table(SPACE, 2, 16)(FULL.values), FULL)  # a scene and its twin coincide
    edits = concept_edits(FULL, 0)
    found = retrieve_edits(embeddings, edits, {"avg": Editor(decompose(embeddings, parts="object"))})["avg"]
    alone = FULL.objects[edits.target].diff(dim=1)[:, 0] == 0
    assert torch.equal(found.ties, torch.where(alone, 1, 2))
    torch.testing.assert_close(found.hits, torch.where(alone, 1.0, 0.5).double())
    assert (found.hits_up_to_order == 1).all()


def test_a_replicate_of_the_target_is_a_hit() -> None:
    scenes = Scenes.join([FULL, FULL])
    vectors = object_table(SPACE, 2, 16, positions="own")(scenes.values)
    vectors = vectors + 1e-3 * torch.randn(vectors.shape, generator=generator(), dtype=torch.float64)
    embeddings = Embeddings(vectors, scenes)
    edits = concept_edits(scenes, 0)
    assert edits.target.max() < len(FULL)  # the first row stands for all of them
    found = retrieve_edits(embeddings, edits, {"x": Editor(decompose(embeddings, parts="object", positions=True))})["x"]
    assert (found.hits == 1).all()
    assert (found.nearest >= len(FULL)).any()


def test_blocks_of_edits_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = random_vectors(FULL)
    edits, ways = concept_edits(FULL, 0), editors(embeddings)
    monkeypatch.setattr(interventions, "SCORES_AT_ONCE", 1)
    small = retrieve_edits(embeddings, edits, ways)
    monkeypatch.setattr(interventions, "SCORES_AT_ONCE", 2**28)
    large = retrieve_edits(embeddings, edits, ways)
    for name in ways:
        assert torch.equal(small[name].nearest, large[name].nearest)
        assert torch.equal(small[name].hits, large[name].hits)


@settings(max_examples=4)
@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
def test_rotation_and_scale_change_no_edit(seed: int, scale: float) -> None:
    plain = random_vectors(FULL, seed=seed)
    turn = torch.linalg.qr(torch.randn(7, 7, generator=generator(seed), dtype=torch.float64))[0]
    turned = Embeddings(scale * plain.vectors @ turn, FULL)
    edits = concept_edits(FULL, 0).draw(100, seed)
    for name in ("objectTrue", "objectTrue orthogonal", "conceptFalse"):
        first, second = (retrieve_edits(e, edits, {name: editors(e)[name]})[name].nearest for e in (plain, turned))
        assert torch.equal(first, second)


def test_no_edits_have_no_outcome() -> None:
    embeddings = random_vectors(FULL)
    none = concept_edits(FULL, 0).select(torch.zeros(0, dtype=torch.int64))
    found = retrieve_edits(embeddings, none, editors(embeddings))["objectTrue"]
    assert len(found.hits) == len(found.nearest) == 0


def test_an_orthogonal_edit_leaves_the_other_objects_component_alone() -> None:
    embeddings = random_vectors(FULL)
    edits = concept_edits(FULL, 0)
    editor = editors(embeddings)["objectTrue orthogonal"]
    change = editor.apply(embeddings, edits) - embeddings.vectors[edits.base]
    columns = editor.decomposition.design.columns(FULL)[edits.base][..., 0]
    other = editor.decomposition.components[columns[torch.arange(len(edits)), 1 - edits.slot]]
    assert (change * other).sum(1).abs().max() < 1e-9 * change.norm(dim=1).max() * other.norm(dim=1).max() * 10


@pytest.mark.parametrize("orthogonal", [False, True])
def test_a_component_that_was_never_fitted_is_named_where_it_is_needed(orthogonal: bool) -> None:
    embeddings = random_vectors(RAGGED)
    for missing in (0, 7):  # also the first one: empty slots must not be taken for it
        fit = (RAGGED.objects != missing).all(1).nonzero()[:, 0]
        editor = Editor(decompose(embeddings, fit, parts="object", estimator="avg"), orthogonal=orthogonal)
        every = concept_edits(RAGGED, 0)
        assert torch.isfinite(editor.apply(embeddings, every.within(fit))).all()
        outside = every.select((RAGGED.objects[every.target] == missing).any(1).nonzero()[:, 0])
        with pytest.raises(ValueError, match=f"never shows object {SPACE.describe_object(missing)!r}"):
            editor.apply(embeddings, outside)
        with pytest.raises(ValueError, match="not numbers"):
            retrieve_edits(embeddings, outside, {"avg": editor})


# ------------------------------------------------------------------------------------------------ where a miss lands


def test_misses_are_sorted_by_what_they_changed() -> None:
    def row(*objects: int) -> int:
        return int(FULL.rows_of(SPACE.scenes([list(objects)]))[0])

    # color0 shape0 | color1 shape1, the first becomes color2: objects are 3 * color + shape.
    base, target = row(0, 4), row(6, 4)
    landings = {
        "hit": target, "base": base, "twin": row(4, 6), "other_object": row(0, 7), "both_objects": row(6, 7),
        "elsewhere": row(9, 4),
    }  # fmt: skip
    repeat = torch.ones(len(landings), dtype=torch.int64)
    edits = Edits(FULL, base * repeat, 0 * repeat, target * repeat)
    kinds = classify_misses(edits, torch.tensor(list(landings.values()))).tolist()
    assert [("hit", *MISSES)[k + 1] for k in kinds] == list(landings)


def test_a_landing_on_a_replicate_of_the_target_is_no_miss() -> None:
    scenes = Scenes.join([FULL, FULL])
    edits = concept_edits(scenes, 0)
    assert (classify_misses(edits, edits.target + len(FULL)) == -1).all()
    assert (classify_misses(edits, edits.base) == MISSES.index("base")).all()


def test_interference_measures_the_error_along_the_components_involved() -> None:
    embeddings = random_vectors(FULL)
    edits = concept_edits(FULL, 0).draw(40, 0)
    editor = editors(embeddings)["objectTrue"]
    found = interference(embeddings, edits, editor)
    columns = editor.decomposition.design.columns(FULL)[..., 0]
    for i, edit in enumerate(listed(edits)):
        moved = explicit(embeddings, edit, editor)
        error, change = moved - embeddings.vectors[edit[2]], moved - embeddings.vectors[edit[0]]
        kept = editor.decomposition.components[columns[edit[0], 1 - edit[1]]]
        plane = torch.stack([change, kept], dim=1)
        fitted = plane @ torch.linalg.lstsq(plane, error[:, None]).solution[:, 0]
        assert found.overshoot[i].item() == pytest.approx((error @ change / (change @ change)).item())
        assert found.other_value[i].item() == pytest.approx((error @ kept / (kept @ kept)).item())
        assert found.explained[i].item() == pytest.approx((fitted @ fitted / (error @ error)).item())


def test_doubling_the_strength_overshoots_by_half_of_the_step() -> None:
    embeddings = Embeddings(object_table(SPACE, 2, 16, positions="own")(FULL.values), FULL)
    decomposition = decompose(embeddings, parts="object", positions=True)
    edits = concept_edits(FULL, 0)
    exact, double = (interference(embeddings, edits, Editor(decomposition, strength)) for strength in (1.0, 2.0))
    assert exact.overshoot.abs().max() < 1e-9
    torch.testing.assert_close(double.overshoot, torch.full_like(double.overshoot, 0.5))
    torch.testing.assert_close(double.explained, torch.ones_like(double.explained))


# ------------------------------------------------------------------------------------------------ removal

FIT = torch.randperm(len(FULL), generator=generator())[:110]


@pytest.mark.parametrize("positions", [False, True])
def test_removal_leaves_nothing_of_what_it_removed(positions: bool) -> None:
    rule = no_binding(SPACE, 2, 9, positions="own" if positions else "shared")
    embeddings = Embeddings(rule(FULL.values), FULL)
    concepts = decompose(embeddings, FIT, positions=positions)
    left = remove(embeddings, concepts).vectors
    # An additive oracle is its components and a constant: fitted on a part, they take all variation out of the rest.
    assert (left - left[0]).abs().max() < 1e-9
    bound = Embeddings(object_product(SPACE, 2, 9)(FULL.values), FULL)
    after = remove(bound, decompose(bound, FIT, positions=positions))
    refitted = decompose(after, FIT, positions=positions)
    assert refitted.r2(after[FIT]) == pytest.approx(0, abs=1e-9)
    assert (after.vectors - after.vectors[0]).abs().max() > 0.1  # binding is left
    assert after.provenance["removed"] == concepts.design.name


def test_removing_objects_takes_the_binding_of_a_sum_of_objects_and_concepts_too() -> None:
    bound = Embeddings(object_product(SPACE, 2, 9)(FULL.values), FULL)
    left = remove(bound, decompose(bound, parts="object")).vectors
    assert (left - left[0]).abs().max() < 1e-9


def spread(embeddings: Embeddings) -> float:
    return float((embeddings.vectors - embeddings.vectors.mean(0)).square().sum())


@pytest.mark.parametrize("parts", ["concept", "object"])
def test_the_permuted_control_removes_as_much_but_not_what_is_there(parts: Parts) -> None:
    embeddings = Embeddings(no_binding(SPACE, 2, 9)(FULL.values), FULL)
    decomposition = decompose(embeddings, FIT, parts=parts)
    names = permute_names(FULL, parts, seed=0)
    control = remove(embeddings, decomposition, names)
    taken = embeddings.vectors - control.vectors
    assert float(taken.square().sum()) == pytest.approx(
        float((embeddings.vectors - remove(embeddings, decomposition).vectors).square().sum())
    )
    assert spread(control) > spread(embeddings)  # wrong components add instead of cancelling
    # What is left is still a sum over objects, and no two objects are left alike.
    objects = decompose(control, parts="object")
    assert objects.r2(control) == pytest.approx(1)
    assert torch.pdist(objects.components).min() > 0.1
    assert control.provenance["permuted"] is True


@pytest.mark.parametrize("parts", ["concept", "object"])
def test_permuted_names_are_one_fixed_permutation_that_leaves_none_in_place(parts: str) -> None:
    ragged = RAGGED[(RAGGED.objects != 4).all(1)]  # an object that never occurs has no component to be looked up
    names = permute_names(ragged, parts, seed=1)
    assert torch.equal(names.filled, ragged.filled)
    if parts == "object":
        pairs = [(ragged.objects, names.objects)]
    else:
        pairs = [(ragged.values[..., c], names.values[..., c]) for c in range(2)]
    for before, after in pairs:
        mapping = {(a, b) for a, b in zip(before[ragged.filled].tolist(), after[ragged.filled].tolist(), strict=True)}
        assert all(a != b for a, b in mapping)
        assert {a for a, _ in mapping} == {b for _, b in mapping}
        assert len(mapping) == len({a for a, _ in mapping})
    assert len({str(permute_names(ragged, parts, seed=seed).values.tolist()) for seed in range(8)}) > 1


def test_a_concept_of_one_value_has_no_other_name() -> None:
    space = ConceptSpace(color=3, shape=1)
    scenes = space.all_scenes(2)
    names = permute_names(scenes, "concept", seed=0)
    assert (names.values[..., 1] == 0).all()
    assert (names.values[..., 0] != scenes.values[..., 0]).all()


def test_removal_names_a_component_that_was_never_fitted() -> None:
    embeddings = random_vectors(FULL)
    fit = (FULL.objects != 7).all(1).nonzero()[:, 0]
    with pytest.raises(ValueError, match="never shows object 'color2 shape1'"):
        remove(embeddings, decompose(embeddings, fit, parts="object"))


def test_components_kept_one_set_after_the_other_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = torch.randn(len(FULL), 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    embeddings = Embeddings(object_table(FULL.space, 2, 24)(FULL.values) + 0.5 * noise, FULL)
    both = {
        f"{parts} {strength}": Editor(decompose(embeddings, parts=parts), strength)
        for parts in ("object", "concept") for strength in (0.5, 1.0)
    }  # fmt: skip
    edits = concept_edits(FULL, 0)
    before = retrieve_edits(embeddings, edits, both)
    monkeypatch.setattr(interventions, "MOST_KEPT", 0)
    after = retrieve_edits(embeddings, edits, both)
    assert list(after) == list(before)
    for name in before:
        assert torch.equal(before[name].hits, after[name].hits)
        assert torch.equal(before[name].nearest, after[name].nearest)
