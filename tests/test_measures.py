"""Measures against slow loops, levels against simulation."""

import itertools
import math
from collections import Counter
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colligate.measures import (
    TIE,
    Scratch,
    bag_of_concepts_level,
    blind_ceiling,
    chance_level,
    joined,
    recognise,
    retrieve,
    retrieve_sums,
    tie_tolerance,
)
from colligate.rescaling import rescale
from colligate.scenes.space import ConceptSpace, Scenes

FEW = settings(max_examples=25)
SMALL = st.integers(-2, 2)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------------------------------------ recognition


@given(scores=st.lists(SMALL, min_size=1, max_size=5), mask=st.integers(1, 31), foils=st.integers(0, 31))
def test_recognition_wants_every_present_query_strictly_above_every_absent_one(
    scores: list[int], mask: int, foils: int
) -> None:
    queries = range(len(scores))
    held = [bool(mask >> q & 1) for q in queries]
    if not any(held):
        held[0] = True
    present = torch.tensor([held])
    for absent in (None, [bool(foils >> q & 1) and not held[q] for q in queries]):
        beaten = [q for q in queries if (not held[q] if absent is None else absent[q])]
        pairs = [(scores[p], scores[a]) for p in queries if held[p] for a in beaten]
        found = recognise(
            torch.tensor([scores], dtype=torch.float64), present, None if absent is None else torch.tensor([absent])
        )
        assert found.hits.item() == all(p > a for p, a in pairs)
        lowest = min(scores[p] for p in queries if held[p])
        assert found.ties.item() == (bool(beaten) and lowest == max(scores[a] for a in beaten))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_difference_within_rounding_is_a_tie_and_no_win(dtype: torch.dtype) -> None:
    tolerance = tie_tolerance(dtype)
    present = torch.tensor([[True, False]])
    for scale in (1e-6, 1.0, 1e6):
        for excess, wins in ((0.4, False), (4.0, True)):
            scores = scale * torch.tensor([[1 + excess * tolerance, 1.0]], dtype=dtype)
            found = recognise(scores, present)
            assert found.hits.item() is wins
            assert found.ties.item() is not wins


def test_a_scene_without_a_present_query_is_named() -> None:
    present = torch.tensor([[True, False], [False, False]])
    with pytest.raises(ValueError, match="Scene 1 has no present query"):
        recognise(torch.zeros(2, 2), present)


# ------------------------------------------------------------------------------------------------ retrieval


@FEW
@given(scores=st.lists(st.lists(SMALL, min_size=4, max_size=4), min_size=1, max_size=5))
def test_retrieval_counts_one_over_the_number_tied(scores: list[list[int]]) -> None:
    keys = torch.tensor([[0, 0], [1, 0], [2, 1], [0, 1]])  # the last candidate is a replicate of the first
    targets = torch.tensor([[i % 3, i % 2] for i in range(len(scores))])
    found = retrieve(torch.tensor(scores, dtype=torch.float64), targets, keys)
    for q, row in enumerate(scores):
        on_top = [c for c in range(4) if row[c] == max(row)]
        assert found.tied[q] == len(on_top)
        assert found.top[q] in on_top
        for key in range(2):
            right = [c for c in on_top if keys[c, key] == targets[q, key]]
            assert found.hits[q, key].item() == pytest.approx(len(right) / len(on_top))


@FEW
@given(seed=st.integers(0, 1000), weighted=st.booleans(), based=st.booleans())
def test_queries_that_are_sums_are_scored_as_their_sums(seed: int, weighted: bool, based: bool) -> None:
    draw = generator(seed)
    components, candidates = (torch.randn(n, 6, generator=draw, dtype=torch.float64) for n in (9, 40))
    columns = torch.randint(-1, 9, (30, 3), generator=draw)
    weights = torch.randn(30, 3, generator=draw, dtype=torch.float64) if weighted else None
    base = torch.randn(30, 6, generator=draw, dtype=torch.float64)
    keys, targets = torch.arange(40)[:, None], torch.randint(40, (30, 1), generator=draw)
    found = retrieve_sums(
        base @ candidates.T if based else None, columns, weights, components @ candidates.T, targets, keys
    )
    queries = base.clone() if based else torch.zeros(30, 6, dtype=torch.float64)
    for q, used in enumerate(columns.tolist()):
        for p, column in enumerate(used):
            if column >= 0:
                queries[q] += (1.0 if weights is None else weights[q, p]) * components[column]
    some = queries.abs().sum(1) > 0  # a query of no components at all is tied with every candidate
    nearest = (queries @ candidates.T).argmax(1)
    assert torch.equal(found.top[some], nearest[some])
    assert torch.equal(found.hits[some, 0] == 1, nearest[some] == targets[some, 0])
    assert (found.tied[~some] == 40).all()


def test_an_unknown_component_does_no_harm_where_it_is_not_used() -> None:
    scores = torch.tensor([[torch.nan, torch.nan], [0.0, 1.0]], dtype=torch.float64)
    keys = torch.arange(2)[:, None]
    found = retrieve_sums(None, torch.tensor([[-1, 1]]), None, scores, torch.tensor([[1]]), keys)
    assert found.hits.item() == 1
    with pytest.raises(ValueError, match="query 0 are not numbers"):
        retrieve_sums(None, torch.tensor([[0, 1]]), None, scores, torch.tensor([[1]]), keys)


def test_memory_that_is_used_again_holds_what_is_asked_for_now() -> None:
    scratch = Scratch()
    table = torch.arange(12.0).reshape(4, 3)
    first = scratch.rows(table, torch.tensor([1, 3]), "total")
    again = scratch.rows(table, torch.tensor([2]), "total")
    assert again.data_ptr() == first.data_ptr()  # the point of it
    assert torch.equal(again, table[[2]])
    assert scratch.rows(table, torch.tensor([0]), "part").data_ptr() != first.data_ptr()
    for other in (table.double(), table[:, :2].contiguous(), torch.cat([table, table], 1)):
        found = scratch.rows(other, torch.tensor([3, 0]), "total")
        assert found.dtype == other.dtype
        assert torch.equal(found, other[[3, 0]])
    longer = scratch.rows(torch.cat([table, table], 1), torch.tensor([0, 1, 2, 3, 0]), "total")
    assert torch.equal(longer, torch.cat([table, table], 1)[[0, 1, 2, 3, 0]])


def test_scores_to_start_from_may_stand_in_the_same_memory() -> None:
    scratch, draw = Scratch(), generator()
    bases, from_parts = (torch.randn(5, 7, generator=draw, dtype=torch.float64) for _ in range(2))
    columns, keys = torch.tensor([[0, 2], [1, -1], [3, 4]]), torch.arange(7)[:, None]
    which = torch.tensor([4, 0, 2])
    expected = bases[which].clone()
    for q, used in enumerate(columns.tolist()):
        expected[q] += sum(from_parts[column] for column in used if column >= 0)
    base = scratch.rows(bases, which, "total")
    found = retrieve_sums(base, columns, None, from_parts, torch.zeros(3, 1, dtype=torch.int64), keys, scratch)
    assert torch.equal(found.top, expected.argmax(1))


def test_blocks_are_joined_in_order() -> None:
    scores, keys = torch.randn(7, 5, generator=generator()), torch.arange(5)[:, None]
    targets = torch.randint(5, (7, 1), generator=generator())
    whole = retrieve(scores, targets, keys)
    pieces = joined([retrieve(scores[i : i + 3], targets[i : i + 3], keys) for i in range(0, 7, 3)], keys=1)
    assert all(torch.equal(one, other) for one, other in zip(whole, pieces, strict=True))
    assert joined([], keys=2).hits.shape == (0, 2)


def test_one_candidate_is_always_found() -> None:
    key = torch.zeros(1, 1, dtype=torch.int64)
    assert retrieve(torch.tensor([[-3.0]]), key, key).hits.item() == 1


def test_scores_that_are_not_numbers_are_refused() -> None:
    key = torch.arange(2)[:, None]
    with pytest.raises(ValueError, match="query 1 are not numbers"):
        retrieve(torch.tensor([[0.0, 1.0], [torch.nan, 1.0]]), key, key)


# ------------------------------------------------------------------------------------------------ levels


def level(scenes: Scenes) -> tuple[Tensor, Tensor]:
    every = torch.arange(scenes.space.num_objects)
    concepts = range(scenes.space.num_concepts)
    found = bag_of_concepts_level(
        [scenes.multiplicity(c) for c in concepts], scenes.space.object_values(every), scenes.contains_objects()
    )
    return found.random_ties, found.strict


@pytest.mark.parametrize(
    ("sizes", "random_ties", "strict"), [((20, 20), 0.247, 0.096), ((8, 3), 0.52, 0.42), ((50, 50), 0.20, 0.04)]
)
def test_the_bag_of_concepts_level_has_the_published_values(
    sizes: tuple[int, int], random_ties: float, strict: float
) -> None:
    space = ConceptSpace(color=sizes[0], shape=sizes[1])
    scenes = space.sample_scenes(3000, generator=generator()) if space.num_objects > 400 else space.all_scenes(2)
    rows = torch.randperm(len(scenes), generator=generator())[:3000]
    found = [of.mean().item() for of in level(scenes[rows])]
    # 3,000 scenes with outcomes between 0 and 1: two standard errors are at most 0.02.
    assert found == pytest.approx([random_ties, strict], abs=0.02)


def test_in_a_full_factorial_the_level_is_that_of_the_formula() -> None:
    # All pairs: both concepts differ with (1 - 1/a)(1 - 1/b), and then 1 of the 6 pairs of 4 objects is right.
    for a, b in ((5, 4), (8, 3)):
        both = (1 - 1 / a) * (1 - 1 / b)
        random_ties, strict = level(ConceptSpace(color=a, shape=b).all_scenes(2))
        assert random_ties.mean().item() == pytest.approx(both / 6 + 1 - both)
        assert strict.mean().item() == pytest.approx(1 - both)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_the_level_is_what_an_explicit_bag_model_with_random_ties_reaches(slots: int) -> None:
    space = ConceptSpace(color=4, shape=3)
    scenes = space.sample_scenes(300, slots, generator=generator(slots))
    objects = space.object_values(torch.arange(space.num_objects))
    counts = torch.stack([scenes.multiplicity(c)[:, objects[:, c]] for c in range(2)])
    certain = (counts.sum(0) > slots) & (counts > 0).all(0)  # more objects have the one or the other than there are
    known = (counts > 0).sum(0).double() + certain  # values it finds, and objects that it can be sure of
    present = scenes.contains_objects()
    trials = 40
    hits = torch.zeros(len(scenes))
    for trial in range(trials):
        noise = torch.rand(known.shape, generator=generator(trial), dtype=torch.float64)
        hits += recognise(known + 0.5 * noise, present).hits
    random_ties, strict = level(scenes)
    # 12,000 coin flips: three standard errors are 0.014.
    assert hits.mean().item() / trials == pytest.approx(random_ties.mean().item(), abs=0.014)
    assert torch.equal(recognise(known, present).hits, strict.bool())


def test_chance_is_what_random_scores_reach() -> None:
    scenes = ConceptSpace(color=3, shape=2).all_scenes(2)
    present = scenes.contains_objects()
    trials = 300
    hits = sum(
        recognise(torch.rand(present.shape, generator=generator(trial)), present).hits.double().mean().item()
        for trial in range(trials)
    )
    # 10,800 coin flips at about 0.08: three standard errors are 0.008.
    assert hits / trials == pytest.approx(chance_level(present).mean().item(), abs=0.008)
    for held in range(1, 6):
        row = (torch.arange(6) < held)[None]
        assert chance_level(row).item() == pytest.approx(1 / math.comb(6, held))


def test_rescaling_puts_the_bag_at_zero_and_the_ceiling_at_one() -> None:
    assert rescale(0.25, 0.25, 0.9) == pytest.approx(0)
    assert rescale(0.9, 0.25, 0.9) == pytest.approx(1)
    assert rescale(0.5, 0.9, 0.9) is None
    assert rescale(0.5, 0.9, 0.5) is None


def test_a_ceiling_that_hardly_stands_above_the_bag_is_no_scale() -> None:
    assert rescale(0.2, 0.25, 0.26) is None
    assert rescale(0.2, 0.25, 0.35) == pytest.approx(-0.5)


def arrangements(scene: Tensor, known: set[tuple[int, ...]]) -> float:
    """By brute force: the share of the likeliest set of objects among all ways to put a scene's values together."""
    first, second = scene.T.tolist()
    ways = [tuple(sorted(zip(first, other, strict=True))) for other in permutations(second)]
    ways = [way for way in ways if all(one in known for one in way)]
    return max(Counter(ways).values()) / len(ways)


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_the_ceiling_of_blindness_is_the_share_of_the_likeliest_arrangement(slots: int) -> None:
    space = ConceptSpace(color=4, shape=3)
    scenes = space.sample_scenes(60, slots, generator=generator(slots))
    for known in (torch.arange(12), scenes.objects.unique()):
        found = blind_ceiling(scenes.values, known, torch.tensor([3, 1]))
        assert found is not None
        pairs = {tuple(pair) for pair in space.object_values(known).tolist()}
        assert found.tolist() == pytest.approx([arrangements(scene, pairs) for scene in scenes.values])


def test_the_ceiling_of_blindness_knows_empty_slots_and_more_concepts() -> None:
    space = ConceptSpace(color=3, shape=3, size=2)
    strides = torch.tensor([6, 2, 1])
    scenes = space.scenes([[0, 9, -1], [0, 9, 17], [0, -1, -1]])
    found = blind_ceiling(scenes.values, torch.arange(18), strides)
    assert found is not None
    assert found[2] == 1
    assert found[0] == pytest.approx(1 / 4)  # two objects that differ in three concepts: four sets
    # The ceiling is none where the ways are too many to list.
    assert blind_ceiling(space.scenes([[0, 1, 2, 3, 4, 5, 6]]).values, torch.arange(18), strides) is None


def test_objects_that_the_counts_make_certain_stand_on_top() -> None:
    # Two reds and two squares among three: one is a red square. It leaves red ball and blue square, or a second red
    # square and blue ball, tied three at a time: red ball, blue square, blue ball.
    space = ConceptSpace(color=2, shape=2)
    random_ties, _ = level(space.scenes([[0, 1, 2], [0, 0, 3]]))
    assert random_ties.tolist() == pytest.approx([1 / 3, 1 / 3])


def test_every_tie_is_found_whatever_its_place() -> None:
    for places in itertools.combinations(range(5), 2):
        scores = torch.zeros(1, 5, dtype=torch.float64)
        scores[0, list(places)] = torch.tensor([1.0, 1.0 - TIE / 2], dtype=torch.float64)
        key = torch.arange(5)[:, None]
        found = retrieve(scores, torch.tensor([[places[0]]]), key)
        assert (found.hits.item(), found.tied.item()) == (0.5, 2)
