"""Rules fitted to many trained models: correlations against outside values, and the whole chain on tiny ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from colligate.records import Row, write_record
from colligate.report.page import render_page
from colligate.report.structure import judge_structure
from colligate.study.structure import AGAINST, StructureConfig, structure, structure_rows
from colligate.training.config import TrainConfig
from colligate.training.loop import train


def models(pairs: list[tuple[float, float]]) -> list[dict[str, Any]]:
    return [
        {
            "run": f"train-{i}", "encoder": "bag", "width": 8, "coverage": 0.5, "seed": i,
            "recognition": {AGAINST[0]: x},
            "rules": [{"family": "additive", "coverage": 0.5, "object": y, "concept": 1.0, "r2": y, "sound": True}],
            "ceiling": [],
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
    pearson, rank = find(rows, "structure.correlation"), find(rows, "structure.rank")
    assert pearson.value == pytest.approx(scipy.stats.pearsonr(x, y)[0])
    assert rank.value == pytest.approx(scipy.stats.spearmanr(x, y)[0])
    assert pearson.low is not None
    assert pearson.high is not None
    assert 0 < pearson.low < (pearson.value or 0) < pearson.high < 1
    assert "goes with how well a rule carries over" in judge_structure(rows).sentence


def test_noise_claims_nothing():
    rng = np.random.default_rng(1)
    rows = structure_rows(models([(float(a), float(b)) for a, b in rng.random((40, 2))]))
    assert "no rule's fit goes clearly" in judge_structure(rows).sentence


def test_few_or_equal_models_give_reasons():
    few = structure_rows(models([(0.1, 0.2), (0.5, 0.4), (0.9, 0.9)]))
    assert find(few, "structure.correlation").low is None
    assert "no interval: 3 models" in str(find(few, "structure.correlation").reason)
    same = structure_rows(models([(0.5, 0.4)] * 10))
    assert find(same, "structure.correlation").value is None


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    runs = tmp_path_factory.mktemp("runs")
    tiny: dict[str, Any] = {
        "values": 6,
        "coverage": 0.5,
        "width": 16,
        "heads": 1,
        "dim": 16,
        "batch": 8,
        "steps": 4,
        "warmup": 2,
    }
    return [train(TrainConfig(**tiny, seed=seed, runs=runs)).folder for seed in (0, 1)]


@pytest.mark.parametrize("heads", [pytest.param("probes", marks=pytest.mark.long), "queries"])
def test_rules_are_fitted_to_trained_models(trained: list[Path], tmp_path: Path, heads: Any):
    config = StructureConfig(
        trained=tuple(trained), families=("additive",), scenes=600, heads=heads, runs=tmp_path / "runs"
    )  # fmt: skip
    done = structure(config)
    assert [model["run"] for model in done.models] == [folder.name for folder in trained]
    assert all(-5 < rule["r2"] <= 1 for model in done.models for rule in model["rules"])
    assert structure(config).rows == done.rows
    page = render_page(dict(done.record), done.rows, {"models": done.models})
    assert "Do models that bind follow a simple rule?" in page
    assert "No verdict on" in page


def test_other_runs_are_refused(tmp_path: Path):
    write_record(tmp_path / "a", {"kind": "study", "name": "a"}, [], {}, {})
    with pytest.raises(ValueError, match="kind 'study'"):
        structure(StructureConfig(trained=(tmp_path / "a",)))
    with pytest.raises(ValueError, match="one or more folders"):
        StructureConfig(trained=())
