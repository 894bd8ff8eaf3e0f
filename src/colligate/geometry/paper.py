"""Components as the paper's code finds them for removal: lookup tables trained by AdamW, never quite converged.

`components.decompose` solves the same least squares exactly. The authors' constant step leaves a little of every
component behind, and probes that are trained anew on what is left find it: their numbers after removal depend on that
noise. This file is there to compare with them (protocol `paper`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.components import Decomposition, Design, Parts
from colligate.scenes.space import EMPTY, Scenes


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """How lookup tables are trained."""

    steps: int = 10_000
    """AdamW steps."""
    batch: int = 2048
    """Scenes drawn for each step, with replacement."""
    rate: float = 1e-2
    """Learning rate, constant; there is no weight decay."""


def train_tables(
    embeddings: Embeddings,
    rows: Int[Tensor, " fit"],
    *,
    parts: Parts,
    positions: bool = True,
    seed: int = 0,
    settings: TableSettings | None = None,
) -> Decomposition:
    """Train one vector for each part by AdamW, so that the scenes' parts add up to their centred vectors.

        minimise the mean of |x(s) - mean - sum_k u[k, part(s[k])]|^2 over batches drawn from the fit part

    Every number in a step is a sum over the batch, so a batch needs only its counts: the gradient is Gram u - sums.
    Tables and batches follow the authors' streams of draws, so a seed of theirs is the same seed here: their training
    R2 is met to seven digits (tests/external/test_golden.py).

    Args:
        embeddings: vectors and scenes of one number of objects; their mean over all rows is taken off.
        rows: the fit part.
        parts: what gets a component.
        positions: whether each slot has its own.
        seed: of the initial tables (standard normal; values' are drawn after objects'), and of order and batches.
        settings: steps, batch and rate.

    Raises:
        ValueError: scenes of different numbers of objects, which the authors' code doesn't have.

    Paper: arXiv:2605.31503, Table 5 (targeted removal).

    Example:
        >>> from colligate.binding import object_table
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> embeddings = Embeddings(object_table(scenes.space, 2, 16)(scenes.values), scenes)
        >>> tables = train_tables(embeddings, torch.arange(36), parts="object", settings=TableSettings(steps=2000))
        >>> round(tables.r2(embeddings), 2)
        1.0
    """
    settings = settings or TableSettings()
    scenes = embeddings.scenes
    if len(scenes.counts.unique()) > 1:
        raise ValueError(
            "Trained tables know only scenes of one number of objects; select some, or use decompose for all of them."
        )
    design = Design(scenes.space, scenes.slots, parts, positions)
    mean = embeddings.vectors.double().mean(0)
    order = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(seed))
    rows = order[torch.isin(order, rows)]
    targets = (embeddings.vectors[rows].double() - mean).float()
    reads = _reads(scenes[rows], design)
    both = torch.cat([reads, targets], dim=1)
    tables = _initial_tables(design, scenes, embeddings.dim, seed)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW([tables], lr=settings.rate, weight_decay=0.0)
    scale = 2 / (settings.batch * embeddings.dim)
    for _ in range(settings.steps):
        drawn = torch.randint(len(rows), (settings.batch,), generator=generator)
        if len(rows) <= settings.batch:  # cheaper: each scene once, with how often it was drawn
            weights = torch.bincount(drawn, minlength=len(rows)).float()
            sums = (reads * weights[:, None]).T @ both
        else:
            sums = reads[drawn].T @ both[drawn]
        gram, wanted = sums.split([design.size, embeddings.dim], dim=1)
        tables.grad = scale * (gram @ tables - wanted)
        optimiser.step()
    counts = torch.full((scenes.slots + 1, embeddings.dim), torch.nan, dtype=torch.float64)
    counts[scenes.counts[0]] = mean
    components = tables.double()
    components[reads.sum(0) == 0] = torch.nan
    return Decomposition(design, "least_squares", counts, components, counts)


def shuffle_names(scenes: Scenes, parts: Parts, seed: int) -> Scenes:
    """The scenes under one random permutation of object ids, or of each concept's values; some may keep their names.

    `interventions.permute_names` leaves none in place. With few values that matters: what keeps its name is removed.

    Paper: arXiv:2605.31503, Table 5 (permuted ids).

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> shuffle_names(scenes, "object", seed=0).objects.unique().tolist()
        [0, 1, 2, 3, 4, 5]
    """
    generator = torch.Generator().manual_seed(seed)
    if parts == "object":
        names = torch.randperm(scenes.space.num_objects, generator=generator)
        return scenes.space.scenes(torch.where(scenes.filled, names[scenes.objects.clamp(min=0)], EMPTY))
    values = scenes.values.clone()
    for concept, size in enumerate(scenes.space.sizes):
        held, names = values[..., concept], torch.randperm(size, generator=generator)
        values[..., concept] = torch.where(held >= 0, names[held.clamp(min=0)], EMPTY)
    return Scenes(scenes.space, values)


def _initial_tables(design: Design, scenes: Scenes, dim: int, seed: int) -> Float[Tensor, "component dim"]:
    """Standard normal numbers: tables of objects for each slot, then of each concept's values for each slot.

    Objects are numbered as they first appear in the scenes.
    """
    space, slots = design.space, design.slots if design.positions else 1
    generator = torch.Generator().manual_seed(seed)

    def drawn(size: int) -> list[Tensor]:
        return [torch.empty(size, dim).normal_(generator=generator) for _ in range(slots)]

    order = scenes.objects_by_appearance
    objects = drawn(len(order))
    if design.parts == "object":
        return torch.cat([torch.zeros(space.num_objects, dim).index_copy_(0, order, table) for table in objects])
    by_concept = [drawn(size) for size in space.sizes]
    return torch.cat([tables[slot] for slot in range(slots) for tables in by_concept])


def _reads(scenes: Scenes, design: Design) -> Float[Tensor, "scene component"]:
    """How often each scene reads each component."""
    columns = design.columns(scenes).flatten(1)
    reads = torch.zeros(len(scenes), design.size)
    return reads.scatter_add_(1, columns.clamp(min=0), (columns >= 0).float())
