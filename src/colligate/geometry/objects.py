"""Objects' components explained by their values: Level-II proper."""

import torch
from jaxtyping import Float
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.components import ROUNDING, Decomposition, decompose


def objects_from_concepts(decomposition: Decomposition) -> float:
    """R2 of the *object* components from the values of their concepts (Level-II proper).

        w[o] ~ sum_c u[c, o_c],   R2 over the objects of one slot

    Args:
        decomposition: with parts="object".

    Raises:
        ValueError: it has components of concepts.

    Paper: arXiv:2605.31503, Table 4 (ii).

    Example:
        >>> from colligate.binding import no_binding
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> embeddings = Embeddings(no_binding(scenes.space, 2, 16)(scenes.values), scenes)
        >>> round(objects_from_concepts(decompose(embeddings, parts="object")), 6)
        1.0
    """
    errors, totals = object_squares(decomposition)
    return 1 - float(errors.sum() / totals.sum())


def objects_by_chance(decomposition: Decomposition) -> float:
    """Share of the variance of object components that their concepts explain where these have no structure.

        E[R2] = sum_k rank(C_k) / sum_k (n_k - 1)      C_k: the concepts of the n_k known objects of slot k, centred

    For 8 x 3 values that is (7 + 2) / 23 = 0.39: an R2 means little before it clears that.

    Example:
        >>> from colligate.binding import object_table
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=8, shape=3).all_scenes(slots=2)
        >>> vectors = object_table(scenes.space, 2, 64)(scenes.values)
        >>> round(objects_by_chance(decompose(Embeddings(vectors, scenes), parts="object")), 2)
        0.39
    """
    design = decomposition.design
    column = torch.isfinite(decomposition.components).all(1).nonzero()[:, 0]
    explained, free = 0, 0
    for slot in (column // design.per_slot).unique().tolist():
        objects = column[column // design.per_slot == slot] % design.per_slot
        alone = design.space.scenes(objects[:, None])
        concepts = torch.cat([alone.contains(c) for c in range(design.space.num_concepts)], dim=1).double()
        centred = concepts - concepts.mean(0)
        explained += int(torch.linalg.matrix_rank(centred.T @ centred, hermitian=True))
        free += len(objects) - 1
    return explained / free if free else 0.0


def object_squares(decomposition: Decomposition) -> tuple[Float[Tensor, " object"], Float[Tensor, " object"]]:
    """Per object, squared error of its component given its concepts, and squared distance from the mean object."""
    design = decomposition.design
    if design.parts != "object":
        raise ValueError("Only a decomposition by objects can be explained by concepts; decompose with parts='object'.")
    known = torch.isfinite(decomposition.components).all(1)
    column = known.nonzero()[:, 0]
    errors, totals = torch.zeros(design.space.num_objects), torch.zeros(design.space.num_objects)
    errors, totals = errors.double(), totals.double()
    for slot in (column // design.per_slot).unique().tolist():
        own = column[column // design.per_slot == slot]
        objects = own % design.per_slot
        alone = Embeddings(decomposition.components[own], design.space.scenes(objects[:, None]))
        squares = decompose(alone, parts="concept").squares(alone)
        errors.index_add_(0, objects, squares[0])
        totals.index_add_(0, objects, squares[1])
    centre = decomposition.centres.nan_to_num().square().sum(1).max()
    vary = totals.sum() > ROUNDING**2 * centre * len(column)  # components of equal vectors are rounding
    return errors * vary, totals * vary
