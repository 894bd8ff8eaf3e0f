"""Question 1 as rows of a table: probes, decomposition, removal, information; edits stand in `editing`.

Each function takes a `Subject` and gives the rows of one table of the paper; together they share probes and
decompositions.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.by_value import by_value
from colligate.geometry.components import (
    Decomposition,
    Parts,
)
from colligate.geometry.information import (
    Information,
    LinearScores,
    QuadraticScores,
    attention_information,
    binding_information,
)
from colligate.geometry.objects import object_squares, objects_by_chance
from colligate.geometry.paper import shuffle_names
from colligate.geometry.removal import permute_names, remove
from colligate.geometry.scoring import RetrievalLevels, Scorer, rescaled_rows
from colligate.geometry.subject import ESTIMATORS, Subject
from colligate.intervals import Intervals
from colligate.measures import COUNTED, UNLISTED
from colligate.probes import ProbeOutcomes, both_right, fit_probes, swap_foils
from colligate.records import Row


def probe_rows(subject: Subject) -> list[Row]:
    """Do linear read-outs name the values, and the objects, of scenes they never saw?

    Paper: "probing" of Tables 2 and 5.
    """
    rows = subject.split.test
    scenes = subject.scenes[rows]
    outcomes = subject.probes.recognise(subject.embeddings.vectors[rows], scenes)
    score = Scorer(subject, "test", scenes)
    each = tuple(f"concept.{name}" for name in scenes.space.names)
    found = list(
        score.recognition(
            "probe.{}", outcomes, ("concept", "concept.joint", "concept.across", *each, "object", "object.swap")
        )
    )
    if outcomes.ties is not None:
        found += [*_blind_to_binding(subject, score), score.mean("ties.probe.object", outcomes.ties)]
        found += _swaps_by_value(subject, score, outcomes)
    return found


def _swaps_by_value(subject: Subject, score: Scorer, outcomes: ProbeOutcomes) -> Iterator[Row]:
    """Swaps for scenes that hold a value, and for those of the values whose swaps are told least."""
    rows, swaps = subject.split.validation, outcomes.swaps
    looked_at = subject.scenes[rows]
    found = subject.probes.recognise(subject.embeddings.vectors[rows], looked_at).swaps
    if swaps is None or found is None:
        return
    different, chance = score.swap_levels

    def row(id: str, among: Tensor, **more: Any) -> Row:
        level = float(chance[among].mean()) if bool(among.any()) else None
        return score.mean(id, swaps, among, chance=level, bag_of_concepts=level, **more)

    there = (swap_foils(looked_at) & subject.occurring).any(1).double()
    yield from by_value("probe.object.swap", score.scenes, different, row, looked_at, found.double(), there)


def _blind_to_binding(subject: Subject, score: Scorer) -> Iterator[Row]:
    """What tells binding apart from a lucky preference for some objects: swaps right both ways, and the ceiling."""
    rows, blind = subject.split.test, score.blind
    unfitted = torch.ones(len(subject.scenes), dtype=torch.bool)
    unfitted[subject.split.fit] = False
    scores = subject.scores[:, sum(subject.scenes.space.sizes) :]
    found = both_right(scores, subject.scenes, rows, unfitted)
    counted = found.swaps > 0
    chance = float(found.chance[counted].mean()) if bool(counted.any()) else None
    yield score.mean(
        "probe.object.swap.both", found.hits, counted, chance=chance, bag_of_concepts=0.0, bag_of_concepts_strict=0.0
    )
    if blind is None:
        yield subject.row("probe.object.blind", "test", reason=UNLISTED)
    else:
        by_chance = float(score.object_levels[0].mean())
        yield subject.row(
            "probe.object.blind", "test", value=float(blind.mean()), n=len(rows), chance=by_chance, reason=COUNTED
        )


def decomposition_rows(subject: Subject, names: tuple[str, ...] | None = None) -> list[Row]:
    """How much do the components explain, and do they find their scene again? Paper: Tables 2 and 4.

    Args:
        subject: what is measured.
        names: of `ESTIMATORS`; all by default.
    """
    levels, found = RetrievalLevels.of(subject.scenes), list[Row]()
    scorers = {on: Scorer(subject, on, subject.scenes[subject.rows_on(on)]) for on in ("all", "fit", "test")}
    for name in names or tuple(name for name, *_ in ESTIMATORS):
        for on, score in scorers.items():
            try:
                decomposition = subject.decomposition(name, on)
                squares = decomposition.squares(subject.embeddings, None if on == "all" else subject.rows_on(on))
            except ValueError as error:
                found += [
                    subject.row(id, on, reason=str(error))
                    for id in (f"r2.{name}", f"retrieval.{name}", f"retrieval.{name}.up_to_order")
                ]
                continue
            found += _reconstruction(subject, score, name, decomposition, squares, levels)
    for on in ("all", "fit"):
        for positions in ("", "+pos"):
            found.append(_objects_from_concepts(subject, on, positions))
    return found + rescaled_rows(subject, found)


def _reconstruction(
    subject: Subject,
    score: Scorer,
    name: str,
    decomposition: Decomposition,
    squares: tuple[Tensor, Tensor],
    levels: RetrievalLevels,
) -> Iterator[Row]:
    rows = subject.rows_on(score.on)
    yield score.explained(f"r2.{name}", *squares, chance=subject.explained_by_chance(name, score.on))
    chosen = torch.arange(len(rows))
    budget = subject.affordable(subject.settings.retrieval_budget)
    if len(rows) > budget:
        generator = torch.Generator().manual_seed(subject.settings.seed)
        chosen = torch.randperm(len(rows), generator=generator)[:budget].sort().values
    hits = decomposition.retrieve(subject.embeddings, rows[chosen], subject.directions)
    cut = None
    if budget < subject.settings.retrieval_budget and len(chosen) < len(rows):
        cut = f"scored on a seeded choice of {len(chosen):,} scenes: look-ups among {len(subject.scenes):,} are cut"
    part = score if len(chosen) == len(rows) else Scorer(subject, score.on, score.scenes[chosen])
    scored = rows[chosen]
    yield part.mean(f"retrieval.{name}", hits.hits[:, 0], reason=cut, **levels.exact(scored))
    yield part.mean(f"retrieval.{name}.up_to_order", hits.hits[:, 1], reason=cut, **levels.up_to_order(scored))
    yield part.mean(f"ties.retrieval.{name}", hits.tied > 1)
    if score.on == "test":
        outcomes = subject.probes.recognise(decomposition.predict(score.scenes).float(), score.scenes)
        kinds = ("concept", "concept.joint", "object")
        yield from score.recognition(f"reconstruction.probe.{{}}.{name}", outcomes, kinds)


def _objects_from_concepts(subject: Subject, on: str, positions: str) -> Row:
    id = f"r2.objects_from_concepts{positions}"
    try:
        decomposition = subject.decomposition(f"object{positions}.least_squares", on)
    except ValueError as error:
        return subject.row(id, on, reason=str(error))
    errors, totals = object_squares(decomposition)
    objects = (totals > 0).nonzero()
    values = subject.scenes.space.object_values(objects)
    estimate = Intervals(objects, values, over=subject.settings.over).explained(
        errors[objects[:, 0]], totals[objects[:, 0]]
    )
    return subject.row(
        id, on, value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n, objects=estimate.objects,
        chance=objects_by_chance(decomposition), reason=estimate.reason,
    )  # fmt: skip


def removal_rows(subject: Subject) -> list[Row]:
    """What do probes still read once the components of concepts, or of objects, are taken out? Paper: Table 5.

    Components come from the fit part. The permuted controls look the same components up under wrong names. Probes are
    trained anew on what is left (as the paper's code does), and the ones trained on the whole vectors are tried too.
    Under protocol `paper` components are tables trained by AdamW on 99 % of all scenes, as the authors' code has them.
    """
    rows = subject.split.test
    score = Scorer(subject, "test", subject.scenes[rows])
    found = list[Row]()
    variants: dict[str, Callable[[], Embeddings]] = {"original": lambda: subject.embeddings}
    for parts in ("concept", "object"):
        variants[parts] = partial(_without, subject, parts, permuted=False)
        variants[f"{parts}.permuted"] = partial(_without, subject, parts, permuted=True)
    for what, make in variants.items():
        try:
            left = make()
        except ValueError as error:
            found += [
                subject.row(f"removal.{what}.{how}.{of}", "test", reason=str(error))
                for how in ("retrained", "frozen") for of in ("concept", "object")
            ]  # fmt: skip
            continue
        retrained = subject.probes if what == "original" else fit_probes(left, subject.split, subject.probe_settings)
        for how, probes in (("retrained", retrained), ("frozen", subject.probes)):
            outcomes = probes.recognise(left.vectors[rows], score.scenes)
            found += score.recognition(f"removal.{what}.{how}.{{}}", outcomes, ("concept", "object"))
    return found + rescaled_rows(subject, found)


def _without(subject: Subject, parts: Parts, *, permuted: bool) -> Embeddings:
    """The vectors after their components are taken out, or others' under wrong names.

    Exact least squares with names that none keeps; under protocol `paper` trained tables and a plain permutation.
    """
    seed, scenes, names = subject.settings.seed, subject.scenes, None
    if subject.settings.probes.protocol == "paper":
        if permuted:
            names = shuffle_names(scenes, parts, seed)
        return remove(subject.embeddings, subject.tables(parts), names)
    if permuted:
        names = permute_names(scenes, parts, seed)
    return remove(subject.embeddings, subject.decomposition(f"{parts}+pos.least_squares", "fit"), names)


def information_rows(
    subject: Subject, family: str | None = None, *, quadratic: bool = True, grid: Mapping[str, Any] | None = None
) -> list[Row]:
    """How many bits about which values go together, beyond which values there are? See `geometry.information`.

    Args:
        subject: what is measured.
        family: name of the layer or token read-out, where there are several.
        quadratic: whether to try the quadratic read-out too.
        grid: shrinkages and penalties to try instead of the default ones.
    """
    found = list[Row]()
    for form in (LinearScores(), QuadraticScores()) if quadratic else (LinearScores(),):

        def read(form: LinearScores | QuadraticScores = form) -> Information:
            return binding_information(
                subject.embeddings, subject.split, form, seed=subject.settings.seed, **(grid or {})
            )

        found += _told(subject, form.name, family, read)
    return found


MOST_TOKEN_NUMBERS = 300_000_000
"""Most numbers in the tokens of all scenes that are read by attention."""


def attention_rows(
    subject: Subject, tokens: Float[Tensor, "scene token dim"], mask: Bool[Tensor, "scene token"]
) -> list[Row]:
    """The same from the tokens of each item, read by attention: what pooling into one vector threw away."""
    return _told(
        subject, "attention", None,
        lambda: attention_information(tokens, mask, subject.scenes, subject.split, seed=subject.settings.seed),
    )  # fmt: skip


def _told(subject: Subject, readout: str, family: str | None, read: Callable[[], Information]) -> list[Row]:
    try:
        told = read()
    except ValueError as error:
        return [
            subject.row(f"information.{readout}.{unit}", "test", family=family, reason=str(error))
            for unit in ("bits", "ratio")
        ]
    score = Scorer(subject, "test", subject.scenes[told.rows])
    levels: dict[str, Any] = {"chance": 0.0, "bag_of_concepts": 0.0, "bag_of_concepts_strict": 0.0, "family": family}
    found = [
        score.mean(f"information.{readout}.bits", told.entropy - told.left, **levels),
        score.explained(f"information.{readout}.ratio", told.left, told.entropy, **levels),
    ]
    if family is None and told.chosen_on is not None:
        looked_at = told.chosen_on

        def row(id: str, among: Tensor, **more: Any) -> Row:
            return score.explained(id, told.left, told.entropy, among, bag_of_concepts=0.0, **more)

        found += by_value(
            f"information.{readout}", score.scenes, told.entropy > 0, row,
            subject.scenes[looked_at.rows], looked_at.entropy - looked_at.left, looked_at.entropy,
        )  # fmt: skip
    return found
