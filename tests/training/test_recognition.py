"""Recognition three ways: against loops, on networks whose answer is known."""

from itertools import combinations, product
from typing import Any

import pytest
import torch

from colligate.networks.dual import DualEncoder, DualShape
from colligate.networks.encoders import EncoderShape
from colligate.scenes.space import ConceptSpace
from colligate.training.recognition import (
    PartScenes,
    Queries,
    outcomes,
    part_scenes,
    quick_look,
    read_queries,
    recognition_rows,
    scene_vectors,
)

SPACE = ConceptSpace(a=4, b=4)
HELD = torch.tensor([0, 1, 4, 5, 10, 15])


def test_all_scenes_of_a_part_and_all_its_swaps():
    part = part_scenes(SPACE, HELD, slots=2, budget=1000, seed=0)
    held = set(HELD.tolist())
    assert set(map(tuple, part.scenes.tolist())) == set(product(held, held))
    expected = set()
    for a, b in product(held, held):
        other = {a // 4 * 4 + b % 4, b // 4 * 4 + a % 4}
        if other <= held and not other & {a, b}:
            expected.add((a, b, frozenset(other)))
    found = [(*s, frozenset(f)) for s, f in zip(part.swap_scenes.tolist(), part.foils.tolist(), strict=True)]
    assert set(found) == expected
    assert len(found) == len(expected) == 4


def test_three_concepts_have_a_swap_for_each():
    space = ConceptSpace(a=2, b=2, c=2)
    part = part_scenes(space, torch.arange(8), slots=2, budget=1000, seed=0)
    # Two objects that differ in all three concepts have three swaps, in two concepts two (and the two coincide).
    assert len(part.swap_scenes) == 8 * 1 * 3 + 8 * 3 * 2
    for scene, foils in zip(part.swap_scenes, part.foils, strict=True):
        values, other = space.object_values(scene), space.object_values(foils)
        assert torch.equal(values.sort(0).values, other.sort(0).values)
        assert not set(scene.tolist()) & set(foils.tolist())


def swaps_by_loops(held, width, slots):
    """Each scene and the two new objects of each of its swaps, once; of two concepts, since both swaps are one."""
    found = set()
    for scene in product(held, repeat=slots):
        for i, j in combinations(range(slots), 2):
            a, b = scene[i], scene[j]
            other = {a // width * width + b % width, b // width * width + a % width}
            if len(other) == 2 and other <= held and not other & set(scene):
                found.add((scene, frozenset(other)))
    return found


@pytest.mark.parametrize(("slots", "held"), [(2, HELD), (3, HELD), (4, HELD), (3, torch.arange(16))])
def test_every_pair_of_slots_is_swapped_once(slots, held):
    part = part_scenes(SPACE, held, slots=slots, budget=100_000, seed=0)
    found = [(tuple(s), frozenset(f)) for s, f in zip(part.swap_scenes.tolist(), part.foils.tolist(), strict=True)]
    expected = swaps_by_loops(set(held.tolist()), 4, slots)
    assert set(found) == expected
    assert len(found) == len(expected) > 0


def test_a_network_that_binds_two_of_three_slots_tells_a_third_of_the_swaps():
    """It knows the objects of slots 1 and 2, and of slot 3 its values alone."""
    space = ConceptSpace(a=6, b=6)
    part = part_scenes(space, torch.arange(36), slots=3, budget=2000, seed=0)
    of_objects, of_scenes = space.object_values(torch.arange(36)), space.object_values(part.swap_scenes)
    vectors = (of_objects == of_scenes[:, 2:]).any(2).float()  # 1 for what has a value of slot 3
    for slot in (0, 1):
        vectors.scatter_(1, part.swap_scenes[:, slot : slot + 1], 2.0)
    queries = Queries(torch.eye(36), torch.zeros(12, 36))
    hits = outcomes(part, queries, torch.zeros(len(part.scenes), 36), vectors, levels=False)["swaps"].hits
    third_of_foils = (space.object_values(part.foils) == of_scenes[:, 2:]).any(2).any(1)
    apart = torch.tensor([all(len(set(column)) == 3 for column in zip(*s, strict=True)) for s in of_scenes.tolist()])
    assert torch.equal(hits[apart].bool(), ~third_of_foils[apart])
    assert 0.25 < float(hits[apart].mean()) < 0.42


def test_a_budget_is_a_seeded_choice():
    space = ConceptSpace(a=30, b=30)
    first, again, other = (part_scenes(space, torch.arange(900), slots=2, budget=50, seed=s) for s in (0, 0, 1))
    assert len(first.scenes) == len(first.swap_scenes) == 50
    assert torch.equal(first.scenes, again.scenes)
    assert not torch.equal(first.scenes, other.scenes)


@pytest.mark.parametrize("slots", [2, 3])
def test_outcomes_are_those_of_plain_loops(slots):
    g = torch.Generator().manual_seed(0)
    part = part_scenes(SPACE, HELD, slots=slots, budget=60, seed=0)
    queries = Queries(torch.randn(16, 3, generator=g), torch.randn(8, 3, generator=g))
    # Vectors near the sum of the objects' own, so that some scenes are right and some aren't.
    noisy = lambda s: queries.objects[s].sum(1) + 0.5 * torch.randn(len(s), 3, generator=g)  # noqa: E731
    vectors, swap_vectors = noisy(part.scenes), noisy(part.swap_scenes)
    found = outcomes(part, queries, vectors, swap_vectors)
    for row, scene in enumerate(part.scenes.tolist()):
        scores = (queries.objects @ vectors[row]).tolist()
        lowest = min(scores[o] for o in scene)
        assert bool(found["table"].hits[row]) is all(lowest > s for o, s in enumerate(scores) if o not in scene)
        rivals = [scores[o] for o in HELD.tolist() if o not in scene]
        assert bool(found["among"].hits[row]) is all(lowest > s for s in rivals)
        right = []
        for values, of_value in (
            ({o // 4 for o in scene}, queries.values[:4]),
            ({o % 4 for o in scene}, queries.values[4:]),
        ):
            asked = (of_value @ vectors[row]).tolist()
            right.append(min(asked[v] for v in values) > max(s for v, s in enumerate(asked) if v not in values))
        assert float(found["concept"].hits[row]) == sum(right) / 2
    for row, (scene, foils) in enumerate(zip(part.swap_scenes.tolist(), part.foils.tolist(), strict=True)):
        scores = (queries.objects @ swap_vectors[row]).tolist()
        assert bool(found["swaps"].hits[row]) is (min(scores[o] for o in scene) > max(scores[o] for o in foils))
    assert 0 < found["table"].hits.mean() < 1


def network(kind):
    shape = EncoderShape(kind=kind, width=16, heads=2, dim=64)
    model = DualEncoder(SPACE, 2, DualShape(scene=shape, query=shape, towers="shared"), seeds=[0])
    return model.requires_grad_(False)


@pytest.mark.parametrize(("kind", "least", "most"), [("bag", 0.0, 0.3), ("product", 0.98, 1.0)])
def test_a_bag_stays_near_its_level_and_a_product_binds(kind, least, most):
    model: Any = network(kind)
    if kind == "product":
        model.scene.sums.weight.zero_()
    part = part_scenes(SPACE, torch.arange(16), slots=2, budget=1000, seed=0)
    rows, arrays = recognition_rows(model, {"seen": part, "unseen": part}, coverage=0.5, family=kind)
    named = {row.id: row for row in rows}
    swaps = named["recognition.object.unseen.swaps"]
    assert least <= (swaps.value or 0.0) <= most
    assert swaps.bag_of_concepts == pytest.approx(1 / 6)
    assert swaps.bag_of_concepts_strict == 0
    hits = arrays["recognition.object.unseen.swaps.hits"]
    assert len(hits) == swaps.n == len(part.swap_scenes)
    assert named["recognition.object.seen.table"].low is not None
    both = {}
    for scene, foils, hit in zip(part.swap_scenes.tolist(), part.foils.tolist(), hits.tolist(), strict=True):
        both.setdefault(frozenset([frozenset(scene), frozenset(foils)]), {})[frozenset(scene)] = hit
    twice = named["recognition.object.unseen.swaps.both"]
    assert twice.chance == pytest.approx(1 / 36)
    assert named["recognition.object.unseen.blind"].value == pytest.approx(_ceiling(part))
    if kind == "bag":  # it has one answer for a scene and its swap
        assert all(sum(of_pair.values()) <= 1 for of_pair in both.values())
        assert twice.value == 0
    else:
        assert (twice.value or 0.0) > 0.95


def _ceiling(part: PartScenes) -> float:
    """Two objects that differ in two concepts: one half; else they are known from their values."""
    values = SPACE.object_values(part.scenes)
    return float(torch.where((values[:, 0] != values[:, 1]).all(1), 0.5, 1.0).mean())


@pytest.mark.parametrize("slots", [2, 3])
def test_both_ways_are_those_of_plain_loops(slots: int):
    g = torch.Generator().manual_seed(3)
    part = part_scenes(SPACE, torch.arange(16), slots=slots, budget=80, seed=0)
    queries = Queries(torch.randn(16, 3, generator=g), torch.randn(8, 3, generator=g))
    noisy = lambda s: queries.objects[s].sum(1) + 0.5 * torch.randn(len(s), 3, generator=g)  # noqa: E731
    vectors, there, back = noisy(part.scenes), noisy(part.swap_scenes), noisy(part.swapped)
    found = outcomes(part, queries, vectors, there, back)["swaps.both"]
    for row, (scene, swap) in enumerate(zip(part.swap_scenes.tolist(), part.swapped.tolist(), strict=True)):
        right = True
        for own, other, vector in ((scene, swap, there[row]), (swap, scene, back[row])):
            scores = (queries.objects @ vector).tolist()
            foils = [scores[o] for o in other if o not in own]
            right &= min(scores[o] for o in own) > max(foils)
        assert bool(found.hits[row]) is right
        for concept in range(2):  # a swap keeps the values of every concept
            a, b = (sorted(SPACE.object_values(torch.tensor(of))[:, concept].tolist()) for of in (scene, swap))
            assert a == b
    assert 0 < found.hits.mean() < 1


def test_every_id_is_documented(documented):
    part = part_scenes(SPACE, HELD, slots=2, budget=30, seed=0)
    rows, _ = recognition_rows(network("bag"), {"seen": part, "unseen": part}, coverage=0.5, family="bag")
    assert [row.id for row in rows if not documented(row.id)] == []
    assert len(rows) == 12


def test_no_swaps_are_said_not_scored():
    part = part_scenes(SPACE, torch.tensor([0, 5, 10]), slots=2, budget=30, seed=0)
    rows, _ = recognition_rows(network("bag"), {"unseen": part}, coverage=0.5, family="bag")
    row, both = (next(row for row in rows if row.id.endswith(end)) for end in ("swaps", "swaps.both"))
    assert both.value is None
    assert row.value is None
    assert "hold out swaps" in (row.reason or "")


def test_a_look_is_the_mean_of_the_outcomes():
    part = part_scenes(SPACE, HELD, slots=2, budget=30, seed=0)
    model = network("object-tokens")
    [found] = quick_look(model, [{"unseen": part}])
    vectors = scene_vectors(model, part.scenes[None])[0], scene_vectors(model, part.swap_scenes[None])[0]
    expected = outcomes(part, read_queries(model)[0], *vectors)
    assert found["unseen.table"] == pytest.approx(float(expected["table"].hits.mean()))
    assert found["concept.unseen"] == pytest.approx(float(expected["concept"].hits.mean()))
