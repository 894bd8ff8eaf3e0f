"""Page of many trained models: is a simple rule what the binding ones have in common?"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from colligate.records import Row
from colligate.report.figures import Figure, scatter
from colligate.report.questions import Section, Study, call, present
from colligate.report.tables import Cell, Table, TableBuilder
from colligate.report.verdict import Verdict, rule_in_words

PAPER = "The paper reports r above .9 over some 500 models, for the global product read by the models' query vectors."


def judge_structure(rows: Iterable[Row], name: str = "These models") -> Verdict:
    """Which rules' fit goes with binding unseen objects, claimed only where the interval leaves no room for none.

    Example:
        >>> rows = [Row(id="structure.correlation", family="global_product", coverage=0.5, value=0.8, n=4)]
        >>> judge_structure(rows).sentence
        'No verdict on these models: too few of them for an interval of a correlation.'
    """
    found = [row for row in rows if row.id == "structure.correlation"]
    clear = [row for row in found if row.value is not None and row.low is not None and row.low > 0]
    models = max((row.n or 0 for row in found), default=0)
    if clear:
        said = "; ".join(
            f"{rule_in_words(r.family or '')} (r = {r.value:.2f}, {r.low:.2f} to {r.high:.2f})" for r in clear
        )
        return Verdict(
            f"Over {models} models, binding unseen objects goes with how well a rule carries over: {said}.", ()
        )
    if any(row.low is not None for row in found):
        return Verdict(f"Over {models} models, no rule's fit goes clearly with binding unseen objects.", ())
    return Verdict(f"No verdict on {name.lower()}: too few of them for an interval of a correlation.", ())


def structure_sections(study: Study) -> tuple[Section, ...]:
    """The paper's Figures 7 to 9."""
    models: Sequence[Mapping[str, Any]] = study.figures.get("models") or []
    made = _table(study.table.rows)
    figures = present(
        _figure(models, "recognition.object.unseen.swaps", "against the swap, all four objects unseen"),
        _figure(models, "recognition.object.unseen.table", "among all objects (the paper's way)"),
    )
    return (
        Section(
            "structure", "Do models that bind follow a simple rule?", judge_structure(study.table.rows).sentence,
            (
                "Each point is a trained model. Across: how well it recognizes objects that training never showed, a "
                "match between its two encoders. Up: how well a rule, fitted to its scene vectors on some objects, "
                "predicts scenes of others.",
                PAPER,
            ),
            call(study, "structure", "structure."), figures, present(made), "" if made else "No model was fitted.",
        ),
    )  # fmt: skip


def _figure(models: Sequence[Mapping[str, Any]], against: str, words: str) -> Figure | None:
    series: dict[str, list[tuple[float, float, str]]] = {}
    for model in models:
        x = model["recognition"].get(against)
        for rule in model["rules"]:
            if x is None or rule["object"] != rule["object"]:
                continue
            label = f"{rule_in_words(rule['family'])}, {rule['coverage']:.0%} of objects"
            text = f"{model['encoder']}, width {model['width']}, coverage {model['coverage']}, seed {model['seed']}"
            series.setdefault(label, []).append((float(x), float(rule["object"]), f"{model['run']}: {text}"))
    return scatter(
        f"structure-{against.rpartition('.')[2]}", f"Unseen objects {words}", series,
        axes=("unseen objects recognized by the model", "objects recognized in the rule's predictions"), half=True,
    )  # fmt: skip


def _table(rows: Iterable[Row]) -> Table | None:
    found = {(row.id, row.family, row.coverage): row for row in rows}
    builder = TableBuilder(
        "structure", "Over all models: what rules reach on objects that they weren't fitted on, and the correlation of "
        "that with the models' own recognition of unseen objects.",
        (
            "rule, objects fitted on", "objects", "values", "R²", "r, against the swap", "Spearman", "r, among all",
            "models",
        ),
    )  # fmt: skip
    for family, coverage in sorted({(r.family or "", r.coverage or 0.0) for r in found.values()}):

        def of(id: str, family: str = family, coverage: float = coverage) -> Row | None:
            return found.get((id, family, coverage))

        correlation = of("structure.correlation")
        builder.add(
            f"{rule_in_words(family)}, {coverage:.0%}", builder.value(of("structure.object")),
            builder.value(of("structure.concept")), builder.value(of("structure.r2")), builder.value(correlation),
            builder.value(of("structure.rank")), builder.value(of("structure.correlation.unseen.table")),
            Cell(str(correlation.n)) if correlation is not None else builder.absent(None),
        )  # fmt: skip
    return builder.build()
