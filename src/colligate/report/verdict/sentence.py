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
from colligate.report.verdict.tiles import (
    additive_tile,
    complexity_tile,
    edits_tile,
    information_tile,
    objects_tile,
    values_tile,
)


def judge(rows: Iterable[Row], name: str = "This model") -> Verdict:
    """Say in words what a study found, claiming only what an interval carries.

    A claim needs the interval's lower end above the level of an ideal bag-of-concepts model (values: above chance;
    additive R2: above zero). Below 8 objects or 20 scenes nothing is claimed. Where the same network with random
    weights does as well, the sentence says so.

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
    rules = complexity_tile(table)
    tiles = tiles if rules.row is None else (*tiles, rules)
    answers = [tile.answer for tile in tiles]
    if all(answer == "not measured" for answer in answers):
        return Verdict("Nothing was measured that a verdict could rest on.", tiles)
    if all(answer in ("not measured", "no verdict") for answer in answers):
        return Verdict(_few(tiles), tiles)
    values, objects = (
        _say_values(tiles[0]),
        _say_objects(tiles[1], bool(_say_values(tiles[0])), tiles[0].answer == "yes"),
    )
    start = f"{name}{' ' if values else ''}{values}{objects}" if values or objects else ""
    rest = (
        _doubt_objects(tiles[1]),
        _say_additive(tiles[2]),
        _say_edits(tiles[3]),
        _say_information(tiles[4]),
        _say_complexity(rules),
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


def _say_complexity(tile: Tile) -> str:
    row = tile.row
    if row is None or row.value is None or tile.answer in ("no verdict", "not measured"):
        return ""
    if tile.answer == "no":
        return "no rule fitted on some objects tells which object has which value among others"
    if tile.answer == "undecided":
        return "whether a rule fitted on some objects carries over to others is undecided"
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


def _say_additive(tile: Tile) -> str:
    if tile.row is None or tile.row.value is None or tile.answer in ("no verdict", "not measured"):
        return ""
    words: dict[str, str] = {
        "yes": "its vectors are close to a sum of one vector per object",
        "largely": "its vectors are largely a sum of one vector per object",
        "partly": "its vectors are partly a sum of one vector per object",
        "no": "its vectors are far from a sum of one vector per object",
        "undecided": "whether its vectors are a sum of one vector per object is undecided",
    }
    return f"{words[tile.answer]} (R² {fraction(tile.row.value)})"


def _say_edits(tile: Tile) -> str:
    if tile.row is None or tile.row.value is None or tile.answer in ("no verdict", "not measured"):
        return ""
    shown = percent(tile.row.value)
    if tile.answer == "undecided":
        return f"whether replacing one object's vector lands on the intended scene is undecided ({shown} of edits)"
    if tile.answer == "no":
        return f"replacing one object's vector rarely lands on the intended scene ({shown} of edits)"
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
