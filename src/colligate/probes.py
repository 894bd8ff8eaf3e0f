"""Linear read-outs of values and objects: does a vector say which values, and which objects, its scene holds?

A probe is a matrix without bias, one row for each value (or object), trained by softmax cross-entropy against a uniform
distribution over what is present. It sees every object, but never a scene that is scored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.fitting import minimise
from colligate.measures import recognise
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import Split

ProtocolName = Literal["strict", "paper"]
"""`strict` chooses on validation and reports on test; `paper` does what the authors' code does."""


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """How probes are fitted."""

    protocol: ProtocolName = "strict"
    """`strict`: L-BFGS to convergence, strength chosen on validation. `paper`: Adam at 1e-2, cosine to 0, full batch."""
    penalty: float = 3e-5
    """Weight of the penalty on the scores' size (strict)."""
    strengths: tuple[float, ...] = (1e-8, 1e-6, 1e-4, 1e-2, 1.0)
    """Shrinkages tried, relative to the vectors' variance: near 0 all directions count alike, at 1 the large ones lead."""
    max_steps: int = 300
    """Most L-BFGS steps (strict)."""
    paper_steps: int = 10_000
    """Adam steps (paper)."""
    seed: int = 0
    """Of the initial weights (paper; the strict fit is convex and starts from zero)."""
    objects: bool = True
    """Whether to fit the object probe too."""


@dataclass(frozen=True, eq=False)
class Probes:
    """Fitted read-outs.

    Attributes:
        space: the concepts.
        concepts: one matrix for each concept.
        objects: one row for each object, or None.
        strengths: name of the read-out -> shrinkage chosen.
        losses: name of the read-out -> cross-entropy on the fit part, in nats.
        steps: name of the read-out -> steps taken.
    """

    space: ConceptSpace
    concepts: tuple[Float[Tensor, "_ dim"], ...]
    objects: Float[Tensor, "object dim"] | None
    strengths: Mapping[str, float]
    losses: Mapping[str, float]
    steps: Mapping[str, int]

    def recognise(self, vectors: Float[Tensor, "scene dim"], scenes: Scenes) -> "ProbeOutcomes":
        """Score vectors against scenes: does each read-out put what is present strictly on top?"""
        vectors = vectors.float()
        hits = torch.stack(
            [
                recognise(vectors @ weight.T.to(vectors.device), scenes.contains(c).to(vectors.device)).hits
                for c, weight in enumerate(self.concepts)
            ],
            dim=1,
        )
        if self.objects is None:
            return ProbeOutcomes(hits, None, None, None)
        scores = vectors @ self.objects.T.to(vectors.device)
        present = scenes.contains_objects()
        found = recognise(scores, present)
        foils = swap_foils(scenes)
        against_swap = recognise(scores, present, foils).hits
        return ProbeOutcomes(hits, found.hits, torch.where(foils.any(1), against_swap, False), found.ties)


def swap_foils(scenes: Scenes) -> Bool[Tensor, "scene object"]:
    """Objects that appear when two objects of the scene exchange the value of one concept, and weren't there before.

    Example:
        >>> space = ConceptSpace(color=2, shape=2)
        >>> swap_foils(space.scenes([[0, 3], [0, 1]])).long().tolist()
        [[0, 1, 1, 0], [0, 0, 0, 0]]
    """
    foils = torch.zeros(len(scenes), scenes.space.num_objects, dtype=torch.bool)
    rows = torch.arange(len(scenes))
    for first in range(scenes.slots):
        for second in range(first + 1, scenes.slots):
            both = scenes.filled[:, first] & scenes.filled[:, second]
            for concept in range(scenes.space.num_concepts):
                swapped = scenes.swap(concept, (first, second)).objects
                for slot in (first, second):
                    foils[rows[both], swapped[both, slot]] = True
    return foils & ~scenes.contains_objects()


@dataclass(frozen=True, eq=False)
class ProbeOutcomes:
    """Per-scene outcomes of the read-outs.

    Attributes:
        concepts: for each concept, whether its present values beat its absent ones.
        objects: whether the present objects beat all absent ones; None without an object probe.
        swaps: whether they beat those of the swapped scenes; False where a swap changes nothing (`swap_foils`).
        ties: whether present and absent objects tied.
    """

    concepts: Bool[Tensor, "scene concept"]
    objects: Bool[Tensor, " scene"] | None
    swaps: Bool[Tensor, " scene"] | None
    ties: Bool[Tensor, " scene"] | None


def fit_probes(embeddings: Embeddings, split: Split, settings: ProbeSettings | None = None) -> Probes:
    """Fit a read-out of every concept, and one of objects.

        minimise  - sum_s sum_v t[s, v] log softmax(W x(s))[v] / N  +  penalty / 2 tr W (S + strength s^2 I) W' ,

    with t uniform over what is present, S the vectors' second moment and s^2 their variance. What tells objects apart
    often lies in directions of small variance, which a plain penalty on W (or a gradient method stopped early) never
    reaches; the strengths run from "every direction alike" to "large directions first", and validation scenes choose.
    All concepts of one size and all strengths are fitted together by batched L-BFGS in the vectors' principal axes.

    Args:
        embeddings: vectors and their scenes.
        split: the fit part trains, the validation part chooses the strength (most scenes recognised, then lowest loss).
        settings: protocol and its numbers.

    Raises:
        ValueError: a value or object never occurs in the fit part; the message names it.

    Paper: arXiv:2605.31503, "probing".   Differs: the authors take 10,000 Adam steps without penalty, on 40 % of scenes.

    Example:
        >>> from colligate.binding import object_product
        >>> from colligate.scenes.splits import ByScene
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> embeddings = Embeddings(object_product(scenes.space, 2, 64)(scenes.values).float(), scenes)
        >>> probes = fit_probes(embeddings, ByScene().split(scenes, seed=0))
        >>> [tuple(w.shape) for w in probes.concepts], tuple(probes.objects.shape)
        ([(3, 64), (2, 64)], (6, 64))
    """
    settings = settings or ProbeSettings()
    scenes = embeddings.scenes
    targets: dict[str, Tensor] = {name: scenes.contains(c) for c, name in enumerate(scenes.space.names)}
    if settings.objects:
        targets["object"] = scenes.contains_objects()
    for name, present in targets.items():
        missing = (~present[split.fit].any(0)).nonzero()[:, 0].tolist()
        if missing:
            words = [
                scenes.space.describe_object(m) if name == "object" else scenes.space.words[scenes.space.concept(name)][m]
                for m in missing[:5]
            ]
            raise ValueError(
                f"The fit part never shows {'the object' if name == 'object' else name} {', '.join(map(repr, words))}"
                f"{' and others' if len(missing) > 5 else ''}, so no probe can learn it; take a larger fit part."
            )
    fit = _fit_strict if settings.protocol == "strict" else _fit_paper
    weights, strengths, losses, steps = fit(embeddings.vectors, targets, split, settings)
    return Probes(
        scenes.space, tuple(weights[name] for name in scenes.space.names), weights.get("object"), strengths, losses, steps
    )


_Fitted = tuple[dict[str, Tensor], dict[str, float], dict[str, float], dict[str, int]]


def soft_targets(present: Bool[Tensor, "scene query"], dtype: torch.dtype) -> Float[Tensor, "scene query"]:
    """Uniform over what is present."""
    return present.to(dtype) / present.sum(1, keepdim=True)


@runtime_checkable
class ScoreLoss(Protocol):
    """A loss on linear scores, for a stack of members; `members` index whatever the loss keeps for each."""

    def value(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, " member"]:
        """Mean loss over scenes, in nats."""
        ...

    def gradient(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member scene query"]:
        """Its gradient in the scores."""
        ...


class SoftmaxLoss:
    """Cross-entropy of softmax scores against soft targets; member m has targets `targets[of[m]]`."""

    def __init__(self, targets: Float[Tensor, "problem scene query"], of: Int[Tensor, " member"]) -> None:
        self.targets, self.of = targets, of

    def value(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, " member"]:
        """Mean cross-entropy, in nats."""
        targets = self.targets[self.of[members]]
        return (scores.logsumexp(2) - (targets * scores).sum(2)).mean(1)

    def gradient(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member scene query"]:
        """Softmax minus targets, over the number of scenes."""
        return (scores.softmax(2) - self.targets[self.of[members]]) / scores.shape[1]


@dataclass(frozen=True, eq=False)
class Axes:
    """Principal axes of the vectors of a fit part, in which read-outs are fitted.

    Attributes:
        to_axes: maps vectors to features: the vectors in their principal axes, over the root of their variance.
    """

    to_axes: Float[Tensor, "dim axis"]

    @classmethod
    def of(cls, vectors: Float[Tensor, "scene dim"]) -> "Axes":
        """The axes of these vectors (uncentred; read-outs have no bias, and the mean direction serves as one)."""
        wide = vectors.double()
        size = (wide - wide.mean(0)).square().sum(1).mean().sqrt().clamp(min=1e-12)
        axes = torch.linalg.eigh(wide.T @ wide)[1].flip(1)[:, : min(wide.shape)]
        return cls((axes / size).float())

    def features(self, vectors: Float[Tensor, "scene dim"]) -> Float[Tensor, "scene axis"]:
        """Vectors in these axes."""
        return (vectors.double() @ self.to_axes.double()).float()


class LinearReadouts:
    """Stack of penalised linear read-outs that share their features, as a problem for `fitting.minimise`.

    Member m has shrinkage `shrinkages[m]`. Its parameters are its weights divided by
    `scale = (energy + shrinkage)^-1/2`, under which the penalty is plain and the problem well conditioned.
    """

    def __init__(
        self,
        features: Float[Tensor, "scene axis"],
        loss: ScoreLoss,
        queries: int,
        shrinkages: Float[Tensor, " member"],
        penalty: float,
    ) -> None:
        self.features, self.loss, self.penalty = features, loss, penalty
        self.scale = 1 / (features.square().mean(0) + shrinkages[:, None]).sqrt()
        self.shape = (features.shape[1], queries)

    def weights(
        self, parameters: Float[Tensor, "member parameter"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member axis query"]:
        """Unscaled weights."""
        return parameters.reshape(-1, *self.shape) * self.scale[members][:, :, None]

    def state(
        self, parameters: Float[Tensor, "member parameter"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member scene query"]:
        """Scores."""
        weights = self.weights(parameters, members)
        flat = weights.permute(1, 0, 2).reshape(self.shape[0], -1)  # axis, member * query
        return (self.features @ flat).reshape(len(self.features), len(members), -1).permute(1, 0, 2)

    def value(
        self,
        state: Float[Tensor, "member scene query"],
        parameters: Float[Tensor, "member parameter"],
        members: Int[Tensor, " member"],
    ) -> Float[Tensor, " member"]:
        """Loss plus penalty."""
        return self.loss.value(state, members) + 0.5 * self.penalty * parameters.square().sum(1)

    def gradient(
        self,
        state: Float[Tensor, "member scene query"],
        parameters: Float[Tensor, "member parameter"],
        members: Int[Tensor, " member"],
    ) -> Float[Tensor, "member parameter"]:
        """Gradient in the scaled parameters."""
        residual = self.loss.gradient(state, members)
        flat = residual.permute(1, 0, 2).reshape(len(self.features), -1)
        by_weight = (self.features.T @ flat).reshape(self.shape[0], len(members), -1).permute(1, 0, 2)
        return (by_weight * self.scale[members][:, :, None]).reshape(len(members), -1) + self.penalty * parameters


def _fit_strict(vectors: Tensor, targets: dict[str, Tensor], split: Split, settings: ProbeSettings) -> _Fitted:
    axes = Axes.of(vectors[split.fit])
    features, validation = axes.features(vectors[split.fit]), vectors[split.validation]
    names_of: dict[int, list[str]] = {}
    for name, present in targets.items():
        names_of.setdefault(present.shape[1], []).append(name)
    weights, strengths, losses, steps = {}, {}, {}, {}
    for names in names_of.values():
        stacked = torch.stack([soft_targets(targets[name][split.fit], torch.float32) for name in names])
        tried = [(i, strength) for i in range(len(names)) for strength in settings.strengths]
        found: dict[int, list[tuple[tuple[float, float], float, Tensor, float, int]]] = {}
        for block in _blocks(tried, stacked[0].numel()):
            of = torch.tensor([i for i, _ in block])
            shrinkages = torch.tensor([strength for _, strength in block])
            problem = LinearReadouts(
                features, SoftmaxLoss(stacked, of), stacked.shape[2], shrinkages, settings.penalty
            )
            start = torch.zeros(len(block), features.shape[1] * stacked.shape[2])
            best = minimise(problem, start, max_steps=settings.max_steps)
            members = torch.arange(len(block))
            matrices = problem.weights(best.parameters, members).permute(0, 2, 1) @ axes.to_axes.T  # member, query, dim
            entropies = problem.loss.value(problem.state(best.parameters, members), members).tolist()
            for m, (i, strength) in enumerate(block):
                merit = _merit(validation.float() @ matrices[m].T, targets[names[i]][split.validation])
                found.setdefault(i, []).append((merit, strength, matrices[m], entropies[m], int(best.steps[m])))
        for i, name in enumerate(names):
            _, strengths[name], weights[name], losses[name], steps[name] = max(found[i], key=lambda one: one[0])
    return weights, strengths, losses, steps


def _blocks(tried: list[tuple[int, float]], size: int) -> Iterator[list[tuple[int, float]]]:
    """As many members at a time as keep the stacked logits below 50 million numbers."""
    step = max(1, 50_000_000 // max(size, 1))
    for start in range(0, len(tried), step):
        yield tried[start : start + step]


def _merit(scores: Tensor, present: Tensor) -> tuple[float, float]:
    targets = soft_targets(present, scores.dtype)
    loss = (scores.logsumexp(1) - (targets * scores).sum(1)).mean()
    return float(recognise(scores, present).hits.double().mean()), -float(loss)


def _fit_paper(vectors: Tensor, targets: dict[str, Tensor], split: Split, settings: ProbeSettings) -> _Fitted:
    features = vectors[split.fit].float()
    torch_generator = torch.Generator().manual_seed(settings.seed)
    bound = features.shape[1] ** -0.5  # the default initialisation of a linear layer
    names = list(targets)
    sizes = [targets[name].shape[1] for name in names]
    weight = torch.cat(
        [(torch.rand(size, features.shape[1], generator=torch_generator) * 2 - 1) * bound for size in sizes]
    ).requires_grad_()
    wanted = [soft_targets(targets[name][split.fit], torch.float32) for name in names]
    optimiser = torch.optim.Adam([weight], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.paper_steps)
    for _ in range(settings.paper_steps):
        logits = (features @ weight.T).split(sizes, dim=1)
        loss = torch.stack(
            [(z.logsumexp(1) - (t * z).sum(1)).mean() for z, t in zip(logits, wanted, strict=True)]
        ).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    matrices = dict(zip(names, weight.detach().split(sizes), strict=True))
    logits = {name: features @ matrices[name].T for name in names}
    losses = {
        name: float((logits[name].logsumexp(1) - (t * logits[name]).sum(1)).mean())
        for name, t in zip(names, wanted, strict=True)
    }
    return matrices, dict.fromkeys(names, 0.0), losses, dict.fromkeys(names, settings.paper_steps)
