"""Does an embedding model know which values belong to the same object?

The foundation stands here; every other part is imported from its own module:

    colligate.scenes       what there is to bind: concepts, scenes, captions, pictures, splits
    colligate.binding      binding functions: maps from concept indices to vectors
    colligate.embedders    models that turn scenes into vectors
    colligate.probes       linear read-outs of values and objects
    colligate.geometry     how a scene is laid out in its vector
    colligate.complexity   how simple a rule gives the vectors, and whether it carries over to unseen objects
    colligate.study        every measurement of one model, and its report

Example:
    >>> from colligate import ConceptSpace
    >>> ConceptSpace(color=["red", "blue"], shape=["cube", "ball"]).all_scenes(slots=2).describe(1)
    'red cube | red ball'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colligate.embeddings import Embeddings as Embeddings
    from colligate.scenes.space import EMPTY as EMPTY
    from colligate.scenes.space import ConceptSpace as ConceptSpace
    from colligate.scenes.space import Scenes as Scenes

__version__ = "0.1.0"

_HOMES = {
    "ConceptSpace": "colligate.scenes.space", "EMPTY": "colligate.scenes.space", "Embeddings": "colligate.embeddings",
    "Scenes": "colligate.scenes.space", "coverage_curve": "colligate.complexity.curves",
}  # fmt: skip
"""Name -> the module that it is loaded from when it is first used: help and lists need no torch."""


def __getattr__(name: str) -> Any:
    """What `_HOMES` lists, loaded when it is first used."""
    if name in _HOMES:
        globals()[name] = found = getattr(import_module(_HOMES[name]), name)
        return found
    raise AttributeError(f"module 'colligate' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All that can be asked for."""
    return sorted({*globals(), *_HOMES})
