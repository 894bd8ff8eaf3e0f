"""Rules fitted to many models: correlations against outside values, known towers, the whole chain on tiny models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch.nn.functional import normalize

from colligate.binding import no_binding, object_product
from colligate.cli import main
from colligate.embeddings import Embeddings
from colligate.records import Row, write_record
from colligate.report.page import render_page
from colligate.report.structure import judge_structure
from colligate.scenes.space import ConceptSpace
from colligate.training.config import TrainConfig
from colligate.training.loop import train
from colligate.training.presets import PicturesConfig
from colligate.verbs import structure as structure_module
from colligate.verbs.battery import study
from colligate.verbs.config import ComplexityConfig, RecognizeConfig, RuleSettings, StructureConfig
from colligate.verbs.crossmodal import recognize
from colligate.verbs.matched import given_models, object_rules, trained_model
from colligate.verbs.structure import structure, structure_rows

Pairs = list[tuple[float, float]]


def models(pairs: Pairs, coverages: list[float] | None = None, tower: str = "scene") -> list[dict[str, Any]]:
    return [
        {
            "run": f"train-{i}", "kind": "scenes", "encoder": "bag", "width": 8, "values": 5, "concepts": 2,
            "coverage": 0.5 if coverages is None else coverages[i], "seed": i, "matching": {"swaps": x},
            "fits": {tower: {"ceiling": [], "rules": [
                {"family": "additive", "coverage": 0.5, "object": y, "concept": 1.0, "r2": y, "sound": True}
            ]}},
        }
        for i, (x, y) in enumerate(pairs)
    ]  # fmt: skip


def find(rows: list[Row], id: str) -> Row:
    return next(row for row in rows if row.id == id)


def test_correlations_are_scipys():
    rng = np.random.default_rng(0)
    x = rng.random(30).round(1)
    y = 0.6 * x + 0.4 * rng.random(30)
    rows = structure_rows(models(list(zip(x.tolist(), y.tolist(), strict=True))))
    for measure in ("object", "r2"):
        pearson = find(rows, f"structure.scene.{measure}.correlation")
        assert pearson.value == pytest.approx(scipy.stats.pearsonr(x, y)[0])
        assert pearson.low is not None
        assert pearson.high is not None
        assert 0 < pearson.low < (pearson.value or 0) < pearson.high < 1
    assert find(rows, "structure.scene.object.rank").value == pytest.approx(scipy.stats.spearmanr(x, y)[0])
    assert "goes with how far a sum of values of the scene encoder carries over" in judge_structure(rows).sentence


def test_what_settings_have_in_common_is_no_correlation_within_them():
    rng = np.random.default_rng(3)
    coverages = [0.1 + 0.2 * (i // 10) for i in range(40)]
    pairs = [(c + 0.1 * float(a), c + 0.1 * float(b)) for c, (a, b) in zip(coverages, rng.random((40, 2)), strict=True)]
    rows = structure_rows(models(pairs, coverages))
    assert (find(rows, "structure.scene.object.correlation").value or 0) > 0.9
    left = np.array(pairs).reshape(4, 10, 2)
    left = (left - left.mean(1, keepdims=True)).reshape(40, 2)
    within = find(rows, "structure.scene.object.within")
    assert within.value == pytest.approx(scipy.stats.pearsonr(left[:, 0], left[:, 1])[0])
    assert within.low is not None
    assert within.low < 0 < (within.high or 0)
    assert "among seeds of one setting" in judge_structure(rows).sentence


def test_what_the_ceiling_explains_is_no_correlation_beyond_it():
    rng = np.random.default_rng(4)
    ceilings = rng.random(40)
    pairs = [(float(c + 0.1 * a), float(c + 0.1 * b)) for c, (a, b) in zip(ceilings, rng.random((40, 2)), strict=True)]
    given = models(pairs)
    for model, ceiling in zip(given, ceilings, strict=True):
        model["fits"]["scene"]["ceiling"] = [{"coverage": 0.5, "object": float(ceiling)}]
    rows = structure_rows(given)
    assert (find(rows, "structure.scene.object.correlation").low or 0) > 0.9
    assert (find(rows, "structure.scene.ceiling.correlation").low or 0) > 0.9
    beyond = find(rows, "structure.scene.object.beyond")
    x, y = np.array(pairs).T
    left = [v - np.polyval(np.polyfit(ceilings, v, 1), ceilings) for v in (x, y)]
    assert beyond.value == pytest.approx(scipy.stats.pearsonr(*left)[0])
    assert beyond.low is not None
    assert beyond.low < 0 < (beyond.high or 0)
    assert "but not clearly beyond what is read of the true vectors" in judge_structure(rows).sentence


def test_models_alone_in_their_setting_have_no_correlation_within():
    rows = structure_rows(models([(0.1, 0.2), (0.5, 0.4), (0.9, 0.9)], [0.1, 0.2, 0.3]))
    assert find(rows, "structure.scene.object.within").value is None
    assert find(rows, "structure.scene.object.within").n == 0


def test_noise_claims_nothing():
    rng = np.random.default_rng(1)
    rows = structure_rows(models([(float(a), float(b)) for a, b in rng.random((40, 2))]))
    assert "matching goes clearly with no rule of the scene encoder" in judge_structure(rows).sentence


def test_few_or_equal_models_give_reasons():
    few = structure_rows(models([(0.1, 0.2), (0.5, 0.4), (0.9, 0.9)]))
    assert find(few, "structure.scene.object.correlation").low is None
    assert "no interval: 3 models" in str(find(few, "structure.scene.object.correlation").reason)
    same = structure_rows(models([(0.5, 0.4)] * 10))
    assert find(same, "structure.scene.object.correlation").value is None


@pytest.mark.parametrize(("rule", "carried"), [(no_binding, True), (object_product, False)])
def test_queries_that_are_sums_are_asked_by_a_sum(rule: Any, carried: bool):
    space = ConceptSpace(color=6, shape=6)
    queries = normalize(rule(space, 1, 128)(space.all_scenes(slots=1).values).float(), dim=1)
    scenes = space.all_scenes(slots=2)
    # Scenes that tell their objects by any query: what is asked decides.
    seen = Embeddings(torch.linalg.pinv(queries)[:, scenes.objects].sum(2).T, scenes)
    settings = RuleSettings(families=("additive",), coverages=(0.7,))
    both = object_rules(queries, seen, settings)
    [found], [ceiling] = both["rules"], both["ceiling"]
    assert (found["r2"] > 0.9) == carried
    if not carried:
        assert ceiling["object"] > 0.99
        assert found["object"] < 0.2


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    runs = tmp_path_factory.mktemp("runs")
    tiny: dict[str, Any] = {
        "values": 6, "coverage": 0.5, "width": 16, "heads": 1, "dim": 16, "batch": 8, "steps": 4, "warmup": 2,
    }  # fmt: skip
    towers: list[Any] = ["separate", "shared"]
    return [train(TrainConfig(**tiny, towers=of, runs=runs)).place for of in towers]


@pytest.mark.parametrize("heads", [pytest.param("probes", marks=pytest.mark.long), "queries"])
def test_rules_are_fitted_to_both_towers_of_trained_models(trained: list[Path], tmp_path: Path, heads: Any):
    config = StructureConfig(
        models=tuple(trained), families=("additive",), scenes=600, heads=heads, runs=tmp_path / "runs"
    )  # fmt: skip
    done = structure(config)
    assert [model["run"] for model in done.figures["models"]] == [folder.name for folder in trained]
    assert [list(model["fits"]) for model in done.figures["models"]] == [["scene", "query"], ["shared"]]
    assert all(
        -5 < rule["r2"] <= 1
        for model in done.figures["models"]
        for fit in model["fits"].values()
        for rule in fit["rules"]
    )
    assert structure(config).rows == done.rows
    page = render_page(dict(done.record), done.rows, {"models": done.figures["models"]})
    assert "Do models whose towers match follow a simple rule?" in page
    assert "No verdict on" in page


def test_a_model_is_fitted_once_for_all_calls_unless_its_file_is_damaged(
    trained: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fitted = list[str]()

    def noted(folder: Path, settings: RuleSettings) -> dict[str, Any]:
        fitted.append(folder.name)
        return trained_model(folder, settings)

    monkeypatch.setattr(structure_module, "trained_model", noted)
    settings: dict[str, Any] = {"families": ("additive",), "scenes": 400, "heads": "queries", "runs": tmp_path}
    alone = structure(StructureConfig(models=(trained[0],), **settings))
    both = structure(StructureConfig(models=tuple(trained), **settings))
    assert fitted == [trained[0].name, trained[1].name]
    assert both.figures["models"][0] == alone.figures["models"][0]
    for kept in (tmp_path / ".rules").iterdir():
        kept.write_text("{", encoding="utf-8")
    again = structure(StructureConfig(models=(trained[1], trained[0]), **settings))
    assert fitted[2:] == [trained[1].name, trained[0].name]
    assert again.figures["models"] == both.figures["models"][::-1]


def test_pictures_and_captions_have_two_towers(tmp_path: Path):
    tiny: dict[str, Any] = {
        "values": 4, "shapes": 3, "hold_out": "objects", "coverage": 0.6, "width": 16, "layers": 1, "query_layers": 1,
        "heads": 1, "dim": 8, "batch": 8, "steps": 2, "warmup": 1,
    }  # fmt: skip
    folder = train(PicturesConfig(**tiny, runs=tmp_path)).place
    done = structure(StructureConfig(models=(folder,), families=("additive",), heads="queries", runs=tmp_path))
    assert set(done.figures["models"][0]["fits"]) == {"picture", "text"}
    ids = {row.id for row in done.rows}
    assert {"structure.picture.object", "structure.text.r2"} <= ids


def test_any_two_towers_that_were_studied_and_asked_are_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    where: dict[str, Any] = {
        "embedder": "oracle:pair-bag:32",
        "scenes": "clevr",
        "runs": tmp_path,
        "store": tmp_path / "s",
    }
    asked = recognize(RecognizeConfig(**where))
    fitted = [
        study(
            ComplexityConfig(**where, tower=tower, families=("additive",), coverages=(0.6,)), only=("complexity",),

        ).place
        for tower in ("scene", "text")
    ]  # fmt: skip
    [model] = given_models([asked.place, *fitted])
    found = {row.id: row.value for row in asked.rows}
    assert model["matching"] == {"swaps": found["crossmodal.object.swap"], "table": found["crossmodal.object"]}
    assert set(model["fits"]) == {"scene", "text"}
    [of_text] = model["fits"]["text"]["rules"]
    assert of_text["r2"] > 0.99
    assert main(["structure", *map(str, (asked.folder, *fitted)), "--runs", str(tmp_path / "made")]) == 0
    assert "structure.text.r2 (additive)" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ValueError, match="colligate complexity oracle:pair-bag:32 --scenes clevr"):
        given_models([asked.place])
    with pytest.raises(ValueError, match="colligate recognize oracle:pair-bag:32"):
        given_models(fitted)


def test_other_runs_are_refused(tmp_path: Path):
    write_record(tmp_path / "a", {"kind": "repair", "name": "a"}, [], {}, {})
    with pytest.raises(ValueError, match="kind 'repair'"):
        structure(StructureConfig(models=(tmp_path / "a",)))
    with pytest.raises(ValueError, match="one or more folders"):
        StructureConfig(models=())
