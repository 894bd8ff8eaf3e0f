"""Repair maps: what each computes, and its files."""

from pathlib import Path
from typing import Any

import pytest
import torch

from colligate.binding import ObjectProducts
from colligate.networks.maps import LinearMap, MapShape, ProductHead, TextMap, load_map, save_map
from colligate.records import WorkError, read_sealed, sealed_json
from colligate.scenes.space import ConceptSpace

SPACE = ConceptSpace(color=["red", "blue"], shape=3)
SHAPES = [
    MapShape(kind="linear", dim=6),
    MapShape(kind="low_rank", dim=6, rank=2),
    MapShape(kind="mlp", dim=6, hidden=5),
    MapShape(kind="product", dim=6),
    MapShape(kind="product", dim=6, rank=4),
]
every = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.kind}-{s.rank}")
VALUES = torch.tensor([[[0, 1], [1, 2]], [[1, 0], [-1, -1]], [[0, -1], [-1, -1]]])


def filled(shape: MapShape) -> Any:
    """A map with every parameter drawn."""
    map, generator = shape.build(SPACE), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in map.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return map


@every
def test_maps_read_what_they_say(shape: MapShape):
    map, vectors = filled(shape), torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    assert isinstance(map, TextMap)
    given = map(vectors, VALUES)
    assert given.shape == (3, 6)
    other_vectors, other_values = torch.equal(map(vectors + 1, VALUES), given), map(vectors, VALUES.flip(0))
    assert other_vectors == (map.reads == "values")
    assert torch.equal(other_values, given) == (map.reads == "vectors")


@pytest.mark.parametrize("shape", SHAPES[:3], ids=lambda s: s.kind)
def test_maps_of_vectors_start_by_doing_nothing(shape: MapShape):
    map, vectors = shape.build(SPACE), torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(map(vectors, VALUES), vectors)


@every
def test_a_saved_map_comes_back_bit_for_bit(shape: MapShape, tmp_path: Path):
    map, vectors = filled(shape), torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    sha = save_map(tmp_path, map, shape, SPACE, {"embedder": "x"})
    loaded = load_map(tmp_path)
    assert (loaded.sha256, loaded.shape, loaded.space) == (sha, shape, SPACE)
    assert torch.equal(loaded.map(vectors, VALUES), map(vectors, VALUES))
    assert not any(parameter.requires_grad for parameter in loaded.map.parameters())


def test_the_product_head_is_the_per_object_rule():
    head = filled(MapShape(kind="product", dim=6))
    rule = ObjectProducts(SPACE, 2, 6, "shared")
    with torch.no_grad():
        rule.additive.sum.weight.copy_(head.sum.weight)
        rule.product.weight.copy_(head.product.weight)
    torch.testing.assert_close(head(torch.zeros(2, 6), VALUES[:2]), rule(VALUES[:2]))


def test_a_single_value_has_no_product():
    head = filled(MapShape(kind="product", dim=6))
    assert torch.equal(head(torch.zeros(1, 6), VALUES[2:])[0], head.sum.weight[0])


def test_empty_slots_change_nothing():
    head = ProductHead(SPACE, 6, rank=2)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.fill_(0.5)
    padded = torch.cat([VALUES, torch.full((3, 2, 2), -1)], dim=1)
    assert torch.equal(head(torch.zeros(3, 6), padded), head(torch.zeros(3, 6), VALUES))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (MapShape(kind="linear", dim=0), "dim of a map must be at least 1"),
        (MapShape(kind="low_rank", dim=3), "needs its rank"),
        (MapShape(kind="mlp", dim=3), "needs its hidden"),
    ],
)
def test_sizes_that_make_no_map_are_told(shape: MapShape, message: str):
    with pytest.raises(ValueError, match=message):
        shape.build(SPACE)


def test_broken_files_are_told(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="name a folder that `colligate repair` wrote"):
        load_map(tmp_path)
    shape = MapShape(kind="linear", dim=4)
    save_map(tmp_path, LinearMap(4), shape, SPACE, {})
    told = read_sealed(tmp_path / "repair.json", "repair again")
    for change, message in (
        ({"schema": 99}, "another schema than 1"),
        ({"weights": "0"}, "is not the file that"),
        ({"map": {"kind": "linear", "dim": 5}}, "holds no map of this version"),
        ({"map": {"kind": "linear", "size": 5}}, "holds no map of this version"),
    ):
        (tmp_path / "repair.json").write_bytes(sealed_json("repair.json", {**told, **change}))
        with pytest.raises(ValueError if "schema" in change else WorkError, match=message):
            load_map(tmp_path)
    (tmp_path / "repair.json").write_text("{")
    with pytest.raises(WorkError, match="is no JSON"):
        load_map(tmp_path)
