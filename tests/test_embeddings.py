"""Vectors stay with their scenes, and bad ones are refused by name."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colligate.embeddings import Embeddings
from colligate.scenes.space import ConceptSpace

SPACE = ConceptSpace(color=3, shape=2)
SCENES = SPACE.all_scenes(slots=2)
NUM = len(SCENES)


def labelled() -> Embeddings:
    """Each vector says which row it was made for."""
    vectors = torch.stack([torch.arange(NUM, dtype=torch.float32), torch.ones(NUM)], dim=1)
    return Embeddings(vectors, SCENES, [f"caption {i}" for i in range(NUM)])


@given(rows=st.sets(st.integers(0, NUM - 1), min_size=1), bad=st.sampled_from([torch.nan, torch.inf, -torch.inf]))
def test_rows_that_are_not_finite_are_named(rows: set[int], bad: float) -> None:
    vectors = torch.zeros(NUM, 3)
    vectors[sorted(rows), 1] = bad
    named = ", ".join(str(row + 1) for row in sorted(rows)[:8]) + (
        f" and {len(rows) - 8} more;" if len(rows) > 8 else ";"
    )
    with pytest.raises(ValueError, match=f"NaN or infinity in rows {named}"):
        Embeddings(vectors, SCENES)


@pytest.mark.parametrize(
    ("vectors", "captions", "said"),
    [
        (torch.zeros(NUM - 1, 4), None, f"{NUM - 1} vectors for {NUM} scenes"),
        (torch.zeros(NUM, 4), ["one"], f"1 captions for {NUM} vectors"),
        (torch.zeros(NUM, 4, dtype=torch.int64), None, "floating"),
        (torch.zeros(NUM), None, "floating"),
    ],
)
def test_what_does_not_fit_together_is_refused(vectors: torch.Tensor, captions: list[str] | None, said: str) -> None:
    # Shapes are checked by annotation first here; users run without those checks.
    with pytest.raises((ValueError, TypeError)) as caught:
        Embeddings(vectors, SCENES, captions)
    assert said in str(caught.value) or type(caught.value) is not ValueError


def test_no_scenes_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Embeddings(torch.zeros(0, 4), SCENES[torch.zeros(0, dtype=torch.int64)])


@given(rows=st.lists(st.integers(0, NUM - 1), min_size=1, max_size=50))
def test_choosing_rows_keeps_vectors_scenes_and_captions_together(rows: list[int]) -> None:
    chosen = labelled()[torch.tensor(rows)]
    assert chosen.vectors[:, 0].tolist() == rows
    assert torch.equal(chosen.scenes.ids, SCENES.ids[rows])
    assert chosen.captions == [f"caption {i}" for i in rows]


def test_masks_and_slices_choose_rows_too() -> None:
    mask = torch.arange(NUM) % 3 == 1
    assert labelled()[mask].captions == labelled()[torch.arange(NUM)[mask]].captions
    assert labelled()[5:9].vectors[:, 0].tolist() == [5, 6, 7, 8]


def test_normalized_vectors_have_length_one_and_say_so() -> None:
    plain = Embeddings(torch.randn(NUM, 5, generator=torch.Generator().manual_seed(0)).half(), SCENES)
    unit = plain.normalized()
    assert unit.vectors.dtype == torch.float32
    torch.testing.assert_close(unit.vectors.norm(dim=1), torch.ones(NUM))
    torch.testing.assert_close(unit.vectors * plain.vectors.float().norm(dim=1, keepdim=True), plain.vectors.float())
    assert unit.provenance["normalized"] is True
    assert "normalized" not in plain.provenance


def test_a_zero_vector_has_no_direction() -> None:
    vectors = torch.ones(NUM, 3)
    vectors[[4, 7]] = 0
    with pytest.raises(ValueError, match="rows 5, 8 are zero"):
        Embeddings(vectors, SCENES).normalized()


@given(rows=st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_replicates_are_numbered_in_order_of_rows(rows: list[int]) -> None:
    embeddings = Embeddings(torch.zeros(len(rows), 2), SCENES[torch.tensor(rows)])
    seen: dict[int, int] = {}
    expected = []
    for scene in rows:
        expected.append(seen.get(scene, 0))
        seen[scene] = expected[-1] + 1
    assert embeddings.replicates.tolist() == expected
