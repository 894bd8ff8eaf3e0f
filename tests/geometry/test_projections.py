"""Coordinates keep what they say they keep."""

import math

import pytest
import torch

from colligate.binding import object_table
from colligate.embeddings import Embeddings
from colligate.geometry.projections import principal_axes, quadruple, scaled_distances
from colligate.scenes.space import ConceptSpace

SPACE = ConceptSpace(color=["red", "blue", "green"], shape=["ball", "cube"], size=2)
SCENES = SPACE.all_scenes(2)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_principal_axes_carry_the_variance_they_state() -> None:
    vectors = torch.randn(40, 6, generator=generator(), dtype=torch.float64) * torch.logspace(0, -1, 6) + 5
    found = principal_axes(vectors)
    eigenvalues = torch.linalg.eigvalsh(torch.cov(vectors.T)).flip(0)
    assert found.explained == pytest.approx((eigenvalues / eigenvalues.sum())[:3].tolist())
    torch.testing.assert_close(found.points.var(0), eigenvalues[:3])
    assert found.points.mean(0).abs().max() < 1e-12


def test_points_in_three_dimensions_keep_all_distances() -> None:
    flat = torch.randn(12, 3, generator=generator(), dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(7, 7, generator=generator(1), dtype=torch.float64))[0][:3]
    found = principal_axes(flat @ turn + 3)
    torch.testing.assert_close(torch.pdist(found.points), torch.pdist(flat))
    assert sum(found.explained) == pytest.approx(1)


@pytest.mark.parametrize("num", [1, 2, 3])
def test_few_points_leave_the_last_axes_at_zero(num: int) -> None:
    found = principal_axes(torch.randn(num, 5, generator=generator()))
    assert found.points.shape == (num, 3)
    assert found.points[:, num:].abs().sum() == 0


def test_equal_vectors_fall_on_one_point() -> None:
    for project in (principal_axes, scaled_distances):
        found = project(torch.full((5, 4), 0.3))
        assert torch.isfinite(found.points).all()
        assert torch.pdist(found.points).max() < 1e-4
        assert found.stress in (None, 0.0)


def test_distances_are_one_minus_cosine_whatever_the_lengths() -> None:
    directions = torch.nn.functional.normalize(torch.randn(6, 3, generator=generator()), dim=1)
    lengths = torch.rand(6, 1, generator=generator(1)) + 0.5
    first, second = scaled_distances(directions), scaled_distances(directions * lengths)
    torch.testing.assert_close(torch.pdist(first.points), torch.pdist(second.points), rtol=1e-3, atol=1e-3)
    corner = scaled_distances(torch.eye(3))  # mutual distance 1 can be kept exactly
    torch.testing.assert_close(torch.pdist(corner.points), torch.ones(3, dtype=torch.float64), rtol=1e-2, atol=1e-2)
    assert corner.stress is not None
    assert corner.stress < 0.02


def test_stress_is_the_misfit_it_states() -> None:
    vectors = torch.randn(9, 12, generator=generator())
    found = scaled_distances(vectors)
    wanted = 1 - torch.cosine_similarity(vectors[:, None].double(), vectors[None].double(), dim=2)
    misfit = sum(
        (math.dist(found.points[i].tolist(), found.points[j].tolist()) - wanted[i, j].item()) ** 2
        for i in range(9) for j in range(i)
    )  # fmt: skip
    total = sum(wanted[i, j].item() ** 2 for i in range(9) for j in range(i))
    assert found.stress == pytest.approx(math.sqrt(misfit / total), rel=1e-6)


def test_a_quadruple_holds_means_scenes_and_the_sums_that_objects_predict() -> None:
    embeddings = Embeddings(object_table(SPACE, 2, 8)(SCENES.values), SCENES)
    found = quadruple(embeddings, {0: (0, 2), 1: (0, 1)})
    assert found.kinds == ("concept",) * 4 + ("object",) * 4 + ("scene", "scene", "sum") * 2
    at = {(kind, label): vector for kind, label, vector in zip(found.kinds, found.labels, found.vectors, strict=True)}
    assert set(found.labels[:4]) == {"red", "green", "ball", "cube"}
    mean = embeddings.vectors.mean(0)
    has_green = SCENES.contains(0)[:, 2]
    torch.testing.assert_close(at["concept", "green"], embeddings.vectors[has_green].mean(0))
    red_ball, green_cube = at["object", "red ball size0"], at["object", "green cube size0"]
    torch.testing.assert_close(at["sum", "red ball size0 + green cube size0"], red_ball + green_cube - mean)
    row = SCENES.rows_of(SPACE.scenes([[0, 10]]))
    torch.testing.assert_close(at["scene", "red ball size0 | green cube size0"], embeddings.vectors[int(row)])
    torch.testing.assert_close(
        at["scene", "red ball size0 | green cube size0"], at["scene", "green cube size0 | red ball size0"]
    )


def test_a_quadruple_needs_its_scenes() -> None:
    kept = SCENES[(SCENES.objects != 0).any(1) & ~SCENES.shares(0)]
    embeddings = Embeddings(object_table(SPACE, 2, 8)(kept.values), kept)
    with pytest.raises(ValueError, match=r"no scene '.* \| .*'; choose other values"):
        quadruple(embeddings, {1: (0, 1), 2: (0, 1)})
