"""Probes of a set of vectors: fitted, chosen, and what they recognise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.fitting import minimise
from colligate.measures import recognise
from colligate.probes.readouts import Axes, LinearReadouts, SoftmaxLoss, cross_entropy, soft_targets
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import Split

ProtocolName = Literal["strict", "paper"]
"""`strict` chooses on validation and reports on test; `paper` does what the authors' code does."""


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """How probes are fitted."""

    protocol: ProtocolName = "strict"
    """`strict`: L-BFGS to convergence, strength chosen on validation. `paper`: full-batch Adam, 1e-2 falling to 0."""
    penalty: float = 3e-6
    """Weight of the penalty on the scores' size (strict)."""
    strengths: tuple[float, ...] = (1e-8, 1e-6, 1e-4, 1e-2, 1.0)
    """Shrinkages tried, relative to the vectors' variance: near 0 all directions count alike, at 1 large ones lead."""
    screened: int = 20_000
    """Most fit scenes on which strengths are compared (strict); the chosen one is then fitted on all of them."""
    max_steps: int = 300
    """Most L-BFGS steps (strict)."""
    tolerance: float = 1e-4
    """When a member has converged: see `fitting.minimise` (strict)."""
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
        known: which objects occur in the set that the probes come from; the others are no alternatives.
        strengths: name of the read-out -> shrinkage chosen.
        losses: name of the read-out -> cross-entropy on the fit part, in nats.
        steps: name of the read-out -> steps taken.
        shown: which values occur in that set, those of all concepts one after the other; None: all do.
    """

    space: ConceptSpace
    concepts: tuple[Float[Tensor, "_ dim"], ...]
    objects: Float[Tensor, "object dim"] | None
    strengths: Mapping[str, float]
    losses: Mapping[str, float]
    steps: Mapping[str, int]
    known: Bool[Tensor, " object"]
    shown: Bool[Tensor, " value"] | None = None

    @cached_property
    def matrix(self) -> Float[Tensor, "query dim"]:
        """All read-outs one below the other: the values of each concept, then the objects."""
        return torch.cat([*self.concepts, *([] if self.objects is None else [self.objects])])

    def scores(self, vectors: Float[Tensor, "row dim"]) -> Float[Tensor, "row query"]:
        """Scores of all values and objects, linear in the vectors; in float32 at least."""
        wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        return wide @ self.matrix.T.to(vectors.device, wide.dtype)

    def recognise(self, vectors: Float[Tensor, "scene dim"], scenes: Scenes) -> "ProbeOutcomes":
        """Score vectors against scenes: does each read-out put what is present strictly on top?"""
        return self.judge(self.scores(vectors.float()), scenes)

    def judge(self, scores: Float[Tensor, "scene query"], scenes: Scenes) -> "ProbeOutcomes":
        """The same from scores."""
        sizes, of_values = list(self.space.sizes), scores[:, : sum(self.space.sizes)]
        values = torch.cat([scenes.contains(c) for c in range(self.space.num_concepts)], dim=1).to(scores.device)
        absent = ~values if self.shown is None else ~values & self.shown.to(scores.device)
        by_concept = zip(*(of.split(sizes, dim=1) for of in (of_values, values, absent)), strict=True)
        hits = torch.stack([recognise(*own).hits for own in by_concept], dim=1)
        across = recognise(of_values, values, absent).hits
        if self.objects is None:
            return ProbeOutcomes(hits, across, None, None, None)
        of_objects = scores[:, sum(self.space.sizes) :]
        present, foils = scenes.contains_objects(), swap_foils(scenes) & self.known
        found = recognise(of_objects, present, ~present & self.known)
        against_swap = recognise(of_objects, present, foils).hits
        return ProbeOutcomes(hits, across, found.hits, torch.where(foils.any(1), against_swap, False), found.ties)


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
            both = scenes.filled[:, first] & scenes.filled[:, second]  # an empty slot has nothing to exchange
            for concept in range(scenes.space.num_concepts):
                swapped = scenes[both].swap(concept, (first, second)).objects
                for slot in (first, second):
                    foils[rows[both], swapped[:, slot]] = True
    return foils & ~scenes.contains_objects()


@dataclass(frozen=True, eq=False)
class ProbeOutcomes:
    """Per-scene outcomes of the read-outs.

    Attributes:
        concepts: for each concept, whether its present values beat its absent ones.
        across: whether every present value of any concept beats every absent one of any (Definition 3.3 as written).
        objects: whether the present objects beat all absent ones; None without an object probe.
        swaps: whether they beat those of the swapped scenes; False where a swap changes nothing (`swap_foils`).
        ties: whether present and absent objects tied.
    """

    concepts: Bool[Tensor, "scene concept"]
    across: Bool[Tensor, " scene"]
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
        ValueError: the fit part lacks a value, or an object that occurs elsewhere; the message names it.

    Paper: arXiv:2605.31503, "probing".
    Differs: the authors take 10,000 Adam steps without penalty, on 40 % of scenes.

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
    targets = _targets(embeddings.scenes, split, settings)
    if settings.protocol == "strict":
        fitted = _fit_strict(embeddings.vectors, targets, split, settings)
    else:
        fitted = _fit_paper(embeddings, targets, split, [settings.seed], settings.paper_steps)[0]
    return _probes(embeddings.scenes, *fitted)


def _targets(scenes: Scenes, split: Split, settings: ProbeSettings) -> dict[str, Bool[Tensor, "scene _"]]:
    """What each read-out should find, by name, after checking that the fit part shows all of it that occurs.

    Under protocol `paper` a value that only other parts show has a read-out too, as in the authors' code.
    """
    space = scenes.space
    targets = {name: scenes.contains(c) for c, name in enumerate(space.names)}
    if settings.objects:
        targets["object"] = scenes.contains_objects()
    for name, present in targets.items():
        missing = (present.any(0) & ~present[split.fit].any(0)).nonzero()[:, 0].tolist()
        if missing and (settings.protocol == "strict" or name == "object"):
            words = [
                space.describe_object(m) if name == "object" else space.words[space.concept(name)][m]
                for m in missing[:5]
            ]
            what = f"{'the object' if name == 'object' else name} {', '.join(map(repr, words))}"
            what += " and others" if len(missing) > 5 else ""
            raise ValueError(f"The fit part never shows {what}, so no probe can learn it; take a larger fit part.")
    return targets


def _probes(
    scenes: Scenes,
    weights: Mapping[str, Tensor],
    strengths: Mapping[str, float],
    losses: Mapping[str, float],
    steps: Mapping[str, int],
) -> Probes:
    concepts, known = tuple(weights[name] for name in scenes.space.names), scenes.contains_objects().any(0)
    shown = torch.cat([scenes.contains(c).any(0) for c in range(scenes.space.num_concepts)])
    return Probes(scenes.space, concepts, weights.get("object"), strengths, losses, steps, known, shown)


_Fitted = tuple[dict[str, Tensor], dict[str, float], dict[str, float], dict[str, int]]


def _fit_strict(vectors: Tensor, targets: dict[str, Tensor], split: Split, settings: ProbeSettings) -> _Fitted:
    if not len(split.validation) and len(settings.strengths) > 1:
        raise ValueError(
            f"The split {split.name} has no validation part to choose the probes' strength on; give it one, or give "
            "ProbeSettings a single strength."
        )
    axes = Axes.of(vectors[split.fit])
    features, validation = axes.features(vectors[split.fit]), vectors[split.validation].float()
    few = len(features) <= settings.screened
    trial = torch.arange(len(features)) if few else _some(len(features), settings.screened, settings.seed)
    names_of: dict[int, list[str]] = {}
    for name, present in targets.items():
        names_of.setdefault(present.shape[1], []).append(name)
    weights, strengths, losses, steps = {}, {}, {}, {}
    for names in names_of.values():
        soft = torch.stack([soft_targets(targets[name][split.fit], torch.float32) for name in names])
        tried = [(i, strength) for i in range(len(names)) for strength in settings.strengths]
        found: dict[int, list[tuple[tuple[float, float], float, _Readout]]] = {}
        for (i, strength), readout in _readouts(features[trial], soft[:, trial], tried, settings):
            scores = validation @ (readout.weights.T @ axes.to_axes.T).T
            merit = _merit(scores, targets[names[i]][split.validation])
            found.setdefault(i, []).append((merit, strength, readout))
        best = {i: max(of_name, key=lambda one: one[0])[1:] for i, of_name in found.items()}
        if not few:
            chosen, start = [(i, strength) for i, (strength, _) in best.items()], [r.weights for _, r in best.values()]
            again = _readouts(features, soft, chosen, settings, start)
            best = {i: (strength, readout) for (i, strength), readout in again}
        for i, (strength, readout) in best.items():
            weights[names[i]], strengths[names[i]] = readout.weights.T @ axes.to_axes.T, strength
            losses[names[i]], steps[names[i]] = readout.loss, readout.steps
    return weights, strengths, losses, steps


class _Readout(NamedTuple):
    """One fitted read-out: weights on the features, its cross-entropy on the fit part, steps taken."""

    weights: Float[Tensor, "axis query"]
    loss: float
    steps: int


def _readouts(
    features: Float[Tensor, "scene axis"],
    soft: Float[Tensor, "problem scene query"],
    tried: Sequence[tuple[int, float]],
    settings: ProbeSettings,
    start: Sequence[Float[Tensor, "axis query"]] | None = None,
) -> Iterator[tuple[tuple[int, float], _Readout]]:
    """Fit a read-out for each (problem, strength), from zero or from given weights."""
    done = 0
    for block in _blocks(tried, soft[0].numel()):
        of = torch.tensor([i for i, _ in block])
        shrinkages = torch.tensor([strength for _, strength in block])
        problem = LinearReadouts(features, SoftmaxLoss(soft, of), soft.shape[2], shrinkages, settings.penalty)
        at = torch.zeros(len(block), features.shape[1] * soft.shape[2])
        if start is not None:
            given = torch.stack(list(start[done : done + len(block)]))
            at = (given / problem.scale[:, :, None]).reshape(len(block), -1)
        best = minimise(problem, at, max_steps=settings.max_steps, tolerance=settings.tolerance)
        members = torch.arange(len(block))
        matrices = problem.weights(best.parameters, members)
        entropies = problem.loss.value(problem.state(best.parameters, members), members).tolist()
        for m, one in enumerate(block):
            yield one, _Readout(matrices[m], entropies[m], int(best.steps[m]))
        done += len(block)


def _some(of: int, budget: int, seed: int) -> Int[Tensor, " row"]:
    return torch.randperm(of, generator=torch.Generator().manual_seed(seed))[:budget].sort().values


def _blocks(tried: Sequence[tuple[int, float]], size: int) -> Iterator[Sequence[tuple[int, float]]]:
    """As many members at a time as keep the stacked logits below 50 million numbers."""
    step = max(1, 50_000_000 // max(size, 1))
    for start in range(0, len(tried), step):
        yield tried[start : start + step]


def _merit(scores: Tensor, present: Tensor) -> tuple[float, float]:
    loss = cross_entropy(scores, soft_targets(present, scores.dtype))
    return float(recognise(scores, present).hits.double().mean()), -float(loss)


def fit_paper_probes(
    embeddings: Embeddings, split: Split, seeds: Sequence[int], settings: ProbeSettings | None = None
) -> list[Probes]:
    """Fit the probes of protocol `paper` from several initialisations at once, to see how far their spread goes.

        Adam at 1e-2, cosine to 0, full batch, sum of the read-outs' soft-target cross-entropies, no penalty

    Args:
        embeddings: vectors and their scenes.
        split: the fit part trains; the others aren't looked at.
        seeds: of the initial weights; each gives what `fit_probes` gives under that seed.
        settings: number of steps, and whether objects are read too.

    Raises:
        ValueError: a value or object never occurs in the fit part.

    Paper: arXiv:2605.31503, "probing".

    Example:
        >>> from colligate.binding import object_product
        >>> from colligate.scenes.splits import PaperScenes
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> embeddings = Embeddings(object_product(scenes.space, 2, 64)(scenes.values).float(), scenes)
        >>> settings = ProbeSettings(protocol="paper", paper_steps=20)
        >>> len(fit_paper_probes(embeddings, PaperScenes(0.6).split(scenes, seed=0), range(3), settings))
        3
    """
    settings = settings or ProbeSettings(protocol="paper")
    targets = _targets(embeddings.scenes, split, settings)
    fitted = _fit_paper(embeddings, targets, split, seeds, settings.paper_steps)
    return [_probes(embeddings.scenes, *one) for one in fitted]


def _fit_paper(
    embeddings: Embeddings, targets: dict[str, Tensor], split: Split, seeds: Sequence[int], steps: int
) -> list[_Fitted]:
    features = embeddings.vectors[split.fit].float()
    wanted = {name: soft_targets(present[split.fit], torch.float32)[:, None] for name, present in targets.items()}
    sizes = [present.shape[1] for present in targets.values()]
    weight = torch.stack([_initial_weights(sizes, features.shape[1], seed) for seed in seeds])  # seed, query, dim
    if "object" in targets:  # the authors number objects as they first appear in the scenes
        order = embeddings.scenes.objects_by_appearance
        read = sum(sizes[:-1]) + torch.arange(len(order))
        weight[:, sum(sizes[:-1]) + order] = weight[:, read]
    optimiser = torch.optim.Adam([weight], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        logits = (features @ weight.flatten(0, 1).T).unflatten(1, weight.shape[:2]).split(sizes, dim=2)
        residual = [of.softmax(2) - target for of, target in zip(logits, wanted.values(), strict=True)]
        flat = torch.cat(residual, dim=2).flatten(1)
        weight.grad = (flat.T @ features).reshape(weight.shape) / len(features)
        optimiser.step()
        schedule.step()
    found: list[_Fitted] = []
    for seed in range(len(seeds)):
        matrices = dict(zip(targets, weight[seed].split(sizes), strict=True))
        losses = {
            name: float(cross_entropy(features @ matrices[name].T, target[:, 0])) for name, target in wanted.items()
        }
        found.append((matrices, dict.fromkeys(targets, 0.0), losses, dict.fromkeys(targets, steps)))
    return found


def _initial_weights(sizes: Sequence[int], dim: int, seed: int) -> Float[Tensor, "query dim"]:
    """The default initialisation of one linear layer for each read-out."""
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([torch.rand(size, dim, generator=generator) * 2 - 1 for size in sizes]) * dim**-0.5
