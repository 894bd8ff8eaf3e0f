"""Shares over a number, and shares against shares."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from colligate.records import Row
from colligate.report.figures.marks import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    SYMBOLS,
    VERMILLION,
    Figure,
    Key,
    Level,
    Mark,
    axis_title,
    hover_text,
    in_percent,
    layout_of,
    marked,
    plain,
)
from colligate.report.verdict import percent


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
        hollow: which points may not be read as they stand, and are drawn hollow; no line or band runs to them.
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
        shown = [(x, row.value or 0.0, hover_text(label, f"{axis} {x:g}", row, percent)) for x, row in there]
        open_ = [hollow is not None and hollow(row) for _, row in there]
        trace, line = marked(shown, mark, colour, size=8), {"color": colour, "dash": dash, "width": 2}
        if hollow is not None:
            trace["marker"] |= _hollowed(mark, colour, open_)
        for run in _solid(shown, open_):
            places = {x for x, _, _ in run}
            data += _band([place for place in (bands or {}).get(label, ()) if place[0] in places], colour)
            if any(open_) and len(run) > 1:
                data.append(_line(run, line))
        if not any(open_):
            trace |= {"mode": "lines+markers", "line": line}
        trace |= _whiskers([row for _, row in there])
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
    layout = layout_of(
        300,
        margin={"l": 56, "r": 18, "t": 12, "b": 48},
        annotations=[axis_title(axis)],
        xaxis={
            "fixedrange": True,
            "zeroline": False,
            **({} if doubling else _around({x for trace in data for x in trace["x"]})),
            **({"dtick": 1} if whole else {}),
            **({"type": "log", "dtick": 0.30103, "tickformat": "d"} if doubling else {}),
        },
        yaxis={"range": [max(lowest, -1) - 0.04, 1.04], "fixedrange": True, "zeroline": False},
    )
    in_percent(data, layout, "y")
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
        data.append(marked(shown, mark, colour, size=8))
        keys.append(Key(mark, colour, label))
    layout = layout_of(
        340,
        margin={"l": 66, "r": 18, "t": 12, "b": 48},
        annotations=[axis_title(axes[0])],
        xaxis={"range": [-0.03, 1.03], "fixedrange": True, "zeroline": False},
        yaxis={"title": {"text": axes[1], "standoff": 8, "font": {"size": 12}}, "range": [-0.03, 1.03],
               "fixedrange": True, "zeroline": False},
    )  # fmt: skip
    in_percent(data, layout, "x", "y")
    counted = ", ".join(f"{len(points)} of {label}" for label, points in there.items())
    alt = f"{title}. Points: {counted}; across, {axes[0]}; up, {axes[1]}."
    return Figure(key, title, alt, note, {"data": data, "layout": layout}, tuple(keys), half)


def _hollowed(mark: Mark, colour: str, open_: Sequence[bool]) -> dict[str, Any]:
    """Markers of which some are hollow."""
    filled = SYMBOLS[mark].removesuffix("-open")
    symbols = [f"{filled}-open" if one else filled for one in open_]
    return {"symbol": symbols, "line": {"width": [2 if one else 0 for one in open_], "color": colour}}


def _solid(points: Sequence[tuple[float, float, str]], open_: Sequence[bool]) -> list[list[tuple[float, float, str]]]:
    """The stretches of points between hollow ones."""
    together = groupby(zip(points, open_, strict=True), key=lambda pair: pair[1])
    return [[point for point, _ in run] for hollow, run in together if not hollow]


def _line(run: Sequence[tuple[float, float, str]], line: Mapping[str, Any]) -> dict[str, Any]:
    """A line alone; its points are drawn over it."""
    return {
        "type": "scatter", "mode": "lines", "hoverinfo": "skip", "line": line,
        "x": [x for x, _, _ in run], "y": [y for _, y, _ in run],
    }  # fmt: skip


def _whiskers(rows: Sequence[Row]) -> dict[str, Any]:
    """Intervals as bars, where all rows have one."""
    if any(None in (row.low, row.high) for row in rows):
        return {}
    high = [(row.high or 0.0) - (row.value or 0.0) for row in rows]
    low = [(row.value or 0.0) - (row.low or 0.0) for row in rows]
    return {"error_y": {"type": "data", "symmetric": False, "array": high, "arrayminus": low, "thickness": 1.2,
                        "width": 0}}  # fmt: skip


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
        "marker": {"symbol": SYMBOLS[level.mark], "color": level.colour, "size": 8, "line": {"width": 1.5}},
    }  # fmt: skip


def _around(places: set[float]) -> dict[str, Any]:
    """Where all points stand at one place, an axis around it: the whole of a share, one more and less of a number."""
    if len(places) != 1:
        return {}
    (only,) = places
    return {"range": [0, 1] if 0 <= only <= 1 else [only - 1, only + 1]}
