"""The tile of complexity: does a rule fitted on some objects tell which object has which value among others?"""

from collections.abc import Sequence
from typing import NamedTuple

from colligate.records import NOT_FITTED, Row
from colligate.report.verdict.claims import (
    AREA_OF,
    Answer,
    Measured,
    Tile,
    between,
    compare,
    fraction,
    percent,
    rule_in_words,
    spans,
)

LITTLE = 0.1
"""Below this upper end, a rule predicts next to nothing of what tells scenes from their swaps."""
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Carried(NamedTuple):
    """What a claim about rules rests on.

    Attributes:
        answer: what may be said.
        row: how far the chosen family goes, at the coverage that decides.
        coverages: at which it was fitted.
        tried: all families that compete there, in the table's order.
        validated: whether validation objects chose among them.
        contrast: R2 of scene minus swap of the chosen family, if it was measured.
        unfitted: families that are left out at that coverage, since a closed form explains more than they do.
    """

    answer: Answer
    row: Row | None
    coverages: tuple[float, ...]
    tried: tuple[Row, ...]
    validated: bool
    contrast: Row | None
    unfitted: tuple[str, ...] = ()


def carried(table: Measured) -> Carried:
    """Does a rule carry over, by what the probes read of it and by what it predicts of contrasts?

    The largest coverage at which any family's point is sound decides: at low ones little is determined, and a rule that
    is right may fail. Families compete there alone, so that no areas over different coverages are compared; validation
    objects choose one. It carries over where (1) more objects are read in its predictions than in those of the sum of
    values, and (2) it predicts part of the contrast between scenes and their swaps or, where that can't be measured,
    more objects are read than an ideal bag of concepts would name: both with the interval. R2 doesn't count: most of it
    is the values'. None carries over where every family fails one of the two for good: it predicts less than a tenth of
    the contrast, or fewer objects are read than an ideal bag of concepts would name.
    """
    heights = [row for row in table.rows if row.id == AREA_OF and row.value is not None and row.coverage is not None]
    told = [row for row in heights if row.low is not None]
    if told:
        last = max(row.coverage or 0.0 for row in told)
        tried = tuple(row for row in told if row.coverage == last)
        coverages = (last,)
    else:  # a table that holds areas alone
        tried = tuple(row for row in table.families("complexity.area") if row.value is not None)
        coverages = ()
        if not tried:
            return Carried("not measured", next(iter(table.families("complexity.area")), None), (), (), False, None)
    chosen = {
        row.family: row.value
        for row in table.rows
        if row.id == "complexity.validated" and (row.coverage,) == coverages and row.value is not None
    }
    best = max(tried, key=lambda row: chosen.get(row.family, -1.0) if chosen else row.value or 0.0)
    if not told:
        coverages = table.area_coverages(best.family)
    answer = _answer(table, best)
    if answer in ("undecided", "no") and not all(_answer(table, row) in ("no", "no verdict") for row in tried):
        answer = "undecided"
    contrast = table.find("complexity.contrast", family=best.family)
    return Carried(answer, best, coverages, tried, bool(chosen), contrast, not_fitted(table, coverages))


def not_fitted(table: Measured, coverages: Sequence[float] | None = None) -> tuple[str, ...]:
    """Hidden layers that explain less than a closed form which they can come near to; at these coverages, or at any.

    Example:
        >>> why = "not fitted: R2 on scenes of the validation objects is 0.040 below that of bag_quadratic"
        >>> rows = [Row(id="complexity.adequate", family=f, coverage=0.8, value=v, reason=r)
        ...     for f, v, r in (("mlp64", 0.0, why), ("mlp256", 1.0, None))]
        >>> not_fitted(Measured(rows)), not_fitted(Measured(rows), (0.5,))
        (('mlp64',), ())
    """
    found = [
        row.family for row in table.rows
        if row.id == "complexity.adequate" and row.value == 0 and NOT_FITTED in (row.reason or "")
        and (coverages is None or row.coverage in coverages) and row.family is not None
    ]  # fmt: skip
    return tuple(dict.fromkeys(found))


def _answer(table: Measured, height: Row) -> Answer:
    """What may be said of one family."""
    above, contrast = compare(height, 0.0), table.find("complexity.contrast", family=height.family)
    if above == "no verdict":
        return above
    swapped = compare(contrast, 0.0)
    if swapped not in ("yes", "no", "undecided"):
        contrast, swapped = None, compare(height, height.bag_of_concepts or 0.0)
    below = compare(height, height.bag_of_concepts or 0.0) == "no" or above == "no"
    if above == swapped == "yes":
        return "yes"
    little = contrast is not None and contrast.high is not None and contrast.high < LITTLE
    return "no" if below or little else "undecided"


def complexity_tile(table: Measured, nothing: str, apart: str) -> Tile:
    """Does a rule carry over to unseen objects?

    Args:
        table: the study's rows.
        nothing: what is said where no rule can carry anything over; "" where one can.
        apart: where bits and areas point different ways; "" where they don't.
    """
    found = carried(table)
    answer, row = found.answer, found.row
    if nothing:
        sentence = f"{nothing[0].upper()}{nothing[1:]}."
    elif row is None or row.value is None:
        why = "not measured in this study" if row is None else f"not measured: {row.reason or 'no reason was recorded'}"
        sentence = f"Rules were {why}."
    elif answer == "no verdict":
        sentence = f"{fraction(row.value)}, but on too few objects or scenes for an interval: nothing is claimed."
    else:
        if answer == "yes":
            answer = "yes" if row.value >= 0.75 else "largely" if row.value >= 0.5 else "partly"
        sentence = _said(found, answer)
    sentence += f" {apart[0].upper()}{apart[1:]}." if apart else ""
    return Tile("complexity", "Rule carried over to unseen objects", answer, sentence, row, percent=False)


def _said(found: Carried, answer: Answer) -> str:
    row, shown = found.row, between(found.coverages)
    assert row is not None
    assert row.value is not None
    rule = rule_in_words(row.family or "")
    the = "the rule that validation objects choose" if found.validated else "the best rule"
    scale = "the reading of a sum of values at 0, of the true vectors at 1"
    if row.bag_of_concepts is not None:
        scale += f", an ideal bag of concepts at {fraction(row.bag_of_concepts)}"
    if answer in ("yes", "largely", "partly"):
        sentence = f"Fitted on {shown}, a {rule} goes {percent(row.value)} of the way from what is read in a sum of "
        sentence += "values to what is read in the true vectors, on others"
        sentence += f" (chosen among {_number(found.tried)} on validation objects)" if found.validated else ""
    elif answer == "no":
        sentence = f"Fitted on {shown}, {none_of(found.tried)} tells which object has which value among others; "
        sentence += f"{the}, a {rule}, stands at {fraction(row.value)} ({scale})"
    else:
        ends = f"interval {fraction(row.low or 0.0)} to {fraction(row.high or 0.0)}"
        ends += f" with {row.objects} objects; a world of more objects decides more" if row.objects else ""
        sentence = f"Fitted on {shown}, {the}, a {rule}, stands at "
        sentence += f"{fraction(row.value)} ({scale}), {ends}"
    contrast = found.contrast
    if contrast is not None and contrast.value is not None:
        if contrast.low == contrast.high == 0:
            sentence += "; it is the same for a scene and its swap"
        else:
            sentence += f"; of the contrast between a scene and its swap it predicts {fraction(contrast.value)}"
            if contrast.low is not None and contrast.high is not None:
                sentence += f" ({spans(contrast.low, contrast.high, fraction)})"
    if found.unfitted:
        names = ", ".join(rule_in_words(name) for name in found.unfitted)
        sentence += f"; left out as not fitted (a quadratic bag of concepts explains more): {names}"
    return f"{sentence}."


def none_of(tried: Sequence[Row]) -> str:
    """A negative that claims no more than was tried.

    Example:
        >>> none_of([Row(id="complexity.area", family=name) for name in ("additive", "mlp64")])
        'none of the two rules tried (sum of values, hidden layer of 64 units)'
    """
    names = ", ".join(rule_in_words(row.family or "") for row in tried)
    return f"none of the {_number(tried)} rules tried ({names})" if len(tried) > 1 else f"no {names}"


def _number(tried: Sequence[Row]) -> str:
    return NUMBERS[len(tried)] if len(tried) < len(NUMBERS) else str(len(tried))
