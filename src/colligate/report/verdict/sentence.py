"""The finding in plain words, from the tiles."""

from collections.abc import Iterable, Sequence

from colligate.records import Row
from colligate.report.verdict.claims import (
    CLAIMS,
    FEWEST_OBJECTS,
    FEWEST_SCENES,
    Measured,
    Tile,
    Verdict,
    fraction,
    percent,
    rule_in_words,
)
from colligate.report.verdict.rules import carried, complexity_tile, none_of
from colligate.report.verdict.tiles import (
    additive_tile,
    binds_nothing,
    bits_apart,
    edits_tile,
    information_tile,
    nothing_to_carry,
    objects_tile,
    sum_of_values,
    values_tile,
)

DOUBTS = ("no", "undecided")
"""Answers that claim nothing of the model, but were measured well enough to stand beside their level."""
NOTHING = "Nothing was measured that a verdict could rest on."


def judge(rows: Iterable[Row], name: str = "This model") -> Verdict:
    """Say in words what a study found, claiming only what an interval carries.

    A claim needs the interval's lower end above the level of an ideal bag-of-concepts model (values: above chance;
    additive R2: above zero). Below 8 objects or 20 scenes nothing is claimed. Where the same network with random
    weights does as well, the sentence says so. Where one vector per value explains the vectors and no read-out finds
    binding information, that comes first: it decides what doubtful probes and edits leave open.

    Args:
        rows: the study's table.
        name: the subject of the sentence.

    Example:
        >>> row = Row(id="probe.object", on="test", value=0.97, low=0.95, high=0.98, n=800, bag_of_concepts=0.25)
        >>> judge([row], "MiniLM").sentence
        'MiniLM, in its own space, tells which object has which value (97 %, where a bag of concepts reaches 25 %).'
    """
    table = Measured(rows)
    tiles = (values_tile(table), objects_tile(table), additive_tile(table), edits_tile(table), information_tile(table))
    rules = complexity_tile(table, nothing_to_carry(table), bits_apart(table))
    tiles = tiles if rules.row is None else (*tiles, rules)
    answers = [tile.answer for tile in tiles]
    if all(answer == "not measured" for answer in answers):
        nothing = nothing_to_carry(table)
        return Verdict(f"{name}: {nothing}." if nothing else NOTHING, tiles)
    if all(answer in ("not measured", "no verdict") for answer in answers):
        return Verdict(_few(tiles), tiles)
    if not any(tile.answer in CLAIMS for tile in (tiles[1], tiles[3], rules)):
        bag = _say_bag(table, tiles)
        if bag:
            return Verdict(f"{name} {bag}.", tiles)
    values, objects = (
        _say_values(tiles[0]),
        _say_objects(tiles[1], bool(_say_values(tiles[0])), tiles[0].answer == "yes"),
    )
    start = f"{name}{' ' if values else ''}{values}{objects}" if values or objects else ""
    rest = (
        _doubt_objects(tiles[1]),
        _say_additive(tiles[2], sum_of_values(table)),
        _say_edits(tiles[3], table),
        _say_information(tiles[4]),
        _say_complexity(rules, carried(table).tried),
        nothing_to_carry(table),
        bits_apart(table),
    )
    parts = [part for part in (start, *rest, _say_untrained(tiles)) if part]
    return Verdict(f"{'' if start else f'{name}: '}{'; '.join(parts)}.", tiles)


def _few(tiles: Sequence[Tile]) -> str:
    rows = [tile.row for tile in tiles if tile.answer == "no verdict" and tile.row is not None]
    objects = [row.objects for row in rows if row.objects is not None]
    scenes = [row.n for row in rows if row.n is not None]
    counts = [f"{max(objects)} objects" if objects else "", f"{max(scenes)} scored scenes" if scenes else ""]
    counted = " and ".join(c for c in counts if c)
    return (
        f"No verdict: {f'with {counted} there is' if counted else 'there is'} no interval to rest a claim on "
        f"(it takes {FEWEST_OBJECTS} objects and {FEWEST_SCENES} scenes); the numbers stand below as they are."
    )


def _say_bag(table: Measured, tiles: Sequence[Tile]) -> str:
    """What decides where vectors are sums over values that hold no binding; "" where some may be held."""
    values, nothing = sum_of_values(table), binds_nothing(table)
    if values is None or values.value is None or nothing is None or nothing.value is None:
        return ""
    lead = f"embeds a scene as a sum of one vector per value (R² {fraction(values.value)}), with no binding information"
    parts = [f"{lead} ({fraction(nothing.value)} of what the values alone leave open)"]
    named = _say_values(tiles[0])
    parts += [f"it {named}"] if named else []
    for tile, what in ((tiles[1], "objects are recognised in"), (tiles[3], "edits reach their target in")):
        row = tile.row
        if row is not None and row.value is not None and row.bag_of_concepts is not None and tile.answer in DOUBTS:
            parts.append(f"{what} {percent(row.value)}, a bag of concepts in {percent(row.bag_of_concepts)}")
    return "; ".join(part for part in (*parts, _say_untrained(tiles)) if part)


def _say_complexity(tile: Tile, tried: Sequence[Row]) -> str:
    row = tile.row
    if row is None or row.value is None or tile.answer in ("no verdict", "not measured"):
        return ""
    if tile.answer == "no":
        return f"{none_of(tried)}, fitted on some objects, tells which object has which value among others"
    if tile.answer == "undecided":
        said = "whether a rule fitted on some objects carries over to others is undecided"
        many = f" with {row.objects} objects" if row.objects else ""
        return f"{said} ({fraction(row.low or 0.0)} to {fraction(row.high or 0.0)}{many}; more objects decide more)"
    degree = {"yes": "", "largely": " largely", "partly": " partly"}[tile.answer]
    return f"a {rule_in_words(row.family or '')}, fitted on some objects,{degree} carries over to others"


def _say_values(tile: Tile) -> str:
    if tile.row is None or tile.row.value is None or tile.answer in ("no verdict", "not measured"):
        return ""
    value, shown = tile.row.value, percent(tile.row.value)
    if tile.answer != "yes":
        return f"does not name values above chance ({shown})"
    many = "every value" if value >= 0.985 else "nearly every value" if value >= 0.9 else "many values"
    return f"names {many if value >= 0.5 else 'some values'} ({shown})"


def _say_objects(tile: Tile, joined: bool, named: bool) -> str:
    row = tile.row
    if row is None or row.value is None or row.bag_of_concepts is None or tile.answer not in ("yes", "no"):
        return ""
    shown, level = percent(row.value), percent(row.bag_of_concepts)
    yes = tile.answer == "yes"
    joint = (" and, " if named == yes else " but, ") if joined else ", "
    if not yes:
        said = f"does not tell which object has which value ({shown}, below the {level} of a bag of concepts)"
    elif row.value >= 0.75:
        said = f"tells which object has which value ({shown}, where a bag of concepts reaches {level})"
    else:
        said = f"tells which object has which value better than a bag of concepts ({shown} against {level})"
    return f"{joint}in its own space, {said}"


def _doubt_objects(tile: Tile) -> str:
    row = tile.row
    if row is None or row.value is None or tile.answer != "undecided":
        return ""
    known = (
        f", where a bag of concepts reaches {percent(row.bag_of_concepts)}" if row.bag_of_concepts is not None else ""
    )
    return (
        f"whether it tells, in its own space, which object has which value is undecided ({percent(row.value)}{known})"
    )


def _say_additive(tile: Tile, values: Row | None) -> str:
    """How far a sum reaches, credited to values where one vector per value explains as much as one per object."""
    if tile.row is None or tile.row.value is None or tile.answer in ("no verdict", "not measured"):
        return ""
    if values is not None and values.value is not None and tile.answer in CLAIMS:
        return f"its vectors are close to a sum of one vector per value (R² {fraction(values.value)})"
    words: dict[str, str] = {
        "yes": "its vectors are close to a sum of one vector per object",
        "largely": "its vectors are largely a sum of one vector per object",
        "partly": "its vectors are partly a sum of one vector per object",
        "no": "its vectors are far from a sum of one vector per object",
        "undecided": "whether its vectors are a sum of one vector per object is undecided",
    }
    return f"{words[tile.answer]} (R² {fraction(tile.row.value)})"


def _say_edits(tile: Tile, table: Measured) -> str:
    if tile.row is None or tile.row.value is None or tile.answer in ("no verdict", "not measured"):
        return ""
    shown = percent(tile.row.value)
    if tile.answer == "undecided":
        return f"whether replacing one object's vector lands on the intended scene is undecided ({shown} of edits)"
    if tile.answer == "no":
        return f"replacing one object's vector rarely lands on the intended scene ({shown} of edits)"
    exact = table.find(tile.row.id.removesuffix(".up_to_order"), tile.row.on)
    if tile.row.id.endswith(".up_to_order") and exact is not None and exact.value is not None:
        return (
            f"replacing one object's vector finds the intended scene or its twin in other order in {shown} of edits; "
            f"in {percent(exact.value)} in the exact order, which these vectors do not tell"
        )
    return f"replacing one object's vector lands on the intended scene in {shown} of edits"


def _say_untrained(tiles: Sequence[Tile]) -> str:
    """What the same network does without training, where it comes within two points of the model."""
    as_well = list[str]()
    for tile, what in zip(tiles[1:5], ("objects", "R²", "edits", "binding information"), strict=True):
        row = tile.row
        if row is None or row.value is None or row.random_init is None or tile.answer not in CLAIMS:
            continue
        if row.random_init >= row.value - 0.02:
            as_well.append(f"{what} {(percent if tile.percent else fraction)(row.random_init)}")
    if not as_well:
        return ""
    return f"with random weights the same network does about as well ({', '.join(as_well)})"


def _say_information(tile: Tile) -> str:
    if tile.row is None or tile.row.value is None or tile.answer != "yes":
        return ""
    readout = tile.row.id.split(".")[1]
    return f"a {readout} read-out recovers {percent(tile.row.value)} of what the values alone leave open"
