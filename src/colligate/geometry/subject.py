"""What question 1 is asked of: vectors, a split, and the probes and decompositions that all measurements share."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.components import (
    Decomposition,
    Estimator,
    Parts,
    decompose,
    directions_of,
)
from colligate.geometry.paper import TableSettings, train_tables
from colligate.geometry.sums import MOST_PARTS, SceneSums
from colligate.intervals import Over
from colligate.probes import Probes, ProbeSettings, fit_probes
from colligate.records import Row
from colligate.scenes.space import Scenes
from colligate.scenes.splits import PaperScenes, Split, SplitRule

OWN_DIRECTIONS = 1024
"""Most scenes of which each gets a direction of its own as its vector without structure."""
MOST_SCORES = 50_000_000
"""Scores of one retrieval: looked-up vectors times scenes."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the measurements of question 1 are taken."""

    probes: ProbeSettings = field(default_factory=ProbeSettings)
    """How probes are fitted; its protocol is the protocol of every row."""
    tables: TableSettings = field(default_factory=TableSettings)
    """How the components that are removed under protocol `paper` are trained."""
    edit_budget: int = 10_000
    """Most edits of one kind that are scored; above it, a seeded choice."""
    retrieval_budget: int = 20_000
    """Most scenes whose reconstructions are looked up; above it, a seeded choice."""
    strengths: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
    """Edit strengths of the strength curve."""
    over: Over = "values"
    """What intervals speak of."""
    seed: int = 0
    """Of splits, choices and permutations."""


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
    "orthogonal": "object.avg+pos",
}
"""Name of a way to edit -> the decomposition whose components it exchanges."""


WAYS = tuple(EDITORS)
"""All ways to edit; `orthogonal` spares the other objects' components."""

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
    def ceiling(self) -> float:
        """Share of test scenes whose objects the probes recognise in the true vectors."""
        rows = self.split.test
        objects = self.probes.recognise(self.embeddings.vectors[rows], self.scenes[rows]).objects
        return 0.0 if objects is None else float(objects.double().mean())

    @cached_property
    def scores(self) -> Tensor:
        """The probes' scores of every row."""
        return self.probes.scores(self.embeddings.vectors)

    @cached_property
    def directions(self) -> Float[Tensor, "dim scene"]:
        """All vectors at length one: what looked-up vectors are compared with."""
        return directions_of(self.embeddings)

    @cached_property
    def _decompositions(self) -> dict[tuple[str, str], Decomposition]:
        return {}

    @cached_property
    def outcomes(self) -> dict[str, Float[Tensor, "two scene"]]:
        """Id -> per test scene, what its value sums up, above and below the line; see `scoring.PAIRED`."""
        return {}

    def _sums(self, on: str) -> SceneSums:
        if on not in self._gathered:
            self._gathered[on] = SceneSums.of(self.embeddings, None if on == "all" else self.split.fit)
        return self._gathered[on]

    @cached_property
    def _gathered(self) -> dict[str, SceneSums]:
        return {}

    def decomposition(self, name: str, on: str) -> Decomposition:
        """The decomposition of that name, fitted on all rows (`on="all"`) or on the fit part."""
        key = (name, "all" if on == "all" else "fit")
        if key not in self._decompositions:
            parts, positions, estimator = next(rest for n, *rest in ESTIMATORS if n == name)
            rows = None if on == "all" else self.split.fit
            slots, objects = self.scenes.slots, self.scenes.space.num_objects
            if estimator in ("least_squares", "avg") and slots * objects <= MOST_PARTS:
                self._decompositions[key] = self._sums(key[1]).decompose(
                    parts=cast("Parts", parts),
                    positions=cast("bool", positions),
                    estimator=cast("Estimator", estimator),
                )
                return self._decompositions[key]
            self._decompositions[key] = decompose(
                self.embeddings, rows, parts=cast("Parts", parts), positions=cast("bool", positions),
                estimator=cast("Estimator", estimator), singles=self.singles,
            )  # fmt: skip
        return self._decompositions[key]

    @cached_property
    def noise(self) -> "Subject":
        """The same scenes with vectors that have no structure, as what an R2 that was fitted on them is held against.

        A direction of its own for each scene makes every sum of squares its expectation under noise; where there are
        too many scenes for that, random directions come close to it.
        """
        scenes = len(self.embeddings)
        if scenes <= OWN_DIRECTIONS:
            vectors = torch.eye(scenes)
        else:
            generator = torch.Generator().manual_seed(self.settings.seed)
            vectors = torch.randn(scenes, max(16, OWN_DIRECTIONS**2 // scenes), generator=generator)
        return Subject(Embeddings(vectors, self.scenes), self.split, None, self.settings)

    def explained_by_chance(self, name: str, on: str) -> float:
        """R2 of a decomposition of vectors without structure: above 0 on scenes that it was fitted on, else 0.

        E[R2] = 1 - E |x - predicted|^2 / E |x - mean|^2,    x independent and alike       least squares: rank / (n - 1)
        """
        if on == "test" or name.endswith("single"):
            return 0.0
        errors, totals = self.noise.decomposition(name, on).squares(
            self.noise.embeddings, None if on == "all" else self.rows_on(on)
        )
        return 1 - float(errors.sum() / totals.sum())

    def tables(self, parts: Parts) -> Decomposition:
        """Components as the authors' code trains them for removal: on 99 % of all scenes."""
        key = (f"{parts}.tables", "all")
        if key not in self._decompositions:
            rows = PaperScenes(0.99).split(self.scenes, self.settings.seed).fit
            self._decompositions[key] = train_tables(
                self.embeddings, rows, parts=parts, seed=self.settings.seed, settings=self.settings.tables
            )
        return self._decompositions[key]

    def affordable(self, budget: int) -> int:
        """The budget of vectors to look up, cut so that their scores against all scenes stay below `MOST_SCORES`."""
        return min(budget, max(300, MOST_SCORES // len(self.embeddings)))

    def rows_on(self, on: str) -> Int[Tensor, " row"]:
        """Rows that are scored."""
        if on == "all":
            return torch.arange(len(self.embeddings))
        return self.split.fit if on == "fit" else self.split.test

    def row(self, id: str, on: str, **more: Any) -> Row:
        """A row with what all rows of the subject share."""
        return Row(id=id, on=on, protocol=self.settings.probes.protocol, **more)
