"""What a call gives: the finding, the table, the figures, and ways to keep, show and compare them."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colligate.records import COLUMNS, NUMBERS, Row, write_record
from colligate.report.figures import BLUE, GREY, PURPLE, VERMILLION, tile_axis
from colligate.report.kinds import leading, verdict_of
from colligate.report.page import Run, check_target, render_page, shown
from colligate.report.plain import ends, main_rows, number, remarks, row_text, unmeasured
from colligate.report.tables import floored
from colligate.report.verdict import Tile
from colligate.runs import Findings
from colligate.verbs.compare import Comparison as Compared
from colligate.verbs.compare import compare_two

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from colligate.embedders.towers import Model

UNITS = {
    "value": "the measurement's own: a share of 0 to 1 unless `id` ends in .bits or .bits_saved (bits)",
    "low": "as value: lower end of the 95 % interval",
    "high": "as value: upper end of the 95 % interval",
    "n": "scenes, edits or pairs scored",
    "objects": "objects that occur in what was scored",
    "coverage": "fit objects / all objects",
}
"""Column of a frame -> its unit."""


STYLE = (
    ".colligate .axis{width:100%;height:30px;display:block;overflow:visible}"
    f".colligate .axis-line{{stroke:{GREY};fill:none;opacity:.65}}"
    f".colligate .m-chance{{stroke:{GREY};stroke-width:2}}"
    f".colligate .m-random{{stroke:{PURPLE};stroke-width:1.8;fill:none}}"
    f".colligate .m-bag{{stroke:{VERMILLION};stroke-width:1.8;fill:none}}"
    f".colligate .m-interval{{stroke:{BLUE};stroke-width:5;opacity:.38;stroke-linecap:round}}"
    f".colligate .m-model{{fill:{BLUE}}}"
)
"""How a notebook draws the small axes: the page's colours."""


class Result:
    """What was found, with all that it takes to read it.

    In a notebook it shows the finding, the main table and a small figure; in a console the same as text.

    Attributes:
        findings: rows, figures' points, arrays and record.

    Example:
        >>> import colligate
        >>> result = colligate.probe("oracle:object-product", "clevr")
        >>> round(result["probe.object"].value, 2), len(result.to_frame()) == len(result.rows)
        (1.0, True)
    """

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    @property
    def rows(self) -> list[Row]:
        """The table: one row a measurement."""
        return self.findings.rows

    @property
    def record(self) -> Mapping[str, Any]:
        """Settings, inputs by content, versions, seconds and notes."""
        return self.findings.record

    @property
    def notes(self) -> list[str]:
        """What a reader should know, a sentence each."""
        return [str(note) for note in self.record.get("notes", [])]

    @property
    def folder(self) -> Path | None:
        """Where the run is kept; None where it is in memory only."""
        return self.findings.folder

    @property
    def name(self) -> str:
        """Of the model, or of what else was measured."""
        return str(self.record.get("name") or "This model")

    @property
    def verdict(self) -> str:
        """The finding in words: claims only what an interval clears; "" where nothing was measured for one."""
        return verdict_of(self.record, self.rows)

    @cached_property
    def model(self) -> "Model":
        """The model that a training or a repair made, to be studied like any other.

        Raises:
            ValueError: this run made none.
        """
        if self.findings.model is not None:
            return self.findings.model
        prefix = {"train": "run", "repair": "repaired"}.get(str(self.record.get("kind")))
        if prefix is None or self.folder is None:
            raise ValueError(f"A run of kind {self.record.get('kind')} makes no model; only train and repair do.")
        from colligate.embedders import load_model

        return load_model(f"{prefix}:{self.folder}")

    def __getitem__(self, id: str) -> Row:
        """The row of a measurement: on held-out scenes where there are several.

        Raises:
            KeyError: nothing has that id; the message names the nearest.
        """
        of_id = [row for row in self.rows if row.id == id]
        if not of_id:
            from difflib import get_close_matches

            near = get_close_matches(id, {row.id for row in self.rows}, n=3, cutoff=0.4)
            raise KeyError(f"no row {id!r}; {'nearest: ' + ', '.join(near) if near else 'see .to_frame()'}")
        return next((row for row in of_id if row.on == "test"), of_id[0])

    def to_frame(self) -> "pd.DataFrame":
        """The table as a pandas DataFrame, tidy: one row a measurement, its units in `attrs["units"]`."""
        import pandas as pd

        frame = pd.DataFrame([asdict(row) for row in self.rows], columns=list(COLUMNS))
        counts = {"objects": "Int64", "seeds": "Int64", "n": "Int64"}
        frame = frame.astype({name: counts.get(name, "float64") for name in NUMBERS})
        frame.attrs = {"units": UNITS, "name": self.name, "kind": str(self.record.get("kind"))}
        return frame

    @cached_property
    def _specs(self) -> dict[str, Any]:
        sections = shown(Run(self.record, self.rows, self.findings.figures), self.name)[2]
        return {figure.key: figure for section in sections for figure in section.figures}

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures that `figure` gives."""
        return tuple(self._specs)

    def figure(self, name: str) -> "go.Figure":
        """A figure of the page, as a plotly figure.

        Raises:
            ValueError: there is no figure of that name; the message lists those that there are.
        """
        import plotly.graph_objects as go

        if name not in self._specs:
            known = ", ".join(self.figures) or "none"
            raise ValueError(f"This result has no figure {name!r}; it has {known}.")
        figure = self._specs[name]
        spec = figure.spec
        drawn = go.Figure(_points(spec["map"])) if "map" in spec else go.Figure(dict(spec), skip_invalid=True)
        return drawn.update_layout(title=figure.title, template="plotly_white")

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the page: one HTML file that works offline.

        Raises:
            ValueError: the path is a folder.
        """
        from colligate.records import write_atomic

        target = Path(path)
        check_target(target)
        page = render_page(dict(self.record), self.rows, dict(self.findings.figures))
        write_atomic(target, page.encode())
        return target

    def save(self, runs: str | Path = "runs") -> "Result":
        """Keep the run in a folder of runs, as the command line does, and give it with its folder.

        Raises:
            OSError: the folder can't be written.
        """
        run, where = self.findings, Path(runs)
        folder = where / str(run.record["run"])
        record = {**run.record, "config": {**run.record["config"], "runs": str(where)}}
        beside = [] if run.write is None else list(run.write(folder))
        write_record(folder, record, run.rows, run.figures, run.arrays, beside=beside)
        return Result(Findings.open(folder))

    def compare(self, other: "Result", *, every: bool = False) -> "Comparison":
        """How another result of the same kind differs from this one, number by number, with intervals.

        Args:
            other: of another model, or of the same one elsewhere.
            every: compare every number, not only the leading ones.

        Raises:
            ValueError: the two have no number in common.
        """
        return Comparison(compare_two(self.findings, other.findings, every=every))

    @cached_property
    def leading(self) -> list[Row]:
        """The rows that come first: those that are shown."""
        return main_rows(leading(self.record, self.rows))

    def __str__(self) -> str:
        """The finding, the main rows and the notes, as text."""
        said = [self.verdict, "", row_text(self.leading, self.rows), ""]
        said += [*unmeasured(self.leading), *remarks(self.leading, self.rows)]
        if len(self.leading) < len(self.rows):
            said.append(f"{len(self.leading)} of {len(self.rows)} rows are shown; to_frame() has all.")
        said += [f"Note: {note}" for note in self.notes]
        return "\n".join(said).strip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tiles = shown(Run(self.record, self.rows, self.findings.figures), self.name)[1].tiles
        drawn = {(tile.row.id, tile.row.on, tile.row.family): tile for tile in tiles if tile.row is not None}
        cells = [_cells(floored(row), drawn.get((row.id, row.on, row.family))) for row in self.leading]
        heads = "".join(f"<th>{head}</th>" for head in ("", "value", "95 %", "n", "bag of concepts", "random", ""))
        key = "● the value and its 95 % interval, ◇ bag of concepts, △ random weights, | chance" if drawn else ""
        rest = f"{len(self.leading)} of {len(self.rows)} rows; <code>.to_frame()</code> has all, "
        rest += f"<code>.figure(name)</code> draws {escape(', '.join(self.figures)) or 'none'}."
        return (
            f"<style>{STYLE}</style><div class='colligate'><p style='max-width:60em'>{escape(self.verdict)}</p>"
            f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(cells)}</tbody></table><p>{key}</p><p>{rest}</p></div>"
        )


class Comparison:
    """How one result differs from another.

    Attributes:
        compared: names, differences, notes and the finding.
    """

    def __init__(self, compared: Compared) -> None:
        self.compared = compared

    @property
    def verdict(self) -> str:
        """The finding on objects, in words: only what its interval allows."""
        return self.compared.sentence

    @property
    def notes(self) -> list[str]:
        """What a reader should know, such as other scenes."""
        return list(self.compared.notes)

    def to_frame(self) -> "pd.DataFrame":
        """One row a number: both values, the difference, its interval, and how that was had."""
        import pandas as pd

        columns = ("id", "on", "concept", "family", "coverage")
        return pd.DataFrame([
            {**{name: getattr(one.row, name) for name in columns}, "first": one.row.value, "other": one.other.value,
             "difference": one.value, "low": one.low, "high": one.high, "interval": one.how, "says": one.said}
            for one in self.compared.differences
        ])  # fmt: skip

    def __str__(self) -> str:
        """The finding and the table, as text."""
        shown = self.to_frame()[["id", "on", "family", "first", "other", "difference", "low", "high", "says"]]
        shown = shown.dropna(axis="columns", how="all").round(3)
        table = shown.astype(object).where(shown.notna(), "").to_string(index=False)
        names = f"first: {self.compared.first}    other: {self.compared.other}"
        return "\n".join([self.verdict, "", names, "", table, *(f"Note: {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        shown = self.to_frame().dropna(axis="columns", how="all").round(3)
        table = shown.astype(object).where(shown.notna(), "").to_html(index=False, escape=True)
        return f"<p>{escape(self.verdict)}</p>{table}"


def _cells(row: Row, tile: Tile | None) -> str:
    """A row of the table of a notebook; with the small axis of its tile where it has one."""
    name = row.id if row.family is None else f"{row.id} ({row.family})"
    interval = "" if row.low is None or row.high is None else ends(row.low, row.high)
    value = "none" if row.value is None else number(row.value)
    texts = (value, interval, "" if row.n is None else f"{row.n:,}", number(row.bag_of_concepts))
    title = f"<code>{escape(name)}</code>" if tile is None else f"{escape(tile.title)}<br><code>{escape(name)}</code>"
    cells = "".join(f"<td>{escape(text)}</td>" for text in (*texts, number(row.random_init)))
    axis = "" if tile is None else f"<div style='width:16em'>{tile_axis(tile)}</div>"
    return f"<tr><td style='text-align:left'>{title}</td>{cells}<td>{axis}</td></tr>"


def _points(points: Any) -> list[Any]:
    """The points of a map by kind, as traces."""
    import plotly.graph_objects as go

    flat = points["points"] if isinstance(points, Mapping) else points
    kinds = dict.fromkeys(str(point.get("kind", "")) for point in flat)
    traces = list[Any]()
    for kind in kinds:
        of_kind = [point for point in flat if str(point.get("kind", "")) == kind]
        traces.append(go.Scatter(
            x=[point["x"] for point in of_kind], y=[point["y"] for point in of_kind], name=kind, mode="markers",
            hovertext=[str(point.get("hover", "")) for point in of_kind], hoverinfo="text",
        ))  # fmt: skip
    return traces
