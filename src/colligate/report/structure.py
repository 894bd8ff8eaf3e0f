"""Page of many models: do those whose towers match follow a simple rule?"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from colligate.records import Row
from colligate.report.figures import Figure, scatter
from colligate.report.questions import Section, Study, call, present
from colligate.report.tables import Cell, Table, TableBuilder
from colligate.report.verdict import Verdict, rule_in_words

PAPER = "The paper reports r above .9 over some 500 models, for the global product read by the models' query vectors."
TOWERS = {
    "shared": "shared encoder", "scene": "scene encoder", "query": "query encoder", "picture": "picture tower",
    "text": "text tower",
}  # fmt: skip
"""What towers are called in sentences."""


def judge_structure(rows: Iterable[Row], name: str = "These models") -> Verdict:
    """Which rules' fit goes with matching on unseen objects, claimed only where the interval leaves no room for none.

    Example:
        >>> rows = [Row(id="structure.scene.object.correlation", family="mlp64", coverage=0.5, value=0.8, n=4)]
        >>> judge_structure(rows).sentence
        'No verdict on these models: too few of them for an interval of a correlation.'
    """
    found = list(rows)
    said = list[str]()
    for tower, words in TOWERS.items():
        of_tower = [row for row in found if row.id == f"structure.{tower}.object.correlation" and row.low is not None]
        if not of_tower:
            continue
        models = f"over {max(row.n or 0 for row in of_tower)} models"
        clear = [row for row in of_tower if (row.low or 0.0) > 0]
        if not clear:
            said.append(f"{models}, matching goes clearly with no rule of the {words}")
            continue
        beyond = {row.family: _beside(found, row, "beyond") for row in clear}
        best = max(clear, key=lambda row: (_low(beyond[row.family]), row.low or 0.0))
        further = beyond[best.family]
        part = f"matching goes with how far a {rule_in_words(best.family or '')} of the {words} carries over"
        if further is None or _low(further) > 0:
            others = {"given what is read of the true vectors": further,
                      "among seeds of one setting": _beside(found, best, "within")}  # fmt: skip
            ends = [f"{words} {_with_ends(row)}" for words, row in others.items() if row is not None]
            said.append(f"{models}, {part} ({'; '.join([f'r = {_with_ends(best)}', *ends])})")
        else:
            said.append(
                f"{models}, {part} (r = {_with_ends(best)}), but not clearly beyond what is read of the true vectors"
            )
    if not said:
        return Verdict(f"No verdict on {name.lower()}: too few of them for an interval of a correlation.", ())
    sentence = "; ".join(said)
    return Verdict(f"{sentence[0].upper()}{sentence[1:]}.", ())


def _with_ends(row: Row) -> str:
    return f"{row.value:.2f}, {row.low:.2f} to {row.high:.2f}"


def _low(row: Row | None) -> float:
    return -1.0 if row is None or row.low is None else row.low


def _beside(rows: Sequence[Row], like: Row, name: str) -> Row | None:
    """Another correlation of the same rule, if it has an interval."""
    id = like.id.replace(".correlation", f".{name}")
    found = next((r for r in rows if (r.id, r.family, r.coverage) == (id, like.family, like.coverage)), None)
    return found if found is not None and found.low is not None and found.value is not None else None


def structure_sections(study: Study) -> tuple[Section, ...]:
    """The paper's Figures 7 to 9, and its causal claim: the complexity of each tower against matching between them."""
    models: Sequence[Mapping[str, Any]] = study.figures.get("models") or []
    made = _table(study.table.rows)
    figures = present(*(_figure(models, tower, measure) for tower in TOWERS for measure in ("object", "r2")))
    return (
        Section(
            "structure", "Do models whose towers match follow a simple rule?",
            judge_structure(study.table.rows).sentence,
            (
                "Each point is a model and a rule. Across: how well its two towers match, on objects that training "
                "never showed (of a model that wasn't trained here, on all). Up: how far a rule, fitted to one tower's "
                "vectors on some objects, carries over to others; the simpler the tower, the higher.",
                "More coverage may make towers simpler and make them match, each for its own reason. Among seeds of "
                "one setting, coverage and size are the same. And a rule can't show more than the true vectors do, of "
                "which a model's own queries read the more the better its towers match: r given the ceiling is what is "
                "left without that.",
                PAPER,
            ),
            call(study, "structure", "structure."), figures, present(made), "" if made else "No model was fitted.",
        ),
    )  # fmt: skip


UP = {
    "object": ("objects recognised in the rule's predictions", "objects"),
    "r2": ("variance of other objects that the rule explains", "variance"),
}
"""Measure of a rule -> what its axis says, and what its figure is called."""


def _figure(models: Sequence[Mapping[str, Any]], tower: str, measure: str) -> Figure | None:
    series: dict[str, list[tuple[float, float, str]]] = {}
    for model in models:
        x = model["matching"].get("swaps")
        for rule in model["fits"].get(tower, {"rules": ()})["rules"]:
            if x is None or rule[measure] is None or rule[measure] != rule[measure]:
                continue
            label = f"{rule_in_words(rule['family'])}, {100 * rule['coverage']:.0f} % of objects"
            series.setdefault(label, []).append((float(x), float(rule[measure]), described(model)))
    axis, title = UP[measure]
    return scatter(
        f"structure-{tower}-{measure}", f"{title.capitalize()}: simple rules of the {TOWERS[tower]}", series,
        axes=("unseen objects recognised across towers, against the swap", axis), half=True,
        note="Less than none lies below the figure." if measure == "r2" else "",
    )  # fmt: skip


def described(model: Mapping[str, Any]) -> str:
    """What a model is, in words.

    Example:
        >>> described({"run": "train-a", "kind": "scenes", "encoder": "bag", "width": 8, "values": 5, "concepts": 2,
        ...     "towers": "shared", "coverage": 0.5, "seed": 0})
        'train-a: bag, shared towers, width 8, 5x5, coverage 0.5, seed 0'
    """
    if model.get("kind") == "given":
        return f"{model['run']} on {model.get('world')}"
    sizes = [model.get("values")] * int(model.get("concepts") or 2)
    sizes[-1] = model.get("shapes") or sizes[-1]
    what = f"{model.get('encoder')}, {model.get('towers')} towers"
    if model.get("kind") == "pictures":
        what = "pictures and captions"
    return (
        f"{model['run']}: {what}, width {model.get('width')}, {'x'.join(map(str, sizes))}, "
        f"coverage {model.get('coverage')}, seed {model.get('seed')}"
    )


TOLD = ("correlation", "within", "beyond", "correlation.table")
"""Correlations of recognised objects that the table shows."""


def _table(rows: Iterable[Row]) -> Table | None:
    found = {(row.id, row.family, row.coverage): row for row in rows}
    builder = TableBuilder(
        "structure", "Over all models: what rules reach on objects that they weren't fitted on, and the correlation of "
        "that with how well the towers match on unseen objects, against the swap (r, r among seeds of one "
        "setting, r given what is read of the true vectors) and among all.",
        (
            "tower and rule, objects fitted on", "objects", "values", "R²", "objects: r", "r among seeds",
            "r given the ceiling", "r, among all", "R²: r", "models",
        ),
    )  # fmt: skip
    keys = {(row.id.split(".")[1], row.family, row.coverage or 0.0) for row in found.values() if row.family}
    for tower, family, coverage in sorted(keys, key=lambda key: (list(TOWERS).index(key[0]), *key[1:])):

        def of(id: str, tower: str = tower, family: str = family, coverage: float = coverage) -> Row | None:
            return found.get((f"structure.{tower}.{id}", family, coverage))

        correlation = of("object.correlation")
        builder.add(
            f"{TOWERS[tower]}: {rule_in_words(family)}, {100 * coverage:.0f} %",
            *(builder.value(of(measure)) for measure in ("object", "concept", "r2")),
            *(builder.value(of(f"object.{name}")) for name in TOLD),
            builder.value(of("r2.correlation")),
            Cell(str(correlation.n)) if correlation is not None else builder.absent(None),
        )  # fmt: skip
    return builder.build()
