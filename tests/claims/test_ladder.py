"""The oracle ladder: every measurement of question 1 on embedders whose answer is known.

5 x 4 values, two slots, all 400 scenes, 64 dimensions (more than the 20 objects, which a linear object probe needs).

| oracle        | binds?       | additive R2 by concept / object | concepts | objects | swap | unseen objects     |
|---------------|--------------|---------------------------------|----------|---------|------|--------------------|
| NoBinding     | no           | 1 / 1                           | 1        | level   | 0    | (later: any rule)  |
| ObjectProduct | yes, by rule | some / 1                        | 1        | 1       | 1    | (later: a product) |
| ObjectTable   | yes, by rote | some / 1                        | 1        | 1       | 1    | (later: nothing)   |
| SceneTable    | memorised    | none / none                     | chance   | 0       | chance | nothing          |
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor

from colligate.binding import BindingFunction, no_binding, object_product, object_table, scene_table
from colligate.embeddings import Embeddings
from colligate.geometry.components import Parts, decompose
from colligate.geometry.information import binding_information
from colligate.geometry.interventions import Editor, concept_edits, retrieve_edits
from colligate.geometry.objects import objects_from_concepts
from colligate.measures import bag_of_concepts_level, chance_level
from colligate.probes import ProbeOutcomes, ProbeSettings, fit_probes
from colligate.scenes.space import ConceptSpace
from colligate.scenes.splits import ByScene

SPACE = ConceptSpace(color=5, shape=4)
SCENES = SPACE.all_scenes(2)
SPLIT = ByScene().split(SCENES, seed=0)
TEST = SCENES[SPLIT.test]
DIFFERENT = ~TEST.shares_any()
DIM = 64
SEEDS = (0, 1)
ORACLES: dict[str, Callable[..., BindingFunction]] = {
    "NoBinding": no_binding, "ObjectProduct": object_product, "ObjectTable": object_table, "SceneTable": scene_table
}  # fmt: skip
SUMS = ("NoBinding", "ObjectProduct", "ObjectTable")
BINDING = ("ObjectProduct", "ObjectTable")


@dataclass(frozen=True)
class Rung:
    """What is measured of one oracle, on scenes that no fit saw."""

    embeddings: Embeddings
    r2: dict[Parts, float]
    objects_from_concepts: float
    outcomes: ProbeOutcomes
    swap_retrieval: float
    edits: float
    edits_up_to_order: float
    information: float


@cache
def rung(name: str, seed: int) -> Rung:
    embeddings = Embeddings(ORACLES[name](SPACE, 2, DIM, seed)(SCENES.values), SCENES)
    parts: list[Parts] = ["concept", "object"]
    fitted = {p: decompose(embeddings, SPLIT.fit, parts=p) for p in parts}
    probes = fit_probes(embeddings, SPLIT, ProbeSettings(strengths=(1e-6,)))
    edits = concept_edits(SCENES, 0)
    reached = retrieve_edits(embeddings, edits, {"avg": Editor(decompose(embeddings, parts="object", estimator="avg"))})
    return Rung(
        embeddings,
        {p: fitted[p].r2(embeddings[SPLIT.test]) for p in parts},
        objects_from_concepts(decompose(embeddings, parts="object")),
        probes.recognise(embeddings.vectors[SPLIT.test], TEST),
        swap_retrieval(embeddings),
        reached["avg"].hits.mean().item(),
        reached["avg"].hits_up_to_order.mean().item(),
        binding_information(embeddings, SPLIT).ratio,
    )


def swap_retrieval(embeddings: Embeddings) -> float:
    """Is the vector that objects predict for a scene nearest to that scene or its twin, and not to its swap?"""
    found = decompose(embeddings, SPLIT.fit, parts="object").retrieve(embeddings, SPLIT.test)
    return found.hits[DIFFERENT, 1].mean().item()


def levels() -> tuple[float, float]:
    """Recognition of objects by a bag of concepts, ties at random, and chance of recognising concepts."""
    values = SPACE.object_values(torch.arange(SPACE.num_objects))
    bag = bag_of_concepts_level([TEST.multiplicity(0), TEST.multiplicity(1)], values, TEST.contains_objects())
    concepts = torch.stack([chance_level(TEST.contains(c)) for c in range(2)])
    return bag.random_ties.mean().item(), concepts.mean().item()


def share(outcomes: Tensor | None) -> float:
    assert outcomes is not None
    return outcomes.double().mean().item()


@pytest.mark.parametrize("seed", SEEDS)
def test_additive_r2_tells_sums_from_a_table_of_scenes(seed: int) -> None:
    found = {name: rung(name, seed).r2 for name in ORACLES}
    for name in SUMS:
        assert found[name]["object"] == pytest.approx(1, abs=1e-9)  # a sum over objects, by construction
    assert found["NoBinding"]["concept"] == pytest.approx(1, abs=1e-9)
    # Of independent random vectors for 20 objects, values explain their degrees of freedom: (4 + 3) / 19 = .37. That
    # share is a mean over 64 dimensions; products of pairs vary more between seeds than independent vectors do.
    assert found["ObjectTable"]["concept"] == pytest.approx(7 / 19, abs=0.1)
    assert found["ObjectProduct"]["concept"] == pytest.approx(7 / 19, abs=0.15)
    for parts, value in found["SceneTable"].items():
        assert value < 0, parts  # on held-out scenes, fitted components of noise only add error


@pytest.mark.parametrize("seed", SEEDS)
def test_objects_of_a_sum_of_values_are_sums_of_values(seed: int) -> None:
    assert rung("NoBinding", seed).objects_from_concepts == pytest.approx(1, abs=1e-9)
    for name in BINDING:
        assert 0.2 < rung(name, seed).objects_from_concepts < 0.55


@pytest.mark.parametrize("seed", SEEDS)
def test_concept_probes_read_every_sum_and_no_table_of_scenes(seed: int) -> None:
    for name in SUMS:
        assert share(rung(name, seed).outcomes.concepts) == 1
    # 160 outcomes of chance .15: three standard errors are .09.
    assert share(rung("SceneTable", seed).outcomes.concepts) == pytest.approx(levels()[1], abs=0.09)


@pytest.mark.parametrize("seed", SEEDS)
def test_object_probes_read_objects_only_where_they_are_bound(seed: int) -> None:
    for name in BINDING:
        assert share(rung(name, seed).outcomes.objects) == 1
        assert share(rung(name, seed).outcomes.swaps) == pytest.approx(DIFFERENT.double().mean().item())
    without = rung("NoBinding", seed).outcomes
    bag = levels()[0]
    # Scores of a sum of values are sums of values too: where both concepts differ, two objects and their swap always
    # interleave. So the strict level (no two differ) is what theory leaves; the level with random ties is the ceiling.
    assert share(without.objects) <= bag + 0.02
    assert without.swaps is not None
    assert share(without.swaps[DIFFERENT]) < 1 / 6
    assert share(rung("SceneTable", seed).outcomes.objects) < 0.05  # 80 scenes at a chance of .0075


@pytest.mark.parametrize("seed", SEEDS)
def test_a_scene_is_told_from_its_swap_only_where_objects_are_bound(seed: int) -> None:
    for name in BINDING:
        assert rung(name, seed).swap_retrieval == 1
    assert rung("NoBinding", seed).swap_retrieval == pytest.approx(0.5)  # tied: half of the four nearest are right
    assert rung("SceneTable", seed).swap_retrieval < 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_edits_reach_their_target_as_far_as_ties_allow(seed: int) -> None:
    differ, one = 4 / 5 * 3 / 4, 1 / 5 * 3 / 4 + 4 / 5 * 1 / 4  # shares of scenes whose objects differ in both, in one
    same = 1 - differ - one
    # Every scene is as often a target as any other, and is tied with its twin.
    for name in BINDING:
        assert rung(name, seed).edits == pytest.approx(same + (1 - same) / 2)
        assert rung(name, seed).edits_up_to_order == 1
    # Without binding, with its swap and that one's twin as well.
    assert rung("NoBinding", seed).edits == pytest.approx(same + one / 2 + differ / 4)
    assert rung("NoBinding", seed).edits_up_to_order == pytest.approx(same + one + differ / 2)
    # A table of scenes: an edit adds noise to the base's own vector and stays there.
    assert rung("SceneTable", seed).edits < 0.05


@pytest.mark.parametrize("seed", SEEDS)
def test_binding_information_is_nothing_or_all(seed: int) -> None:
    for name in BINDING:
        assert rung(name, seed).information == pytest.approx(1, abs=0.01)
    assert rung("NoBinding", seed).information == pytest.approx(0, abs=1e-4)
    assert rung("SceneTable", seed).information < 0.05


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ladder_separates_what_one_score_confuses(seed: int) -> None:
    rungs = {name: rung(name, seed) for name in ORACLES}
    concepts = {name: share(r.outcomes.concepts) for name, r in rungs.items()}
    objects = {name: share(r.outcomes.objects) for name, r in rungs.items()}
    # R2 by objects and concept probes can't tell NoBinding from what binds; object probes, edits and information can.
    assert rungs["NoBinding"].r2["object"] == pytest.approx(rungs["ObjectTable"].r2["object"])
    assert concepts["NoBinding"] == concepts["ObjectTable"]
    for of in (objects, {n: r.edits for n, r in rungs.items()}, {n: r.information for n, r in rungs.items()}):
        assert min(of[name] for name in BINDING) > of["NoBinding"] + 0.1
        assert of["NoBinding"] >= of["SceneTable"] - 1e-4
    # R2 by concepts alone puts what binds below what doesn't: low R2 is not the lack of structure.
    assert rungs["NoBinding"].r2["concept"] > rungs["ObjectProduct"].r2["concept"] > rungs["SceneTable"].r2["concept"]
    # Nothing on held-out scenes tells a rule from rote: that takes objects that no fit saw.
    for of in (concepts, objects):
        assert of["ObjectProduct"] == of["ObjectTable"]


@pytest.mark.parametrize("name", SUMS)
def test_slots_of_their_own_untie_twins_and_nothing_else(name: str) -> None:
    rule = ORACLES[name](SPACE, 2, DIM, 0, positions="own")
    embeddings = Embeddings(rule(SCENES.values), SCENES)
    editor = Editor(decompose(embeddings, parts="object", positions=True, estimator="avg"))
    found = retrieve_edits(embeddings, concept_edits(SCENES, 0), {"avg+pos": editor})["avg+pos"]
    # Each slot tells its own values, so even a sum of values says which belong together: by their slot.
    assert (found.ties == 1).all()
    assert (found.hits == 1).all()
