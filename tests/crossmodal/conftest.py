"""Worlds and pairs of towers with a chosen gap, embedded once for the folder; tiny two-tower models on disk."""

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from colligate.crossmodal.queries import QueryVectors, embed_queries
from colligate.crossmodal.repair_data import RepairData, repair_data
from colligate.embedders import load_model
from colligate.embedders.embedding import embed
from colligate.embedders.towers import Model
from colligate.embeddings import Embeddings
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import ConceptSpace
from colligate.scenes.worlds import World, load_world


class Pair(NamedTuple):
    """A pair of towers on one world."""

    world: World
    model: Model
    scenes: Embeddings
    queries: QueryVectors


@pytest.fixture(scope="session")
def grid() -> World:
    """10 x 10 values, every pair of objects: enough objects for a linear map of 40 dimensions to be determined."""
    return World("grid", ConceptSpace(color=10, shape=10).all_scenes(slots=2), CaptionTemplate())


@pytest.fixture(scope="session")
def pair() -> Callable[[str, int], Pair]:
    @cache
    def made(name: str, dim: int = 256) -> Pair:
        world, model = load_world("clevr"), load_model(f"oracle:pair-{name}:{dim}")
        queries = embed_queries(model.towers["text"], world)
        return Pair(world, model, embed(model.towers["scene"], world), queries)

    return made


@pytest.fixture(scope="session")
def gap(grid: World) -> Callable[[str], RepairData]:
    @cache
    def made(name: str) -> RepairData:
        model = load_model(f"oracle:pair-{name}:40")
        return repair_data(model.towers["scene"], model.towers["text"], grid)

    return made


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a tiny model by the name of its builder, made when first asked for."""
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).parents[1] / "embedders" / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    builders = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builders)
    root = tmp_path_factory.mktemp("tiny")
    return cache(lambda name: getattr(builders, name)(root / name))
