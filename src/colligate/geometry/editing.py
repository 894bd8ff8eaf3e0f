"""Edits as rows of a table: retrieval, probes, interference, strength."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from colligate.geometry.interventions import (
    MISSES,
    Editor,
    EditOutcomes,
    Edits,
    classify_misses,
    concept_edits,
    interference,
    object_edits,
    retrieve_edits,
)
from colligate.geometry.scoring import RetrievalLevels, Scorer, rescaled_rows
from colligate.geometry.subject import EDITORS, PAPER_WAYS, WAYS, Subject
from colligate.records import Row


def editors(
    subject: Subject, on: str, strength: float = 1.0, among: tuple[str, ...] = WAYS
) -> tuple[dict[str, Editor], dict[str, str]]:
    """The ways of editing that this subject allows, and why the others can't be had."""
    found, reasons = dict[str, Editor](), dict[str, str]()
    for name in among:
        try:
            components = subject.decomposition(EDITORS[name], on)
        except ValueError as error:
            reasons[name] = str(error)
        else:
            found[name] = Editor(components, strength, orthogonal=name == "orthogonal")
    return found, reasons


def edit_rows(subject: Subject, *, ways: tuple[str, ...] | None = None, brief: bool = False) -> list[Row]:
    """Does exchanging a component turn one scene's vector into the other's? Paper: Table 3, and shared concepts.

    Edits of the first concept have no name of their own in ids (`edit.retrieval.avg`), those of other concepts and of
    whole objects do (`edit.retrieval.shape.avg`, `edit.retrieval.object.avg`).

    Args:
        subject: what is measured.
        ways: names of `EDITORS`; all by default.
        brief: only edits of the first concept on all scenes.
    """
    settings, scenes = subject.settings, subject.scenes
    levels, found = RetrievalLevels.of(scenes), list[Row]()
    budget = subject.affordable(settings.edit_budget)
    kinds = {"" if c == 0 else f"{name}.": c for c, name in enumerate(scenes.space.names)} | {"object.": None}
    for prefix, concept in kinds.items():
        if brief and prefix:
            continue
        every = None if concept is None else concept_edits(scenes, concept)
        for on in ("all",) if brief else ("all", "fit", "test"):
            rows = subject.rows_on(on)
            if every is None:
                edits = object_edits(scenes, budget=budget, seed=settings.seed, rows=rows)
            else:
                edits = every if on == "all" else every.within(rows)
            edits, note = _with_known_parts(subject, edits, on)
            cut = None
            if budget < settings.edit_budget and len(edits) >= budget:
                cut = f"scored on a seeded choice of {budget:,} edits: look-ups among {len(scenes):,} scenes are cut"
            edits = edits.draw(budget, settings.seed)
            for row in _edit_rows(subject, edits, on, prefix, levels, ways, brief=brief):
                found.append(replace(row, reason="; ".join(r for r in (row.reason, note, cut) if r) or None))
    return found + rescaled_rows(subject, found)


def _with_known_parts(subject: Subject, edits: Edits, on: str) -> tuple[Edits, str | None]:
    """The edits whose objects all stand in the same slots of some fitted scene, and a note on those left out."""
    if on != "test":
        return edits, None
    scenes, slots = subject.scenes, torch.arange(subject.scenes.slots)
    seen = torch.zeros(scenes.slots, scenes.space.num_objects, dtype=torch.bool)
    fitted = scenes[subject.split.fit]
    seen[slots.expand_as(fitted.objects)[fitted.filled], fitted.objects[fitted.filled]] = True
    known = (seen[slots, scenes.objects.clamp(min=0)] | ~scenes.filled).all(1)
    kept = known[edits.base] & known[edits.target]
    if kept.all():
        return edits, None
    note = f"{int((~kept).sum())} of {len(edits)} edits left out: the fit part never shows their objects in those slots"
    return edits.select(kept.nonzero()[:, 0]), note


def _edit_rows(
    subject: Subject,
    edits: Edits,
    on: str,
    prefix: str,
    levels: RetrievalLevels,
    chosen: tuple[str, ...] | None,
    *,
    brief: bool,
) -> Iterator[Row]:
    chosen = chosen or (WAYS if prefix == "" and on != "fit" else PAPER_WAYS)
    ways, reasons = editors(subject, on, among=chosen)
    for name, reason in reasons.items():
        yield from _missing(subject, on, prefix + name, reason)
    if not len(edits):
        for name in ways:
            yield from _missing(
                subject, on, prefix + name, "no scene of this part becomes another of it by such an edit"
            )
        return
    score = Scorer(subject, on, subject.scenes[edits.target], subject.scenes[edits.base])
    shared = edits.shared
    groups: dict[str, Tensor | None] = {"": None, ".different": ~shared.any(1), ".shared": shared.any(1)}
    for c, name in enumerate(subject.scenes.space.names):
        groups[f".shared.{name}"] = shared[:, c]
    retrieved = retrieve_edits(subject.embeddings, edits, ways)
    for name, outcomes in retrieved.items():
        for group, mask in groups.items():
            kept = edits.target if mask is None else edits.target[mask]
            id = f"edit.retrieval.{prefix}{name}{group}"
            yield score.mean(id, outcomes.hits, mask, **levels.exact(kept))
            yield score.mean(f"{id}.up_to_order", outcomes.hits_up_to_order, mask, **levels.up_to_order(kept))
        yield score.mean(f"ties.edit.{prefix}{name}", outcomes.ties > 1)
        if on != "fit":
            yield from _edit_probe_rows(subject, score, edits, ways[name], prefix + name)
    if on == "all" and prefix == "" and not brief:
        yield from _interference_rows(subject, edits, ways, retrieved)
        yield from _strength_rows(subject, edits, levels)


def _edit_probe_rows(subject: Subject, score: Scorer, edits: Edits, editor: Editor, name: str) -> Iterator[Row]:
    """What the probes read in edited vectors; their scores are linear, so no edited vector is formed."""
    of_components = subject.probes.scores(editor.decomposition.components)
    edited = editor.add(subject.scores, of_components, edits).to(subject.scores.dtype)  # ties are those of its rounding
    probed = subject.probes.judge(edited, score.scenes)
    shared = edits.shared.any(1)
    for group, mask in (("", None), (".different", ~shared), (".shared", shared)):
        yield from score.recognition(f"edit.probe.{{}}.{name}{group}", probed, PROBED, mask)


def _missing(subject: Subject, on: str, name: str, reason: str) -> Iterator[Row]:
    """The ids of a way of editing that can't be had, each with the reason."""
    shared = (f".shared.{concept}" for concept in subject.scenes.space.names)
    for group in ("", ".different", ".shared", *shared):
        for suffix in ("", ".up_to_order"):
            yield subject.row(f"edit.retrieval.{name}{group}{suffix}", on, reason=reason)
    for kind in PROBED if on != "fit" else ():
        for group in ("", ".different", ".shared"):
            yield subject.row(f"edit.probe.{kind}.{name}{group}", on, reason=reason)


PROBED = ("concept", "concept.joint", "object")
"""What probes read of edited vectors; the paper's "probing" of edits is `concept.joint`."""
SAMPLE = 2000
"""Edits behind the interference and strength rows."""


def _interference_rows(
    subject: Subject, edits: Edits, ways: Mapping[str, Editor], outcomes: Mapping[str, EditOutcomes]
) -> Iterator[Row]:
    """Where the error of an edit lies, and where missed edits land, for pairs that share a value and for others."""
    score = Scorer(subject, "all", subject.scenes[edits.target], subject.scenes[edits.base])
    few = edits.draw(subject.affordable(SAMPLE), subject.settings.seed)
    score_few = Scorer(subject, "all", subject.scenes[few.target], subject.scenes[few.base])
    shared, shared_few = edits.shared.any(1), few.shared.any(1)
    for name, outcome in outcomes.items():
        found = interference(subject.embeddings, few, ways[name])
        kinds = classify_misses(edits, outcome.nearest)
        for group in ("different", "shared"):
            mask, mask_few = (shared, shared_few) if group == "shared" else (~shared, ~shared_few)
            yield score_few.mean(f"interference.overshoot.{name}.{group}", found.overshoot, mask_few)
            yield score_few.mean(f"interference.other_value.{name}.{group}", found.other_value, mask_few)
            yield score_few.mean(f"interference.explained.{name}.{group}", found.explained, mask_few)
            for index, kind in enumerate(MISSES):
                yield score.mean(f"interference.miss.{name}.{kind}.{group}", kinds == index, mask)


def replay_rows(subject: Subject, edits: Edits) -> list[Row]:
    """The rows of `edit_rows` for a given list of edits, under ids that begin with `replay.`."""
    levels = RetrievalLevels.of(subject.scenes)
    return [
        replace(row, id=f"replay.{row.id}") for row in _edit_rows(subject, edits, "all", "", levels, None, brief=True)
    ]


def _strength_rows(subject: Subject, edits: Edits, levels: RetrievalLevels) -> Iterator[Row]:
    edits = edits.draw(subject.affordable(SAMPLE), subject.settings.seed)
    if not len(edits):
        return
    score = Scorer(subject, "all", subject.scenes[edits.target], subject.scenes[edits.base])
    ways = {
        (name, strength): editor
        for strength in subject.settings.strengths
        for name, editor in editors(subject, "all", strength, PAPER_WAYS)[0].items()
    }
    outcomes = retrieve_edits(
        subject.embeddings, edits, {f"{name} {strength}": editor for (name, strength), editor in ways.items()}
    )
    for name, strength in ways:
        hits = outcomes[f"{name} {strength}"].hits
        yield score.mean(f"edit.strength.{name}", hits, family=f"{strength:g}", **levels.exact(edits.target))
