"""What the sections of the page have in common: what they draw on, and what they are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from colligate.records import Row
from colligate.report.figures import Figure
from colligate.report.tables import Table
from colligate.report.verdict import TOO_FEW, Measured, Tile


@dataclass(frozen=True)
class Study:
    """What the sections draw on."""

    table: Measured
    concepts: tuple[str, ...]
    kind: str
    world: str
    figures: Mapping[str, Any]
    calls: Mapping[str, str]
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the run, as in its record."""

    @property
    def pictures(self) -> Mapping[str, str]:
        """Hover text -> picture as a data address."""
        return self.figures.get("pictures") or {}


@dataclass(frozen=True)
class Section:
    """One question of the page; `missing` says so in a sentence where nothing of it was measured."""

    key: str
    title: str
    finding: str
    reading: tuple[str, ...]
    python: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    missing: str = ""
    edit: Mapping[str, Any] = field(default_factory=dict[str, Any])


def call(study: Study, key: str, prefix: str) -> str:
    """Python that gives the numbers of a section."""
    return study.calls.get(key) or (
        "from pathlib import Path\n"
        "from colligate.records import read_table\n\n"
        f'rows = [row for row in read_table(Path("table.csv")) if row.id.startswith("{prefix}")]'
    )


def present(*things: Any) -> tuple[Any, ...]:
    """The things that there are."""
    return tuple(thing for thing in things if thing is not None)


def findings(*tiles: Tile) -> str:
    """What the tiles say, those without a verdict in one clause."""
    said = [tile.sentence for tile in tiles if tile.answer not in ("no verdict", "not measured")]
    few = any(tile.answer == "no verdict" for tile in tiles)
    return " ".join([*said, *([f"{TOO_FEW[0].upper()}{TOO_FEW[1:]}."] if few else [])])


def known(row: Row | None) -> float | None:
    """The value of a row that may be missing."""
    return row.value if row is not None else None
