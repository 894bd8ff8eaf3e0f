"""Sums gathered in one pass give what reading the vectors for each decomposition gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.embeddings import Embeddings
from colligate.geometry.components import Estimator, Parts, decompose
from colligate.geometry.sums import SceneSums
from colligate.scenes.space import ConceptSpace, Scenes

SPACE = ConceptSpace(color=4, shape=3)
FULL = SPACE.all_scenes(slots=2)
WORLDS = {
    "full": FULL,
    "no shared values": FULL[~FULL.shares_any()],
    "one and two objects": Scenes.join([FULL, SPACE.all_scenes(slots=1)]),
    "three slots": ConceptSpace(color=2, shape=2).all_scenes(slots=3),
    "three concepts": ConceptSpace(color=2, shape=3, size=2).all_scenes(slots=2),
}


def vectors(scenes: Scenes, seed: int = 0) -> Embeddings:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(len(scenes), 20, generator=generator) + 5
    values += torch.randn(scenes.space.num_objects, 20, generator=generator)[scenes.objects[:, 0]]
    return Embeddings(values, scenes)


@pytest.mark.parametrize("estimator", ["least_squares", "avg"])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("parts", ["concept", "object"])
@pytest.mark.parametrize("world", WORLDS)
def test_one_pass_gives_what_each_decomposition_gives(
    world: str, parts: Parts, positions: bool, estimator: Estimator
) -> None:
    embeddings = vectors(WORLDS[world])
    rows = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(1))[: len(embeddings) * 4 // 5]
    expected = decompose(embeddings, rows, parts=parts, positions=positions, estimator=estimator)
    sums = SceneSums.of(embeddings, rows)
    found = sums.decompose(parts=parts, positions=positions, estimator=estimator)
    assert found.rank == expected.rank
    assert torch.allclose(found.centres, expected.centres, atol=1e-10, equal_nan=True)
    assert torch.equal(found.components.isnan(), expected.components.isnan())
    known = embeddings.scenes[rows]
    torch.testing.assert_close(found.predict(known), expected.predict(known), atol=1e-9, rtol=0)
    assert sums.r2(found) == pytest.approx(expected.r2(embeddings[rows]), abs=1e-10)
    assert found.r2(embeddings[rows]) == pytest.approx(sums.r2(expected), abs=1e-10)


@settings(max_examples=10)
@given(cut=st.integers(1, 143), seed=st.integers(0, 99))
def test_merged_parts_are_the_whole(cut: int, seed: int) -> None:
    embeddings = vectors(FULL, seed)
    whole = SceneSums.of(embeddings)
    merged = SceneSums.of(embeddings[:cut]).merge(SceneSums.of(embeddings[cut:]))
    assert torch.equal(merged.pairs, whole.pairs)
    torch.testing.assert_close(merged.sums, whole.sums)
    assert merged.r2(merged.decompose()) == pytest.approx(whole.r2(whole.decompose()), abs=1e-12)


def test_r2_of_a_fit_on_other_scenes_is_centred_on_them() -> None:
    embeddings = vectors(FULL)
    fit, test = torch.randperm(144, generator=torch.Generator().manual_seed(0)).split([100, 44])
    fitted = decompose(embeddings, fit, parts="concept", positions=True)
    assert SceneSums.of(embeddings, test).r2(fitted) == pytest.approx(fitted.r2(embeddings[test]), abs=1e-10)


def test_scenes_of_another_space_are_not_merged() -> None:
    other = ConceptSpace(color=4, size=3).all_scenes(slots=2)
    with pytest.raises(ValueError, match="one concept space"):
        SceneSums.of(vectors(FULL)).merge(SceneSums.of(vectors(other)))


def test_estimators_that_need_more_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'avg.set' needs more than these sums"):
        SceneSums.of(vectors(FULL)).decompose(estimator="avg.set")


def test_too_many_objects_for_a_table_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colligate.geometry.sums.MOST_PARTS", 10)
    with pytest.raises(ValueError, match="too many for a table of pairs"):
        SceneSums.of(vectors(FULL))
