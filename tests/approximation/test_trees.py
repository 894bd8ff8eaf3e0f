"""Ensembles of trees: what they can learn, and what they say where a library lacks."""

import importlib.util
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from colligate.approximation.approximators import Data, training_r2
from colligate.approximation.trees import Boosted, Forest
from colligate.binding import no_binding
from colligate.embeddings import Embeddings
from colligate.engine import using_threads
from colligate.scenes.space import ConceptSpace
from colligate.scenes.splits import ByObject

SPACE = ConceptSpace(color=4, shape=4)
SCENES = SPACE.all_scenes(slots=2)
DATA = Data.of(Embeddings(no_binding(SPACE, 2, 6)(SCENES.values).float(), SCENES))
SPLIT = ByObject(coverage=0.7).split(SCENES, seed=0)


def test_a_forest_fits_what_it_is_shown_the_same_way_each_time():
    first, again = (Forest(trees=10).fit(DATA, [SPLIT], 0)[0] for _ in range(2))
    assert training_r2(DATA, first.rule, SPLIT.fit) > 0.9
    assert torch.equal(first.rule(SCENES), again.rule(SCENES))


@pytest.mark.skipif(importlib.util.find_spec("xgboost") is None, reason="needs the extra trees")
def test_boosting_fits_what_it_is_shown():
    fitted = Boosted(rounds=40).fit(DATA, [SPLIT], 0)[0]
    assert training_r2(DATA, fitted.rule, SPLIT.fit) > 0.8


@pytest.mark.skipif(importlib.util.find_spec("xgboost") is not None, reason="xgboost is there")
def test_a_missing_library_names_its_extra():
    with pytest.raises(ValueError, match=r"colligate\[trees\]"):
        Boosted().fit(DATA, [SPLIT], 0)


class Ensemble:
    """Stands for a library's: keeps what it was asked for."""

    asked: list[int]

    def __init__(self, *_, n_jobs, **__):
        self.asked.append(n_jobs)

    def fit(self, inputs, targets):
        self.mean = targets.mean(0)

    def predict(self, inputs):
        return np.tile(self.mean, (len(inputs), 1))


@pytest.mark.parametrize("family", [Forest, Boosted])
def test_trees_take_the_threads_that_were_asked_for_on_any_system(monkeypatch, family):
    asked = list[int]()
    kept = type("Kept", (Ensemble,), {"asked": asked})
    monkeypatch.setattr("sklearn.ensemble.RandomForestRegressor", kept)
    monkeypatch.setitem(sys.modules, "xgboost", SimpleNamespace(XGBRegressor=kept))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # macOS has none
    monkeypatch.delenv("COLLIGATE_THREADS", raising=False)
    family().fit(DATA, [SPLIT], 0)
    monkeypatch.setenv("COLLIGATE_THREADS", "3")
    family().fit(DATA, [SPLIT], 0)
    with using_threads(2):
        family().fit(DATA, [SPLIT], 0)
    assert asked == [1, 3, 2]
