"""Where edits land, as stacked shares."""

from collections.abc import Mapping

from colligate.report.figures.marks import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILLION,
    Figure,
    Key,
    axis_title,
    in_percent,
    layout_of,
    plain,
)
from colligate.report.verdict import Measured, percent

OUTCOMES: tuple[tuple[str, str, str], ...] = (
    ("hit", "the intended scene", BLUE),
    ("base", "the scene it started from", GREY),
    ("twin", "the same objects in the other order", GREEN),
    ("other_object", "the object left alone has changed", ORANGE),
    ("both_objects", "both objects are wrong", VERMILLION),
    ("elsewhere", "anything else", PURPLE),
)
"""Where an edited vector can land: id, words, colour."""


def outcomes(table: Measured, labels: Mapping[str, str]) -> Figure | None:
    """Where edits land, as stacked shares, for pairs that share a value and pairs that don't."""
    lines: list[tuple[str, dict[str, float]]] = []
    for name, label in labels.items():
        for pairs in ("different", "shared"):
            hit = table.find(f"edit.retrieval.{name}.{pairs}", "all", "test")
            misses = {
                o: table.find(f"interference.miss.{name}.{o}.{pairs}", "all", "test")
                for o, _, _ in OUTCOMES
                if o != "hit"
            }
            found = {o: row.value for o, row in misses.items() if row is not None and row.value is not None}
            if hit is not None and hit.value is not None and found:
                lines.append((f"{label}, {pairs}", {"hit": hit.value, **found}))
    if not lines:
        return None
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [shares.get(outcome, 0.0) for _, shares in lines],
            "y": list(range(len(lines))),
            "hovertext": [f"<b>{plain(label)}</b><br>{words}: {percent(s.get(outcome, 0.0))}" for label, s in lines],
            "hoverinfo": "text",
            "marker": {"color": colour},
            "width": 0.62,
        }
        for outcome, words, colour in OUTCOMES
        if any(shares.get(outcome, 0.0) > 0 for _, shares in lines)
    ]
    layout = layout_of(
        58 + 34 * len(lines),
        barmode="stack",
        annotations=[axis_title("share of edits")],
        xaxis={"range": [0, 1.01], "fixedrange": True, "zeroline": False},
        yaxis={
            "tickvals": list(range(len(lines))),
            "ticktext": [plain(label) + "  " for label, _ in lines],
            "range": [len(lines) - 0.4, -0.6],
            "automargin": True,
            "fixedrange": True,
            "zeroline": False,
        },
    )
    in_percent(data, layout, "x")
    words = {outcome: text for outcome, text, _ in OUTCOMES}
    alt = "Where edits land. " + " ".join(
        f"{label}: " + ", ".join(f"{words[o]} {percent(share)}" for o, share in shares.items()) + "."
        for label, shares in lines
    )
    note = "Pairs whose two objects share a value (shared) against pairs that share none (different)."
    keys = tuple(
        Key("bar", colour, text) for o, text, colour in OUTCOMES if any(shares.get(o, 0.0) > 0 for _, shares in lines)
    )
    return Figure("outcomes", "Where edits land", alt, note, {"data": data, "layout": layout}, keys)
