"""Take components out of vectors, the true ones or, as a control, others under permuted names."""

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.components import Decomposition
from colligate.scenes.space import Scenes


def remove(embeddings: Embeddings, decomposition: Decomposition, permuted: Scenes | None = None) -> Embeddings:
    """Subtract every scene's components; the mean stays.

        residual(s) = x(s) - sum of the components of s        (or of permuted[s], the control)

    Args:
        embeddings: what to subtract from.
        decomposition: the components, fitted on true identities.
        permuted: scenes under other names, whose components are subtracted instead. Looking true components up under
            wrong names removes as much, but not what is there; refitting on wrong names would span the same space.

    Paper: arXiv:2605.31503, Table 5.
    """
    scenes = embeddings.scenes if permuted is None else permuted
    left = embeddings.vectors.double() - decomposition.sum_of_parts(scenes)
    facts = {**embeddings.provenance, "removed": decomposition.design.name, "permuted": permuted is not None}
    return Embeddings(left.to(embeddings.vectors.dtype), embeddings.scenes, embeddings.captions, facts)


def permute_names(scenes: Scenes, parts: str, seed: int) -> Scenes:
    """The scenes under one fixed permutation of objects, or of each concept's values, that leaves none in place.

    Only objects and values that occur exchange their names, so that every name has its component.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> bool((permute_names(scenes, "object", seed=0).objects == scenes.objects).any())
        False
    """
    generator = torch.Generator().manual_seed(seed)
    if parts == "object":
        names = _derangement(scenes.objects[scenes.filled].unique(), scenes.space.num_objects, generator)
        return scenes.space.scenes(torch.where(scenes.filled, names[scenes.objects.clamp(min=0)], -1))
    values = scenes.values.clone()
    for concept, size in enumerate(scenes.space.sizes):
        held = scenes.values[..., concept]
        names = _derangement(held[held >= 0].unique(), size, generator)
        values[..., concept] = torch.where(held >= 0, names[held.clamp(min=0)], held)
    return Scenes(scenes.space, values)


def _derangement(known: Int[Tensor, " known"], size: int, generator: torch.Generator) -> Int[Tensor, " value"]:
    """One random cycle through the known values, so that none of them keeps its name (unless there is only one)."""
    order = known[torch.randperm(len(known), generator=generator)]
    names = torch.arange(size)
    names[order] = order.roll(-1)
    return names
