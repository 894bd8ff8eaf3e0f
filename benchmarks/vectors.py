"""Synthetic vectors laid out like a sentence embedder's: mostly values, some of it objects, a little of it scenes."""

import torch
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.scenes.space import ConceptSpace, Scenes


def sentence_like(scenes: Scenes, dim: int, *, seed: int = 0, noise: float = 0.25) -> Embeddings:
    """A large mean, values, objects and slots add up; a part of every scene is its own.

    About 0.88 of the variance is values', 0.02 objects', and the rest the scenes', as in MiniLM's captions.
    """
    generator = torch.Generator().manual_seed(seed)
    space = scenes.space

    def table(*shape: int, size: float) -> Tensor:
        return torch.randn(*shape, dim, generator=generator) * size

    by_object = table(space.num_objects, size=0.11)
    for c, values in enumerate(space.object_values(torch.arange(space.num_objects)).unbind(1)):
        by_object += table(space.sizes[c], size=0.5)[values]
    by_slot = [by_object + table(space.num_objects, size=0.05) for _ in range(scenes.slots)]
    # In place and block by block: a large world must not stand in memory twice.
    vectors = torch.empty(len(scenes), dim)
    mean, objects = table(size=2.0), scenes.objects
    for start in range(0, len(scenes), 8192):
        rows = vectors[start : start + 8192]
        rows.normal_(std=noise, generator=generator).add_(mean)
        for slot, parts in enumerate(by_slot):
            held = objects[start : start + 8192, slot]
            rows += torch.where(held[:, None] >= 0, parts[held.clamp(min=0)], 0.0)
    return Embeddings(vectors, scenes)


def grid(*sizes: int) -> ConceptSpace:
    """Concepts of these numbers of values."""
    return ConceptSpace({f"concept{i}": size for i, size in enumerate(sizes)})
