"""What the numbers allow one to say: a claim only where an interval clears its level, in plain words."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from colligate.records import Row

Answer = Literal["yes", "largely", "partly", "no", "undecided", "no verdict", "not measured"]
"""What a tile says. `undecided`: the interval doesn't clear the level. `no verdict`: too few objects or scenes."""

FEWEST_OBJECTS = 8
FEWEST_SCENES = 20
TOO_FEW = "too few objects or scenes for an interval: nothing is claimed"


@dataclass(frozen=True)
class Tile:
    """One question, the number that answers it, and what may be said of it.

    Attributes:
        key: short name of the question, the anchor of its section.
        title: the question as a noun.
        answer: what the interval allows one to say.
        sentence: the same in plain words.
        row: the number with its interval and levels; None where it wasn't measured.
        percent: whether the number is a share of scenes (else a bare fraction such as R2).
    """

    key: str
    title: str
    answer: Answer
    sentence: str
    row: Row | None
    percent: bool = True


@dataclass(frozen=True)
class Verdict:
    """The finding of a study.

    Attributes:
        sentence: one plain sentence, for the page and the terminal.
        tiles: one for each question, in the page's order.
    """

    sentence: str
    tiles: tuple[Tile, ...]


class Measured:
    """Find rows by id, without caring whether they were measured.

    Example:
        >>> table = Measured([Row(id="probe.object", on="test", value=0.9), Row(id="probe.object", value=0.95)])
        >>> table.find("probe.object").value, table.find("probe.object", "all").value, table.find("r2.object.avg")
        (0.9, 0.95, None)
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._by_key: dict[tuple[str, str, str | None], Row] = {}
        for row in sorted(self.rows, key=lambda r: r.protocol != "strict"):
            self._by_key.setdefault((row.id, row.on, row.family), row)

    def find(self, id: str, *on: str, family: str | None = None) -> Row | None:
        """The first row with a value among the given parts (test, then all, then fit); else one that says why not."""
        found = [self._by_key.get((id, part, family)) for part in on or ("test", "all", "fit")]
        there = [row for row in found if row is not None]
        return next((row for row in there if row.value is not None), there[0] if there else None)

    def first(self, ids: Sequence[str], *on: str) -> Row | None:
        """The first of several ids that has a value; else the first that says why not."""
        there = [row for row in (self.find(id, *on) for id in ids) if row is not None]
        return next((row for row in there if row.value is not None), there[0] if there else None)

    def families(self, id: str, *on: str) -> list[Row]:
        """All rows of an id that name a family, in the table's order."""
        parts = on or ("test", "all", "fit")
        kept = [row for row in self.rows if row.id == id and row.family is not None and row.on in parts]
        best = {row.family: min(parts.index(r.on) for r in kept if r.family == row.family) for row in kept}
        return [row for row in kept if parts.index(row.on) == best[row.family]]

    def normalized(self) -> "Measured":
        """The same measurements on vectors of length one, under their own ids."""
        from dataclasses import replace

        prefix = "normalized."
        return Measured(replace(r, id=r.id.removeprefix(prefix)) for r in self.rows if r.id.startswith(prefix))


def percent(value: float) -> str:
    """A share in percent that never rounds up to all or down to nothing.

    Example:
        >>> percent(0.934), percent(0.9996), percent(1.0), percent(0.0004)
        ('93 %', '99.9 %', '100 %', '<0.1 %')
    """
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    if 0 < value < 0.0005:
        return "<0.1 %"
    if value >= 0.995:
        return f"{min(round(100 * value, 1), 99.9)} %" if value < 1 else f"{100 * value:.0f} %"
    return f"{100 * value:.1f} %" if 0 < value < 0.005 else f"{100 * value:.0f} %"


def fraction(value: float) -> str:
    """A number with two decimals that never rounds up to one.

    Example:
        >>> fraction(0.934), fraction(0.9996), fraction(-0.5)
        ('0.93', '0.999', '−0.50')
    """
    text = f"{min(value, 0.999):.3f}" if 0.995 <= value < 1 else f"{0.0 if abs(value) < 0.005 else value:.2f}"
    return text.replace("-", "\N{MINUS SIGN}")


def too_few(row: Row) -> bool:
    """Whether a row carries no interval, or rests on too few objects or scenes for a claim."""
    return (
        row.low is None
        or row.high is None
        or (row.objects is not None and row.objects < FEWEST_OBJECTS)
        or (row.n is not None and row.n < FEWEST_SCENES)
    )


CLAIMS = ("yes", "largely", "partly")
"""Answers that claim something of the model."""


def compare(row: Row | None, level: float | None) -> Answer:
    """Where an interval lies against a level: above (yes), below (no), across or without a level (undecided).

    Example:
        >>> compare(Row(id="probe.object", value=0.6, low=0.5, high=0.7, n=100), 0.25)
        'yes'
    """
    if row is None or row.value is None:
        return "not measured"
    if too_few(row) or row.low is None or row.high is None:
        return "no verdict"
    if level is None:
        return "undecided"
    return "yes" if row.low > level else "no" if row.high < level else "undecided"


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
    tiles = (_values(table), _objects(table), _additive(table), _edits(table), _information(table))
    rules = _complexity(table)
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


def _level(row: Row | None, name: str, default: float) -> float:
    level = getattr(row, name) if row is not None else None
    return default if level is None else level


def _unsaid(row: Row | None, what: str, show: Callable[[float], str]) -> str:
    if row is None:
        return f"{what} not measured in this study."
    if row.value is None:
        return f"{what} not measured: {row.reason or 'no reason was recorded'}."
    return f"{show(row.value)}, but on {TOO_FEW}."


def _values(table: Measured) -> Tile:
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


def _objects(table: Measured) -> Tile:
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


def _additive(table: Measured) -> Tile:
    row = table.first(
        [f"r2.{name}" for name in ("object.least_squares", "object+pos.least_squares", "object.avg", "object.avg+pos")],
        "test",
        "all",
    )
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
        sentence += f"; one per value explains {percent(share)}" if share is not None else ""
        sentence += f"; random weights: {percent(row.random_init)}." if row.random_init is not None else "."
    else:
        sentence = f"R² is {fraction(row.value)}, not clear of zero: the sum explains nothing."
    return Tile("layout", "Additive in objects, R²", answer, sentence, row, percent=False)


def _edits(table: Measured) -> Tile:
    names = ("avg", "avg+pos", "least_squares", "single")
    row = table.first([f"edit.retrieval.{name}" for name in names], "test", "all")
    level = _level(row, "bag_of_concepts", 0.5)  # no sum of values tells a scene from its twin: half at the most
    answer = compare(row, level)
    if row is None or row.value is None or answer == "no verdict":
        sentence = _unsaid(row, "Edits were", percent)
    elif answer == "yes":
        answer = "yes" if row.value >= 0.9 else "largely" if row.value >= 0.7 else "partly"
        shared = table.find(f"{row.id}.shared", "test", "all")
        sentence = (
            f"Replace one object's vector: the nearest scene is the intended one in {percent(row.value)} of edits"
        )
        if shared is not None and shared.value is not None:
            sentence += f" ({percent(shared.value)} where the two objects share a value)"
        sentence += "."
    else:
        sentence = (
            f"Edits land in {percent(row.value)} of cases, not clear of the {percent(level)} of a bag of concepts."
        )
    return Tile("edits", "Edits that reach their target", answer, sentence, row)


def _information(table: Measured) -> Tile:
    row = table.first([f"information.{name}.ratio" for name in ("linear", "quadratic", "attention")])
    answer = compare(row, _level(row, "bag_of_concepts", 0.0))
    if row is None or row.value is None or answer == "no verdict":
        sentence = _unsaid(row, "Binding information was", fraction)
    elif answer == "yes":
        readout = row.id.split(".")[1]
        sentence = f"A {readout} read-out recovers at least {percent(row.value)} of what the values alone leave open."
    else:
        sentence = f"At {fraction(row.value)}, no information beyond the values themselves can be claimed."
    return Tile("information", "Binding information", answer, sentence, row, percent=False)


def rule_in_words(family: str) -> str:
    """What a family of rules is called in sentences.

    Example:
        >>> rule_in_words("mlp1024"), rule_in_words("additive"), rule_in_words("mine")
        ('hidden layer of 1,024 units', 'sum of values', 'mine')
    """
    plain = {
        "additive": "sum of values", "object_product": "sum and product within objects",
        "global_product": "sum and product over the scene", "convolution": "sum and convolution within objects",
        "object_product.head": "sum and mixed products within objects",
        "global_product.head": "sum and mixed products over the scene",
        "forest": "random forest", "boosted": "boosted trees",
    }  # fmt: skip
    if family.startswith("mlp") and family[3:].isdigit():
        return f"hidden layer of {int(family[3:]):,} units"
    return plain.get(family, family)


def _complexity(table: Measured) -> Tile:
    areas = table.families("complexity.area")
    measured = [row for row in areas if row.value is not None]
    row = max(measured, key=lambda one: one.value or 0.0) if measured else next(iter(areas), None)
    answer = compare(row, 0.0)
    if row is None or row.value is None or answer == "no verdict":
        sentence = _unsaid(row, "Rules were", fraction)
    elif row.value < 0:
        sentence = "Fitted on some objects, no rule reaches a bag of concepts on others; the best, a "
        sentence += f"{rule_in_words(row.family or '')}, stands at {fraction(row.value)} "
        sentence += "(a bag of concepts at 0, the true vectors at 1)."
    else:
        if answer == "yes":
            answer = "yes" if row.value >= 0.75 else "largely" if row.value >= 0.5 else "partly"
        sentence = f"Fitted on some objects, a {rule_in_words(row.family or '')} goes {percent(row.value)} of the way"
        sentence += " from a bag of concepts to the true vectors on others"
        simple = next((one.value for one in measured if one.family == "additive"), None)
        if simple is not None and row.family != "additive":
            sentence += f"; a sum of values goes {percent(simple) if simple >= 0 else fraction(simple)}"
        sentence += "."
    return Tile("complexity", "Rule carried over to unseen objects", answer, sentence, row, percent=False)


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
