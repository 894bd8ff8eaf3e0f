"""The questions of the page, each with its finding, its figures, its tables and how to read them."""

import re

from colligate.records import Row
from colligate.report import reference
from colligate.report.complexity import complexity_section
from colligate.report.edits import SINGLE, edits_section, removal_section
from colligate.report.figures import BLUE, GREEN, Figure, Line, Series, curves, dots, points_map
from colligate.report.questions import Section, Study, call, findings, known, present
from colligate.report.tables import Cell, Table, TableBuilder, decimals, words
from colligate.report.verdict import Verdict, judge, percent
from colligate.rescaling import rescale

LAYOUTS = {
    "object.avg": "objects, average",
    "object.avg.set": "objects, average (once a scene)",
    "object.avg+pos": "objects, average by position",
    "object.single": "objects, from single objects",
    "object.least_squares": "objects, least squares",
    "object+pos.least_squares": "objects by position, least squares",
    "concept.avg": "values, average",
    "concept.avg.set": "values, average (once a scene)",
    "concept.avg+pos": "values, average by position",
    "concept.single": "values, from single objects",
    "concept.least_squares": "values, least squares",
    "concept+pos.least_squares": "values by position, least squares",
}
READOUTS = {"linear": "linear", "quadratic": "low-rank quadratic", "attention": "attention over tokens"}


def sections(study: Study) -> tuple[Section, ...]:
    """All questions in the page's order."""
    verdict = judge(study.table.rows)
    return (
        _probes(study, verdict),
        _layout(study),
        edits_section(study, verdict),
        removal_section(study),
        _information(study, verdict),
        complexity_section(study, verdict),
        _normalized(study, verdict),
    )


def _probes(study: Study, verdict: Verdict) -> Section:
    table = study.table
    ids = {
        "probe.concept": "values, mean over concepts",
        "probe.concept.joint": "values, each concept right",
        "probe.concept.across": "values of all concepts in one ranking",
        **{f"probe.concept.{name}": f"values of {name}" for name in study.concepts},
        "probe.object": "objects",
        "probe.object.swap": "objects, against the swap",
    }
    rows = {label: table.find(id) for id, label in ids.items()}
    builder = TableBuilder(
        "probes",
        "Share of held-out scenes in which everything present outscores everything absent (linear probes).",
        ("", "recognised", "chance", "bag of concepts", "bag, strict", "random weights", "scenes"),
    )
    for label, row in rows.items():
        levels = (
            builder.level(row, name) for name in ("chance", "bag_of_concepts", "bag_of_concepts_strict", "random_init")
        )
        if row is not None:
            builder.add(label, builder.value(row), *levels, builder.count(row))
    figure = dots(
        "probes",
        "Recognition by linear probes",
        [Line(label, {"": row}) for label, row in rows.items()],
        {"": Series("this model", "disc", BLUE)},
        axis="share of scenes",
        note="A bar is the 95 % interval over other values and objects.",
    )
    made = builder.build()
    return Section(
        "probes",
        "Does it recognise values and objects?",
        findings(verdict.tiles[0], verdict.tiles[1]) if made else "",
        (
            "A scene counts only if every value (or object) in it scores strictly above every one that "
            "isn't; ties lose.",
            "Naming values is easy: a bag of concepts does it too. Only objects, and above all objects "
            "against their swap, "
            "show that values are bound together.",
        ),
        call(study, "probes", "probe."),
        present(figure),
        present(made),
        "" if made else "This study holds no probes, so recognition can't be judged here.",
    )


def _layout(study: Study) -> Section:
    table = study.table
    near = reference.closest(study.kind, study.world)
    quoted = reference.LAYOUT[near]
    builder = TableBuilder(
        "layout",
        "Scenes rebuilt as a sum of parts: variance explained, scenes found again, and what probes still read "
        "in the rebuilt vectors (the paper's Table 2).",
        (
            "parts and estimator",
            "R², all",
            "R², held out",
            "found, all",
            "found, held out",
            "or its twin",
            "values read",
            "objects read",
            "objects, rescaled",
            "paper (CLIP)",
        ),
    )
    for name, label in LAYOUTS.items():
        probe = table.find(f"reconstruction.probe.object.{name}")
        cells = (
            *(builder.value(table.find(f"r2.{name}", on)) for on in ("all", "test")),
            *(builder.value(table.find(f"retrieval.{name}", on)) for on in ("all", "test")),
            builder.value(table.find(f"retrieval.{name}.up_to_order", "test", "all")),
            builder.value(table.find(f"reconstruction.probe.concept.{name}")),
            builder.value(probe),
            _rescaled(builder, probe, table.find("probe.object")),
        )
        measured = any(table.find(f"{start}.{name}") for start in ("r2", "retrieval", "reconstruction.probe.object"))
        if measured:
            cell = Cell(quoted[name], kind="reference") if name in quoted else Cell("", kind="reference")
            builder.add(label, *cells, cell)
    note = reference.NOTE.format(world=reference.WORLDS[near])
    made = builder.build(
        "Parts without a position can't tell a scene from its twin (the same objects in the other order): "
        "read “or its twin” there.",
        "Rescaled: 0 is an ideal bag of concepts, 1 the probe on the true vectors.",
        *([SINGLE] if table.find("r2.object.single") else []),
        *([note] if any(name in quoted and table.find(f"r2.{name}") for name in LAYOUTS) else []),
    )
    lines = [
        Line(label, {"test": table.find(f"r2.{name}", "test"), "all": table.find(f"r2.{name}", "all")})
        for name, label in LAYOUTS.items()
        if not name.endswith(".set")
    ]
    series = {"test": Series("held-out scenes", "disc", BLUE), "all": Series("all scenes", "ring", BLUE)}
    figure = dots("r2", "Variance explained by a sum of parts", lines, series, axis="R²", share=False)
    explained = _explained(study)
    maps = _maps(study)
    best, values = table.find("r2.object.least_squares"), table.find("r2.concept.least_squares")
    finding = ""
    if best is not None and best.value is not None:
        finding = f"A sum of one vector per object explains {percent(best.value)} of the variance"
        share = known(values)
        finding += (
            f"; a sum of one vector per value, which knows nothing of binding, {percent(share)}." if share else "."
        )
    return Section(
        "layout",
        "How is a scene laid out?",
        finding,
        (
            "R² is centred on the fit part's mean; 1 means that the sum gives every vector exactly, 0 "
            "that it gives no more than the mean.",
            "What objects explain beyond values is the room that binding has in the geometry: it can be "
            "small and still carry every object, so read it beside the probes.",
        ),
        call(study, "layout", "r2."),
        present(*maps, figure),
        present(made, explained),
        "" if made or maps or figure else "This study holds no decomposition, so the layout can't be shown.",
    )


def _rescaled(builder: TableBuilder, row: Row | None, ceiling: Row | None) -> Cell:
    value, top = known(row), known(ceiling)
    bag = row.bag_of_concepts if row is not None and row.bag_of_concepts is not None else None
    if bag is None and ceiling is not None:
        bag = ceiling.bag_of_concepts
    if value is None or top is None or bag is None or (placed := rescale(value, bag, top)) is None:
        return builder.absent(None)
    return Cell(decimals(placed, 2))


def _explained(study: Study) -> Table | None:
    builder = TableBuilder(
        "explained",
        "What objects and values explain by themselves (the paper's Table 4).",
        ("", "R²", "chance", "random weights", "n"),
    )
    for id, label in (
        ("r2.object.least_squares", "scenes, from their objects"),
        ("r2.concept.least_squares", "scenes, from their values"),
        ("r2.objects_from_concepts", "object vectors, from their values"),
    ):
        row = study.table.find(id)
        if row is not None:
            builder.add(
                label, builder.value(row), builder.level(row, "chance"), builder.level(row, "random_init"),
                builder.count(row),
            )  # fmt: skip
    return builder.build(
        "Chance: what vectors without structure would give. Few objects are well explained by chance alone, and so are "
        "scenes that the parts were fitted on."
    )


def _maps(study: Study) -> list[Figure]:
    made: list[Figure | None] = []
    for key, title in (
        ("quadruple", "Two objects, the values they exchange, and the scenes they form"),
        ("objects", "All objects"),
        ("scenes", "Scenes"),
    ):
        given = study.figures.get(key) or {}
        method = str(given.get("method", ""))
        stress, explained = given.get("stress"), given.get("explained")
        notes = [method, f"stress {stress:.3f}" if isinstance(stress, int | float) else ""]
        if isinstance(explained, list) and explained:
            notes.append(f"axes explain {', '.join(percent(float(e)) for e in explained[:3])} of the variance")
        note = "; ".join(n for n in notes if n)
        if key == "quadruple":
            note += ". A cross is the sum of two objects' vectors; the nearer to its scene, the more additive."
        made.append(points_map(f"map-{key}", title, given.get("points") or [], note, study.pictures))
    return [figure for figure in made if figure is not None]


def _information(study: Study, verdict: Verdict) -> Section:
    table = study.table
    builder = TableBuilder(
        "information",
        "What the vectors tell about which values go together, beyond the values themselves: a lower bound.",
        ("read-out", "bits", "share of what is open", "random weights", "scenes"),
    )
    for name, label in READOUTS.items():
        bits, ratio = table.find(f"information.{name}.bits"), table.find(f"information.{name}.ratio")
        if bits is not None or ratio is not None:
            builder.add(
                label,
                builder.value(bits),
                builder.value(ratio),
                builder.level(ratio, "random_init"),
                builder.count(ratio),
            )
    made = builder.build(
        "0 is a bag of concepts, 1 a model that always tells which values go together; each read-out "
        "bounds it from below."
    )
    lines = [Line(label, {"": table.find(f"information.{name}.ratio")}) for name, label in READOUTS.items()]
    figure = dots(
        "information",
        "Binding information by read-out",
        lines,
        {"": Series("this model", "disc", BLUE)},
        axis="share of what the values leave open",
    )
    depth = _depth(study)
    return Section(
        "information",
        "How much binding information, and at what depth?",
        findings(verdict.tiles[4]) if made else "",
        (
            "The read-out may choose only among object sets that fit the values present (for two objects: "
            "the scene or its swap).",
            "A low value means that this read-out doesn't find the binding, not that it isn't there; "
            "compare read-outs and layers.",
        ),
        call(study, "information", "information."),
        present(figure, *depth),
        present(made),
        "" if made or depth else verdict.tiles[4].sentence,
    )


DEPTH = {
    "probe.concept": "values recognised",
    "probe.object": "objects recognised",
    "information.linear.ratio": "binding information, linear",
    "information.quadratic.ratio": "binding information, quadratic",
    "information.attention.ratio": "binding information, attention",
}


def _depth(study: Study) -> list[Figure]:
    points: dict[str, dict[str, list[tuple[float, Row]]]] = {}
    for id, label in DEPTH.items():
        for row in study.table.families(id):
            match = re.fullmatch(r"layer (\d+)(?: (.+))?", row.family or "")
            if match:
                points.setdefault(match[2] or "", {}).setdefault(label, []).append((float(match[1]), row))
    if not points:
        for place in study.figures.get("depth") or []:
            for id, label in DEPTH.items():
                if isinstance(place.get(id), int | float):
                    row = Row(id=id, value=float(place[id]))
                    points.setdefault(str(place.get("pooling", "")), {}).setdefault(label, []).append(
                        (float(place["layer"]), row)
                    )
    made = [
        curves(
            f"depth-{i}",
            f"By depth{f', read from: {pooling}' if pooling else ''}",
            lines,
            axis="layer",
            note="Where along the model binding becomes readable; the last layer is what users get.",
            whole=True,
            half=len(points) > 1,
        )
        for i, (pooling, lines) in enumerate(points.items())
    ]
    return [figure for figure in made if figure is not None]


HEADLINES = {
    "probe.concept": "values recognised",
    "probe.object": "objects recognised",
    "probe.object.swap": "objects, against the swap",
    "r2.object.least_squares": "R², objects",
    "r2.concept.least_squares": "R², values",
    "retrieval.object.avg+pos": "scenes found again, by position",
    "edit.retrieval.avg": "edits, average",
    "edit.retrieval.avg+pos": "edits, average by position",
    "information.linear.ratio": "binding information, linear",
}


def _normalized(study: Study, verdict: Verdict) -> Section:
    table, unit = study.table, study.table.normalized()
    builder = TableBuilder(
        "normalized",
        "The same measurements on the vectors as they are and divided by their length.",
        ("", "as they are", "length one", "difference", "what may be said"),
    )
    answers = {t.row.id: t.answer for t in verdict.tiles if t.row is not None}
    changed = {t.row.id: t.answer for t in judge(unit.rows).tiles if t.row is not None}
    lines: list[Line] = []
    turned: list[str] = []
    shifted: list[str] = []
    for id, label in HEADLINES.items():
        there = unit.find(id)
        here = table.find(id, there.on) if there is not None else None
        if there is None:
            continue
        raw, scaled = known(here), known(there)
        gap = (
            Cell(f"{scaled - raw:+.3f}".replace("-", "\N{MINUS SIGN}"))
            if raw is not None and scaled is not None
            else builder.absent(None)
        )
        before, after = answers.get(id), changed.get(id)
        same = before == after
        said = "" if before is None or after is None else f"the same: {before}" if same else f"{before} → {after}"
        if before is not None and after is not None and not same:
            claimed = {"yes", "largely", "partly"}
            (shifted if before in claimed and after in claimed else turned).append(f"{label} ({said})")
        builder.add(label, builder.value(here), builder.value(there), gap, *words([said or "–"]))
        lines.append(Line(label, {"raw": here, "unit": there}))
    made = builder.build()
    series = {"raw": Series("as they are", "disc", BLUE), "unit": Series("length one", "open-square", GREEN)}
    figure = dots("normalized", "As they are, and at length one", lines, series, axis="", share=False, levels=False)
    finding = f"The verdict changes: {'; '.join(turned)}." if turned else "Dividing by the length changes no verdict"
    finding += "" if turned else f", only its degree: {'; '.join(shifted)}." if shifted else "."
    return Section(
        "normalized",
        "Does length matter? Raw vectors against normalised ones",
        finding if made else "",
        (
            "Many tools compare vectors by angle only; this study measures the vectors as the model gives them.",
            "Where the two differ, a report on “the model” has to say which it means.",
        ),
        call(study, "normalized", "normalized."),
        present(figure),
        present(made),
        ""
        if made
        else "This study holds no measurements on normalised vectors (or its vectors had length one already).",
    )
