"""How many bits do the vectors take, given what their scenes hold and a family of rules that may be learned from them?

A prequential (online) code: objects are revealed in blocks; a family is fitted to the scenes of the objects revealed so
far and then codes the scenes that the next block completes. A simple rule that is right soon codes the rest cheaply; a
rule that only memorises gains nothing. No parameter count or penalty is needed: what learning costs is in the code.

The contrast of a scene and its swap is coded apart: nearly all bits of a scene are about which values it holds, and
those of the contrast are about which go together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.approximation.approximators import Approximator, Data, Fitted
from colligate.approximation.contrast import Swaps
from colligate.approximation.readers import some
from colligate.embeddings import Embeddings
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

PRECISION = 1e-3
"""Cell width of the vectors' coordinates, as a share of their total standard deviation (root of the total variance)."""
NARROWEST = 0.6
"""Least standard deviation of the residual model, in cells: the densities of all cells then sum to one within 0.002."""
START = 8
"""How many residuals the variance of a block begins with; the fewest held-out pairs before a block codes contrasts."""
ROUNDED = 1e-5
"""Contrasts smaller than this share of the vectors' total standard deviation are rounding: the same vector twice."""


@dataclass(frozen=True, kw_only=True)
class CodeSettings:
    """How objects are revealed."""

    blocks: int = 8
    """Blocks of objects; the first is coded without any rule."""
    validation: float = 0.2
    """Share of the revealed objects that choose step, rate and penalty; only those seen by neither are coded after."""
    budget: int = 10_000
    """Most revealed scenes that a family learns from before a block; above it, a seeded choice."""
    seed: int = 0
    """Of the order of objects, shared by all families, and of what families draw."""


@dataclass(frozen=True, eq=False)
class CodeLength:
    """Bits that a family takes.

    Attributes:
        family: its name; `gaussian` for the baseline, which knows the mean alone.
        bits: of every coded scene.
        rows: those scenes.
        stage: the block that completed each.
        contrast: of every coded contrast between a scene and its swap.
        pairs: those (rows of `Swaps.pairs`).
        blind: whether the family predicted no contrast at all; so does the baseline.
        per_scene: mean bits.
    """

    family: str
    bits: Float[Tensor, " row"]
    rows: Int[Tensor, " row"]
    stage: Int[Tensor, " row"]
    contrast: Float[Tensor, " pair"]
    pairs: Int[Tensor, " pair"]
    blind: bool

    @property
    def per_scene(self) -> float:
        """Mean bits of a scene."""
        return float(self.bits.mean())


@dataclass(frozen=True)
class Gaussian:
    """The baseline: every vector is the mean of those seen, plus noise.

    Example:
        >>> Gaussian().name
        'gaussian'
    """

    name: str = "gaussian"

    def contains(self, other: Approximator) -> bool:
        """It contains nothing."""
        del other
        return False

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """The mean of each fit part."""
        del seed

        def constant(mean: Tensor) -> Fitted:
            return Fitted(lambda scenes: mean.expand(len(scenes), -1), identified=True)

        return [constant(data.targets[split.fit].mean(0)) for split in splits]


def code_lengths(
    embeddings: Embeddings,
    families: Sequence[Approximator],
    settings: CodeSettings | None = None,
    *,
    swaps: Swaps | None = None,
    report: Callable[[str, int, int], None] | None = None,
) -> list[CodeLength]:
    """Prequential code length of the vectors under each family and under the Gaussian baseline, which comes first.

        bits(s) = - sum_d log2 ( delta N(x_d(s); m_d + a_d (g_d(s) - m_d), v_d) )

    in the vectors' principal axes, delta being 10^-3 of the total standard deviation. g is fitted to the scenes of the
    objects revealed before, of which a fifth are held out to choose on; m is the mean of what it is fitted to. All
    families share one model of the residual. How far an axis trusts the rule is what the held-out objects' scenes say,

        a_d = < g_d - m_d, x_d - m_d > / | g_d - m_d |^2    within [0, 1],

    since a rule that predicts wide axes well may add noise to narrow ones, which squared errors hardly show and bits
    do. What is left is normal, independent in these axes, its variance v_d the running mean square so far in the block,
    begun with eight of the size of those on the held-out objects. Axes narrower than a cell are left out; they cost all
    families the same.

    The contrast of a scene and its swap (`contrast.Swaps`) is coded in the same way: x(s) - x(s') given g(s) - g(s'),
    around 0 instead of a mean, delta being 10^-3 of the contrasts' own total standard deviation. Coded are pairs whose
    two scenes are completed by the same block, so that no rule has learned from either, in blocks before which the held
    out objects hold at least eight pairs. A family that is blind to swaps takes as many bits as the baseline.

    Args:
        embeddings: vectors of scenes of several objects.
        families: what is fitted.
        settings: blocks and seed.
        swaps: pairs of these scenes, where they are known already.
        report: told how many families are coded.

    Raises:
        ValueError: too few objects for the blocks.

    Source: Dawid, "Present position and potential developments: the prequential approach", J. R. Stat. Soc. A (1984);
    Blier and Ollivier, "The description length of deep learning models", NeurIPS 2018. The paper argues from minimum
    description length but doesn't measure it.

    Example:
        >>> from colligate.binding import object_product
        >>> from colligate.approximation.approximators import Additive
        >>> from colligate.approximation.products import ObjectProducts
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=6, shape=6).all_scenes(slots=2)
        >>> embeddings = Embeddings(object_product(scenes.space, 2, 8)(scenes.values), scenes)
        >>> found = {one.family: one.per_scene for one in code_lengths(embeddings, [Additive(), ObjectProducts()])}
        >>> found["object_product"] < 0.8 * found["additive"]
        True
    """
    settings, swaps = settings or CodeSettings(), swaps or Swaps.of(embeddings.scenes)
    data = Data.of(embeddings)
    splits, stages = _stages(data.scenes, settings)
    size = math.sqrt(float(data.targets.double().square().sum(1).mean()))
    rows, contrasts = torch.cat([split.test for split in splits]), _Contrasts.of(data, swaps, splits, size)
    found = list[CodeLength]()
    for number, family in enumerate((Gaussian(), *families)):
        if report is not None:
            report("code length", number, len(families) + 1)
        fits = family.fit(data, splits, settings.seed)
        bits = list[Tensor]()
        for split, fitted in zip(splits, fits, strict=True):
            before, coded = _residuals(data, fitted, split)
            bits.append(_code(coded, before.square().mean(0), PRECISION * size))
        contrast, blind = contrasts.code(data, fits)
        found.append(CodeLength(
            family.name, torch.cat(bits), rows, torch.cat(stages), contrast, contrasts.pairs, blind
        ))  # fmt: skip
    return found


@dataclass(frozen=True, eq=False)
class _Contrasts:
    """Which contrasts are coded in each block, and which held-out ones say how far to trust a rule there.

    Attributes:
        swaps: all pairs.
        parts: of each block: held-out scenes and their pairs, the block's scenes and theirs; no pairs where nothing is
            coded.
        pairs: all that are coded.
        delta: cell width.
        nothing: predictions smaller than this are rounding.
    """

    swaps: Swaps
    parts: list[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]
    pairs: Int[Tensor, " pair"]
    delta: float
    nothing: float

    @classmethod
    def of(cls, data: Data, swaps: Swaps, splits: Sequence[Split], size: float) -> "_Contrasts":
        """The pairs within held-out and coded scenes."""
        none, nothing = torch.zeros(0, dtype=torch.int64), ROUNDED * size
        parts, total = list[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]](), 0.0
        for split in splits:
            held, coded = swaps.within(split.validation), swaps.within(split.test)
            held, coded = (held, coded) if len(held) >= START else (none, none)
            total += float(swaps.contrasts(coded, split.test, data.targets[split.test]).square().sum())
            parts.append(((split.validation, held), (split.test, coded)))
        pairs = torch.cat([coded for _, (_, coded) in parts])
        own = math.sqrt(total / len(pairs)) if len(pairs) else 0.0
        if own <= nothing:
            return cls(swaps, [((held, none), (coded, none)) for (held, _), (coded, _) in parts], none, 0.0, nothing)
        return cls(swaps, parts, pairs, PRECISION * own, nothing)

    def code(self, data: Data, fits: Sequence[Fitted]) -> tuple[Float[Tensor, " pair"], bool]:
        """Bits of each contrast under the rule of its block, and whether none of the rules predicts any."""
        bits, blind = [torch.zeros(0, dtype=torch.float64)], True
        for fitted, (held, coded) in zip(fits, self.parts, strict=True):
            if not len(coded[1]):
                continue
            (known, told), (new, predicted) = (self._told(data, fitted, *part) for part in (held, coded))
            blind = blind and not bool(told.any()) and not bool(predicted.any())
            trust = _trust(told, known)
            bits.append(_code(new - trust * predicted, (known - trust * told).square().mean(0), self.delta))
        return torch.cat(bits), blind

    def _told(self, data: Data, fitted: Fitted, rows: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Contrasts of these pairs, and what a rule predicts of them."""
        true = self.swaps.contrasts(pairs, rows, data.targets[rows])
        told = self.swaps.contrasts(pairs, rows, fitted.rule(data.scenes[rows]))
        return true, torch.where(told.square().sum(1, keepdim=True).sqrt() > self.nothing, told, 0.0)


def _stages(scenes: Scenes, settings: CodeSettings) -> tuple[list[Split], list[Tensor]]:
    """For every block but the first: what was revealed before (to fit and to choose on), and what it completes."""
    present = scenes.objects[scenes.filled].unique()
    if len(present) < 2 * settings.blocks:
        raise ValueError(
            f"{len(present)} objects can't be revealed in {settings.blocks} blocks of at least two; "
            "take fewer blocks or more objects."
        )
    generator = torch.Generator().manual_seed(settings.seed)
    order = present[torch.randperm(len(present), generator=generator)]
    block = torch.zeros(scenes.space.num_objects, dtype=torch.int64)
    for number, objects in enumerate(order.tensor_split(settings.blocks)):
        block[objects] = number
    completed = block[scenes.objects.clamp(min=0)].masked_fill(~scenes.filled, -1).amax(1)
    splits, stages = list[Split](), list[Tensor]()
    for number in range(1, settings.blocks):
        before = order[block[order] < number]
        few = max(1, int(settings.validation * len(before)))
        chosen = before[torch.randperm(len(before), generator=generator)][:few]
        choosing = torch.zeros(scenes.space.num_objects, dtype=torch.bool)
        choosing[chosen] = True
        held = (choosing[scenes.objects.clamp(min=0)] & scenes.filled).any(1)
        revealed = completed < number
        coded = (completed == number).nonzero()[:, 0]
        coded = coded[torch.randperm(len(coded), generator=generator)]
        if not len(coded) or not bool((revealed & ~held).any()) or not bool((revealed & held).any()):
            continue
        shown = some((revealed & ~held).nonzero()[:, 0], settings.budget, settings.seed)
        splits.append(Split(
            shown, (revealed & held).nonzero()[:, 0], coded, f"block {number}",
            {"fit": before[~choosing[before]], "validation": chosen, "test": order[block[order] == number]},
        ))  # fmt: skip
        stages.append(torch.full_like(coded, number))
    return splits, stages


def _residuals(
    data: Data, fitted: Fitted, split: Split
) -> tuple[Float[Tensor, "held axis"], Float[Tensor, "coded axis"]]:
    """What a rule leaves of the scenes held out and of those to code, each axis trusting it as far as it may."""
    mean = data.targets[split.fit].double().mean(0)
    parts = (split.validation, split.test)
    held, coded = (data.targets[rows].double() - mean for rows in parts)
    told, predicted = (fitted.rule(data.scenes[rows]).double() - mean for rows in parts)
    trust = _trust(told, held)
    return held - trust * told, coded - trust * predicted


def _trust(told: Float[Tensor, "held axis"], true: Float[Tensor, "held axis"]) -> Float[Tensor, " axis"]:
    """How far each axis of a rule is borne out by what was held out."""
    size = told.square().sum(0)
    return torch.where(size > 0, (told * true).sum(0) / size.clamp(min=1e-300), 0.0).clamp(0, 1)


def _code(
    residuals: Float[Tensor, "scene axis"], variance: Float[Tensor, " axis"], delta: float
) -> Float[Tensor, " scene"]:
    """Bits of each scene, coded in order."""
    squares = residuals.square()
    before = squares.cumsum(0) - squares
    counts = torch.arange(len(squares), dtype=torch.float64)[:, None] + START
    running = ((START * variance + before) / counts).clamp(min=(NARROWEST * delta) ** 2)
    nats = 0.5 * (squares / running + (2 * math.pi * running).log()) - math.log(delta)
    return nats.sum(1) / math.log(2)
