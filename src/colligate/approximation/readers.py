"""Who reads a rule's predictions: probes that share no scene with the rule, nor with what they score.

The scenes are divided into folds. A rule that predicts scenes of a fold learns from that fold alone, and the probes
that read its predictions learn from the others. Were the two to share scenes, the noise of those scenes would stand in
both, and values could be read from predictions of vectors that hold nothing.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.probes import Probes, ProbeSettings, fit_probes
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split


@dataclass(frozen=True, eq=False)
class Readers:
    """Probes, each with the scenes that it may score because it never saw them.

    Attributes:
        probes: read-outs.
        fold: which of them reads each scene.
        reason: why objects can't be read, if they can't.
    """

    probes: tuple[Probes, ...]
    fold: Int[Tensor, " scene"]
    reason: str | None = None

    @classmethod
    def same(cls, probes: Probes, scenes: Scenes) -> "Readers":
        """One given set of probes for all scenes, which rules then learn from without folds.

        Probes that were fitted to these scenes' vectors share them with the rule (as the authors' do).
        """
        return cls((probes,), torch.zeros(len(scenes), dtype=torch.int64))

    @classmethod
    def crossed(
        cls,
        embeddings: Embeddings,
        settings: ProbeSettings,
        *,
        folds: int = 2,
        budget: int | None = None,
        seed: int = 0,
    ) -> "Readers":
        """Probes fitted without one fold of the scenes each (`scene_folds`).

        Args:
            embeddings: vectors of scenes.
            settings: of the probes, with a single strength: no scene is spent on a choice.
            folds: how many.
            budget: most scenes that one set of probes learns from; above it, a seeded choice.
            seed: of the folds, and of that choice.

        Example:
            >>> from colligate.binding import no_binding
            >>> from colligate.scenes.space import ConceptSpace
            >>> scenes = ConceptSpace(color=3, shape=3).all_scenes(slots=2)
            >>> embeddings = Embeddings(no_binding(scenes.space, 2, 16)(scenes.values).float(), scenes)
            >>> readers = Readers.crossed(embeddings, ProbeSettings(strengths=(1e-4,)))
            >>> len(readers.probes), readers.fold.bincount().tolist()
            (2, [37, 44])
        """
        scenes = embeddings.scenes
        fold = scene_folds(scenes, folds, seed)
        occurring = scenes.contains_objects().any(0)
        reason = None
        splits = [_without(fold, k, budget, seed) for k in range(folds)]
        for split in splits:
            shown = scenes[split.fit].contains_objects().any(0)
            if bool((occurring & ~shown).any()):
                reason = f"a fold of scenes shows its probes {int(shown.sum())} of {int(occurring.sum())} objects"
        settings = replace(settings, objects=settings.objects and reason is None)
        return cls(tuple(fit_probes(embeddings, split, settings) for split in splits), fold, reason)

    def within(self, split: Split, fold: int) -> Split:
        """What a split of the objects leaves of one fold: all that a rule may see that is read and scored there."""
        fit, validation, test = (rows[self.fold[rows] == fold] for rows in (split.fit, split.validation, split.test))
        return Split(fit, validation, test, f"{split.name}, fold {fold}", split.objects, split.notes)

    def scores(self, vectors: Float[Tensor, "row dim"], rows: Int[Tensor, " row"]) -> Float[Tensor, "row query"]:
        """Scores of all values, then objects, each row by its own probes."""
        found = torch.empty(len(rows), len(self.probes[0].matrix))
        for k, probes in enumerate(self.probes):
            own = self.fold[rows] == k
            found[own] = probes.scores(vectors[own])
        return found


def scene_folds(scenes: Scenes, folds: int, seed: int) -> Int[Tensor, " scene"]:
    """Divide scenes at random; those that a bag of concepts can't tell apart (twins, swaps) share a fold.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=3).all_scenes(slots=2)
        >>> fold = scene_folds(scenes, 2, seed=0)
        >>> bool((fold == fold[scenes.rows_of(scenes.swap(0))]).all())
        True
    """
    bags = scenes.bags
    order = torch.randperm(int(bags.max()) + 1, generator=torch.Generator().manual_seed(seed))
    return (order % folds)[bags]


def some(rows: Int[Tensor, " row"], budget: int | None, seed: int) -> Int[Tensor, " some"]:
    """These rows, or a seeded choice of as many as the budget allows.

    Example:
        >>> len(some(torch.arange(9), 5, seed=0)), some(torch.arange(3), 5, seed=0).tolist()
        (5, [0, 1, 2])
    """
    if budget is None or len(rows) <= budget:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:budget].sort().values]


def _without(fold: Int[Tensor, " scene"], out: int, budget: int | None, seed: int) -> Split:
    none = torch.zeros(0, dtype=torch.int64)
    others = some((fold != out).nonzero()[:, 0], budget, seed)
    return Split(others, none, (fold == out).nonzero()[:, 0], f"without fold {out}")
