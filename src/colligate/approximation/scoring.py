"""What is scored of a fitted rule: recognition by probes, R2 and retrieval, scene by scene.

Everything is scored on the test part of each member, the scenes of held-out objects in its own fold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.approximation.approximators import Data, Fitted
from colligate.approximation.contrast import Swaps
from colligate.approximation.readers import Readers
from colligate.embeddings import Embeddings
from colligate.measures import recognise, retrieve
from colligate.probes import swap_foils
from colligate.scenes.splits import Split

OUTCOMES = ("concept", "object", "object.unseen", "object.swap", "retrieval", "retrieval.up_to_order")
"""What is scored of every scene, beside its squared error."""


@dataclass(frozen=True, eq=False)
class Squares:
    """Squared errors, and what they are measured against.

    Attributes:
        errors: of each scored piece.
        totals: its squared distance from the fit part's mean; of a contrast, from 0, which is what a bag predicts.
    """

    errors: Float[Tensor, " row"]
    totals: Float[Tensor, " row"]

    @property
    def r2(self) -> float:
        """Share of the totals that isn't error; NaN where there is nothing."""
        return 1 - float(self.errors.sum() / self.totals.sum())


NOTHING = Squares(torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class Point:
    """One family at one coverage, over all splits.

    Attributes:
        family: its name.
        coverage: fit objects / all objects.
        rows: scored scenes, split after split.
        split: which split each belongs to.
        outcomes: name in `OUTCOMES` -> outcome of each scored scene; NaN where it isn't defined.
        errors: squared error of each.
        totals: squared distance of each from the fit part's mean.
        weighted: the same in the metric of `metric.Metric`; NaN under protocol `paper` and where probes are given.
        swaps: pairs of scenes and their swaps whose contrast is scored, split after split (rows of `Swaps.pairs`).
        swap: squares of the contrasts.
        weighted_swap: the same in that metric.
        train_r2: of each split.
        reached: highest training R2 of each split on the way to it.
        identified: whether the fit part determines the rule, of each split; None where the question doesn't apply.
        seen: whether the fit part shows every value, of each split.
        held: squares of the scenes of the validation objects, split by split; 0 where there are none.
        adequate: whether the fit is as good as this family is known to reach, of each split.
        behind: by how much R2 of `held` falls short of a closed form that the family can come near to; 0 where it
            doesn't.
        chosen: what validation chose, of each split.
        strength: of the probes that read objects from the predictions.
        validated: objects that they recognise in scenes of the validation objects, on which they were chosen.
        scenes: how many scenes each split's fit part has, and how many it would have without a budget.
        reason: why there is nothing to score.
    """

    family: str
    coverage: float
    rows: Int[Tensor, " row"]
    split: Int[Tensor, " row"]
    outcomes: Mapping[str, Float[Tensor, " row"]]
    errors: Float[Tensor, " row"]
    totals: Float[Tensor, " row"]
    weighted: Squares = NOTHING
    swaps: Int[Tensor, " pair"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    swap: Squares = NOTHING
    weighted_swap: Squares = NOTHING
    train_r2: tuple[float, ...] = ()
    reached: tuple[float, ...] = ()
    identified: tuple[bool | None, ...] = ()
    seen: tuple[bool, ...] = ()
    held: Squares = NOTHING
    adequate: tuple[bool, ...] = ()
    behind: float = 0.0
    chosen: tuple[str, ...] = ()
    strength: float | None = None
    validated: float | None = None
    scenes: tuple[tuple[int, int], ...] = ()
    reason: str | None = None

    @property
    def sound(self) -> float:
        """Share of splits that identify the rule, show every value and are fitted adequately."""
        each = [i is not False and s and a for i, s, a in zip(self.identified, self.seen, self.adequate, strict=True)]
        return sum(each) / len(each) if each else 0.0

    @property
    def solid(self) -> bool:
        """Whether most splits are sound; points of which they aren't are drawn hollow."""
        return self.sound > 0.5

    def mean(self, name: str) -> float:
        """Mean outcome over the scenes for which it is defined."""
        return float(self.outcomes[name].nanmean())

    @property
    def r2(self) -> float:
        """R2 on the scored scenes, centred on the fit part's mean."""
        return 1 - float(self.errors.sum() / self.totals.sum())

    def by_split(self, name: str) -> list[float]:
        """Mean outcome of each split."""
        return [float(self.outcomes[name][self.split == i].nanmean()) for i in self.split.unique().tolist()]


class Member(NamedTuple):
    """One fit of a family: a split of the objects, within one fold of the scenes (of all scenes, under `paper`)."""

    coverage: float
    fold: int
    split: Split
    available: int
    """Scenes that the fit part would have without a budget."""


class _Predicted(NamedTuple):
    """Predictions of scenes: as the rule gives them, and as vectors."""

    inner: Float[Tensor, "row axis"]
    vectors: Float[Tensor, "row dim"]


def _size(vectors: Float[Tensor, "row axis"]) -> Float[Tensor, " row"]:
    return vectors.square().sum(1)


class Scoring:
    """What is true of every scene, looked up once.

    Args:
        embeddings: the scenes.
        data: their vectors as rules predict them, for each fold.
        readers: probes of every strength.
        budget: most predictions of one fit that are looked up among the scenes.
        seed: of which.
    """

    def __init__(
        self, embeddings: Embeddings, data: Sequence[Data], readers: Sequence[Readers], *, budget: int, seed: int
    ) -> None:
        self.embeddings, self.data, self.readers, self.budget, self.seed = embeddings, data, readers, budget, seed
        scenes = embeddings.scenes
        self.values = [scenes.contains(c) for c in range(scenes.space.num_concepts)]
        self.swaps = Swaps.of(scenes)
        self.objects, self.foils = scenes.contains_objects(), swap_foils(scenes)
        self.occurring = self.objects.any(0)
        self.directions = torch.nn.functional.normalize(embeddings.vectors.float(), dim=1).T.contiguous()
        self.keys = torch.stack([scenes.ids, scenes.unordered_ids], dim=1)

    def judge(self, vectors: Tensor, rows: Tensor) -> float:
        """Share of scenes whose objects are recognised."""
        return float(self._objects(self.readers[0], vectors, rows, self.occurring)["object"].nanmean())

    def _concepts(self, readers: Readers, vectors: Tensor, rows: Tensor) -> Float[Tensor, " row"]:
        sizes = list(self.embeddings.scenes.space.sizes)
        by_concept = readers.scores(vectors, rows)[:, : sum(sizes)].split(sizes, dim=1)
        hits = [recognise(own, of[rows]).hits for own, of in zip(by_concept, self.values, strict=True)]
        return torch.stack(hits).double().mean(0)

    def _objects(
        self, readers: Readers, vectors: Tensor, rows: Tensor, held_out: Bool[Tensor, " object"]
    ) -> dict[str, Tensor]:
        if readers.probes[0].objects is None:
            none = torch.full((len(rows),), torch.nan, dtype=torch.float64)
            return dict.fromkeys(("object", "object.unseen", "object.swap"), none)
        found = dict[str, Tensor]()
        own = readers.scores(vectors, rows)[:, sum(self.embeddings.scenes.space.sizes) :]
        present = self.objects[rows]
        absent = {
            "object": ~present & self.occurring, "object.unseen": ~present & held_out,
            "object.swap": self.foils[rows] & held_out & self.occurring,
        }  # fmt: skip
        for name, against in absent.items():
            hits = recognise(own, present, against).hits.double()
            found[name] = torch.where(against.any(1), hits, torch.nan)
        return found

    def _predicted(self, rows: Tensor, fold: int, fitted: Fitted | None) -> "_Predicted":
        data = self.data[fold]
        if fitted is None:
            inner, vectors = data.targets[rows], self.embeddings.vectors[rows].float()
        else:
            inner = fitted.rule(data.scenes[rows])
            vectors = data.frame.restore(inner)
        return _Predicted(inner, vectors)

    def _choose(
        self, members: Sequence[Member], fits: Sequence[Fitted | None]
    ) -> tuple[Readers, Readers, float | None]:
        """The probes that recognise most values, and most objects, in predictions of the validation objects' scenes.

        And how many objects the latter recognise there.
        """
        scored = sum(len(member.split.validation) for member in members)
        if not scored:
            return self.readers[0], self.readers[0], None
        hits = torch.zeros(2, len(self.readers), dtype=torch.float64)
        for member, fitted in zip(members, fits, strict=True):
            rows = member.split.validation
            if len(rows):
                read = self._predicted(rows, member.fold, fitted).vectors
                for i, readers in enumerate(self.readers):
                    hits[0, i] += self._concepts(readers, read, rows).sum()
                    objects = self._objects(readers, read, rows, self.occurring)["object"]
                    hits[1, i] += objects.nansum()
        best = hits.argmax(1).tolist()
        objects = None if self.readers[0].probes[0].objects is None else float(hits[1].max()) / scored
        return self.readers[best[0]], self.readers[best[1]], objects

    def point(self, name: str, coverage: float, members: Sequence[Member], fits: Sequence[Fitted] | None) -> Point:
        """Score one family on the test part of every fit; the true vectors without fits."""
        parts, each = list[dict[str, Tensor]](), fits or [None] * len(members)
        of_values, of_objects, validated = self._choose(members, each)
        for i, (member, fitted) in enumerate(zip(members, each, strict=True)):
            split, rows = member.split, member.split.test
            predicted = self._predicted(rows, member.fold, fitted)
            held_out = torch.zeros_like(self.occurring)
            held_out[cast("Mapping[str, Tensor]", split.objects)["test"]] = True
            found = {"concept": self._concepts(of_values, predicted.vectors, rows)}
            found |= self._objects(of_objects, predicted.vectors, rows, held_out)
            found |= self._retrieved(predicted.vectors, rows) | self._squares(member, predicted.inner)
            found["rows"], found["split"] = rows, torch.full_like(rows, i)
            parts.append(found)
        joined = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        squares = {
            key: Squares(joined[f"errors.{key}"], joined[f"totals.{key}"])
            for key in ("swap", "weighted", "weighted.swap")
        }
        return Point(
            name, coverage, joined["rows"], joined["split"], {key: joined[key] for key in OUTCOMES},
            joined["errors"], joined["totals"], squares["weighted"], joined["swaps"], squares["swap"],
            squares["weighted.swap"],
            identified=tuple(f.identified for f in fits or ()),
            chosen=tuple(f.chosen for f in fits or ()),
            strength=of_objects.probes[0].strengths.get("object"),
            validated=validated,
            scenes=tuple((len(member.split.fit), member.available) for member in members),
        )  # fmt: skip

    def _squares(self, member: Member, inner: Float[Tensor, "row axis"]) -> dict[str, Tensor]:
        """Squared errors and totals of scenes and of contrasts, in the vectors' metric and in that of their fold."""
        data, rows = self.data[member.fold], member.split.test
        left = data.targets[rows].double() - inner.double()
        around = data.targets[rows].double() - data.targets[member.split.fit].double().mean(0)
        pairs = self.swaps.within(rows)
        missed = self.swaps.contrasts(pairs, rows, left)
        apart = self.swaps.contrasts(pairs, rows, data.targets[rows])
        found = {"swaps": pairs}
        for key, errors, totals in (("", left, around), (".swap", missed, apart)):
            found["errors" + key], found["totals" + key] = _size(errors), _size(totals)
            if data.metric is None:
                found["errors.weighted" + key] = found["totals.weighted" + key] = torch.full((len(errors),), torch.nan)
            else:
                found["errors.weighted" + key] = _size(errors @ data.metric.measure)
                found["totals.weighted" + key] = _size(totals @ data.metric.measure)
        return found

    def _retrieved(self, vectors: Tensor, rows: Tensor) -> dict[str, Tensor]:
        hits = torch.full((len(rows), 2), torch.nan, dtype=torch.float64)
        chosen = torch.arange(len(rows))
        if len(rows) > self.budget:
            generator = torch.Generator().manual_seed(self.seed)
            chosen = torch.randperm(len(rows), generator=generator)[: self.budget]
        for block in chosen.split(512):
            scores = torch.nn.functional.normalize(vectors[block], dim=1) @ self.directions
            hits[block] = retrieve(scores, self.keys[rows[block]], self.keys).hits
        return {"retrieval": hits[:, 0], "retrieval.up_to_order": hits[:, 1]}
