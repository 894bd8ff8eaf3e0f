"""Question 1 as rows of a table: probes, decomposition, edits, removal, information.

A `Subject` is what is measured: vectors of scenes with several objects, perhaps those of single objects, and a split.
Each function takes one and gives the rows of one table of the paper; together they share probes and decompositions.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.components import (
    Decomposition,
    Estimator,
    Parts,
    decompose,
    object_squares,
    squares_around,
)
from colligate.geometry.information import LinearScores, QuadraticScores, binding_information
from colligate.geometry.interventions import (
    MISSES,
    Editor,
    EditOutcomes,
    Edits,
    classify_misses,
    concept_edits,
    interference,
    object_edits,
    permute_names,
    remove,
    retrieve_edits,
)
from colligate.measures import (
    ObjectBootstrap,
    bag_of_concepts_level,
    chance_level,
)
from colligate.probes import ProbeOutcomes, Probes, ProbeSettings, fit_probes, swap_foils
from colligate.records import Row
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split, SplitRule


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the measurements of question 1 are taken."""

    probes: ProbeSettings = field(default_factory=ProbeSettings)
    """How probes are fitted; its protocol is the protocol of every row."""
    edit_budget: int = 10_000
    """Most edits of one kind that are scored; above it, a seeded choice."""
    retrieval_budget: int = 20_000
    """Most scenes whose reconstructions are looked up; above it, a seeded choice."""
    strengths: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
    """Edit strengths of the strength curve."""
    draws: int = 1000
    """Resamplings of objects behind every interval."""
    seed: int = 0
    """Of splits, choices, permutations and resamplings."""


ESTIMATORS: tuple[tuple[str, Parts, bool, Estimator], ...] = (
    ("concept.least_squares", "concept", False, "least_squares"),
    ("concept+pos.least_squares", "concept", True, "least_squares"),
    ("object.least_squares", "object", False, "least_squares"),
    ("object+pos.least_squares", "object", True, "least_squares"),
    ("concept.avg", "concept", False, "avg"),
    ("concept.avg+pos", "concept", True, "avg"),
    ("concept.avg.set", "concept", False, "avg.set"),
    ("object.avg", "object", False, "avg"),
    ("object.avg+pos", "object", True, "avg"),
    ("object.avg.set", "object", False, "avg.set"),
    ("object.single", "object", False, "single"),
)
"""Name in metric ids, parts, whether each slot has its own components, and the estimator."""

EDITORS = {
    "avg": "object.avg",
    "avg+pos": "object.avg+pos",
    "single": "object.single",
    "least_squares": "object+pos.least_squares",
    "concepts": "concept+pos.least_squares",
}
"""Name of a way to edit -> the decomposition whose components it exchanges."""


PAPER_WAYS = ("avg", "avg+pos", "single")
"""The paper's ways to edit: all that is tried on the fit part, on other concepts than the first and on objects."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is measured.

    Attributes:
        embeddings: scenes of two or more objects.
        split: fit, validation and test rows of them.
        singles: scenes of one object, or None.
        settings: how to measure.
    """

    embeddings: Embeddings
    split: Split
    singles: Embeddings | None = None
    settings: Settings = field(default_factory=Settings)

    @classmethod
    def of(cls, embeddings: Embeddings, rule: SplitRule, settings: Settings | None = None) -> "Subject":
        """Part scenes of several objects from single objects and split the former.

        Raises:
            ValueError: no scene has two objects, or only one object occurs.
        """
        settings = settings or Settings()
        scenes = embeddings.scenes
        several = scenes.counts > 1
        if not several.any():
            raise ValueError("Every scene holds a single object, so there is nothing to bind; add scenes of two.")
        if len(scenes.objects[scenes.filled].unique()) < 2:
            raise ValueError("All scenes hold one and the same object; add scenes with others.")
        multi = embeddings[several]
        singles = None if several.all() else embeddings[~several]
        return cls(multi, rule.split(multi.scenes, settings.seed), singles, settings)

    @property
    def scenes(self) -> Scenes:
        """The scenes of several objects."""
        return self.embeddings.scenes

    @cached_property
    def occurring(self) -> Bool[Tensor, " object"]:
        """Which objects occur in the scenes."""
        return self.scenes.contains_objects().any(0)

    @cached_property
    def no_object_probe(self) -> str | None:
        """Why objects can't be probed, if they can't: a linear read-out has no row for an object it never saw."""
        if not self.settings.probes.objects:
            return "the object probe was left out"
        unseen = self.occurring & ~self.scenes[self.split.fit].contains_objects().any(0)
        if not unseen.any():
            return None
        seen, all_objects = int((self.occurring & ~unseen).sum()), int(self.occurring.sum())
        return f"the fit part shows {seen} of {all_objects} objects, and a linear probe can't learn the others"

    @cached_property
    def probe_settings(self) -> ProbeSettings:
        """How probes are fitted on this subject."""
        return replace(self.settings.probes, objects=self.no_object_probe is None)

    @cached_property
    def probes(self) -> Probes:
        """Read-outs fitted on the split; without objects where the fit part doesn't show them all."""
        return fit_probes(self.embeddings, self.split, self.probe_settings)

    @cached_property
    def _decompositions(self) -> dict[tuple[str, str], Decomposition]:
        return {}

    def decomposition(self, name: str, on: str) -> Decomposition:
        """The decomposition of that name, fitted on all rows (`on="all"`) or on the fit part."""
        key = (name, "all" if on == "all" else "fit")
        if key not in self._decompositions:
            parts, positions, estimator = next(rest for n, *rest in ESTIMATORS if n == name)
            rows = None if on == "all" else self.split.fit
            self._decompositions[key] = decompose(
                self.embeddings, rows, parts=cast("Parts", parts), positions=cast("bool", positions),
                estimator=cast("Estimator", estimator), singles=self.singles,
            )  # fmt: skip
        return self._decompositions[key]

    def rows_on(self, on: str) -> Int[Tensor, " row"]:
        """Rows that are scored."""
        if on == "all":
            return torch.arange(len(self.embeddings))
        return self.split.fit if on == "fit" else self.split.test

    def row(self, id: str, on: str, **more: Any) -> Row:
        """A row with what all rows of the subject share."""
        return Row(id=id, on=on, protocol=self.settings.probes.protocol, **more)


class Scorer:
    """Turns per-scene outcomes on some rows into table rows, with intervals over objects and levels for those rows."""

    def __init__(self, subject: Subject, on: str, scenes: Scenes, objects: Tensor | None = None) -> None:
        self.subject, self.on, self.scenes = subject, on, scenes
        settings = subject.settings
        self.bootstrap = ObjectBootstrap(
            scenes.objects if objects is None else objects, draws=settings.draws, seed=settings.seed
        )

    def mean(self, id: str, outcomes: Tensor, rows: Tensor | None = None, **more: Any) -> Row:
        """Mean outcome, over all rows or a mask of them."""
        return self._row(id, self.bootstrap.mean(outcomes, rows), more)

    def explained(self, id: str, errors: Tensor, totals: Tensor, **more: Any) -> Row:
        """One minus a ratio of sums."""
        return self._row(id, self.bootstrap.explained(errors, totals), more)

    def _row(self, id: str, estimate: Any, more: dict[str, Any]) -> Row:
        reason = "; ".join(r for r in (more.pop("reason", None), estimate.reason) if r) or None
        return self.subject.row(
            id, self.on, value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n,
            objects=estimate.objects, reason=reason, **more,
        )  # fmt: skip

    @cached_property
    def concept_chance(self) -> list[Tensor]:
        """Per concept, chance that random scores recognise its values."""
        return [chance_level(self.scenes.contains(c)) for c in range(self.scenes.space.num_concepts)]

    @cached_property
    def object_levels(self) -> tuple[Tensor, Tensor, Tensor]:
        """Chance, bag of concepts with random ties, and strict, for recognition of objects among all that occur."""
        present = self.scenes.contains_objects()[:, self.subject.occurring]
        level = bag_of_concepts_level(
            [self.scenes.contains(c) for c in range(self.scenes.space.num_concepts)],
            self.scenes.space.object_values(self.subject.occurring.nonzero()[:, 0]), present,
        )  # fmt: skip
        return chance_level(present), level.random_ties, level.strict

    @cached_property
    def swap_levels(self) -> tuple[Tensor, Tensor]:
        """Which scenes have a swap that differs, and chance against it."""
        foils = swap_foils(self.scenes) & self.subject.occurring
        return foils.any(1), chance_level_of(self.scenes.contains_objects().sum(1), foils.sum(1))

    def recognition(
        self, name: str, outcomes: ProbeOutcomes, kinds: tuple[str, ...], rows: Tensor | None = None
    ) -> Iterator[Row]:
        """Rows for the given kinds of recognition, with chance and bag-of-concepts levels of the same scenes.

        Args:
            name: id of the rows, `{}` standing for the kind.
            outcomes: per scene.
            kinds: of concept (mean over concepts), concept.joint (all), concept.<name>, object, object.swap.
            rows: mask of the scenes to take; all by default.
        """
        mask = torch.ones(len(self.scenes), dtype=torch.bool) if rows is None else rows

        def level(of: Tensor, among: Tensor = mask) -> float | None:
            return float(of[among].double().mean()) if bool(among.any()) else None

        ideal = {"bag_of_concepts": 1.0, "bag_of_concepts_strict": 1.0}
        for kind in kinds:
            id = name.format(kind)
            if kind == "concept":
                chance = level(torch.stack(self.concept_chance).mean(0))
                yield self.mean(id, outcomes.concepts.double().mean(1), rows, chance=chance, **ideal)
            elif kind == "concept.joint":
                chance = level(torch.stack(self.concept_chance).prod(0))
                yield self.mean(id, outcomes.concepts.all(1), rows, chance=chance, **ideal)
            elif kind.startswith("concept."):
                c = self.scenes.space.concept(kind.removeprefix("concept."))
                yield self.mean(
                    id, outcomes.concepts[:, c], rows, concept=self.scenes.space.names[c],
                    chance=level(self.concept_chance[c]), **ideal,
                )  # fmt: skip
            elif outcomes.objects is None or outcomes.swaps is None:
                yield self.subject.row(id, self.on, reason=self.subject.no_object_probe)
            elif kind == "object":
                chance, ties, strict = (level(of) for of in self.object_levels)
                yield self.mean(
                    id, outcomes.objects, rows, chance=chance, bag_of_concepts=ties, bag_of_concepts_strict=strict
                )
            elif kind == "object.swap":
                differs, chance = self.swap_levels
                among = differs & mask
                yield self.mean(
                    id, outcomes.swaps, among, chance=level(chance, among), bag_of_concepts=level(chance, among),
                    bag_of_concepts_strict=0.0 if bool(among.any()) else None,
                )  # fmt: skip


def chance_level_of(held: Int[Tensor, " scene"], foils: Int[Tensor, " scene"]) -> Tensor:
    """Chance that random scores put `held` queries before `foils` others."""
    present, absent = held.double(), foils.double()
    return torch.exp(torch.lgamma(present + 1) + torch.lgamma(absent + 1) - torch.lgamma(present + absent + 1))


@dataclass(frozen=True, eq=False)
class RetrievalLevels:
    """Levels of retrieval among the distinct scenes of a set, for each of its rows.

    Attributes:
        num: number of distinct scenes.
        same_values: how many of them hold the same values (an ideal bag of concepts can't tell them apart).
        same_objects: how many of them hold the same objects in whatever order.
    """

    num: int
    same_values: Tensor
    same_objects: Tensor

    @classmethod
    def of(cls, scenes: Scenes) -> "RetrievalLevels":
        """Count them."""
        _, first = _first_rows(scenes.ids)
        bags, (_, sets) = scenes.bags, scenes.unordered_ids.unique(return_inverse=True)
        per_bag, per_set = torch.bincount(bags[first], minlength=int(bags.max()) + 1), torch.bincount(sets[first])
        return cls(len(first), per_bag[bags].double(), per_set[sets].double())

    def exact(self, rows: Int[Tensor, " row"]) -> dict[str, Any]:
        """Levels of finding these scenes themselves."""
        return self._levels(torch.ones(len(rows), dtype=torch.float64), self.same_values[rows])

    def up_to_order(self, rows: Int[Tensor, " row"]) -> dict[str, Any]:
        """Levels of finding these scenes or another order of their objects."""
        return self._levels(self.same_objects[rows], self.same_values[rows])

    def _levels(self, right: Tensor, tied: Tensor) -> dict[str, Any]:
        if not len(right):
            return {}
        return {
            "chance": float(right.mean()) / self.num,
            "bag_of_concepts": float((right / tied).mean()),
            "bag_of_concepts_strict": float((right == tied).double().mean()),
        }


def _first_rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    found, inverse = ids.unique(return_inverse=True)
    first = torch.zeros(len(found), dtype=torch.int64)
    first[inverse.flip(0)] = torch.arange(len(ids)).flip(0)
    return found, first


def probe_rows(subject: Subject) -> list[Row]:
    """Do linear read-outs name the values, and the objects, of scenes they never saw?

    Paper: "probing" of Tables 2 and 5.
    """
    rows = subject.split.test
    scenes = subject.scenes[rows]
    outcomes = subject.probes.recognise(subject.embeddings.vectors[rows], scenes)
    score = Scorer(subject, "test", scenes)
    each = tuple(f"concept.{name}" for name in scenes.space.names)
    found = list(score.recognition("probe.{}", outcomes, ("concept", "concept.joint", *each, "object", "object.swap")))
    if outcomes.ties is not None:
        found.append(score.mean("ties.probe.object", outcomes.ties))
    return found


def decomposition_rows(subject: Subject, names: tuple[str, ...] | None = None) -> list[Row]:
    """How much do the components explain, and do they find their scene again? Paper: Tables 2 and 4.

    Args:
        subject: what is measured.
        names: of `ESTIMATORS`; all by default.
    """
    levels, found = RetrievalLevels.of(subject.scenes), list[Row]()
    scorers = {on: Scorer(subject, on, subject.scenes[subject.rows_on(on)]) for on in ("all", "fit", "test")}
    for name in names or tuple(name for name, *_ in ESTIMATORS):
        for on, score in scorers.items():
            try:
                decomposition = subject.decomposition(name, on)
                predicted = decomposition.predict(subject.scenes[subject.rows_on(on)])
            except ValueError as error:
                found += [
                    subject.row(id, on, reason=str(error))
                    for id in (f"r2.{name}", f"retrieval.{name}", f"retrieval.{name}.up_to_order")
                ]
                continue
            found += _reconstruction(subject, score, name, decomposition, predicted, levels)
    for on in ("all", "fit"):
        for positions in ("", "+pos"):
            found.append(_objects_from_concepts(subject, on, positions))
    return found


def _reconstruction(
    subject: Subject, score: Scorer, name: str, decomposition: Decomposition, predicted: Tensor, levels: RetrievalLevels
) -> Iterator[Row]:
    rows = subject.rows_on(score.on)
    vectors = subject.embeddings.vectors[rows].double()
    centres = decomposition.centres[score.scenes.counts]
    yield score.explained(
        f"r2.{name}", (vectors - predicted).square().sum(1), squares_around(centres, vectors), chance=0.0
    )
    chosen = torch.arange(len(rows))
    if len(rows) > subject.settings.retrieval_budget:
        generator = torch.Generator().manual_seed(subject.settings.seed)
        chosen = torch.randperm(len(rows), generator=generator)[: subject.settings.retrieval_budget].sort().values
    hits = decomposition.retrieve(subject.embeddings, rows[chosen])
    part = score if len(chosen) == len(rows) else Scorer(subject, score.on, score.scenes[chosen])
    scored = rows[chosen]
    yield part.mean(f"retrieval.{name}", hits.hits[:, 0], **levels.exact(scored))
    yield part.mean(f"retrieval.{name}.up_to_order", hits.hits[:, 1], **levels.up_to_order(scored))
    yield part.mean(f"ties.retrieval.{name}", hits.tied > 1)
    if score.on == "test":
        outcomes = subject.probes.recognise(predicted.float(), score.scenes)
        yield from score.recognition(f"reconstruction.probe.{{}}.{name}", outcomes, ("concept", "object"))


def _objects_from_concepts(subject: Subject, on: str, positions: str) -> Row:
    id = f"r2.objects_from_concepts{positions}"
    try:
        decomposition = subject.decomposition(f"object{positions}.least_squares", on)
    except ValueError as error:
        return subject.row(id, on, reason=str(error))
    errors, totals = object_squares(decomposition)
    objects = (totals > 0).nonzero()
    settings = subject.settings
    estimate = ObjectBootstrap(objects, draws=settings.draws, seed=settings.seed).explained(
        errors[objects[:, 0]], totals[objects[:, 0]]
    )
    return subject.row(
        id, on, value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n, objects=estimate.objects,
        chance=0.0, reason=estimate.reason,
    )  # fmt: skip


def editors(subject: Subject, on: str, strength: float = 1.0) -> tuple[dict[str, Editor], dict[str, str]]:
    """All ways of editing that this subject allows, and why the others can't be had."""
    found, reasons = dict[str, Editor](), dict[str, str]()
    for name, decomposition in EDITORS.items():
        try:
            found[name] = Editor(subject.decomposition(decomposition, on), strength)
        except ValueError as error:
            reasons[name] = str(error)
    if "avg+pos" in found:
        found["orthogonal"] = Editor(found["avg+pos"].decomposition, strength, orthogonal=True)
    return found, reasons


def edit_rows(subject: Subject, *, ways: tuple[str, ...] | None = None, brief: bool = False) -> list[Row]:
    """Does exchanging a component turn one scene's vector into the other's? Paper: Table 3, and shared concepts.

    Edits of the first concept have no name of their own in ids (`edit.retrieval.avg`), those of other concepts and of
    whole objects do (`edit.retrieval.shape.avg`, `edit.retrieval.object.avg`).

    Args:
        subject: what is measured.
        ways: names of `EDITORS` or "orthogonal"; all by default.
        brief: only edits of the first concept on all scenes.
    """
    settings, scenes = subject.settings, subject.scenes
    levels, found = RetrievalLevels.of(scenes), list[Row]()
    kinds: dict[str, Callable[[], Edits]] = {
        "" if c == 0 else f"{name}.": lambda c=c: concept_edits(scenes, c) for c, name in enumerate(scenes.space.names)
    }
    kinds["object."] = lambda: object_edits(scenes, budget=settings.edit_budget, seed=settings.seed)
    for prefix, listed in kinds.items():
        if brief and prefix:
            continue
        every = listed()
        for on in ("all",) if brief else ("all", "fit", "test"):
            edits = every if on == "all" else every.within(subject.rows_on(on))
            edits, note = _with_known_parts(subject, edits, on)
            edits = edits.draw(settings.edit_budget, settings.seed)
            for row in _edit_rows(subject, edits, on, prefix, levels, ways, brief=brief):
                found.append(replace(row, reason="; ".join(r for r in (row.reason, note) if r) or None))
    return found


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
    subject: Subject, edits: Edits, on: str, prefix: str, levels: RetrievalLevels, chosen: tuple[str, ...] | None,
    *, brief: bool,
) -> Iterator[Row]:
    ways, reasons = editors(subject, on)
    chosen = chosen or (None if prefix == "" and on != "fit" else PAPER_WAYS)
    if chosen is not None:
        ways = {name: editor for name, editor in ways.items() if name in chosen}
    for name, reason in reasons.items():
        if chosen is None or name in chosen:
            yield subject.row(f"edit.retrieval.{prefix}{name}", on, reason=reason)
    if not len(edits):
        reason = "no scene of this part becomes another of it by such an edit"
        for name in ways:
            yield subject.row(f"edit.retrieval.{prefix}{name}", on, n=0, reason=reason)
        return
    score = Scorer(subject, on, subject.scenes[edits.target], subject.scenes.objects[edits.base])
    shared = edits.shared
    groups: dict[str, Tensor | None] = {"": None, ".different": ~shared.any(1), ".shared": shared.any(1)}
    for c, name in enumerate(subject.scenes.space.names):
        groups[f".shared.{name}"] = shared[:, c]
    read = subject.probes.scores(subject.embeddings.vectors) if on != "fit" else None
    retrieved = retrieve_edits(subject.embeddings, edits, ways)
    for name, outcomes in retrieved.items():
        for group, mask in groups.items():
            kept = edits.target if mask is None else edits.target[mask]
            id = f"edit.retrieval.{prefix}{name}{group}"
            yield score.mean(id, outcomes.hits, mask, **levels.exact(kept))
            yield score.mean(f"{id}.up_to_order", outcomes.hits_up_to_order, mask, **levels.up_to_order(kept))
        yield score.mean(f"ties.edit.{prefix}{name}", outcomes.ties > 1)
        if read is not None:
            of_components = subject.probes.scores(ways[name].decomposition.components)
            probed = subject.probes.judge(ways[name].add(read, of_components, edits), score.scenes)
            for group in ("", ".different", ".shared"):
                yield from score.recognition(
                    f"edit.probe.{{}}.{prefix}{name}{group}", probed, ("concept", "object"), groups[group]
                )
    if on == "all" and prefix == "" and not brief:
        yield from _interference_rows(subject, edits, ways, retrieved)
        yield from _strength_rows(subject, edits, levels)


SAMPLE = 2000
"""Edits behind the interference and strength rows."""


def _interference_rows(
    subject: Subject, edits: Edits, ways: Mapping[str, Editor], outcomes: Mapping[str, EditOutcomes]
) -> Iterator[Row]:
    """Where the error of an edit lies, and where missed edits land, for pairs that share a value and those that don't."""
    score = Scorer(subject, "all", subject.scenes[edits.target], subject.scenes.objects[edits.base])
    few = edits.draw(SAMPLE, subject.settings.seed)
    score_few = Scorer(subject, "all", subject.scenes[few.target], subject.scenes.objects[few.base])
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
    return [replace(row, id=f"replay.{row.id}") for row in _edit_rows(subject, edits, "all", "", levels, None, brief=True)]


def _strength_rows(subject: Subject, edits: Edits, levels: RetrievalLevels) -> Iterator[Row]:
    edits = edits.draw(SAMPLE, subject.settings.seed)
    if not len(edits):
        return
    score = Scorer(subject, "all", subject.scenes[edits.target], subject.scenes.objects[edits.base])
    ways = {
        (name, strength): editor
        for strength in subject.settings.strengths
        for name, editor in editors(subject, "all", strength)[0].items()
        if name in PAPER_WAYS
    }
    outcomes = retrieve_edits(
        subject.embeddings, edits, {f"{name} {strength}": editor for (name, strength), editor in ways.items()}
    )
    for name, strength in ways:
        hits = outcomes[f"{name} {strength}"].hits
        yield score.mean(f"edit.strength.{name}", hits, family=f"{strength:g}", **levels.exact(edits.target))


def removal_rows(subject: Subject) -> list[Row]:
    """What do probes still read once the components of concepts, or of objects, are taken out? Paper: Table 5.

    Components come from the fit part. The permuted controls look the same components up under wrong names. Probes are
    trained anew on what is left (as the paper's code does), and the ones trained on the whole vectors are tried too.
    """
    rows = subject.split.test
    score = Scorer(subject, "test", subject.scenes[rows])
    found = list[Row]()
    variants: dict[str, Callable[[], Embeddings]] = {"original": lambda: subject.embeddings}
    for parts in ("concept", "object"):
        def plain(parts: str = parts) -> Embeddings:
            return remove(subject.embeddings, subject.decomposition(f"{parts}+pos.least_squares", "fit"))

        def permuted(parts: str = parts) -> Embeddings:
            names = permute_names(subject.scenes, parts, subject.settings.seed)
            return remove(subject.embeddings, subject.decomposition(f"{parts}+pos.least_squares", "fit"), names)

        variants[parts], variants[f"{parts}.permuted"] = plain, permuted
    for what, make in variants.items():
        try:
            left = make()
        except ValueError as error:
            found += [
                subject.row(f"removal.{what}.{how}.{of}", "test", reason=str(error))
                for how in ("retrained", "frozen") for of in ("concept", "object")
            ]  # fmt: skip
            continue
        retrained = subject.probes if what == "original" else fit_probes(left, subject.split, subject.probe_settings)
        for how, probes in (("retrained", retrained), ("frozen", subject.probes)):
            outcomes = probes.recognise(left.vectors[rows], score.scenes)
            found += score.recognition(f"removal.{what}.{how}.{{}}", outcomes, ("concept", "object"))
    return found


def information_rows(
    subject: Subject, family: str | None = None, *, quadratic: bool = True, grid: Mapping[str, Any] | None = None
) -> list[Row]:
    """How many bits about which values go together, beyond which values there are? See `geometry.information`.

    Args:
        subject: what is measured.
        family: name of the layer or token read-out, where there are several.
        quadratic: whether to try the quadratic read-out too.
        grid: shrinkages and penalties to try instead of the default ones.
    """
    found = list[Row]()
    for form in (LinearScores(), QuadraticScores()) if quadratic else (LinearScores(),):
        try:
            told = binding_information(
                subject.embeddings, subject.split, form, seed=subject.settings.seed, **(grid or {})
            )
        except ValueError as error:
            found += [
                subject.row(f"information.{form.name}.{unit}", "test", family=family, reason=str(error))
                for unit in ("bits", "ratio")
            ]
            continue
        score = Scorer(subject, "test", subject.scenes[told.rows])
        levels = {"family": family, "chance": 0.0, "bag_of_concepts": 0.0, "bag_of_concepts_strict": 0.0}
        found.append(score.mean(f"information.{form.name}.bits", told.entropy - told.left, **levels))
        found.append(score.explained(f"information.{form.name}.ratio", told.left, told.entropy, **levels))
    return found
