"""What edits allow one to say: whichever components reach their target, and that several were tried."""

from collections.abc import Sequence
from dataclasses import dataclass

from colligate.records import Row
from colligate.report.verdict.binding import widened
from colligate.report.verdict.claims import Answer, Measured, Tile, compare, percent, too_few, unsaid

WAYS = {
    "avg": "averages over scenes", "avg+pos": "averages for each slot", "least_squares": "least squares",
    "single": "scenes of one object",
}  # fmt: skip
"""Ways to make components, the paper's first -> what they are called."""
NEARLY = 0.02
"""By how much another way must do better than an earlier one before the claim rests on it."""


@dataclass(frozen=True)
class Reached:
    """How often edits reach their target, by the way that does best.

    Attributes:
        answer: whether they do so more often than without binding, the choice of the way paid for.
        row: the number; up to the order of objects where the vectors don't tell it.
        exact: the number in the exact order.
        way: name of the way, in words; "" where one alone was tried.
        tried: how many ways were.
    """

    answer: Answer
    row: Row | None
    exact: Row | None
    way: str
    tried: int

    @property
    def named(self) -> str:
        """Which way, and that it was chosen, as part of a sentence."""
        return f" ({self.way}, the best of {self.tried} ways tried)" if self.way else ""


def blind_to_order(table: Measured, row: Row | None) -> Row | None:
    """Edits that reach their target or its twin in other order, where of the two one is found as often as the other.

    None where the exact scene is found clearly more often than that, or where the twin doesn't help.
    """
    either = None if row is None else table.find(f"{row.id}.up_to_order", row.on)
    if row is None or row.value is None or either is None or either.value is None:
        return None
    return either if compare(either, either.bag_of_concepts) == "yes" and row.value <= either.value / 2 + 0.05 else None


def reached(table: Measured) -> Reached:
    """What the ways that were tried allow one to say: yes where one clears its level, no where none reaches it.

    Example:
        >>> rows = [Row(id=f"edit.retrieval.{way}", value=v, low=v - 0.05, high=v + 0.05, n=99, bag_of_concepts=0.5)
        ...     for way, v in (("avg", 0.1), ("avg+pos", 0.9))]
        >>> found = reached(Measured(rows))
        >>> found.answer, found.way
        ('yes', 'averages for each slot')
    """
    given = {way: table.find(f"edit.retrieval.{way}", "test", "all") for way in WAYS}
    rows = {way: row for way, row in given.items() if row is not None and row.value is not None and not too_few(row)}
    if not rows:
        row = table.first([f"edit.retrieval.{way}" for way in WAYS], "test", "all")
        return Reached(compare(row, None), row, row, "", 0)
    candidates = list[tuple[str, Row, Row, Answer]]()
    for way, exact in rows.items():
        row = blind_to_order(table, exact) or exact
        # No sum of values tells a scene from its twin: half at the most where no level is given.
        level = 0.5 if row.bag_of_concepts is None else row.bag_of_concepts
        candidates.append((way, row, exact, compare(widened(row, len(rows)), level)))
    clear = [one for one in candidates if one[3] == "yes"]
    pool: Sequence[tuple[str, Row, Row, Answer]] = clear or candidates
    # In the exact order first: that is what is asked.
    most = max(one[2].value or 0.0 for one in pool)
    way, row, exact, answer = next(one for one in pool if (one[2].value or 0.0) >= most - NEARLY)
    if clear:
        value = row.value or 0.0
        answer = "yes" if value >= 0.9 else "largely" if value >= 0.7 else "partly"
    else:
        answer = "no" if all(one[3] == "no" for one in candidates) else "undecided"
    return Reached(answer, row, exact, WAYS[way] if len(rows) > 1 else "", len(rows))


def edits_tile(table: Measured) -> Tile:
    """Do edits reach their target?"""
    found = reached(table)
    row, exact, answer = found.row, found.exact, found.answer
    if row is None or row.value is None or not found.tried:
        sentence = unsaid(row, "Edits were", percent)
    elif answer in ("no", "undecided"):
        level = 0.5 if row.bag_of_concepts is None else row.bag_of_concepts
        sentence = f"Edits land in {percent(row.value)} of cases{found.named}, not clear of the {percent(level)} of a "
        sentence += "bag of concepts."
    else:
        shared = table.find(f"{row.id}.shared", "test", "all")
        sentence = "Replace one object's vector: the nearest scene is the intended one "
        if row is exact or exact is None or exact.value is None:
            sentence += f"in {percent(row.value)} of edits"
        else:
            sentence += f"or its twin in other order in {percent(row.value)} of edits; in the exact order in "
            sentence += f"{percent(exact.value)}, which these vectors do not tell"
        if shared is not None and shared.value is not None:
            sentence += f" ({percent(shared.value)} where the two objects share a value)"
        sentence += f"{found.named}."
    return Tile("edits", "Edits that reach their target", answer, sentence, row)


def say_edits(table: Measured) -> str:
    """The same as part of the finding."""
    found = reached(table)
    if found.row is None or found.row.value is None or not found.tried:
        return ""
    shown = percent(found.row.value)
    if found.answer == "undecided":
        how = f"{shown} of edits{found.named}" if not found.way else f"{shown} of edits; {found.named.strip(' ()')}"
        return f"whether replacing one object's vector lands on the intended scene is undecided ({how})"
    if found.answer == "no":
        how = f" by any of {found.tried} ways tried" if found.way else ""
        return f"replacing one object's vector rarely lands on the intended scene{how} ({shown} of edits)"
    if found.row is not found.exact and found.exact is not None and found.exact.value is not None:
        return (
            f"replacing one object's vector finds the intended scene or its twin in other order in {shown} of edits; "
            f"in {percent(found.exact.value)} in the exact order, which these vectors do not tell{found.named}"
        )
    return f"replacing one object's vector lands on the intended scene in {shown} of edits{found.named}"
