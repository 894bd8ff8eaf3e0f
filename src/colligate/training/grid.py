"""Which trainings a sweep runs: every combination of coverages, spaces, widths and seeds."""

from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Literal

from colligate.training.config import TrainConfig
from colligate.training.presets import PaperConfig, PicturesConfig


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
