"""The question of complexity: how simple a rule is enough, and does it carry over to objects never seen?"""

import re
from collections.abc import Iterable, Mapping, Sequence

from colligate.records import Row
from colligate.report.figures import BLUE, GREY, VERMILLION, Figure, Level, Line, Series, curves, dots
from colligate.report.questions import Section, Study, call, findings, known, present
from colligate.report.tables import Cell, Table, TableBuilder, decimals, words
from colligate.report.verdict import Measured, Verdict, rule_in_words
from colligate.report.verdict.claims import percent
from colligate.report.verdict.rules import not_fitted

HOLLOW = (
    "Hollow: in most splits the objects fitted on don't determine the rule, never show some value, or the fit falls "
    "short of what the family can reach; such points say nothing about complexity and are left out of the area, and no "
    "line or shade runs to them."
)

BITS = (
    "Bits a scene: the code length of its vector, each coordinate to a thousandth of the vectors' total standard "
    "deviation, where objects are revealed in blocks and a rule learned from those seen codes the next; saved: how "
    "many fewer than a Gaussian that knows the mean alone.",
    "Bits count all variance that a rule explains on the way, and what learning it costs; the area counts only objects "
    "recognised in scenes of unseen objects. A rule may save bits though its area is about 0, and the reverse.",
)
"""What code length is, and why it and the area may point different ways; for the page and the terminal."""

BITS_APART = (
    "Bits saved a contrast: the same for a scene minus its swap, where neither has been learned from; exactly 0 for "
    "whatever is blind to swaps."
)


SUM_ALONE = (
    "Where validation took no product or no hidden layer, a rule is the sum of values, whatever its family could do: "
    "families that do so in all splits have the same numbers."
)


CONTRAST = (
    "Contrast with swaps: of a scene minus the one in which two objects have exchanged a value, both averaged over the "
    "order of their objects, the share that a rule predicts among unseen objects, in axes of equal size weighted by "
    "how much scenes share there. 0 for whatever is blind to swaps: a sum, a quadratic bag of concepts. R² counts the "
    "values' variance above all, and is no evidence of binding."
)


def span(coverages: Sequence[float]) -> str:
    """The coverages of an area, as headings and labels have them.

    Example:
        >>> span((0.2, 0.4, 0.8)), span((0.5,)), span(())
        ('20–80 %', '50 %', 'coverages unknown')
    """
    if not coverages:
        return "coverages unknown"
    return "\N{EN DASH}".join(dict.fromkeys(f"{100 * c:.3g}" for c in (coverages[0], coverages[-1]))) + " %"


def area_said(table: Measured) -> str:
    """What an area is, and over which coverages each is.

    Example:
        >>> rows = [Row(id="complexity.area", on="test", family="additive", value=0.1)]
        >>> rows += [Row(id="rescaled.complexity.object", family="additive", coverage=c, value=0.1) for c in (0.2, 0.4)]
        >>> area_said(Measured(rows))[119:214]
        'mean over coverages (fit objects / all objects) of 20, 40 %. Over others, it is another number.'
    """
    found: dict[tuple[float, ...], list[str]] = {}
    for row in table.families("complexity.area"):
        if row.value is not None:
            found.setdefault(table.area_coverages(row.family), []).append(rule_in_words(row.family or ""))
    over = list[str]()
    for coverages, names in found.items():
        shown = (
            f"{', '.join(f'{100 * c:.3g}' for c in coverages)} %" if coverages else "some that the table doesn't name"
        )
        over.append(shown if len(found) == 1 else f"{shown} for {', '.join(names)}")
    return (
        "Area: objects recognised, where 0 is what the probes read in a sum of values and 1 what they read in the true "
        f"vectors; mean over coverages (fit objects / all objects) of {'; '.join(over)}. Over others, it is another "
        "number. An ideal bag of concepts, which knows exactly what values are there, stands beside it."
    )


def complexity_section(study: Study, verdict: Verdict) -> Section:
    """Figures 4, 7 and 8 of the paper: families by coverage and width, and what the code length says."""
    table = study.table
    tiles = [tile for tile in verdict.tiles if tile.key == "complexity"]
    by_family = _by_family(table.rows, "complexity.object")
    summary = _summary(study, by_family)
    drawn = present(
        _by_coverage(study, "object", "Objects recognised in scenes of unseen objects"),
        _by_coverage(study, "concept", "Values recognised in the same scenes"),
        _by_coverage(study, "r2", "Variance explained in the same scenes"),
        _by_width(study),
        _best(study),
        _bits(study),
    )
    return Section(
        "complexity",
        "How complex is the binding function?",
        findings(*tiles) if summary else "",
        (
            "A rule from values to vectors is fitted on the scenes of some objects and predicts scenes of others; the "
            "probes then read its predictions. What a rule reads there, it has understood, not memorised.",
            HOLLOW,
            *_budget(study),
        ),
        call(study, "complexity", "complexity."),
        drawn,
        present(summary),
        "" if summary or drawn else "This study fitted no rules, so their complexity can't be judged here.",
    )


def _budget(study: Study) -> tuple[str, ...]:
    """Said where rules learn from a choice of the scenes that they might learn from."""
    cut = [row for row in study.table.rows if row.id == "complexity.scenes" and "choice of" in (row.reason or "")]
    if not cut:
        return ()
    most = max(row.value or 0.0 for row in cut)
    return (f"Where the objects fitted on have more than {most:,.0f} scenes, rules learn from so many of them.",)


def _by_family(rows: Iterable[Row], id: str) -> dict[str, list[tuple[float, Row]]]:
    """Family -> coverage and row."""
    found: dict[str, list[tuple[float, Row]]] = {}
    for row in rows:
        if row.id == id and row.family is not None and row.coverage is not None and row.value is not None:
            found.setdefault(row.family, []).append((row.coverage, row))
    return {family: sorted(places, key=lambda place: place[0]) for family, places in found.items()}


def _unsound(study: Study) -> set[tuple[str | None, float | None]]:
    return {
        (row.family, row.coverage) for row in study.table.rows
        if row.id == "complexity.sound" and (row.value or 0.0) <= 0.5
    }  # fmt: skip


def _by_coverage(study: Study, kind: str, title: str) -> Figure | None:
    rows = study.table.rows
    found = _by_family(rows, f"complexity.{kind}")
    hollow = _unsound(study)
    levels = list[Level]()
    if kind != "r2":
        top = _by_family(rows, f"complexity.ceiling.{kind}").get("ceiling", [])
        levels.append(Level("the probes on the true vectors", "plus", GREY, _places(top, "value")))
        if kind == "object":
            bag = _places(top, "bag_of_concepts")
            levels.append(Level("bag of concepts, ties at random", "cross", VERMILLION, bag))
        levels.append(Level("chance", "tick", GREY, _places(top, "chance")))
    return curves(
        f"complexity-{kind}",
        title,
        {rule_in_words(family): places for family, places in found.items()},
        axis="objects fitted on / all objects",
        note="Bars: 95 % interval over values and objects. Shade: one standard deviation over splits of the objects."
        if kind == "object"
        else "",
        half=kind != "object",
        hollow=lambda row: (row.family, row.coverage) in hollow,
        bands=_bands(found, _by_family(rows, "complexity.object.spread")) if kind == "object" else None,
        levels=[level for level in levels if level.places],
    )


def _places(found: Sequence[tuple[float, Row]], name: str) -> list[tuple[float, float]]:
    return [(x, getattr(row, name)) for x, row in found if getattr(row, name) is not None]


def _bands(
    found: Mapping[str, Sequence[tuple[float, Row]]], spreads: Mapping[str, Sequence[tuple[float, Row]]]
) -> dict[str, list[tuple[float, float, float]]]:
    bands: dict[str, list[tuple[float, float, float]]] = {}
    for family, places in found.items():
        spread = {x: row.value or 0.0 for x, row in spreads.get(family, ())}
        bands[rule_in_words(family)] = [
            (x, max((row.value or 0.0) - spread[x], 0.0), min((row.value or 0.0) + spread[x], 1.0))
            for x, row in places
            if x in spread
        ]
    return bands


def _by_width(study: Study) -> Figure | None:
    """Recognition over the width of the hidden layer, a line for some coverages."""
    hollow = _unsound(study)
    points: dict[float, list[tuple[float, Row]]] = {}
    for family, places in _by_family(study.table.rows, "complexity.object").items():
        match = re.fullmatch(r"(?:paper\.)?mlp(\d+)", family)
        if match is None:
            continue
        for coverage, row in places:
            points.setdefault(coverage, []).append((float(match[1]), row))
    coverages = [c for c in sorted(points) if len(points[c]) > 1]
    kept = coverages if len(coverages) <= 4 else [coverages[i * (len(coverages) - 1) // 3] for i in range(4)]
    return curves(
        "complexity-width",
        "Objects recognised, by width of the hidden layer",
        {f"{100 * coverage:.0f} % of objects fitted on": points[coverage] for coverage in kept},
        axis="hidden units",
        note="A wider layer can follow a more complex rule; where width adds nothing, complexity isn't what lacks.",
        half=True,
        hollow=lambda row: (row.family, row.coverage) in hollow,
        doubling=True,
    )


def _best(study: Study) -> Figure | None:
    """The most that any sound point reaches, for values and for objects (the paper's Figure 4b)."""
    hollow = _unsound(study)
    lines = list[Line]()
    for kind, label in (("concept", "values"), ("object", "objects")):
        rows = [
            row for places in _by_family(study.table.rows, f"complexity.{kind}").values() for _, row in places
            if (row.family, row.coverage) not in hollow
        ]  # fmt: skip
        if rows:
            best = max(rows, key=lambda row: row.value or 0.0)
            where = f"{rule_in_words(best.family or '')}, {100 * (best.coverage or 0.0):.0f} % of objects"
            lines.append(Line(f"{label} ({where})", {"": best}))
    return dots(
        "complexity-best", "The most that any rule reaches at any coverage", lines,
        {"": Series("best rule", "disc", BLUE)}, axis="share of scenes of unseen objects",
        note="A maximum over rules and coverages flatters: read it beside the curves.",
    )  # fmt: skip


def _bits(study: Study) -> Figure | None:
    rows = {row.family: row for row in study.table.families("complexity.bits_saved") if row.value is not None}
    base = next((row.value for row in study.table.families("complexity.bits") if row.family == "gaussian"), None)
    if not rows or not base:
        return None
    lines = [Line(rule_in_words(family or ""), {"": _per(row, base)}) for family, row in rows.items()]
    return dots(
        "complexity-bits", "Bits saved by knowing the rule, of those that the vectors take", lines,
        {"": Series("share of bits", "disc", BLUE)}, axis="share of bits saved", levels=False,
        note=" ".join(BITS),
    )  # fmt: skip


def _per(row: Row, base: float) -> Row:
    low = row.low / base if row.low is not None else None
    high = row.high / base if row.high is not None else None
    return Row(id=row.id, family=row.family, value=(row.value or 0.0) / base, low=low, high=high, n=row.n)


def _summary(study: Study, by_family: Mapping[str, Sequence[tuple[float, Row]]]) -> Table | None:
    table = study.table
    areas = {row.family: row for row in table.families("complexity.area")}
    bits = {row.family: row for row in table.families("complexity.bits_saved")}
    apart = {row.family: row for row in table.families("complexity.bits_saved.swap")}
    contrasts = {row.family: row for row in table.families("complexity.contrast")}
    coverages = sorted({x for places in by_family.values() for x, _ in places})
    shown = coverages if len(coverages) <= 2 else [coverages[(len(coverages) - 1) // 2], coverages[-2]]
    over = {table.area_coverages(family) for family, row in areas.items() if row.value is not None}
    area = f"area, {span(over.pop())}" if len(over) == 1 else "area, coverages below"
    builder = TableBuilder(
        "complexity",
        "Rules fitted on some objects, scored on scenes made only of others (the paper's Figures 4 and 8 as numbers).",
        (
            "rule", area, "ideal bag of concepts", "contrast with swaps, R²",
            *(f"objects, {100 * c:.0f} %" for c in shown), *(f"R², {100 * c:.0f} %" for c in shown),
            "R², random weights", "training R²", "most the fit reached", "validation took", "bits saved a scene",
            *(("bits saved a contrast",) if apart else ()), "sound splits",
        ),
    )  # fmt: skip
    values = {
        id: {(row.family, row.coverage): row for row in table.rows if row.id == f"complexity.{id}"}
        for id in ("object", "r2", "train_r2", "reached_r2", "sound")
    }
    for family in dict.fromkeys([*areas, *by_family]):
        if family is None:
            continue
        sound = known(values["sound"].get((family, shown[-1]))) if shown else None
        last = values["r2"].get((family, shown[-1])) if shown else None
        control = last.random_init if last is not None else None
        builder.add(
            rule_in_words(family),
            builder.value(areas.get(family)),
            Cell(decimals(bag, 2)) if (bag := _bag(areas.get(family))) is not None else builder.absent(None),
            builder.value(contrasts.get(family)),
            *(builder.value(values["object"].get((family, c))) for c in shown),
            *(builder.value(values["r2"].get((family, c))) for c in shown),
            Cell(decimals(control)) if control is not None else builder.absent(None),
            *(
                builder.value(values[id].get((family, shown[-1]))) if shown else builder.absent(None)
                for id in ("train_r2", "reached_r2")
            ),
            *words([_taken(values["train_r2"].get((family, shown[-1]))) if shown else ""]),
            builder.value(bits.get(family), 1),
            *((builder.value(apart.get(family), 1),) if apart else ()),
            Cell(decimals(sound, 2)) if sound is not None else builder.absent(None),
        )
    return builder.build(
        *((area_said(table),) if any(row.value is not None for row in areas.values()) else ()),
        *((CONTRAST,) if contrasts else ()),
        *((_axes(study),) if _axes(study) else ()),
        *((_unfitted(study),) if not_fitted(table) else ()),
        *(BITS if any(row.value is not None for row in bits.values()) else ()),
        *((BITS_APART,) if apart else ()),
        *((SUM_ALONE,) if any(_taken(row) for row in values["train_r2"].values()) else ()),
        "Training R² (of the rule that validation took), the most that the fit reached under any penalty, R² of the "
        "model with random weights, and sound splits are those of the largest coverage shown.",
    )


def _bag(row: Row | None) -> float | None:
    return None if row is None else row.bag_of_concepts


def _axes(study: Study) -> str:
    """What share of the variance the largest axes hold."""
    shares = [row.value for row in study.table.families("complexity.axis") if row.value is not None]
    if not shares:
        return ""
    shown = ", ".join(percent(share) for share in shares)
    return (
        f"The {len(shares)} largest principal axes hold {shown} of the variance: R² is about them as far as they go. "
        "The verdict rests on contrasts and probes, which don't depend on the scale of axes."
    )


def _unfitted(study: Study) -> str:
    """Which hidden layers are not fitted, and at which coverages."""
    table = study.table
    found = list[str]()
    for family in not_fitted(table):
        at = [row.coverage or 0.0 for row in table.rows if row.id == "complexity.adequate" and row.family == family]
        where = ", ".join(f"{100 * c:.3g}" for c in at if family in not_fitted(table, (c,)))
        found.append(f"{rule_in_words(family)} (at {where} %)")
    return (
        f"Not fitted: {'; '.join(found)}. A quadratic bag of concepts, in closed form, explains over .02 more of the "
        "validation objects' scenes there, and hidden layers can come near to it; such points are hollow, and neither "
        "area nor verdict rests on them."
    )


def _taken(row: Row | None) -> str:
    """Where validation took nothing of what a family adds to a sum, and in how many splits; "" where nowhere.

    Example:
        >>> _taken(Row(id="complexity.train_r2", reason="validation took no product in 3 of 20 splits; no level"))
        'no product in 3 of 20 splits'
    """
    found = re.search(r"validation took (no [^;]+)", (row.reason if row is not None else None) or "")
    return found[1] if found else ""
