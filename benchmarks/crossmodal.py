"""Recognition of many pictures by many queries from stored vectors, the other direction, and a repair."""

import resource
from collections.abc import Iterator

import torch
from measuring import Line, Stopwatch

from colligate.crossmodal.queries import QueryVectors
from colligate.crossmodal.recognition import rank_scenes, recognise_queries
from colligate.crossmodal.repair import RepairSettings, fit_repair
from colligate.crossmodal.repair_data import RepairData, swap_scenes
from colligate.scenes.space import ConceptSpace
from colligate.scenes.splits import BySwaps


def megabytes() -> int:
    """Most memory held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def measure(*, quick: bool) -> Iterator[Line]:
    """Lines of the table."""
    generator = torch.Generator().manual_seed(0)
    pictures, space = (500, ConceptSpace(a=10, b=20)) if quick else (10_000, ConceptSpace(a=50, b=100))
    scenes = space.sample_scenes(pictures, generator=generator)
    values = tuple(torch.randn(size, 512, generator=generator) for size in space.sizes)
    queries = QueryVectors(space, values, torch.randn(space.num_objects, 512, generator=generator))
    vectors = torch.randn(pictures, 512, generator=generator)
    size = f"{pictures:,} pictures x {space.num_objects + sum(space.sizes):,} queries, 512 dimensions"
    before = megabytes()
    with Stopwatch() as ours:
        recognise_queries(vectors, scenes, queries)
    yield Line(f"recognition, {size}", ours, target="< 10 s, < 1 GiB", note=f"{megabytes() - before} MB more")
    with Stopwatch() as ours:
        rank_scenes(vectors, scenes, queries)
    yield Line(f"ranking of all pictures for every query, {size}", ours)
    small = ConceptSpace(color=8, shape=3)
    pairs = small.all_scenes(slots=2)
    texts = torch.randn(4, 576, 512, generator=generator)
    concepts = tuple(torch.randn(size, 512, generator=generator) for size in small.sizes)
    asked = QueryVectors(small, concepts, torch.randn(24, 512, generator=generator))
    data = RepairData(texts[0], texts[1], texts[2], pairs, swap_scenes(pairs), asked)
    split = BySwaps(coverage=0.5).split(pairs, seed=0)
    for kind in ("linear", "low_rank", "mlp", "product"):
        with Stopwatch() as ours:
            fit_repair(data, split, RepairSettings(kind=kind, steps=10 if quick else 150))
        target = "< 1 minute" if kind == "linear" else ""
        yield Line(f"{kind} repair of 576 scenes, 512 dimensions, all candidates", ours, target=target)
