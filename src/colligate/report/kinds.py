"""What a page of each kind of run says and shows: verdict and sections, by the kind in its record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from colligate.records import Row
from colligate.report.crossmodal import (
    foil_sections,
    judge_foils,
    judge_recognition,
    recognition_sections,
)
from colligate.report.emergence import judge_sweep, judge_training, sweep_sections, training_sections
from colligate.report.questions import Section, Study
from colligate.report.repair import judge_repair, repair_sections
from colligate.report.sections import sections
from colligate.report.structure import judge_structure, structure_sections
from colligate.report.verdict import NOTHING, Verdict, judge


class Kind(NamedTuple):
    """How runs of one kind are shown: their question, verdict, sections, and which rows come first."""

    question: str
    judge: Callable[[Iterable[Row], str], Verdict]
    sections: Callable[[Study], tuple[Section, ...]]
    leading: Callable[[Sequence[Row]], list[Row]] = list


def _tiles(rows: Sequence[Row]) -> list[Row]:
    return [tile.row for tile in judge(rows).tiles if tile.row is not None]


def _asked_for(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row.id.startswith(("crossmodal.without.", *_TIES))]


def _lifts(rows: Sequence[Row]) -> list[Row]:
    ceiling = "crossmodal.repair.ceiling."
    return [row for row in rows if not row.id.startswith(ceiling) or row.id.endswith(".object.swap")]


def _correlations(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.id.endswith(_OF_MODELS)]


_TIES = ("crossmodal.ties.", "crossmodal.text.ties.")
_OF_MODELS = (
    ".object", ".r2", "object.correlation", "object.within", "object.beyond", ".ceiling", "ceiling.correlation"
)  # fmt: skip
STUDY = Kind("Does it know which values belong to the same object?", judge, sections, _tiles)
KINDS = {
    "train": Kind(
        "Does a model trained from scratch bind objects that it never saw?", judge_training, training_sections
    ),
    "sweep": Kind("When does binding emerge?", judge_sweep, sweep_sections),
    "recognize": Kind("Does the text find what the scene shows?", judge_recognition, recognition_sections, _asked_for),
    "foils": Kind(
        "Does a scene lie nearer to its caption than to a foil of it?", judge_foils, foil_sections, _asked_for
    ),
    "repair": Kind(
        "What repairs matching across towers, and what does it cost?", judge_repair, repair_sections, _lifts
    ),
    "structure": Kind(
        "Do models whose towers match follow a simple rule?", judge_structure, structure_sections, _correlations
    ),
}
"""Kind of a run -> its page; every other kind is a study, or a part of one."""
PARTS = {
    "probes": "probes",
    "decomposition": "layout",
    "edits": "edits",
    "removal": "removal",
    "information": "information",
    "complexity": "complexity",
}
"""Stage of a study -> the section of the page that it fills."""


def asked_of(kind: str) -> frozenset[str] | None:
    """The sections that a run of some stages was asked for; None of every other run, whose page has all of its kind.

    Example:
        >>> sorted(asked_of("decomposition-edits") or ()), asked_of("study"), asked_of("train")
        (['edits', 'layout'], None, None)
    """
    stages = kind.split("-")
    return frozenset(PARTS[stage] for stage in stages) if all(stage in PARTS for stage in stages) else None


def verdict_of(record: Mapping[str, Any], rows: Iterable[Row]) -> str:
    """What a run found, in a sentence; "" where nothing was measured that a verdict could rest on.

    Example:
        >>> verdict_of({"kind": "decomposition", "name": "MiniLM"}, [])
        ''
    """
    verdict = KINDS.get(str(record.get("kind")), STUDY).judge(rows, str(record.get("name") or "This model"))
    return "" if verdict.sentence.startswith(NOTHING) else verdict.sentence


def leading(record: Mapping[str, Any], rows: Sequence[Row]) -> list[Row]:
    """The rows of a run that come first: of a whole study its headlines, of a single measurement all but its curves."""
    kind = str(record.get("kind"))
    if asked_of(kind) is not None:
        return [row for row in rows if row.coverage is None]
    return KINDS.get(kind, STUDY).leading(rows)
