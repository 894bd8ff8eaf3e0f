"""How often do 95 % intervals hold the truth? `python benchmarks/interval_coverage.py` prints the table.

Values and objects are drawn from populations; a fifth of all scenes is scored; the interval is judged by the
population's own number. What makes a scene hard lies with its objects, each with a difficulty of its own, or with their
values. An interval over values must hold in both cases, one over objects in the first.

Example: python benchmarks/interval_coverage.py --repetitions 300 --only hits swaps
"""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from colligate.intervals import Estimate, Intervals, Over
from colligate.scenes.space import ConceptSpace, Scenes

SIZES = {12: (4, 3), 24: (8, 3), 64: (8, 8), 144: (12, 12)}
"""Objects -> values of both concepts."""
CONCENTRATION = 15.0
"""Of the Beta distribution from which difficulties are drawn: their variance is mean (1 - mean) / 16."""


@dataclass(frozen=True)
class World:
    """Scored scenes of one draw of values and objects, and who is how hard."""

    scenes: Scenes
    by: str
    rng: np.random.Generator

    def effects(self, draw: Callable[[int], np.ndarray]) -> np.ndarray:
        """What is drawn for the objects (or values) of each scene: `[scene, member]`."""
        held = self.scenes.values.numpy()
        if self.by == "object":
            return draw(self.scenes.space.num_objects)[self.scenes.objects.numpy()]
        sizes = self.scenes.space.sizes
        return np.concatenate([draw(size)[held[:, :, c]] for c, size in enumerate(sizes)], axis=1)

    @property
    def members(self) -> int:
        """Objects, or values, of a scene."""
        return self.scenes.values.shape[1] * (1 if self.by == "object" else self.scenes.values.shape[2])

    def shares(self, truth: float) -> np.ndarray:
        """Probability of a hit in each scene: the product of its members', whose population mean is `truth`."""
        mean = truth ** (1 / self.members)
        return self.effects(lambda size: self.rng.beta(mean * CONCENTRATION, (1 - mean) * CONCENTRATION, size)).prod(1)

    def factors(self, spread: float) -> np.ndarray:
        """A positive number for each scene, of population mean 1: the product of its members' log-normal ones."""
        return self.effects(lambda size: np.exp(spread * self.rng.standard_normal(size) - spread**2 / 2)).prod(1)


def world(size: int, by: str, seed: int, slots: int = 2) -> World:
    """A draw: scenes without an object twice, so that every scene has as many members."""
    rng = np.random.default_rng(seed)
    space = ConceptSpace(color=SIZES[size][0], shape=SIZES[size][1])
    several = space.num_objects**slots
    rows = rng.choice(several, size=min(several // 5, 4000), replace=False)
    objects = np.stack(np.unravel_index(rows, [space.num_objects] * slots), axis=1)
    once = (np.diff(np.sort(objects, axis=1), axis=1) > 0).all(1)
    return World(space.scenes(torch.as_tensor(objects[once])), by, rng)


def intervals(drawn: World, over: Over) -> Intervals:
    """What is tested."""
    return Intervals(drawn.scenes.objects, drawn.scenes.values, over=over)


def hits(drawn: World, over: Over, truth: float) -> tuple[Estimate, float]:
    """A share of scenes."""
    found = drawn.rng.random(len(drawn.scenes)) < drawn.shares(truth)
    return intervals(drawn, over).mean(torch.as_tensor(found)), truth


def swaps(drawn: World, over: Over, truth: float) -> tuple[Estimate, float]:
    """A share of those scenes whose objects differ in both concepts."""
    found = drawn.rng.random(len(drawn.scenes)) < drawn.shares(truth)
    return intervals(drawn, over).mean(torch.as_tensor(found), ~drawn.scenes.shares_any()), truth


def explained(drawn: World, over: Over, truth: float) -> tuple[Estimate, float]:
    """R2, whose errors and totals both differ by member."""
    totals = drawn.factors(0.3) * drawn.rng.gamma(8, 1 / 8, len(drawn.scenes))
    errors = (1 - truth) * drawn.factors(0.3) * drawn.rng.gamma(8, 1 / 8, len(drawn.scenes))
    return intervals(drawn, over).explained(torch.as_tensor(errors), torch.as_tensor(totals)), truth


def difference(drawn: World, over: Over, truth: float) -> tuple[Estimate, float]:
    """Two models on the same scenes; what both find hard is shared in part."""
    hard, lost = drawn.shares(0.8), drawn.shares(1 - truth)
    first, other = (torch.as_tensor(drawn.rng.random(len(hard)) < p) for p in (hard, hard * lost))
    ones = torch.ones(len(hard))
    both = (first.double(), ones), (other.double(), ones)
    # members are drawn apart for the two, so that the mean of the product is the product of the means
    return intervals(drawn, over).difference(*both, shares=True), -0.8 * truth


def area(drawn: World, over: Over, truth: float) -> tuple[Estimate, float]:
    """The mean of four rescaled shares, each of some of the scenes: (share - level) / (ceiling - level)."""
    tested, heights, influences = intervals(drawn, over), list[float](), list[torch.Tensor]()
    shares, level, ceiling = drawn.shares(truth), 0.2, 0.9
    scored = torch.zeros(len(shares), dtype=torch.bool)
    for _ in range(4):
        here = torch.as_tensor(drawn.rng.random(len(shares)) < 0.4)
        upper = torch.where(here, torch.as_tensor(drawn.rng.random(len(shares)) < shares).double() - level, 0.0)
        lower = here * (ceiling - level)
        heights.append(float(upper.sum() / lower.sum()))
        influences.append(Intervals.influence(upper, lower) / 4)
        scored |= here
    value, influence = sum(heights) / 4, torch.stack(influences).sum(0)
    return tested.around(value, influence, scored), (truth - level) / (ceiling - level)


def information(drawn: World, over: Over, truth: float) -> tuple[Estimate, float]:
    """Bits a scene over the bits that there are: skewed downwards, as cross-entropies are."""
    left = (1 - truth) * drawn.factors(0.3) * drawn.rng.gamma(2, 1 / 2, len(drawn.scenes))
    return intervals(drawn, over).explained(torch.as_tensor(left), torch.ones(len(left))), truth


STATISTICS: dict[str, tuple[Callable[[World, Over, float], tuple[Estimate, float]], tuple[float, ...], int]] = {
    "hits": (hits, (0.64, 0.96, 0.99), 2),
    "hits of three slots": (hits, (0.64, 0.96), 3),
    "swaps": (swaps, (0.64, 0.96), 2),
    "R2": (explained, (0.5, 0.95), 2),
    "difference": (difference, (0.05, 0.3), 2),
    "area": (area, (0.6,), 2),
    "information": (information, (0.3, 0.8), 2),
}


def repetition(name: str, size: int, by: str, over: Over, truth: float, seed: int) -> tuple[bool, float] | None:
    """Whether the interval of one draw holds the truth, and how wide it is; None where too little is scored for one."""
    statistic, _, slots = STATISTICS[name]
    estimate, wanted = statistic(world(size, by, seed, slots), over, truth)
    if estimate.low is None or estimate.high is None:
        return None
    return estimate.low <= wanted <= estimate.high, estimate.high - estimate.low


def coverage(name: str, size: int, by: str, over: Over, truth: float, repetitions: int) -> tuple[float, float] | None:
    """Share of draws whose interval holds the truth, and the intervals' median width; None where most have none."""
    torch.set_num_threads(1)
    got = [repetition(name, size, by, over, truth, seed) for seed in range(repetitions)]
    got = [one for one in got if one is not None]
    if len(got) < repetitions / 2:
        return None
    return float(np.mean([held for held, _ in got])), float(np.median([width for _, width in got]))


def told(cell: tuple[float, float] | None) -> str:
    """A cell of the table."""
    return "-" if cell is None else f"{cell[0]:.3f} ({cell[1]:.3f})"


def cells(only: list[str] | None) -> Iterator[tuple[str, str, Over, float, tuple[int, ...]]]:
    """The rows of the table: statistic, where difficulty lies, what the interval is over, truth; and its columns."""
    for name, (_, truths, slots) in STATISTICS.items():
        if only and name not in only:
            continue
        pairs: tuple[tuple[str, Over], ...] = (("object", "objects"), ("object", "values"), ("value", "values"))
        for by, over in pairs:
            for truth in truths:
                yield name, by, over, truth, (12, 24, 64) if slots == 3 else (12, 24, 64, 144)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=300, help="draws of each cell")
    parser.add_argument("--only", nargs="+", choices=list(STATISTICS), help="some statistics")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    print(
        "| number | hard by | interval over | truth | 12 objects | 24 | 64 | 144 |\n|---|---|---|---|---|---|---|---|"
    )
    with ProcessPoolExecutor(given.workers) as pool:
        for name, by, over, truth, sizes in cells(given.only):
            ask = partial(coverage, name, by=by, over=over, truth=truth, repetitions=given.repetitions)
            got = [pool.submit(ask, size) for size in sizes]
            line = " | ".join(told(one.result()) for one in got)
            print(f"| {name} | {by} | {over} | {truth:g} | {line} |{' - |' * (4 - len(sizes))}", flush=True)


if __name__ == "__main__":
    main()
