"""What a caller hands over as objects, as a verb takes it: models, worlds, vectors and their labels."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from colligate.embedders.own import FunctionTower, as_model
from colligate.embedders.precomputed import vectors_of
from colligate.embedders.towers import Model
from colligate.embeddings import Embeddings
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.sources import read_space, world_of
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.tables import keep_of, table_of
from colligate.scenes.worlds import World
from colligate.verbs.config import SourceConfig, VectorsConfig
from colligate.verbs.sources import Inputs, open_world

if TYPE_CHECKING:
    import pandas as pd

Config = TypeVar("Config", bound=SourceConfig)


def with_inputs(
    config: Config, model: Any, world: Any = None, *, labels: Any = None, control: Any = None
) -> tuple[Config, Inputs]:
    """The config with the names of a model and a world, and what is handed over as objects.

    Args:
        config: the options.
        model: an embedder's name, a tower, a `Model`, a dict of towers, a function from captions to vectors,
            `Embeddings`, or vectors [row, dim]: a tensor, an array, a DataFrame, or a file of them.
        world: a world's name, a table of labels (path or DataFrame), a `World`, `Scenes`, or a `ConceptSpace`.
        labels: of vectors, in the place of `world`.
        control: vectors of a random model for the same rows.

    Raises:
        ValueError: one of them can't be had, or they don't go together.

    Example:
        >>> config, inputs = with_inputs(SourceConfig(embedder=""), lambda texts: [[1.0] for _ in texts], "text8x8")
        >>> config.embedder, config.scenes, inputs.objects
        ('<lambda>', 'text8x8', ('embedder',))
    """
    if labels is not None and world is not None:
        raise ValueError("Give the labels of vectors once: as the second argument, or as labels.")
    shown = labels if world is None else world
    scenes, as_object = _world(shown, config)
    name, inputs = _model(model, as_object, scenes, shown, config)
    if inputs.world is not None:
        scenes = inputs.world.name
    config = replace(config, embedder=name, scenes=scenes)
    if control is None:
        return config, inputs
    if inputs.embeddings is None and not (config.of_vectors and inputs.model is None):
        raise ValueError("control goes with vectors; a model has its own control.")
    of = inputs.world or _of_table(scenes, config)
    return config, replace(inputs, world=of, control=_embeddings(control, of, "control", shown))


def _of_table(scenes: str, config: VectorsConfig) -> World:
    """The world of a table, or a built-in one, whose rows vectors are of.

    Raises:
        ValueError: none is named, or it can't be had.
    """
    if not scenes:
        raise ValueError("Vectors need the labels of their rows; give labels, a DataFrame or the path of a table.")
    return open_world(replace(config, scenes=scenes))


def _world(world: Any, config: VectorsConfig) -> tuple[str, World | None]:
    """A world's name, and the world itself where it was given as an object.

    Raises:
        ValueError: it is no world, or a table that can't be read.
    """
    if world is None:
        return "", None
    if isinstance(world, str | Path):
        return str(world), None
    if isinstance(world, World):
        return world.name, world
    if isinstance(world, ConceptSpace):
        scenes = Scenes.join([world.all_scenes(slots=2), world.all_scenes(slots=1)])
        return "pairs and singles", World("pairs and singles", scenes, CaptionTemplate())
    if isinstance(world, Scenes):
        return "scenes", World("scenes", world)
    if hasattr(world, "columns"):
        space = None if config.space is None else read_space(config.space)
        return "labels", world_of(table_of(world), "labels", space=space, keep=keep_of(config.keep))
    raise ValueError(
        f"An object of type {type(world).__name__} is no world; give a world's name, a table of labels (path or "
        "DataFrame), a World, Scenes or a ConceptSpace."
    )


def _model(model: Any, world: World | None, scenes: str, shown: Any, config: VectorsConfig) -> tuple[str, Inputs]:
    """A model's name, and all that is handed over as objects.

    Raises:
        ValueError: it is no model, or vectors without labels.
    """
    if isinstance(model, str | Path):
        return str(model), Inputs(world=world)
    if isinstance(model, Embeddings):
        return "embeddings", Inputs(embeddings=model, world=world)
    if isinstance(model, Model) or hasattr(model, "embed") or _holds_towers(model):
        own = as_model(model, type(model).__name__)
        return own.name, Inputs(model=own, world=world)
    if callable(model) and not hasattr(model, "shape"):
        named = getattr(model, "__name__", type(model).__name__)
        return named, Inputs(model=as_model(FunctionTower(model), named), world=world)
    if not (hasattr(model, "shape") or isinstance(model, list | Mapping)):
        raise ValueError(
            f"An object of type {type(model).__name__} is no model; give an embedder's name, a tower, a Model, a "
            "function from captions to vectors, or vectors."
        )
    world = world or _of_table(scenes, config)
    return "vectors", Inputs(embeddings=_embeddings(model, world, "vectors", shown), world=world)


def _holds_towers(model: Any) -> bool:
    return isinstance(model, Mapping) and bool(model) and all(hasattr(tower, "embed") for tower in model.values())


def _embeddings(vectors: Any, world: World, name: str, labels: Any) -> Embeddings:
    """Vectors with their scenes; those of a DataFrame in the order of the labels' index, where both have one."""
    if isinstance(vectors, Embeddings):
        return vectors
    if hasattr(vectors, "columns") and hasattr(labels, "columns"):
        vectors = _in_order_of(vectors, labels, name)
    return vectors_of(vectors, world, name=name)


def _in_order_of(vectors: "pd.DataFrame", labels: "pd.DataFrame", name: str) -> "pd.DataFrame":
    import pandas as pd

    indices = vectors.index, labels.index
    if any(isinstance(index, pd.RangeIndex) for index in indices) or indices[0].equals(indices[1]):
        return vectors
    if not indices[0].is_unique or not indices[1].is_unique or not indices[1].isin(indices[0]).all():
        raise ValueError(
            f"The index of {name} isn't that of the labels, so it is unknown which row belongs to which; give both the "
            "same index, or reset both."
        )
    return vectors.loc[indices[1]]
