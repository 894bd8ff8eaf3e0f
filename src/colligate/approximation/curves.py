"""Coverage curves: how well does a rule fitted on some objects predict scenes made only of others?

Every family is fitted at several coverages (fit objects / all objects) and splits of the objects, and scored on scenes
of held-out objects by what linear probes read from its predictions, by R2 and by retrieval. Each split keeps to one
fold of the scenes, the splits taking turns, and is read by probes that learned from the other folds (`readers`): for as
many fits, more splits tell more than each split in every fold.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from colligate.approximation.approximators import ROUNDING, Additive, Approximator, Data, Fitted, squares, training_r2
from colligate.approximation.contrast import Swaps
from colligate.approximation.counts import BagQuadratic
from colligate.approximation.families import PAPER_FAMILIES, STRICT_FAMILIES, family
from colligate.approximation.metric import Metric
from colligate.approximation.networks import MLP
from colligate.approximation.paper import PaperRecipe
from colligate.approximation.readers import Readers, some
from colligate.approximation.scoring import OUTCOMES, Member, Point, Scoring, Squares
from colligate.approximation.stacks import Schedule
from colligate.embeddings import Embeddings
from colligate.engine import side_by_side
from colligate.intervals import Over
from colligate.probes import ProbeSettings, ProtocolName
from colligate.scenes.space import Scenes
from colligate.scenes.splits import ByObject, Split, unseen_values

STRENGTHS = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
"""Shrinkages of the probes, from those that read directions of any size to those that read large ones alone."""
SMALL_WORLD = 100
"""Worlds of fewer objects pool many splits: one split holds out too few."""


@dataclass(frozen=True, kw_only=True)
class CurveSettings:
    """Which families are fitted where, and how they are scored."""

    families: tuple[str | Approximator, ...] = ()
    """Names (`family`), or approximators of your own; default: additive, products and hidden layers of 64 to 1024."""
    coverages: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Fit objects / all objects."""
    seeds: int = 4
    """Splits of the objects at each coverage."""
    pooled: int = 20
    """The same in a world of fewer than 100 objects."""
    validation: float = 0.3
    """Share of the held-out objects that choose step, rate and penalty (strict)."""
    protocol: ProtocolName = "strict"
    """`strict`: chosen on validation objects. `paper`: the authors' recipe, chosen on test."""
    steps: int = 80
    """Gradient steps of the families that take them (strict); 4,000 under `paper`."""
    folds: int = 2
    """Parts of the scenes; a rule learns from one and is scored there, by probes that know the others (strict). Splits
    take turns."""
    probes: ProbeSettings = field(default_factory=lambda: ProbeSettings(strengths=STRENGTHS))
    """How probes are fitted; of their strengths, validation objects choose the one that reads a rule's predictions."""
    fit_budget: int = 10_000
    """Most scenes that a rule learns from in one split (strict); above it, a seeded choice, and rows say so."""
    probe_budget: int = 20_000
    """Most scenes that one set of probes learns from; above it, a seeded choice."""
    adequate: float = 0.02
    """How far a fit's training R2 may fall short of the best known for its family, and a hidden layer's R2 on scenes of
    the validation objects of a quadratic bag's, which hidden layers come as near to as they have units."""
    retrieval_budget: int = 250
    """Most predictions of one fit that are looked up among the scenes; above it, a seeded choice."""
    over: Over = "values"
    """What intervals speak of."""
    seed: int = 0
    """Of splits, starts and folds."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Points of every family, and those of the true vectors (`ceiling`), by coverage.

    Attributes:
        embeddings: the scenes that were scored.
        settings: how.
        points: families by coverages.
        ceiling: what the probes read from the true vectors of the same scenes.
        sums: the sum of values at every coverage, whether or not it is among the families: where areas begin.
        notes: what a reader should know.
        largest: shares of the variance of the largest principal axes.
        swaps: scenes and their swaps.
    """

    embeddings: Embeddings
    settings: CurveSettings
    points: list[Point]
    ceiling: list[Point]
    sums: list[Point]
    notes: tuple[str, ...] = ()
    largest: tuple[float, ...] = ()
    swaps: Swaps | None = None

    def of(self, family: str) -> list[Point]:
        """The points of a family, by coverage."""
        return [point for point in self.points if point.family == family]


def coverage_curve(
    embeddings: Embeddings,
    settings: CurveSettings | None = None,
    *,
    readers: Readers | None = None,
    report: Callable[[str, int, int], None] | None = None,
) -> Curves:
    """Fit families of binding functions at several coverages and score them on scenes of held-out objects.

    Args:
        embeddings: vectors of scenes; scenes of single objects are left out if there are others.
        settings: families, coverages, protocol.
        readers: probes that score; fitted in folds of scenes by default.
        report: told (family, how many families are done, of how many).

    Raises:
        ValueError: no scene has two objects, all vectors are equal, or no coverage leaves anything to score.

    Paper: arXiv:2605.31503, Sec. 5, Figures 4 and 8.
    Differs: chosen on validation objects, several splits; probes share no scene with the rule that they read, nor with
    what they score, so that R2 and retrieval, too, are those of rules learned in one fold (half of the scenes).

    Example:
        >>> from colligate.binding import object_product
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=5, shape=4).all_scenes(slots=2)
        >>> embeddings = Embeddings(object_product(scenes.space, 2, 24)(scenes.values).float(), scenes)
        >>> curves = coverage_curve(embeddings, CurveSettings(
        ...     families=("additive", "object_product"), coverages=(0.8,), pooled=2))
        >>> [(point.family, point.r2 > 0.9) for point in curves.points]
        [('additive', False), ('object_product', True)]
    """
    settings = settings or CurveSettings()
    several = embeddings.scenes.counts > 1
    if not several.any():
        raise ValueError("Every scene holds a single object, so there is nothing to bind; add scenes of two.")
    if readers is not None and not several.all():
        readers = replace(readers, fold=readers.fold[several])
    embeddings = embeddings if several.all() else embeddings[several]
    splits, reasons = _splits(embeddings.scenes, settings)
    if not splits:
        raise ValueError(next(iter(reasons.values())))
    families = _families(settings)
    every = [readers] if readers is not None else _readers(embeddings, settings, report)
    data = _data(embeddings, settings, every[0], own=readers is not None)
    members = _members(splits, every[0], settings, reasons)
    if not members:
        raise ValueError(next(iter(reasons.values())))
    scoring = Scoring(embeddings, data, every, budget=settings.retrieval_budget, seed=settings.seed)
    families = [replace(one, judge=scoring.judge) if isinstance(one, PaperRecipe) else one for one in families]
    of_coverage = {c: [m for m in members if m.coverage == c] for c in dict.fromkeys(m.coverage for m in members)}
    ceiling = [scoring.point("ceiling", coverage, of, None) for coverage, of in of_coverage.items()]
    seen = {coverage: tuple(not unseen_values(embeddings.scenes, member.split.fit) for member in of)
            for coverage, of in of_coverage.items()}  # fmt: skip
    points, told = list[Point](), report or _silent
    fitting = side_by_side(lambda one: _fit(one, data, members, settings.seed), families)
    for i, one in enumerate(families):
        told(one.name, i, len(families))
        fits = next(fitting)
        for coverage, of in of_coverage.items():
            own = [fits[member] for member in of]
            train = [training_r2(data[m.fold], fitted.rule, m.split.fit) for fitted, m in zip(own, of, strict=True)]
            reached = [max(r2, r2 if f.reached is None else f.reached) for r2, f in zip(train, own, strict=True)]
            held = [squares(data[m.fold], fitted.rule, m.split.validation) for fitted, m in zip(own, of, strict=True)]
            point = replace(scoring.point(one.name, coverage, of, own), seen=seen[coverage])
            points.append(replace(point, train_r2=tuple(train), reached=tuple(reached), held=_squares(held)))
    told("scores", len(families), len(families))
    sums = _sums(points, data, members, scoring, seen)
    points = _judged(points, families, settings.adequate)
    for coverage, reason in reasons.items():
        points += [_empty(one.name, coverage, reason) for one in families]
    frame = data[0].frame
    notes = (f"axes left out hold {frame.dropped:.1e} of the variance",)
    notes = (*notes, *filter(None, [every[0].reason]))
    return Curves(embeddings, settings, points, ceiling, sums, notes, frame.largest, scoring.swaps)


def _silent(name: str, done: int, of: int) -> None:
    """Report to nobody."""


def _sums(
    points: Sequence[Point],
    data: Sequence[Data],
    members: Sequence[Member],
    scoring: Scoring,
    seen: Mapping[float, tuple[bool, ...]],
) -> list[Point]:
    """The sum of values at every coverage: that among the families, else one fitted for the purpose."""
    sums = [point for point in points if point.family == Additive().name]
    if not sums:
        fits = _fit(Additive(), data, members, 0)
        for coverage in seen:
            of = [member for member in members if member.coverage == coverage]
            point = scoring.point("additive", coverage, of, [fits[member] for member in of])
            sums.append(replace(point, seen=seen[coverage]))
    return [replace(point, adequate=(True,) * len(point.seen)) for point in sums]


def _data(embeddings: Embeddings, settings: CurveSettings, readers: Readers, *, own: bool) -> list[Data]:
    """What rules are fitted to in each fold; its metric comes from the scenes of the others."""
    folds = range(len(readers.probes))
    if own or settings.protocol == "paper":
        return [Data.of(embeddings, whole=settings.protocol == "paper")] * len(folds)
    data = Data.of(embeddings, least=ROUNDING)
    others = [(readers.fold != fold).nonzero()[:, 0] for fold in folds]
    metrics = [Metric.of(data.targets, embeddings.scenes, rows, settings.seed) for rows in others]
    return [replace(data, metric=metric) for metric in metrics]


def _readers(
    embeddings: Embeddings, settings: CurveSettings, report: Callable[[str, int, int], None] | None
) -> list[Readers]:
    """Probes of every strength."""
    if report is not None:
        report("probes of the rules", 0, 1)

    def of(strength: float) -> Readers:
        probes = replace(settings.probes, strengths=(strength,))
        return Readers.crossed(
            embeddings, probes, folds=settings.folds, budget=settings.probe_budget, seed=settings.seed
        )

    return list(side_by_side(of, settings.probes.strengths))


def _members(
    splits: Mapping[float, Sequence[Split]], readers: Readers, settings: CurveSettings, reasons: dict[float, str]
) -> list[Member]:
    """Every split within its fold, if it has scenes there to fit on (two, to have any spread) and to score.

    Where none has, `reasons` says so.
    """
    found = list[Member]()
    for coverage, of in splits.items():
        for i, split in enumerate(of):
            fold = i % len(readers.probes) if settings.protocol == "strict" else 0
            part = readers.within(split, fold) if settings.protocol == "strict" else split
            if len(part.fit) > 1 and len(part.test):
                budget = settings.fit_budget if settings.protocol == "strict" else None
                shown = replace(part, fit=some(part.fit, budget, settings.seed + i))
                found.append(Member(coverage, fold, shown, len(part.fit)))
        if all(member.coverage != coverage for member in found):
            reasons[coverage] = (
                f"Coverage {coverage:g} leaves no fold of the scenes with scenes both to fit on and to score; "
                "give more scenes, or change the coverage."
            )
    return found


def _fit(one: Approximator, data: Sequence[Data], members: Sequence[Member], seed: int) -> dict[Member, Fitted]:
    """Fit one fold after the other: nothing that is chosen for one may look at scenes of another."""
    found = dict[Member, Fitted]()
    for fold in dict.fromkeys(member.fold for member in members):
        own = [member for member in members if member.fold == fold]
        found |= zip(own, one.fit(data[fold], [member.split for member in own], seed), strict=True)
    return found


def _squares(found: Sequence[tuple[float, float]]) -> Squares:
    """Errors and totals, split by split."""
    errors, totals = torch.tensor(found, dtype=torch.float64).unbind(1)
    return Squares(errors, totals)


def _judged(points: Sequence[Point], families: Sequence[Approximator], slack: float) -> list[Point]:
    """Whether each training fit comes near the best known of its family, and of every family that it contains.

    A hidden layer that explains less of the validation objects' scenes than a quadratic bag of concepts does is judged
    not to be fitted either, whatever it reached in training: what it lacks there tells nothing about its family.
    """
    closed = {point.coverage: point.held.r2 for point in points if point.family == BagQuadratic().name}
    hidden = {one.name for one in families if isinstance(one, MLP)}
    reached = {(point.family, point.coverage): point.reached for point in points}
    contained = {
        one.name: [other.name for other in families if other is one or one.contains(other)] for one in families
    }
    found = list[Point]()
    for point in points:
        known = zip(*(reached[name, point.coverage] for name in contained[point.family]), strict=True)
        adequate = tuple(r >= max(best) - slack for r, best in zip(point.reached, known, strict=True))
        behind = closed.get(point.coverage, math.nan) - point.held.r2
        if point.family in hidden and behind > slack:
            found.append(replace(point, adequate=(False,) * len(adequate), behind=behind))
        else:
            found.append(replace(point, adequate=adequate))
    return found


def _empty(family: str, coverage: float, reason: str) -> Point:
    none = torch.zeros(0, dtype=torch.float64)
    rows = torch.zeros(0, dtype=torch.int64)
    return Point(family, coverage, rows, rows, dict.fromkeys(OUTCOMES, none), none, none, reason=reason)


def _splits(scenes: Scenes, settings: CurveSettings) -> tuple[dict[float, list[Split]], dict[float, str]]:
    """Splits of the objects for each coverage that allows any, and why the others don't.

    A split whose fit part shows every value is preferred; where there is none, the first draw is taken, and said so.
    Protocol `paper` always takes the first: the authors don't look, and their seed divides the objects alike here.
    """
    paper = settings.protocol == "paper"
    objects = int(scenes.contains_objects().any(0).sum())
    number = max(settings.seeds, settings.pooled) if objects < SMALL_WORLD else settings.seeds
    found, reasons = dict[float, list[Split]](), dict[float, str]()
    for coverage in settings.coverages:
        for seed in range(settings.seed, settings.seed + number):
            rule = ByObject(coverage=coverage, validation=0.0 if paper else settings.validation)
            try:
                split = replace(rule, unseen="report" if paper else "error").split(scenes, seed)
            except ValueError:
                try:
                    split = replace(rule, unseen="report").split(scenes, seed)
                except ValueError as error:
                    reasons[coverage] = str(error)
                    continue
            found.setdefault(coverage, []).append(split)
        if coverage in found:
            reasons.pop(coverage, None)
    return found, reasons


def _families(settings: CurveSettings) -> list[Approximator]:
    default = STRICT_FAMILIES if settings.protocol == "strict" else PAPER_FAMILIES
    schedule = Schedule(steps=settings.steps)
    found = [family(one, schedule) if isinstance(one, str) else one for one in settings.families or default]
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise ValueError(f"The family {max(names, key=names.count)!r} is listed twice; give each a name of its own.")
    return found
