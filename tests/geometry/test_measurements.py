"""The rows of question 1: each says what the library says, beside the right levels, or gives a reason."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from colligate.binding import no_binding, object_product, object_table
from colligate.embeddings import Embeddings
from colligate.geometry.components import decompose
from colligate.geometry.editing import edit_rows
from colligate.geometry.measurements import decomposition_rows, information_rows, probe_rows, removal_rows
from colligate.geometry.objects import object_squares, objects_by_chance
from colligate.geometry.subject import ESTIMATORS, Settings, Subject
from colligate.measures import bag_of_concepts_level, chance_level, chance_of_order
from colligate.probes import ProbeSettings
from colligate.records import Row
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByScene, Split

SPACE = ConceptSpace(color=4, shape=3)
PAIRS = SPACE.all_scenes(2)
SINGLES = SPACE.all_scenes(1)
QUICK = Settings(probes=ProbeSettings(strengths=(1e-6,), max_steps=100), edit_budget=120, strengths=(0.5, 1.0))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def subject(
    rule: Callable[..., torch.nn.Module], scenes: Scenes, noise: float = 0.0, settings: Settings = QUICK
) -> Subject:
    vectors = rule(scenes.space, scenes.slots, 32)(scenes.values)
    vectors = vectors + noise * torch.randn(vectors.shape, generator=generator(), dtype=torch.float64)
    return Subject.of(Embeddings(vectors, scenes), ByScene(), settings)


def all_rows(of: Subject) -> list[Row]:
    parts = (probe_rows, decomposition_rows, edit_rows, removal_rows, information_rows)
    return [row for part in parts for row in part(of)]


def index(rows: list[Row]) -> dict[tuple[str, str], Row]:
    return {(row.id, row.on): row for row in rows if row.family is None}


WORLD = Scenes.join([PAIRS, SINGLES])


@pytest.fixture(scope="module")
def noisy() -> Subject:
    return subject(object_product, WORLD, noise=1.0)


@pytest.fixture(scope="module")
def noisy_rows(noisy: Subject) -> list[Row]:
    return all_rows(noisy)


def sparse() -> Scenes:
    """Two objects of the space occur nowhere, and scenes share no value."""
    kept = PAIRS[(PAIRS.objects != 0).all(1) & (PAIRS.objects != 7).all(1)]
    return kept[~kept.shares_any()]


def ragged() -> Scenes:
    return Scenes.join([PAIRS, SPACE.sample_scenes(60, 3, generator=generator()), PAIRS[:20], SINGLES])


# ------------------------------------------------------------------------------------------------ all rows


def check_rows(rows: list[Row]) -> None:
    keys = [(row.id, row.on, row.family) for row in rows]
    assert len(keys) == len(set(keys))
    for row in rows:
        assert row.value is not None or row.reason, row
        assert (row.low is None) == (row.high is None), row
        assert row.low is not None or row.reason, row
        for number in (row.value, row.low, row.high, row.chance, row.bag_of_concepts, row.bag_of_concepts_strict):
            assert number is None or torch.isfinite(torch.tensor(number)), row
        shares = ("probe.", "retrieval.", "edit.", "removal.", "reconstruction.")
        if row.value is not None and row.id.startswith(shares):
            levels = (row.value, row.low, row.high, row.chance, row.bag_of_concepts, row.bag_of_concepts_strict)
            assert all(x is None or -1e-9 <= x <= 1 + 1e-9 for x in levels), row
            assert row.chance is not None, row
            if row.bag_of_concepts is not None and row.bag_of_concepts_strict is not None:
                assert row.bag_of_concepts_strict <= row.bag_of_concepts + 1e-9, row


def test_rows_are_well_formed_and_documented(noisy_rows: list[Row], documented: Callable[[str], bool]) -> None:
    check_rows(noisy_rows)
    assert [row.id for row in noisy_rows if not documented(row.id)] == []
    assert {row.protocol for row in noisy_rows} == {"strict"}


def test_the_ids_that_the_issue_names_are_there(noisy_rows: list[Row]) -> None:
    there = index(noisy_rows)
    for on in ("all", "fit", "test"):
        for id in (
            "r2.concept.least_squares", "r2.concept+pos.least_squares", "r2.object.least_squares",
            "r2.object+pos.least_squares", "r2.object.avg", "r2.object.avg+pos", "retrieval.object.avg",
            "retrieval.object.avg+pos", "retrieval.object.avg.up_to_order", "edit.retrieval.avg",
            "edit.retrieval.avg+pos", "edit.retrieval.single", "edit.retrieval.avg.different",
            "edit.retrieval.avg.shared", "edit.retrieval.avg.up_to_order", "edit.retrieval.shape.avg",
            "edit.retrieval.object.avg",
        ):  # fmt: skip
            assert (id, on) in there
    for id in ("probe.concept", "probe.concept.joint", "probe.object", "probe.object.swap"):
        assert (id, "test") in there


# Three objects and replicates; objects that occur nowhere; one value only; a single repeated vector.
CONSTANT = "constant"


@pytest.mark.parametrize("world", ["ragged", "sparse", "one value", CONSTANT])
def test_unusual_worlds_give_rows_with_reasons_and_no_error(world: str) -> None:
    if world == CONSTANT:
        vectors = torch.linspace(0.1, 1.3, 16).expand(len(WORLD), 16)
        rows = all_rows(Subject.of(Embeddings(vectors, WORLD), ByScene(), QUICK))
    elif world == "one value":
        rows = all_rows(subject(object_table, ConceptSpace(color=6, shape=1).all_scenes(2)))
    else:
        rows = all_rows(subject(object_product, ragged() if world == "ragged" else sparse()))
    check_rows(rows)
    there = index(rows)
    if world == CONSTANT:
        explained = [row for row in rows if row.id.startswith("r2.")]
        assert explained
        assert all(row.value is None for row in explained)
        assert there["r2.object.least_squares", "test"].reason == "no variance"
        assert there["information.linear.bits", "test"].value == pytest.approx(0, abs=1e-6)
        assert there["edit.retrieval.avg", "all"].value == pytest.approx(1 / len(PAIRS))
    elif world == "one value":
        assert there["probe.concept.shape", "test"].value == 1
        assert "no binding to measure" in str(there["information.linear.bits", "test"].reason)
        assert "no scene of this part becomes another" in str(there["edit.retrieval.shape.avg", "all"].reason)
    else:
        # A product oracle is a sum over objects: whatever the scenes, they are read, found and told apart. With three
        # slots, equal targets for an object that stands there once or twice are more than a linear probe can meet.
        assert there["probe.object", "test"].value == pytest.approx(1, abs=0.1 if world == "ragged" else 0)
        assert there["r2.object.least_squares", "all"].value == pytest.approx(1)
        # The cosine can't tell two of an object from three of it, (a, a) from (a, a, a): a few ties.
        reached = there["edit.retrieval.least_squares.up_to_order", "all"].value
        assert reached == pytest.approx(1, abs=0.02 if world == "ragged" else 1e-9)
        assert there["information.linear.ratio", "test"].value == pytest.approx(1, abs=0.05)


# ------------------------------------------------------------------------------------------------ values and levels


def test_probe_rows_are_means_over_the_test_scenes(noisy: Subject, noisy_rows: list[Row]) -> None:
    there, test = index(noisy_rows), noisy.split.test
    scenes = noisy.scenes[test]
    outcomes = noisy.probes.recognise(noisy.embeddings.vectors[test], scenes)
    assert outcomes.objects is not None
    assert outcomes.swaps is not None
    expected = {
        "probe.concept": outcomes.concepts.double().mean(),
        "probe.concept.joint": outcomes.concepts.all(1).double().mean(),
        "probe.concept.shape": outcomes.concepts[:, 1].double().mean(),
        "probe.object": outcomes.objects.double().mean(),
        "probe.object.swap": outcomes.swaps[~scenes.shares_any()].double().mean(),
    }
    for id, value in expected.items():
        assert there[id, "test"].value == pytest.approx(value.item())
    assert there["probe.object.swap", "test"].n == int((~scenes.shares_any()).sum())
    assert there["probe.object", "test"].n == len(scenes)
    assert there["probe.concept.shape", "test"].concept == "shape"


def test_levels_beside_recognition_are_those_of_the_scenes_scored(noisy: Subject, noisy_rows: list[Row]) -> None:
    there, scenes = index(noisy_rows), noisy.scenes[noisy.split.test]
    present = scenes.contains_objects()
    level = bag_of_concepts_level(
        [scenes.multiplicity(0), scenes.multiplicity(1)], SPACE.object_values(torch.arange(12)), present
    )
    row = there["probe.object", "test"]
    assert row.chance == pytest.approx(chance_level(present).mean().item())
    assert row.bag_of_concepts == pytest.approx(level.random_ties.mean().item())
    assert row.bag_of_concepts_strict == pytest.approx(level.strict.mean().item())
    swap = there["probe.object.swap", "test"]
    assert (swap.chance, swap.bag_of_concepts) == pytest.approx((1 / 6, 1 / 6))  # 2 objects before 2 foils
    assert swap.bag_of_concepts_strict == 0
    chance = [chance_level(scenes.contains(c)).mean().item() for c in range(2)]
    assert there["probe.concept", "test"].chance == pytest.approx(sum(chance) / 2)
    assert there["probe.concept.color", "test"].chance == pytest.approx(chance[0])
    # Objects that occur nowhere are no alternatives: a smaller table, a higher chance.
    few = subject(object_table, sparse())
    scenes = few.scenes[few.split.test]
    known = few.occurring
    assert int(known.sum()) == 10
    assert index(probe_rows(few))["probe.object", "test"].chance == pytest.approx(
        chance_level(scenes.contains_objects()[:, known]).mean().item()
    )


def test_chance_against_foils_is_one_over_the_orders() -> None:
    found = chance_of_order(torch.tensor([2, 1, 3]), torch.tensor([2, 4, 3]))
    torch.testing.assert_close(found, torch.tensor([1 / 6, 1 / 5, 1 / 20], dtype=torch.float64))


def test_r2_rows_are_the_librarys_numbers(noisy: Subject, noisy_rows: list[Row]) -> None:
    there = index(noisy_rows)
    for name, parts, positions, estimator in ESTIMATORS:
        for on in ("all", "fit", "test"):
            rows = None if on == "all" else noisy.split.fit
            found = decompose(
                noisy.embeddings, rows, parts=parts, positions=positions, estimator=estimator, singles=noisy.singles
            )
            row = there[f"r2.{name}", on]
            assert row.value == pytest.approx(found.r2(noisy.embeddings[noisy.rows_on(on)]))
            assert row.n == len(noisy.rows_on(on))


@pytest.mark.parametrize("rule", [no_binding, object_table])
def test_retrieval_of_exact_sums_stands_at_its_ceiling(rule: Callable[..., torch.nn.Module]) -> None:
    """Ties are all that hides a scene: its twin, and without binding its swaps, which is the bag-of-concepts level."""
    there = index(decomposition_rows(subject(rule, PAIRS), ("object.avg", "object.least_squares")))
    for on in ("all", "fit", "test"):
        for name in ("object.avg", "object.least_squares"):
            if on != "all" and name == "object.avg":
                continue  # averages are exact in the full factorial only
            exact, either = there[f"retrieval.{name}", on], there[f"retrieval.{name}.up_to_order", on]
            assert exact.value is not None
            if rule is no_binding:
                assert exact.value == pytest.approx(exact.bag_of_concepts)
                assert either.value == pytest.approx(either.bag_of_concepts)
            else:
                assert either.value == 1
                assert exact.value > 1.2 * (exact.bag_of_concepts or 1)
    assert there["retrieval.object.avg", "all"].chance == pytest.approx(1 / len(PAIRS))
    if rule is object_table:  # 12 scenes of two equal objects are alone, all others are tied with their twin
        assert there["retrieval.object.avg", "all"].value == pytest.approx((12 + 132 / 2) / 144)


def test_groups_of_edits_add_up(noisy_rows: list[Row]) -> None:
    there = index(noisy_rows)
    for on in ("all", "fit", "test"):
        for way in ("avg", "avg+pos", "single"):
            every, *parts = (there[f"edit.retrieval.{way}{g}", on] for g in ("", ".different", ".shared"))
            assert every.n == sum(part.n or 0 for part in parts)
            total = sum((part.n or 0) * (part.value or 0) for part in parts)
            assert every.value == pytest.approx(total / (every.n or 1))


def test_edits_of_an_exact_sum_reach_their_targets_and_probes_see_it() -> None:
    exact = subject(object_table, PAIRS)
    there = index(edit_rows(exact))
    assert there["edit.retrieval.avg.up_to_order", "all"].value == 1
    assert there["edit.retrieval.object.avg.up_to_order", "all"].value == 1
    assert there["edit.probe.concept.avg", "all"].value == 1
    assert there["edit.probe.object.avg", "all"].value == pytest.approx(1, abs=0.02)  # fit scenes too, at tolerance
    for kind in ("base", "other_object", "both_objects", "elsewhere"):
        for group in ("different", "shared"):
            assert there[f"interference.miss.avg.{kind}.{group}", "all"].value == 0
    assert there["interference.overshoot.avg.different", "all"].value == pytest.approx(0, abs=1e-9)
    strengths = {row.family: row.value for row in edit_rows(exact, brief=False) if row.id == "edit.strength.avg"}
    assert strengths["1"] is not None
    assert strengths["0.5"] is not None
    assert strengths["0.5"] < strengths["1"]


def test_removal_takes_out_what_it_names_and_controls_do_not() -> None:
    """Concepts of a sum of values: nothing is left to read anew, kept probes are blind, the controls still read all."""
    rows = index(removal_rows(subject(no_binding, PAIRS)))
    assert rows["removal.original.retrained.concept", "test"].value == 1
    for how in ("retrained", "frozen"):
        left = rows[f"removal.concept.{how}.concept", "test"]
        assert left.value is not None
        assert left.chance is not None
        # A constant is left, which reads the same values in every scene: at most right where those are the ones.
        assert left.value < left.chance + 0.2
    assert rows["removal.concept.permuted.retrained.concept", "test"].value == 1
    frozen = rows["removal.concept.permuted.frozen.concept", "test"].value
    assert frozen is not None
    assert frozen < 1  # what a kept probe reads has moved
    bound = index(removal_rows(subject(object_product, PAIRS)))
    objects = {what: bound[f"removal.{what}.retrained.object", "test"].value for what in ("concept", "object")}
    assert objects["concept"] is not None
    assert objects["object"] is not None
    # What binds is not in the values' components. (12 objects leave 6 dimensions of it, too few to read all pairs.)
    assert objects["concept"] > 0.3
    assert objects["object"] < 0.1  # a constant is left
    assert bound["removal.object.permuted.retrained.object", "test"].value == 1


def test_information_rows_are_bits_and_their_share(noisy_rows: list[Row]) -> None:
    there = index(noisy_rows)
    bits, ratio = (there[f"information.linear.{unit}", "test"] for unit in ("bits", "ratio"))
    assert bits.value is not None
    assert ratio.value is not None
    assert 0 < bits.value < 1
    assert bits.bag_of_concepts == ratio.bag_of_concepts == 0
    noise = index(information_rows(subject(no_binding, PAIRS)))
    assert noise["information.linear.ratio", "test"].value == pytest.approx(0, abs=1e-4)


def test_layers_keep_their_name() -> None:
    rows = information_rows(subject(object_table, PAIRS), "layer 3 mean", quadratic=False)
    assert {row.family for row in rows} == {"layer 3 mean"}
    assert {row.id for row in rows} == {"information.linear.bits", "information.linear.ratio"}


# ------------------------------------------------------------------------------------------------ bad input


def test_what_can_not_bind_is_refused() -> None:
    with pytest.raises(ValueError, match="Every scene holds a single object"):
        subject(object_table, SINGLES)
    with pytest.raises(ValueError, match="one and the same object"):
        subject(object_table, SPACE.scenes([[5, 5]] * 30))


def test_single_objects_are_parted_from_the_scenes(noisy: Subject) -> None:
    assert noisy.singles is not None
    assert torch.equal(noisy.singles.scenes.objects[:, 0], torch.arange(12))
    assert torch.equal(noisy.scenes.objects, PAIRS.objects)
    torch.testing.assert_close(noisy.embeddings.vectors, noisy.embeddings.vectors[: len(PAIRS)])
    assert subject(object_table, PAIRS).singles is None


def test_without_single_objects_that_estimator_gives_a_reason() -> None:
    rows = [row for row in decomposition_rows(subject(object_table, PAIRS)) if ".single" in row.id]
    assert rows
    assert all(row.value is None and "give `singles`" in str(row.reason) for row in rows)


def test_an_object_that_the_fit_part_never_shows_takes_the_object_probe_with_it() -> None:
    whole = subject(object_table, PAIRS)
    held_out = (PAIRS.objects == 7).any(1)
    fit, rest = (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]
    split = Split(fit[::2], fit[1::2], rest, "by hand")
    rows = index(probe_rows(replace(whole, split=split)))
    assert rows["probe.concept", "test"].value is not None
    for id in ("probe.object", "probe.object.swap"):
        assert rows[id, "test"].value is None
        assert "the fit part shows 11 of 12 objects" in str(rows[id, "test"].reason)
    edits = index(edit_rows(replace(whole, split=split)))
    assert edits["edit.retrieval.avg.up_to_order", "all"].value == 1
    left_out = edits["edit.retrieval.avg", "test"]
    assert left_out.value is None
    assert "edits left out: the fit part never shows their objects in those slots" in str(left_out.reason)
    layout = index(decomposition_rows(replace(whole, split=split), ("object.least_squares",)))
    assert layout["r2.object.least_squares", "all"].value == pytest.approx(1)
    assert "never shows object 'color2 shape1'" in str(layout["r2.object.least_squares", "test"].reason)


def test_objects_are_rescaled_between_a_bag_of_concepts_and_the_probes() -> None:
    made = subject(object_product, WORLD, noise=1.0)
    rows = [*probe_rows(made), *decomposition_rows(made), *removal_rows(made)]
    there = index(rows)
    ceiling, found = there["probe.object", "test"].value, [row for row in rows if row.id.startswith("rescaled.")]
    assert {row.id.split(".")[1] for row in found} == {"reconstruction", "removal"}
    for row in found:
        plain = there[row.id.removeprefix("rescaled."), "test"]
        assert plain.value is not None
        assert plain.bag_of_concepts is not None
        assert ceiling is not None
        expected = (plain.value - plain.bag_of_concepts) / (ceiling - plain.bag_of_concepts)
        assert row.value == pytest.approx(expected)
    assert there["rescaled.removal.original.retrained.object", "test"].value == pytest.approx(1)


def sampled(num: int, objects: int, seed: int) -> Scenes:
    return SPACE.sample_scenes(num, objects, generator=generator(seed))


LEVELLED = {
    "balanced": PAIRS,
    "uneven": Scenes.join([PAIRS, PAIRS[:50], PAIRS[:20]]),
    "ragged": Scenes.join([sampled(150, 2, 1), sampled(100, 3, 2)]),
    "many": Scenes.join([PAIRS] * 8),  # above the number at which each scene gets a direction of its own
}


@pytest.mark.parametrize("world", LEVELLED)
@pytest.mark.parametrize("on", ["all", "fit"])
def test_r2_of_what_was_fitted_stands_beside_that_of_vectors_without_structure(world: str, on: str) -> None:
    """Against draws of noise, and against rank over degrees of freedom where that is the expectation."""
    scenes = LEVELLED[world]
    of = subject(object_table, scenes)
    drawn = torch.randn(len(scenes), 3000, generator=generator(5))
    noise = Subject(Embeddings(drawn, scenes), of.split, None, QUICK)
    rows = None if on == "all" else of.split.fit
    for name, parts, positions, estimator in ESTIMATORS:
        if estimator == "single" or (positions and world == "ragged"):
            continue
        expected = of.explained_by_chance(name, on)
        errors, totals = noise.decomposition(name, on).squares(noise.embeddings, rows)
        assert expected == pytest.approx(1 - float(errors.sum() / totals.sum()), abs=0.004), name
        if estimator == "least_squares":
            fitted = scenes if rows is None else scenes[rows]
            units = fitted.values if parts == "concept" else fitted.objects[..., None]
            slots = [[k] for k in range(scenes.slots)] if positions else [list(range(scenes.slots))]
            columns = [
                ((units[:, s, c] == v) & fitted.filled[:, s]).sum(1)
                for s in slots for c in range(units.shape[2]) for v in units[..., c].unique().tolist() if v >= 0
            ]  # fmt: skip
            counts = [(fitted.counts == count) for count in fitted.counts.unique()]
            design = torch.stack(columns, dim=1).double()
            for of_count in counts:
                design[of_count] -= design[of_count].mean(0)
            freedom = int(torch.linalg.matrix_rank(design)) / (len(fitted) - len(counts))
            assert expected == pytest.approx(freedom, abs=1e-6 if world != "many" else 0.002), name
    assert of.explained_by_chance("object.least_squares", "test") == 0.0


@pytest.mark.parametrize("world", ["balanced", "many"])
@pytest.mark.parametrize("positions", ["", "+pos"])
def test_objects_from_concepts_stand_beside_objects_without_structure(world: str, positions: str) -> None:
    scenes = LEVELLED[world]
    of = Subject.of(Embeddings(torch.randn(len(scenes), 4000, generator=generator(6)), scenes), ByScene(), QUICK)
    decomposition = of.decomposition(f"object{positions}.least_squares", "all")
    errors, totals = object_squares(decomposition)
    assert objects_by_chance(decomposition) == pytest.approx((3 + 2) / 11)
    assert 1 - float(errors.sum() / totals.sum()) == pytest.approx((3 + 2) / 11, abs=0.02)


def test_chance_of_r2_is_in_the_rows(noisy: Subject, noisy_rows: list[Row]) -> None:
    rows = index(noisy_rows)
    for on in ("all", "fit", "test"):
        assert rows["r2.object.avg", on].chance == noisy.explained_by_chance("object.avg", on)
    assert rows["r2.objects_from_concepts", "all"].chance == pytest.approx((3 + 2) / 11)
