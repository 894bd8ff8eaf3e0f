"""One piece of work from end to end: looked up, measured, recorded, and written if it is to be kept."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from colligate.engine import Clock, fitting_threads, peak_memory
from colligate.records import (
    FinishedRun,
    Row,
    content_key,
    find_run,
    open_run,
    run_facts,
    settings,
    unfinish,
    write_record,
)
from colligate.version import __version__

Some = TypeVar("Some", bound="Findings")


@dataclass(frozen=True, eq=False)
class Findings:
    """What a piece of work found, in memory; where it was kept, `folder` holds the same.

    Attributes:
        record: what was asked, of which inputs, by which versions, and what it cost.
        rows: the table.
        figures: points behind the figures.
        arrays: name -> tensor: outcomes of every scored scene, weights of read-outs.
        folder: the run's folder; None where nothing was written.
        found: whether the run was there already.
        model: of a training or a repair that was not kept, the model that came of it.
        write: of a run that was not kept: writes weights into a folder, and gives the files' names.
    """

    record: Mapping[str, Any]
    rows: list[Row]
    figures: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arrays: Mapping[str, Any] = field(default_factory=dict[str, Any])
    folder: Path | None = None
    found: bool = False
    model: Any = None
    write: Callable[[Path], Iterable[str]] | None = None

    @classmethod
    def of(cls: type[Some], run: FinishedRun, *, found: bool = True) -> Some:
        """Those of a finished run, read from its folder.

        Raises:
            WorkError: a file of the run is damaged.
        """
        return cls(run.record, run.rows, run.figures, run.arrays, run.folder, found)

    @classmethod
    def open(cls: type[Some], folder: Path) -> Some:
        """Those that a finished run left in a folder.

        Raises:
            ValueError: the folder isn't a finished run of this version.
            WorkError: a file of it is damaged.
        """
        return cls.of(open_run(folder))

    @property
    def place(self) -> Path:
        """The run's folder, where there must be one."""
        assert self.folder is not None
        return self.folder


class Measurements(NamedTuple):
    """What a measurement gives for its run.

    Attributes:
        rows: the table.
        figures: JSON-able points behind the figures.
        arrays: name -> tensor.
        notes: sentences that a reader should see.
        facts: what the record says beside the settings, versions and costs.
        others: name -> content of files that only runs of this kind have.
        write: writes large files, such as weights, into the run's folder, and gives their names.
        model: what was trained or repaired.
    """

    rows: list[Row]
    figures: Mapping[str, Any] = {}
    arrays: Mapping[str, Any] = {}
    notes: Iterable[str] = ()
    facts: Mapping[str, object] = {}
    others: Mapping[str, bytes] = {}
    write: Callable[[Path], Iterable[str]] | None = None
    model: Any = None


def carry_out(
    kind: str,
    config: Any,
    facts: Mapping[str, object],
    measure: Callable[[], Measurements],
    *,
    name: str,
    clock: Clock,
    save: bool = True,
) -> Findings:
    """Find the run of this kind, config and inputs, or measure it and leave its record.

    The folder's name is made of all that decides the numbers: kind, version, settings and `facts`.

    Args:
        kind: what is done; run folders begin with it.
        config: a config dataclass, with `runs` and `force`.
        facts: what decides the numbers beside the config: inputs by content.
        measure: does the work.
        name: of what it is done to, for a reader; "" for the folder's own.
        clock: of its stages.
        save: whether a finished run is looked for and the new one is written; else all stays in memory.

    Raises:
        ValueError: a finished run of another schema is there.
        WorkError: the run that is there is damaged.
    """
    key = content_key({"kind": kind, "version": __version__, "config": settings(config), **facts})
    folder = config.runs / f"{kind}-{key}"
    if save and (run := find_run(folder, force=config.force)) is not None:
        return Findings.of(run)
    with fitting_threads() as threads:
        measured = measure()
    facts_of_run = run_facts(
        kind, name or folder.name, config, seconds=clock.seconds, memory=peak_memory(), notes=measured.notes
    )
    record = {**facts_of_run, "threads": threads, **measured.facts}
    if not save:
        told = {**record, "run": folder.name}
        return Findings(
            told, measured.rows, measured.figures, measured.arrays, model=measured.model, write=measured.write
        )
    written = list[str]()
    if measured.write is not None:
        unfinish(folder)
        written = list(measured.write(folder))
    write_record(folder, record, measured.rows, measured.figures, measured.arrays, measured.others, beside=written)
    return Findings.of(open_run(folder), found=False)
