"""Coverage curves and their rows, on embedders whose answer is known."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from colligate import engine
from colligate.approximation.approximators import Additive, Data, Fitted
from colligate.approximation.counts import count_features
from colligate.approximation.curves import CurveSettings, coverage_curve
from colligate.approximation.families import family
from colligate.approximation.measurements import ComplexitySettings, complexity_rows, curve_rows, summary_rows
from colligate.approximation.networks import MLP
from colligate.approximation.readers import Readers
from colligate.approximation.scoring import OUTCOMES, Point
from colligate.binding import no_binding, object_product, object_table, scene_table
from colligate.embeddings import Embeddings
from colligate.engine import fitting_threads
from colligate.probes import ProbeSettings
from colligate.records import WorkError
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByObject

SPACE = ConceptSpace(color=6, shape=6)
SCENES = SPACE.all_scenes(slots=2)
PROBES = ProbeSettings(strengths=(1e-4,))


def settings(*families, **more) -> CurveSettings:
    given = {"coverages": (0.5, 0.8), "pooled": 2, "folds": 2, "seeds": 2, "probes": PROBES} | more
    return replace(CurveSettings(families=families), **given)


def embed(rule, scenes=SCENES) -> Embeddings:
    return Embeddings(rule(scenes.values).float(), scenes)


def number(given: float | None) -> float:
    assert given is not None
    return given


@pytest.fixture(scope="module")
def product():
    return coverage_curve(embed(object_product(SPACE, 2, 48)), settings("additive", "object_product", "mlp64"))


def test_a_product_is_read_from_its_own_family_on_unseen_objects(product):
    high = {point.family: point for point in product.points if point.coverage == 0.8}
    assert high["object_product"].r2 > 0.95
    assert high["object_product"].mean("object.swap") > 0.9
    assert high["additive"].mean("object") < 0.5  # swaps among so few unseen objects are one or two scenes
    assert high["additive"].r2 < 0.5


def test_points_say_where_they_may_not_be_read(product):
    for point in product.points:
        if point.family == "additive":
            assert point.identified == (True,) * 2
        if point.family == "object_product":
            # additive plus product needs at least 2 (6 + 6) - 4 = 20 objects, and 0.5 of 36 is 18
            assert point.identified == (point.coverage == 0.8,) * 2
            assert point.solid == (point.coverage == 0.8)
        if point.family == "mlp64":
            assert point.identified == (None,) * 2
        assert all(point.adequate)
        assert all(point.seen)


def test_the_ceiling_is_what_probes_read_from_the_vectors_themselves(product):
    for point in product.ceiling:
        assert point.r2 == 1
        assert point.mean("retrieval.up_to_order") == 1
        assert point.mean("object") > 0.9


def test_only_scenes_of_held_out_objects_are_scored(product):
    per_split = {0.5: (36 - 18) - 5, 0.8: (36 - 28) - 2}
    for point in product.points:
        for i in range(2):
            rows = point.rows[point.split == i]
            objects = SCENES.objects[rows].unique()
            assert len(objects) == per_split[point.coverage]
            assert 0.25 < len(rows) / len(objects) ** 2 < 0.75  # those of one fold of two


def test_a_bag_is_fitted_exactly_and_memory_by_nothing():
    chosen = settings("additive", "mlp64", coverages=(0.8,), seeds=1, pooled=1)
    bag = coverage_curve(embed(no_binding(SPACE, 2, 48)), chosen).points
    assert all(point.r2 > 0.999 for point in bag)
    for rule in (object_table(SPACE, 2, 48), scene_table(SPACE, 2, 48)):
        for point in coverage_curve(embed(rule), chosen).points:
            assert point.r2 < 0.1
            assert point.mean("object") < 0.3


def test_a_bag_is_fitted_exactly_wherever_the_sum_is_identified():
    coverages = (0.2, 0.3, 0.5, 0.7, 0.9)
    points = coverage_curve(embed(no_binding(SPACE, 2, 48)), settings("additive", coverages=coverages)).points
    assert [point.coverage for point in points] == list(coverages)
    for point in points:
        for i, identified in enumerate(point.identified):
            own = point.split == i
            left = float(point.errors[own].sum() / point.totals[own].sum())
            assert (left < 1e-6) == identified, (point.coverage, i)
    assert any(all(point.identified) for point in points)


@pytest.mark.long
def test_a_wide_layer_learns_a_product_with_enough_coverage_and_a_sum_never_does():
    space = ConceptSpace(color=12, shape=12)
    scenes = space.sample_scenes(7000, 2, generator=torch.Generator().manual_seed(0))  # half of them fit
    embeddings = embed(object_product(space, 2, 6), scenes)  # rules see half of them
    chosen = settings("additive", "mlp256", coverages=(0.9,), seeds=1, probes=replace(PROBES, objects=False))
    sums, wide = coverage_curve(embeddings, chosen).points
    assert sums.r2 < 0.2
    assert wide.r2 > 0.7
    assert "400 steps" in wide.chosen[0]
    assert all(wide.adequate)


def test_the_probes_that_read_predictions_are_chosen_on_validation_objects():
    """Objects stand sharply in directions of no size, and bluntly in large ones: predictions have only the latter."""
    rule = object_product(SPACE, 2, 48)(SCENES.values).float()
    noise = torch.randn(len(SCENES), 48, generator=torch.Generator().manual_seed(1))
    small = 1e-2 * object_table(SPACE, 2, 80)(SCENES.values).float()
    embeddings = Embeddings(torch.cat([rule + 0.5 * noise, small], dim=1), SCENES)
    probes = ProbeSettings(strengths=(1e-8, 1e-2))
    sharp, both = (
        coverage_curve(embeddings, settings("object_product", coverages=(0.8,), probes=one))
        for one in (replace(probes, strengths=(1e-8,)), probes)
    )
    assert both.points[0].mean("object") >= sharp.points[0].mean("object")
    assert both.points[0].strength in probes.strengths
    assert both.ceiling[0].mean("object") > 0.9
    row = next(row for row in curve_rows(both) if row.id == "complexity.strength")
    assert row.value == both.points[0].strength


class Lazy(MLP):
    """Contains the sum, and doesn't reach it."""

    def fit(self, data, splits, seed):
        return [Fitted(lambda scenes: torch.zeros(len(scenes), data.targets.shape[1])) for _ in splits]


def test_a_fit_below_what_its_family_contains_is_not_adequate():
    curves = coverage_curve(embed(no_binding(SPACE, 2, 48)), settings(Additive(), Lazy(64), coverages=(0.8,)))
    sums, lazy = curves.points
    assert sums.solid
    assert not any(lazy.adequate)
    rows = [row for row in curve_rows(curves) if row.family == "mlp64"]
    assert any("not fitted as well as the family can be in 2 of 2 splits" in (row.reason or "") for row in rows)
    area = {row.family: row for row in summary_rows(curves) if row.id == "complexity.area"}["mlp64"]
    assert area.value is None
    assert area.reason is not None


def test_a_hidden_layer_that_validation_puts_below_a_closed_form_is_not_fitted():
    """Counts and their products: the closed form explains everything, and few units of few steps don't."""
    features = count_features(SCENES)
    weights = torch.randn(features.shape[1], 24, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    embeddings = Embeddings((features @ weights).float(), SCENES)
    chosen = settings("additive", "bag_quadratic", "mlp8", coverages=(0.5,), steps=10)
    curves = coverage_curve(embeddings, chosen)
    sums, bag, narrow = curves.points
    assert bag.held.r2 - narrow.held.r2 == pytest.approx(narrow.behind)
    assert narrow.behind > 0.02
    assert not any(narrow.adequate)
    assert not narrow.solid
    assert not bag.behind
    assert not sums.behind
    found = {row.id: row for row in curve_rows(curves) if row.family == "mlp8"}
    assert found["complexity.adequate"].value == 0
    assert "not fitted: R2 on scenes of the validation objects is" in (found["complexity.adequate"].reason or "")
    summary = {(row.id, row.family): row for row in summary_rows(curves)}
    assert summary["complexity.area", "mlp8"].value is None
    assert summary["rescaled.complexity.object", "mlp8"].value is None
    without = coverage_curve(embeddings, replace(chosen, families=("additive", "mlp8")))
    assert not without.points[1].behind  # there is nothing to hold it against


def test_rows_carry_levels_intervals_and_seeds(product):
    rows = curve_rows(product)
    found = [row for row in rows if row.id == "complexity.object" and row.coverage == 0.5]
    assert {row.family for row in found} == {"additive", "object_product", "mlp64"}
    for row in found:
        assert row.seeds == 2
        assert number(row.low) <= number(row.value) <= number(row.high)
        levels = (row.chance, row.bag_of_concepts_strict, row.bag_of_concepts)
        assert 0 < number(levels[0]) < number(levels[1]) < number(levels[2]) < 1
    spread = next(row for row in rows if row.id == "complexity.object.spread")
    by_split = torch.tensor(product.points[0].by_split("object"), dtype=torch.float64)
    assert spread.value == pytest.approx(float(by_split.std()))


def test_the_area_is_the_rescaled_mean_of_solid_points(product):
    areas = {row.family: row for row in summary_rows(product) if row.id == "complexity.area"}
    assert areas["object_product"].reason == "coverages 0.5 left out"
    own = areas["object_product"]
    assert number(own.low) <= number(own.value) <= number(own.high)
    assert number(own.value) > 0.8
    assert (areas["additive"].value, areas["additive"].low) == (0.0, 0.0)
    assert number(own.bag_of_concepts) != 0
    heights = {
        (row.family, row.coverage): row for row in summary_rows(product) if row.id == "rescaled.complexity.object"
    }
    left_out = heights["object_product", 0.5]
    assert (left_out.value, left_out.low) == (None, None)
    assert "not identified" in str(left_out.reason)
    there = [row for (family, _), row in heights.items() if family == "object_product" and row.value is not None]
    assert min(number(row.value) for row in there) <= number(own.value) <= max(number(row.value) for row in there)
    assert all(number(row.low) <= number(row.value) <= number(row.high) for row in there)
    width = next(row for row in summary_rows(product, (-9.0,)) if row.id == "complexity.width")
    assert width.value == 64


def test_where_validation_takes_the_sum_alone_the_rows_say_in_how_many_splits(product):
    (point,) = (p for p in product.points if p.family == "object_product" and p.coverage == 0.8)
    picks = tuple("no product" if i else "penalty 1" for i in range(len(point.chosen)))
    for chosen, said in (
        (picks, f"validation took no product in {len(picks) - 1} of {len(picks)} splits"),
        (("penalty 1",) * len(picks), None),
    ):
        rows = curve_rows(replace(product, points=[replace(point, chosen=chosen)]))
        (row,) = (row for row in rows if row.id == "complexity.train_r2")
        assert row.reason == said
        assert row.value is not None


def test_a_bag_has_no_area():
    """Between a bag of concepts and what probes read of the vectors of one lies nothing that a rule could go along."""
    bag = embed(no_binding(SPACE, 2, 24))
    noise = 0.1 * torch.randn(bag.vectors.shape, generator=torch.Generator().manual_seed(0))
    curves = coverage_curve(Embeddings(bag.vectors + noise, SCENES), settings("additive", "object_product"))
    for row in summary_rows(curves):
        if row.id == "complexity.area":
            assert (row.value, row.low, row.high) == (None, None, None)
            assert "the probes read no more of the true vectors than a bag of concepts" in str(row.reason)


@pytest.mark.parametrize(("above", "spread"), [(0.03, 0.0), (0.1, 1.0)])
def test_a_ceiling_that_does_not_clear_the_bag_gives_no_area(product, above, spread):
    """Neither one just above it, nor one further up whose interval reaches down to it."""
    levels = [row for row in curve_rows(product) if row.id == "complexity.ceiling.object"]
    ceiling = list[Point]()
    for point, row in zip(product.ceiling, levels, strict=True):
        first = SCENES.objects[point.rows, 0].double()
        swing = spread * ((first % 2) - (first % 2).mean())  # objects differ: a wide interval, the same mean
        ceiling.append(
            replace(point, outcomes={**point.outcomes, "object": number(row.bag_of_concepts) + above + swing})
        )
    for row in summary_rows(replace(product, ceiling=ceiling)):
        if row.id == "complexity.area":
            assert (row.value, row.low, row.high) == (None, None, None)


def test_a_value_never_shown_is_said():
    rows = complexity_rows(
        embed(no_binding(SPACE, 2, 48)), ComplexitySettings(curves=settings("additive", coverages=(0.1,)), coded=())
    )
    assert any(re.search(r"a value never shown in (\d) of \1 splits", row.reason or "") for row in rows)
    assert next(row for row in rows if row.id == "complexity.values_seen").value == 0


def test_too_few_objects_for_a_coverage_say_so_and_leave_the_others():
    small = ConceptSpace(color=2, shape=3)
    curves = coverage_curve(embed(no_binding(small, 2, 24), small.all_scenes(2)), settings(
        "additive", coverages=(0.1, 0.6), pooled=1))  # fmt: skip
    empty = next(point for point in curves.points if point.coverage == 0.1)
    assert empty.reason is not None
    assert "needs at least 1" in empty.reason
    assert any(row.reason == empty.reason and row.value is None for row in curve_rows(curves))


def test_what_cant_be_measured_is_refused():
    with pytest.raises(ValueError, match="single object"):
        coverage_curve(embed(no_binding(SPACE, 1, 8), SPACE.all_scenes(1)), settings("additive"))
    with pytest.raises(ValueError, match="equal"):
        coverage_curve(Embeddings(torch.ones(len(SCENES), 4), SCENES), settings("additive"))
    with pytest.raises(ValueError, match="listed twice"):
        coverage_curve(embed(no_binding(SPACE, 2, 8)), settings("additive", "additive"))


@pytest.mark.parametrize("name", ["mlp", "mlp0", "tree", "bilinearx", "additive.own"])
def test_unknown_families_are_refused(name):
    with pytest.raises(ValueError, match="No family"):
        family(name)


OWN = """
from colligate.approximation.approximators import Additive

class Mine(Additive):
    name = "mine"

class Slow:
    name = "slow"
    def contains(self, other):
        return isinstance(other, Slow)
    def fit(self, data, splits, seed):
        return {}["weights"]

class Short(Slow):
    def fit(self, data, splits, seed):
        return []

class Late(Slow):
    def fit(self, data, splits, seed):
        from colligate.approximation.approximators import Fitted
        return [Fitted(lambda scenes: scenes.nothing) for _ in splits]

def raising():
    raise KeyError("weights")

def nothing():
    return None
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's in the current folder."""
    (tmp_path / "own_rules.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_rules", raising=False)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("no.such.module:thing", ValueError, "There is no module 'no.such.module' to load"),
        ("own_rules:missing", ValueError, "Module 'own_rules' has no function 'missing'"),
        ("own_rules:raising", WorkError, r"^own_rules:raising raised KeyError: 'weights' \(.*own_rules.py, line 24\)"),
        ("own_rules:nothing", ValueError, "gave a NoneType without `name`, `contains`, `fit`; a family"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("own")
def test_a_factory_of_your_own_that_fails_is_told_plainly(name: str, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        family(name)


@pytest.mark.usefixtures("own")
def test_families_of_your_own_are_found_by_name_and_fitted():
    assert family("colligate.approximation.approximators:Additive") == Additive()
    curves = coverage_curve(embed(no_binding(SPACE, 2, 48)), settings("own_rules:Mine", "additive", coverages=(0.8,)))
    mine, ours = curves.points
    assert (mine.family, mine.r2) == ("mine", pytest.approx(ours.r2))
    assert family("own_rules:Slow").contains(family("own_rules:Late"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Slow", r"^own_rules:Slow raised KeyError: 'weights' \(.*own_rules.py, line 12\); put that right there"),
        ("Short", "^own_rules:Short: fit gave no Fitted for each of the 2 splits; return one each"),
        ("Late", r"^own_rules:Late raised AttributeError: .*nothing.* \(.*own_rules.py, line 21\)"),
    ],
)
@pytest.mark.usefixtures("own")
def test_a_family_of_your_own_that_fails_later_is_told_plainly(name: str, said: str):
    one = family(f"own_rules:{name}")
    data = Data.of(embed(no_binding(SPACE, 2, 8)))
    split = ByObject(coverage=0.5).split(SCENES, 0)
    with pytest.raises(WorkError, match=said):
        one.fit(data, [split, split], 0)[0].rule(SCENES)


@pytest.mark.parametrize("slots", [3])
def test_three_slots_and_ragged_scenes(slots):
    small = ConceptSpace(color=5, shape=4)
    three = small.sample_scenes(1200, slots, generator=torch.Generator().manual_seed(0))
    scenes = Scenes.join([three, small.all_scenes(2), small.all_scenes(1)])
    embeddings = embed(object_product(small, slots, 12), scenes)
    names = ("additive", "object_product", "mlp64")
    curves = coverage_curve(embeddings, settings(*names, coverages=(0.8,), seeds=1, pooled=1))
    assert len(curves.embeddings) == len(scenes) - 20
    for point in curves.points:
        assert all(not point.outcomes[name].isinf().any() for name in OUTCOMES)
    assert {point.family: point.r2 for point in curves.points}["object_product"] > 0.5


def test_given_probes_read_every_scene():
    embeddings = embed(object_product(SPACE, 2, 48))
    crossed = Readers.crossed(embeddings, PROBES)
    same = Readers.same(crossed.probes[0], SCENES)
    rows = torch.arange(len(SCENES))
    assert torch.equal(same.scores(embeddings.vectors, rows), crossed.probes[0].scores(embeddings.vectors))
    own = crossed.scores(embeddings.vectors, rows)
    for k in range(2):
        members = crossed.fold == k
        assert torch.allclose(own[members], crossed.probes[k].scores(embeddings.vectors[members]), atol=1e-4)
    twins = SCENES.rows_of(SCENES.twins())
    assert torch.equal(crossed.fold, crossed.fold[twins])


def noise(seed: int) -> Embeddings:
    scenes = ConceptSpace(color=8, shape=3).all_scenes(slots=2)
    return Embeddings(torch.randn(576, 64, generator=torch.Generator().manual_seed(seed)), scenes)


def above_chance(families, validation: float) -> dict[tuple[str, str], list[tuple[float, bool]]]:
    """Of every family and kind of recognition in noise: how far from chance, and whether its interval covers that."""
    found: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for seed in range(3):
        chosen = settings(*families, coverages=(0.3, 0.5, 0.7), pooled=4, seed=seed, validation=validation)
        for row in curve_rows(coverage_curve(noise(seed), chosen)):
            if row.id in ("complexity.concept", "complexity.object"):
                chance = number(row.chance)
                covered = number(row.low) <= chance <= number(row.high) or (row.value == 0.0 and chance < 0.02)
                found.setdefault((str(row.family), row.id), []).append((number(row.value) - chance, covered))
    return found


@pytest.mark.parametrize("validation", [0.3, 0.0])
@pytest.mark.parametrize(
    "families",
    [
        pytest.param(("additive", "mlp64"), id="quick"),
        pytest.param(("object_product", "global_product", "mlp256", "mlp1024"), id="slow", marks=pytest.mark.long),
    ],
)
def test_nothing_is_read_from_rules_fitted_to_noise(families, validation):
    """Rule and probes share no scene; where they do, values are read .1 to .4 above chance here.

    Without validation objects every family takes all the noise that it can hold. The mean of nine points has a standard
    error of about .02 for values, and 95 % intervals miss chance now and then.
    """
    for (family_name, kind), points in above_chance(families, validation).items():
        away = sum(by for by, _ in points) / len(points)
        assert abs(away) < (0.06 if kind == "complexity.concept" else 0.01), (family_name, kind, away)
        assert sum(covered for _, covered in points) >= len(points) - 2, (family_name, kind, points)


def test_rules_learn_from_the_fold_that_their_probes_never_saw():
    """Splits take turns; each is fitted, chosen for and scored in one fold alone, which its probes never saw."""
    seen = list[list[set[int]]]()

    class Watched(Mean):
        def fit(self, data, splits, seed):
            seen.extend([set(of.tolist()) for of in (one.fit, one.validation, one.test)] for one in splits)
            return super().fit(data, splits, seed)

    embeddings = embed(object_product(SPACE, 2, 48))
    readers = Readers.crossed(embeddings, PROBES)
    point = coverage_curve(embeddings, settings(Watched(), coverages=(0.5,)), readers=readers).points[0]
    assert len(seen) == len(point.seen) == 2
    for fold, rows in enumerate(seen):
        assert all(rows)
        assert {int(own) for part in rows for own in readers.fold[list(part)]} == {fold}
    assert set(point.rows.tolist()) == set.union(*(rows[2] for rows in seen))
    assert len(point.rows) == sum(len(rows[2]) for rows in seen)


class Mean:
    """What the fit part has on average."""

    name = "mean"

    def contains(self, other):
        return False

    def fit(self, data, splits, seed):
        means = [data.targets[split.fit].mean(0) for split in splits]
        return [Fitted(lambda scenes, mean=mean: mean.expand(len(scenes), -1)) for mean in means]


def test_the_authors_protocol_fits_on_all_scenes_of_the_fit_objects():
    """Theirs shares scenes between rule and probes; it is kept as it is."""
    chosen = settings(Mean(), coverages=(0.5,), protocol="paper")
    point = coverage_curve(embed(object_product(SPACE, 2, 48)), chosen).points[0]
    assert len(point.seen) == 2
    assert len(point.rows) == 2 * 18**2


def test_folds_without_scenes_to_fit_on_and_to_score_are_refused():
    small = ConceptSpace(color=3, shape=2)
    embeddings = embed(no_binding(small, 2, 24), small.all_scenes(2))
    with pytest.raises(ValueError, match="no fold of the scenes"):
        coverage_curve(embeddings, settings("additive", coverages=(0.5,), pooled=1, folds=21))


def test_a_budget_cuts_what_rules_and_probes_learn_from_and_is_said():
    embeddings = embed(object_product(SPACE, 2, 48))
    chosen = settings("additive", coverages=(0.3, 0.8), fit_budget=100, probe_budget=400)
    curves = coverage_curve(embeddings, chosen)
    for point in curves.points:
        for scenes, there in point.scenes:
            assert scenes == min(there, 100)
            assert (there > 100) == (point.coverage == 0.8)
    rows = {row.coverage: row for row in curve_rows(curves) if row.id == "complexity.scenes"}
    assert rows[0.3].reason is None
    assert rows[0.8].value == 100
    assert "a seeded choice of" in (rows[0.8].reason or "")
    readers = Readers.crossed(embeddings, PROBES, budget=400)
    assert not torch.equal(readers.probes[0].matrix, Readers.crossed(embeddings, PROBES).probes[0].matrix)


def test_numbers_do_not_depend_on_what_is_fitted_side_by_side(monkeypatch):
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda _: range(4), raising=False)
    embeddings, chosen = embed(object_product(SPACE, 2, 48)), settings("additive", "object_product", "mlp64", seeds=1)
    with fitting_threads():
        both = coverage_curve(embeddings, chosen).points
        monkeypatch.setattr(engine, "MOST_WORKERS", 1)
        single = coverage_curve(embeddings, chosen).points
    for one, other in zip(both, single, strict=True):
        assert (one.family, one.coverage, one.chosen) == (other.family, other.coverage, other.chosen)
        assert torch.equal(one.errors, other.errors)
        assert torch.equal(one.outcomes["object"].nan_to_num(-1.0), other.outcomes["object"].nan_to_num(-1.0))
