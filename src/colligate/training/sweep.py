"""Many trainings: coverage x spaces x sizes x seeds, members of equal shape stacked in one pass."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Literal

from colligate.engine import Clock, Report
from colligate.records import Row, one_writer, settings
from colligate.runs import Findings, Measurements, carry_out
from colligate.training.config import PaperConfig, TrainConfig
from colligate.training.loop import Training, train_stack
from colligate.training.pairs import PicturesConfig
from colligate.training.trainer import DivergedError


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Which trainings to run; every combination of these, with the settings of `train` for the rest."""

    coverages: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Shares of objects that training shows."""
    spaces: tuple[str, ...] = ("20x20",)
    """Numbers of values of the concepts, all equal: 20x20, 50x50, 20x20x20, 100x100, 50x50x50."""
    widths: tuple[int, ...] = (128,)
    """Widths of tokens."""
    seeds: int = 3
    """Divisions of the objects and starts at each point."""
    stack: Literal["seeds", "coverages", "none"] = "seeds"
    """Which members are trained in one pass: the seeds of a point, those of all coverages (each member's table of
    queries is then as long as the longest), or none."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Everything else."""
    runs: Path = Path("runs")
    """Folder of run folders: one for the sweep, one for each training."""
    force: bool = False
    """Train again even what is finished."""

    def __post_init__(self) -> None:
        if not self.coverages or not self.spaces or not self.widths or self.seeds < 1:
            raise ValueError("A sweep needs at least one coverage, space, width and seed.")
        for space in self.spaces:
            self.of_space(space)

    def of_space(self, space: str) -> dict[str, int]:
        """The settings of `train` that make a space.

        Raises:
            ValueError: numbers of values that differ, or none.
        """
        words = space.split("x")
        if len(words) < 2 or len(set(words)) > 1 or not words[0].isdigit():
            raise ValueError(f"A space is equal numbers of values, such as 20x20 or 50x50x50; got {space!r}.")
        return {"concepts": len(words), "values": int(words[0])}


@dataclass(frozen=True, kw_only=True)
class PaperSweepConfig(SweepConfig):
    """The same with the README settings of the authors' code: 27 trainings of 50,000 steps, unless fewer are asked for.

    Example:
        >>> config = PaperSweepConfig(spaces=("50x50x50",), coverages=(0.3, 0.4), seeds=1)
        >>> [(one.space.num_objects, one.coverage, one.width, one.steps) for one, in sweep_configs(config)]
        [(125000, 0.3, 256, 50000), (125000, 0.4, 256, 50000)]
    """

    widths: tuple[int, ...] = (256,)
    """Widths of tokens."""
    train: PaperConfig = field(default_factory=PaperConfig)
    """Everything else."""


@dataclass(frozen=True, kw_only=True)
class PicturesSweepConfig(SweepConfig):
    """The same for small image-text models.

    Example:
        >>> config = PicturesSweepConfig(coverages=(0.5, 0.7), seeds=2)
        >>> [[(one.space.sizes, one.coverage) for one in members] for members in sweep_configs(config)]
        [[((16, 9), 0.5), ((16, 9), 0.5)], [((16, 9), 0.7), ((16, 9), 0.7)]]
    """

    coverages: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7)
    """Shares of objects that training shows."""
    spaces: tuple[str, ...] = ("16x9",)
    """Numbers of colours and shapes, up to 16x9."""
    train: PicturesConfig = field(default_factory=lambda: PicturesConfig(hold_out="objects"))
    """Everything else; objects are held out at random, which low coverages need."""

    def of_space(self, space: str) -> dict[str, int]:
        """Colours and shapes.

        Raises:
            ValueError: something else than two numbers.
        """
        words = space.split("x")
        if len(words) != 2 or not all(word.isdigit() for word in words):
            raise ValueError(f"A space of pictures is colours by shapes, such as 16x9; got {space!r}.")
        return {"values": int(words[0]), "shapes": int(words[1])}


def sweep_configs(config: SweepConfig) -> list[list[TrainConfig]]:
    """The trainings of a sweep, those of one pass together.

    Example:
        >>> [len(members) for members in sweep_configs(SweepConfig(coverages=(0.5, 0.8), seeds=3))]
        [3, 3]
    """
    groups: dict[tuple[object, ...], list[TrainConfig]] = {}
    for space, width, coverage, seed in product(config.spaces, config.widths, config.coverages, range(config.seeds)):
        member = replace(
            config.train, **config.of_space(space), width=width, coverage=coverage, seed=config.train.seed + seed,
            runs=config.runs, force=config.force,
        )  # fmt: skip
        key: tuple[object, ...] = (space, width, coverage, seed)
        groups.setdefault(key[: {"none": 4, "seeds": 3, "coverages": 2}[config.stack]], []).append(member)
    return list(groups.values())


@one_writer
def sweep(config: SweepConfig, report: Report | None = None) -> Findings:
    """Run every training of a sweep that isn't finished yet, and gather their rows in one table.

    Each training leaves the folder that `train` would leave, so that single runs and sweeps share their work, and a
    killed sweep goes on where it stopped. `runs.csv` in the sweep's folder names the folder behind each row. A training
    that diverges is stopped and named in the notes; the others go on.

    Args:
        config: which trainings.
        report: told how far it is.

    Returns:
        A row for each measurement of each training; `family` is SPACE ENCODER WIDTH (SPACE pictures WIDTH), `seeds` the
        seed. The record's notes name the trainings that diverged, of which there are no rows.

    Raises:
        ValueError: a combination that can't be trained; the message says which.
        DivergedError: not one training came to its end with a loss that is a number.

    Paper: arXiv:2605.31503, Fig. 6.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     tiny = TrainConfig(width=16, heads=1, dim=8, batch=8, steps=2, warmup=1)
        ...     config = SweepConfig(coverages=(0.5,), spaces=("6x6",), widths=(16,), seeds=2, train=tiny,
        ...         runs=Path(folder))
        ...     len(sweep(config).rows)
        16
    """
    clock = Clock()

    def measure() -> Measurements:
        groups = sweep_configs(config)
        for members in groups:
            for member in members:
                member.divide()  # what can't be trained shows before hours are spent
        trainings = list[tuple[TrainConfig, Training]]()
        for i, members in enumerate(groups):
            label = f"training {i + 1} of {len(groups)}"
            with clock.stage(label):
                trainings += zip(members, train_stack(members, report=report, label=label), strict=True)
        lost = [f"{_point(of)} was stopped: {done.diverged}" for of, done in trainings if done.diverged]
        finished = [(of, done) for of, done in trainings if not done.diverged]
        if not finished:
            raise DivergedError(lost[0])
        rows = [_named(row, of) for of, done in finished for row in done.rows]
        told = {"config": {**_facts(config), "runs": str(config.runs)}, "trainings": len(finished)}
        return Measurements(
            rows, {"spread": spread(rows)}, notes=lost, facts=told, others={"runs.csv": _runs_table(finished)}
        )

    return carry_out("sweep", config, {"config": _facts(config)}, measure, name="", clock=clock)


def _facts(config: SweepConfig) -> dict[str, object]:
    found = settings(config)
    found["train"] = settings(config.train)
    return found


def _point(config: TrainConfig) -> str:
    """A training of a sweep, as a reader would name it."""
    space = "x".join(map(str, config.space.sizes))
    return f"The training of {space} at coverage {config.coverage:g}, width {config.width}, seed {config.seed}"


def _named(row: Row, config: TrainConfig) -> Row:
    space = "x".join(map(str, config.space.sizes))
    return replace(row, family=f"{space} {config.family} {config.width}", coverage=config.coverage, seeds=config.seed)


def spread(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Median, lowest and highest value over seeds, for each measurement at each point: what the curve shows.

    Example:
        >>> rows = [Row(id="x", family="a", coverage=0.5, seeds=s, value=v) for s, v in enumerate((0.1, 0.9, 0.5))]
        >>> spread(rows)[0]["median"]
        0.5
    """
    points: dict[tuple[str, str | None, float | None], list[Row]] = {}
    for row in rows:
        points.setdefault((row.id, row.family, row.coverage), []).append(row)
    found: list[dict[str, object]] = []
    for (id_, family, coverage), of_point in points.items():
        values = sorted(row.value for row in of_point if row.value is not None)
        middle = len(values) // 2
        median = (
            None if not values else values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
        )
        bag = [row.bag_of_concepts for row in of_point if row.bag_of_concepts is not None]
        found.append({
            "id": id_, "family": family, "coverage": coverage, "seeds": len(values), "median": median,
            "low": values[0] if values else None, "high": values[-1] if values else None,
            "bag_of_concepts": sum(bag) / len(bag) if bag else None,
        })  # fmt: skip
    return found


def _runs_table(found: Sequence[tuple[TrainConfig, Training]]) -> bytes:
    """Folder and settings of each training, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["folder", "space", "encoder", "width", "coverage", "seed"])
    for config, done in found:
        given = ("x".join(map(str, config.space.sizes)), config.family, config.width, config.coverage, config.seed)
        writer.writerow([done.place.name, *given])
    return text.getvalue().encode()
