"""How much does a vector tell about which values go together, beyond which values there are? In bits.

Let F be which values are present, and how often, and Y the unordered set of objects. A read-out gives every object a
score; the score of a set of objects is the sum over its members, and probabilities are taken only among the sets that
agree with F:

    p(Y | F, z) ~ p(Y | F) exp(temperature * sum over o in Y of score(o, z)),     p(Y | F) counted in the scenes

    information  I(Y; Z | F)  >=  H(Y | F) - CE(Y | F, Z)        ratio = that / H(Y | F)

The bound holds for any read-out. It is 0 for a bag of concepts and 1 for vectors that tell all. Two objects that differ
in two concepts leave two sets, the scene and its swap: one bit. (How often matters from three objects on, where a sum
of values tells two reds and a blue from a red and two blues without any binding.)

Idea: arXiv:2606.03976.   Differs: theirs subtracts two cross-entropies fitted apart, which is not a bound.
"""

from dataclasses import dataclass
from math import log
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.fitting import minimise
from colligate.probes import Axes, LinearReadouts
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import Split

BIT = log(2)
TEMPERATURES = (0.0, *(2.0 ** (k / 2) for k in range(-12, 5)))
"""Tried on the validation part; 0 ignores the vector and gives the entropy itself."""


@dataclass(frozen=True, eq=False)
class Alternatives:
    """For each scene, the sets of objects that agree with its values, its own first.

    Attributes:
        objects: object ids of every alternative; -1 where a set is smaller or there are fewer alternatives.
        log_prior: log p(Y | F) in nats, -inf where there are fewer alternatives.
    """

    objects: Int[Tensor, "scene alternative slot"]
    log_prior: Float[Tensor, "scene alternative"]

    @property
    def entropy(self) -> Float[Tensor, " scene"]:
        """-log2 p(Y | F) of each scene's own set; its mean is H(Y | F)."""
        return -self.log_prior[:, 0] / BIT

    def __getitem__(self, rows: Tensor) -> "Alternatives":
        """Those of the given rows."""
        return Alternatives(self.objects[rows], self.log_prior[rows])


def alternatives(scenes: Scenes) -> Alternatives:
    """List the sets of objects that occur among the scenes with the same values, equally often, and count them.

    Example:
        >>> both = alternatives(ConceptSpace(color=2, shape=2).all_scenes(slots=2))
        >>> both.objects[3].tolist(), round(both.entropy[3].item(), 3)
        ([[3, 0], [2, 1]], 1.0)
    """
    sets, of_scene, counts = scenes.unordered_ids.unique(return_inverse=True, return_counts=True)
    example = torch.zeros(len(sets), dtype=torch.int64)
    example[of_scene] = torch.arange(len(scenes))
    objects = scenes.objects[example].sort(dim=1, descending=True).values  # set, slot
    facts = scenes.bags[example]
    order = facts.argsort(stable=True)
    _, sizes = facts[order].unique_consecutive(return_counts=True)
    starts = sizes.cumsum(0) - sizes
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    group = torch.repeat_interleave(torch.arange(len(sizes)), sizes)[place]  # of each set
    width = int(sizes.max())
    own = place - starts[group]  # position of each set among those of its values
    offsets = (own[of_scene, None] + torch.arange(width)) % sizes[group[of_scene], None]
    chosen = order[starts[group[of_scene], None] + offsets]  # scene, alternative
    exists = torch.arange(width) < sizes[group[of_scene], None]
    totals = torch.zeros(len(sizes), dtype=torch.float64).index_add_(0, group, counts.double())
    prior = counts[chosen].double() / totals[group[of_scene], None]
    return Alternatives(
        torch.where(exists[..., None], objects[chosen], -1), torch.where(exists, prior.log(), -torch.inf)
    )


def _set_scores(scores: Float[Tensor, "*member scene object"], objects: Tensor) -> Float[Tensor, "*member scene set"]:
    """Sum of the objects' scores for every alternative."""
    width, slots = objects.shape[1:]
    index = objects.clamp(min=0).flatten(1).expand(*scores.shape[:-1], -1)
    picked = scores.gather(-1, index).unflatten(-1, (width, slots))
    return (picked * (objects >= 0)).sum(-1)


@dataclass(frozen=True)
class LinearScores:
    """Score of an object: a linear function of the vector, one for each object."""

    name: str = "linear"

    def queries(self, space: ConceptSpace) -> int:
        """Number of linear functions of the vector that it needs."""
        return space.num_objects

    def scores(self, read: Float[Tensor, "*rows query"], space: ConceptSpace) -> Float[Tensor, "*rows object"]:
        """Scores of all objects."""
        return read


@dataclass(frozen=True)
class QuadraticScores:
    """Score of an object: linear, plus a product over concepts of linear functions shared by all objects with a value.

        score(o, z) = w[o] . z + sum_r prod_c (u[c, o_c, r] . z)

    Attributes:
        rank: number of terms r.
    """

    rank: int = 8
    name: str = "quadratic"

    def queries(self, space: ConceptSpace) -> int:
        """Number of linear functions of the vector that it needs."""
        return space.num_objects + self.rank * sum(space.sizes)

    def scores(self, read: Float[Tensor, "*rows query"], space: ConceptSpace) -> Float[Tensor, "*rows object"]:
        """Scores of all objects."""
        linear, factors = read[..., : space.num_objects], read[..., space.num_objects :]
        by_value = factors.unflatten(-1, (sum(space.sizes), self.rank)).split(list(space.sizes), dim=-2)
        product = by_value[0]
        for factor in by_value[1:]:
            product = (product[..., :, None, :] * factor[..., None, :, :]).flatten(-3, -2)
        return linear + product.sum(-1)


Scores = LinearScores | QuadraticScores


class _SetLoss:
    """Cross-entropy of the true set among its alternatives."""

    def __init__(self, form: Scores, space: ConceptSpace, sets: Alternatives) -> None:
        self.form, self.space, self.sets = form, space, sets

    def value(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, " member"]:
        """Mean over scenes, in nats."""
        return _cross_entropy(self.form.scores(scores, self.space), self.sets).mean(-1)

    def gradient(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member scene query"]:
        """Gradient in the scores."""
        leaf = scores.detach().requires_grad_()
        with torch.enable_grad():
            total = self.value(leaf, members).sum()
        return torch.autograd.grad(total, leaf)[0]


def _cross_entropy(scores: Tensor, sets: Alternatives, temperature: float = 1.0) -> Tensor:
    logits = temperature * _set_scores(scores, sets.objects) + sets.log_prior.to(scores.dtype)
    return logits.logsumexp(-1) - logits[..., 0]


class Information(NamedTuple):
    """Per scored scene, in bits: what there was to tell, and what the read-out left untold."""

    entropy: Float[Tensor, " scene"]
    left: Float[Tensor, " scene"]
    rows: Int[Tensor, " scene"]
    chosen_on: "Information | None" = None
    """The same of the validation part, on which shrinkage, penalty and temperature were chosen."""

    @property
    def bits(self) -> float:
        """H(Y | F) - CE(Y | F, Z)."""
        return float((self.entropy - self.left).mean())

    @property
    def ratio(self) -> float:
        """The same over H(Y | F)."""
        return float((self.entropy - self.left).sum() / self.entropy.sum())


def binding_information(
    embeddings: Embeddings,
    split: Split,
    form: Scores | None = None,
    *,
    shrinkages: tuple[float, ...] = (1e-8, 1e-5, 1e-2),
    penalties: tuple[float, ...] = (1e-4, 1e-2),
    max_steps: int = 100,
    seed: int = 0,
) -> Information:
    """Bound the information that vectors carry about which values go together.

    Fitted on the fit part by L-BFGS; shrinkage, penalty and temperature are chosen on the validation part, the bound
    is taken on the test part.

    Args:
        embeddings: vectors and scenes; scenes whose values leave nothing to tell count with zero bits.
        split: parts.
        form: `LinearScores()` (default) or `QuadraticScores()`.
        shrinkages: tried, as for probes.
        penalties: tried.
        max_steps: most L-BFGS steps.
        seed: of the quadratic form's starting point.

    Raises:
        ValueError: no scene leaves anything to tell (fewer than two objects or concepts that differ), or none of
            the validation part does.

    Example:
        >>> from colligate.binding import no_binding, object_product
        >>> from colligate.scenes.splits import ByScene
        >>> scenes = ConceptSpace(color=6, shape=4).all_scenes(slots=2)
        >>> split = ByScene().split(scenes, seed=0)
        >>> for rule in (no_binding, object_product):
        ...     embeddings = Embeddings(rule(scenes.space, 2, 64)(scenes.values), scenes)
        ...     print(round(abs(binding_information(embeddings, split).ratio), 1))
        0.0
        1.0
    """
    form = form or LinearScores()
    scenes = embeddings.scenes
    sets, fit, validation = _parts_that_tell(scenes, split)
    axes = Axes.of(embeddings.vectors[split.fit])
    features = axes.features(embeddings.vectors)
    best: tuple[float, float, Tensor] | None = None
    for penalty in penalties:
        problem = LinearReadouts(
            features[fit],
            _SetLoss(form, scenes.space, sets[fit]),
            form.queries(scenes.space),
            torch.tensor(shrinkages),
            penalty,
        )
        generator = torch.Generator().manual_seed(seed)
        start = torch.zeros(len(shrinkages), features.shape[1], form.queries(scenes.space))
        products = start[:, :, scenes.space.num_objects :]
        products.copy_(torch.randn(products.shape, generator=generator) * (0.1 / features.shape[1] ** 0.5))
        found = minimise(problem, start.flatten(1), max_steps=max_steps, tolerance=1e-4)
        for weights in problem.weights(found.parameters, torch.arange(len(shrinkages))):
            scores = form.scores(features[validation] @ weights, scenes.space)
            for temperature in TEMPERATURES:
                loss = float(_cross_entropy(scores, sets[validation], temperature).mean())
                if best is None or loss < best[0]:
                    best = loss, temperature, weights
    assert best is not None
    _, temperature, weights = best

    def told(rows: Tensor) -> Information:
        return _told(form.scores(features[rows] @ weights, scenes.space), sets[rows], temperature, rows)

    return told(split.test)._replace(chosen_on=told(validation))


def attention_information(
    tokens: Float[Tensor, "scene token dim"],
    mask: Bool[Tensor, "scene token"],
    scenes: Scenes,
    split: Split,
    *,
    heads: int = 4,
    axes: int = 128,
    steps: int = 400,
    seed: int = 0,
) -> Information:
    """Bound the information in a scene's tokens, read by attention.

        score(o) = sum_h w[h, o] . sum_t softmax_t(q[h] . z[t]) z[t]

    What pooling into one vector throws away shows as the difference from the linear read-out of that vector. Fitted by
    Adam; the step is chosen, as are penalty and temperature, on the validation part.

    Args:
        tokens: the tokens of each scene's item, in the order of `scenes`.
        mask: which tokens are real.
        scenes: what the items show.
        split: parts.
        heads: number of attention heads.
        axes: principal axes of the tokens that are kept.
        steps: Adam steps, each on 512 scenes of the fit part.
        seed: of starting point and batches.

    Raises:
        ValueError: as `binding_information`.

    Example:
        >>> from colligate.binding import object_product
        >>> from colligate.scenes.splits import ByScene
        >>> scenes = ConceptSpace(color=4, shape=4).all_scenes(slots=2)
        >>> one = ConceptSpace(color=4, shape=4).all_scenes(slots=1)
        >>> tokens = object_product(one.space, 1, 32)(one.values).float()[scenes.objects]  # a token for each object
        >>> mask = torch.ones(len(scenes), 2, dtype=torch.bool)
        >>> attention_information(tokens, mask, scenes, ByScene().split(scenes, seed=0)).ratio > 0.5
        True
    """
    sets, fit, validation = _parts_that_tell(scenes, split)
    fitted = tokens[split.fit][mask[split.fit]].float()
    directions = Axes.of(fitted).to_axes[:, :axes]
    spread = (fitted @ directions).std(0)
    told = spread > 1e-6 * spread.max()  # an axis along which all tokens are alike tells nothing
    read = (tokens.float() @ directions[:, told]) / spread[told]
    generator = torch.Generator().manual_seed(seed)
    width, objects = read.shape[2], scenes.space.num_objects
    best: tuple[float, float, Tensor, Tensor] | None = None
    for decay in (0.0, 1e-2):
        queries = torch.randn(heads, width, generator=generator).div_(width**0.5).requires_grad_()
        weights = torch.zeros(heads * width, objects).requires_grad_()
        optimiser = torch.optim.AdamW([queries, weights], lr=3e-2, weight_decay=decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for step in range(1, steps + 1):
            rows = fit[torch.randint(len(fit), (min(512, len(fit)),), generator=generator)]
            loss = _cross_entropy(_attend(read[rows], mask[rows], queries, weights), sets[rows]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            if step % 50 == 0:
                with torch.no_grad():
                    scores = _attend(read[validation], mask[validation], queries, weights)
                    for temperature in TEMPERATURES:
                        left = float(_cross_entropy(scores, sets[validation], temperature).mean())
                        if best is None or left < best[0]:
                            best = left, temperature, queries.detach().clone(), weights.detach().clone()
    assert best is not None
    rows = split.test
    return _told(_attend(read[rows], mask[rows], best[2], best[3]), sets[rows], best[1], rows)


def _told(scores: Tensor, sets: Alternatives, temperature: float, rows: Tensor) -> Information:
    """What is left untold; a temperature of 0 looks at no vector, so that nothing is told, not even by rounding."""
    left = sets.entropy if temperature == 0 else _cross_entropy(scores.double(), sets, temperature) / BIT
    return Information(sets.entropy, left, rows)


def _attend(
    tokens: Float[Tensor, "scene token axis"],
    mask: Bool[Tensor, "scene token"],
    queries: Float[Tensor, "head axis"],
    weights: Float[Tensor, "head_axis object"],
) -> Float[Tensor, "scene object"]:
    attention = (tokens @ queries.T).masked_fill(~mask[..., None], -torch.inf).softmax(1)  # scene, token, head
    return torch.einsum("stx,sth->shx", tokens, attention).flatten(1) @ weights


def _parts_that_tell(scenes: Scenes, split: Split) -> tuple[Alternatives, Tensor, Tensor]:
    """The alternatives of every scene, and the fit and validation rows that leave something to tell."""
    sets = alternatives(scenes)
    told = (sets.entropy > 0).nonzero()[:, 0]
    fit, validation = (_both(rows, told) for rows in (split.fit, split.validation))
    if not len(fit) or not len(_both(split.test, told)):
        raise ValueError(
            "Which values are present already tells the objects of every scene, so there is no binding to measure; "
            "use scenes of two or more objects that differ in two or more concepts."
        )
    if not len(validation):
        raise ValueError(
            f"The split {split.name} has no validation scene that leaves anything to tell, so shrinkage and "
            "temperature can't be chosen; use a split with a validation part."
        )
    return sets, fit, validation


def _both(rows: Int[Tensor, " row"], told: Int[Tensor, " told"]) -> Int[Tensor, " both"]:
    return rows[torch.isin(rows, told)]
