"""Figures as plain data: specifications for plotly.js, points for the maps, and the small axis of a tile.

Text colours, grid and background come from the page's style sheet, so a figure follows light, dark and print by itself;
marks are told apart by shape as well as by colour (Okabe and Ito's palette).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from colligate.records import Row
from colligate.report.verdict import Measured, Tile, fraction, percent

BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
    "#868E99",
)

Mark = Literal["disc", "ring", "diamond", "open-diamond", "triangle", "tick", "square", "open-square", "line", "bar"]
_SYMBOLS = {
    "disc": "circle",
    "ring": "circle-open",
    "diamond": "diamond",
    "open-diamond": "diamond-open",
    "triangle": "triangle-up-open",
    "tick": "line-ns-open",
    "square": "square",
    "open-square": "square-open",
}


@dataclass(frozen=True)
class Key:
    """One entry of a figure's legend."""

    mark: Mark
    colour: str
    label: str


@dataclass(frozen=True)
class Figure:
    """A figure and what a reader who can't see it is told.

    Attributes:
        key: its name in the page.
        title: what it shows, in a line.
        alt: the same with its numbers, for screen readers.
        note: how to read it.
        spec: `data` and `layout` for plotly.js, or `map` for points that the page draws itself.
        legend: what the marks mean.
        half: whether two of it may stand side by side.
    """

    key: str
    title: str
    alt: str
    note: str
    spec: Mapping[str, Any]
    legend: tuple[Key, ...] = ()
    half: bool = False


@dataclass(frozen=True)
class Series:
    """How one kind of point is drawn."""

    label: str
    mark: Mark
    colour: str


@dataclass(frozen=True)
class Line:
    """One line of a dot plot: a label and a row for each series."""

    label: str
    rows: Mapping[str, Row | None] = field(default_factory=dict[str, Row | None])


@dataclass(frozen=True)
class Level:
    """A line to compare curves with."""

    label: str
    mark: Mark
    colour: str
    places: Sequence[tuple[float, float]]


LEVELS = (
    Key("open-diamond", VERMILLION, "bag of concepts, ties at random"),
    Key("triangle", PURPLE, "random weights"),
    Key("tick", GREY, "chance"),
)


def plain(text: object) -> str:
    """Text that plotly shows as it stands: its small HTML dialect is escaped.

    Example:
        >>> plain("<b>red & blue</b>")
        '&lt;b&gt;red &amp; blue&lt;/b&gt;'
    """
    return escape(str(text), quote=False)


def spoken(row: Row | None, show: Any = percent) -> str:
    """A number with its interval, in words."""
    if row is None or row.value is None:
        return "not measured"
    interval = f", 95 % interval {show(row.low)} to {show(row.high)}" if None not in (row.low, row.high) else ""
    return f"{show(row.value)}{interval}"


def _hover(label: str, series: str, row: Row, show: Any) -> str:
    lines = [f"<b>{plain(label)}</b>" + (f"<br>{plain(series)}" if series else ""), spoken(row, show)]
    lines += [
        f"{name} {show(level)}"
        for name, level in (
            ("bag of concepts", row.bag_of_concepts),
            ("random weights", row.random_init),
            ("chance", row.chance),
        )
        if level is not None
    ]
    return "<br>".join([*lines, f"n = {row.n:,}" if row.n is not None else ""]).removesuffix("<br>")


def _layout(height: int, **more: Any) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 8, "r": 18, "t": 12, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 13},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "dragmode": False,
        **more,
    }


def _range(values: Sequence[float]) -> list[float]:
    low, high = min([0.0, *values]), max([1.0, *values])
    return [max(low, -1.0) - 0.03, high + 0.03]


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
                (getattr(row, name), y + step[s], _hover(line.label, series[s].label, row, show))
                for y, line in enumerate(kept)
                for s, row in line.rows.items()
                if row is not None and row.value is not None and getattr(row, name) is not None
            ]
            if found:
                used.add(mark.mark)
                data.append(_points(found, mark.mark, mark.colour, size=14 if name == "chance" else 10))
                seen += [x for x, _, _ in found]
    for name, style in series.items():
        rows = [(y, line.label, line.rows.get(name)) for y, line in enumerate(kept)]
        there = [(y, label, row) for y, label, row in rows if row is not None and row.value is not None]
        if not there:
            continue
        shown = [(row.value or 0.0, y + step[name], _hover(label, style.label, row, show)) for y, label, row in there]
        trace = _points(shown, style.mark, style.colour, size=10 if "open" not in _SYMBOLS[style.mark] else 8)
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
    layout = _layout(
        58 + 42 * len(kept) + 14 * (len(series) - 1) * len(kept),
        xaxis={
            "range": _range(seen),
            "tickformat": ".0%" if share else ".1f",
            "title": {"text": axis, "standoff": 8, "font": {"size": 12}},
            "fixedrange": True,
            "zeroline": False,
        },
        yaxis={
            "tickvals": list(range(len(kept))),
            "ticktext": [plain(line.label) + "  " for line in kept],
            "range": [len(kept) - 0.4, -0.6],
            "automargin": True,
            "fixedrange": True,
            "zeroline": False,
            "ticks": "",
        },
    )
    drawn = [
        s
        for n, s in series.items()
        if any(r is not None and r.value is not None for r in (x.rows.get(n) for x in kept))
    ]
    marks = [Key(s.mark, s.colour, s.label) for s in drawn] + [k for k in LEVELS if k.mark in used]
    return Figure(key, title, alt, note, {"data": data, "layout": layout}, tuple(marks))


def _points(found: Sequence[tuple[float, float, str]], mark: Mark, colour: str, size: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _, _ in found],
        "y": [y for _, y, _ in found],
        "hovertext": [text for _, _, text in found],
        "hoverinfo": "text",
        "marker": {
            "symbol": _SYMBOLS[mark],
            "color": colour,
            "size": size,
            "line": {"width": 2 if "open" in _SYMBOLS[mark] else 0, "color": colour},
        },
    }


def curves(
    key: str,
    title: str,
    lines: Mapping[str, Sequence[tuple[float, Row]]],
    *,
    axis: str,
    note: str = "",
    whole: bool = False,
    half: bool = False,
    hollow: Callable[[Row], bool] | None = None,
    bands: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,
    levels: Sequence[Level] = (),
    doubling: bool = False,
) -> Figure | None:
    """Curves of shares over a number (strength, layer), with their intervals as bars; None without any point.

    Args:
        key: its name in the page.
        title: what it shows.
        lines: label -> places and rows.
        axis: what the number is.
        note: how to read it.
        whole: whether the number is whole.
        half: whether two may stand side by side.
        hollow: which points may not be read as they stand, and are drawn hollow.
        bands: label -> place, low and high of a shaded band.
        levels: lines to compare with.
        doubling: whether the number's axis is logarithmic.
    """
    styles: tuple[tuple[str, Mark, str], ...] = (
        (BLUE, "disc", "solid"),
        (VERMILLION, "diamond", "dash"),
        (GREEN, "square", "dot"),
        (PURPLE, "triangle" if hollow is None else "disc", "dashdot"),
        (ORANGE, "ring" if hollow is None else "diamond", "solid"),
        (SKY, "open-square" if hollow is None else "square", "dash"),
    )
    data: list[dict[str, Any]] = []
    keys: list[Key] = []
    alts: list[str] = []
    for i, (label, points) in enumerate(lines.items()):
        there = sorted(((x, row) for x, row in points if row.value is not None), key=lambda p: p[0])
        if not there:
            continue
        colour, mark, dash = styles[i % len(styles)]
        shown = [(x, row.value or 0.0, _hover(label, f"{axis} {x:g}", row, percent)) for x, row in there]
        trace = _points(shown, mark, colour, size=8)
        trace |= {"mode": "lines+markers", "line": {"color": colour, "dash": dash, "width": 2}}
        if hollow is not None:
            trace["marker"] |= _hollowed(mark, colour, [hollow(row) for _, row in there])
        data += _band((bands or {}).get(label, ()), colour)
        if all(None not in (row.low, row.high) for _, row in there):
            trace["error_y"] = {
                "type": "data",
                "symmetric": False,
                "array": [(row.high or 0.0) - (row.value or 0.0) for _, row in there],
                "arrayminus": [(row.value or 0.0) - (row.low or 0.0) for _, row in there],
                "thickness": 1.2,
                "width": 0,
            }
        data.append(trace)
        keys.append(Key(mark, colour, label))
        alts.append(f"{label}: " + ", ".join(f"{x:g} {percent(y)}" for x, y, _ in shown) + ".")
    if not data:
        return None
    for level in levels:
        data.append(_level_line(level))
        keys.append(Key(level.mark, level.colour, level.label))
    if hollow is not None and any("open" in symbol for trace in data for symbol in _symbols_of(trace)):
        keys.append(Key("ring", GREY, "hollow: not to be read as it stands"))
    lowest = min([0.0, *(y for trace in data for y in trace["y"])])
    layout = _layout(
        300,
        margin={"l": 52, "r": 18, "t": 12, "b": 48},
        xaxis={
            "title": {"text": axis, "standoff": 8, "font": {"size": 12}},
            "fixedrange": True,
            "zeroline": False,
            **({"dtick": 1} if whole else {}),
            **({"type": "log", "dtick": 0.30103, "tickformat": "d"} if doubling else {}),
        },
        yaxis={"range": [max(lowest, -1) - 0.04, 1.04], "tickformat": ".0%", "fixedrange": True, "zeroline": False},
    )
    return Figure(key, title, f"{title}. {' '.join(alts)}", note, {"data": data, "layout": layout}, tuple(keys), half)


def scatter(
    key: str,
    title: str,
    series: Mapping[str, Sequence[tuple[float, float, str]]],
    *,
    axes: tuple[str, str],
    note: str = "",
    half: bool = False,
) -> Figure | None:
    """Points of several kinds, two shares each, with what they are on hovering; None without any point."""
    styles: tuple[tuple[str, Mark], ...] = (
        (BLUE, "disc"), (VERMILLION, "diamond"), (GREEN, "square"), (PURPLE, "triangle"), (ORANGE, "ring"),
        (SKY, "open-square"),
    )  # fmt: skip
    there = {label: points for label, points in series.items() if points}
    if not there:
        return None
    data, keys = list[dict[str, Any]](), list[Key]()
    for i, (label, points) in enumerate(there.items()):
        colour, mark = styles[i % len(styles)]
        shown = [(x, y, f"<b>{plain(label)}</b><br>{plain(text)}") for x, y, text in points]
        data.append(_points(shown, mark, colour, size=8))
        keys.append(Key(mark, colour, label))
    layout = _layout(
        340,
        margin={"l": 58, "r": 18, "t": 12, "b": 48},
        xaxis={"title": {"text": axes[0], "standoff": 8, "font": {"size": 12}}, "range": [-0.03, 1.03],
               "tickformat": ".0%", "fixedrange": True, "zeroline": False},
        yaxis={"title": {"text": axes[1], "standoff": 8, "font": {"size": 12}}, "range": [-0.03, 1.03],
               "tickformat": ".0%", "fixedrange": True, "zeroline": False},
    )  # fmt: skip
    counted = ", ".join(f"{len(points)} of {label}" for label, points in there.items())
    alt = f"{title}. Points: {counted}; across, {axes[0]}; up, {axes[1]}."
    return Figure(key, title, alt, note, {"data": data, "layout": layout}, tuple(keys), half)


def _hollowed(mark: Mark, colour: str, open_: Sequence[bool]) -> dict[str, Any]:
    """Markers of which some are hollow."""
    filled = _SYMBOLS[mark].removesuffix("-open")
    symbols = [f"{filled}-open" if one else filled for one in open_]
    return {"symbol": symbols, "line": {"width": [2 if one else 0 for one in open_], "color": colour}}


def _symbols_of(trace: Mapping[str, Any]) -> Sequence[str]:
    symbols = trace.get("marker", {}).get("symbol", ())
    return symbols if isinstance(symbols, list) else ()


def _band(places: Sequence[tuple[float, float, float]], colour: str) -> list[dict[str, Any]]:
    """A shaded band, there and back."""
    if len(places) < 2:
        return []
    return [{
        "type": "scatter", "mode": "lines", "hoverinfo": "skip", "fill": "toself", "opacity": 0.14, "fillcolor": colour,
        "line": {"width": 0, "color": colour},
        "x": [x for x, _, _ in places] + [x for x, _, _ in reversed(places)],
        "y": [low for _, low, _ in places] + [high for _, _, high in reversed(places)],
    }]  # fmt: skip


def _level_line(level: Level) -> dict[str, Any]:
    places = sorted(level.places)
    return {
        "type": "scatter", "mode": "lines+markers", "x": [x for x, _ in places], "y": [y for _, y in places],
        "hovertext": [f"{plain(level.label)} {percent(y)}" for _, y in places], "hoverinfo": "text",
        "line": {"color": level.colour, "dash": "dot", "width": 1.2},
        "marker": {"symbol": _SYMBOLS[level.mark], "color": level.colour, "size": 8, "line": {"width": 1.5}},
    }  # fmt: skip


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
    layout = _layout(
        58 + 34 * len(lines),
        barmode="stack",
        xaxis={
            "range": [0, 1.01],
            "tickformat": ".0%",
            "fixedrange": True,
            "zeroline": False,
            "title": {"text": "share of edits", "standoff": 8, "font": {"size": 12}},
        },
        yaxis={
            "tickvals": list(range(len(lines))),
            "ticktext": [plain(label) + "  " for label, _ in lines],
            "range": [len(lines) - 0.4, -0.6],
            "automargin": True,
            "fixedrange": True,
            "zeroline": False,
        },
    )
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


def points_map(
    key: str, title: str, points: Sequence[Mapping[str, Any]], note: str, pictures: Mapping[str, str]
) -> Figure | None:
    """Points in the plane or in space, coloured by a concept of the reader's choice; drawn by the page itself.

    A point has `label`, `x`, `y`, `z`, `hover`, and either `kind` (concept, object, scene, sum) or `values`.
    """
    if not points:
        return None
    kept = []
    for point in points:
        hover = str(point.get("hover", point.get("label", "")))
        picture = str(pictures.get(hover, ""))
        kept.append(
            {
                "x": float(point["x"]),
                "y": float(point["y"]),
                "z": float(point.get("z") or 0.0),
                "label": plain(point.get("label", "")),
                "hover": plain(hover),
                "raw": hover,
                "kind": point.get("kind"),
                "group": point.get("group"),
                "values": {str(k): str(v) for k, v in (point.get("values") or {}).items()},
                **({"picture": picture} if picture.startswith(("data:image/png;", "data:image/jpeg;")) else {}),
            }
        )
    concepts = list(dict.fromkeys(name for point in kept for name in point["values"]))
    kinds = [k for k in ("concept", "object", "scene", "sum") if any(p["kind"] == k for p in kept)]
    named = "; ".join(str(p.get("label", "")) for p in points[:12])
    alt = f"{title}. A map of {len(kept)} points: {named}{' and more' if len(kept) > 12 else ''}."
    spec = {"map": {"points": kept, "concepts": concepts, "kinds": kinds}}
    return Figure(key, title, alt, note, spec, half=bool(concepts))


def tile_axis(tile: Tile) -> str:
    """The small axis of a tile: the value with its interval, and its levels, as inline SVG.

    Example:
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
