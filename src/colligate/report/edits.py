"""The questions that intervene: replace an object, or take components out."""

from collections.abc import Mapping
from typing import Any

from colligate.records import Row
from colligate.report import reference
from colligate.report.figures import BLUE, ORANGE, VERMILLION, Line, Series, curves, dots, outcomes
from colligate.report.questions import Section, Study, call, findings, known, present
from colligate.report.tables import Cell, Table, TableBuilder
from colligate.report.verdict import Verdict, percent

ESTIMATORS = {
    "avg": "average",
    "avg+pos": "average by position",
    "single": "single objects",
    "orthogonal": "orthogonalised",
    "least_squares": "least squares",
}
"""How an object's vector is estimated, in words."""

REMOVALS = {
    "original": "nothing removed",
    "concept": "value vectors removed",
    "object": "object vectors removed",
    "concept.permuted": "permuted value vectors removed",
    "object.permuted": "permuted object vectors removed",
}


SINGLE = (
    "Single objects: an object's vector is that of the scene which holds nothing else (its other slots are empty). "
    "Those scenes are used for that alone: all numbers are of scenes of two or more objects."
)
"""What rows of single objects are."""


def edits_section(study: Study, verdict: Verdict) -> Section:
    """Do edits reach their target? (Table 3, Figure 3)."""
    table = study.table
    near = reference.closest(study.kind, study.world)
    quoted = reference.EDITS[near]
    builder = TableBuilder(
        "edits",
        "Replace one object's vector and look for the intended scene among all scenes (the paper's Table 3; the "
        "first concept is edited).",
        (
            "estimator of the vectors",
            "found",
            "share nothing",
            "share a value",
            "or its twin",
            "bag of concepts",
            "random weights",
            "values read",
            "objects read",
            "edits",
            "paper (CLIP)",
        ),
    )
    for name, label in ESTIMATORS.items():
        row = table.find(f"edit.retrieval.{name}", "all", "test")
        if row is None:
            continue
        builder.add(
            label,
            builder.value(row),
            *(
                builder.value(table.find(f"edit.retrieval.{name}.{s}", "all", "test"))
                for s in ("different", "shared", "up_to_order")
            ),
            builder.level(row, "bag_of_concepts"),
            builder.level(row, "random_init"),
            *(builder.value(table.find(f"edit.probe.{what}.{name}", "all", "test")) for what in ("concept", "object")),
            builder.count(row),
            Cell(quoted[name], kind="reference") if name in quoted else Cell("", kind="reference"),
        )
    made = builder.build(
        *([SINGLE] if table.find("edit.retrieval.single") else []),
        *([reference.NOTE.format(world=reference.WORLDS[near])] if quoted else []),
    )
    by_concept, interference = _edits_by_concept(study), _interference(study)
    lines = [
        Line(label, {s: table.find(f"edit.retrieval.{name}.{s}", "all", "test") for s in ("different", "shared")})
        for name, label in ESTIMATORS.items()
    ]
    pairs = {
        "different": Series("pairs that share nothing", "disc", BLUE),
        "shared": Series("pairs that share a value", "diamond", ORANGE),
    }
    figure = outcomes(table, ESTIMATORS) or dots(
        "edits", "Edits that reach their target", lines, pairs, axis="share of edits"
    )
    strength = curves(
        "strength",
        "How strong the edit must be",
        {
            label: [(_number(row.family), row) for row in table.families(f"edit.strength.{name}", "all", "test")]
            for name, label in ESTIMATORS.items()
        },
        axis="strength of the edit",
        note="1 replaces the object's vector exactly; the curve shows how far one may fall short or overshoot.",
    )
    tile = verdict.tiles[3]
    return Section(
        "edits",
        "Do edits reach their target?",
        findings(tile) if made else "",
        (
            "“Found” searches every scene of the set, the one edited included; a tie among k scenes counts 1/k.",
            "If edits land, objects are handles: the same vector stands for the same object in every "
            "scene. Where the two objects "
            "share a value, their vectors overlap, and the edit can take away from the wrong one.",
        ),
        call(study, "edits", "edit."),
        present(figure, strength),
        present(made, by_concept, interference),
        "" if made else tile.sentence,
        _schematic(study, tile.row) if made else {},
    )


def _number(text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise ValueError(f"An edit's strength must be a number; its row has family {text!r}.") from None


def _edits_by_concept(study: Study) -> Table | None:
    builder = TableBuilder(
        "edits-by-concept",
        "The same for each part that can be exchanged: share of edits that reach their target.",
        ("what is exchanged", *ESTIMATORS.values()),
    )
    first = study.concepts[0] if study.concepts else "first concept"
    parts = {"": first, **{f"{name}.": name for name in study.concepts[1:]}, "object.": "the whole object"}
    for infix, label in parts.items():
        found = [study.table.find(f"edit.retrieval.{infix}{name}", "all", "test") for name in ESTIMATORS]
        if any(row is not None for row in found):
            builder.add(label, *(builder.value(row) for row in found))
    for name in study.concepts:
        found = [study.table.find(f"edit.retrieval.{e}.shared.{name}", "all", "test") for e in ESTIMATORS]
        if any(row is not None for row in found):
            builder.add(f"{first}, where the two share {name}", *(builder.value(row) for row in found))
    return builder.build() if len(builder.rows) > 1 else None


def _interference(study: Study) -> Table | None:
    builder = TableBuilder(
        "interference",
        "How far an edit goes, and what it does to the object it should leave alone; pairs that share "
        "nothing (different) or a value.",
        ("estimator", "overshoot, different", "overshoot, shared", "other value, different", "other value, shared"),
    )
    for name, label in ESTIMATORS.items():
        ids = [
            f"interference.{what}.{name}.{pairs}"
            for what in ("overshoot", "other_value")
            for pairs in ("different", "shared")
        ]
        found = [study.table.find(id, "all", "test") for id in ids]
        if any(row is not None for row in found):
            builder.add(label, *(builder.value(row) for row in found))
    return builder.build(
        "Overshoot: length of the edit along the wanted change, over the length wanted, less one; 0 is exact.",
        "Other value: part of the edit that acts on the other object's value; 0 is clean.",
    )


def _schematic(study: Study, row: Row | None) -> Mapping[str, Any]:
    examples = [e for e in study.figures.get("edit_examples") or [] if "base" in e and "target" in e]
    exact = None if row is None else study.table.find(row.id.removesuffix(".up_to_order"), row.on)
    if not examples or exact is None or exact.value is None:
        return {}
    shown = next((e for e in examples if e.get("hit")), examples[0])
    return {"example": shown, "share": percent(exact.value), "examples": examples[:12], "labels": ESTIMATORS}


def removal_section(study: Study) -> Section:
    """What is left when components are removed? (Table 5)."""
    table = study.table
    near = "picture" if study.kind == "picture" else "text"
    builder = TableBuilder(
        "removal",
        "What probes still read after components are taken out (the paper's Table 5).",
        (
            "",
            "values, re-trained",
            "objects, re-trained",
            "values, frozen",
            "objects, frozen",
            "paper (CLIP, values / objects)",
        ),
    )
    for what, label in REMOVALS.items():
        found = [
            table.find(f"removal.{what}.{probe}.{of}")
            for probe in ("retrained", "frozen")
            for of in ("concept", "object")
        ]
        if any(row is not None for row in found):
            quote = Cell(reference.REMOVAL[near][what], kind="reference")
            builder.add(label, *(builder.value(row) for row in found), quote)
    made = builder.build(
        "Permuted: the same vectors, looked up under the wrong identities; it takes out as much, but "
        "nothing in particular.",
        reference.NOTE.format(world="text" if near == "text" else "pictures, not named"),
    )
    series = {
        "retrained.concept": Series("values, re-trained probe", "disc", BLUE),
        "retrained.object": Series("objects, re-trained probe", "diamond", VERMILLION),
        "frozen.concept": Series("values, frozen probe", "ring", BLUE),
        "frozen.object": Series("objects, frozen probe", "open-diamond", VERMILLION),
    }
    lines = [Line(label, {s: table.find(f"removal.{what}.{s}") for s in series}) for what, label in REMOVALS.items()]
    used = {s: style for s, style in series.items() if any(known(line.rows[s]) is not None for line in lines)}
    lines = [Line(line.label, {s: line.rows[s] for s in used}) for line in lines]
    figure = (
        dots("removal", "Recognition after removal", lines, used, axis="share of scenes", levels=False)
        if used
        else None
    )
    left = table.find("removal.concept.retrained.object"), table.find("removal.object.retrained.object")
    finding = ""
    if known(left[0]) is not None and known(left[1]) is not None:
        finding = (
            f"Without its value vectors a re-trained probe still recognises objects in "
            f"{percent(known(left[0]) or 0.0)} of "
            f"scenes; without its object vectors, in {percent(known(left[1]) or 0.0)}."
        )
    return Section(
        "removal",
        "What is left when components are removed?",
        finding,
        (
            "A re-trained probe asks whether anything is left at all; a frozen one asks whether what was "
            "read before is still there.",
            "If objects survive the removal of value vectors, they carry more than their values; the "
            "permuted rows show that it "
            "isn't just any removal that hurts.",
        ),
        call(study, "removal", "removal."),
        present(figure),
        present(made),
        "" if made else "This study holds no removal of components.",
    )
