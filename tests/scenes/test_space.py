"""Laws of concept spaces and scenes, against plain Python arithmetic."""

from collections import Counter
from itertools import product
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colligate.scenes.space import EMPTY, ConceptSpace, Scenes

# Strategies draw plain numbers, and tests build from them: the shape checks draw from `random`, which hypothesis
# forbids inside a strategy.
Plan = tuple[list[int], list[list[int]]]
all_sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Sizes of concepts, and rows of object ids with at least one object each."""
    sizes = draw(all_sizes)
    slots = draw(st.integers(1, 3))
    row = st.lists(st.integers(EMPTY, prod(sizes) - 1), min_size=slots, max_size=slots)
    return sizes, draw(st.lists(row.filter(lambda r: max(r) >= 0), min_size=1, max_size=12))


def a_space(sizes: list[int]) -> ConceptSpace:
    return ConceptSpace({f"c{i}": size for i, size in enumerate(sizes)})


def some_scenes(plan: Plan) -> Scenes:
    return a_space(plan[0]).scenes(plan[1])


def held(scenes: Scenes) -> list[list[tuple[int, ...]]]:
    """Each scene's objects as tuples of values, empty slots left out."""
    return [[tuple(values) for values in row if values[0] >= 0] for row in scenes.values.tolist()]


def same_partition(numbers: torch.Tensor, keys: list[object]) -> bool:
    """Whether two labellings put the same rows together."""
    return len(set(zip(numbers.tolist(), keys, strict=True))) == len(set(numbers.tolist())) == len(set(keys))


@given(all_sizes)
def test_object_ids_are_mixed_radix_with_the_last_concept_fastest(sizes: list[int]) -> None:
    space = a_space(sizes)
    every = list(product(*[range(size) for size in space.sizes]))
    assert space.num_objects == len(every)
    assert space.object_ids(torch.tensor(every)).tolist() == list(range(len(every)))
    assert [tuple(v) for v in space.object_values(torch.arange(len(every))).tolist()] == every


def test_object_id_by_hand() -> None:
    space = ConceptSpace(color=8, shape=3, size=2)
    assert int(space.object_ids(torch.tensor([5, 2, 1]))) == (5 * 3 + 2) * 2 + 1


@given(plans())
def test_objects_and_values_say_the_same(plan: Plan) -> None:
    scenes = some_scenes(plan)
    again = scenes.space.scenes(scenes.objects)
    assert torch.equal(again.values, scenes.values)
    assert torch.equal(scenes.counts, scenes.filled.sum(1))
    assert scenes.counts.tolist() == [len(row) for row in held(scenes)]


@given(plans())
def test_ids_are_equal_exactly_for_equal_rows(plan: Plan) -> None:
    scenes = some_scenes(plan)
    assert same_partition(scenes.ids, [tuple(row) for row in scenes.objects.tolist()])


@given(plans())
def test_unordered_ids_are_equal_exactly_for_equal_multisets(plan: Plan) -> None:
    scenes = some_scenes(plan)
    assert same_partition(scenes.unordered_ids, [tuple(sorted(row)) for row in held(scenes)])
    assert torch.equal(scenes.unordered_ids, scenes.twins().unordered_ids)


@given(plans())
def test_bags_and_value_sets_forget_exactly_the_binding(plan: Plan) -> None:
    scenes = some_scenes(plan)
    rows = held(scenes)
    bags = [tuple(tuple(sorted(Counter(column).items())) for column in zip(*row, strict=True)) for row in rows]
    sets = [tuple(frozenset(column) for column in zip(*row, strict=True)) for row in rows]
    assert same_partition(scenes.bags, list(bags))
    assert same_partition(scenes.value_sets, list(sets))


@given(plans())
def test_contents_are_counted(plan: Plan) -> None:
    scenes = some_scenes(plan)
    rows = held(scenes)
    for c, size in enumerate(scenes.space.sizes):
        counts = [[[values[c] for values in row].count(v) for v in range(size)] for row in rows]
        assert scenes.multiplicity(c).tolist() == counts
        assert scenes.contains(c).tolist() == [[n > 0 for n in row] for row in counts]
        assert scenes.shares(c).tolist() == [max(row) > 1 for row in counts]
    present = [[o in row for o in range(scenes.space.num_objects)] for row in scenes.objects.tolist()]
    assert scenes.contains_objects().tolist() == present
    assert scenes.shares_any().tolist() == [any(len(set(col)) < len(col) for col in zip(*r, strict=True)) for r in rows]


@given(plans())
def test_twins_reverse_the_objects_and_undo_themselves(plan: Plan) -> None:
    scenes = some_scenes(plan)
    twins = scenes.twins()
    assert held(twins) == [row[::-1] for row in held(scenes)]
    assert torch.equal(twins.filled, scenes.filled)
    assert torch.equal(twins.twins().values, scenes.values)


@given(plans(), st.data())
def test_swaps_stay_in_the_bag_and_undo_themselves(plan: Plan, data: st.DataObject) -> None:
    scenes = some_scenes(plan)
    full = scenes.filled.all(1)
    if scenes.slots < 2 or not full.any():
        return
    scenes = scenes[full]
    c = data.draw(st.integers(0, scenes.space.num_concepts - 1))
    swapped = scenes.swap(c, (0, scenes.slots - 1))
    assert torch.equal(swapped.swap(c, (0, scenes.slots - 1)).values, scenes.values)
    both = Scenes.join([scenes, swapped])
    assert torch.equal(both.bags[: len(scenes)], both.bags[len(scenes) :])
    everything = swapped
    for other in range(scenes.space.num_concepts):
        everything = everything if other == c else everything.swap(other, (0, scenes.slots - 1))
    exchanged = scenes.objects[:, [scenes.slots - 1, *range(1, scenes.slots - 1), 0]]
    assert torch.equal(everything.objects, exchanged)


def test_swapping_with_an_empty_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="has some concepts and lacks others"):
        ConceptSpace(color=2, shape=2).scenes([[0, EMPTY]]).swap(0)


@given(plans(), st.permutations(range(12)))
def test_rows_of_finds_the_first_row(plan: Plan, order: list[int]) -> None:
    scenes = some_scenes(plan)
    listed = [tuple(row) for row in scenes.objects.tolist()]
    shuffle = [i for i in order if i < len(listed)]
    assert scenes.rows_of(scenes[shuffle]).tolist() == [listed.index(listed[i]) for i in shuffle]
    kept = scenes[scenes.ids != scenes.ids[0]]
    found = kept.rows_of(scenes)
    assert ((found >= 0) == (scenes.ids != scenes.ids[0])).all()


def test_rows_of_pads_shorter_scenes_and_refuses_another_space() -> None:
    space = ConceptSpace(color=2, shape=2)
    ragged = Scenes.join([space.all_scenes(slots=2), space.all_scenes(slots=1)])
    assert ragged.rows_of(space.all_scenes(slots=1)).tolist() == [16, 17, 18, 19]
    with pytest.raises(ValueError, match="same concept space"):
        ragged.rows_of(ConceptSpace(color=2, shape=3).all_scenes(slots=2))


@given(plans(), st.integers(0, 2))
def test_padding_keeps_the_scenes(plan: Plan, extra: int) -> None:
    scenes = some_scenes(plan)
    padded = scenes.padded(scenes.slots + extra)
    assert held(padded) == held(scenes)
    assert padded.slots == scenes.slots + extra


@given(plans())
def test_join_stacks_rows_in_order(plan: Plan) -> None:
    scenes = some_scenes(plan)
    singles = scenes.space.all_scenes(slots=1)
    joined = Scenes.join([scenes, singles])
    assert held(joined) == held(scenes) + held(singles)


def test_join_refuses_two_spaces() -> None:
    with pytest.raises(ValueError, match="within one concept space"):
        Scenes.join([ConceptSpace(color=2).all_scenes(1), ConceptSpace(color=3).all_scenes(1)])


@given(all_sizes, st.integers(1, 2))
def test_all_scenes_are_all_and_ordered(sizes: list[int], slots: int) -> None:
    space = a_space(sizes)
    every = [list(row) for row in product(range(space.num_objects), repeat=slots)]
    assert space.all_scenes(slots).objects.tolist() == every


def test_all_scenes_refuses_more_than_fit() -> None:
    with pytest.raises(ValueError, match="draw some"):
        ConceptSpace(a=50, b=50).all_scenes(slots=3)


def test_sampled_scenes_follow_their_seed() -> None:
    space = ConceptSpace(color=5, shape=5)
    one, two, other = (space.sample_scenes(50, 3, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(one.values, two.values)
    assert not torch.equal(one.values, other.values)


def test_replace_changes_one_slot() -> None:
    space = ConceptSpace(color=2, shape=3)
    scenes = space.scenes([[0, 5], [1, 2]]).replace(1, torch.tensor([[1, 1], [0, 0]]))
    assert scenes.objects.tolist() == [[0, 4], [1, 0]]


@given(plans())
def test_content_hash_names_the_content(plan: Plan) -> None:
    scenes = some_scenes(plan)
    again = Scenes(ConceptSpace(dict(zip(scenes.space.names, scenes.space.words, strict=True))), scenes.values.clone())
    assert again.content_hash == scenes.content_hash
    longer = Scenes.join([scenes, scenes[:1]])
    padded = scenes.padded(scenes.slots + 1)
    renamed = Scenes(ConceptSpace({f"x{n}": s for n, s in enumerate(scenes.space.sizes)}), scenes.values)
    assert len({scenes.content_hash, longer.content_hash, padded.content_hash, renamed.content_hash}) == 4


def test_content_hash_is_the_same_everywhere() -> None:
    """Pinned: a stored embedding must be found again on another machine."""
    scenes = ConceptSpace(color=["red", "blue"], shape=2).all_scenes(slots=2)
    assert scenes.content_hash.startswith("b93b9b5845c77f21")


def test_scene_ids_that_overflow_are_refused() -> None:
    space = ConceptSpace(a=50, b=50)
    with pytest.raises(ValueError, match="overflow 64-bit"):
        _ = space.scenes([[0] * 6]).ids
    assert int(space.scenes([[2499] * 5]).ids) == sum(2500 * 2501**k for k in range(5))


@pytest.mark.parametrize(
    ("concepts", "message"),
    [
        ({}, "at least one concept"),
        ({"color": 0}, "has no values"),
        ({"color": ["red", "red"]}, "'red' twice"),
        ({"object": 3}, "can't be called 'object'"),
        ({"color": "red"}, "single word 'red'"),
    ],
)
def test_bad_spaces_are_refused(concepts: dict[str, int | list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConceptSpace(concepts)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[[0, 3]]], r"Scene 0, slot 1: shape 3 is outside 0\.\.2"),
        ([[[0, 0]], [[-2, 0]]], r"Scene 1, slot 1: color -2 is outside"),
        ([[[0, 0], [1, -1]]], "Scene 0, slot 2 has some concepts and lacks others"),
        ([[[0, 0]], [[-1, -1]]], "Scene 1 holds no object"),
        ([[[0]]], "must be int64"),
    ],
)
def test_bad_values_are_refused_by_row(values: list[list[list[int]]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scenes(ConceptSpace(color=2, shape=3), torch.tensor(values))


@pytest.mark.parametrize("objects", [[[0, 6]], [[0, -2]]])
def test_bad_object_ids_are_refused(objects: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=f"Object id {objects[0][1]} is outside"):
        ConceptSpace(color=2, shape=3).scenes(objects)


def test_words_describe_scenes_and_unknown_concepts_are_named() -> None:
    space = ConceptSpace(color=["red", "blue"], shape=["cube", "cone"])
    assert space.scenes([[3, EMPTY, 0]]).describe(0) == "blue cone | red cube"
    assert space.concept("shape") == 1
    with pytest.raises(ValueError, match="No concept is called 'size'; this space has color, shape"):
        space.concept("size")
