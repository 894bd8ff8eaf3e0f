"""Protocol paper: the recipe's arithmetic (the authors' own numbers: tests/external)."""

import pytest
import torch

from colligate.approximation.approximators import Data, training_r2, value_columns
from colligate.approximation.curves import CurveSettings, coverage_curve
from colligate.approximation.paper import PaperRecipe
from colligate.binding import object_product
from colligate.embeddings import Embeddings
from colligate.scenes.space import ConceptSpace
from colligate.scenes.splits import ByObject

SPACE = ConceptSpace(color=4, shape=3)
SCENES = SPACE.all_scenes(slots=2)
EMBEDDINGS = Embeddings(object_product(SPACE, 2, 10)(SCENES.values).float(), SCENES)


@pytest.mark.parametrize("form", ["linear", "hidden", "product", "sum+product"])
def test_the_rule_is_the_authors_rule_written_out(form):
    recipe = PaperRecipe(form, 7)
    parameters = recipe._start(SCENES, 10, 0)
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
