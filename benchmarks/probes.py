"""Linear probes: 10,000 full-batch Adam steps (the paper's recipe) against the strict fit, on the same fit rows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from measuring import Line, Stopwatch, say
from torch import Tensor, nn
from vectors import grid, sentence_like

from colligate.embedders.precomputed import read_vectors
from colligate.embeddings import Embeddings
from colligate.probes import Probes, ProbeSettings, cross_entropy, fit_probes, soft_targets
from colligate.scenes.space import Scenes
from colligate.scenes.splits import PaperScenes, Split

GOLDEN = Path(__file__).parents[1] / ".." / "shared" / "golden"
RECIPE_STEPS = 10_000


def recipe(vectors: Tensor, scenes: Scenes, rows: Tensor, steps: int, done: int) -> tuple[Stopwatch, list[Tensor]]:
    """The paper's recipe: a bias-free linear layer a read-out, Adam 1e-2 with cosine decay, full batch, summed losses.

    Runs `done` of `steps` steps and gives their time and the weights.
    """
    features = vectors[rows]
    present = [scenes.contains(c) for c in range(scenes.space.num_concepts)] + [scenes.contains_objects()]
    targets = [soft_targets(of[rows], torch.float32) for of in present]
    with torch.random.fork_rng():
        torch.manual_seed(0)  # noqa: TID251
        layers = nn.ModuleList([nn.Linear(vectors.shape[1], of.shape[1], bias=False) for of in targets])
    optimiser = torch.optim.Adam(layers.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    with Stopwatch() as watch:
        for _ in range(done):
            losses = [cross_entropy(layer(features), target) for layer, target in zip(layers, targets, strict=True)]
            optimiser.zero_grad()
            torch.stack(losses).sum().backward()
            optimiser.step()
            schedule.step()
    return watch, [parameter.detach() for parameter in layers.parameters()]


def split_of(scenes: Scenes) -> Split:
    """The recipe's 40 % to fit on; a fifth of the rest is kept from the test, for ours to choose the strength on."""
    split = PaperScenes(0.4).split(scenes, seed=0)
    order = torch.randperm(len(split.test), generator=torch.Generator().manual_seed(1))
    cut = len(order) // 5
    return replace(split, validation=split.test[order[:cut]].sort().values, test=split.test[order[cut:]].sort().values)


def losses(weights: list[Tensor], embeddings: Embeddings, rows: Tensor) -> list[float]:
    """Training loss of each read-out, in nats."""
    scenes, found = embeddings.scenes, list[float]()
    present = [scenes.contains(c) for c in range(scenes.space.num_concepts)] + [scenes.contains_objects()]
    for weight, of in zip(weights, present, strict=True):
        target = soft_targets(of[rows], torch.float32)
        found.append(float(cross_entropy(embeddings.vectors[rows].float() @ weight.T, target)))
    return found


def accuracies(weights: list[Tensor], like: Probes, embeddings: Embeddings, rows: Tensor) -> list[float]:
    """Held-out recognition of each read-out."""
    probes = replace(like, concepts=tuple(weights[:-1]), objects=weights[-1])
    outcomes = probes.recognise(embeddings.vectors[rows], embeddings.scenes[rows])
    assert outcomes.objects is not None
    return [*outcomes.concepts.double().mean(0).tolist(), outcomes.objects.double().mean().item()]


def worlds(*, quick: bool) -> Iterator[tuple[str, Embeddings]]:
    """Real sentence vectors where they lie beside this checkout, else synthetic ones of the same sizes."""
    folders = sorted(path.parent for path in GOLDEN.glob("*/scenes.csv"))
    if not folders:
        yield "synthetic 8x3", sentence_like(grid(8, 3).all_scenes(slots=2), 384)
        if not quick:
            scenes = grid(12, 8).all_scenes(slots=2)
            yield "synthetic 12x8 without shared values", sentence_like(scenes[~scenes.shares_any()], 384)
    for folder in folders[:1] if quick else folders:
        every = read_vectors(folder / "vectors.safetensors", folder / "scenes.csv")
        yield folder.name, every[every.scenes.counts > 1]


def measure(*, quick: bool) -> Iterator[Line]:
    """The table's lines: times, and whether the fit is as good for each read-out."""
    for name, embeddings in worlds(quick=quick):
        split, scenes = split_of(embeddings.scenes), embeddings.scenes
        with Stopwatch() as ours:
            fitted = fit_probes(embeddings, split)
        with Stopwatch() as one:
            least = fit_probes(embeddings, split, ProbeSettings(strengths=(ProbeSettings.strengths[0],)))
        whole = not quick and len(scenes) < 2000
        done = RECIPE_STEPS if whole else 50 if quick else 100
        watch, weights = recipe(embeddings.vectors.float(), scenes, split.fit, RECIPE_STEPS, done)
        say(f"probes, {name}: {len(split.fit)} fit rows, recipe {1000 * watch.wall / done:.2f} ms a step")
        yield Line(
            f"probes, {name} ({len(scenes):,} x {embeddings.dim}): five strengths, one chosen",
            ours, watch.times(RECIPE_STEPS / done), target=">= 20x",
            note="recipe run in full" if whole else f"recipe extrapolated from {done} steps",
        )  # fmt: skip
        yield Line(
            f"probes, {name}: the least strength alone", one, watch.times(RECIPE_STEPS / done),
            note=_quality(fitted, least, weights if whole else None, embeddings, split),
        )  # fmt: skip


def _quality(fitted: Probes, least: Probes, weights: list[Tensor] | None, embeddings: Embeddings, split: Split) -> str:
    """Training loss and held-out recognition of each read-out: chosen, least strength, recipe."""
    sets = [[*probes.concepts, probes.objects] for probes in (fitted, least) if probes.objects is not None]
    sets += [] if weights is None else [weights]
    trained = [losses(one, embeddings, split.fit) for one in sets]
    held_out = [accuracies(one, fitted, embeddings, split.test) for one in sets]
    names = [*embeddings.scenes.space.names, "object"]
    order = "chosen / least" + ("" if weights is None else " / recipe")
    lines = [
        f"{name}: training loss {' / '.join(f'{of[i]:.5f}' for of in trained)}, "
        f"held out {' / '.join(f'{of[i]:.4f}' for of in held_out)}"
        for i, name in enumerate(names)
    ]
    return f"({order}) " + "; ".join(lines)
