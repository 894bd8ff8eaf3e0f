"""Coverage curves: 9 coverages x 3 splits x (6 widths + 3 structural families), the paper's recipe against ours.

The recipe is one process a member: learned embeddings of every value in every slot, joined, a hidden layer, and 4,000
full-batch Adam steps at a constant 1e-2. It is timed over a few steps of the smallest and the largest fit part of every
family, and taken as linear in their rows between. For some members it runs to its end, and what it reaches is told
beside ours (`python benchmarks/complexity.py` gives that table alone).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from measuring import Line, Stopwatch, say
from probes import worlds
from torch import Tensor, nn

from colligate.approximation.approximators import Data, Fitted, training_r2
from colligate.approximation.families import family
from colligate.embeddings import Embeddings
from colligate.scenes.splits import ByObject, Split

STEPS = 4000
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SEEDS = range(3)
WIDTHS = (128, 256, 512, 1024, 2048, 4096)
STRUCTURAL = {"additive": "linear", "object_product": "within", "global_product": "sum+product"}
"""Our families -> what the recipe trains in their place."""
COMPARED = {
    "additive": "linear", "object_product.head": "within", "global_product.head": "sum+product", "mlp64": "hidden",
    "mlp256": "hidden", "mlp1024": "hidden",
}  # fmt: skip
"""Families of the same rules as the recipe's, which puts a linear map behind its products."""
TOLERANCE = 1e-3
"""Differences of R2 that count as none: ours choose a penalty on validation, and pay for it in training."""


class Recipe(nn.Module):
    """The paper's approximator for scenes of equally many objects, as its code has it."""

    def __init__(self, embeddings: Embeddings, form: str, width: int = 0) -> None:
        super().__init__()
        scenes, dim = embeddings.scenes, embeddings.dim
        sizes = [size for _ in range(scenes.slots) for size in scenes.space.sizes]
        self.form, self.concepts = form, scenes.space.num_concepts
        self.tables = nn.ModuleList([nn.Embedding(size, dim) for size in sizes])
        both = form in ("within", "sum+product")
        self.more = nn.ModuleList([nn.Embedding(size, dim) for size in sizes]) if both else None
        joined = len(sizes) * dim
        if form == "hidden":
            self.head: nn.Module = nn.Sequential(nn.Linear(joined, width), nn.ReLU(), nn.Linear(width, dim))
        else:
            self.head = nn.Linear(joined if form == "linear" else 2 * dim, dim)

    def forward(self, columns: Tensor) -> Tensor:
        """Values of every slot and concept -> vectors."""
        read = [table(column) for table, column in zip(self.tables, columns.unbind(1), strict=True)]
        if self.more is None:
            return self.head(torch.cat(read, dim=1))
        added = torch.stack([table(c) for table, c in zip(self.more, columns.unbind(1), strict=True)]).sum(0)
        groups = [read] if self.form == "sum+product" else [
            read[i : i + self.concepts] for i in range(0, len(read), self.concepts)
        ]  # fmt: skip
        product = torch.stack([torch.stack(group).prod(0) for group in groups]).sum(0)
        return self.head(torch.cat([product, added], dim=1))


def train(embeddings: Embeddings, split: Split, form: str, width: int, steps: int) -> tuple[Stopwatch, nn.Module]:
    """So many steps of the recipe."""
    columns = embeddings.scenes.values.flatten(1)[split.fit]
    targets = embeddings.vectors[split.fit].float()
    with torch.random.fork_rng():
        torch.manual_seed(0)  # noqa: TID251
        model = Recipe(embeddings, form, width)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    with Stopwatch() as watch:
        for _ in range(steps):
            optimiser.zero_grad()
            nn.functional.mse_loss(model(columns), targets).backward()
            optimiser.step()
    return watch, model


@dataclass
class Quality:
    """Training and held-out R2."""

    fit: float
    test: float


def quality(data: Data, split: Split, predicted: Tensor) -> Quality:
    """R2 of predictions in the principal axes, each centred on the fit part's mean."""
    found, centre = list[float](), data.targets[split.fit].mean(0)
    for rows in (split.fit, split.test):
        errors = (data.targets[rows] - predicted[rows]).square().sum()
        found.append(1 - float(errors / (data.targets[rows] - centre).square().sum()))
    return Quality(*found)


def splits_of(embeddings: Embeddings, *, quick: bool) -> list[Split]:
    """Splits of every coverage."""
    coverages, seeds = ((0.5, 0.9), range(1)) if quick else (COVERAGES, SEEDS)
    return [
        ByObject(coverage=coverage, unseen="report").split(embeddings.scenes, seed)
        for coverage in coverages for seed in seeds
    ]  # fmt: skip


def recipe_time(embeddings: Embeddings, splits: Sequence[Split], form: str, width: int, done: int) -> Stopwatch:
    """Time of all members of a family, extrapolated."""
    ends = [min(splits, key=lambda one: len(one.fit)), max(splits, key=lambda one: len(one.fit))]
    short, long = (train(embeddings, split, form, width, done)[0] for split in ends)
    low, high = (len(split.fit) for split in ends)
    total = Stopwatch()
    for split in splits:
        share = (len(split.fit) - low) / max(high - low, 1)
        total.wall += (short.wall + share * (long.wall - short.wall)) * STEPS / done
        total.cpu += (short.cpu + share * (long.cpu - short.cpu)) * STEPS / done
    return total


def measure(*, quick: bool) -> Iterator[Line]:
    """A line for every family and for the whole sweep, and how good the fits are."""
    for name, embeddings in worlds(quick=quick):
        splits, data = splits_of(embeddings, quick=quick), Data.of(embeddings)
        small = len(embeddings) < 2000
        done = 2 if quick or not small else 20
        ours, theirs = Stopwatch(), Stopwatch()
        names = [*STRUCTURAL, *(f"mlp{width}" for width in (WIDTHS[:2] if quick else WIDTHS))]
        for one in names:
            width = int(one[3:]) if one.startswith("mlp") else 0
            form = STRUCTURAL.get(one, "hidden")
            recipe = recipe_time(embeddings, splits, form, width, done)
            with Stopwatch() as watch:
                fits = family(one).fit(data, splits, 0)
            ours.wall, ours.cpu = ours.wall + watch.wall, ours.cpu + watch.cpu
            theirs.wall, theirs.cpu = theirs.wall + recipe.wall, theirs.cpu + recipe.cpu
            say(f"coverage curves, {name}, {one}: recipe {recipe.cpu:.0f} s cpu, ours {watch.cpu:.1f} s cpu")
            yield Line(
                f"coverage curves, {name}, {one}, {len(splits)} members", watch, recipe,
                note=_note(embeddings, data, splits, fits),
            )  # fmt: skip
        yield Line(
            f"coverage curves, {name} ({len(embeddings):,} x {embeddings.dim}): {len(names)} x {len(splits)} members",
            ours, theirs, target=">= 20x", note=f"recipe extrapolated from {done} steps at two sizes of the fit part",
        )  # fmt: skip
        if small and not quick:
            with Stopwatch() as watch:
                found = list(compared(embeddings))
            worse = [member.said for member in found if member.worse]
            note = f"no worse in {len(found) - len(worse)} of {len(found)} members, by {TOLERANCE:g}; "
            yield Line(f"{name}, members run to their end", watch, note=note + "; ".join(m.said for m in found))


def _note(embeddings: Embeddings, data: Data, splits: Sequence[Split], fits: Sequence[Fitted]) -> str:
    """R2 of ours at the middle coverage."""
    middle = len(splits) // 2
    split, fitted = splits[middle], fits[middle]
    mine = quality(data, split, fitted.rule(embeddings.scenes))
    reached = max(training_r2(data, fitted.rule, split.fit), fitted.reached or -1.0)
    return f"middle coverage: training R2 {mine.fit:.3f} (reached {reached:.3f}), held out {mine.test:.3f}"


@dataclass(frozen=True)
class Member:
    """One member fitted both ways."""

    family: str
    coverage: float
    ours: Quality
    reached: float
    """Training R2 of ours under the least penalty."""
    recipe: Quality

    @property
    def worse(self) -> bool:
        """Whether the recipe's fit is better, in training or on unseen objects."""
        training = max(self.ours.fit, self.reached)
        return training < self.recipe.fit - TOLERANCE or self.ours.test < self.recipe.test - TOLERANCE

    @property
    def said(self) -> str:
        """As a line of a table."""
        mine, theirs = self.ours, self.recipe
        return (
            f"| {self.family} at {self.coverage:g} | {mine.fit:.3f} ({self.reached:.3f}) | {theirs.fit:.3f} | "
            f"{mine.test:.3f} | {theirs.test:.3f} | {'worse' if self.worse else 'no worse'} |"
        )


def compared(embeddings: Embeddings, coverages: Sequence[float] = (0.5, 0.8), steps: int = STEPS) -> Iterator[Member]:
    """Members of two coverages, ours beside the recipe run to its end."""
    data = Data.of(embeddings)
    for coverage in coverages:
        split = ByObject(coverage=coverage, unseen="report").split(embeddings.scenes, 0)
        for name, form in COMPARED.items():
            fitted = family(name).fit(data, [split], 0)[0]
            mine = quality(data, split, fitted.rule(embeddings.scenes))
            _, model = train(embeddings, split, form, int(name[3:]) if name.startswith("mlp") else 0, steps)
            with torch.no_grad():
                theirs = quality(data, split, data.frame.reduce(model(embeddings.scenes.values.flatten(1))))
            yield Member(name, coverage, mine, max(mine.fit, fitted.reached or -1.0), theirs)


def main() -> None:
    """Print the table of members."""
    torch.set_num_threads(1)
    small = next(embeddings for _, embeddings in worlds(quick=False) if len(embeddings) < 2000)
    say("| member | training R2: ours (reached) | recipe | held-out R2: ours | recipe | |")
    for member in compared(small):
        print(member.said, flush=True)


if __name__ == "__main__":
    main()
