"""The question of complexity on the page: curves by coverage and width, hollow points, and a sentence."""

import json
from dataclasses import replace
from typing import Any

import pytest

from colligate.records import Row
from colligate.report.complexity import complexity_section
from colligate.report.page import render_page
from colligate.report.questions import Study
from colligate.report.verdict import Measured, judge, rule_in_words

FAMILIES = {"additive": 0.4, "object_product": 0.45, "mlp64": 0.7, "mlp1024": 0.9}
COVERAGES = (0.2, 0.4, 0.6, 0.8)


def rows() -> list[Row]:
    """Every family recognises more with coverage; object products are unsound below 0.6."""
    found = list[Row]()
    for family, height in FAMILIES.items():
        for c in COVERAGES:
            value = height * c
            same: dict[str, Any] = {"on": "test", "family": family, "coverage": c}
            levels: dict[str, Any] = {"chance": 0.01, "bag_of_concepts": 0.25}
            found += [
                Row(id="complexity.object", value=value, low=value - 0.02, high=value + 0.02, n=400, objects=40,
                    **levels, **same),
                Row(id="complexity.object.spread", value=0.01, **same),
                Row(id="complexity.concept", value=0.9, chance=0.1, **same),
                Row(id="complexity.r2", value=value, **same),
                Row(id="complexity.train_r2", value=0.82, **same,
                    reason="validation took no hidden layer in 2 of 4 splits; no level" if family == "mlp64" else None),
                Row(id="complexity.reached_r2", value=0.95, **same),
                Row(id="complexity.sound", value=0.2 if family == "object_product" and c < 0.6 else 1.0, **same),
            ]  # fmt: skip
        found += [
            Row(id="rescaled.complexity.object", on="test", family=family, coverage=c, value=height - 0.1)
            for c in COVERAGES
            if family != "object_product" or c >= 0.6
        ]
        found.append(Row(id="complexity.area", on="test", family=family, value=height - 0.1, low=height - 0.2,
                         high=height, objects=40, bag_of_concepts=0.0))  # fmt: skip
        found.append(Row(id="complexity.bits_saved", on="test", family=family, value=100 * height, low=1.0, high=99.0,
                         n=100, objects=40))  # fmt: skip
    found.append(Row(id="complexity.bits", on="test", family="gaussian", value=1000.0, n=100))
    for c in COVERAGES:
        top: dict[str, Any] = {
            "on": "test",
            "family": "ceiling",
            "coverage": c,
            "chance": 0.01,
            "bag_of_concepts": 0.25,
        }
        found += [Row(id="complexity.ceiling.object", value=0.95, **top),
                  Row(id="complexity.ceiling.concept", value=1.0, **top)]  # fmt: skip
    return found


@pytest.fixture(scope="module")
def section():
    table = rows()
    return complexity_section(Study(Measured(table), ("color",), "text", "text8x8", {}, {}), judge(table))


def test_every_figure_is_there(section):
    assert [figure.key for figure in section.figures] == [
        "complexity-object", "complexity-concept", "complexity-r2", "complexity-width", "complexity-best",
        "complexity-bits",
    ]  # fmt: skip
    json.dumps([figure.spec for figure in section.figures], allow_nan=False)
    assert not section.missing


def test_points_that_say_nothing_are_hollow(section):
    by_key = {figure.key: figure for figure in section.figures}
    traces = [
        t for t in by_key["complexity-object"].spec["data"] if isinstance(t.get("marker", {}).get("symbol"), list)
    ]
    hollow = {i: [symbol.endswith("-open") for symbol in t["marker"]["symbol"]] for i, t in enumerate(traces)}
    assert hollow == {0: [False] * 4, 1: [True, True, False, False], 2: [False] * 4, 3: [False] * 4}
    assert any(key.label.startswith("hollow") for key in by_key["complexity-object"].legend)
    assert not any(key.label.startswith("hollow") for key in by_key["complexity-width"].legend)


def test_levels_the_ceiling_and_the_noise_band_are_drawn(section):
    figure = section.figures[0]
    labels = {key.label for key in figure.legend}
    assert {"chance", "bag of concepts, ties at random", "the probes on the true vectors"} <= labels
    bands = [trace for trace in figure.spec["data"] if trace.get("fill") == "toself"]
    assert len(bands) == len(FAMILIES)
    assert bands[0]["y"][0] == pytest.approx(100 * (0.4 * 0.2 - 0.01))


def test_a_hidden_layer_that_is_not_fitted_is_named_on_the_page_and_in_the_sentence():
    why = "not fitted: R2 on scenes of the validation objects is 0.040 below that of bag_quadratic"
    table = [row for row in rows() if (row.family, row.coverage) != ("mlp64", 0.8)]
    table.append(Row(id="complexity.adequate", on="test", family="mlp64", coverage=0.8, value=0.0, reason=why))
    study = Study(Measured(table), ("color",), "text", "text8x8", {}, {})
    section = complexity_section(study, judge(table))
    assert "Not fitted: hidden layer of 64 units (at 80 %)" in " ".join(section.tables[0].notes)
    without = complexity_section(Study(Measured(rows()), ("color",), "text", "text8x8", {}, {}), judge(rows()))
    assert "Not fitted" not in " ".join(without.tables[0].notes)


def test_no_line_and_no_shade_runs_to_a_hollow_point(section):
    """Object products are hollow at .2 and .4: what is drawn of them runs from .6 to .8."""
    traces = section.figures[0].spec["data"]
    at = next(i for i, t in enumerate(traces) if "diamond-open" in t.get("marker", {}).get("symbol", ""))
    shade, line = traces[at - 2 : at]
    assert (traces[at]["mode"], line["mode"], shade["fill"]) == ("markers", "lines", "toself")
    assert line["x"] == [0.6, 0.8]
    assert line["y"] == traces[at]["y"][2:]
    assert set(shade["x"]) == {0.6, 0.8}
    assert all("lines" in t["mode"] for i, t in enumerate(traces) if i != at)


def test_no_point_of_a_family_looks_like_a_level(section):
    traces = [t for t in section.figures[0].spec["data"] if "marker" in t]
    families = {name for t in traces if isinstance(t["marker"]["symbol"], list) for name in t["marker"]["symbol"]}
    levels = {t["marker"]["symbol"] for t in traces if isinstance(t["marker"]["symbol"], str)}
    assert len(levels) == 3
    assert levels.isdisjoint({*families, *(f"{name}-open" for name in families)})


def test_width_has_a_line_for_each_coverage(section):
    figure = {figure.key: figure for figure in section.figures}["complexity-width"]
    assert [trace["x"] for trace in figure.spec["data"]] == [[64.0, 1024.0]] * 4
    assert figure.spec["layout"]["xaxis"]["type"] == "log"


def test_the_best_point_is_a_sound_one():
    table = [row for row in rows() if not (row.family or "").startswith("mlp")]
    table += [Row(id="complexity.object", on="test", family="mlp64", coverage=0.2, value=1.0),
              Row(id="complexity.sound", on="test", family="mlp64", coverage=0.2, value=0.0)]  # fmt: skip
    study = Study(Measured(table), ("color",), "text", "text8x8", {}, {})
    best = {f.key: f for f in complexity_section(study, judge(table)).figures}["complexity-best"]
    assert "objects (sum and product within objects, 80 % of objects)" in best.alt


def test_the_verdict_says_which_rule_carries_over():
    verdict = judge(rows(), "MiniLM")
    tile = verdict.tiles[-1]
    assert (tile.key, tile.answer) == ("complexity", "yes")
    assert tile.row is not None
    assert tile.row.family == "mlp1024"
    assert tile.sentence.startswith("Fitted on 20 to 80 % of the objects, a hidden layer of 1,024 units goes 80 % ")
    assert "from what is read in a sum of values to what is read in the true vectors" in tile.sentence
    assert "a hidden layer of 1,024 units, fitted on some objects, carries over to others" in verdict.sentence


@pytest.mark.parametrize(
    ("low", "high", "answer"), [(-0.5, -0.1, "no"), (-0.1, 0.1, "undecided"), (None, None, "no verdict")]
)
def test_a_claim_needs_an_interval_above_the_bag(low, high, answer):
    row = Row(id="complexity.area", on="test", family="additive", value=0.0, low=low, high=high, objects=40)
    assert judge([row]).tiles[-1].answer == answer


def test_without_rules_there_is_no_tile_and_the_section_says_so():
    verdict = judge([])
    assert all(tile.key != "complexity" for tile in verdict.tiles)
    study = Study(Measured([]), (), "", "", {}, {})
    assert "fitted no rules" in complexity_section(study, verdict).missing


def test_the_page_holds_the_section():
    page = render_page({}, rows(), {})
    assert 'id="complexity"' in page
    assert "complexity-object" in page


def test_families_are_named_in_words():
    assert rule_in_words("boosted") == "boosted trees"


def test_a_budget_on_scenes_is_said():
    cut = Row(
        id="complexity.scenes", on="test", coverage=0.8, value=10_000.0, reason="a seeded choice of 60,000 scenes"
    )
    for row, there in ((cut, True), (replace(cut, reason="no random-init level: no model"), False)):
        study = Study(Measured([*rows(), row]), ("color",), "text", "text8x8", {}, {})
        said = complexity_section(study, judge(rows())).reading
        assert any("more than 10,000 scenes" in line for line in said) == there


def test_the_control_stands_beside_the_variance_explained():
    given = [replace(row, random_init=0.123) if row.id == "complexity.r2" else row for row in rows()]
    for found, there in ((given, True), (rows(), False)):
        study = Study(Measured(found), ("color",), "text", "text8x8", {}, {})
        (table,) = complexity_section(study, judge(found)).tables
        assert ("R², random weights" in table.columns) == there
        assert any(cell.text == "0.123" for row in table.rows for cell in row) == there


def test_training_r2_is_that_of_the_rule_taken_and_the_most_reached_stands_beside(section):
    (table,) = section.tables
    rule, taken, most, said = (
        table.columns.index(name) for name in ("rule", "training R²", "most the fit reached", "validation took")
    )
    assert {row[taken].text for row in table.rows} == {"0.820"}
    assert {row[most].text for row in table.rows} == {"0.950"}
    told = {row[rule].text: row[said].text for row in table.rows if row[said].text}
    assert told == {"hidden layer of 64 units": "no hidden layer in 2 of 4 splits"}
    assert any("is the sum of values" in note for note in table.notes)


def test_the_coverages_of_an_area_stand_beside_it():
    """In the heading where all families share them, else in the note below, which names whose they are."""
    alone = [row for row in rows() if row.family != "object_product"]
    for found, heading in ((alone, "area, 20–80 %"), (rows(), "area, coverages below")):
        study = Study(Measured(found), ("color",), "text", "text8x8", {}, {})
        (table,) = complexity_section(study, judge(found)).tables
        assert table.columns[1] == heading
        note = next(note for note in table.notes if note.startswith("Area:"))
        assert ("of 20, 40, 60, 80 %. " in note) == (found is alone)
        assert ("60, 80 % for sum and product within objects" in note) == (found is not alone)


def test_what_bits_are_stands_beside_them(section):
    (table,) = section.tables
    assert any("thousandth of the vectors' total standard deviation" in note for note in table.notes)
    without = [row for row in rows() if row.id != "complexity.bits_saved"]
    study = Study(Measured(without), ("color",), "text", "text8x8", {}, {})
    (table,) = complexity_section(study, judge(without)).tables
    assert not any("standard deviation" in note for note in table.notes)


@pytest.mark.parametrize(
    ("area", "bits", "said"),
    [
        ((-0.1, 0.1), (5.0, 9.0), "a sum of values saves bits without clearly carrying objects over"),
        ((0.1, 0.3), (-9.0, -5.0), "a sum of values carries objects over without saving bits"),
        ((0.1, 0.3), (5.0, 9.0), None),
        ((-0.3, -0.1), (-9.0, -5.0), None),
        ((0.1, 0.3), (-1.0, 1.0), None),
    ],
)
def test_the_verdict_says_where_bits_and_area_point_different_ways(area, bits, said):
    given = [
        Row(id=id, on="test", family="additive", value=sum(ends) / 2, low=ends[0], high=ends[1], objects=40)
        for id, ends in (("complexity.area", area), ("complexity.bits_saved", bits))
    ]
    verdict = judge(given, "MiniLM")
    for sentence in (verdict.sentence, verdict.tiles[-1].sentence.lower()):
        assert ("bits" in sentence) == (said is not None)
        assert said is None or said in sentence
