"""The authors' approximators on the same vectors and splits, against five of our seeds under protocol `paper`."""

import logging
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from colligate.approximation.approximators import Data, Rule
from colligate.approximation.paper import PaperRecipe
from colligate.measures import recognise
from colligate.scenes.splits import ByObject, Split

SEEDS = range(5)
FORMS: dict[tuple[str, str], Any] = {
    ("regular_mlp", "none"): "linear",
    ("regular_mlp", "256"): "hidden",
    ("regular_mlp", "1024"): "hidden",
    ("mult_linear", "none"): "product",
    ("sum_mult_linear", "none"): "sum+product",
}
"""What the authors call an approximator -> what it is called here."""


def object_split(golden: Any, run: dict[str, Any]) -> Split:
    """The authors' split: scenes of two training objects, and scenes of two held-out ones."""
    objects = {part: golden.space.object_ids(torch.tensor(run[f"{part}_objects"])) for part in ("train", "test")}
    rows = {part: torch.isin(golden.scenes.objects, ids).all(1).nonzero()[:, 0] for part, ids in objects.items()}
    none = torch.zeros(0, dtype=torch.int64)
    parts = {"fit": objects["train"], "validation": none, "test": objects["test"]}
    return Split(rows["train"], none, rows["test"], "the authors'", parts)


def recognition(golden: Any, vectors: Tensor, rows: Tensor) -> dict[str, float]:
    """Share of values and of objects that the authors' probes recognise."""
    outcomes = golden.probes.recognise(vectors, golden.scenes[rows])
    return {
        "concept": outcomes.concepts.double().mean().item(), "object": outcomes.objects.double().mean().item()
    }  # fmt: skip


def runs(golden: Any) -> dict[str, dict[str, Any]]:
    return golden.authors.get("complexity", {})


def test_the_ceiling_of_their_probes_is_theirs(golden: Any) -> None:
    ceiling = golden.authors.get("complexity_probe_ceiling")
    if ceiling is None:
        pytest.skip(f"{golden.folder.name} has no approximators of the authors")
    for name, expected in ceiling.items():
        if not name.startswith("frac"):
            continue
        run = next(one for key, one in runs(golden).items() if name in key)
        split = object_split(golden, run)
        for part, rows in (("test_only", split.test), ("train_only", split.fit)):
            assert len(rows) == expected[part]["scenes"] == run["scenes"][part]
            found = recognition(golden, golden.embeddings.vectors[rows], rows)
            assert found == {key: pytest.approx(expected[part][key], abs=1e-9) for key in found}
        for c, missing in enumerate(expected["values_never_trained"]):
            assert (~golden.scenes[split.fit].contains(c).any(0)).nonzero()[:, 0].tolist() == missing


def test_a_seed_of_theirs_divides_the_objects_alike(golden: Any) -> None:
    if not runs(golden):
        pytest.skip(f"{golden.folder.name} has no approximators of the authors")
    for key, run in runs(golden).items():
        rule = ByObject(coverage=run["train_fraction"], validation=0.0, unseen="report")
        ours, theirs = rule.split(golden.scenes, run["seed"]), object_split(golden, run)
        assert torch.equal(ours.fit, theirs.fit), key
        assert torch.equal(ours.test, theirs.test), key


def test_a_seed_of_theirs_is_the_same_seed_here(golden: Any) -> None:
    """Losses before the first step: the start is theirs, number for number."""
    if not runs(golden):
        pytest.skip(f"{golden.folder.name} has no approximators of the authors")
    data = Data.of(golden.embeddings, whole=True)
    for key, run in runs(golden).items():
        split, hidden = object_split(golden, run), str(run["hidden"])
        width = int(hidden) if hidden.isdigit() else 0
        recipe = PaperRecipe(FORMS[run["profile"], hidden], width, steps=0)
        rule = recipe.fit(data, [split], run["seed"])[0].rule
        vectors = data.frame.restore(rule(golden.scenes[split.fit]))
        loss = (vectors - golden.embeddings.vectors[split.fit]).square().mean().item()
        assert loss == pytest.approx(run["curve_every_100_steps"]["train_loss"][0], abs=1e-6), key


@cache
def trained(golden: Any, form: Any, width: int, key: str) -> list[dict[str, float]]:
    """What each of our seeds reaches after the authors' number of steps."""
    run, data = runs(golden)[key], Data.of(golden.embeddings, whole=True)
    split, found = object_split(golden, run), list[dict[str, float]]()
    targets = golden.embeddings.vectors[split.test].double()
    around = (golden.embeddings.vectors.double() - golden.mean).square().sum(1).mean() * len(split.test)
    for seed in SEEDS:
        rule: Rule = PaperRecipe(form, width, steps=run["steps"]).fit(data, [split], seed)[0].rule
        vectors = data.frame.restore(rule(golden.scenes[split.test]))
        error = float((vectors.double() - targets).square().sum())
        found.append(recognition(golden, vectors, split.test) | {"r2": 1 - error / float(around)})
    return found


ROUNDING = {("clevr-text", "seed0_frac0.5_regular_mlp_256", "concept")}
"""Published numbers that their own recipe doesn't give again from the same seed: units that died come back by rounding
alone (docs/differences.md). They are reported as expected failures, with the figures."""


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("coverage", ["0.5", "0.8"])
@pytest.mark.parametrize(("profile", "hidden"), FORMS)
def test_approximators_of_the_authors_lie_within_our_seeds(
    golden: Any, profile: str, hidden: str, coverage: str
) -> None:
    key = f"seed0_frac{coverage}_{profile}_{hidden}"
    if key not in runs(golden):
        pytest.skip(f"{golden.folder.name} has no {key}")
    theirs = runs(golden)[key]["test_only"]["after_4000"]
    ours = trained(golden, FORMS[profile, hidden], int(hidden) if hidden.isdigit() else 0, key)
    scored = runs(golden)[key]["scenes"]["test_only"]
    for name in ("concept", "object"):
        values = [one[name] for one in ours]
        slack = 2 / scored + 1e-6
        said = f"{key} {name}: theirs {theirs[name]:.4f}, ours {min(values):.4f} to {max(values):.4f}"
        logging.getLogger(__name__).info(said)
        inside = min(values) - slack <= theirs[name] <= max(values) + slack
        if not inside and (golden.folder.name, key, name) in ROUNDING:
            pytest.xfail(said)
        assert inside, said


def test_their_measure_is_ours(golden: Any) -> None:
    """Object recognition as the authors count it, lowest present above highest absent, is `recognise`."""
    rows = torch.arange(0, len(golden.scenes), 7)
    scores = golden.embeddings.vectors[rows] @ golden.probes.objects.T
    present = golden.scenes.contains_objects()[rows]
    lowest = scores.masked_fill(~present, torch.inf).amin(1)
    highest = scores.masked_fill(present, -torch.inf).amax(1)
    assert torch.equal(recognise(scores, present).hits, lowest > highest)
