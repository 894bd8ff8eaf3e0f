"""What a bag of concepts can say, and no more: a ridge on how often each value occurs, and on products of these counts.

It is the same for a scene and its swap. So where it explains as much of unseen objects' scenes as a hidden layer does,
that layer's R2 is no evidence that it binds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.approximation.approximators import (
    ROWS_AT_ONCE,
    Additive,
    Approximator,
    Data,
    Fitted,
    choose,
    taken,
    training_r2,
)
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

PENALTIES = (1e-1, 1e-2, 1e-3, 1e-5)
"""Penalties that are tried, as shares of a feature's mean energy; the last as good as none."""


def count_features(scenes: Scenes) -> Float[Tensor, "scene feature"]:
    """How often a scene holds each value, and the products of any two of these counts.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3], [1, 2]])
        >>> features = count_features(scenes)
        >>> features.shape, bool((features[0] == features[1]).all())  # a scene and its swap
        (torch.Size([2, 14]), True)
    """
    counts = torch.cat([scenes.multiplicity(c) for c in range(scenes.space.num_concepts)], dim=1).double()
    one, other = torch.triu_indices(counts.shape[1], counts.shape[1])
    return torch.cat([counts, counts[:, one] * counts[:, other]], dim=1)


@dataclass(frozen=True, eq=False)
class CountRule:
    """A fitted ridge on count features."""

    centre: Float[Tensor, " feature"]
    weights: Float[Tensor, "feature axis"]
    mean: Float[Tensor, " axis"]

    def __call__(self, scenes: Scenes) -> Float[Tensor, "scene axis"]:
        """Features times weights, in blocks."""
        blocks = torch.arange(len(scenes)).split(ROWS_AT_ONCE)
        found = [(count_features(scenes[rows]) - self.centre) @ self.weights + self.mean for rows in blocks]
        return torch.cat(found).float() if found else torch.zeros(0, len(self.mean))


@dataclass(frozen=True)
class BagQuadratic:
    """A quadratic function of the counts of values, by ridge regression in closed form: a bag of concepts, at its best.

        x(s) = b + sum_v w[v] n[v](s) + sum_{v <= u} w[v, u] n[v](s) n[u](s),    penalty |w|^2

    n[v] counts the slots that hold value v. Validation chooses the penalty, pooled over the splits of one coverage.
    Identification doesn't apply: the penalty settles what the fit part leaves open.

    Not in the paper.

    Example:
        >>> from colligate.binding import no_binding
        >>> from colligate.embeddings import Embeddings
        >>> from colligate.scenes.space import ConceptSpace
        >>> from colligate.scenes.splits import ByObject
        >>> scenes = ConceptSpace(color=4, shape=4).all_scenes(slots=2)
        >>> data = Data.of(Embeddings(no_binding(scenes.space, 2, 16, positions="shared")(scenes.values), scenes))
        >>> split = ByObject(coverage=0.8).split(scenes, seed=0)
        >>> fitted = BagQuadratic().fit(data, [split], seed=0)[0]
        >>> training_r2(data, fitted.rule, split.test) > 0.99
        True
    """

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "bag_quadratic"

    def contains(self, other: Approximator) -> bool:
        """A sum whose slots share their tables is linear in the counts."""
        return isinstance(other, Additive) and other.positions == "shared"

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Ridge under every penalty on each split; nothing is drawn."""
        del seed
        rules = [_ridges(data, split) for split in splits]
        chosen = choose(data, splits, rules)
        return [
            Fitted(_by_axis(of, pick), reached=training_r2(data, of[-1], split.fit), chosen=_words(pick, data))
            for of, pick, split in zip(rules, chosen, splits, strict=True)
        ]  # fmt: skip


def _by_axis(rules: Sequence[CountRule], picks: Int[Tensor, " axis"]) -> CountRule:
    weights = torch.stack([rule.weights for rule in rules])
    return replace(rules[0], weights=weights[picks, :, torch.arange(len(picks))].T)


def _words(picks: Int[Tensor, " axis"], data: Data) -> str:
    return taken(picks + 1, data, ("", *(f"penalty {penalty:g}" for penalty in PENALTIES)))


def _ridges(data: Data, split: Split) -> list[CountRule]:
    """The rule of each penalty; through the scenes where there are fewer of them than features."""
    features = count_features(data.scenes[split.fit])
    targets = data.targets[split.fit].double()
    centre, mean = features.mean(0), targets.mean(0)
    features = features - centre
    few = len(features) < features.shape[1]
    gram = features @ features.T if few else features.T @ features
    sums = targets - mean if few else features.T @ (targets - mean)
    energy = max(float(gram.trace()) / features.shape[1], 1e-30)
    energies, axes = torch.linalg.eigh(gram)
    turned, back = axes.T @ sums, features.T @ axes if few else axes
    return [
        CountRule(centre, back @ (turned / (energies.clamp(min=0) + penalty * energy)[:, None]), mean)
        for penalty in PENALTIES
    ]  # fmt: skip
