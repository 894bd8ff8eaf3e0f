"""Figures hold the numbers of their rows, and text from users stays text."""

import json

import pytest

from colligate.records import Row
from colligate.report.figures import Line, Series, curves, dots, outcomes, plain, points_map, tile_axis
from colligate.report.verdict import Measured, judge

ONE = {"": Series("this model", "disc", "#0072B2")}


def test_dots_draw_values_intervals_and_levels():
    row = Row(id="probe.object", value=0.9, low=0.8, high=0.95, bag_of_concepts=0.25, chance=0.01, n=50)
    figure = dots("k", "Title", [Line("objects", {"": row})], ONE)
    assert figure is not None
    chance, bag, model = figure.spec["data"]
    assert (chance["x"], bag["x"], model["x"]) == ([1], [25], [90])
    assert model["error_x"]["array"] == pytest.approx([5])
    assert model["error_x"]["arrayminus"] == pytest.approx([10])
    assert figure.alt == "Title. objects: this model 90 %, 95 % interval 80 % to 95 %."
    assert [key.label for key in figure.legend] == ["this model", "bag of concepts, ties at random", "chance"]


def test_values_below_zero_stay_in_view():
    figure = dots("k", "R2", [Line("a", {"": Row(id="r2", value=-0.4)})], ONE, share=False)
    assert figure is not None
    assert figure.spec["layout"]["xaxis"]["range"][0] < -0.4


def test_no_value_means_no_figure():
    assert dots("k", "t", [Line("a", {"": None}), Line("b", {"": Row(id="x", reason="none")})], ONE) is None
    assert curves("k", "t", {"a": [(1.0, Row(id="x"))]}, axis="layer") is None
    assert outcomes(Measured([]), {"avg": "average"}) is None
    assert points_map("k", "t", [], "", {}) is None


def test_curves_are_drawn_in_order():
    figure = curves("k", "t", {"a": [(2.0, Row(id="x", value=0.2)), (0.5, Row(id="x", value=0.1))]}, axis="strength")
    assert figure is not None
    assert figure.spec["data"][0]["x"] == [0.5, 2.0]
    assert figure.spec["data"][0]["y"] == [10, 20]
    axis = figure.spec["layout"]["yaxis"]
    assert axis["ticksuffix"] == " %"
    assert axis["range"] == pytest.approx([-4, 104])


@pytest.mark.parametrize(("place", "shown"), [(0.5, [0, 1]), (6.0, [5, 7])])
def test_a_single_place_has_an_axis_around_it(place: float, shown: list[float]):
    figure = curves("k", "t", {"a": [(place, Row(id="x", value=0.2))]}, axis="coverage")
    assert figure is not None
    assert figure.spec["layout"]["xaxis"]["range"] == shown


def test_outcomes_add_up_to_all_edits(studies):
    figure = outcomes(Measured(studies["whole"]), {"avg": "average"})
    assert figure is not None
    totals = [sum(shares) for shares in zip(*(trace["x"] for trace in figure.spec["data"]), strict=True)]
    assert totals == pytest.approx([100, 100])


def test_markup_in_labels_and_hover_is_escaped():
    hostile = "<a href='javascript:alert(1)'>x</a><b>"
    points = [{"label": hostile, "x": 0, "y": 1, "z": 2, "hover": hostile, "values": {hostile: hostile}}]
    figure = points_map("k", "t", points, "", {})
    assert figure is not None
    point = figure.spec["map"]["points"][0]
    assert point["label"] == point["hover"] == plain(hostile)
    assert "<" not in plain(hostile)
    drawn = dots("k", "t", [Line(hostile, {"": Row(id="x", value=0.5)})], ONE)
    assert drawn is not None
    assert "<a" not in json.dumps(drawn.spec)


def test_only_picture_data_is_taken_for_pictures():
    points = [{"label": "a", "x": 0, "y": 0, "hover": "a"}, {"label": "b", "x": 0, "y": 0, "hover": "b"}]
    pictures = {"a": "data:image/png;base64,AA==", "b": "https://example.org/x.png"}
    figure = points_map("k", "t", points, "", pictures)
    assert figure is not None
    assert ["picture" in point for point in figure.spec["map"]["points"]] == [True, False]


def test_every_specification_is_valid_plotly(studies, figures):
    from plotly.graph_objects import Figure as PlotlyFigure

    from colligate.report.questions import Study
    from colligate.report.sections import sections

    study = Study(Measured(studies["whole"]), ("color", "shape"), "text", "text8x8", figures, {})
    drawn = [figure for section in sections(study) for figure in section.figures]
    specs = [figure.spec for figure in drawn if "map" not in figure.spec]
    assert len(specs) >= 8
    for spec in specs:
        PlotlyFigure(data=spec["data"], layout=spec["layout"])
    assert len({figure.key for figure in drawn}) == len(drawn)


def test_a_tile_axis_tells_its_numbers_to_those_who_cant_see_it(studies):
    svg = tile_axis(judge(studies["whole"]).tiles[1])
    assert 'role="img"' in svg
    assert "Objects recognised: 97 %, 95 % interval 96 % to 98 %; ideal bag of concepts 47 %" in svg
    assert tile_axis(judge([]).tiles[1]) == ""
