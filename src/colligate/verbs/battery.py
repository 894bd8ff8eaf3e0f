"""The study: every measurement of one embedder on one world, with controls, as one record and one page."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from colligate.embedders.controls import NoControl, random_init
from colligate.embedders.embedding import DeepTower, TokenTower, embed, embed_layers, embed_tokens
from colligate.embedders.precomputed import read_vectors
from colligate.embeddings import Embeddings
from colligate.engine import Clock, Report
from colligate.geometry.editing import edit_rows, replay_rows
from colligate.geometry.measurements import (
    MOST_TOKEN_NUMBERS,
    attention_rows,
    decomposition_rows,
    information_rows,
    probe_rows,
    removal_rows,
)
from colligate.geometry.replay import read_edit_list
from colligate.geometry.subject import Subject
from colligate.geometry.views import views
from colligate.records import Row, one_writer, with_random_init
from colligate.records import given as given_fields
from colligate.report.page import check_target
from colligate.report.verdict import Measured
from colligate.runs import Findings, Measurements, carry_out
from colligate.scenes.splits import ByScene, Given, PaperScenes, SplitRule
from colligate.verbs.config import BatteryConfig, StudyConfig, as_study
from colligate.verbs.provenance import describe_inputs, file_hashes, python_calls
from colligate.verbs.rules import rule_rows, settings_of
from colligate.verbs.sources import Inputs, Source, open_source, progress_of, shown, store_of

BATTERIES: Mapping[str, Callable[[Subject], list[Row]]] = {
    "probes": probe_rows,
    "decomposition": decomposition_rows,
    "edits": edit_rows,
    "removal": removal_rows,
    "information": information_rows,
    "complexity": rule_rows,
}
"""Name of a stage -> what it measures."""
LONG = ("complexity",)
"""Stages that are taken of the control in a whole study only: alone, they would take twice as long."""


@one_writer
def study(
    config: BatteryConfig,
    *,
    only: tuple[str, ...] | None = None,
    inputs: Inputs | None = None,
    save: bool = True,
    report: Report | None = None,
) -> Findings:
    """Take every measurement of one embedder on one world.

    Args:
        config: what and how; a verb's own config has the defaults of a study for all else.
        only: names of `BATTERIES` to take; all by default.
        inputs: what is handed over as objects, where the config names the rest.
        save: whether to leave a run's folder.
        report: told about the progress of every stage.

    Raises:
        ValueError: the call can't be carried out as written; the message says what to change.

    Example:
        >>> config = StudyConfig(embedder="oracle:no-binding", scenes="clevr")
        >>> rows = study(config, only=("probes",), save=False).rows
        >>> {row.id: round(row.value, 1) for row in rows}["probe.concept"]
        1.0
    """
    unknown = [name for name in only or () if name not in BATTERIES]
    if unknown or only == ():
        raise ValueError(
            f"{unknown[0] if unknown else 'Nothing'!r} can't be taken; choose among {', '.join(BATTERIES)}."
        )
    asked, config = config, as_study(config)
    if config.out is not None:
        check_target(config.out)
    clock = Clock(report)
    with clock.stage("embedding"):
        source = open_source(config, report, inputs)
    facts = {
        "inputs": source.facts, "scenes": source.embeddings.scenes.content_hash, "shown": shown(source),
        "files": file_hashes(edits=config.edits, control=config.control),
    }  # fmt: skip

    def measure() -> Measurements:
        subject = Subject.of(source.embeddings, _rule(config, source), settings_of(config, report))
        chosen = tuple(BATTERIES) if only is None else only
        alone = () if only is None else tuple(name for name in chosen if name in LONG)
        rows = _controlled_rows(subject, tuple(n for n in chosen if n not in alone), config, source, clock)
        rows += with_random_init(_measure(subject, alone, clock), [], NO_LONG_LEVEL)
        if only is None:
            rows += with_random_init(_normalized_rows(subject, clock), [], NO_LEVEL.format("raw vectors"))
            rows += with_random_init(_depth_rows(subject, config, source, clock), [], NO_LEVEL.format("output"))
        if config.edits is not None:
            several = (source.embeddings.scenes.counts > 1).nonzero()[:, 0]
            labels = None if source.world is None else source.world.table
            edits = read_edit_list(config.edits, subject.scenes, labels=labels, rows=several)
            replayed = replay_rows(subject, edits)
            rows += with_random_init(replayed, [], NO_LEVEL.format("own edits"))
        figures: dict[str, object] = {}
        if only is None:
            with clock.stage("figures"):
                figures = views(subject) | _pictures(source, subject)
        told = {"given": given_fields(asked), "inputs": _inputs(config, source, subject)}
        return Measurements(
            rows, figures, _arrays(subject, chosen), notes=[*source.notes, *subject.split.notes],
            facts=python_calls(config, only, objects=source.objects) | told,
        )  # fmt: skip

    kind = "study" if only is None else "-".join(only)
    return carry_out(kind, config, facts, measure, name=source.name, clock=clock, save=save)


def _inputs(config: StudyConfig, source: Source, subject: Subject) -> dict[str, object]:
    singles = 0 if subject.singles is None else len(subject.singles)
    inputs = describe_inputs(config, source, subject.scenes, singles=singles, split=subject.split)
    return inputs | {"files": file_hashes(edits=config.edits, control=config.control)}


def _rule(config: StudyConfig, source: Source) -> SplitRule:
    parts = None if source.world is None else source.world.parts
    if parts is not None:
        several = (source.embeddings.scenes.counts > 1).tolist()
        padded = [*parts, *["fit"] * (len(several) - len(parts))]
        kept = tuple(part for part, keep in zip(padded, several, strict=True) if keep)
        return Given(kept, config.protocol)
    if config.protocol == "paper":
        return PaperScenes()
    return ByScene(fit=config.fit, validation=config.validation)


def open_subject(config: BatteryConfig, inputs: Inputs | None = None) -> Subject:
    """What a study of this config measures: its vectors, split and settings.

    Raises:
        ValueError: the embedder, world, labels or tower don't fit together.

    Example:
        >>> subject = open_subject(StudyConfig(embedder="oracle:no-binding", scenes="clevr"))
        >>> len(subject.embeddings), len(subject.split.test)
        (576, 118)
    """
    config = as_study(config)
    source = open_source(config, inputs=inputs)
    return Subject.of(source.embeddings, _rule(config, source), settings_of(config))


def _measure(subject: Subject, chosen: tuple[str, ...], clock: Clock, prefix: str = "") -> list[Row]:
    """Rows of these stages; beside others, rules that can't be fitted are a row that says why."""
    rows = list[Row]()
    for name in chosen:
        with clock.stage(prefix + name):
            try:
                rows += BATTERIES[name](subject)
            except ValueError as error:
                if name not in LONG or len(chosen) == 1:
                    raise
                rows.append(subject.row("complexity.area", "test", reason=str(error)))
    return rows


def _controlled_rows(
    subject: Subject, chosen: tuple[str, ...], config: StudyConfig, source: Source, clock: Clock
) -> list[Row]:
    if not chosen:
        return []
    return _with_control(_measure(subject, chosen, clock), chosen, config, source, clock)


def _with_control(
    rows: list[Row], chosen: tuple[str, ...], config: StudyConfig, source: Source, clock: Clock
) -> list[Row]:
    """The same measurements on the same architecture with fresh weights, beside each number."""
    if source.tower is None:
        control = source.control
        if control is None and config.control is not None:
            control = read_vectors(config.control, source.world or config.labels or Path(config.scenes))
        if control is None:
            return with_random_init(rows, [], "no random-init level: vectors without a model (add --control)")
        if config.normalize:
            control = control.normalized()
    else:
        fresh = random_init(source.tower, seed=config.seed)
        if isinstance(fresh, NoControl):
            return with_random_init(rows, [], f"no random-init level: {fresh.reason}")
        assert source.world is not None
        with clock.stage("control: embedding"):
            tower = fresh.towers[source.tower.kind]
            told = progress_of(clock.report, "control: embedding")
            control = embed(tower, source.world, store=store_of(config), progress=told, report=clock.report)
    subject = Subject.of(control, _rule(config, source), settings_of(config, clock.report))
    return with_random_init(rows, over_the_same(rows, _measure(subject, chosen, clock, "control: ")))


def over_the_same(rows: Sequence[Row], control: Sequence[Row]) -> list[Row]:
    """The control's rows, without areas over other coverages than those of the rows beside which they would stand."""
    ours, theirs = Measured(rows), Measured(control)
    reason = "the control's area is over other coverages"
    return [
        replace(row, value=None, reason=reason)
        if row.id == "complexity.area"
        and row.value is not None
        and ours.area_coverages(row.family) != theirs.area_coverages(row.family)
        else row
        for row in control
    ]


NO_LONG_LEVEL = "no random-init level: rules are fitted to a control in a whole study (colligate study) only"
NO_LEVEL = "no random-init level: the control is measured on its {} only"
"""Why the rows beside the main table have none."""
NORMALIZED = ("object.least_squares", "object.avg", "object.avg+pos", "concept.least_squares")
"""Decompositions that are measured on normalised vectors too."""


def _normalized_rows(subject: Subject, clock: Clock) -> list[Row]:
    """The leading measurements on vectors of length one, under ids that begin with `normalized.`."""
    lengths = subject.embeddings.vectors.norm(dim=1)
    if bool(((lengths - 1).abs() < 1e-4).all()):
        return [subject.row("normalized.probe.object", "test", reason="the vectors have length one as they are")]
    if not bool(lengths.all()):
        return [subject.row("normalized.probe.object", "test", reason="some vectors are zero and have no direction")]
    with clock.stage("normalised"):
        unit = replace(
            subject, embeddings=subject.embeddings.normalized(),
            singles=None if subject.singles is None else subject.singles.normalized(),
        )  # fmt: skip
        rows = [
            *probe_rows(unit), *decomposition_rows(unit, NORMALIZED),
            *edit_rows(unit, ways=("avg", "avg+pos"), brief=True),
            *information_rows(unit, quadratic=False),
        ]  # fmt: skip
    return [replace(row, id=f"normalized.{row.id}") for row in rows]


def _depth_rows(subject: Subject, config: StudyConfig, source: Source, clock: Clock) -> list[Row]:
    """Recognition and binding information at every layer and token read-out that the model shows.

    One strength of the penalty instead of a choice among several: the curve is over depth, and it is tens of read-outs.
    """
    tower, world = source.tower, source.world
    if not config.depth or world is None or not hasattr(tower, "embed_depth"):
        return []
    rows, store = list[Row](), store_of(config)
    with clock.stage("depth"):
        several = (source.embeddings.scenes.counts > 1).nonzero()[:, 0]
        told = progress_of(clock.report, "depth: embedding")
        layers = embed_layers(
            cast("DeepTower", tower), world, rows=several, store=store, progress=told, report=clock.report
        )
        quick = replace(subject.settings, probes=replace(subject.settings.probes, strengths=(1e-6,)))
        grid = {"shrinkages": (1e-6,), "penalties": (1e-3,)}
        for name, vectors in layers.items():
            at = Subject(Embeddings(vectors, subject.scenes), subject.split, None, quick)
            rows += [
                replace(row, family=name)
                for row in probe_rows(at)
                if row.id in ("probe.concept", "probe.object", "probe.object.swap")
            ]
            rows += information_rows(at, name, quadratic=False, grid=grid)
        if layers and hasattr(tower, "embed_tokens"):
            try:
                tokens = embed_tokens(
                    cast("TokenTower", tower), world, most=MOST_TOKEN_NUMBERS, rows=several, store=store,
                    report=clock.report,
                )  # fmt: skip
            except ValueError as error:
                return rows + [
                    subject.row(f"information.attention.{unit}", "test", reason=str(error))
                    for unit in ("bits", "ratio")
                ]
            rows += attention_rows(subject, *tokens)
    return rows


def _pictures(source: Source, subject: Subject) -> dict[str, object]:
    """Small pictures for the points of the page, where the tower reads pictures."""
    if source.tower is None or source.tower.kind != "picture" or source.world is None:
        return {}
    several = (source.embeddings.scenes.counts > 1).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(subject.settings.seed)
    shown = torch.randperm(len(several), generator=generator)[:300].sort().values
    found = dict[str, str]()
    for row, picture in zip(shown.tolist(), source.world.images(several[shown]), strict=True):
        small, buffer = picture.copy(), io.BytesIO()
        small.thumbnail((96, 96))
        small.save(buffer, format="PNG")
        captions = subject.embeddings.captions
        label = subject.scenes.describe(row) if captions is None else captions[row]
        found[str(label)] = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return {"pictures": found}


def _arrays(subject: Subject, chosen: tuple[str, ...]) -> dict[str, torch.Tensor]:
    arrays = {
        "split.fit": subject.split.fit, "split.validation": subject.split.validation, "split.test": subject.split.test
    }  # fmt: skip
    if subject.outcomes:
        arrays["scored.objects"] = subject.scenes.objects[subject.split.test]
        arrays["scored.values"] = subject.scenes.values[subject.split.test]
        arrays |= {f"scored.{id}": kept for id, kept in subject.outcomes.items()}
    if "probes" in chosen:
        arrays |= {f"probe.{n}": w for n, w in zip(subject.scenes.space.names, subject.probes.concepts, strict=True)}
        if subject.probes.objects is not None:
            arrays["probe.object"] = subject.probes.objects
    return arrays
