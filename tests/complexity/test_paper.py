"""Protocol paper: the recipe's arithmetic, and the authors' own numbers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from colligate.binding import object_product
from colligate.complexity.approximators import Data, training_r2, value_columns
from colligate.complexity.curves import CurveSettings, Readers, _Scoring, coverage_curve
from colligate.complexity.paper import PaperRecipe
from colligate.embedders.precomputed import read_vectors
from colligate.embeddings import Embeddings
from colligate.probes import Probes
from colligate.scenes.space import ConceptSpace
from colligate.scenes.splits import ByObject, Split

GOLDEN = Path(__file__).parents[2] / ".." / "shared" / "golden" / "clevr-text"
SPACE = ConceptSpace(color=4, shape=3)
SCENES = SPACE.all_scenes(slots=2)
EMBEDDINGS = Embeddings(object_product(SPACE, 2, 10)(SCENES.values).float(), SCENES)


@pytest.mark.parametrize("form", ["linear", "hidden", "product", "sum+product"])
def test_the_rule_is_the_authors_rule_written_out(form):
    recipe = PaperRecipe(form, 7)
    parameters = recipe._start((14, 4, 10), torch.Generator().manual_seed(0))
    columns = value_columns(SCENES, "own").flatten(1)
    parts = torch.repeat_interleave(torch.arange(4), torch.tensor([4, 3, 4, 3]))
    predicted = recipe._forward([of[None] for of in parameters], columns[None], parts)[0]
    tables, *rest = parameters
    read = tables[columns]
    if form == "linear":
        expected = read.flatten(1) @ rest[0] + rest[1]
    elif form == "hidden":
        expected = (read.flatten(1) @ rest[0] + rest[1]).relu() @ rest[2] + rest[3]
    elif form == "product":
        expected = read.prod(1) @ rest[0] + rest[1]
    else:
        expected = torch.cat([read.prod(1), rest[0][columns].sum(1)], dim=1) @ rest[1] + rest[2]
    assert torch.allclose(predicted, expected, atol=1e-4)


def test_the_recipe_learns_and_its_step_is_chosen_on_test():
    data = Data.of(EMBEDDINGS)
    split = ByObject(coverage=0.7, validation=0.0).split(SCENES, seed=0)
    last = PaperRecipe("sum+product", steps=300).fit(data, [split], 0)[0]
    assert training_r2(data, last.rule, split.fit) > 0.9
    asked = []

    def judge(vectors, rows):
        assert torch.equal(rows, split.test)
        asked.append(len(asked))
        return -abs(asked[-1] - 1.0)

    fitted = PaperRecipe("product", steps=300, every=100, judge=judge).fit(data, [split], 0)[0]
    assert len(asked) == 3
    assert fitted.chosen == "step 100"


def test_the_protocol_stands_in_every_row():
    chosen = CurveSettings(
        protocol="paper", families=(PaperRecipe("linear", steps=50),), coverages=(0.7,), pooled=2, folds=2
    )
    curves = coverage_curve(EMBEDDINGS, chosen)
    assert [point.family for point in curves.points] == ["paper.additive"]
    assert all("step" in word for word in curves.points[0].chosen)


@pytest.mark.long
@pytest.mark.skipif(not GOLDEN.exists(), reason="../shared/golden is not beside this checkout")
@pytest.mark.parametrize(
    ("form", "name"),
    [("linear", "regular_mlp_none"), ("product", "mult_linear_none"), ("sum+product", "sum_mult_linear_none"),
     ("hidden", "regular_mlp_256")],
)  # fmt: skip
@pytest.mark.parametrize("coverage", [0.5, 0.8])
def test_the_authors_numbers_lie_within_five_of_our_seeds(form, name, coverage):
    meta = json.loads((GOLDEN / "meta.json").read_text())
    space = ConceptSpace(dict(zip(meta["concept_names"], meta["words"], strict=True)))
    embeddings = read_vectors(GOLDEN / "vectors.safetensors", GOLDEN / "scenes.csv", space=space)
    embeddings = embeddings[embeddings.scenes.counts > 1]
    scenes = embeddings.scenes
    theirs = json.loads((GOLDEN / "authors.json").read_text())["complexity"][f"seed0_frac{coverage}_{name}"]
    with np.load(GOLDEN / "probes.npz") as file:
        arrays = {key: torch.from_numpy(file[key]) for key in file.files}
    objects = torch.zeros(24, 384)
    objects[space.object_ids(arrays["object_order"])] = arrays["object"]
    known = torch.ones(24, dtype=torch.bool)
    probes = Probes(space, (arrays["concept0"], arrays["concept1"]), objects, {}, {}, {}, known)
    fit, test = (space.object_ids(torch.tensor(theirs[f"{part}_objects"])) for part in ("train", "test"))
    rows = [torch.isin(scenes.objects, of).all(1).nonzero()[:, 0] for of in (fit, test)]
    split = Split(rows[0], rows[0][:0], rows[1], "authors", {"fit": fit, "validation": fit[:0], "test": test})
    data = Data.of(embeddings)
    settings = CurveSettings(protocol="paper", families=("paper.additive",))
    scoring = _Scoring(embeddings, data, [Readers.same(probes, scenes)], settings)
    ceiling = scoring.point("ceiling", coverage, [split], None)
    expected = json.loads((GOLDEN / "authors.json").read_text())["complexity_probe_ceiling"][f"frac{coverage}"]
    assert ceiling.mean("object") == pytest.approx(expected["test_only"]["object"], abs=1e-6)
    found = []
    for seed in range(5):
        fitted = replace(PaperRecipe(form, 256), judge=None).fit(data, [split], seed)
        found.append(scoring.point(name, coverage, [split], fitted))
    last = theirs["test_only"]["after_4000"]
    two = 2 / len(rows[1])
    for kind in ("concept", "object"):
        ours = [point.mean(kind) for point in found]
        assert min(ours) - two <= last[kind] <= max(ours) + two, kind
