"""Draws of scenes and queries: the same distribution as a slow generator in plain Python, and nothing unseen."""

import random
from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colligate.scenes.space import ConceptSpace
from colligate.training.data import BatchPlan, Mixed, ObjectPool, RandomObjects, SwapQuadruples, scene_draw
from colligate.training.queries import InBatch, WholeTable, query_choice, repeats, swapped, value_targets

SPACE = ConceptSpace(a=4, b=3)
SEEN = [0, 1, 4, 5, 7, 8, 9, 11]


def pool(space=SPACE, seen=SEEN) -> ObjectPool:
    return ObjectPool(space, torch.tensor(sorted(seen)))


def other_two(first, second, concept) -> tuple[int, ...]:
    return exchanged(SPACE, first, second, concept)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def exchanged(space, first, second, concept):
    """Two objects after they exchange a value, by digits."""
    sizes = space.sizes
    digits = [[(o // (sizes[1] if c == 0 else 1)) % sizes[c] for c in range(2)] for o in (first, second)]
    digits[0][concept], digits[1][concept] = digits[1][concept], digits[0][concept]
    return tuple(d[0] * sizes[1] + d[1] for d in digits)


def close(found: Counter, expected: Counter):
    """Whether two counts of draws come from one distribution: chi-squared within five deviations of its mean."""
    total, of_expected = sum(found.values()), sum(expected.values())
    assert set(found) <= set(expected)
    statistic = sum(
        (found[key] / total - count / of_expected) ** 2 / (count / of_expected * (1 / total + 1 / of_expected))
        for key, count in expected.items()
    )
    free = len(expected) - 1
    assert statistic < free + 5 * (2 * free) ** 0.5


@given(st.lists(st.integers(2, 5), min_size=2, max_size=4), st.integers(0, 1000), st.data())
def test_exchanging_values_is_arithmetic_on_ids(sizes, seed, data):
    space = ConceptSpace({f"c{i}": size for i, size in enumerate(sizes)})
    every = ObjectPool(space, torch.arange(space.num_objects))
    pair = torch.randint(space.num_objects, (30, 2), generator=generator(seed))
    concept = data.draw(st.integers(0, len(sizes) - 1))
    swapped_scenes = space.scenes(pair).swap(concept)
    found = every.exchange(pair[:, 0], pair[:, 1], torch.full((30,), concept))
    assert torch.equal(torch.stack(found, 1), swapped_scenes.objects)
    assert torch.equal(every.digits(pair), space.object_values(pair))


def test_random_scenes_have_the_distribution_of_a_slow_generator():
    draw = RandomObjects().draw(pool(), 20_000, 2, generator())
    slow = random.Random(1)
    expected = Counter((slow.choice(SEEN), slow.choice(SEEN)) for _ in range(20_000))
    close(Counter(map(tuple, draw.tolist())), expected)


def slow_quadruple(slow, seen):
    """A scene and its swap by rejection, one at a time."""
    while True:
        first, second, concept = slow.choice(SEEN), slow.choice(SEEN), slow.randrange(2)
        other = exchanged(SPACE, first, second, concept)
        if set(other) <= set(seen) and not set(other) & {first, second}:
            return (first, second, *other)


def test_swap_quadruples_have_the_distribution_of_a_slow_generator():
    draw = SwapQuadruples().draw(pool(), 6_000, 2, generator()).reshape(-1, 4)
    slow = random.Random(1)
    close(Counter(map(tuple, draw.tolist())), Counter(slow_quadruple(slow, SEEN) for _ in range(3_000)))


@given(st.integers(0, 10_000), st.integers(2, 4), st.sampled_from([(4, 3), (3, 3, 2), (5, 5)]))
def test_every_object_of_a_swap_quadruple_is_seen_and_values_are_kept(seed, slots, sizes):
    space = ConceptSpace({f"c{i}": size for i, size in enumerate(sizes)})
    seen = torch.randperm(space.num_objects, generator=generator(seed))[: int(0.8 * space.num_objects)].tolist()
    for c, size in enumerate(sizes):  # every value has to be seen
        missing = set(range(size)) - set(space.object_values(torch.tensor(seen))[:, c].tolist())
        seen += [int(space.object_ids(torch.tensor([m if k == c else 0 for k in range(len(sizes))]))) for m in missing]
    known = pool(space, set(seen))
    scenes = SwapQuadruples().draw(known, 20, slots, generator(seed))
    assert bool(known.is_seen[scenes].all())
    values = space.object_values(scenes).reshape(10, 2, slots, -1)
    assert torch.equal(values[:, 0].sort(1).values, values[:, 1].sort(1).values)  # a bag of concepts can't tell
    ids = scenes.reshape(10, 2, slots).sort(2).values
    assert bool((ids[:, 0] != ids[:, 1]).any(1).all())  # and yet they differ


def test_a_pool_without_swaps_says_so():
    diagonal = ObjectPool(ConceptSpace(a=3, b=3), torch.tensor([0, 4, 8]))
    with pytest.raises(ValueError, match="Hardly any swap"):
        SwapQuadruples().draw(diagonal, 2, 2, generator())


@pytest.mark.parametrize(("num", "slots"), [(3, 2), (2, 1)])
def test_quadruples_are_pairs_of_two_objects(num, slots):
    with pytest.raises(ValueError, match="pairs of scenes of two objects"):
        SwapQuadruples().draw(pool(), num, slots, generator())


def test_a_mix_has_its_share():
    scenes = Mixed(0.5).draw(pool(), 40, 2, generator())
    pairs = scenes[:20].reshape(10, 4).tolist()
    assert all(tuple(p[2:]) in {other_two(p[0], p[1], c) for c in (0, 1)} for p in pairs)
    assert len(scenes) == 40


def test_a_value_no_object_shows_is_an_error():
    with pytest.raises(ValueError, match=r"No seen object has a 'a3'; raise the coverage"):
        pool(seen=[0, 1, 2, 3, 7, 8])
    with pytest.raises(ValueError, match="has a single value"):
        ObjectPool(ConceptSpace(a=4, b=1), torch.arange(4))
    with pytest.raises(ValueError, match="No object is seen"):
        ObjectPool(SPACE, torch.zeros(0, dtype=torch.int64))


def test_a_batch_holds_fixed_numbers_of_each_size_and_members_draw_alone():
    plan = BatchPlan(scenes=30, slots=3, fewer=0.4)
    pools = [pool(), pool(seen=range(12))]
    both = plan.draw(Mixed(0.6), pools, [generator(1), generator(2)])
    assert both.groups == ((18, 3), (6, 2), (6, 1))
    counts = (both.objects >= 0).sum(2)
    assert counts[0].tolist() == [3] * 18 + [2] * 6 + [1] * 6
    assert torch.equal(counts[0], counts[1])
    alone = plan.draw(Mixed(0.6), pools[1:], [generator(2)])
    assert torch.equal(both.objects[1], alone.objects[0])


@pytest.mark.parametrize("plan", [(1, 2, 0.1), (8, 0, 0.1), (8, 2, 1.0), (8, 2, -0.1)])
def test_impossible_batches_are_refused(plan):
    with pytest.raises(ValueError, match="A step needs"):
        BatchPlan(*plan)


def slow_targets(scenes, ids):
    """Present queries of each scene, with equal shares, by loops."""
    found = []
    for scene in scenes:
        held = sorted({o for o in scene if o >= 0} & set(ids))
        found.append(dict.fromkeys(held, 1.0))
    return found


@given(st.integers(0, 500), st.sampled_from(["table", "in-batch", "swaps", "random:3", "swaps:4", "in-batch:3"]))
def test_queries_and_targets_are_those_of_a_slow_loop(seed, name):
    known = pool()
    scenes = BatchPlan(10, 3, 0.4).draw(RandomObjects(), [known], [generator(seed)]).objects
    targets = query_choice(name).choose([known], scenes, [generator(seed + 1)])
    ids = targets.ids[0].tolist()
    assert ids == sorted(set(ids))  # no query twice
    assert set(ids) <= set(SEEN)  # held-out objects never appear in any role
    in_batch = {o for o in scenes.flatten().tolist() if o >= 0}
    if name == "table":
        assert ids == sorted(SEEN)
    elif name == "in-batch":
        assert set(ids) == in_batch
    elif "4" in name or (name.endswith(":3") and name.startswith("in")):
        assert len(set(ids) & in_batch) <= int(name.split(":")[1])
    else:
        assert in_batch <= set(ids)
    for scene, expected in enumerate(slow_targets(scenes[0].tolist(), ids)):
        found = Counter()
        for column, share in zip(targets.columns[0, scene].tolist(), targets.shares[0, scene].tolist(), strict=True):
            found[ids[column]] += share
        assert {o: pytest.approx(s) for o, s in found.items() if s} == expected


def test_held_out_objects_appear_only_when_asked_and_never_as_positives():
    known = pool()
    scenes = BatchPlan(200, 2, 0.0).draw(RandomObjects(), [known], [generator()]).objects
    for name in ("table", "swaps", "random:40"):
        ids = query_choice(name, held_out=True).choose([known], scenes, [generator(1)]).ids[0]
        assert not bool(known.is_seen[ids].all())
    assert set(swapped(known, scenes[0], generator(2)).tolist()) - set(SEEN)


def test_a_step_doesnt_grow_with_the_space():
    """Of 125,000 objects a step asks for the batch's and a thousand more, never for the whole table."""
    space = ConceptSpace(a=50, b=50, c=50)
    pool = ObjectPool(space, torch.arange(0, space.num_objects, 3))
    generator = torch.Generator().manual_seed(0)
    objects = RandomObjects().draw(pool, 64, 2, generator)[None]
    found = query_choice("auto", objects=len(pool.seen)).choose([pool], objects, [generator])
    assert found.ids.shape[1] <= 2 * 64 + 1024
    assert (found.ids.gather(1, found.columns.flatten(1)) == objects.flatten(1)).all()


def test_members_with_fewer_queries_are_masked():
    pools = [pool(), pool(seen=range(12))]
    scenes = torch.tensor([[[0, 1]], [[2, 3]]])
    targets = WholeTable().choose(pools, scenes, [])
    assert targets.valid is not None
    assert targets.valid.sum(1).tolist() == [8, 12]
    alone = WholeTable().choose(pools[:1], scenes[:1], [])
    assert torch.equal(targets.columns[0], alone.columns[0])
    assert torch.equal(targets.ids[0, :8], alone.ids[0])


def test_every_present_value_has_one_share():
    values = SPACE.scenes([[0, 2], [4, -1], [3, 3]]).values
    targets = value_targets(SPACE, values[None])
    for scene, slots in enumerate(values.tolist()):
        shares = Counter()
        for column, share in zip(targets.columns[0, scene].tolist(), targets.shares[0, scene].tolist(), strict=True):
            shares[column] += share
        expected = {v[0] for v in slots if v[0] >= 0} | {4 + v[1] for v in slots if v[1] >= 0}
        assert {c for c, s in shares.items() if s} == expected
        assert all(shares[c] == pytest.approx(1) for c in expected)


def test_repeats_count_within_a_scene():
    rows = list(product([-1, 0, 1], repeat=3))
    found = repeats(torch.tensor([rows]))[0]
    for row, shares in zip(rows, found.tolist(), strict=True):
        assert shares == pytest.approx([0 if thing < 0 else 1 / row.count(thing) for thing in row])


@pytest.mark.parametrize("name", ["all", "random:0", "random:x", "swaps:-3", "table:", ""])
def test_unknown_choices_are_refused(name):
    with pytest.raises(ValueError, match=r"take auto, table|positive number"):
        query_choice(name)


@pytest.mark.parametrize(
    ("name", "words"), [("closed", "take random"), ("mixed:x", "take random"), ("mixed:2", "between 0 and 1")]
)
def test_unknown_draws_are_refused(name, words):
    with pytest.raises(ValueError, match=words):
        scene_draw(name)


def test_names_and_types():
    assert (scene_draw("random"), scene_draw("quadruples")) == (RandomObjects(), SwapQuadruples())
    assert query_choice("swaps:64", held_out=True) == InBatch(limit=64, swaps=True, held_out=True)


def test_a_mix_has_random_scenes_alone_where_no_swap_is_seen():
    diagonal = pool(ConceptSpace(a=5, b=5), [0, 6, 12, 18, 24])
    assert not diagonal.can_swap
    assert pool().can_swap
    scenes = Mixed(0.6).draw(diagonal, 20, 2, generator())
    assert torch.equal(scenes, RandomObjects().draw(diagonal, 20, 2, generator()))
    with pytest.raises(ValueError, match="Hardly any swap"):
        SwapQuadruples().draw(diagonal, 20, 2, generator())
