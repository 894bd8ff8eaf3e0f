"""Splits: the parts are disjoint, nothing leaks between them, and held-out swaps are closed."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import (
    PARTS,
    ByObject,
    ByScene,
    BySwaps,
    ByValuePair,
    Given,
    Split,
    SplitRule,
    require_seen,
    swaps_within,
    unseen_values,
)

FEW = settings(max_examples=12)
SEEDS = st.integers(0, 2**31)
GRID = ConceptSpace(color=6, shape=5).all_scenes(slots=2)
SOLID = ConceptSpace(color=5, shape=4, size=3)

RULES: list[SplitRule] = [
    ByScene(),
    ByScene(twins_together=False, validation=0.0),
    ByObject(0.5),
    ByObject(0.6, validation=0.0),
    ByValuePair("color", "shape", 0.5),
    BySwaps(0.5),
    BySwaps(0.7, validation=0.0),
]


def codes(split: Split, num: int) -> torch.Tensor:
    found = torch.full((num,), -1)
    for code, part in enumerate(PARTS):
        found[getattr(split, part)] = code
    return found


def ragged(generator: torch.Generator, *, singles: bool = True) -> Scenes:
    space = ConceptSpace(color=4, shape=4)
    parts = [space.sample_scenes(120, 2, generator=generator), space.sample_scenes(60, 3, generator=generator)]
    return Scenes.join([*parts, space.all_scenes(slots=1)] if singles else parts)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@FEW
@given(seed=SEEDS)
def test_every_rule_gives_disjoint_ascending_rows_that_see_every_value(rule: SplitRule, seed: int) -> None:
    split = rule.split(GRID, seed)
    rows = torch.cat([split.fit, split.validation, split.test])
    assert len(rows.unique()) == len(rows)
    assert all((part.diff() > 0).all() for part in (split.fit, split.validation, split.test))
    assert not unseen_values(GRID, split.fit)
    assert str(seed) in split.name


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_every_rule_repeats_itself_and_follows_its_seed(rule: SplitRule) -> None:
    first, again, other = (codes(rule.split(GRID, seed), len(GRID)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_no_rule_touches_the_global_generator(rule: SplitRule) -> None:
    before = torch.get_rng_state()
    rule.split(GRID, 0)
    assert torch.equal(before, torch.get_rng_state())


@FEW
@given(seed=SEEDS)
def test_by_scene_covers_all_rows_and_keeps_replicates_and_twins_together(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scenes = ragged(generator)
    split = ByScene().split(scenes, seed)
    part = codes(split, len(scenes))
    assert (part >= 0).all()
    for key in scenes.unordered_ids.unique():
        assert len(part[scenes.unordered_ids == key].unique()) == 1
    assert (part[scenes.counts == 1] == 0).all()


@FEW
@given(seed=SEEDS, fit=st.sampled_from([0.5, 0.6, 0.8]), validation=st.sampled_from([0.0, 0.1, 0.15]))
def test_by_scene_gives_each_number_of_objects_its_shares(seed: int, fit: float, validation: float) -> None:
    scenes = ragged(torch.Generator().manual_seed(seed))
    split = ByScene(fit=fit, validation=validation, twins_together=False).split(scenes, seed)
    part = codes(split, len(scenes))
    for count in (2, 3):
        ids = scenes.ids[scenes.counts == count]
        num = len(ids.unique())
        held = [len(ids[part[scenes.counts == count] == code].unique()) for code in range(3)]
        assert abs(held[1] - validation * num) <= 0.5 + 1e-9
        assert abs(held[2] - (1 - fit - validation) * num) <= 0.5 + 1e-9


def test_by_scene_fit_sees_every_object_where_it_has_room() -> None:
    # 24 objects in 300 twin groups: a random half of these would now and then miss an object that occurs twice.
    space = ConceptSpace(color=8, shape=3)
    for seed in range(20):
        scenes = space.sample_scenes(60, 2, generator=torch.Generator().manual_seed(seed))
        split = ByScene(fit=0.5).split(scenes, seed)
        assert set(scenes.objects[split.fit].unique().tolist()) == set(scenes.objects.unique().tolist())
        assert split.notes == ()


def test_by_scene_says_when_only_values_can_be_seen() -> None:
    space = ConceptSpace(color=8, shape=8)
    scenes = space.scenes([[o, (o + 9) % 64] for o in range(0, 64, 2)])
    split = ByScene(fit=0.5).split(scenes, 0)
    assert "too few scenes to fit on for each object" in split.notes[0]
    assert not unseen_values(scenes, split.fit)


def test_by_scene_can_divide_singles_like_the_rest_and_divides_them_where_there_is_nothing_else() -> None:
    scenes = ragged(torch.Generator().manual_seed(0))
    split = ByScene(singles="split").split(scenes, 0)
    assert (scenes.counts[split.test] == 1).any()
    alone = ConceptSpace(color=4, shape=4).all_scenes(slots=1)
    assert len(ByScene().split(alone, 0).test) == 3


def test_by_scene_refuses_too_few_scenes_and_impossible_shares() -> None:
    apart = ConceptSpace(color=6, shape=6).scenes([[0, 7], [14, 21], [28, 35]])
    with pytest.raises(ValueError, match="3 scenes are too few: showing every value takes 3"):
        ByScene().split(apart, 0)
    with pytest.raises(ValueError, match="leaves no scene in the"):
        ByScene().split(ConceptSpace(color=2).scenes([[0, 1], [0, 1]]), 0)
    with pytest.raises(ValueError, match="0 < fit and fit \\+ validation < 1"):
        ByScene(fit=0.8, validation=0.2)


@FEW
@given(seed=SEEDS, coverage=st.floats(0.3, 0.9), validation=st.floats(0.1, 0.6))
def test_by_object_coverage_arithmetic_and_membership(seed: int, coverage: float, validation: float) -> None:
    split = ByObject(coverage, validation=validation).split(GRID, seed)
    assert split.objects is not None
    sizes = [len(split.objects[part]) for part in PARTS]
    assert sizes[0] == int(coverage * 30 + 1e-9)
    assert sum(sizes) == 30
    assert abs(sizes[1] - validation * (30 - sizes[0])) <= 1
    part = codes(split, len(GRID))
    owner = torch.empty(30, dtype=torch.int64)
    for code, name in enumerate(PARTS):
        owner[split.objects[name]] = code
    both = owner[GRID.objects]
    assert torch.equal(part, torch.where(both[:, 0] == both[:, 1], both[:, 0], -1))


def test_by_object_counts_the_objects_that_occur_and_places_singles_with_their_object() -> None:
    space = ConceptSpace(color=4, shape=4)
    kept = torch.arange(0, 16, 2)
    scenes = Scenes.join([space.scenes(torch.cartesian_prod(kept, kept)), space.scenes(kept[:, None])])
    split = ByObject(0.5, validation=0.5).split(scenes, 1)
    assert split.objects is not None
    assert [len(split.objects[part]) for part in PARTS] == [4, 2, 2]
    assert len(split.test) == 2 * 2 + 2


def test_by_object_seeks_out_values_at_the_least_possible_coverage() -> None:
    # 6 of 30 objects can just show 6 colours and 5 shapes; a random draw practically never does.
    for seed in range(5):
        assert not unseen_values(GRID, ByObject(0.2).split(GRID, seed).fit)


def test_by_object_names_unseen_values_or_reports_them() -> None:
    space = ConceptSpace(color=["red", "blue", "green"], shape=["cube", "ball"])
    with pytest.raises(ValueError, match=r"fit part never shows color '\w+', color '\w+', shape '\w+'; give it more"):
        ByObject(0.17, validation=0.4).split(space.all_scenes(slots=2), 0)
    split = ByObject(0.17, validation=0.4, unseen="report").split(space.all_scenes(slots=2), 0)
    assert "The fit part never shows color" in split.notes[0]


def test_by_object_says_when_nothing_is_left_to_hold_out() -> None:
    with pytest.raises(ValueError, match="leaves 1 to fit on and 1 to hold out; it needs at least 1 and 2"):
        ByObject(0.5).split(ConceptSpace(color=2).all_scenes(slots=2), 0)
    with pytest.raises(ValueError, match="Coverage must lie strictly between 0 and 1"):
        ByObject(1.0)


@FEW
@given(seed=SEEDS)
def test_by_value_pair_never_shows_a_held_out_pair_in_the_fit_part(seed: int) -> None:
    scenes = SOLID.sample_scenes(1500, 2, generator=torch.Generator().manual_seed(0))
    split = ByValuePair("color", "size", coverage=0.6).split(scenes, seed)

    def pairs(part: str) -> set[tuple[int, int]]:
        return {(v[0], v[2]) for v in scenes.values[getattr(split, part)].flatten(0, 1).tolist()}

    assert not pairs("fit") & pairs("test")
    assert not pairs("fit") & pairs("validation")
    assert not pairs("validation") & pairs("test")
    assert len(pairs("fit")) <= int(0.6 * 15)


def test_by_value_pair_of_the_only_two_concepts_is_by_object() -> None:
    pair, whole = ByValuePair("color", "shape", 0.5).split(GRID, 7), ByObject(0.5).split(GRID, 7)
    assert torch.equal(codes(pair, len(GRID)), codes(whole, len(GRID)))
    with pytest.raises(ValueError, match="needs two concepts; got 'color' twice"):
        ByValuePair("color", "color")
    with pytest.raises(ValueError, match="No concept is called 'colour'"):
        ByValuePair("colour", "shape").split(GRID, 0)


@FEW
@given(seed=SEEDS, coverage=st.sampled_from([0.5, 0.6, 0.7]))
def test_by_swaps_holds_out_every_object_in_a_closed_quadruple(seed: int, coverage: float) -> None:
    split = BySwaps(coverage).split(GRID, seed)
    assert split.objects is not None
    assert len(split.objects["fit"]) >= coverage * 30
    space = GRID.space
    for part in ("validation", "test"):
        held = {tuple(v) for v in space.object_values(split.objects[part]).tolist()}
        for a, b in held:
            assert any((c, b) in held and (a, d) in held for c, d in held if c != a and d != b)


@pytest.mark.parametrize(("coverage", "least"), [(0.75, 500), (0.9, 100)])
def test_by_swaps_has_swaps_in_number_where_random_objects_have_few(coverage: float, least: int) -> None:
    scenes = ConceptSpace(color=20, shape=20).all_scenes(slots=2)

    def count(rule: SplitRule, seed: int) -> int:
        split = rule.split(scenes, seed)
        assert split.objects is not None
        return int(swaps_within(scenes[split.test], split.objects["test"]).sum())

    assert all(count(BySwaps(coverage), seed) >= least for seed in range(3))
    assert count(ByObject(0.9), 0) < 50


def test_by_swaps_with_three_concepts_and_an_excluding_world() -> None:
    scenes = SOLID.sample_scenes(4000, 2, generator=torch.Generator().manual_seed(0))
    assert len(BySwaps(0.6).split(scenes, 0).test) > 0
    pairs = ConceptSpace(animal=12, texture=8).all_scenes(slots=2)
    split = BySwaps(0.75).split(pairs[~pairs.shares_any()], 0)
    assert split.objects is not None
    held = len(split.test)
    # Without shared values every scene of one block differs in both, so it has a swap inside the block.
    assert f" of {held} test scenes" in split.notes[-1]
    assert int(split.notes[-1].split()[0]) > 20


def test_by_swaps_refuses_worlds_without_room() -> None:
    for space in (ConceptSpace(color=2, shape=2), ConceptSpace(color=9), ConceptSpace(color=8, shape=3)):
        with pytest.raises(ValueError, match="Closed swap quadruples can't be held out"):
            BySwaps(0.9).split(space.all_scenes(slots=2), 0)
    same = ConceptSpace(color=8, shape=4)
    with pytest.raises(ValueError, match=r"None of the \d+ scenes of held-out objects can swap"):
        BySwaps(0.5).split(same.scenes([[o, o] for o in range(32)]), 0)


@pytest.mark.parametrize("sizes", [(8, 3), (8, 8), (4, 3), (16, 9), (4, 3, 3)])
def test_a_coverage_that_leaves_no_swaps_names_the_highest_that_does(sizes: tuple[int, ...]) -> None:
    space = ConceptSpace(**{f"concept{i}": size for i, size in enumerate(sizes)})
    with pytest.raises(ValueError, match=r"the highest coverage that leaves some is [\d.]+\.$") as told:
        BySwaps(coverage=0.99).objects(space, 0)
    most = float(str(told.value).rpartition(" ")[2].rstrip("."))
    assert len(BySwaps(coverage=most).objects(space, 0)["test"]) >= 4
    with pytest.raises(ValueError, match="can't be held out"):
        BySwaps(coverage=most + 0.05).objects(space, 0)


def test_values_too_few_for_swaps_at_any_coverage_are_said_to_be() -> None:
    with pytest.raises(ValueError, match="use values in greater number"):
        BySwaps().objects(ConceptSpace(color=2, shape=2), 0)


@FEW
@given(seed=SEEDS, slots=st.integers(1, 3))
def test_swaps_within_agrees_with_trying_every_swap(seed: int, slots: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    space = ConceptSpace(color=3, shape=3)
    scenes = Scenes.join([space.sample_scenes(30, slots, generator=generator), space.all_scenes(slots=1)])
    chosen = torch.randperm(9, generator=generator)[:6]
    held = set(chosen.tolist())
    found = swaps_within(scenes, chosen)
    for row, objects in enumerate(scenes.objects.tolist()):
        present = [o for o in objects if o >= 0]
        expected = False
        for i, j in itertools.combinations(range(len(present)), 2):
            a, b = divmod(present[i], 3), divmod(present[j], 3)
            foil = {a[0] * 3 + b[1], b[0] * 3 + a[1]}
            expected |= foil <= held and foil != {present[i], present[j]}
        assert bool(found[row]) == (expected and set(present) <= held)


def test_given_takes_the_parts_and_puts_joined_singles_with_fit() -> None:
    space = ConceptSpace(color=2, shape=2)
    scenes = space.scenes([[0, 3], [1, 2], [2, 1], [3, 0]])
    parts = ("fit", "fit", "validation", "test")
    joined = Scenes.join([scenes, space.all_scenes(slots=1)])
    assert Given(parts).split(scenes).test.tolist() == [3]
    assert Given(parts).split(joined).fit.tolist() == [0, 1, 4, 5, 6, 7]


def test_given_needs_no_validation_under_the_papers_protocol() -> None:
    scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3], [1, 2], [2, 1], [3, 0]])
    split = Given(("fit", "fit", "test", "test"), "paper").split(scenes)
    assert [len(rows) for rows in (split.fit, split.validation, split.test)] == [2, 0, 2]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("fit", "train", "validation", "test"), "Row 1 is given to part 'train'; the parts are fit, validation, test"),
        (("fit", "fit", "test", "test"), "names no scene validation, and protocol strict chooses on those"),
        (("fit", "fit", "fit", "validation"), "no scene in the test part; give it rows in the column split"),
        (("fit", "validation", "test"), "3 parts are given for 4 scenes"),
        (("fit", "validation", "test", "test", "fit"), "5 parts are given for 4 scenes"),
        (("validation", "fit", "test", "test"), "The fit part never shows color 'color2'"),
    ],
)
def test_given_refuses(parts: tuple[str, ...], message: str) -> None:
    scenes = ConceptSpace(color=3).scenes([[0, 2], [0, 1], [1, 0], [1, 1]])
    with pytest.raises(ValueError, match=message):
        Given(parts).split(scenes)


def test_require_seen_names_the_values_and_ignores_those_that_never_occur() -> None:
    space = ConceptSpace(color=["red", "blue", "green", "gray"], shape=["cube", "ball"])
    scenes = space.scenes([[0, -1], [2, 5], [0, 1]])
    require_seen(scenes, torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="never shows color 'blue', color 'green', shape 'ball'"):
        require_seen(scenes, torch.tensor([0]))
    with pytest.raises(ValueError, match="never shows color 'red'; "):
        require_seen(scenes, torch.tensor([1]))


def test_a_row_in_two_parts_is_refused() -> None:
    rows = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="Row 1 stands in two parts"):
        Split(rows, torch.tensor([1]), torch.tensor([2]), "wrong")
