"""What verdicts say of embedders whose answer is known, and how often they are wrong.

    python benchmarks/verdicts.py                  # ten seeds of everything: the table of docs/verdicts.md
    python benchmarks/verdicts.py --seeds 1 --slots 2 --objects 24

Measured rows are kept in --cache under a hash of the code that makes them, so a run that was stopped goes on, and a
change of wording costs nothing.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import permutations, product
from pathlib import Path
from tempfile import gettempdir
from typing import Literal

import torch
from torch import Tensor

import colligate
from colligate.embeddings import Embeddings
from colligate.geometry.measurements import decomposition_rows, information_rows, probe_rows
from colligate.geometry.subject import Settings, Subject
from colligate.probes import ProbeSettings
from colligate.records import Row
from colligate.report.verdict import Measured, judge
from colligate.report.verdict.binding import binding, share_that_binds
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByScene

DIM = 48
SIZES = {24: (8, 3), 100: (10, 10)}
"""Number of objects -> values of colour and of shape."""
SCENES = 900
"""About so many scenes are drawn, each with all that its values can be put together to."""
Truth = Literal["binds", "blind", "below the noise"]


@dataclass(frozen=True)
class Known:
    """An embedder whose answer is known: what it does, whether it binds, and whether only half of the values do."""

    make: Callable[["Parts"], Tensor]
    truth: Truth
    half: bool = False


class Parts:
    """What embedders of one world are made of: sums and products of random vectors of values."""

    def __init__(self, scenes: Scenes, seed: int) -> None:
        self.scenes, self.generator = scenes, torch.Generator().manual_seed(1000 + seed)
        sizes = scenes.space.sizes
        self.columns = scenes.values + torch.tensor([sum(sizes[:c]) for c in range(len(sizes))])
        self.of_value, self.factor = self.draw(sum(sizes), DIM), self.draw(sum(sizes), DIM)

    def draw(self, *shape: int) -> Tensor:
        """Normal numbers."""
        return torch.randn(*shape, generator=self.generator)

    @property
    def each(self) -> Tensor:
        """For each object, the sum of its values' vectors: scene, slot, dim."""
        return self.of_value[self.columns].sum(2)

    @property
    def sum(self) -> Tensor:
        """Sum over objects of that: no binding."""
        return self.each.sum(1)

    @property
    def products(self) -> Tensor:
        """For each object, the product of its values' factors."""
        return self.factor[self.columns].prod(2)

    @property
    def bound(self) -> Tensor:
        """Sum plus product within objects."""
        return self.sum + self.products.sum(1)

    def rotation(self) -> Tensor:
        """A random rotation."""
        return torch.linalg.qr(self.draw(DIM, DIM)).Q

    def noise(self, like: Tensor, share: float) -> Tensor:
        """Noise of a share of the standard deviation."""
        return share * float(like.std()) * self.draw(*like.shape)

    def with_axes(self, vectors: Tensor) -> Tensor:
        """Three axes of noise beside, of a thousand times the variance."""
        return torch.cat([vectors, float(vectors.std()) * 1000**0.5 * self.draw(len(vectors), 3)], dim=1)

    def counted(self) -> Tensor:
        """Counts of values, and their products: all that can be known without binding."""
        counts = torch.cat([self.scenes.multiplicity(c) for c in range(self.scenes.space.num_concepts)], dim=1).float()
        pairs = (counts[:, :, None] * counts[:, None]).flatten(1)
        every = torch.cat([counts, pairs], dim=1)
        return every @ self.draw(every.shape[1], DIM) / 4

    def under_a_sign(self) -> Tensor:
        """Products under a random sign, which stands beside: no linear read-out finds them."""
        sign = 2.0 * torch.randint(2, (len(self.scenes), 1), generator=self.generator) - 1
        return torch.cat([self.sum, 2 * sign * self.products.sum(1), 4 * sign], dim=1)

    def half(self) -> Tensor:
        """Products of the objects of every other colour."""
        bound = (self.scenes.values[..., :1] % 2 == 0) * self.products
        return self.sum + bound.sum(1)


EMBEDDERS: Mapping[str, Known] = {
    "sum": Known(lambda p: p.sum, "blind"),
    "sum and noise": Known(lambda p: p.sum + p.noise(p.sum, 0.3), "blind"),
    "sum and outlier axes": Known(lambda p: p.with_axes(p.sum), "blind"),
    "sum and offset": Known(lambda p: p.sum + 20 * p.draw(DIM), "blind"),
    "counts and their products": Known(Parts.counted, "blind"),
    "random": Known(lambda p: p.draw(len(p.scenes), DIM), "blind"),
    "shuffled labels": Known(lambda p: p.bound[torch.randperm(len(p.bound), generator=p.generator)], "blind"),
    "product": Known(lambda p: p.bound, "binds"),
    "rote": Known(lambda p: p.sum + p.draw(p.scenes.space.num_objects, DIM)[p.scenes.objects].sum(1), "binds"),
    "tiny product": Known(lambda p: p.sum + 0.03 * p.products.sum(1), "binds"),
    "tiny product, noise": Known(
        lambda p: p.sum + 0.03 * p.products.sum(1) + p.noise(p.sum, 0.3), "below the noise"
    ),
    "product and outlier axes": Known(lambda p: p.with_axes(p.bound), "binds"),
    "product and offset": Known(lambda p: p.bound + 20 * p.draw(DIM), "binds"),
    "product, rotated": Known(lambda p: p.bound @ p.rotation(), "binds"),
    "product, duplicated axes": Known(lambda p: torch.cat([p.bound, p.bound[:, :24]], dim=1), "binds"),
    "product, heavy tails": Known(
        lambda p: p.bound * torch.exp(0.7 * p.draw(len(p.scenes), 1)) + p.noise(p.bound, 0.02), "binds"
    ),
    "slots rotated": Known(
        lambda p: torch.stack([one @ p.rotation() for one in p.each.unbind(1)]).sum(0), "binds"
    ),
    "slots side by side": Known(lambda p: p.each.flatten(1), "binds"),
    "XOR": Known(Parts.under_a_sign, "binds"),
    "half of the colours": Known(Parts.half, "binds", half=True),
}  # fmt: skip
"""Name -> embedder."""


def world(objects: int, slots: int, seed: int) -> Scenes:
    """Scenes drawn with all that their values can be put together to, each once, its objects in random order."""
    colours, shapes = SIZES[objects]
    space, generator = ConceptSpace(color=colours, shape=shapes), torch.Generator().manual_seed(seed)
    found = dict[tuple[int, ...], list[int]]()
    for row in space.sample_scenes(SCENES, slots, generator=generator).values.tolist():
        for order in permutations(range(slots)):
            ids = [value[0] * shapes + row[o][1] for value, o in zip(row, order, strict=True)]
            shuffled = [ids[k] for k in torch.randperm(slots, generator=generator).tolist()]
            found.setdefault(tuple(sorted(ids)), shuffled)
        if len(found) >= SCENES:
            break
    return space.scenes(list(found.values()))


def measured(name: str, objects: int, slots: int, seed: int) -> list[Row]:
    """What a verdict rests on."""
    scenes = world(objects, slots, seed)
    embeddings = Embeddings(EMBEDDERS[name].make(Parts(scenes, seed)).float(), scenes)
    probes = ProbeSettings(strengths=(1e-8, 1e-4, 1.0), max_steps=100)
    subject = Subject.of(embeddings, ByScene(), Settings(seed=seed, probes=probes))
    grid = {"shrinkages": (1e-6, 1e-2), "penalties": (1e-3,), "max_steps": 40}
    return [
        *probe_rows(subject),
        *information_rows(subject, grid=grid),
        *decomposition_rows(subject, ("concept.least_squares", "object.least_squares")),
    ]


@dataclass(frozen=True)
class Said:
    """What a verdict says of binding: yes, no (no evidence) or undecided; by which read-out; of how many values."""

    answer: str
    by: str
    half: bool
    sentence: str

    @classmethod
    def of(cls, rows: Iterable[Row], name: str) -> "Said":
        """Read it from the rows."""
        table = Measured(rows)
        found = binding(table)
        by = found.rests_on.name if found.rests_on is not None else ""
        return cls(found.answer, by, bool(share_that_binds(table)), judge(table.rows, name).sentence)

    def wrong(self, known: Known) -> bool:
        """Whether it claims what isn't so: binding, none, or that some values are left out."""
        false = {"blind": "yes", "binds": "no", "below the noise": ""}[known.truth]
        return self.answer == false or (self.half and not known.half)


Job = tuple[str, int, int, int]


def jobs(seeds: int, objects: Iterable[int], slots: Iterable[int], names: Iterable[str] = EMBEDDERS) -> list[Job]:
    """All runs, seed by seed, so that a run that is stopped has some of everything."""
    return [(name, o, k, seed) for seed, o, k, name in product(range(seeds), objects, slots, names)]


def _one(job: Job) -> tuple[Job, list[dict[str, object]]]:
    torch.set_num_threads(1)
    return job, [asdict(row) for row in measured(*job) if row.id.startswith(("probe.", "information.", "r2."))]


def code() -> str:
    """A hash of what makes the numbers."""
    package, own = Path(colligate.__file__).parent, Path(__file__).read_bytes()
    made = [path for part in ("geometry", "probes", "scenes") for path in (package / part).rglob("*.py")]
    alone = [package / f"{name}.py" for name in ("measures", "fitting", "intervals")]
    content = [path.read_bytes() for path in sorted([*made, *alone])]
    start, end = own.index(b"\nclass Parts"), own.index(b"\n@dataclass(frozen=True)\nclass Said")
    return hashlib.sha256(b"".join([*content, own[start:end]])).hexdigest()[:16]


def taken(wanted: list[Job], cache: Path, workers: int) -> Iterator[tuple[Job, list[Row]]]:
    """Every run's rows: those that the cache holds, then the others as they finish."""
    key, known = code(), dict[Job, list[Row]]()
    for line in cache.read_text().splitlines() if cache.exists() else ():
        entry = json.loads(line)
        if entry["code"] == key:
            known[tuple(entry["job"])] = [Row(**row) for row in entry["rows"]]
    yield from ((job, known[job]) for job in wanted if job in known)
    missing = [job for job in wanted if job not in known]
    with ProcessPoolExecutor(workers) as pool, cache.open("a") as kept:
        for job, rows in pool.map(_one, missing):
            kept.write(json.dumps({"code": key, "job": job, "rows": rows}) + "\n")
            kept.flush()
            yield job, [Row(**row) for row in rows]  # pyright: ignore[reportArgumentType]


def table(said: Mapping[Job, Said]) -> str:
    """The table of docs/verdicts.md: a line for each embedder, over worlds and seeds."""
    lines = [
        "| embedder | truth | runs | binds | by | no evidence | undecided | half | wrong |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    wrong = {"blind": [0, 0], "binds": [0, 0], "below the noise": [0, 0]}
    for name, known in EMBEDDERS.items():
        of = [one for job, one in said.items() if job[0] == name]
        by = ", ".join(dict.fromkeys(one.by for one in of if one.by))
        counts = [sum(one.answer == answer for one in of) for answer in ("yes", "no", "undecided")]
        bad = sum(one.wrong(known) for one in of)
        wrong[known.truth][0] += bad
        wrong[known.truth][1] += len(of)
        half = sum(one.half for one in of)
        lines.append(
            f"| {name} | {known.truth} | {len(of)} | {counts[0]} | {by} | {counts[1]} | {counts[2]} | {half} | {bad} |"
        )
    shares = "; ".join(f"{truth}: {bad} of {of} wrong" for truth, (bad, of) in wrong.items() if of)
    return "\n".join([*lines, "", shares])


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--objects", type=int, nargs="+", default=[*SIZES])
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--embedders", nargs="+", default=[*EMBEDDERS], choices=[*EMBEDDERS])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(gettempdir()) / "colligate-verdicts.jsonl")
    parser.add_argument("--sentences", action="store_true", help="print every sentence too")
    given = parser.parse_args()
    said = dict[Job, Said]()
    for job, rows in taken(jobs(given.seeds, given.objects, given.slots, given.embedders), given.cache, given.workers):
        said[job] = Said.of(rows, job[0])
        known = EMBEDDERS[job[0]]
        if given.sentences or said[job].wrong(known):
            print("WRONG" if said[job].wrong(known) else "", job, said[job].sentence, flush=True)
    print(table(said))


if __name__ == "__main__":
    main()
