"""The finding in plain words, from the tiles."""

from collections.abc import Iterable, Sequence

from colligate.records import Row
from colligate.report.verdict.binding import (
    PROBED,
    READOUTS,
    best_of,
    binding,
    binds_nothing,
    floored,
    listed,
    share_that_binds,
)
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
from colligate.report.verdict.edits import edits_tile, say_edits
from colligate.report.verdict.rules import carried, complexity_tile, none_of
from colligate.report.verdict.tiles import (
    additive_tile,
    bits_apart,
    by_slot,
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
        nothing = nothing_to_carry(table) or _why_nothing(tiles)
        return Verdict(f"{name}: {nothing}." if nothing else NOTHING, tiles)
    if all(answer in ("not measured", "no verdict") for answer in answers):
        return Verdict(_few(tiles), tiles)
    if not any(tile.answer in CLAIMS for tile in (tiles[1], tiles[3], rules)):
        bag = _say_bag(table, tiles)
        if bag:
            return Verdict(f"{name} {bag}.", tiles)
    values = _say_values(tiles[0])
    objects = _say_binding(table, tiles, bool(values), tiles[0].answer == "yes")
    start = f"{name}{' ' if values else ''}{values}{objects}" if values or objects else ""
    rest = (
        _doubt_objects(table, tiles[1]),
        _say_additive(tiles[2], sum_of_values(table)),
        say_edits(table),
        _say_information(table, tiles),
        _say_complexity(rules, carried(table).tried),
        nothing_to_carry(table),
        bits_apart(table),
    )
    parts = [part for part in (start, *rest, _say_untrained(tiles)) if part]
    if not parts:  # measured, but nothing that has a place in a sentence: then the tiles' own words
        measured = [tile.sentence for tile in tiles if tile.answer != "not measured"]
        return Verdict(f"{name}: {' '.join(measured)}", tiles)
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
    slot = " and slot" if by_slot(values) else ""
    lead = f"embeds a scene as a sum of one vector per value{slot} (R² {fraction(values.value)}), with no evidence of "
    lead += f"binding: {listed(binding(table).tried)} find none"
    parts = [f"{lead} ({floored(nothing.value)} of what the values alone leave open)"]
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


def _why_nothing(tiles: Sequence[Tile]) -> str:
    """Why none of what was asked for could be measured; "" where nothing was asked for."""
    asked = [tile for tile in tiles if tile.row is not None]
    reasons = list(dict.fromkeys(tile.row.reason for tile in asked if tile.row is not None and tile.row.reason))
    if not asked:
        return ""
    what = ", ".join(tile.title[0].lower() + tile.title[1:] for tile in asked)
    why = " ".join(reason if reason.endswith(".") else f"{reason}." for reason in reasons).removesuffix(".")
    return f"nothing can be said of {what}: {why or 'no reason was recorded'}"


def _say_binding(table: Measured, tiles: Sequence[Tile], joined: bool, named: bool) -> str:
    """Whether it binds, and which read-out says so; "" where that is undecided or wasn't asked."""
    found, row = binding(table), tiles[1].row
    yes = found.answer == "yes"
    joint = (" and, " if named == yes else " but, ") if joined else ", "
    if any(one.name in PROBED for one in found.clear) and row is not None and row.value is not None:
        shown, level = percent(row.value), percent(row.bag_of_concepts or 0.0)
        better = row.value < 0.75
        against = f"{shown} against {level}" if better else f"{shown}, where a bag of concepts reaches {level}"
        blind, both = table.find("probe.object.blind"), table.find("probe.object.swap.both")
        if blind is not None and blind.value is not None:
            against += f" and vectors blind to binding {percent(blind.value)} at most"
        if found.clear[0].name == "swaps" and both is not None and both.value is not None:
            against += f"; a scene and its swap are both right in {percent(both.value)}, by chance in "
            against += percent(both.chance or 0.0)
        how, part = " better than a bag of concepts" if better else "", share_that_binds(table)
        said = f"{joint}in its own space, tells which object has which value{how} ({against})"
        return f"{said}; {part}" if part and tiles[4].answer != "yes" else said
    if yes and joined | (not joined and tiles[1].row is not None):
        return f"{joint}in its own space, binds: {_recovers(table)}{_though(tiles[1])}"
    if found.answer == "no" and row is not None and row.value is not None:
        held = binds_nothing(table)
        said = f"{joint}in its own space, shows no evidence of binding: {listed(found.tried)} find none"
        objects = f"objects recognised in {percent(row.value)}"
        objects += f", a bag of concepts in {percent(row.bag_of_concepts)}" if row.bag_of_concepts is not None else ""
        share = f"; {floored(held.value or 0.0)} of what the values alone leave open" if held is not None else ""
        return f"{said} ({objects}{share})"
    return ""


def _recovers(table: Measured) -> str:
    """What a read-out recovers, which one, and how many of the values that holds for."""
    found = binding(table)
    of_information = [one for one in found.tried if one.name in READOUTS]
    best = max((one for one in found.clear if one.name in READOUTS), key=lambda one: one.row.value or 0.0)
    readout = "attention" if best.name == "attention" else best.name
    said = f"a {readout} read-out recovers {percent(best.row.value or 0.0)} of what the values alone leave open"
    part = share_that_binds(table)
    return f"{said}{best_of(of_information)}{f'; {part}' if part else ''}"


def _though(tile: Tile) -> str:
    """What linear probes find where the claim rests on another read-out."""
    row = tile.row
    if row is None or row.value is None or tile.answer not in DOUBTS:
        return ""
    known = f", a bag of concepts in {percent(row.bag_of_concepts)}" if row.bag_of_concepts is not None else ""
    return f", though linear probes do not show it (objects recognised in {percent(row.value)}{known})"


def _doubt_objects(table: Measured, tile: Tile) -> str:
    row = tile.row
    if row is None or row.value is None or binding(table).answer in ("yes", "no") or tile.answer not in DOUBTS:
        return ""
    known = (
        f", where a bag of concepts reaches {percent(row.bag_of_concepts)}" if row.bag_of_concepts is not None else ""
    )
    if tile.answer == "no" and row.bag_of_concepts is not None:
        shown = f"{percent(row.value)}, below the {percent(row.bag_of_concepts)} of a bag of concepts"
        return f"linear probes do not tell, in its own space, which object has which value ({shown})"
    return (
        f"whether it tells, in its own space, which object has which value is undecided ({percent(row.value)}{known})"
    )


def _say_additive(tile: Tile, values: Row | None) -> str:
    """How far a sum reaches, credited to values where one vector per value explains as much as one per object."""
    if tile.row is None or tile.row.value is None or tile.answer in ("no verdict", "not measured"):
        return ""
    if values is not None and values.value is not None and tile.answer in CLAIMS:
        slot = " and slot" if by_slot(values) else ""
        return f"its vectors are close to a sum of one vector per value{slot} (R² {fraction(values.value)})"
    words: dict[str, str] = {
        "yes": "its vectors are close to a sum of one vector per object",
        "largely": "its vectors are largely a sum of one vector per object",
        "partly": "its vectors are partly a sum of one vector per object",
        "no": "its vectors are far from a sum of one vector per object",
        "undecided": "whether its vectors are a sum of one vector per object is undecided",
    }
    slot = " and slot" if by_slot(tile.row) else ""
    return f"{words[tile.answer]}".replace("per object", f"per object{slot}") + f" (R² {fraction(tile.row.value)})"


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


def _say_information(table: Measured, tiles: Sequence[Tile]) -> str:
    """What read-outs of information recover, where the sentence hasn't said it yet."""
    found, row = binding(table), tiles[4].row
    if row is None or row.value is None or tiles[4].answer in ("no verdict", "not measured"):
        return ""
    by_probes = any(one.name in PROBED for one in found.clear)
    if tiles[4].answer == "yes":
        return _recovers(table) if by_probes or tiles[1].row is None else ""
    if found.answer in ("yes", "no") or tiles[1].row is not None:
        return ""
    tried = [one for one in found.tried if one.name in READOUTS]
    high = max(one.row.high or 0.0 for one in tried)
    return (
        f"no information beyond the values can be claimed: {listed(tried)} recover {floored(row.value)} of what the "
        f"values alone leave open, at most {percent(max(0.0, min(1.0, high)))}"
    )
