"""Recognition by queries: equal to a slow reference, and the oracles' answers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from colligate.crossmodal.measurements import alignment_rows, recognition_rows, reverse_rows, without_rows
from colligate.crossmodal.queries import QueryTemplates, QueryVectors, embed_queries, query_tower, scene_tower
from colligate.crossmodal.recognition import rank_scenes, recognise_both_ways, recognise_queries
from colligate.embedders import load_model
from colligate.embedders.towers import Model
from colligate.embeddings import Embeddings
from colligate.records import Row
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.worlds import load_world

SPACE = ConceptSpace(color=4, shape=3)


def drawn(seed: int = 0, slots: int = 3) -> tuple[torch.Tensor, Scenes, QueryVectors]:
    """Vectors that know something of their scenes, with some empty slots and coarse scores that tie."""
    generator = torch.Generator().manual_seed(seed)
    objects = torch.randint(-1, 12, (60, slots), generator=generator)
    objects[:, 0] = objects[:, 0].clamp(min=0)
    scenes = SPACE.scenes(objects)
    table = torch.randn(12, 6, generator=generator).round()
    vectors = torch.where(scenes.filled[..., None], table[objects.clamp(min=0)], 0.0).sum(1) + 0.1
    concepts = tuple(torch.randn(size, 6, generator=generator).round() + 0.1 for size in SPACE.sizes)
    return vectors, scenes, QueryVectors(SPACE, concepts, table + 0.3 * torch.randn(12, 6, generator=generator).round())


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def above(right: list[float], wrong: list[float]) -> bool:
    return not wrong or min(right) - max(wrong) > 1e-6 * max(abs(min(right)), abs(max(wrong)))


@pytest.mark.parametrize("known", [None, torch.arange(12) < 9])
def test_recognition_equals_a_slow_reference(known: torch.Tensor | None):
    vectors, scenes, queries = drawn()
    if known is not None:
        inside = (known[scenes.objects.clamp(min=0)] | ~scenes.filled).all(1)
        vectors, scenes = vectors[inside], scenes[inside]
    found = recognise_queries(vectors, scenes, queries, known=known)
    assert queries.concepts is not None
    for s in range(len(scenes)):
        held = [o for o in scenes.objects[s].tolist() if o >= 0]
        table = [o for o in range(12) if known is None or bool(known[o])]
        scores = {o: cosine(vectors[s], queries.objects[o]) for o in table}
        expected = above([scores[o] for o in held], [scores[o] for o in table if o not in held])
        assert bool(found.objects[s]) == expected
        for c in range(2):
            values = {int(SPACE.object_values(torch.tensor(o))[c]) for o in held}
            own = [cosine(vectors[s], q) for q in queries.concepts[c]]
            expected = above([own[v] for v in values], [own[v] for v in range(len(own)) if v not in values])
            assert bool(found.concepts[s, c]) == expected
        foils = set()
        for i, first in enumerate(held):
            for second in held[i + 1 :]:
                (a, b), (c, d) = (SPACE.object_values(torch.tensor(o)).tolist() for o in (first, second))
                foils |= {int(SPACE.object_ids(torch.tensor(o))) for o in ((a, d), (c, b))} - set(held)
        foils &= set(table)
        assert bool(found.swappable[s]) == bool(foils)
        assert bool(found.swaps[s]) == (bool(foils) and above([scores[o] for o in held], [scores[o] for o in foils]))


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_both_right_equals_a_slow_reference(slots: int):
    vectors, scenes, queries = drawn(3, slots)
    able = scenes.filled[:, :2].all(1)
    values = torch.cat([scenes.values, scenes[able].swap(0, (0, 1)).values])
    both = Scenes(SPACE, values)
    table = torch.randn(12, 6, generator=torch.Generator().manual_seed(9))
    there = torch.where(both.filled[..., None], table[both.objects.clamp(min=0)], 0.0).sum(1)
    told, queries = there + 0.05, QueryVectors(SPACE, None, table)
    del vectors
    found = recognise_both_ways(told, both, queries)
    seen = 0

    def right(scene: int, other: int) -> bool:
        held, foils = (set(both.objects[i].tolist()) - {-1} for i in (scene, other))
        score = [cosine(told[scene], q) for q in queries.objects]
        return above([score[o] for o in held], [score[o] for o in foils - held])

    ids = both.unordered_ids
    for s in range(len(both)):
        hits = list[bool]()
        for a in range(slots):
            for b in range(a + 1, slots):
                if not bool(both.filled[s, a] & both.filled[s, b]):
                    continue
                for concept in range(2):
                    wanted = both[torch.tensor([s])].swap(concept, (a, b)).unordered_ids
                    partner = (ids == wanted).nonzero()[:, 0]
                    if len(partner) and int(wanted) != int(ids[s]):
                        other = int(partner[0])
                        hits.append(right(s, other) and right(other, s))
        assert int(found.swaps[s]) == len(hits)
        if hits:
            seen += sum(hits)
            assert float(found.hits[s]) == pytest.approx(sum(hits) / len(hits))
    assert seen


def test_texts_that_are_favoured_do_not_make_a_blind_tower_right_both_ways():
    """A sum of values and texts with biases: against swaps it may be right in half of the scenes, never in both."""
    space = ConceptSpace(color=2, shape=8)
    scenes = space.all_scenes(slots=2)
    generator = torch.Generator().manual_seed(2)
    tables = [torch.randn(size, 32, generator=generator) for size in space.sizes]
    sums = torch.stack([table[scenes.values[..., c]].sum(1) for c, table in enumerate(tables)]).sum(0)
    objects = space.object_values(torch.arange(16))
    texts = torch.randn(16, 32, generator=generator)
    favoured = 20.0 * (objects.sum(1) % 2 == 0)
    vectors = torch.cat([sums, 4 * torch.ones(len(sums), 1)], dim=1)
    queries = QueryVectors(space, None, torch.cat([texts, favoured[:, None]], dim=1))
    found = {row.id: row for row in recognition_rows(Embeddings(vectors, scenes), queries)}
    one_way, both, blind = (found[f"crossmodal.object.{name}"] for name in ("swap", "swap.both", "blind"))
    assert one_way.value is not None
    assert one_way.bag_of_concepts is not None
    assert one_way.value > one_way.bag_of_concepts + 0.02
    assert one_way.value <= 0.5
    assert both.value == 0.0
    assert both.chance == pytest.approx(1 / 36)
    assert blind.value is not None
    assert 0.5 < blind.value < 1  # scenes whose objects share a value are known from their values alone


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch):
    vectors, scenes, queries = drawn()
    whole, ranked = recognise_queries(vectors, scenes, queries), rank_scenes(vectors, scenes, queries)
    monkeypatch.setattr("colligate.crossmodal.recognition.BLOCK", 40)
    parts, in_parts = recognise_queries(vectors, scenes, queries), rank_scenes(vectors, scenes, queries)
    assert torch.equal(whole.objects, parts.objects)
    assert torch.equal(whole.bag, parts.bag)
    for one, other in zip(ranked, in_parts, strict=True):
        torch.testing.assert_close(one.area, other.area, equal_nan=True)


def test_ranking_equals_a_slow_reference():
    vectors, scenes, queries = drawn()
    _, objects = rank_scenes(vectors, scenes, queries)
    units = torch.nn.functional.normalize(vectors, dim=1)
    for o in range(12):
        scores = units @ queries.matrix[7 + o]
        holds = (scenes.objects == o).any(1)
        right, wrong = scores[holds], scores[~holds]
        wins = (right[:, None] > wrong).double() + 0.5 * (right[:, None] == wrong).double()
        assert abs(float(wins.mean()) - float(objects.area[o])) < 0.01  # sums of products in another order may untie
        assert float(objects.share[o]) == pytest.approx(float(holds.double().mean()))


def values_of(rows: list[Row]) -> dict[str, Any]:
    return {row.id: row.value for row in rows}


@pytest.mark.parametrize(
    ("name", "concept", "swap"),
    [("aligned", 1.0, 1.0), ("mismatched", 1.0, 0.1), ("bag", 1.0, 0.08), ("rote", 1.0, 0.1), ("rotated", 0.24, 0.03)],
)
def test_pairs_of_towers_answer_as_they_were_made_to(pair: Callable, name: str, concept: float, swap: float):
    it = pair(name, 256)
    rows = recognition_rows(it.scenes, it.queries)
    found = values_of(rows)
    assert found["crossmodal.concept"] == pytest.approx(concept, abs=0.05)
    assert found["crossmodal.object.swap"] == pytest.approx(swap, abs=0.08)
    if name == "aligned":
        assert found["crossmodal.object.swap.both"] > 0.95
    if name == "bag":
        assert found["crossmodal.object.swap.both"] == 0.0
    level = next(row for row in rows if row.id == "crossmodal.object").bag_of_concepts
    assert level == pytest.approx(0.514, abs=0.001)  # the exact count for 8 x 3 values and every pair
    assert (found["crossmodal.object"] > 0.9) == (name == "aligned")
    assert found["crossmodal.object.of.1"] == 1.0 or name == "rotated"  # single objects need no binding


def test_captions_find_their_own_objects_where_pictures_do_not(pair: Callable):
    it = pair("mismatched", 256)
    said = Embeddings(it.model.towers["text"].embed(it.world.texts()), it.world.scenes)
    found = values_of(recognition_rows(said, it.queries, prefix="crossmodal.text"))
    assert found["crossmodal.text.object"] > 0.99
    assert values_of(reverse_rows(it.scenes, it.queries))["crossmodal.reverse.object.area"] < 0.99


def test_alignment_says_which_part_is_shared(pair: Callable):
    cosines = {}
    for name in ("aligned", "mismatched", "rotated", "bag"):
        it = pair(name, 256)
        cosines[name] = values_of(alignment_rows(it.scenes, it.queries))
    for part in ("object", "concept", "interaction"):
        assert cosines["aligned"][f"crossmodal.alignment.{part}.cosine"] > 0.99
        assert abs(cosines["rotated"][f"crossmodal.alignment.{part}.cosine"]) < 0.1
        assert cosines["rotated"][f"crossmodal.alignment.{part}.cka"] > 0.99
        assert cosines["rotated"][f"crossmodal.alignment.{part}.residual"] < 0.01
    assert cosines["mismatched"]["crossmodal.alignment.concept.cosine"] > 0.7
    assert abs(cosines["mismatched"]["crossmodal.alignment.interaction.cosine"]) < 0.1
    assert cosines["bag"]["crossmodal.interaction.text"] < 0.01
    assert cosines["bag"]["crossmodal.interaction.scene"] > 0.2


def test_taking_out_what_binds_leaves_a_bag_of_concepts(pair: Callable):
    it = pair("aligned", 256)
    found = values_of(without_rows(it.scenes, it.queries))
    for tower in ("scene", "text"):
        assert found[f"crossmodal.without.{tower}.interaction.concept"] > 0.99
        assert found[f"crossmodal.without.{tower}.interaction.object.swap"] < 0.35
        assert found[f"crossmodal.without.{tower}.interaction.permuted.object.swap"] > 0.9
        assert found[f"crossmodal.without.{tower}.concept.object.swap"] > 0.99
    assert found["crossmodal.without.scene.object.object"] < 0.1


def test_every_id_is_documented(pair: Callable, documented: Callable[[str], bool]):
    it = pair("aligned", 256)
    rows = [*recognition_rows(it.scenes, it.queries), *reverse_rows(it.scenes, it.queries)]
    rows += [*alignment_rows(it.scenes, it.queries), *without_rows(it.scenes, it.queries)]
    rows += recognition_rows(it.scenes, it.queries, prefix="crossmodal.text")
    assert [row.id for row in rows if not documented(row.id)] == []


def test_ensembles_average_unit_vectors(pair: Callable):
    it = pair("aligned", 256)
    templates = QueryTemplates(values=("something {color}", "a {color} thing", "a {shape}"), article=True)
    queries = embed_queries(it.model.towers["text"], it.world, templates)
    assert it.queries.concepts is not None
    assert queries.concepts is not None
    for one, other in zip(queries.concepts, it.queries.concepts, strict=True):
        torch.testing.assert_close(
            torch.nn.functional.normalize(one, dim=1), torch.nn.functional.normalize(other, dim=1)
        )  # the oracle skips the words that only build the sentence


@pytest.mark.parametrize(
    ("article", "expected"), [(False, "a photo of a orange cube"), (True, "a photo of an orange cube")]
)
def test_templates_with_and_without_articles(article: bool, expected: str):
    space = ConceptSpace(color=["orange"], shape=["cube"])
    [template] = QueryTemplates(objects=("a photo of a {color} {shape}",), article=article).of_object(space)
    assert template(space.all_scenes(slots=1)) == [expected]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("a photo",), "has no place for a concept; write {value} or one of {color}, {shape}"),
        (("a {color} {shape}",), "has places for color and shape"),
        (("a {color}",), "No template asks for the shape; add one with {value} or {shape}"),
        (("a {colour}",), "has no place for a concept"),
    ],
)
def test_a_template_without_its_place_is_told(values: tuple[str, ...], message: str):
    import re

    text = load_model("oracle:pair-aligned:8").towers["text"]
    with pytest.raises(ValueError, match=re.escape(message)):
        embed_queries(text, load_world("clevr"), QueryTemplates(values=values))


def test_a_model_that_lacks_a_tower_is_told():
    world, one = load_world("clevr"), load_model("oracle:no-binding:8")
    with pytest.raises(ValueError, match="has no text tower"):
        query_tower(one)
    text = Model("mine", {"text": load_model("oracle:pair-bag:8").towers["text"]})
    with pytest.raises(ValueError, match="has no picture or scene tower"):
        scene_tower(text, world)

    class Pictures:
        kind, fingerprint = "picture", None

        def embed(self, items: list[Any]) -> torch.Tensor:
            return torch.ones(len(items), 8)

    pictures = Model("mine", {"picture": Pictures()})
    with pytest.raises(ValueError, match="shows text, scene"):
        scene_tower(pictures, load_world("text8x8"))


def test_vectors_that_do_not_match_are_told():
    vectors, scenes, queries = drawn()
    with pytest.raises(ValueError, match="59 vectors for 60 scenes"):
        recognise_queries(vectors[:-1], scenes, queries)
    with pytest.raises(ValueError, match="5 wide and query vectors 6"):
        recognise_queries(vectors[:, :5], scenes, queries)
    with pytest.raises(ValueError, match="is no alternative"):
        recognise_queries(vectors, scenes, queries, known=torch.arange(12) < 3)
    with pytest.raises(ValueError, match="different concepts"):
        recognise_queries(vectors, ConceptSpace(a=4, b=3).scenes(scenes.objects), queries)
    with pytest.raises(ValueError, match="object queries for 12 objects"):
        QueryVectors(SPACE, None, torch.zeros(5, 6))


def test_ranking_by_concept_adds_up_to_ranking_by_values(pair: Callable):
    it = pair("rotated", 32)
    rows = reverse_rows(it.scenes, it.queries)
    found = values_of(rows)
    for what in ("first", "area"):
        names = ("concept", "concept.color", "concept.shape")
        whole, color, shape = (found[f"crossmodal.reverse.{name}.{what}"] for name in names)
        assert 11 * whole == pytest.approx(8 * color + 3 * shape)
    assert {row.concept for row in rows} == {None, "color", "shape"}
