"""Values that no one here wrote: exact ones from the definitions, and the authors' own code on the same vectors.

Nothing is assumed about the worlds: names, sizes, exclusions and which parts are there come from the folders' files.
"""

import logging
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from colligate.embedders.precomputed import read_vectors
from colligate.embeddings import Embeddings
from colligate.geometry.components import Decomposition, Parts, decompose
from colligate.geometry.interventions import Editor, EditOutcomes, Edits, retrieve_edits
from colligate.geometry.paper import TableSettings, shuffle_names, train_tables
from colligate.geometry.removal import remove
from colligate.geometry.replay import read_edit_list
from colligate.probes import Probes, ProbeSettings, fit_paper_probes
from colligate.scenes.splits import PaperScenes, Split

DESIGNS: dict[str, tuple[Parts, bool]] = {
    "concept": ("concept", False),
    "concept+position": ("concept", True),
    "object": ("object", False),
    "object+position": ("object", True),
}
SEEDS = range(5)


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-6)


def r2(fitted: Decomposition, embeddings: Embeddings, rows: Tensor, centre: Tensor) -> float:
    """R2 on some rows around a stated centre."""
    some = embeddings[rows]
    return replace(fitted, centres=centre.expand_as(fitted.centres)).r2(some)


def finds(values: dict[str, float], fitted: Decomposition, embeddings: Embeddings) -> None:
    """Retrieval of each scene by its reconstruction agrees under every rule."""
    rows = torch.arange(len(embeddings))
    found = fitted.retrieve(embeddings, rows)
    exact, up_to_order = found.hits.mean(0).tolist()
    if not (found.tied > 1).any():
        assert exact == close(values["argmax_lowest_index"])
    assert (found.top == rows).double().mean().item() == close(values["argmax_lowest_index"])
    assert values["strict_gt_1e_12"] - 1e-6 <= exact <= values["lenient_ge_1e_12"] + 1e-6
    assert up_to_order == close(values["scene_or_its_twin"])


# ------------------------------------------------------------------------------------------------- the files
def test_labels_alone_give_the_space(golden: Any) -> None:
    """Index columns with their words say what the worlds' own description says."""
    alone = read_vectors(golden.folder / "vectors.safetensors", golden.folder / "scenes.csv")
    assert alone.scenes.space == golden.space
    assert torch.equal(alone.scenes.values, golden.all.scenes.values)
    assert len(golden.embeddings) == golden.meta["num_scenes"]
    assert (golden.singles is None) == (golden.meta["num_singles"] == 0)


def test_total_variance_and_twins(golden: Any) -> None:
    vectors = golden.embeddings.vectors.double()
    assert (vectors - golden.mean).square().sum(1).mean().item() == close(golden.exact["total_variance_per_scene"])
    twin = golden.scenes.rows_of(golden.scenes.twins())
    rows = ((twin >= 0) & (twin != torch.arange(len(twin)))).nonzero()[:, 0]
    assert len(rows) == golden.exact["twins"]["scenes_with_a_twin"]
    directions = torch.nn.functional.normalize(vectors, dim=1)
    similar = (directions[rows] * directions[twin[rows]]).sum(1)
    ends = golden.exact["twins"]["cos_quantiles"]
    assert [similar.min().item(), similar.max().item()] == [close(ends["0.0"]), close(ends["1.0"])]


# --------------------------------------------------------------------------------------------- least squares
@pytest.mark.parametrize("name", DESIGNS)
class TestLeastSquares:
    def test_on_all_scenes(self, golden: Any, name: str) -> None:
        expected, (parts, positions) = golden.exact["least_squares"][name], DESIGNS[name]
        fitted = decompose(golden.embeddings, parts=parts, positions=positions)
        assert fitted.r2(golden.embeddings) == close(expected["R2_all"])
        assert fitted.rank == expected["rank"]
        finds(expected["retrieval_of_fitted"], fitted, golden.embeddings)

    def test_on_a_fifth_held_out(self, golden: Any, name: str) -> None:
        expected, (parts, positions) = golden.exact["least_squares"][name], DESIGNS[name]
        train, test = (torch.tensor(golden.exact[rows]) for rows in ("rows_train80", "rows_test20"))
        fitted = decompose(golden.embeddings, train, parts=parts, positions=positions)
        vectors = golden.embeddings.vectors.double()
        assert fitted.rank == expected["rank_train80"]
        assert fitted.r2(golden.embeddings[train]) == close(expected["R2_train80"])
        assert fitted.r2(golden.embeddings[test]) == close(expected["R2_test20_centre_train_mean"])
        for key, centre in (("R2_test20", vectors[test].mean(0)), ("R2_test20_centre_all_mean", golden.mean)):
            assert r2(fitted, golden.embeddings, test, centre) == close(expected[key])

    def test_on_the_split_of_the_authors(self, golden: Any, name: str) -> None:
        expected, (parts, positions) = golden.exact["least_squares"][name]["authors_99_1_split"], DESIGNS[name]
        split = PaperScenes(0.99).split(golden.scenes, seed=0)
        fitted = decompose(golden.embeddings, split.fit, parts=parts, positions=positions)
        centre = golden.embeddings.vectors[split.test].double().mean(0)
        assert fitted.r2(golden.embeddings[split.fit]) == close(expected["R2_train"])
        assert r2(fitted, golden.embeddings, split.test, centre) == close(expected["R2_test"])


# -------------------------------------------------------------------------------------------------- averages
def averages(golden: Any, parts: Parts, variant: str) -> Decomposition:
    """The variants of the averaging estimator; two of them leave out scenes of identical objects."""
    embeddings, scenes = golden.embeddings, golden.scenes
    if variant in ("set", "bank", "+pos"):
        estimator = "avg.set" if variant == "set" else "avg"
        return decompose(embeddings, parts=parts, positions=variant == "+pos", estimator=estimator)
    kept = (scenes.objects[:, 0] != scenes.objects[:, 1]).nonzero()[:, 0]
    if variant == "mds":
        return decompose(embeddings, kept, parts=parts, estimator="avg")
    fitted = decompose(embeddings, kept, parts=parts, estimator="avg.set")
    shift = fitted.centres - golden.mean  # means over the scenes kept, then centred on the mean of all
    return replace(fitted, components=fitted.components + shift[2], means=fitted.means - shift)


def average_values(golden: Any, parts: Parts, variant: str) -> dict[str, Any]:
    name = f"{parts}_avg{variant}" if variant == "+pos" else f"{parts}_avg_{variant}"
    if name not in golden.exact["averaging_estimators"]:
        pytest.skip(f"{golden.folder.name} has no {name}")
    return golden.exact["averaging_estimators"][name]


@pytest.mark.parametrize("variant", ["set", "bank", "no_identical", "mds", "+pos"])
@pytest.mark.parametrize("parts", ["object", "concept"])
class TestAverages:
    def test_explain_as_much(self, golden: Any, parts: Parts, variant: str) -> None:
        expected = average_values(golden, parts, variant)
        fitted, every = averages(golden, parts, variant), torch.arange(len(golden.embeddings))
        assert r2(fitted, golden.embeddings, every, golden.mean) == close(expected["R2_all"])
        if expected["R2_non_identical_scenes"] is not None:
            kept = (golden.scenes.objects[:, 0] != golden.scenes.objects[:, 1]).nonzero()[:, 0]
            assert r2(fitted, golden.embeddings, kept, golden.mean) == close(expected["R2_non_identical_scenes"])

    def test_find_the_scenes_again(self, golden: Any, parts: Parts, variant: str) -> None:
        expected, fitted = average_values(golden, parts, variant), averages(golden, parts, variant)
        finds(expected["retrieval"], fitted, golden.embeddings)
        centre = fitted.means[2] if variant == "mds" else golden.mean
        centred = Embeddings(golden.embeddings.vectors.double() - centre, golden.scenes)
        finds(expected["retrieval_centred"], replace(fitted, means=fitted.means - centre), centred)


# ----------------------------------------------------------------------------------------------------- edits
MODES: dict[str, dict[str, Any]] = {
    "avg_scene_position_independent": {"estimator": "avg"},
    "avg_scene_position_dependent": {"estimator": "avg", "positions": True},
    "single_object": {"estimator": "single"},
}


@cache
def replay(golden: Any, mode: str) -> tuple[Edits, Editor, EditOutcomes]:
    """The authors' list of edits, made again."""
    edits = read_edit_list(golden.edit_list(mode), golden.scenes)
    singles = golden.singles if mode == "single_object" else None
    editor = Editor(decompose(golden.embeddings, parts="object", singles=singles, **MODES[mode]))
    return edits, editor, retrieve_edits(golden.embeddings, edits, {mode: editor})[mode]


@pytest.fixture(params=MODES)
def replayed(request: pytest.FixtureRequest, golden: Any) -> tuple[str, Edits, Editor, EditOutcomes]:
    """Each mode in turn."""
    if request.param not in golden.modes:
        pytest.skip(f"{golden.folder.name} has no edits of the mode {request.param}")
    return request.param, *replay(golden, request.param)


def test_edits_predict_the_rows_of_the_authors(golden: Any, replayed: Any) -> None:
    mode, edits, _, outcomes = replayed
    assert set(golden.modes) <= set(MODES)
    clear = outcomes.ties == 1
    assert torch.equal(outcomes.nearest[clear], golden.column(mode, "predicted_row")[clear])
    assert torch.equal(outcomes.hits[clear], golden.column(mode, "hit")[clear].double())
    assert (~clear).sum() <= 2
    changed = edits.scenes.values[edits.base] != edits.scenes.values[edits.target]
    (only,) = changed.any(0).any(0).nonzero()[:, 0].tolist()
    assert golden.space.names[only] == golden.authors["interventions"][mode]["settings"]["attribute_changed"]


def test_edits_hit_as_often_as_exact_arithmetic(golden: Any, replayed: Any) -> None:
    mode, edits, _, outcomes = replayed
    exact = golden.exact["interventions_recomputed_float64"][mode]
    theirs = golden.authors["interventions"][mode]["summary"]
    attribute = golden.space.concept(golden.authors["interventions"][mode]["settings"]["attribute_changed"])
    shared = edits.shared[:, attribute]
    assert len(edits) == exact["cases"] == theirs["num_interventions"]
    for name, rows in (("top1", shared | ~shared), ("top1_same", shared), ("top1_different", ~shared)):
        if exact[name] is None:
            assert not rows.any()
        else:
            assert outcomes.hits[rows].mean().item() == close(exact[name])
    assert outcomes.hits.mean().item() == close(theirs["retrieval_top1_accuracy"])
    missed = outcomes.hits < 0.5
    twins = missed & (golden.scenes.unordered_ids[outcomes.nearest] == golden.scenes.unordered_ids[edits.target])
    assert int(twins.sum()) == exact["misses_that_are_the_control_twin"]
    assert int((missed & (outcomes.nearest == edits.base)).sum()) == exact["misses_that_are_the_base_scene"]


def test_probes_of_the_authors_read_the_edited_vectors(golden: Any, replayed: Any) -> None:
    mode, edits, editor, _ = replayed
    edited = editor.apply(golden.embeddings, edits)
    joint = golden.probes.recognise(edited, golden.scenes[edits.target]).concepts.all(1)
    assert torch.equal(joint.long(), golden.column(mode, "probe_joint_hit"))
    theirs = golden.authors["interventions"][mode]["summary"]["probe_joint_accuracy"]
    assert joint.double().mean().item() == close(theirs)


# ---------------------------------------------------------------------------------------------------- probes
def accuracy(probes: Probes, embeddings: Embeddings, rows: Tensor) -> dict[str, float]:
    outcomes = probes.recognise(embeddings.vectors[rows], embeddings.scenes[rows])
    assert outcomes.objects is not None
    return {
        "concept": outcomes.concepts.double().mean().item(),
        "object": outcomes.objects.double().mean().item(),
    }


def paper_split(golden: Any) -> Split:
    split = PaperScenes(golden.authors["probes"]["settings"]["train_ratio"]).split(golden.scenes, seed=0)
    assert split.fit.tolist() == sorted(golden.train_rows)
    return split


def test_probes_of_the_authors_are_as_accurate_here(golden: Any) -> None:
    split, theirs = paper_split(golden), golden.authors["probes"]
    for part, rows in (("train", split.fit), ("test", split.test)):
        ours = accuracy(golden.probes, golden.embeddings, rows)
        assert ours == {name: close(theirs["accuracy"][part][name]) for name in ours}
    outcomes = golden.probes.recognise(golden.embeddings.vectors[split.test], golden.scenes[split.test])
    for c, name in enumerate(golden.space.names):
        expected = theirs["per_concept_by_driver"][name]["test"]
        assert outcomes.concepts[:, c].double().mean().item() == close(expected)


# ------------------------------------------------------------------------- what the authors trained, and our seeds
def within(theirs: float, ours: list[float], slack: float) -> bool:
    """Whether a value lies in the range of ours, give or take."""
    return min(ours) - slack - 1e-6 <= theirs <= max(ours) + slack + 1e-6


def check_range(theirs: dict[str, float], ours: list[dict[str, float]], scored: int) -> None:
    for name in ("concept", "object"):
        values = [one[name] for one in ours]
        said = f"{name}: theirs {theirs[name]:.4f}, ours {values}"
        logging.getLogger(__name__).info(said)
        assert within(theirs[name], values, 2 / scored), said


def paper_settings(settings: dict[str, Any]) -> ProbeSettings:
    return ProbeSettings(protocol="paper", paper_steps=settings["epochs"])


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_trained_probes_lie_within_our_seeds(golden: Any) -> None:
    split, theirs = paper_split(golden), golden.authors["probes"]
    fitted = fit_paper_probes(golden.embeddings, split, SEEDS, paper_settings(theirs["settings"]))
    for part, rows in (("train", split.fit), ("test", split.test)):
        ours = [accuracy(probes, golden.embeddings, rows) for probes in fitted]
        check_range(theirs["accuracy"][part], ours, len(rows))


def two_scenes(fitted: Decomposition, embeddings: Embeddings, rows: Tensor) -> tuple[float, float]:
    """How low and how high R2 around the rows' own mean goes when any two of the rows are left out."""
    centre = embeddings.vectors[rows].double().mean(0)
    errors, totals = replace(fitted, centres=centre.expand_as(fitted.centres)).squares(embeddings[rows])
    first, second = torch.combinations(torch.arange(len(rows)), 2).unbind(1)
    values = 1 - (errors.sum() - errors[first] - errors[second]) / (totals.sum() - totals[first] - totals[second])
    return values.min().item(), values.max().item()


@cache
def trained(golden: Any, parts: Parts) -> list[Decomposition]:
    """The authors' lookup tables from each of our seeds."""
    settings = golden.authors["subtraction_fits"]["positional"]["settings"]
    tables = TableSettings(steps=settings["steps"], batch=settings["batch_size"], rate=settings["lr"])
    split = PaperScenes(0.99).split(golden.scenes, seed=0)
    return [train_tables(golden.embeddings, split.fit, parts=parts, seed=seed, settings=tables) for seed in SEEDS]


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("parts", ["object", "concept"])
def test_trained_tables_explain_as_much_within_our_seeds(golden: Any, parts: Parts) -> None:
    split = PaperScenes(0.99).split(golden.scenes, seed=0)
    fits = golden.authors["subtraction_fits"]["positional"]["fits"]
    (theirs,) = (fit for fit in fits if fit["mode"] == f"{parts}s")
    errors, _ = trained(golden, parts)[theirs["seed"]].squares(golden.embeddings[split.fit])
    centre = golden.embeddings.vectors[split.fit].double()
    totals = (centre - centre.mean(0)).square().sum()
    assert float(1 - errors.sum() / totals) == pytest.approx(theirs["r2_train"], abs=2e-6)  # the same stream of draws
    for rows, name in ((split.fit, "r2_train"), (split.test, "r2_test")):
        ends = [two_scenes(fitted, golden.embeddings, rows) for fitted in trained(golden, parts)]
        assert min(low for low, _ in ends) <= theirs[name] <= max(high for _, high in ends)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("names", ["no_perm", "perm"])
@pytest.mark.parametrize("parts", ["object", "concept"])
def test_probes_after_removal_lie_within_our_seeds(golden: Any, parts: Parts, names: str) -> None:
    variant = f"{parts}s_{names}"
    if variant not in golden.authors.get("probes_after_removal", {}):
        pytest.skip(f"{golden.folder.name} has no {variant}")
    theirs, split = golden.authors["probes_after_removal"][variant], paper_split(golden)
    settings, ours = paper_settings(theirs["settings"]), list[dict[str, float]]()
    for seed, tables in zip(SEEDS, trained(golden, parts), strict=True):
        others = shuffle_names(golden.scenes, parts, 0) if names == "perm" else None
        left = remove(golden.embeddings, tables, others)
        (probes,) = fit_paper_probes(left, split, [seed], settings)
        ours.append(accuracy(probes, left, split.test))
    check_range(theirs["accuracy"]["test"], ours, len(split.test))
