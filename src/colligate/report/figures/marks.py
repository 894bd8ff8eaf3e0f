"""What figures are made of: colours, marks, keys, hover texts, and the layout that all of them share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from colligate.records import Row
from colligate.report.verdict import percent

BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
    "#868E99",
)

Stroke = Literal["tick", "cross", "plus"]
"""Marks of levels that curves are compared with: strokes, like which no point of a curve is, full or hollow."""
Mark = Literal["disc", "ring", "diamond", "open-diamond", "triangle", "square", "open-square", "line", "bar"] | Stroke
SYMBOLS = {
    "disc": "circle",
    "ring": "circle-open",
    "diamond": "diamond",
    "open-diamond": "diamond-open",
    "triangle": "triangle-up-open",
    "tick": "line-ns-open",
    "cross": "x-thin-open",
    "plus": "cross-thin-open",
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
    mark: Stroke
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


def hover_text(label: str, series: str, row: Row, show: Any) -> str:
    """What a point says of itself: its number, levels and n."""
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


def layout_of(height: int, **more: Any) -> dict[str, Any]:
    """What all figures share; the style sheet does the rest."""
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


def marked(found: Sequence[tuple[float, float, str]], mark: Mark, colour: str, size: int) -> dict[str, Any]:
    """Points of one kind as a trace."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _, _ in found],
        "y": [y for _, y, _ in found],
        "hovertext": [text for _, _, text in found],
        "hoverinfo": "text",
        "marker": {
            "symbol": SYMBOLS[mark],
            "color": colour,
            "size": size,
            "line": {"width": 2 if "open" in SYMBOLS[mark] else 0, "color": colour},
        },
    }


def axis_title(text: str) -> dict[str, Any]:
    """The title of the horizontal axis, at its right end, where no long label pushes it out of the picture."""
    return {
        "text": text, "xref": "paper", "x": 1, "xanchor": "right", "yref": "paper", "y": 0, "yanchor": "top",
        "yshift": -24, "showarrow": False, "font": {"size": 12},
    }  # fmt: skip


def in_percent(data: Sequence[dict[str, Any]], layout: dict[str, Any], *axes: Literal["x", "y"]) -> None:
    """Turn shares along these axes into percent, written as everywhere: 20 %."""
    for axis in axes:
        for trace in data:
            trace[axis] = [None if value is None else 100 * value for value in trace[axis]]
            bars = trace.get(f"error_{axis}", {})
            bars |= {end: [100 * length for length in bars[end]] for end in ("array", "arrayminus") if end in bars}
        drawn: dict[str, Any] = layout[f"{axis}axis"]
        drawn |= {"tickformat": "d", "ticksuffix": " %", "range": [100 * end for end in drawn["range"]]}
