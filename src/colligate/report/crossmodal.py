"""Pages of two-tower models: does the text find what the picture shows, why not, and what repairs it?"""

from collections.abc import Iterable
from dataclasses import replace

from colligate.records import Row
from colligate.report.figures import BLUE, GREEN, GREY, Line, Series, dots
from colligate.report.questions import Section, Study, call, present
from colligate.report.tables import TableBuilder
from colligate.report.verdict import Measured, Tile, Verdict, compare, percent
from colligate.report.verdict.binding import widened

ASKED = {
    "concept": "values",
    "concept.joint": "values, each concept right",
    "concept.across": "values of all concepts in one ranking",
    "object": "objects",
    "object.swap": "objects, against the swap",
    "object.swap.both": "a scene and its swap, both right",
    "object.blind": "objects, the most without binding",
}
GROUPS = {"": "", ".same": ", in scenes that share a value", ".different": ", in scenes that share none"}


def judge_recognition(rows: Iterable[Row], name: str = "This model") -> Verdict:
    """The story of two towers in a sentence, claiming only what intervals carry.

    Example:
        >>> found = {"n": 500, "objects": 24, "chance": 0.1}
        >>> values = Row(id="crossmodal.concept", value=0.99, low=0.98, high=1.0, bag_of_concepts=1.0, **found)
        >>> objects = Row(id="crossmodal.object", value=0.5, low=0.45, high=0.51, bag_of_concepts=0.52, **found)
        >>> judge_recognition([values, objects], "It").sentence
        'It, across its two towers, finds the values of a scene (99 %), but not which belong together (50 % of scenes, \
where a bag of concepts reaches 52 %).'
    """
    table = Measured(rows)
    tiles = (
        _asked(table, "crossmodal.concept", "Values, across towers", "chance"),
        _asked(table, "crossmodal.object", "Objects, across towers", "bag_of_concepts"),
        _asked(table, "crossmodal.text.object", "Objects, captions against texts", "bag_of_concepts"),
    )
    values, objects = tiles[0], _not_blind(tiles[1], table, "crossmodal.object")
    tiles = (values, objects, _not_blind(tiles[2], table, "crossmodal.text.object"))
    if objects.row is None or objects.row.value is None or objects.answer == "no verdict":
        return Verdict(f"No verdict on {name}: {objects.sentence}", tiles)
    share, bag = percent(objects.row.value), objects.row.bag_of_concepts
    against = "" if bag is None else f", where a bag of concepts reaches {percent(bag)}"
    against += _at_most(table, "crossmodal.object")
    if objects.answer == "yes":
        said = f"{name}, across its two towers, finds which values belong together ({share} of scenes{against})."
        return Verdict(said, tiles)
    start = "does not find the values of a scene, nor"
    if values.answer == "yes" and values.row is not None and values.row.value is not None:
        start = f"finds the values of a scene ({percent(values.row.value)}), but not"
    more = "that takes binding" if table.find("crossmodal.object.blind") is not None else "it beats one"
    unclear = f"; whether {more} is undecided" if objects.answer == "undecided" else ""
    return Verdict(
        f"{name}, across its two towers, {start} which belong together ({share} of scenes{against}{unclear}).", tiles
    )


def _asked(table: Measured, id: str, title: str, level: str) -> Tile:
    row = table.find(id)
    against = getattr(row, level) if row is not None else None
    answer = compare(row, against)
    if row is None or row.value is None:
        sentence = f"not measured{f': {row.reason}' if row is not None and row.reason else ''}."
    else:
        name = "chance" if level == "chance" else "an ideal bag of concepts"
        sentence = (
            f"In {percent(row.value)} of scenes{f'; {name} reaches {percent(against)}' if against is not None else ''}."
        )
    return Tile("recognition", title, answer, sentence[0].upper() + sentence[1:], row)


def _at_most(table: Measured, id: str) -> str:
    """The ceiling of blindness, as part of a sentence."""
    blind = table.find(f"{id}.blind")
    return "" if blind is None or blind.value is None else f", vectors blind to binding {percent(blind.value)} at most"


def _not_blind(tile: Tile, table: Measured, id: str) -> Tile:
    """The tile of objects; it claims binding only where no vectors could do as well that are blind to it.

    Above a bag of concepts with ties at random may be no more than texts that score high whatever the scene. So either
    recognition must lie above the ceiling of blindness, or a scene and its swap both be right more often than by
    chance, each with the interval of one of two. Tables without these rows are held against the bag alone.
    """
    blind, both = table.find(f"{id}.blind"), table.find(f"{id}.swap.both")
    row = tile.row
    if row is None or row.value is None or (blind is None and both is None) or tile.answer == "no verdict":
        return tile
    level = None if blind is None else blind.value
    clear = level is not None and level < 1 and compare(widened(row, 2), level) == "yes"
    if both is not None and both.value is not None:
        clear |= compare(widened(both, 2), max(both.chance or 0.0, 0.0)) == "yes"
    said = tile.sentence.removesuffix(".") + _at_most(table, id) + "."
    if both is not None and both.value is not None:
        said += f" A scene and its swap are both right in {percent(both.value)} (0 % for vectors that can't tell them, "
        said += f"{percent(both.chance or 0.0)} by chance)."
    answer = "yes" if clear else "undecided" if tile.answer == "yes" else tile.answer
    return replace(tile, answer=answer, sentence=said)


def recognition_sections(study: Study) -> tuple[Section, ...]:
    """Recognition by texts, the other direction, and why."""
    return (_recognition(study), _alignment(study), _without(study))


def _recognition(study: Study) -> Section:
    table = study.table
    builder = TableBuilder(
        "crossmodal", "Share of scenes for which every true text scores strictly above every false one.",
        ("", "scenes against texts", "captions against texts", "chance", "bag of concepts", "bag, strict",
         "random weights", "scenes"),
    )  # fmt: skip
    for group, words in GROUPS.items():
        for kind, label in ASKED.items():
            row = table.find(f"crossmodal.{kind}{group}")
            if row is None:
                continue
            levels = (builder.level(row, n) for n in ("chance", "bag_of_concepts", "bag_of_concepts_strict"))
            builder.add(
                label + words, builder.value(row), builder.value(table.find(f"crossmodal.text.{kind}{group}")), *levels,
                builder.level(row, "random_init"), builder.count(row),
            )  # fmt: skip
    lines = [
        Line(label, {"scene": table.find(f"crossmodal.{kind}"), "text": table.find(f"crossmodal.text.{kind}")})
        for kind, label in ASKED.items()
    ]
    figure = dots(
        "crossmodal", "Recognition by texts", lines,
        {"scene": Series("scenes against texts (across towers)", "disc", BLUE),
         "text": Series("captions against texts (within the text tower)", "diamond", GREEN)},
        axis="share of scenes", note="A bar is the 95 % interval over other values and objects.",
    )  # fmt: skip
    made = builder.build()
    return Section(
        "recognition", "Does the text find what the scene shows?",
        judge_recognition(table.rows, "The model").sentence if made else "",
        (
            "Each scene is compared, by cosine, with a text for every value and for every object. Values alone need no "
            "binding; objects do, and above all objects against those of the scene's swap.",
        ),
        call(study, "recognition", "crossmodal."), present(figure), present(made),
        "" if made else "This run asked nothing across towers.",
    )  # fmt: skip


def _alignment(study: Study) -> Section:
    table = study.table
    builder = TableBuilder(
        "alignment", "How alike the parts of the two towers' objects are.",
        ("", "cosine", "elsewhere", "CKA", "left after the best rotation"),
    )  # fmt: skip
    words = {
        "object": "objects",
        "concept": "the sums of their values' components",
        "interaction": "what is left: binding",
    }
    for kind, label in words.items():
        of = f"crossmodal.alignment.{kind}"
        cosine = table.find(f"{of}.cosine")
        builder.add(
            label, builder.value(cosine), builder.level(cosine, "chance"), builder.value(table.find(f"{of}.cka")),
            builder.value(table.find(f"{of}.residual")),
        )  # fmt: skip
    made = builder.build()
    shares = [table.find(f"crossmodal.interaction.{tower}") for tower in ("scene", "text")]
    said = [f"{percent(row.value)} in the {tower} tower" for row, tower in zip(shares, ("scene", "text"), strict=True)
            if row is not None and row.value is not None]  # fmt: skip
    return Section(
        "alignment", "Do the towers mean the same by an object?",
        f"Binding, what an object's vector holds beyond its values, is {' and '.join(said)} of the objects' variance."
        if said else "",
        (
            "An object's vector is parted into the components of its values and what is left, which alone can tell a "
            "scene from its swap. Towers whose values align and whose rests don't match by concepts only.",
            "Elsewhere: the cosine of objects that don't correspond.",
        ),
        call(study, "alignment", "crossmodal.alignment."), (), present(made),
        "" if made else "The parts of the two towers were not compared.",
    )  # fmt: skip


def _without(study: Study) -> Section:
    table, lines = study.table, list[Line]()
    for tower in ("scene", "text"):
        for removed in ("concept", "interaction", "object"):
            id = f"crossmodal.without.{tower}.{removed}"
            found = {"": table.find(f"{id}.object"), "permuted": table.find(f"{id}.permuted.object")}
            if any(row is not None for row in found.values()):
                what = {"concept": "values", "interaction": "binding", "object": "objects"}[removed]
                lines.append(Line(f"{tower} tower without {what}", found))
    if (whole := table.find("crossmodal.object")) is not None:
        lines.insert(0, Line("as it is", {"": whole}))
    figure = dots(
        "without", "Objects recognised once components are taken out", lines if len(lines) > 1 else [],
        {"": Series("taken out", "disc", BLUE), "permuted": Series("others' taken out (control)", "ring", GREY)},
        axis="share of scenes",
    )  # fmt: skip
    return Section(
        "without", "What carries the match?", "",
        ("The control takes as much out, under wrong names. What hurts more than its control carries the match.",),
        call(study, "without", "crossmodal.without."), present(figure), (),
        "" if figure else "No component was taken out.",
    )  # fmt: skip


def judge_foils(rows: Iterable[Row], name: str = "This model") -> Verdict:
    """Whether captions beat their swapped foils."""
    table = Measured(rows)
    row = table.find("crossmodal.foil.swapped") or next(
        (r for r in table.rows if r.id.startswith("crossmodal.foil.") and r.value is not None), None
    )
    answer = compare(row, 0.5)
    if row is None or row.value is None or answer == "no verdict":
        return Verdict(f"No verdict on {name}: too few pairs of caption and foil.", ())
    what = "the swapped one" if row.id.endswith("swapped") else row.id.removeprefix("crossmodal.foil.")
    said = {
        "yes": "tells", "no": "prefers the wrong one: it does not tell", "undecided": "does not clearly tell"
    }.get(answer, "does not clearly tell")  # fmt: skip
    return Verdict(
        f"{name} {said} a scene's caption from {what} ({percent(row.value)} of pairs, ties as one half; chance 50 %).",
        (Tile("foils", "Caption against foil", answer, f"{percent(row.value)} of pairs.", row),),
    )


def foil_sections(study: Study) -> tuple[Section, ...]:
    """Every kind of foil, groups of four, and biases."""
    rows = [r for r in study.table.rows if r.id.startswith("crossmodal.foil.") and not r.id.endswith(".ties")]
    ties = {r.id.removesuffix(".ties"): r for r in study.table.rows if r.id.endswith(".ties")}
    builder = TableBuilder(
        "foils", "Share of pairs in which the picture lies nearer to its caption than to the foil; a tie is one half.",
        ("foil", "caption wins", "ties", "pairs"),
    )  # fmt: skip
    groups = [r for r in study.table.rows if r.id.startswith("crossmodal.groups.") and not r.id.endswith(".ties")]
    biases = [r for r in study.table.rows if r.id.startswith("crossmodal.bias.")]
    for row in (*rows, *groups, *biases):
        label = row.id.removeprefix("crossmodal.").replace("foil.", "").replace("_", " ").replace(".", ", ")
        builder.add(label, builder.value(row), builder.value(ties.get(row.id)), builder.count(row))
    figure = dots(
        "foils", "Caption against foil", [Line(r.id.removeprefix("crossmodal.foil."), {"": r}) for r in rows],
        {"": Series("this model", "disc", BLUE)}, axis="share of pairs",
    )  # fmt: skip
    made = builder.build()
    return (
        Section(
            "foils", "Does a scene lie nearer to its caption than to a foil of it?",
            judge_foils(study.table.rows).sentence if made else "",
            (
                "A swapped caption holds the same words; only binding tells it apart. Where both captions are true "
                "(another order), one half is no preference.",
                "Groups: two scenes that are each other's swap, and their captions (text, image and group score).",
            ),
            call(study, "foils", "crossmodal.foil."), present(figure), present(made),
            "" if made else "This run tested no foils.",
        ),
    )  # fmt: skip
