"""Does an embedding model know which values belong to the same object?

    >>> import colligate
    >>> result = colligate.probe("oracle:object-product", "clevr")   # a model and a world, by name or as objects
    >>> print(result["probe.object"])
    probe.object 1.000 (0.762 to 1.000), n 118; chance 0.004, bag of concepts 0.548

Functions: `study` (every measurement of one model), `probe`, `decompose`, `edit`, `remove`, `information` and
`complexity` (one of them), `recognize`, `foils` and `repair` (two-tower models), `train`, `sweep` and `structure`. Each
gives a `Result`; `open_run` reads one that was kept. What they take beside names: `Model`, `FunctionTower`,
`Embeddings`, `World`, `Scenes`, `ConceptSpace`.

The parts are imported from their own modules:

    colligate.scenes          what there is to bind: concepts, scenes, captions, pictures, splits
    colligate.binding         binding functions: maps from concept indices to vectors
    colligate.embedders       models that turn scenes into vectors
    colligate.probes          linear read-outs of values and objects
    colligate.geometry        how a scene is laid out in its vector
    colligate.approximation   how simple a rule gives the vectors, and whether it carries over to held-out objects
    colligate.crossmodal      two towers: recognition by texts, foils, repairs
    colligate.training        dual encoders from scratch
    colligate.verbs           the same functions with configs in, and runs left behind
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from colligate.version import __version__ as __version__

if TYPE_CHECKING:
    from colligate.api import Comparison as Comparison
    from colligate.api import Result as Result
    from colligate.api import complexity as complexity
    from colligate.api import decompose as decompose
    from colligate.api import edit as edit
    from colligate.api import foils as foils
    from colligate.api import information as information
    from colligate.api import open_run as open_run
    from colligate.api import probe as probe
    from colligate.api import recognize as recognize
    from colligate.api import remove as remove
    from colligate.api import repair as repair
    from colligate.api import structure as structure
    from colligate.api import study as study
    from colligate.api import sweep as sweep
    from colligate.api import train as train
    from colligate.embedders.own import FunctionTower as FunctionTower
    from colligate.embedders.towers import Model as Model
    from colligate.embeddings import Embeddings as Embeddings
    from colligate.scenes.space import EMPTY as EMPTY
    from colligate.scenes.space import ConceptSpace as ConceptSpace
    from colligate.scenes.space import Scenes as Scenes
    from colligate.scenes.worlds import World as World

_HOMES = {
    "colligate.api": (
        "Comparison", "Result", "complexity", "decompose", "edit", "foils", "information", "open_run", "probe",
        "recognize", "remove", "repair", "structure", "study", "sweep", "train",
    ),
    "colligate.embedders.own": ("FunctionTower",),
    "colligate.embedders.towers": ("Model",),
    "colligate.embeddings": ("Embeddings",),
    "colligate.scenes.space": ("EMPTY", "ConceptSpace", "Scenes"),
    "colligate.scenes.worlds": ("World",),
}  # fmt: skip
"""Module -> names that are loaded from it when they are first used: `import colligate` needs no torch."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """What `_HOMES` lists, loaded when it is first used."""
    if name in _HOME_OF:
        globals()[name] = loaded = getattr(import_module(_HOME_OF[name]), name)
        return loaded
    raise AttributeError(f"module 'colligate' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All that can be asked for."""
    return sorted({*globals(), *_HOME_OF})
