"""A tile for each question: its number, what it says, and whether that is a claim."""

from collections.abc import Sequence

from colligate.records import NO_CEILING, Row
from colligate.report.verdict.binding import (
    PROBED,
    READOUTS,
    best_of,
    binding,
    evidence,
    floored,
    listed,
    share_that_binds,
)
from colligate.report.verdict.claims import (
    Answer,
    Measured,
    Tile,
    compare,
    fraction,
    percent,
    rule_in_words,
    too_few,
    unsaid,
)


def _level(row: Row | None, name: str, default: float) -> float:
    level = getattr(row, name) if row is not None else None
    return default if level is None else level


def values_tile(table: Measured) -> Tile:
    """Are the values recognised?"""
    row = table.find("probe.concept")
    answer = compare(row, _level(row, "chance", 0.0))
    if row is None or row.value is None or answer == "no verdict":
        sentence = unsaid(row, "Values were", percent)
    elif answer == "yes":
        sentence = f"Every value present outscores every absent one in {percent(row.value)} of scenes."
    else:
        sentence = f"Values are recognised in {percent(row.value)} of scenes"
        sentence += f", not clear of chance ({percent(row.chance or 0.0)})."
    return Tile("probes", "Values recognised", answer, sentence, row)


def objects_tile(table: Measured) -> Tile:
    """Are the objects?"""
    row, found, blind = table.find("probe.object"), binding(table), table.find("probe.object.blind")
    level = row.bag_of_concepts if row is not None else None
    answer = compare(row, level)
    if row is None or row.value is None or answer == "no verdict":
        sentence = unsaid(row, "Objects were", percent)
    elif level is None:
        sentence = f"Objects are recognised in {percent(row.value)} of scenes"
        sentence += "; there is no bag-of-concepts level to compare with."
    elif any(one.name in PROBED for one in found.clear):
        answer = "yes"
        sentence = f"Every object present outscores every absent one in {percent(row.value)} of scenes"
        sentence += f"; a bag of concepts would reach {percent(level)}{_ceiling(blind)}.{_both_ways(table)}"
    elif answer == "no":
        sentence = f"Objects are recognised in {percent(row.value)} of scenes"
        sentence += f", below the {percent(level)} of an ideal bag of concepts."
    elif answer == "yes":
        answer = "undecided"
        sentence = f"Objects are recognised in {percent(row.value)} of scenes, above the {percent(level)} of a bag of "
        sentence += f"concepts with ties at random, but not clear of what needs no binding{_ceiling(blind)}."
        sentence += _both_ways(table)
    else:
        sentence = f"Objects are recognised in {percent(row.value)} of scenes"
        sentence += f"; the interval spans the {percent(level)} of an ideal bag of concepts."
    return Tile("probes", "Objects recognised", answer, sentence, row)


def _ceiling(blind: Row | None) -> str:
    """What vectors reach at the most that can't tell a scene from its swap, as part of a sentence."""
    return "" if blind is None or blind.value is None else f", vectors blind to binding {percent(blind.value)} at most"


def _both_ways(table: Measured) -> str:
    row = table.find("probe.object.swap.both")
    if row is None or row.value is None:
        return ""
    said = f" A scene and its swap are both right in {percent(row.value)}"
    return f"{said} (0 % for vectors that can't tell them, {percent(row.chance or 0.0)} by chance)."


NO_MORE = 0.01
"""By how much more R2 one vector per object must explain than one per value before it is credited."""
BY_SLOT = 0.02
"""By how much more R2 components of each slot must explain than shared ones before they are the ones told."""


def sum_of_values(table: Measured) -> Row | None:
    """R2 of one vector per value, where it clears 0.9 and one vector per object explains no more; else None."""
    objects = _additive_row(table)
    values = None if objects is None else table.find(objects.id.replace("r2.object", "r2.concept"), "test", "all")
    if values is None or values.value is None or objects is None or objects.value is None or too_few(values):
        return None
    alike = values.on == objects.on and objects.value - values.value < NO_MORE
    return values if alike and values.low is not None and values.low >= 0.9 else None


def by_slot(row: Row | None) -> bool:
    """Whether the components are those of each slot."""
    return row is not None and "+pos" in row.id


def _additive_row(table: Measured) -> Row | None:
    """R2 of one vector per object, shared by the slots; of each slot's own where these explain clearly more."""
    names = ("object.least_squares", "object+pos.least_squares", "object.avg", "object.avg+pos")
    shared = table.first([f"r2.{name}" for name in names], "test", "all")
    own = table.find("r2.object+pos.least_squares", "test", "all")
    if shared is None or own is None or own.value is None or shared.value is None:
        return shared
    return own if own.on == shared.on and own.value > shared.value + BY_SLOT else shared


def additive_tile(table: Measured) -> Tile:
    """Is a vector a sum of its objects' vectors?"""
    row = _additive_row(table)
    answer = compare(row, 0.0)
    slot = " and slot" if by_slot(row) else ""
    values = None if row is None else table.find(row.id.replace("r2.object", "r2.concept"), "test", "all")
    if row is None or row.value is None or answer == "no verdict":
        sentence = unsaid(row, "Additivity was", fraction)
    elif answer == "yes":
        answer = (
            "yes" if row.value >= 0.9 else "largely" if row.value >= 0.7 else "partly" if row.value >= 0.4 else "no"
        )
        where = " between held-out scenes" if row.on == "test" else ""
        sentence = f"One vector per object{slot} explains {percent(row.value)} of the variance{where}"
        share = values.value if values is not None else None
        enough = " as well: a sum over values is enough" if sum_of_values(table) is not None else ""
        sentence += f"; one per value{slot} explains {percent(share)}{enough}" if share is not None else ""
        sentence += f"; random weights: {percent(row.random_init)}." if row.random_init is not None else "."
    else:
        sentence = f"R² is {fraction(row.value)}, not clear of zero: the sum explains nothing."
    return Tile("layout", "Additive in objects, R²", answer, sentence, row, percent=False)


def information_tile(table: Measured) -> Tile:
    """Is there binding information?"""
    of_information = [one for one in evidence(table) if one.name in READOUTS]
    clear = [one for one in binding(table).clear if one.name in READOUTS]
    rows = [one.row for one in clear or of_information]
    row = (
        max(rows, key=lambda one: one.value or 0.0)
        if rows
        else table.first([f"information.{name}.ratio" for name in READOUTS])
    )
    if row is None or row.value is None or not rows:
        answer: Answer = compare(row, 0.0)
        sentence = unsaid(row, "Binding information was", fraction)
    elif clear:
        answer, readout = "yes", row.id.split(".")[1]
        sentence = f"A {readout} read-out recovers at least {percent(row.value)} of what the values alone leave open"
        part = share_that_binds(table)
        sentence += f"{best_of(of_information)}.{f' {part[0].upper()}{part[1:]}.' if part else ''}"
    else:
        answer = "no" if all(compare(one.row, one.level) == "no" for one in of_information) else "undecided"
        sentence = f"At {floored(row.value)}, no information beyond the values themselves can be claimed; tried: "
        sentence += f"{listed(of_information)}."
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
