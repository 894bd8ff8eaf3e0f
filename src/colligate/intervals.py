"""Intervals for numbers that are means over scenes: how far would they move, had other values or objects been drawn?

Scenes that share an object, or a value, are not independent. What a scene adds to a number is written as a sum of
random effects, one for each thing that scenes can share,

    e(s) = sum over its values v: a(v)  +  sum over its objects o: b(o)  +  c(its set of objects)  +  rest(s)

and the variance of the mean of e is added up from the effects' variances, each times how unevenly the scenes are spread
over its groups:

    Var = sum_k  sigma_k^2  sum_g (n_kg / n)^2,          n_kg: how often group g of factor k occurs

The sigma_k^2 are those, none below zero, whose expected group sums of squares come nearest to the observed ones (the
method of moments). A pair's own noise counts once, which a bootstrap that multiplies the objects' multiplicities
counts three times. Near 0 and 1 a share gets the interval of a binomial of the effective size p (1 - p) / Var; where
no scene fails at all, of one trial for each value (or object). docs/metrics.md has the derivation and the coverage
that was measured.

Source: A. B. Owen, "The pigeonhole bootstrap", 2007 (what products of multiplicities over-count); K. Gao, A. B. Owen,
"Efficient moment calculations for variance components in large unbalanced crossed random effects models", 2017;
E. L. Korn, B. I. Graubard, "Confidence intervals for proportions with small expected number of positive counts
estimated from survey data", 1998 (a binomial of effective size); F. E. Satterthwaite, 1946 (degrees of freedom).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from colligate.choices import Over as Over

MIN_OBJECTS = 8
"""Fewest objects that may stand for a population of objects."""
MIN_SCENES = 20
"""Fewest scored scenes for an interval."""
MISSED = 0.05
"""How often an interval may miss, both sides together."""
UNSEEN = 1.0
"""Weight of the one further group that might fail, against the failures that were seen (in effective scenes)."""
ALIKE = 1e-12
"""Relative spread below which outcomes are all the same."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over values or objects, or the reason for having none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    objects: int = 0
    reason: str | None = None


def student_quantile(freedom: float) -> float:
    """How many standard errors a 95 % interval reaches to each side; below one degree of freedom as with one.

    Example:
        >>> round(student_quantile(10.0), 2), round(student_quantile(float("inf")), 2)
        (2.23, 1.96)
    """
    from scipy import special

    upper = 1 - MISSED / 2
    return float(special.stdtrit(max(freedom, 1.0), upper) if np.isfinite(freedom) else special.ndtri(upper))


class Spread(NamedTuple):
    """Variance of a mean over scenes, and how many degrees of freedom its estimate has."""

    variance: float
    freedom: float

    @property
    def reach(self) -> float:
        """Half of the width of a 95 % interval: Student's quantile times the standard error."""
        return float(student_quantile(self.freedom) * self.variance**0.5)


class Intervals:
    """Intervals for statistics of scenes, over the values or the objects that occur in them.

    Args:
        objects: object id in each slot of every scored row; negative where empty.
        values: value of each concept in each slot, negative where empty; without them, or with one concept, intervals
            are over objects.
        over: whether scenes that share a value are alike, or only those that share an object.
        scenes: which scene each row is scored on; rows of one scene are one piece of evidence when it is counted
            whether there is enough for an interval. By default every row is a scene of its own.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=5, shape=5).all_scenes(slots=2)
        >>> intervals = Intervals(scenes.objects, scenes.values)
        >>> hits = (scenes.objects[:, 0] % 7 > 1).double()
        >>> estimate = intervals.mean(hits)
        >>> round(estimate.value, 2), estimate.low < estimate.value < estimate.high
        (0.68, True)
        >>> never = intervals.mean(torch.ones(len(scenes)))  # no scene fails: ten values, a trial each
        >>> round(never.low, 2), never.high
        (0.74, 1.0)
    """

    def __init__(
        self,
        objects: Int[Tensor, "row slot"],
        values: Int[Tensor, "row slot concept"] | None = None,
        *,
        over: Over = "values",
        scenes: Int[Tensor, " row"] | None = None,
    ) -> None:
        self.rows = len(objects)
        self._objects = objects.numpy()
        self._values = None
        if values is not None and over == "values" and values.shape[2] > 1:
            self._values = values.numpy()
        self._scene = None if scenes is None else scenes.unique(return_inverse=True)[1]
        self._designs: dict[bytes, _Design] = {}

    def mean(self, outcomes: Tensor, rows: Bool[Tensor, " row"] | None = None) -> Estimate:
        """Mean outcome over the rows, or over those that `rows` selects, with its interval.

        Outcomes between 0 and 1 are shares, whose interval stays between 0 and 1.
        """
        selected = torch.ones(self.rows, dtype=torch.bool) if rows is None else rows
        return self.ratio(torch.where(selected, outcomes.double(), 0.0), selected.double())

    def explained(
        self, errors: Float[Tensor, " row"], totals: Float[Tensor, " row"], rows: Bool[Tensor, " row"] | None = None
    ) -> Estimate:
        """R2 = 1 - sum of squared errors / sum of squares around the centre; its interval is one of log(1 - R2)."""
        selected = torch.ones(self.rows, dtype=torch.bool) if rows is None else rows
        upper, lower = (torch.where(selected, one.double(), 0.0) for one in (errors, totals))
        estimate, counted = self._started(upper, lower, selected)
        if estimate.value is None:
            return estimate
        left = estimate.value
        estimate = Estimate(1 - left, n=estimate.n, objects=estimate.objects, reason=estimate.reason)
        if estimate.reason is not None:
            return estimate
        spread = self.spread(self.influence(upper, lower), counted)
        if left <= ALIKE:
            low, _ = _binomial(1.0, float(self._design(counted).units))
            return Estimate(1 - left, min(low, 1 - left), 1.0, estimate.n, estimate.objects)
        if spread.variance <= (ALIKE * left) ** 2:
            if abs(left - 1) > ALIKE:
                return _without(estimate)
            most, _ = _binomial(1.0, float(self._design(counted).units))  # nothing is explained of any scene
            return Estimate(1 - left, min(0.0, 1 - left), 1 - most, estimate.n, estimate.objects)
        factor = float(np.exp(min(spread.reach / left, 50.0)))
        return Estimate(1 - left, 1 - left * factor, 1 - left / factor, estimate.n, estimate.objects)

    def ratio(self, upper: Float[Tensor, " row"], lower: Float[Tensor, " row"]) -> Estimate:
        """The sum of `upper` over the sum of `lower`, with its interval; rows whose `lower` is 0 aren't scored."""
        estimate, counted = self._started(upper, lower, lower != 0)
        if estimate.value is None or estimate.reason is not None:
            return estimate
        spread = self.spread(self.influence(upper, lower), counted)
        if bool((lower >= 0).all() & (upper >= 0).all() & (upper <= lower * (1 + ALIKE)).all()):
            low, high = self._share(estimate.value, estimate.n, spread, counted)
            return Estimate(estimate.value, low, high, estimate.n, estimate.objects)
        return self._around(estimate, spread)

    def difference(
        self, first: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], *, shares: bool = False
    ) -> Estimate:
        """Ratio of the other minus ratio of the first, both on the same rows, so that what both find hard cancels.

        Args:
            first: sums as for `ratio`.
            other: the same of another model.
            shares: both are shares: where the two agree in every scene, the interval is that of no failure among the
                values (or objects), to both sides.
        """
        counted = (first[1] != 0) | (other[1] != 0)
        estimate, _ = self._started(first[0], first[1], counted)
        if estimate.value is None or float(other[1].sum()) == 0:
            return Estimate(None, n=estimate.n, objects=estimate.objects, reason="nothing to score")
        value = float(other[0].sum()) / float(other[1].sum()) - estimate.value
        estimate = Estimate(value, n=estimate.n, objects=estimate.objects, reason=estimate.reason)
        if estimate.reason is not None:
            return estimate
        change = self.influence(*other) - self.influence(*first)
        spread = self.spread(change, counted)
        if shares and spread.variance <= ALIKE**2:
            reach = 1 - _binomial(1.0, float(self._design(counted).units))[0]
            return Estimate(value, value - reach, value + reach, estimate.n, estimate.objects)
        return self._around(estimate, spread)

    def around(self, value: float, influence: Float[Tensor, " row"], rows: Bool[Tensor, " row"]) -> Estimate:
        """A value with its interval, given what each row adds to its error (the sum of several numbers' influences)."""
        n, objects, enough = self._counts(rows)
        estimate = Estimate(value, n=n, objects=objects, reason=enough)
        return estimate if enough is not None else self._around(estimate, self.spread(influence, rows))

    @staticmethod
    def influence(upper: Float[Tensor, " row"], lower: Float[Tensor, " row"]) -> Float[Tensor, " row"]:
        """What each row adds to the error of the ratio of two sums: (upper - ratio lower) / sum of lower."""
        total = float(lower.double().sum())
        return (upper.double() - float(upper.double().sum()) / total * lower.double()) / total

    def spread(self, influence: Float[Tensor, " row"], rows: Bool[Tensor, " row"]) -> Spread:
        """Variance of the sum of the influences over other values or objects.

        Args:
            influence: what each row adds to a number's error; they sum to zero.
            rows: which rows are scored.
        """
        return self._design(rows).spread(influence[rows].numpy() * int(rows.sum()))

    def _started(self, upper: Tensor, lower: Tensor, counted: Tensor) -> tuple[Estimate, Tensor]:
        n, objects, enough = self._counts(counted)
        total = float(lower.double().sum())
        if n == 0 or total <= 0:
            reason = "nothing to score" if n == 0 else "no variance"
            return Estimate(None, n=n, objects=objects, reason=reason), counted
        return Estimate(float(upper.double().sum()) / total, n=n, objects=objects, reason=enough), counted

    def _counts(self, rows: Tensor) -> tuple[int, int, str | None]:
        """Scored rows, objects in them, and why these are too few for an interval."""
        n = int(rows.sum())
        held = self._objects[rows.numpy()]
        objects = len(np.unique(held[held >= 0]))
        scenes = n if self._scene is None else int((torch.bincount(self._scene[rows]) > 0).sum())
        if objects < MIN_OBJECTS or scenes < MIN_SCENES:
            return (
                n,
                objects,
                f"no interval: {objects} objects and {scenes} scenes (needs {MIN_OBJECTS} and {MIN_SCENES})",
            )
        return n, objects, None

    def _around(self, estimate: Estimate, spread: Spread) -> Estimate:
        assert estimate.value is not None
        if spread.variance <= (ALIKE * max(abs(estimate.value), ALIKE)) ** 2:
            return _without(estimate)
        low, high = estimate.value - spread.reach, estimate.value + spread.reach
        return Estimate(estimate.value, low, high, estimate.n, estimate.objects)

    def _share(self, value: float, n: int, spread: Spread, rows: Tensor) -> tuple[float, float]:
        """Ends for a share: a binomial of effective size, smoothed by one group that might yet fail.

        size = p (1 - p) / Var,   Var = (f Var + u p (1 - p) / groups) / (f + u),   f = size min(p, 1 - p)

        with u = `UNSEEN`, and p moved by half a scene away from 0 and 1; never narrower than the variance itself says.
        Where all scenes hit, or all miss, that is one trial a group.
        """
        inner = (value * n + 0.5) / (n + 1)
        single, groups = inner * (1 - inner), float(min(self._design(rows).units, n))
        if spread.variance <= ALIKE**2 or not ALIKE < value < 1 - ALIKE:
            return _binomial(value, groups)
        failures = min(value, 1 - value) * min(single / spread.variance, n)
        smoothed = (failures * spread.variance + UNSEEN * single / groups) / (failures + UNSEEN)
        wider = student_quantile(spread.freedom) / student_quantile(np.inf)
        size = min(max(single / max(smoothed, spread.variance) / wider**2, 1.0), float(n))
        low, high = _binomial(value, size)
        return min(low, value), max(high, value)

    def _design(self, rows: Tensor) -> "_Design":
        chosen = rows.numpy()
        key = chosen.tobytes()
        if key not in self._designs:
            if len(self._designs) > 16:
                self._designs.clear()
            values = None if self._values is None else self._values[chosen]
            self._designs[key] = _Design(self._objects[chosen], values)
        return self._designs[key]


class _Factor(NamedTuple):
    """Something that rows can share: how often each row holds each group, and how often all rows do."""

    held: Any
    """Rows by groups, a sparse matrix of SciPy."""
    counts: np.ndarray
    freedom: float
    """Degrees of freedom of the variance that is estimated for it."""

    @classmethod
    def of(cls, *groups: np.ndarray) -> "_Factor":
        """One factor of tables of groups, one group a column; negative entries are none.

        Its degrees of freedom are Satterthwaite's of those that the tables have.
        """
        from scipy import sparse

        tables = list[Any]()
        for table in groups:
            known, dense = np.unique(table, return_inverse=True)
            rows, held = np.repeat(np.arange(len(table)), table.shape[1]), table.ravel() >= 0
            shape, ones = (len(table), len(known)), np.ones(int(held.sum()))
            tables.append(sparse.csr_matrix((ones, (rows[held], dense.ravel()[held])), shape=shape)[:, known >= 0])
        counts = [np.asarray(table.sum(0)).ravel() for table in tables]
        several = [(float(count @ count), len(count) - 1) for count in counts if len(count) > 1]
        together = sum(share**2 / freedom for share, freedom in several)
        freedom = sum(share for share, _ in several) ** 2 / together if several else 1.0
        return cls(sparse.csr_matrix(sparse.hstack(tables)), np.concatenate(counts), freedom)


class _Design:
    """Which rows share what, and which sums of squares over groups are expected of each variance.

    Args:
        objects: object id in each slot, negative where empty.
        values: value of each concept in each slot, or None where rows that share values aren't alike.
    """

    def __init__(self, objects: np.ndarray, values: np.ndarray | None) -> None:
        self.n = len(objects)
        ordered = np.sort(objects, axis=1)
        once = ordered.copy()
        once[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = -1  # an object that stands twice in a scene is one object
        self._factors = [_Factor.of(once)]
        self.units = len(self._factors[0].counts)
        if values is not None:
            by_value = _Factor.of(*np.moveaxis(values, 2, 0))
            finer = len(by_value.counts) < self.units
            self._factors = [by_value, *self._factors] if finer else [by_value]
            self.units = min(self.units, len(by_value.counts))
        sets = np.unique(ordered, axis=0, return_inverse=True)[1].reshape(-1, 1)
        if len(self._factors[-1].counts) < sets.max(initial=0) + 1 < self.n:
            self._factors.append(_Factor.of(sets))

    @cached_property
    def _expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected group sum of squares of each factor by each variance, and what each variance adds to the mean's."""
        last = len(self._factors)
        expected = np.zeros((last + 1, last + 1))
        for a, first in enumerate(self._factors):
            for b, other in enumerate(self._factors[a:], start=a):
                shared = first.held.T @ other.held
                expected[a, b] = expected[b, a] = (
                    shared.multiply(shared).sum()
                    - 2 * first.counts @ (shared @ other.counts) / self.n
                    + (first.counts @ first.counts) * (other.counts @ other.counts) / self.n**2
                )
            alone = first.held.multiply(first.held).sum() - first.counts @ first.counts / self.n
            expected[a, last] = expected[last, a] = alone
        expected[last, last] = self.n - 1
        return expected, np.array([*(one.counts @ one.counts / self.n**2 for one in self._factors), 1 / self.n])

    def spread(self, errors: np.ndarray) -> Spread:
        """Variance of the mean of these errors, one a row.

        The degrees of freedom take half of the variance to be the first factor's: where that has few groups, its own
        estimate is the least to be trusted, a small one too.
        """
        from scipy.optimize import nnls

        scale = float(np.abs(errors).max(initial=0.0))
        if scale == 0:
            return Spread(0.0, np.inf)
        errors = (errors - errors.mean()) / scale
        expected, adds = self._expected
        observed = np.array([*(((one.held.T @ errors) ** 2).sum() for one in self._factors), errors @ errors])
        unit = np.sqrt(np.diag(expected).clip(min=1e-12))
        variances = nnls(expected / unit[:, None] / unit, observed / unit)[0] / unit
        parts = variances * adds
        total = float(parts.sum())
        if total <= 0:
            return Spread(0.0, np.inf)
        shares = np.array([(parts[0] / total + 1) / 2, *parts[1:]])
        shares[1:] *= (1 - shares[0]) / max(shares[1:].sum(), 1e-300)
        freedoms = np.array([*(one.freedom for one in self._factors), max(self.n - 1, 1)])
        return Spread(total * scale**2, float(1 / (shares**2 / freedoms).sum()))


def _binomial(share: float, size: float) -> tuple[float, float]:
    """Ends of the mid-P interval of a binomial share; the size need not be whole.

        low: the p at which  P(X > x) + P(X = x) / 2 = 2.5 %,   high likewise

    Example:
        >>> [round(end, 3) for end in _binomial(1.0, 10.0)]
        [0.741, 1.0]
    """
    return _lower(share * size, size), 1 - _lower((1 - share) * size, size)


def _lower(hits: float, size: float) -> float:
    from scipy import special
    from scipy.optimize import root_scalar

    if hits < 1e-9:
        return 0.0

    def excess(p: float) -> float:
        more = special.betainc(hits + 1, size - hits, p) if size - hits > 1e-9 else 0.0
        return float(special.betainc(hits, size - hits + 1, p) + more) / 2 - MISSED / 2

    edge = 1e-12
    if excess(edge) > 0:
        return 0.0
    return 1.0 if excess(1 - edge) < 0 else float(root_scalar(excess, bracket=(edge, 1 - edge)).root)


def _without(estimate: Estimate) -> Estimate:
    """The estimate with the reason why it has no interval: nothing varies from which one could be taken."""
    return Estimate(
        estimate.value,
        n=estimate.n,
        objects=estimate.objects,
        reason=f"no interval: all {estimate.n} scored scenes are alike",
    )
