"""Numbers with their intervals and levels on one axis, and the small axis of a tile."""

from collections.abc import Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import Any

from colligate.report.figures.marks import (
    LEVELS,
    SYMBOLS,
    Figure,
    Key,
    Line,
    Series,
    axis_title,
    hover_text,
    in_percent,
    layout_of,
    marked,
    plain,
    spoken,
)
from colligate.report.verdict import Tile, fraction, percent


def _range(values: Sequence[float]) -> list[float]:
    low, high = min([0.0, *values]), max([1.0, *values])
    return [max(low, -1.0) - 0.03, high + 0.03]


WIDEST = 30
"""Letters of a label in one line: on a small screen, longer ones would leave the marks no room."""


def dots(
    key: str,
    title: str,
    lines: Sequence[Line],
    series: Mapping[str, Series],
    *,
    note: str = "",
    axis: str = "",
    share: bool = True,
    levels: bool = True,
) -> Figure | None:
    """Values with their intervals on one axis, a line each, with the levels beside them; None without any value."""
    show = percent if share else fraction
    kept = [line for line in lines if any(r is not None and r.value is not None for r in line.rows.values())]
    if not kept:
        return None
    step = {name: (i - (len(series) - 1) / 2) * 0.18 for i, name in enumerate(series)}
    data: list[dict[str, Any]] = []
    seen: list[float] = []
    used: set[str] = set()
    if levels:
        for name, mark in (("chance", LEVELS[2]), ("random_init", LEVELS[1]), ("bag_of_concepts", LEVELS[0])):
            found = [
                (getattr(row, name), y + step[s], hover_text(line.label, series[s].label, row, show))
                for y, line in enumerate(kept)
                for s, row in line.rows.items()
                if row is not None and row.value is not None and getattr(row, name) is not None
            ]
            if found:
                used.add(mark.mark)
                data.append(marked(found, mark.mark, mark.colour, size=14 if name == "chance" else 10))
                seen += [x for x, _, _ in found]
    for name, style in series.items():
        rows = [(y, line.label, line.rows.get(name)) for y, line in enumerate(kept)]
        there = [(y, label, row) for y, label, row in rows if row is not None and row.value is not None]
        if not there:
            continue
        shown = [
            (row.value or 0.0, y + step[name], hover_text(label, style.label, row, show)) for y, label, row in there
        ]
        trace = marked(shown, style.mark, style.colour, size=10 if "open" not in SYMBOLS[style.mark] else 8)
        ends = [(row.value or 0.0, row.low, row.high) for _, _, row in there]
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [high - value if high is not None else 0 for value, _, high in ends],
            "arrayminus": [value - low if low is not None else 0 for value, low, _ in ends],
            "color": style.colour,
            "thickness": 2.2,
            "width": 4,
        }
        data.append(trace)
        seen += [x for x, _, _ in shown] + [e for _, low, high in ends for e in (low, high) if e is not None]
    alt = f"{title}. " + " ".join(
        f"{line.label}: "
        + ", ".join(f"{series[s].label} {spoken(row, show)}".strip() for s, row in line.rows.items())
        + "."
        for line in kept
    )
    labels = [wrap(line.label, WIDEST) for line in kept]
    tall = max(42, 8 + 17 * max(map(len, labels)))
    layout = layout_of(
        58 + tall * len(kept) + 14 * (len(series) - 1) * len(kept),
        annotations=[axis_title(axis)] if axis else [],
        xaxis={
            "range": _range(seen),
            "tickformat": ".1f",
            "fixedrange": True,
            "zeroline": False,
        },
        yaxis={
            "tickvals": list(range(len(kept))),
            "ticktext": ["<br>".join(plain(part) + "  " for part in parts) for parts in labels],
            "range": [len(kept) - 0.4, -0.6],
            "automargin": True,
            "fixedrange": True,
            "zeroline": False,
            "ticks": "",
        },
    )
    if share:
        in_percent(data, layout, "x")
    drawn = [
        s
        for n, s in series.items()
        if any(r is not None and r.value is not None for r in (x.rows.get(n) for x in kept))
    ]
    marks = [Key(s.mark, s.colour, s.label) for s in drawn] + [k for k in LEVELS if k.mark in used]
    return Figure(key, title, alt, note, {"data": data, "layout": layout}, tuple(marks))


def tile_axis(tile: Tile) -> str:
    """The small axis of a tile: the value with its interval, and its levels, as inline SVG.

    Example:
        >>> from colligate.records import Row
        >>> row = Row(id="probe.object", value=0.9, low=0.8, high=0.95, bag_of_concepts=0.25)
        >>> tile_axis(Tile("probes", "Objects", "yes", "", row))[:44]
        '<svg class="axis" viewBox="0 0 200 30" prese'
    """
    row = tile.row
    show = percent if tile.percent else fraction
    if row is None or row.value is None:
        return ""
    ends = [
        v for v in (row.value, row.low, row.high, row.bag_of_concepts, row.random_init, row.chance) if v is not None
    ]
    low = min([0.0, *ends])

    def place(value: float) -> float:
        return 8 + 184 * (value - low) / (max(1.0, *ends) - low)

    parts = [f'<path class="axis-line" d="M8 15H192M{place(0.0):.1f} 11v8M{place(1.0):.1f} 11v8"/>']
    if row.chance is not None:
        parts.append(f'<path class="m-chance" d="M{place(row.chance):.1f} 7v16"/>')
    if row.random_init is not None:
        x = place(row.random_init)
        parts.append(f'<path class="m-random" d="M{x:.1f} 9.5l5.5 10h-11z"/>')
    if row.bag_of_concepts is not None:
        x = place(row.bag_of_concepts)
        parts.append(f'<path class="m-bag" d="M{x:.1f} 8.5l6.5 6.5-6.5 6.5-6.5-6.5z"/>')
    if row.low is not None and row.high is not None:
        parts.append(f'<path class="m-interval" d="M{place(row.low):.1f} 15H{place(row.high):.1f}"/>')
    parts.append(f'<circle class="m-model" cx="{place(row.value):.1f}" cy="15" r="4.8"/>')
    levels = [
        f"{name} {show(level)}"
        for name, level in (
            ("ideal bag of concepts", row.bag_of_concepts),
            ("random weights", row.random_init),
            ("chance", row.chance),
        )
        if level is not None
    ]
    alt = escape(f"{tile.title}: {'; '.join([spoken(row, show), *levels])}.")
    box = 'viewBox="0 0 200 30" preserveAspectRatio="xMinYMid"'
    return f'<svg class="axis" {box} role="img" aria-label="{alt}">{"".join(parts)}</svg>'
