"""How far a repair on the text side could go: what the scene tower's own vectors tell of objects never fitted."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.approximation.approximators import Data
from colligate.approximation.families import family
from colligate.crossmodal.measurements import CrossScorer, estimate_row
from colligate.crossmodal.repair_data import RepairData
from colligate.embeddings import Embeddings
from colligate.intervals import Over
from colligate.measures import recognise
from colligate.probes import Probes, ProbeSettings, fit_probes, swap_foils
from colligate.records import Row
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

RULES = ("additive", "object_product", "mlp64")
"""Rules that are tried: sums of values, products within objects, a small network."""
STRENGTHS = (1e-6, 1e-4, 1e-2, 1e-1)
"""Shrinkages of the probes, of which validation objects choose one."""
MOST_FITTED = 6000
"""Most scenes that probes or rules are fitted on; above it, a seeded choice."""
WAYS = ("object", "object.unseen", "object.swap")
"""What unseen objects are recognised against, as repairs report it."""
_FOLDS = 2


def ceiling_rows(
    data: RepairData,
    split: Split,
    *,
    coverage: float | None = None,
    rules: Sequence[str] = RULES,
    seed: int = 0,
    over: Over = "values",
) -> list[Row]:
    """Recognition of unseen objects by what is known of the scene tower alone, two ways.

    `probe`: linear probes that learned these very objects, on other scenes. A set of text queries is a linear read-out
    too, so no repair of texts should do better: it has to guess the queries that the probes were shown.

    `rule`: vectors that a rule predicts from values alone, fitted where repairs are (scenes of fit objects) and read by
    the same probes. Whoever knows of an unseen object no more than its values, as the product head does, can be carried
    no further than the tower's vectors follow a rule. A map of a text tower that binds by itself may go beyond.

    No two of rule, probes and scored scenes share a scene.

    Args:
        data: both towers' vectors; those of scenes are read.
        split: by objects, that of the repairs.
        coverage: as it stands in the rows.
        rules: families of rules.
        seed: of folds and choices.
        over: what intervals speak of.

    Example:
        >>> from colligate.crossmodal.repair_data import repair_data
        >>> from colligate.embedders import load_model
        >>> from colligate.scenes.splits import BySwaps
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr").select(slice(0, 576)), load_model("oracle:pair-bag:64")
        >>> data = repair_data(model.towers["scene"], model.towers["text"], world)
        >>> split = BySwaps(coverage=0.5).split(world.scenes, seed=0)
        >>> rows = ceiling_rows(data, split, rules=("additive", "object_product"))
        >>> {row.id: row.value for row in rows}["crossmodal.repair.ceiling.probe.object.swap"] > 0.9
        True
    """
    reading = _Reading(data, split, seed)
    if reading.reason is not None:
        return [
            Row(id=f"crossmodal.repair.ceiling.{how}.object.swap", on="test", coverage=coverage, reason=reading.reason)
            for how in ("probe", "rule")
        ]
    scorer = CrossScorer(data.scenes[split.test], over=over)

    def rows(how: str, vectors: Float[Tensor, "scene dim"], name: str | None) -> list[Row]:
        found = reading.recognized(vectors)
        return [
            estimate_row(
                f"crossmodal.repair.ceiling.{how}.{way}", scorer.intervals.mean(hits, where), on="test", family=name,
                coverage=coverage,
            )
            for way, (hits, where) in found.items()
        ]  # fmt: skip

    told = rows("probe", data.vectors.float(), None)
    several = Embeddings(data.vectors, data.scenes)
    fitting = replace(split, fit=_some(split.fit, seed))
    facts = Data.of(several)
    for name in rules:
        [fitted] = family(name).fit(facts, [fitting], seed)
        told += rows("rule", facts.frame.restore(fitted.rule(data.scenes)), name)
    return told


class _Reading:
    """Probes of all objects that saw neither the scenes that they score nor those that rules are fitted on.

    Attributes:
        reason: why there are none, if there are none.
    """

    def __init__(self, data: RepairData, split: Split, seed: int) -> None:
        assert split.objects is not None
        self.data, self.split, scenes = data, split, data.scenes
        self.present, foils = scenes.contains_objects(), swap_foils(scenes)
        self.occurring, own = self.present.any(0), torch.zeros(scenes.space.num_objects, dtype=torch.bool)
        own[split.objects["test"]] = True
        absent = ~self.present & self.occurring
        self.against = {"object": absent, "object.unseen": absent & own, "object.swap": foils & absent & own}
        _, group = scenes.unordered_ids.unique(return_inverse=True)
        order = torch.randperm(int(group.max()) + 1, generator=torch.Generator().manual_seed(seed))
        self.fold = (order % _FOLDS)[group]  # a scene and its twin share a fold
        free = torch.ones(len(scenes), dtype=torch.bool)
        free[split.fit] = False
        learned = [_some((free & (self.fold != k)).nonzero()[:, 0], seed) for k in range(_FOLDS)]
        missing = [int((self.occurring & ~_shown(scenes, rows)).sum()) for rows in learned]
        self.reason = None
        if max(missing):
            self.reason = f"the scenes that repairs aren't fitted on show {max(missing)} objects too seldom for probes"
            return
        vectors = Embeddings(data.vectors, scenes)
        none = torch.zeros(0, dtype=torch.int64)
        self.probes = {
            strength: [
                fit_probes(vectors, Split(rows, none, none, "ceiling"), ProbeSettings(strengths=(strength,)))
                for rows in learned
            ]
            for strength in STRENGTHS
        }

    def recognized(self, vectors: Float[Tensor, "scene dim"]) -> dict[str, tuple[Tensor, Tensor]]:
        """For each way: which test scenes are recognised, and where there is something to recognise them against."""
        rows = self.split.test
        best = max(self.probes.values(), key=lambda probes: self._merit(probes, vectors))
        scores, found = self._scores(best, vectors, rows), dict[str, tuple[Tensor, Tensor]]()
        for way, against in self.against.items():
            hits = recognise(scores, self.present[rows], against[rows]).hits
            found[way] = (hits, against[rows].any(1))
        return found

    def _merit(self, probes: Sequence[Probes], vectors: Tensor) -> float:
        rows = self.split.validation
        hits = recognise(self._scores(probes, vectors, rows), self.present[rows], self.against["object"][rows]).hits
        return float(hits.double().mean())

    def _scores(
        self, probes: Sequence[Probes], vectors: Float[Tensor, "scene dim"], rows: Int[Tensor, " row"]
    ) -> Float[Tensor, "row object"]:
        found = torch.empty(len(rows), self.data.space.num_objects)
        for k, one in enumerate(probes):
            own = self.fold[rows] == k
            found[own] = one.scores(vectors[rows[own]])[:, -self.data.space.num_objects :]
        return found


def _shown(scenes: Scenes, rows: Int[Tensor, " row"]) -> Bool[Tensor, " object"]:
    return scenes[rows].contains_objects().any(0)


def _some(rows: Int[Tensor, " row"], seed: int) -> Int[Tensor, " row"]:
    """All of these rows, or a seeded choice of the most that are fitted on."""
    if len(rows) <= MOST_FITTED:
        return rows
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:MOST_FITTED]].sort().values
