"""Repair as rows: what a map brings on objects never seen, over coverage, and what it costs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from colligate.crossmodal.contrast import judge
from colligate.crossmodal.measurements import CrossScorer, estimate_row
from colligate.crossmodal.recognition import CrossRecognition, recognise_queries
from colligate.crossmodal.repair import Fit, Repairer, RepairSettings
from colligate.crossmodal.repair_data import RepairData
from colligate.embeddings import Embeddings
from colligate.intervals import Intervals, Over
from colligate.measures import retrieve
from colligate.records import Row
from colligate.scenes.space import Scenes
from colligate.scenes.splits import ByObject, BySwaps, Split

MOST_FOUND = 5000
"""Most scenes among which captions are looked up; above it, a seeded choice."""


class Repaired(NamedTuple):
    """A fitted repair, the split it was judged on, and its rows."""

    repair: Fit
    split: Split
    rows: list[Row]


def repair_rows(
    data: RepairData,
    split: Split,
    repairer: Repairer | None = None,
    *,
    singles: Embeddings | None = None,
    coverage: float | None = None,
    over: Over = "values",
) -> Repaired:
    """Fit a repair and report it on test objects: before, after, and the lift with its interval.

    Recognition of unseen objects is given three ways: against the whole table, among unseen objects, and on swaps whose
    objects are all unseen. A lift's interval is one of the difference that each scene makes.

    Args:
        data: both towers' vectors.
        split: by objects.
        repairer: what is fitted; a linear map unless told otherwise.
        singles: scenes of one object, for what the repair costs on them.
        coverage: as it stands in the rows.
        over: what intervals speak of.

    Example:
        >>> from colligate.crossmodal.repair_data import repair_data
        >>> from colligate.embedders import load_model
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr").select(slice(0, 576)), load_model("oracle:pair-rotated:16")
        >>> data = repair_data(model.towers["scene"], model.towers["text"], world)
        >>> split = BySwaps(coverage=0.5).split(world.scenes, seed=0)
        >>> found = {row.id: row.value for row in repair_rows(data, split, RepairSettings(steps=0)).rows}
        >>> found["crossmodal.repair.lift.object"] > 0.3
        True
    """
    repairer = repairer or RepairSettings()
    repair = repairer.fit(data, split)
    after = repair.applied(data)
    shared = {"family": repairer.kind, "coverage": coverage}
    rows = [replace(row, **shared, on="test") for row in (*_lifts(data, after, split, over), *_chosen(repair))]
    both = None if singles is None or not len(singles) else (singles, repair.shown(singles))
    rows += [replace(row, **shared) for row in cost_rows(data, after, both, seed=repairer.seed, over=over)]
    return Repaired(repair, split, rows)


def _chosen(repair: Fit) -> list[Row]:
    after, before = repair.validation
    how = f"chosen: {repair.chosen}" if repair.chosen != "none" else "nothing tried was better than no repair"
    return [
        Row(id="crossmodal.repair.validation.before", value=before),
        Row(id="crossmodal.repair.validation.after", value=after, reason=how),
    ]


def _lifts(before: RepairData, after: RepairData, split: Split, over: Over) -> list[Row]:
    scorer = CrossScorer(before.scenes[split.test], over=over)
    rows, several = list[Row](), torch.ones(len(split.test), dtype=torch.bool)
    judged = [judge(data, split, "test") for data in (before, after)]
    for way, name, of, where in (
        (0, "concept", lambda found: found.concepts.double().mean(1), None),
        (0, "object", lambda found: found.objects, None),
        (1, "object.unseen", lambda found: found.objects, None),
        (1, "object.swap", lambda found: found.swaps, judged[0][1].swappable),
    ):  # fmt: skip
        rows += _lift(scorer, name, [one[way] for one in judged], of, several if where is None else where)
    return rows


def _lift(
    scorer: CrossScorer,
    name: str,
    found: Sequence[CrossRecognition],
    of: Callable[[CrossRecognition], Tensor],
    where: Tensor,
) -> list[Row]:
    outcomes = [of(one).double() for one in found]
    levels: dict[str, float | None] = {}
    if name in ("object", "object.unseen") and bool(where.any()):
        levels = {
            "chance": float(found[0].chance[where].mean()), "bag_of_concepts": float(found[0].bag[where].mean()),
            "bag_of_concepts_strict": float(found[0].bag_strict[where].mean()),
        }  # fmt: skip
    if name == "object.swap":
        level = float(scorer.swap_level[where].mean()) if bool(where.any()) else None
        levels = {"chance": level, "bag_of_concepts": level, "bag_of_concepts_strict": 0.0}
    rows = [
        estimate_row(f"crossmodal.repair.{when}.{name}", scorer.intervals.mean(values, where), **levels)
        for when, values in zip(("before", "after"), outcomes, strict=True)
    ]
    before, after = ((torch.where(where, one, 0.0), where.double()) for one in outcomes)
    lift = scorer.intervals.difference(before, after, shares=True)
    return [*rows, estimate_row(f"crossmodal.repair.lift.{name}", lift)]


def cost_rows(
    before: RepairData,
    after: RepairData,
    singles: tuple[Embeddings, Embeddings] | None,
    *,
    seed: int = 0,
    over: Over = "values",
) -> list[Row]:
    """What a repair keeps or costs: recognition of single objects, and captions found for scenes and back.

    Args:
        before: the model as it was.
        after: the same scenes and texts, repaired.
        singles: scenes of one object, before and after; None if the world has none.
        seed: of the scenes among which captions are looked up.
        over: what intervals speak of.
    """
    rows = list[Row]()
    both = {"before": before, "after": after}
    if singles is None:
        reason = "the world has no scene of a single object"
        rows.append(Row(id="crossmodal.repair.cost.single.object.after", reason=reason))
    else:
        scorer = CrossScorer(singles[0].scenes, over=over)
        for (when, data), shown in zip(both.items(), singles, strict=True):
            found = recognise_queries(shown.vectors, shown.scenes, data.queries)
            for name, outcomes in (("object", found.objects), ("concept", found.concepts.double().mean(1))):
                estimate = scorer.intervals.mean(outcomes)
                rows.append(estimate_row(f"crossmodal.repair.cost.single.{name}.{when}", estimate))
    taken = torch.arange(len(before.scenes))
    if len(taken) > MOST_FOUND:
        taken = torch.randperm(len(taken), generator=torch.Generator().manual_seed(seed))[:MOST_FOUND].sort().values
    scenes = before.scenes[taken]
    intervals = Intervals(scenes.objects, scenes.values, over=over)
    for when, data in both.items():
        pictures, texts = (normalize(vectors[taken].float(), dim=1) for vectors in (data.vectors, data.captions))
        for name, hits in (
            ("caption", find(pictures, texts, scenes)), ("scene", find(texts, pictures, scenes)),
        ):  # fmt: skip
            rows.append(estimate_row(f"crossmodal.repair.cost.{name}.{when}", intervals.mean(hits)))
    return rows


def find(
    asking: Float[Tensor, "scene dim"], among: Float[Tensor, "scene dim"], scenes: Scenes
) -> Float[Tensor, " scene"]:
    """Whether the nearest of the others' unit vectors shows the same objects, in whatever order; ties share the hit.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3).scenes([[0, 1], [1, 2], [1, 0]])
        >>> find(torch.eye(3), torch.eye(3)[[2, 1, 0]], scenes).tolist()
        [1.0, 1.0, 1.0]
    """
    keys = scenes.unordered_ids[:, None]
    step = max(1, 2**22 // max(len(among), 1))
    hits = [
        retrieve(asking[start : start + step] @ among.T, keys[start : start + step], keys).hits[:, 0]
        for start in range(0, len(asking), step)
    ]
    return torch.cat(hits)


def repair_curve(
    data: RepairData,
    kinds: Sequence[Repairer],
    coverages: Sequence[float],
    *,
    given: Split | None = None,
    singles: Embeddings | None = None,
    over: Over = "values",
    seed: int = 0,
    report: Callable[[str, int, int], None] | None = None,
) -> tuple[dict[tuple[str, float], Repaired], list[Row]]:
    """Every kind of repair at every coverage of objects.

    Objects are held out in closed swap quadruples (`BySwaps`), so that swaps among unseen objects exist. Where there
    are too few values for that, objects are held out at random and the rows say so; where that can't be either, a row
    holds the reason.

    Args:
        data: both towers' vectors.
        kinds: what is fitted.
        coverages: shares of the objects to fit on.
        given: a split by objects to take instead of drawn ones; then `coverages` aren't used.
        singles: scenes of one object, for what repairs cost on them.
        over: what intervals speak of.
        seed: of the splits.
        report: told how many repairs are done, of how many.

    Returns:
        Kind and coverage -> repair; and all rows.

    Raises:
        ValueError: no coverage can be had.
    """
    if given is not None:
        coverages = (round(len((given.objects or {"fit": ()})["fit"]) / data.space.num_objects, 4),)
    found, rows = dict[tuple[str, float], Repaired](), list[Row]()
    done, total = 0, len(kinds) * len(coverages)
    reasons = list[str]()
    for coverage in coverages:
        try:
            split, note = (given, None) if given is not None else _split(data.scenes, coverage, seed)
        except ValueError as error:
            reasons.append(str(error))
            rows += [_missing(one, coverage, str(error)) for one in kinds]
            continue
        for repairer in kinds:
            try:
                one = repair_rows(data, split, repairer, singles=singles, coverage=coverage, over=over)
            except ValueError as error:
                reasons.append(str(error))
                rows.append(_missing(repairer, coverage, str(error)))
                continue
            found[repairer.kind, coverage] = one
            rows += [
                replace(row, reason="; ".join(r for r in (row.reason, note) if r)) if note and row.on == "test" else row
                for row in one.rows
            ]
            done += 1
            if report is not None:
                report("repair", done, total)
    if not found:
        raise ValueError(f"No coverage of {', '.join(f'{c:g}' for c in coverages)} can be had: {reasons[0]}")
    return found, rows


def _split(scenes: Scenes, coverage: float, seed: int) -> tuple[Split, str | None]:
    """Held-out swap quadruples, or random objects and a note."""
    try:
        return BySwaps(coverage=coverage).split(scenes, seed), None
    except ValueError:
        split = ByObject(coverage=coverage).split(scenes, seed)
        return split, "objects held out at random: there are too few values for closed swap quadruples"


def _missing(repairer: Repairer, coverage: float, reason: str) -> Row:
    """The row of a repair that can't be had."""
    id = "crossmodal.repair.after.object.swap"
    return Row(id=id, on="test", family=repairer.kind, coverage=coverage, reason=reason)
