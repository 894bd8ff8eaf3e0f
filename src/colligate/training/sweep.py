"""Many trainings: coverage x spaces x sizes x seeds, members of equal shape stacked in one pass."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

from colligate.engine import Clock, Report
from colligate.records import Row, one_writer, settings
from colligate.runs import Findings, Measurements, carry_out
from colligate.training.config import TrainConfig
from colligate.training.grid import SweepConfig, sweep_configs
from colligate.training.loop import Training, train_stack
from colligate.training.trainer import DivergedError


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
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     tiny = TrainConfig(width=16, heads=1, dim=8, batch=8, steps=2, warmup=1)
        ...     config = SweepConfig(coverages=(0.5,), spaces=("6x6",), widths=(16,), seeds=2, train=tiny,
        ...         runs=Path(folder))
        ...     len(sweep(config).rows)
        24
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
