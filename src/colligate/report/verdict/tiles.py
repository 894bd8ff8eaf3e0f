"""A tile for each question: its number, what it says, and whether that is a claim."""

from collections.abc import Callable, Sequence

from colligate.records import NO_CEILING, Row
from colligate.report.verdict.claims import (
    TOO_FEW,
    Measured,
    Tile,
    compare,
    fraction,
    percent,
    rule_in_words,
    too_few,
)

READOUTS = ("linear", "quadratic", "attention")
"""Read-outs of binding information, the simplest first."""


def _level(row: Row | None, name: str, default: float) -> float:
    level = getattr(row, name) if row is not None else None
    return default if level is None else level


def _unsaid(row: Row | None, what: str, show: Callable[[float], str]) -> str:
    if row is None:
        return f"{what} not measured in this study."
    if row.value is None:
        return f"{what} not measured: {row.reason or 'no reason was recorded'}."
    return f"{show(row.value)}, but on {TOO_FEW}."


def values_tile(table: Measured) -> Tile:
    """Are the values recognised?"""
    row = table.find("probe.concept")
    answer = compare(row, _level(row, "chance", 0.0))
    if row is None or row.value is None or answer == "no verdict":
        sentence = _unsaid(row, "Values were", percent)
    elif answer == "yes":
        sentence = f"Every value present outscores every absent one in {percent(row.value)} of scenes."
    else:
        sentence = f"Values are recognised in {percent(row.value)} of scenes"
        sentence += f", not clear of chance ({percent(row.chance or 0.0)})."
    return Tile("probes", "Values recognised", answer, sentence, row)


def objects_tile(table: Measured) -> Tile:
    """Are the objects?"""
    row = table.find("probe.object")
    level = row.bag_of_concepts if row is not None else None
    answer = compare(row, level)
    if row is None or row.value is None or answer == "no verdict":
        sentence = _unsaid(row, "Objects were", percent)
    elif level is None:
        sentence = f"Objects are recognised in {percent(row.value)} of scenes"
        sentence += "; there is no bag-of-concepts level to compare with."
    elif answer == "yes":
        sentence = f"Every object present outscores every absent one in {percent(row.value)} of scenes"
        sentence += f"; a bag of concepts would reach {percent(level)}."
    elif answer == "no":
        sentence = f"Objects are recognised in {percent(row.value)} of scenes"
        sentence += f", below the {percent(level)} of an ideal bag of concepts."
    else:
        sentence = f"Objects are recognised in {percent(row.value)} of scenes"
        sentence += f"; the interval spans the {percent(level)} of an ideal bag of concepts."
    return Tile("probes", "Objects recognised", answer, sentence, row)


NO_MORE = 0.01
"""By how much more R2 one vector per object must explain than one per value before it is credited."""
NOTHING_HELD = 0.05
"""Below this upper end of the share read of what the values leave open, vectors are said to hold no binding."""


def sum_of_values(table: Measured) -> Row | None:
    """R2 of one vector per value, where it clears 0.9 and one vector per object explains no more; else None."""
    values = table.find("r2.concept.least_squares", "test", "all")
    objects = _additive_row(table)
    if values is None or values.value is None or objects is None or objects.value is None or too_few(values):
        return None
    alike = values.on == objects.on and objects.value - values.value < NO_MORE
    return values if alike and values.low is not None and values.low >= 0.9 else None


def binds_nothing(table: Measured) -> Row | None:
    """The read-out that found most, where none finds binding information; None where one may, or none was tried."""
    found = [table.find(f"information.{name}.ratio") for name in READOUTS]
    there = [row for row in found if row is not None and row.value is not None]
    if not there or any(too_few(row) or (row.high or 0.0) >= NOTHING_HELD for row in there):
        return None
    return max(there, key=lambda row: row.value or 0.0)


def _additive_row(table: Measured) -> Row | None:
    names = ("object.least_squares", "object+pos.least_squares", "object.avg", "object.avg+pos")
    return table.first([f"r2.{name}" for name in names], "test", "all")


def additive_tile(table: Measured) -> Tile:
    """Is a vector a sum of its objects' vectors?"""
    row = _additive_row(table)
    answer = compare(row, 0.0)
    values = table.find("r2.concept.least_squares", "test", "all")
    if row is None or row.value is None or answer == "no verdict":
        sentence = _unsaid(row, "Additivity was", fraction)
    elif answer == "yes":
        answer = (
            "yes" if row.value >= 0.9 else "largely" if row.value >= 0.7 else "partly" if row.value >= 0.4 else "no"
        )
        where = " between held-out scenes" if row.on == "test" else ""
        sentence = f"One vector per object explains {percent(row.value)} of the variance{where}"
        share = values.value if values is not None else None
        enough = " as well: a sum over values is enough" if sum_of_values(table) is not None else ""
        sentence += f"; one per value explains {percent(share)}{enough}" if share is not None else ""
        sentence += f"; random weights: {percent(row.random_init)}." if row.random_init is not None else "."
    else:
        sentence = f"R² is {fraction(row.value)}, not clear of zero: the sum explains nothing."
    return Tile("layout", "Additive in objects, R²", answer, sentence, row, percent=False)


def blind_to_order(table: Measured, row: Row | None) -> Row | None:
    """Edits that reach their target or its twin in other order, where of the two one is found as often as the other.

    None where the exact scene is found clearly more often than that, or where the twin doesn't help.
    """
    either = None if row is None else table.find(f"{row.id}.up_to_order", row.on)
    if row is None or row.value is None or either is None or either.value is None:
        return None
    return either if compare(either, either.bag_of_concepts) == "yes" and row.value <= either.value / 2 + 0.05 else None


def edits_tile(table: Measured) -> Tile:
    """Do edits reach their target?"""
    names = ("avg", "avg+pos", "least_squares", "single")
    row = table.first([f"edit.retrieval.{name}" for name in names], "test", "all")
    either = blind_to_order(table, row)
    exact, row = row, row if either is None else either
    level = _level(row, "bag_of_concepts", 0.5)  # no sum of values tells a scene from its twin: half at the most
    answer = compare(row, level)
    if row is None or row.value is None or answer == "no verdict":
        sentence = _unsaid(row, "Edits were", percent)
    elif answer == "yes":
        answer = "yes" if row.value >= 0.9 else "largely" if row.value >= 0.7 else "partly"
        shared = table.find(f"{row.id}.shared", "test", "all")
        sentence = "Replace one object's vector: the nearest scene is the intended one "
        if either is None or exact is None or exact.value is None:
            sentence += f"in {percent(row.value)} of edits"
        else:
            sentence += f"or its twin in other order in {percent(row.value)} of edits; in the exact order in "
            sentence += f"{percent(exact.value)}, which these vectors do not tell"
        if shared is not None and shared.value is not None:
            sentence += f" ({percent(shared.value)} where the two objects share a value)"
        sentence += "."
    else:
        sentence = (
            f"Edits land in {percent(row.value)} of cases, not clear of the {percent(level)} of a bag of concepts."
        )
    return Tile("edits", "Edits that reach their target", answer, sentence, row)


def information_tile(table: Measured) -> Tile:
    """Is there binding information?"""
    row = table.first([f"information.{name}.ratio" for name in READOUTS])
    answer = compare(row, _level(row, "bag_of_concepts", 0.0))
    if row is None or row.value is None or answer == "no verdict":
        sentence = _unsaid(row, "Binding information was", fraction)
    elif answer == "yes":
        readout = row.id.split(".")[1]
        sentence = f"A {readout} read-out recovers at least {percent(row.value)} of what the values alone leave open."
    else:
        sentence = f"At {fraction(row.value)}, no information beyond the values themselves can be claimed."
    return Tile("information", "Binding information", answer, sentence, row, percent=False)


def _listed(families: Sequence[Row]) -> str:
    """Rules in a row: a, b and c."""
    *some, last = (f"a {rule_in_words(row.family or '')}" for row in families)
    return f"{', '.join(some)} and {last}" if some else last


def bits_apart(table: Measured) -> str:
    """Where code length and area point different ways: which families, and why that may be; "" where none do.

    Bits count variance explained in all scenes that new objects complete, and what learning costs; the area counts
    objects alone, in scenes of unseen objects.
    """
    areas = {row.family: row for row in table.families("complexity.area") if row.value is not None}
    save, cost, coded = list[Row](), list[Row](), table.families("complexity.bits_saved")
    for bits in coded:
        area, saved = areas.get(bits.family), compare(bits, 0.0)
        if area is None or compare(area, 0.0) == "no verdict":
            continue
        carried = compare(area, 0.0) == "yes"
        if saved == "yes" and not carried:
            save.append(area)
        if saved == "no" and carried:
            cost.append(area)
    said = list[str]()
    if len(save) == len(coded) > 2:
        said.append("all rules save bits, which count variance, though none clearly carries objects over")
    elif save:
        verb = "saves" if len(save) == 1 else "save"
        said.append(f"{_listed(save)} {verb} bits without clearly carrying objects over (bits count variance)")
    if cost:
        verb = "carries" if len(cost) == 1 else "carry"
        said.append(f"{_listed(cost)} {verb} objects over without saving bits (bits count what learning costs)")
    return "; ".join(said)


def nothing_to_carry(table: Measured) -> str:
    """What can be said of rules where probes read no more objects than a bag of concepts; "" where they do.

    Then no rule has an area. Which rule is enough is told by its code length: the first in the table's order that saves
    nearly as much as any.
    """
    areas = table.families("complexity.area")
    if not areas or not all(row.value is None and (row.reason or "").startswith(NO_CEILING) for row in areas):
        return ""
    said = "probes read no more objects from the true vectors than a bag of concepts, so no rule can carry any over"
    saved = [row for row in table.families("complexity.bits_saved") if compare(row, 0.0) == "yes"]
    base = table.find("complexity.bits", family="gaussian")
    if not saved or base is None or base.value is None:
        return said
    most = max(row.value or 0.0 for row in saved)
    first = next(row for row in saved if (row.value or 0.0) >= 0.95 * most)
    rule = rule_in_words(first.family or "")
    return f"{said}; a {rule} is enough: it saves {first.value or 0.0:.0f} of {base.value:.0f} bits a scene"
