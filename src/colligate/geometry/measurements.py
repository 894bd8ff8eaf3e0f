"""Question 1 as rows of a table: probes, decomposition, edits, removal, information.

A `Subject` is what is measured: vectors of scenes with several objects, perhaps those of single objects, and a split.
Each function takes one and gives the rows of one table of the paper; together they share probes and decompositions.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.components import Decomposition, Estimator, Parts, decompose, object_squares
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
    retrieve_vectors,
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
    edit_budget: int = 20_000
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
        multi, alone = embeddings[several], embeddings[~several]
        return cls(multi, rule.split(multi.scenes, settings.seed), alone if len(alone) else None, settings)

    @property
    def scenes(self) -> Scenes:
        """The scenes of several objects."""
        return self.embeddings.scenes

    @cached_property
    def probes(self) -> Probes:
        """Read-outs fitted on the split."""
        return fit_probes(self.embeddings, self.split, self.settings.probes)

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
        """Chance, bag of concepts with random ties, and strict, for recognition of objects among all."""
        present = self.scenes.contains_objects()
        level = bag_of_concepts_level(
            [self.scenes.contains(c) for c in range(self.scenes.space.num_concepts)],
            self.scenes.space.object_values(torch.arange(self.scenes.space.num_objects)), present,
        )  # fmt: skip
        return chance_level(present), level.random_ties, level.strict

    def recognition(self, prefix: str, outcomes: ProbeOutcomes, rows: Tensor | None = None, **more: Any) -> list[Row]:
        """Rows for concepts (mean, joint, each) and objects (all, against the swap)."""
        space, every = self.scenes.space, torch.ones(len(self.scenes), dtype=torch.bool)
        mask = every if rows is None else rows

        def level(of: Tensor) -> float | None:
            return float(of[mask].double().mean()) if mask.any() else None

        chances = self.concept_chance
        known = {"bag_of_concepts": 1.0, "bag_of_concepts_strict": 1.0}
        found = [
            self.mean(f"{prefix}concept", outcomes.concepts.double().mean(1), rows,
                      chance=level(torch.stack(chances).mean(0)), **known, **more),
            self.mean(f"{prefix}concept.joint", outcomes.concepts.all(1), rows,
                      chance=level(torch.stack(chances).prod(0)), **known, **more),
        ]  # fmt: skip
        for c, name in enumerate(space.names):
            found.append(
                self.mean(
                    f"{prefix}concept.{name}", outcomes.concepts[:, c], rows, concept=name, chance=level(chances[c]),
                    **known, **more,
                )  # fmt: skip
            )
        if outcomes.objects is None or outcomes.swaps is None or outcomes.ties is None:
            return found
        chance, ties, strict = self.object_levels
        found.append(
            self.mean(
                f"{prefix}object", outcomes.objects, rows, chance=level(chance), bag_of_concepts=level(ties),
                bag_of_concepts_strict=level(strict), **more,
            )  # fmt: skip
        )
        foils = swap_foils(self.scenes)
        swappable = foils.any(1) & mask
        against = chance_level_of(self.scenes.contains_objects().sum(1), foils.sum(1))
        swap = float(against[swappable].mean()) if swappable.any() else None
        found.append(
            self.mean(
                f"{prefix}object.swap", outcomes.swaps, swappable, chance=swap, bag_of_concepts=swap,
                bag_of_concepts_strict=0.0 if swappable.any() else None, **more,
            )  # fmt: skip
        )
        return found


def chance_level_of(held: Int[Tensor, " scene"], foils: Int[Tensor, " scene"]) -> Tensor:
    """Chance that random scores put `held` queries before `foils` others."""
    total = (held + foils).double()
    return torch.exp(torch.lgamma(held + 1.0) + torch.lgamma(foils + 1.0) - torch.lgamma(total + 1)).double()


@dataclass(frozen=True, eq=False)
class RetrievalLevels:
    """Levels of retrieval among the scenes of a set, for each of its rows.

    Attributes:
        chance: one over the number of distinct scenes.
        bag: an ideal bag of concepts: one over the number of distinct scenes with the same values; and up to order.
    """

    chance: float
    bag: Tensor
    bag_up_to_order: Tensor
    unordered: Tensor

    @classmethod
    def of(cls, scenes: Scenes) -> "RetrievalLevels":
        """Count them."""
        ids, first = _first_rows(scenes.ids)
        bags, sets = scenes.bags, scenes.unordered_ids
        per_bag = torch.bincount(bags[first], minlength=int(bags.max()) + 1)
        _, of_set = sets.unique(return_inverse=True)
        per_set = torch.bincount(of_set[first])
        size = per_bag[bags].double()
        return cls(1 / len(ids), 1 / size, per_set[of_set] / size, per_set[of_set] / len(ids))


def _first_rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    found, inverse = ids.unique(return_inverse=True)
    first = torch.zeros(len(found), dtype=torch.int64)
    first[inverse.flip(0)] = torch.arange(len(ids)).flip(0)
    return found, first


def _missing(subject: Subject, ids: Mapping[str, str], ons: tuple[str, ...], error: ValueError) -> list[Row]:
    """Rows without a value, for measurements that can't be taken."""
    return [subject.row(id, on, reason=str(error)) for id in ids for on in ons]


def probe_rows(subject: Subject) -> list[Row]:
    """Do linear read-outs name the values, and the objects, of scenes they never saw?

    Paper: "probing" of Tables 2 and 5.
    """
    rows = subject.split.test
    scenes = subject.scenes[rows]
    outcomes = subject.probes.recognise(subject.embeddings.vectors[rows], scenes)
    score = Scorer(subject, "test", scenes)
    found = score.recognition("probe.", outcomes)
    if outcomes.ties is not None:
        found.append(score.mean("ties.probe.object", outcomes.ties))
    return found


def decomposition_rows(subject: Subject) -> list[Row]:
    """How much do the components explain, and do they find their scene again? Paper: Tables 2 and 4."""
    levels, found = RetrievalLevels.of(subject.scenes), list[Row]()
    scorers = {on: Scorer(subject, on, subject.scenes[subject.rows_on(on)]) for on in ("all", "fit", "test")}
    for name, *_ in ESTIMATORS:
        for on, score in scorers.items():
            try:
                decomposition = subject.decomposition(name, on)
                predicted = _predictions(decomposition, subject.scenes[subject.rows_on(on)])
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


def _predictions(decomposition: Decomposition, scenes: Scenes) -> Tensor:
    return decomposition.predict(scenes)


def _reconstruction(
    subject: Subject, score: Scorer, name: str, decomposition: Decomposition, predicted: Tensor, levels: RetrievalLevels
) -> Iterator[Row]:
    rows = subject.rows_on(score.on)
    vectors = subject.embeddings.vectors[rows].double()
    centres = decomposition.centres[score.scenes.counts]
    yield score.explained(
        f"r2.{name}", (vectors - predicted).square().sum(1), (vectors - centres).square().sum(1), chance=0.0
    )
    chosen = torch.arange(len(rows))
    if len(rows) > subject.settings.retrieval_budget:
        generator = torch.Generator().manual_seed(subject.settings.seed)
        chosen = torch.randperm(len(rows), generator=generator)[: subject.settings.retrieval_budget].sort().values
    keys = torch.stack([subject.scenes.ids, subject.scenes.unordered_ids], dim=1)
    hits = retrieve_vectors(predicted[chosen], subject.embeddings.vectors, keys[rows[chosen]], keys)
    part = score if len(chosen) == len(rows) else Scorer(subject, score.on, score.scenes[chosen])
    scored = rows[chosen]
    yield part.mean(
        f"retrieval.{name}", hits.hits[:, 0], chance=levels.chance, bag_of_concepts=float(levels.bag[scored].mean()),
        bag_of_concepts_strict=float((levels.bag[scored] == 1).double().mean()),
    )  # fmt: skip
    yield part.mean(
        f"retrieval.{name}.up_to_order", hits.hits[:, 1], chance=float(levels.unordered[scored].mean()),
        bag_of_concepts=float(levels.bag_up_to_order[scored].mean()),
        bag_of_concepts_strict=float((levels.bag_up_to_order[scored] == 1).double().mean()),
    )  # fmt: skip
    yield part.mean(f"ties.retrieval.{name}", hits.tied > 1)
    if score.on == "test":
        outcomes = subject.probes.recognise(predicted.float(), score.scenes)
        for row in score.recognition("reconstruction.probe.", outcomes):
            kind = row.id.removeprefix("reconstruction.probe.")
            if kind in ("concept", "object"):
                yield _renamed(row, f"reconstruction.probe.{kind}.{name}")


def _renamed(row: Row, id: str) -> Row:
    from dataclasses import replace

    return replace(row, id=id)


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


def edit_rows(subject: Subject) -> list[Row]:
    """Does exchanging a component turn one scene's vector into the other's? Paper: Table 3, and shared concepts.

    Edits of the first concept have no name of their own in ids (`edit.retrieval.avg`), those of other concepts and of
    whole objects do (`edit.retrieval.shape.avg`, `edit.retrieval.object.avg`).
    """
    settings, scenes = subject.settings, subject.scenes
    levels, found = RetrievalLevels.of(scenes), list[Row]()
    kinds: dict[str, Callable[[], Edits]] = {
        "" if c == 0 else f"{name}.": lambda c=c: concept_edits(scenes, c) for c, name in enumerate(scenes.space.names)
    }
    kinds["object."] = lambda: object_edits(scenes, budget=settings.edit_budget, seed=settings.seed)
    for prefix, listed in kinds.items():
        every = listed()
        for on in ("all", "fit", "test"):
            edits = (every if on == "all" else every.within(subject.rows_on(on))).draw(
                settings.edit_budget, settings.seed
            )
            found += _edit_rows(subject, edits, on, prefix, levels)
            if on == "all" and prefix == "":
                found += _strength_rows(subject, edits, levels)
    return found


def _edit_rows(subject: Subject, edits: Edits, on: str, prefix: str, levels: RetrievalLevels) -> Iterator[Row]:
    ways, reasons = editors(subject, on)
    for name, reason in reasons.items():
        yield subject.row(f"edit.retrieval.{prefix}{name}", on, reason=reason)
    if not len(edits):
        for name in ways:
            yield subject.row(f"edit.retrieval.{prefix}{name}", on, n=0, reason="no scene of this part is an edit of another")
        return
    score = Scorer(subject, on, subject.scenes[edits.target], subject.scenes.objects[edits.base])
    shared = edits.shared
    groups: dict[str, Tensor | None] = {"": None, ".different": ~shared.any(1), ".shared": shared.any(1)}
    for c, name in enumerate(subject.scenes.space.names):
        groups[f".shared.{name}"] = shared[:, c]
    for name, outcomes in retrieve_edits(subject.embeddings, edits, ways).items():
        for group, mask in groups.items():
            kept = edits.target if mask is None else edits.target[mask]
            bag = levels.bag[kept]
            yield score.mean(
                f"edit.retrieval.{prefix}{name}{group}", outcomes.hits, mask, chance=levels.chance,
                bag_of_concepts=float(bag.mean()) if len(kept) else None,
                bag_of_concepts_strict=float((bag == 1).double().mean()) if len(kept) else None,
            )  # fmt: skip
            either = levels.bag_up_to_order[kept]
            yield score.mean(
                f"edit.retrieval.{prefix}{name}{group}.up_to_order", outcomes.hits_up_to_order, mask,
                chance=float(levels.unordered[kept].mean()) if len(kept) else None,
                bag_of_concepts=float(either.mean()) if len(kept) else None,
                bag_of_concepts_strict=float((either == 1).double().mean()) if len(kept) else None,
            )  # fmt: skip
        yield score.mean(f"ties.edit.{prefix}{name}", outcomes.ties > 1)
        if on != "fit":
            yield from _edit_probe_rows(subject, score, edits, prefix + name, ways[name], groups)
        if prefix == "" and on == "all":
            yield from _interference_rows(subject, score, edits, name, ways[name], outcomes)


def _edit_probe_rows(
    subject: Subject, score: Scorer, edits: Edits, name: str, editor: Editor, groups: Mapping[str, Tensor | None]
) -> Iterator[Row]:
    edited = editor.apply(subject.embeddings, edits)
    outcomes = subject.probes.recognise(edited, score.scenes)
    for group, mask in groups.items():
        if group.startswith(".shared."):
            continue
        for row in score.recognition("", outcomes, mask):
            if row.id in ("concept", "concept.joint", "object"):
                yield _renamed(row, f"edit.probe.{row.id}.{name}{group}")


def _interference_rows(
    subject: Subject, score: Scorer, edits: Edits, name: str, editor: Editor, outcomes: EditOutcomes
) -> Iterator[Row]:
    found = interference(subject.embeddings, edits, editor)
    kinds = classify_misses(edits, outcomes.nearest)
    shared = edits.shared.any(1)
    for group, mask in (("different", ~shared), ("shared", shared)):
        yield score.mean(f"interference.overshoot.{name}.{group}", found.overshoot, mask)
        yield score.mean(f"interference.other_value.{name}.{group}", found.other_value, mask)
        yield score.mean(f"interference.explained.{name}.{group}", found.explained, mask)
        for index, kind in enumerate(MISSES):
            yield score.mean(f"interference.miss.{name}.{kind}.{group}", kinds == index, mask)


def _strength_rows(subject: Subject, edits: Edits, levels: RetrievalLevels) -> Iterator[Row]:
    edits = edits.draw(min(4000, subject.settings.edit_budget), subject.settings.seed)
    if not len(edits):
        return
    score = Scorer(subject, "all", subject.scenes[edits.target], subject.scenes.objects[edits.base])
    ways = {
        (name, strength): editor
        for strength in subject.settings.strengths
        for name, editor in editors(subject, "all", strength)[0].items()
        if name in ("avg", "avg+pos", "single")
    }
    outcomes = retrieve_edits(
        subject.embeddings, edits, {f"{name} {strength}": editor for (name, strength), editor in ways.items()}
    )
    for name, strength in ways:
        yield score.mean(
            f"edit.strength.{name}", outcomes[f"{name} {strength}"].hits, family=f"{strength:g}", chance=levels.chance,
            bag_of_concepts=float(levels.bag[edits.target].mean()),
        )  # fmt: skip


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
        retrained = subject.probes if what == "original" else fit_probes(left, subject.split, subject.settings.probes)
        for how, probes in (("retrained", retrained), ("frozen", subject.probes)):
            outcomes = probes.recognise(left.vectors[rows], score.scenes)
            for row in score.recognition(f"removal.{what}.{how}.", outcomes):
                if row.id.endswith((f"{how}.concept", f"{how}.object")):
                    found.append(row)
    return found


def information_rows(subject: Subject, family: str | None = None, *, quadratic: bool = True) -> list[Row]:
    """How many bits about which values go together, beyond which values there are? See `geometry.information`."""
    found = list[Row]()
    for form in (LinearScores(), QuadraticScores()) if quadratic else (LinearScores(),):
        try:
            told = binding_information(subject.embeddings, subject.split, form, seed=subject.settings.seed)
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
