"""Components of 160,000 scenes: the paper's recipe (AdamW on lookup tables) against the closed form."""

import resource
import sys
from collections.abc import Iterator

import numpy as np
import torch
from measuring import Line, Stopwatch, say
from torch import nn
from vectors import grid, sentence_like

from colligate.embeddings import Embeddings
from colligate.geometry.components import Design, Parts, decompose
from colligate.geometry.sums import SceneSums

DESIGNS: tuple[tuple[Parts, bool], ...] = (("concept", False), ("concept", True), ("object", False), ("object", True))
RECIPE_STEPS, BATCH = 10_000, 2048


def recipe_seconds(embeddings: Embeddings, design: Design, steps: int) -> Stopwatch:
    """Time some steps of the paper's recipe: lookup tables, minibatches of 2,048 scenes, AdamW, squared error."""
    columns = design.columns(embeddings.scenes).flatten(1)
    targets = embeddings.vectors - embeddings.vectors.mean(0)
    generator = torch.Generator().manual_seed(0)
    tables = nn.Embedding(design.size, embeddings.dim)
    optimiser = torch.optim.AdamW(tables.parameters(), lr=1e-2, weight_decay=0.0)

    def step() -> None:
        rows = torch.randint(len(targets), (BATCH,), generator=generator)
        loss = nn.functional.mse_loss(tables(columns[rows]).sum(1), targets[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    for _ in range(3):
        step()
    with Stopwatch() as watch:
        for _ in range(steps):
            step()
    return watch


def agreement() -> float:
    """Largest difference in R2 from numpy's least squares, over all designs, on a ragged part of a small world."""
    scenes = grid(6, 5).all_scenes(slots=2)
    scenes = scenes[torch.randperm(len(scenes), generator=torch.Generator().manual_seed(0))[:700]]
    embeddings = sentence_like(scenes, 64)
    targets, worst = embeddings.vectors.double().numpy(), 0.0
    for parts, positions in DESIGNS:
        design = Design(scenes.space, scenes.slots, parts, positions)
        columns = design.columns(scenes).flatten(1)
        matrix = np.zeros((len(scenes), design.size + 1))
        np.add.at(matrix, (np.arange(len(scenes))[:, None], columns.numpy()), 1)
        matrix[:, -1] = 1
        fitted = matrix @ np.linalg.lstsq(matrix, targets, rcond=None)[0]
        exact = 1 - ((targets - fitted) ** 2).sum() / ((targets - targets.mean(0)) ** 2).sum()
        worst = max(worst, abs(exact - decompose(embeddings, parts=parts, positions=positions).r2(embeddings)))
    return worst


def peak_gib() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**30


def measure(*, quick: bool) -> Iterator[Line]:
    """The table's lines."""
    size, dim, steps = (8, 128, 5) if quick else (20, 512, 20)
    scenes = grid(size, size).all_scenes(slots=2)
    embeddings = sentence_like(scenes, dim)
    say(f"decomposition: {len(scenes):,} x {dim}, {embeddings.vectors.nbytes / 2**30:.2f} GiB of vectors")
    before = peak_gib()
    with Stopwatch() as ours:
        sums = SceneSums.of(embeddings)
        found = [sums.decompose(parts=parts, positions=positions) for parts, positions in DESIGNS]
        shares = [sums.r2(of) for of in found]
    with Stopwatch() as averages:
        for parts, positions in DESIGNS:
            sums.r2(sums.decompose(parts=parts, positions=positions, estimator="avg"))
    with Stopwatch() as apart:
        direct = [
            decompose(embeddings, parts=parts, positions=positions).r2(embeddings) for parts, positions in DESIGNS
        ]
    differ = max(abs(one - other) for one, other in zip(shares, direct, strict=True))
    peak = peak_gib()
    times: list[tuple[float, float]] = []
    for parts, positions in DESIGNS:
        watch = recipe_seconds(embeddings, Design(scenes.space, 2, parts, positions), steps)
        times.append((watch.wall, watch.cpu))
        say(f"  recipe, {parts}{'+pos' if positions else ''}: {1000 * watch.wall / steps:.1f} ms a step")
    recipe = Stopwatch(*(float(sum(of)) / steps * RECIPE_STEPS for of in zip(*times, strict=True)))
    what = f"decomposition, {len(scenes):,} x {dim}"
    yield Line(
        f"{what}: four least squares and R2, one pass", ours, recipe, target=">= 1,000x",
        note=f"recipe: {RECIPE_STEPS:,} steps each, extrapolated from {steps}",
    )  # fmt: skip
    yield Line(
        f"{what}: one design at a time, squared errors of each scene", apart, recipe,
        note=f"R2 as in one pass within {differ:.0e}; on a small ragged world within {agreement():.0e} of numpy's",
    )  # fmt: skip
    total = Stopwatch(ours.wall + averages.wall, ours.cpu + averages.cpu)
    yield Line(
        f"{what}: four least squares and four averages, one pass", total, target="< 30 s, 2 GiB",
        note=f"peak {peak:.2f} GiB in all ({before:.2f} before: python, torch, the vectors)",
    )  # fmt: skip
