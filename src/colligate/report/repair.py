"""The page of a repair: what it brought on objects it never saw, how far it could go, and what it cost."""

from collections.abc import Iterable, Mapping, Sequence

from colligate.records import Row
from colligate.report.figures import Figure, curves
from colligate.report.questions import Section, Study, call, present
from colligate.report.tables import Cell, Table, TableBuilder
from colligate.report.verdict import Answer, Tile, Verdict, compare, percent

FEW_SCENES, FEW_OBJECTS = 60, 12
"""Below one of these a lift is told, and not claimed: intervals over so few objects are too narrow to be trusted."""

ENOUGH = (
    f"a verdict takes {FEW_SCENES} such scenes of {FEW_OBJECTS} objects, which worlds of more values have: --scenes "
    "sprites:16x9 for models that read pictures, text8x8 for others"
)
"""What a run without a verdict would need."""

Repairs = Mapping[tuple[str, float], Mapping[str, Row]]
"""Kind of repair and coverage -> its rows, by the end of their ids."""


def judge_repair(rows: Iterable[Row], name: str = "This model") -> Verdict:
    """Which repair lifts unseen objects clearly, and by how much; none where no interval clears zero or scenes are few.

    Example:
        >>> found = {"n": 400, "objects": 20, "family": "linear", "coverage": 0.5, "on": "test"}
        >>> lift = Row(id="crossmodal.repair.lift.object.swap", value=0.4, low=0.3, high=0.5, **found)
        >>> judge_repair([lift]).sentence
        'A linear repair of This model, fitted on 50 % of objects, tells 40 % more of unseen scenes from their swap \
(30 % to 50 %).'
    """
    rows = list(rows)
    found = [row for row in rows if row.id == "crossmodal.repair.lift.object.swap" and row.value is not None]
    tiles = tuple(_tile(row) for row in sorted(found, key=lambda row: -(row.value or 0.0))[:4])
    clear = [row for row in found if row.low is not None and row.low > 0]
    if solid := [row for row in clear if not _few(row)]:
        best = max(solid, key=lambda row: row.low or 0.0)
        return Verdict(
            f"A {best.family} repair of {name}, fitted on {percent(best.coverage or 0.0)} of objects, tells "
            f"{percent(best.value or 0.0)} more of unseen scenes from their swap ({percent(best.low or 0.0)} to "
            f"{percent(best.high or 0.0)}){_beside(rows, best)}.",
            tiles,
        )
    if clear:
        best = max(clear, key=lambda row: row.low or 0.0)
        return Verdict(
            f"No verdict on repairs of {name}: the {best.family} one told {percent(best.value or 0.0)} more of unseen "
            f"scenes from their swap, but only {best.n} such scenes of {best.objects} objects were there to be told; "
            f"{ENOUGH}.",
            tiles,
        )
    if any(row.low is not None and not _few(row) for row in found):
        allowed = _allowed(rows, max(row.coverage or 0.0 for row in found))
        said = f"No repair that was tried lifts {name} clearly on objects it wasn't fitted on{allowed}."
        return Verdict(said, tiles)
    if found:
        most = max(found, key=lambda row: row.n or 0)
        how_many = f"only {most.n or 0} unseen scenes have a swap among unseen objects"
        return Verdict(f"No verdict on repairs of {name}: {how_many}, too few to say; {ENOUGH}.", tiles)
    return Verdict(f"No verdict on repairs of {name}: too few unseen objects; {ENOUGH}.", tiles)


def _few(row: Row) -> bool:
    """Whether a row rests on too little for a claim."""
    return (row.n or 0) < FEW_SCENES or (row.objects or 0) < FEW_OBJECTS


def _tile(row: Row) -> Tile:
    answer: Answer = compare(row, 0.0)
    value, scenes = row.value or 0.0, f" (of only {row.n} scenes)" if _few(row) else ""
    return Tile(
        "repair", f"Lift by {row.family}, {percent(row.coverage or 0.0)} of objects",
        "undecided" if answer == "yes" and _few(row) else answer,
        f"{percent(abs(value))} {'more' if value >= 0 else 'fewer'} of the unseen swaps{scenes}.", row,
    )  # fmt: skip


def _beside(rows: Sequence[Row], best: Row) -> str:
    """What it reached, beside what the scene tower alone would allow."""
    at = [row for row in rows if row.coverage == best.coverage and row.value is not None]
    after = next((r for r in at if r.id == "crossmodal.repair.after.object.swap" and r.family == best.family), None)
    probe = next((r for r in at if r.id == "crossmodal.repair.ceiling.probe.object.swap"), None)
    if after is None or after.value is None or probe is None or probe.value is None:
        return ""
    return f", {percent(after.value)} in all; probes that learned these objects reach {percent(probe.value)}"


def _allowed(rows: Sequence[Row], coverage: float) -> str:
    """What the scene tower alone would allow, where nothing was gained."""
    of = "crossmodal.repair.ceiling."
    at = [row for row in rows if row.coverage == coverage and row.id.startswith(of) and row.id.endswith(".object.swap")]
    probes = [row.value for row in at if row.id.startswith(f"{of}probe.") and row.value is not None]
    rules = [row.value for row in at if row.id.startswith(f"{of}rule.") and row.value is not None]
    if not probes or not rules:
        return ""
    return (
        f"; probes that learned these objects tell {percent(probes[0])} of the scenes from their swap, and the best "
        f"rule from values {percent(max(rules))}"
    )


def repair_sections(study: Study) -> tuple[Section, ...]:
    """Lift over coverage beside its ceilings, and cost."""
    rows = study.table.rows
    repairs, ceilings = _repairs(rows), _ceilings(rows)
    lift = TableBuilder(
        "repair", "Unseen objects, before and after.",
        ("repair, coverage", "against the swap, before", "after", "lift", "among all, before", "after", "scenes",
         "objects"),
    )  # fmt: skip
    cost = TableBuilder(
        "cost", "What the repair keeps or costs.",
        ("repair, coverage", "single objects, before", "after", "captions found, before", "after",
         "scenes found, before", "after"),
    )  # fmt: skip
    for (family, coverage), of in sorted(repairs.items()):
        label, row = f"{family}, {percent(coverage)}", of.get("after.object.swap")
        cells = [lift.value(of.get(k)) for k in ("before.object.swap", "after.object.swap", "lift.object.swap",
                                                  "before.object", "after.object")]  # fmt: skip
        objects = Cell(str(row.objects)) if row is not None and row.objects else lift.absent(None)
        lift.add(label, *cells, lift.count(row), objects)
        names = [
            f"cost.{what}.{when}" for what in ("single.object", "caption", "scene") for when in ("before", "after")
        ]
        cost.add(label, *(cost.value(of.get(name)) for name in names))
    made, paid = lift.build(), cost.build()
    return (
        Section(
            "repair", "What does a repair bring on objects it wasn't fitted on?",
            judge_repair(rows, "this model").sentence if made else "",
            (
                "Maps act on the text side; fine-tuning changes the weights of both towers. Both are fitted on some "
                "objects, chosen on others and judged on the rest. The product head takes the words of a caption, "
                "value by value, and so knows what it parses.",
                "A lift counts where its interval lies above zero and rests on scenes enough.",
                "Ceilings: probes that learned the very objects that a repair must guess, on other scenes; and a rule "
                "from values to the scene tower's vectors, fitted where repairs are. Fine-tuning changes the tower and "
                "so may go beyond both; a map of texts that bind by themselves, beyond the rule.",
            ),
            call(study, "repair", "crossmodal.repair."), present(_lift_figure(repairs, ceilings)),
            present(made, _ceiling_table(ceilings), paid), "" if made else "This run fitted no repair.",
        ),
    )  # fmt: skip


def _repairs(rows: Sequence[Row]) -> Repairs:
    found: dict[tuple[str, float], dict[str, Row]] = {}
    for row in rows:
        plain = row.id.removeprefix("crossmodal.repair.")
        if plain == row.id or plain.startswith("ceiling.") or row.family is None or row.coverage is None:
            continue
        found.setdefault((row.family, row.coverage), {})[plain] = row
    return found


def _ceilings(rows: Sequence[Row]) -> Repairs:
    """The same of ceilings; the family is that of the rule, or "probes"."""
    found: dict[tuple[str, float], dict[str, Row]] = {}
    for row in rows:
        plain = row.id.removeprefix("crossmodal.repair.ceiling.")
        if plain != row.id and row.coverage is not None:
            how, _, way = plain.partition(".")
            name = "probes" if how == "probe" else f"rule: {row.family}" if row.family else "rule"
            found.setdefault((name, row.coverage), {})[way] = row
    return found


def _ceiling_table(ceilings: Repairs) -> Table | None:
    builder = TableBuilder(
        "ceiling", "How far repairs could go: unseen objects by what the scene tower alone tells of them.",
        ("ceiling, coverage", "against the swap", "among unseen", "among all", "scenes"),
    )  # fmt: skip
    for (name, coverage), of in sorted(ceilings.items(), key=lambda one: (one[0][1], one[0][0])):
        cells = [builder.value(of.get(way)) for way in ("object.swap", "object.unseen", "object")]
        builder.add(f"{name}, {percent(coverage)}", *cells, builder.count(of.get("object.swap")))
    return builder.build()


def _lift_figure(repairs: Repairs, ceilings: Repairs) -> Figure | None:
    lines: dict[str, list[tuple[float, Row]]] = {}
    before: dict[float, Row] = {}
    for (family, coverage), of in sorted(repairs.items()):
        if (row := of.get("after.object.swap")) is not None and row.value is not None:
            lines.setdefault(family, []).append((coverage, row))
        if (row := of.get("before.object.swap")) is not None and row.value is not None:
            before[coverage] = row
    if before:
        lines["no repair"] = sorted(before.items())
    best: dict[tuple[str, float], Row] = {}
    for (name, coverage), of in ceilings.items():
        row, key = of.get("object.swap"), ("best rule" if name.startswith("rule") else name, coverage)
        if row is not None and row.value is not None and row.value >= (best[key].value or 0.0 if key in best else 0.0):
            best[key] = row
    for (name, coverage), row in sorted(best.items()):
        lines.setdefault(f"ceiling: {name}", []).append((coverage, row))
    return curves(
        "repair", "Unseen objects told from their swap", lines, axis="objects fitted on / all objects",
        note="A bar is the 95 % interval over other values and objects. Best rule: the highest of those in the table.",
        half=True,
    )  # fmt: skip
