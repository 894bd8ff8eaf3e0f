"""Does an embedding model know which values belong to the same object?

The foundation stands here; every other part is imported from its own module:

    colligate.scenes       what there is to bind: concepts, scenes, captions, pictures, splits
    colligate.binding      binding functions: maps from concept indices to vectors
    colligate.embedders    models that turn scenes into vectors
    colligate.probes       linear read-outs of values and objects
    colligate.geometry     how a scene is laid out in its vector
    colligate.study        every measurement of one model, and its report

Example:
    >>> ConceptSpace(color=["red", "blue"], shape=["cube", "ball"]).all_scenes(slots=2).describe(1)
    'red cube | red ball'
"""

from colligate.embeddings import Embeddings as Embeddings
from colligate.scenes.space import EMPTY as EMPTY
from colligate.scenes.space import ConceptSpace as ConceptSpace
from colligate.scenes.space import Scenes as Scenes

__version__ = "0.1.0"
