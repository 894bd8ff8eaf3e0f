"""Fit binding functions to vectors: what they are fitted to, what a fit gives back, and the closed-form family.

An approximator is any object with a `name`, `fit(data, splits, seed)` and `contains(other)`; the families of the paper
are `Additive`, `products.ObjectProducts`, `products.GlobalProduct` and `networks.MLP`. Fits work in the vectors'
principal axes: a linear output layer fits each axis on its own, so rotating and leaving out empty axes changes nothing.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.approximation.layers import read_values
from colligate.approximation.metric import Metric
from colligate.binding import Positions
from colligate.embeddings import Embeddings
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

KEPT = 1e-6
"""Axes with less than this share of the total variance are left out."""
ROUNDING = 1e-11
"""The same where axes of any scale must count: less is rounding."""
LARGEST = 3
"""Of so many axes the share of the variance is told."""
ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Frame:
    """The principal axes in which binding functions are fitted.

    Attributes:
        centre: mean vector.
        axes: kept axes, as columns.
        dropped: share of the variance in the axes left out; R2 can be off by no more.
        largest: shares of the variance of the largest principal axes, the largest first.
    """

    centre: Float[Tensor, " dim"]
    axes: Float[Tensor, "dim axis"]
    dropped: float
    largest: tuple[float, ...]

    @classmethod
    def of(cls, vectors: Float[Tensor, "scene dim"], *, whole: bool = False, least: float = KEPT) -> "Frame":
        """The principal axes of these vectors: those that hold a `least` share of the variance, or the whole space.

        Raises:
            ValueError: all vectors are equal.
        """
        centre = vectors.mean(0, dtype=torch.float64)
        spread, size = torch.zeros(len(centre), len(centre), dtype=torch.float64), 0.0
        for block in vectors.split(ROWS_AT_ONCE):
            centred = block.double() - centre
            spread += centred.T @ centred
            size += float(block.double().square().sum())
        total = spread.trace()
        if total <= 1e-12 * size:
            raise ValueError(f"All {len(vectors)} vectors are equal, so no rule can be told from another; embed again.")
        energies, axes = torch.linalg.eigh(spread)
        kept = torch.ones_like(energies, dtype=torch.bool) if whole else energies > least * total
        found, largest = axes[:, kept].flip(1), (energies.flip(0)[:LARGEST] / total).tolist()
        dropped = float(energies[~kept].clamp(min=0).sum() / total)
        return cls(centre, found, dropped, tuple(largest))

    def reduce(self, vectors: Float[Tensor, "scene dim"]) -> Float[Tensor, "scene axis"]:
        """Vectors in these axes, as float32."""
        parts = [((block.double() - self.centre) @ self.axes).float() for block in vectors.split(ROWS_AT_ONCE)]
        return torch.cat(parts)

    def restore(self, targets: Float[Tensor, "scene axis"]) -> Float[Tensor, "scene dim"]:
        """Vectors from these axes, as float32."""
        return (targets.double() @ self.axes.T + self.centre).float()


@dataclass(frozen=True, eq=False)
class Data:
    """What binding functions are fitted to.

    Attributes:
        scenes: the scenes.
        targets: their vectors, centred, in the principal axes.
        frame: those axes.
        metric: how several axes are looked at together; None: as they are.

    Example:
        >>> from colligate.binding import no_binding
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> Data.of(Embeddings(no_binding(scenes.space, 2, 16)(scenes.values), scenes)).targets.shape
        torch.Size([36, 3])
    """

    scenes: Scenes
    targets: Float[Tensor, "scene axis"]
    frame: Frame
    metric: Metric | None = None

    @classmethod
    def of(cls, embeddings: Embeddings, *, whole: bool = False, least: float = KEPT) -> "Data":
        """Centre the vectors and rotate them to their principal axes; `whole` keeps those without variance too.

        The authors' networks predict in those as well, and what they predict there counts against them.
        """
        frame = Frame.of(embeddings.vectors, whole=whole, least=least)
        return cls(embeddings.scenes, frame.reduce(embeddings.vectors), frame)


Rule = Callable[[Scenes], Tensor]
"""Scenes -> their predicted vectors, in the principal axes."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A binding function fitted on the fit part of one split.

    Attributes:
        rule: predicts.
        identified: whether the fit part determines every prediction (rank of the design or of the Jacobian); None for a
            flexible family, to which the question does not apply.
        reached: highest training R2 on the way, where the choice on validation may have stopped earlier; None: the
            training R2 of `rule` itself.
        chosen: what validation chose, in words; "no ..." where it took the sum of values alone.
    """

    rule: Rule
    identified: bool | None = None
    reached: float | None = None
    chosen: str = ""


@runtime_checkable
class Approximator(Protocol):
    """A family of binding functions that can be fitted.

    Your own is one class.

    Example:
        >>> class Mean:
        ...     name = "mean"
        ...     def contains(self, other): return False
        ...     def fit(self, data, splits, seed):
        ...         means = [data.targets[split.fit].mean(0) for split in splits]
        ...         return [Fitted(lambda scenes, mean=mean: mean.expand(len(scenes), -1)) for mean in means]
        >>> from colligate.approximation.curves import coverage_curve
        >>> from colligate.binding import no_binding
        >>> from colligate.approximation.curves import CurveSettings
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=4, shape=3).all_scenes(slots=2)
        >>> embeddings = Embeddings(no_binding(scenes.space, 2, 16)(scenes.values).float(), scenes)
        >>> settings = CurveSettings(families=(Mean(), "additive"), coverages=(0.7,), pooled=2)
        >>> curves = coverage_curve(embeddings, settings)
        >>> [(point.family, point.r2 > 0.9) for point in curves.points]
        [('mean', False), ('additive', True)]
    """

    @property
    def name(self) -> str:
        """As in the `family` column."""
        ...

    def contains(self, other: "Approximator") -> bool:
        """Whether every rule of the other family is one of this: then this one's training fit may not be worse."""
        ...

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Fit on the fit part of each split, choose on its validation part, never look at its test part."""
        ...


def value_columns(scenes: Scenes, positions: Positions) -> Int[Tensor, "scene slot concept"]:
    """Index of every value in one long table (one for all slots, or one for each slot); -1 for empty slots.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> value_columns(ConceptSpace(color=3, shape=2).scenes([[1, 4]]), "own").tolist()
        [[[0, 4], [7, 8]]]
    """
    space = scenes.space
    starts = torch.tensor([sum(space.sizes[:c]) for c in range(space.num_concepts)])
    columns = scenes.values + starts
    if positions == "own":
        columns = columns + torch.arange(scenes.slots)[:, None] * sum(space.sizes)
    return torch.where(scenes.filled[..., None], columns, -1)


def num_columns(scenes: Scenes, positions: Positions) -> int:
    """Number of rows of that table."""
    return sum(scenes.space.sizes) * (scenes.slots if positions == "own" else 1)


def additive_design(scenes: Scenes, positions: Positions) -> Float[Tensor, "scene column"]:
    """How often a scene holds each value, then one indicator for each number of objects.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> additive_design(ConceptSpace(color=3, shape=2).scenes([[1, 4]]), "shared").tolist()
        [[1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]]
    """
    size = num_columns(scenes, positions)
    columns = value_columns(scenes, positions).flatten(1)
    design = torch.zeros(len(scenes), size + scenes.slots + 1, dtype=torch.float64)
    design.scatter_add_(1, columns.clamp(min=0), (columns >= 0).double())
    design[torch.arange(len(scenes)), size + scenes.counts] = 1.0
    return design


class Projection:
    """Least squares on a design: its coefficients by `solve`, its rank, and what it leaves of other vectors.

    The solution is the one whose tables have least norm, the intercepts not counted: a value that was never shown then
    counts as the mean of its concept's shown ones.
    """

    def __init__(self, gram: Float[Tensor, "column column"], intercepts: int) -> None:
        tables = len(gram) - intercepts
        counts = gram.diagonal()[tables:]
        used = counts > 0
        self.tables = tables
        self.means = torch.where(used, 1 / counts.clamp(min=1), 0.0)[:, None] * gram[tables:, :tables]  # per intercept
        centred = gram[:tables, :tables] - self.means.T @ gram[tables:, :tables]
        energies, vectors = torch.linalg.eigh(centred)
        good = energies > energies[-1].clamp(min=1e-300) * len(energies) * 1e-12
        self.inverse = vectors[:, good] / energies[good] @ vectors[:, good].T
        self.root = (vectors[:, good] / energies[good].sqrt()).T  # its square is the inverse
        self.per_count = torch.where(used, 1 / counts.clamp(min=1), 0.0)
        self.rank = int(good.sum()) + int(used.sum())

    def solve(self, sums: Float[Tensor, "column axis"]) -> Float[Tensor, "column axis"]:
        """Coefficients, given the design's transpose times the targets."""
        inverse, means = self.inverse.to(sums.dtype), self.means.to(sums.dtype)
        tables = inverse @ (sums[: self.tables] - means.T @ sums[self.tables :])
        return torch.cat([tables, self.per_count.to(sums.dtype)[:, None] * sums[self.tables :] - means @ tables])


@dataclass(frozen=True, eq=False)
class SumRule:
    """A fitted sum of tables and an intercept for each number of objects."""

    coefficients: Float[Tensor, "column axis"]
    positions: Positions

    def __call__(self, scenes: Scenes) -> Float[Tensor, "scene axis"]:
        """Look the values up and add."""
        columns = value_columns(scenes, self.positions).flatten(1)
        size = num_columns(scenes, self.positions)
        narrow = self.coefficients.float()
        return read_values(narrow[None, :size], columns[None])[0] + narrow[size + scenes.counts]


def fit_sum(data: Data, rows: Int[Tensor, " fit"], positions: Positions) -> tuple[SumRule, int]:
    """The least-squares sum of tables on these rows, and the rank of its design."""
    size = num_columns(data.scenes, positions) + data.scenes.slots + 1
    gram = torch.zeros(size, size, dtype=torch.float64)
    sums = torch.zeros(size, data.targets.shape[1], dtype=torch.float64)
    for block in rows.split(ROWS_AT_ONCE):
        design = additive_design(data.scenes[block], positions)
        gram += design.T @ design
        sums += design.T @ data.targets[block].double()
    projection = Projection(gram, data.scenes.slots + 1)
    return SumRule(projection.solve(sums), positions), projection.rank


@dataclass(frozen=True)
class Additive:
    """Sum of one vector for each value, in closed form: the family without binding.

        x(s) = b + sum_k sum_c u[k, c, s[k, c]]

    Identified where the fit part's design has the rank of all scenes' design.

    Paper: arXiv:2605.31503, Sec. 5.   Differs: the authors take Adam steps.

    Args:
        positions: whether each slot has tables of its own (the paper) or all share one.

    Example:
        >>> from colligate.binding import no_binding
        >>> from colligate.scenes.space import ConceptSpace
        >>> from colligate.scenes.splits import ByObject
        >>> scenes = ConceptSpace(color=4, shape=4).all_scenes(slots=2)
        >>> data = Data.of(Embeddings(no_binding(scenes.space, 2, 16)(scenes.values), scenes))
        >>> split = ByObject(coverage=0.6).split(scenes, seed=0)
        >>> fitted = Additive().fit(data, [split], seed=0)[0]
        >>> fitted.identified, bool((fitted.rule(scenes) - data.targets).abs().max() < 1e-4)
        (True, True)
    """

    positions: Positions = "own"

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "additive" if self.positions == "own" else f"additive.{self.positions}"

    def contains(self, other: Approximator) -> bool:
        """Tables of each slot can be equal."""
        return isinstance(other, Additive) and self.positions == "own" and other.positions == "shared"

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Least squares on each split's fit part; nothing is drawn and nothing chosen."""
        del seed
        full = design_rank(data.scenes, torch.arange(len(data.scenes)), self.positions)
        found = [fit_sum(data, split.fit, self.positions) for split in splits]
        return [Fitted(rule, identified=rank == full) for rule, rank in found]


def design_rank(scenes: Scenes, rows: Int[Tensor, " row"], positions: Positions) -> int:
    """Rank of the additive design of these rows."""
    size = num_columns(scenes, positions) + scenes.slots + 1
    gram = torch.zeros(size, size, dtype=torch.float64)
    for block in rows.split(ROWS_AT_ONCE):
        design = additive_design(scenes[block], positions)
        gram += design.T @ design
    return Projection(gram, scenes.slots + 1).rank


def training_r2(data: Data, rule: Rule, rows: Int[Tensor, " row"]) -> float:
    """Share of the variance of these rows around their mean that a rule explains."""
    errors, totals = squares(data, rule, rows)
    return 1 - errors / totals if totals > 0 else float("nan")


def squares(data: Data, rule: Rule, rows: Int[Tensor, " row"]) -> tuple[float, float]:
    """Squared error of a rule on these rows, and their squared distance from their mean."""
    errors = totals = 0.0
    if not len(rows):
        return errors, totals
    centre = data.targets[rows].double().mean(0)
    for block in rows.split(ROWS_AT_ONCE):
        targets = data.targets[block].double()
        errors += float((targets - rule(data.scenes[block]).double()).square().sum())
        totals += float((targets - centre).square().sum())
    return errors, totals


def group_of(split: Split) -> int:
    """Splits with the same number choose together: how many objects (or scenes) they fit on."""
    return len(split.fit) if split.objects is None else len(split.objects["fit"])


def generator_of(split: Split, seed: int) -> torch.Generator:
    """Draws that depend on the seed and on the fit part alone, not on what else is fitted beside it."""
    return torch.Generator().manual_seed(zlib.crc32(split.fit.numpy().tobytes(), seed))


@dataclass(frozen=True, eq=False)
class ByAxis:
    """A rule for each axis: what validation chose of several candidates, each axis for itself."""

    rules: Sequence[Rule]
    picks: Int[Tensor, " axis"]

    def __call__(self, scenes: Scenes) -> Float[Tensor, "scene axis"]:
        """The columns of each rule that it was picked for."""
        found = torch.zeros(len(scenes), len(self.picks))
        for pick in self.picks.unique().tolist():
            own = self.picks == pick
            found[:, own] = self.rules[pick](scenes)[:, own]
        return found


def choose(data: Data, splits: Sequence[Split], candidates: Sequence[Sequence[Rule]]) -> list[Int[Tensor, " axis"]]:
    """Of each axis the candidate with least error on the validation parts of each group of splits.

    An axis chooses for itself: in a sum over axes a large one decides for all others, be it noise or not. The last
    candidate where there is no validation part.
    """
    found = list[Tensor]()
    for split, rules in zip(splits, candidates, strict=True):
        rows = split.validation
        errors = torch.zeros(len(rules), data.targets.shape[1], dtype=torch.float64)
        if len(rows):
            targets, scenes = data.targets[rows], data.scenes[rows]
            for i, rule in enumerate(rules):
                errors[i] = (targets - rule(scenes)).double().square().sum(0)
        found.append(errors)
    return choose_by(data, splits, found)


def choose_by(
    data: Data, splits: Sequence[Split], errors: Sequence[Float[Tensor, "candidate axis"]]
) -> list[Int[Tensor, " axis"]]:
    """The same, given each candidate's squared error on each validation part."""
    pooled: dict[int, Tensor] = {}
    for split, found in zip(splits, errors, strict=True):
        scale = 1.0
        if len(split.validation):
            centre = data.targets[split.fit].mean(0)
            scale = float((data.targets[split.validation] - centre).square().sum().clamp(min=1e-30))
        pooled[group_of(split)] = pooled.get(group_of(split), torch.zeros(())) + found / scale
    best = {
        group: of.argmin(0) if of.any() else torch.full((of.shape[1],), len(of) - 1) for group, of in pooled.items()
    }
    return [best[group_of(split)] for split in splits]


def taken(picks: Int[Tensor, " axis"], data: Data, words: Sequence[str]) -> str:
    """What most of the targets' size was given to, in words; the first word only where every axis took it.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> frame = Frame(torch.zeros(2), torch.eye(2), 0.0, (1.0,))
        >>> data = Data(ConceptSpace(color=2, shape=2).scenes([[0, 3]]), torch.tensor([[3.0, 1.0]]), frame)
        >>> taken(torch.tensor([0, 1]), data, ("no product", "penalty 1"))
        'penalty 1'
    """
    sizes = torch.zeros(len(words)).index_add_(0, picks, data.targets.square().sum(0) + 1e-30)
    return words[0] if not picks.any() else words[1 + int(sizes[1:].argmax())]
