"""Pages of trainings: does a dual encoder bind objects it never saw, and from which coverage on?"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from colligate.records import Row
from colligate.report.figures import BLUE, VERMILLION, Figure, Level, Line, Series, curves, dots
from colligate.report.questions import Section, Study, call, present
from colligate.report.tables import Cell, Table, TableBuilder
from colligate.report.verdict import Tile, Verdict, compare, percent, too_few
from colligate.report.verdict.claims import Answer

IDS = {
    "recognition.object.unseen.swaps": "unseen objects, against their swap",
    "recognition.object.unseen.among_unseen": "unseen objects, among unseen ones",
    "recognition.object.unseen.table": "unseen objects, among all",
    "recognition.object.seen.swaps": "seen objects, against their swap",
    "recognition.object.seen.among_seen": "seen objects, among seen ones",
    "recognition.object.seen.table": "seen objects, among all",
    "recognition.concept.unseen": "values of unseen objects",
    "recognition.concept.seen": "values of seen objects",
}
FAIR = (
    "Whether an object was shown in training leaks into its scores. So unseen objects are judged three ways: among all "
    "objects (the paper's way), among unseen ones, and against the two objects of the scene's swap where all four are "
    "unseen. The last compares like with like."
)

STRICT = "A scene counts if all that it holds scores strictly highest."
TOWERS = {
    "separate": "Scene and query go through two encoders.",
    "shared": "One encoder reads scenes and queries: a query is a scene of one object (or value).",
}
"""What reads scenes and queries, by the setting `towers` of the run."""


def judge_training(rows: Iterable[Row], name: str = "This model") -> Verdict:
    """What a training's numbers allow one to say; a claim on objects needs all three ways of judging them.

    And a scene and its swap must both be right more often than by chance, where that was measured: a network that is
    blind to binding may favour some objects, and is never right twice.

    Example:
        >>> row = {"value": 0.99, "low": 0.98, "high": 1.0, "n": 500, "bag_of_concepts": 0.25}
        >>> ways = ("table", "among_unseen", "swaps")
        >>> rows = [Row(id=f"recognition.object.unseen.{way}", on="test", **row) for way in ways]
        >>> judge_training(rows, "It").sentence
        'It binds objects that it never saw (99 % of scenes among all objects, 99 % against the swap, 98 to 100 %).'
    """
    table = {row.id: row for row in rows}
    tiles = tuple(_tile(title, table.get(id), about) for id, title, about in (
        ("recognition.object.unseen.swaps", "Unseen objects, against the swap", "unseen"),
        ("recognition.object.unseen.table", "Unseen objects, among all", "unseen"),
        ("recognition.object.seen.table", "Seen objects, among all", "seen"),
        ("recognition.concept.unseen", "Values of unseen objects", "values"),
    ))  # fmt: skip
    ways = [table.get(f"recognition.object.unseen.{way}") for way in ("table", "among_unseen", "swaps")]
    seen = [table.get(f"recognition.object.seen.{way}") for way in ("table", "among_seen", "swaps")]
    answers, of_seen = (
        [
            *(compare(row, row.bag_of_concepts if row is not None else None) for row in of),
            *_both_ways(table.get(f"recognition.object.{part}.swaps.both")),
        ]
        for part, of in (("unseen", ways), ("seen", seen))
    )
    shares = [percent(row.value) if row is not None and row.value is not None else "none" for row in ways]
    if all(answer == "yes" for answer in answers):
        sentence = (
            f"{name} binds objects that it never saw ({shares[0]} of scenes among all objects, {shares[2]} against "
            f"the swap{_how_sure(ways[2])})."
        )
    elif "no verdict" in answers or "not measured" in answers:
        sentence = f"No verdict on unseen objects for {name}: too few of them were held out, or none with their swap."
    elif "undecided" in answers and "no" not in answers:
        sentence = f"Whether {name} binds objects that it never saw is undecided: an interval spans the level of a bag."
    elif all(answer == "yes" for answer in of_seen):
        sentence = f"{name} binds the objects that it saw; on unseen ones it does not clear an ideal bag of concepts."
    else:
        sentence = f"{name} does not clear an ideal bag of concepts, on seen objects or on unseen ones."
    return Verdict(sentence, tiles)


def _both_ways(row: Row | None) -> tuple[Answer, ...]:
    """What a scene and its swap, both right, say; nothing where they weren't measured."""
    if row is None or row.value is None:
        return ()
    answer = compare(row, row.chance)
    return ("undecided" if answer == "no" else answer,)  # below chance bounds no binding: blindness has 0


def _how_sure(row: Row | None) -> str:
    """The interval of a share, where it isn't a point."""
    if row is None or row.low is None or row.high is None or row.low == row.high:
        return ""
    return f", {percent(row.low).removesuffix(' %')} to {percent(row.high)}"


def _tile(title: str, row: Row | None, about: str) -> Tile:
    level = None if row is None else row.chance if about == "values" else row.bag_of_concepts
    answer = compare(row, level)
    if row is None or row.value is None:
        return Tile("recognition", title, answer, f"Not measured: {row.reason if row else 'no such row'}.", row)
    what = "chance" if about == "values" else "an ideal bag of concepts"
    against = "" if level is None else f"; {what} reaches {percent(level)}"
    return Tile("recognition", title, answer, f"Recognized in {percent(row.value)} of scenes{against}.", row)


def training_sections(study: Study) -> tuple[Section, ...]:
    """Recognition at the end, and along the way."""
    return (_recognition(study), _along(study))


def _recognition(study: Study) -> Section:
    rows = {id: next((row for row in study.table.rows if row.id == id), None) for id in IDS}
    builder = TableBuilder(
        "recognition", "Share of scenes in which everything present outscores everything it is compared with.",
        ("", "recognised", "chance", "bag of concepts", "bag, strict", "scenes"),
    )  # fmt: skip
    for id, label in IDS.items():
        row = rows[id]
        if row is not None:
            levels = (builder.level(row, name) for name in ("chance", "bag_of_concepts", "bag_of_concepts_strict"))
            builder.add(label, builder.value(row), *levels, builder.count(row))
    figure = dots(
        "recognition", "Recognition by text-like queries", [Line(label, {"": rows[id]}) for id, label in IDS.items()],
        {"": Series("this model", "disc", BLUE)}, axis="share of scenes",
        note="A bar is the 95 % interval over other values and objects.",
    )  # fmt: skip
    made = builder.build()
    return Section(
        "recognition", "Does it bind objects that it never saw?",
        judge_training(study.table.rows, "The model").sentence if made else "",
        present(FAIR, TOWERS.get(str(study.config.get("towers"))), STRICT),
        call(study, "recognition", "recognition."), present(figure), present(made),
        "" if made else "This run holds no recognition.",
    )  # fmt: skip


def _along(study: Study) -> Section:
    entries: Sequence[Mapping[str, Any]] = study.figures.get("curve") or []
    shown = {
        "unseen.swaps": "unseen, against the swap", "unseen.table": "unseen, among all",
        "seen.table": "seen, among all",
        "concept.unseen": "values of unseen objects",
    }  # fmt: skip
    lines = {
        label: [(float(e["step"]), Row(id=key, value=float(e[key]))) for e in entries if key in e]
        for key, label in shown.items()
    }
    figure = curves(
        "curve", "Recognition along training", lines, axis="step",
        note="A few hundred scenes at each look, without intervals. The checkpoint is chosen on validation objects.",
    )  # fmt: skip
    steps = sorted({x for of_line in lines.values() for x, _ in of_line})
    figure = figure if len(steps) > 1 else None
    missing = "No curve was kept."
    if len(steps) == 1:
        missing = f"There was one look, at step {steps[0]:,.0f}, so there is no curve; the numbers stand in the table."
    losses = [float(e["loss"]) for e in entries if "loss" in e]
    finding = f"The loss fell from {losses[0]:.2f} to {losses[-1]:.2f}." if len(losses) > 1 else ""
    return Section(
        "curve", "When did it emerge?", finding,
        ("A plateau at the bag-of-concepts level, then a rise, is binding that emerges.",),
        call(study, "curve", "recognition."), present(figure), (),
        "" if figure else missing,
    )  # fmt: skip


def judge_sweep(rows: Iterable[Row], name: str = "This sweep") -> Verdict:
    """From which coverage on every seed binds unseen objects, for each kind of model."""
    found = list(rows)
    said = list[str]()
    for family, points in _points(found, "recognition.object.unseen.swaps").items():
        bound = [coverage for coverage, of_point in sorted(points.items()) if all(_binds(row) for row in of_point)]
        never = f"{family}: at no coverage do all seeds bind unseen objects"
        said.append(f"{family}: every seed binds unseen objects at coverage {_span(bound)}" if bound else never)
    sentence = "; ".join(said) + "." if said else f"{name} scored no unseen swaps."
    return Verdict(sentence, ())


def _span(coverages: Sequence[float]) -> str:
    return ", ".join(f"{100 * coverage:.0f} %" for coverage in coverages)


def _binds(row: Row) -> bool:
    return not too_few(row) and row.low is not None and row.low > (row.bag_of_concepts or 0.0)


def _points(rows: Iterable[Row], id: str) -> dict[str, dict[float, list[Row]]]:
    """Family -> coverage -> the rows of its seeds."""
    found: dict[str, dict[float, list[Row]]] = {}
    for row in rows:
        if row.id == id and row.coverage is not None and row.value is not None:
            found.setdefault(row.family or "", {}).setdefault(round(row.coverage, 3), []).append(row)
    return found


def sweep_sections(study: Study) -> tuple[Section, ...]:
    """The paper's Figure 6: recognition against coverage, a panel for each kind of model."""
    families = sorted({row.family or "" for row in study.table.rows})
    figures = present(*(_panel(study, i, family) for i, family in enumerate(families)))
    made = _sweep_table(study.table.rows)
    return (
        Section(
            "emergence", "From which coverage on do models bind objects they never saw?",
            judge_sweep(study.table.rows).sentence if made else "",
            (FAIR, "Lines: the median over seeds. Shade: from the lowest seed to the highest."),
            call(study, "emergence", "recognition."), figures, present(made),
            "" if made else "This sweep holds no trainings.",
        ),
    )  # fmt: skip


PANEL = {
    "recognition.object.unseen.swaps": "unseen objects, against the swap",
    "recognition.object.unseen.table": "unseen objects, among all",
    "recognition.object.seen.table": "seen objects, among all",
    "recognition.concept.unseen": "values of unseen objects",
}


def _panel(study: Study, number: int, family: str) -> Figure | None:
    lines, bands = dict[str, list[tuple[float, Row]]](), dict[str, list[tuple[float, float, float]]]()
    bag = list[tuple[float, float]]()
    for id, label in PANEL.items():
        for coverage, rows in sorted(_points(study.table.rows, id).get(family, {}).items()):
            values = sorted(row.value for row in rows if row.value is not None)
            middle = Row(id=id, on="test", coverage=coverage, value=median(values), seeds=len(values))
            lines.setdefault(label, []).append((coverage, middle))
            bands.setdefault(label, []).append((coverage, values[0], values[-1]))
            levels = [row.bag_of_concepts for row in rows if row.bag_of_concepts is not None]
            if id == "recognition.object.unseen.table" and levels:
                bag.append((coverage, sum(levels) / len(levels)))
    return curves(
        f"emergence-{number}", f"Recognition against coverage: {family}", lines, axis="seen objects / all objects",
        bands=bands, levels=[Level("bag of concepts, among all", "cross", VERMILLION, bag)] if bag else [],
        half=True,
    )  # fmt: skip


def _sweep_table(rows: Iterable[Row]) -> Table | None:
    found = list(rows)
    builder = TableBuilder(
        "emergence", "Median over seeds, lowest and highest below it.",
        ("model, coverage", *PANEL.values(), "seeds"),
    )  # fmt: skip
    points = {id: _points(found, id) for id in PANEL}
    keys = sorted({(f, c) for of_id in points.values() for f, of_family in of_id.items() for c in of_family})
    for family, coverage in keys:
        cells, seeds = list[Cell](), 0
        for id in PANEL:
            values = sorted(r.value for r in points[id].get(family, {}).get(coverage, []) if r.value is not None)
            seeds = max(seeds, len(values))
            spread = Row(id=id, value=median(values), low=values[0], high=values[-1]) if values else None
            cells.append(builder.value(spread))
        builder.add(f"{family}, {100 * coverage:.0f} %", *cells, Cell(str(seeds)))
    return builder.build()
