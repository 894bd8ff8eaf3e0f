"""A sentence claims what its interval carries, and nothing else."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colligate.records import NO_CEILING, Row
from colligate.report.verdict import Measured, compare, fraction, judge, percent, too_few
from colligate.report.verdict.binding import binding

shares = st.floats(0, 1)


def answers(rows: list[Row]) -> list[str]:
    return [tile.answer for tile in judge(rows).tiles]


def test_a_model_that_binds_is_said_to_bind(studies):
    verdict = judge(studies["whole"], "MiniLM")
    assert verdict.sentence == (
        "MiniLM names every value (99.7 %) and, in its own space, tells which object has which value (97 %, where "
        "a bag of concepts reaches 47 %); its vectors are close to a sum of one vector per object (R² 0.90); "
        "replacing one object's vector lands on the intended scene in 96 % of edits (averages for each slot, the best "
        "of 4 ways tried); a quadratic read-out recovers 89 % of what the values alone leave open (the best of 2 "
        "read-outs tried)."
    )
    assert answers(studies["whole"]) == ["yes", "yes", "yes", "yes", "yes"]


def test_a_bag_of_concepts_is_said_not_to_bind(studies):
    sentence = judge(studies["bag of concepts"]).sentence
    assert "names every value (99.9 %); linear probes do not tell, in its own space, which object has which" in sentence
    assert "evidence" not in sentence  # no quadratic read-out was tried
    assert "information" not in sentence
    assert answers(studies["bag of concepts"]) == ["yes", "no", "yes", "undecided", "undecided"]


def ideal_bag() -> list[Row]:
    """What a small study of vectors finds that are sums of value vectors; its intervals are wide."""
    return [
        Row(id="probe.concept", on="test", value=1.0, low=1.0, high=1.0, n=179, chance=0.1),
        Row(id="probe.object", on="test", value=0.46, low=0.29, high=0.65, n=179, bag_of_concepts=0.48),
        Row(id="r2.object.least_squares", on="test", value=0.9997, low=0.9996, high=0.9998, n=179),
        Row(id="r2.concept.least_squares", on="test", value=0.9997, low=0.9996, high=0.9998, n=179),
        Row(id="edit.retrieval.avg", on="test", value=0.34, low=0.26, high=0.40, n=336, bag_of_concepts=0.33),
        Row(id="information.linear.ratio", on="test", value=-3e-9, low=-4e-9, high=-2e-9, n=179, bag_of_concepts=0.0),
        Row(id="information.quadratic.ratio", on="test", value=-0.2, low=-0.4, high=0.01, n=179, bag_of_concepts=0.0),
    ]


def test_a_sum_over_values_without_binding_is_the_first_thing_said():
    assert judge(ideal_bag(), "bag.npy").sentence == (
        "bag.npy embeds a scene as a sum of one vector per value (R² 0.999), with no evidence of binding: linear "
        "probes, a linear read-out and a quadratic read-out find none (0.00 of what the values alone leave open); it "
        "names every value (100 %); objects are recognised in 46 %, a bag of concepts in 48 %; edits reach their "
        "target in 34 %, a bag of concepts in 33 %."
    )


@pytest.mark.parametrize(
    ("id", "more"),
    [
        ("information.linear.ratio", {"value": 0.1, "high": 0.2}),
        ("information.quadratic.ratio", {"value": 0.9, "low": 0.8, "high": 0.95}),
        ("information.linear.ratio", {"low": None, "high": None}),
        ("probe.object", {"value": 0.9, "low": 0.8, "high": 0.95}),
    ],
)
def test_a_sum_over_values_that_may_bind_is_not_said_to_hold_nothing(id, more):
    rows = [replace(row, **more) if row.id == id else row for row in ideal_bag()]
    sentence = judge(rows).sentence
    assert "evidence of binding" not in sentence
    assert "close to a sum of one vector per value (R² 0.999)" in sentence


def test_a_sum_is_credited_to_objects_where_values_explain_less():
    rows = [replace(row, value=0.95, low=0.94, high=0.96) if "concept.least" in row.id else row for row in ideal_bag()]
    assert "a sum of one vector per object (R² 0.999)" in judge(rows).sentence


def test_edits_of_vectors_that_ignore_order_are_said_to_find_a_scene_or_its_twin():
    exact = Row(id="edit.retrieval.avg", on="test", value=0.51, low=0.505, high=0.52, n=400, bag_of_concepts=0.375)
    either = replace(exact, id="edit.retrieval.avg.up_to_order", value=1.0, low=1.0, high=1.0, bag_of_concepts=0.7)
    verdict = judge([exact, either])
    assert verdict.tiles[3].answer == "yes"
    assert verdict.tiles[3].sentence == (
        "Replace one object's vector: the nearest scene is the intended one or its twin in other order in 100 % of "
        "edits; in the exact order in 51 %, which these vectors do not tell."
    )
    assert (
        "finds the intended scene or its twin in other order in 100 % of edits; in 51 % in the exact order, which "
        "these vectors do not tell" in verdict.sentence
    )
    tells = judge([replace(exact, value=0.9, low=0.88, high=0.92), either]).sentence
    assert "lands on the intended scene in 90 % of edits" in tells
    assert "twin" not in tells


def test_an_interval_across_its_level_decides_nothing(studies):
    verdict = judge(studies["undecided"])
    assert answers(studies["undecided"]) == ["yes", "undecided", "partly", "undecided", "undecided"]
    assert verdict.sentence.count("undecided") == 2
    assert "and, in its own space" not in verdict.sentence


def test_too_few_objects_or_scenes_give_no_verdict(studies):
    verdict = judge(studies["too few"], "MiniLM")
    assert verdict.sentence.startswith("No verdict: with 4 objects and 12 scored scenes")
    assert set(answers(studies["too few"])) == {"no verdict", "not measured"}
    assert all("nothing is claimed" in tile.sentence for tile in verdict.tiles if tile.row is not None)


def test_a_ragged_study_speaks_of_what_it_has(studies):
    verdict = judge(studies["ragged"], "MiniLM")
    assert verdict.sentence == (
        "MiniLM, in its own space, tells which object has which value better than a bag of concepts (62 % against "
        "47 %); its vectors are largely a sum of one vector per object and slot (R² 0.74)."
    )
    assert verdict.tiles[3].sentence == "Edits were not measured: there are no scenes of a single object."


def test_an_empty_study_says_so(studies):
    assert judge(studies["empty"]).sentence == "Nothing was measured that a verdict could rest on."
    assert set(answers([])) == {"not measured"}


def test_vectors_without_binding_are_told_by_their_code_length():
    """No rule has an area where probes read no more than a bag; which rule is enough is known all the same."""
    rows = [
        Row(id="complexity.area", on="test", family="additive", reason=f"{NO_CEILING} (coverage 0.5)"),
        Row(id="complexity.area", on="test", family="mlp64", reason=f"{NO_CEILING} (coverage 0.5)"),
        Row(id="complexity.bits", on="test", family="gaussian", value=140.7),
        Row(id="complexity.bits_saved", on="test", family="additive", value=103.6, low=101.0, high=106.0, n=500),
        Row(id="complexity.bits_saved", on="test", family="mlp64", value=104.0, low=101.0, high=106.0, n=500),
    ]  # fmt: skip
    verdict = judge(rows, "no-binding")
    assert verdict.sentence == (
        "no-binding: probes read no more objects from the true vectors than a bag of concepts, so no rule can carry "
        "any over; a sum of values is enough: it saves 104 of 141 bits a scene."
    )
    assert verdict.tiles[-1].sentence.endswith("a sum of values is enough: it saves 104 of 141 bits a scene.")
    unread = [replace(row, reason="objects aren't read") for row in rows[:2]]
    assert judge([*unread, *rows[2:]], "It").sentence == (
        "It: nothing can be said of rule carried over to unseen objects: objects aren't read."
    )


@pytest.mark.parametrize(
    ("low", "said"),
    [
        (1.0, "all rules save bits, which count variance, though none clearly carries objects over"),
        (-1.0, "a sum of values and a hidden layer of 64 units save bits without clearly carrying objects over"),
    ],
)
def test_bits_and_areas_that_part_are_told_once(low, said):
    rows = list[Row]()
    for family, least in (("additive", 1.0), ("object_product", low), ("mlp64", 1.0)):
        rows.append(Row(id="complexity.area", on="test", family=family, value=-0.2, low=-0.4, high=-0.1, objects=60))
        rows.append(Row(id="complexity.bits_saved", on="test", family=family, value=9.0, low=least, high=19.0, n=500))
    assert said in judge(rows, "It").sentence


def test_an_undecided_rule_says_how_wide_its_interval_is():
    row = Row(id="complexity.area", on="test", family="object_product", value=0.4, low=-2.607, high=1.0, objects=24)
    verdict = judge([row], "It")
    assert "undecided (\N{MINUS SIGN}2.61 to 1.00 with 24 objects; more objects decide more)" in verdict.sentence
    assert "interval \N{MINUS SIGN}2.61 to 1.00 with 24 objects" in verdict.tiles[-1].sentence


@pytest.mark.parametrize(("objects", "n"), [(7, 500), (64, 19)])
def test_few_objects_void_even_a_given_interval(objects, n):
    row = Row(id="probe.object", value=0.9, low=0.8, high=0.95, objects=objects, n=n, bag_of_concepts=0.2)
    assert too_few(row)
    assert judge([row]).tiles[1].answer == "no verdict"
    assert judge([replace(row, objects=8, n=20)]).tiles[1].answer == "yes"


def test_objects_without_a_bag_of_concepts_level_are_undecided():
    row = Row(id="probe.object", value=0.9, low=0.8, high=0.95, n=100, chance=0.01)
    assert judge([row]).tiles[1].answer == "undecided"
    assert "no bag-of-concepts level" in judge([row]).tiles[1].sentence


def test_edits_without_a_level_must_beat_one_half():
    row = Row(id="edit.retrieval.avg", value=0.55, low=0.49, high=0.6, n=100)
    assert judge([row]).tiles[3].answer == "undecided"
    assert judge([replace(row, low=0.51)]).tiles[3].answer == "partly"


def test_what_random_weights_do_as_well_is_said():
    row = Row(id="r2.object.least_squares", on="test", value=0.95, low=0.94, high=0.96, n=100, random_init=0.97)
    assert judge([row]).sentence.endswith("with random weights the same network does about as well (R² 0.97).")
    assert "random weights the same" not in judge([replace(row, random_init=0.9)]).sentence


def test_additivity_not_clear_of_zero_is_no_claim():
    row = Row(id="r2.object.least_squares", on="test", value=0.02, low=-0.1, high=0.1, n=100)
    assert judge([row]).tiles[2].answer == "undecided"


@given(value=shares, low=shares, high=shares, level=shares)
def test_a_claim_means_that_the_whole_interval_clears_the_level(value, low, high, level):
    low, value, high = sorted((low, value, high))
    row = Row(id="probe.object", value=value, low=low, high=high, n=100, bag_of_concepts=level)
    answer = compare(row, level)
    assert (answer == "yes") == (low > level)
    assert (answer == "no") == (high < level)
    assert ("tells which object" in judge([row]).sentence) == (low > level)


@given(shares)
@example(0.995)
@example(0.9999999)
@example(1e-9)
def test_percentages_never_round_to_certainty(value):
    assert (percent(value) == "100 %") == (value == 1)
    assert (percent(value) == "0 %") == (value == 0)


@given(st.floats(-3, 1, exclude_max=True))
def test_fractions_below_one_stay_below_one(value):
    assert float(fraction(value).replace("\N{MINUS SIGN}", "-")) < 1
    assert fraction(value) != "-0.00"


def test_strict_rows_come_before_the_papers_protocol():
    rows = [Row(id="probe.object", protocol="paper", value=0.9), Row(id="probe.object", protocol="strict", value=0.5)]
    found = Measured(rows).find("probe.object")
    assert found is not None
    assert found.value == 0.5


def test_a_missing_value_gives_way_to_a_part_that_has_one():
    table = Measured([Row(id="a", on="test", reason="no"), Row(id="a", on="all", value=1.0)])
    assert table.find("a", "test", "all") == Row(id="a", on="all", value=1.0)
    assert table.find("a", "test") == Row(id="a", on="test", reason="no")


def test_depth_rows_are_not_taken_for_the_models_own():
    rows = [Row(id="probe.object", family="layer 1 mean", value=0.1), Row(id="probe.object", value=0.9)]
    assert [row.value for row in Measured(rows).families("probe.object")] == [0.1]
    found = Measured(rows).find("probe.object")
    assert found is not None
    assert found.value == 0.9


def of_information(linear: float, quadratic: float, half: float = 0.02) -> list[Row]:
    return [
        Row(id=f"information.{name}.ratio", on="test", value=v, low=v - half, high=v + half, n=99, bag_of_concepts=0.0)
        for name, v in (("linear", linear), ("quadratic", quadratic))
    ]


def test_binding_that_the_linear_read_out_misses_is_told_by_the_other():
    objects = Row(id="probe.object", on="test", value=0.46, low=0.44, high=0.47, n=179, bag_of_concepts=0.48)
    verdict = judge([objects, *of_information(0.0, 0.94)], "XOR")
    assert verdict.sentence == (
        "XOR, in its own space, binds: a quadratic read-out recovers 94 % of what the values alone leave open (the "
        "best of 2 read-outs tried), though linear probes do not show it (objects recognised in 46 %, a bag of "
        "concepts in 48 %)."
    )
    assert verdict.tiles[4].answer == "yes"


def test_the_best_of_several_read_outs_pays_for_the_choice():
    assert binding(Measured(of_information(0.0, 0.021))).answer == "undecided"  # .001 to .041 by itself
    assert binding(Measured(of_information(0.0, 0.021)[1:])).answer == "yes"
    assert binding(Measured(of_information(0.0, 0.025))).answer == "yes"


def test_recognition_that_blindness_could_reach_is_no_binding():
    objects = Row(id="probe.object", on="test", value=0.12, low=0.1, high=0.14, n=179, bag_of_concepts=0.08)
    ceiling = Row(id="probe.object.blind", on="test", value=0.31, n=179)
    both = Row(id="probe.object.swap.both", on="test", value=0.0, low=0.0, high=0.05, n=40, chance=1 / 36)
    verdict = judge([objects, ceiling, both], "sum")
    assert verdict.tiles[1].answer == "undecided"
    assert "tells which object" not in verdict.sentence
    assert "vectors blind to binding 31 % at most" in verdict.tiles[1].sentence
    told = judge([objects, ceiling, replace(both, value=0.2, low=0.1, high=0.3)], "it").sentence
    assert "tells which object has which value better than a bag of concepts" in told
    assert "a scene and its swap are both right in 20 %, by chance in 3 %" in told
    assert "tells which object" in judge([replace(objects, value=0.5, low=0.4, high=0.6), ceiling]).sentence


def test_a_bound_below_nothing_is_printed_as_none_with_a_note():
    verdict = judge(of_information(-3.2, -7.2), "It")
    assert "0.00 (floored; the bound itself is \N{MINUS SIGN}3.20)" in verdict.tiles[4].sentence
    assert "0.00 (floored; the bound itself is \N{MINUS SIGN}3.20)" in verdict.sentence
    assert verdict.tiles[4].row is not None
    assert verdict.tiles[4].row.value == -3.2  # the raw number stays


def test_edits_rarely_land_only_where_no_way_does():
    rows = [
        Row(id=f"edit.retrieval.{way}", on="test", value=v, low=v - 0.02, high=v + 0.02, n=99, bag_of_concepts=0.5)
        for way, v in (("avg", 0.09), ("avg+pos", 0.98), ("least_squares", 0.2))
    ]
    assert "in 98 % of edits (averages for each slot, the best of 3 ways tried)" in judge(rows).sentence
    failed = judge([rows[0], rows[2]])
    assert "rarely lands on the intended scene by any of 2 ways tried (20 % of edits)" in failed.sentence
    assert failed.tiles[3].answer == "no"
    close = replace(rows[1], value=0.49, low=0.47, high=0.51)
    assert judge([rows[0], close]).tiles[3].answer == "undecided"


def test_half_of_the_values_bound_is_told_as_half():
    least = Row(id="information.quadratic.least.color", on="test", concept="color", family="4 of 8", n=60,
                value=0.0, low=-0.1, high=0.05)  # fmt: skip
    others = replace(least, id="information.quadratic.others.color", value=0.9, low=0.8, high=0.95)
    sentence = judge([*of_information(0.6, 0.7), least, others], "It").sentence
    assert "half of the values of color bind (4 of 8)" in sentence
    assert "half" not in judge([*of_information(0.6, 0.7), replace(least, low=0.02), others], "It").sentence


@pytest.mark.parametrize("id", ["information.linear.ratio", "probe.object", "edit.retrieval.avg", "r2.object.avg"])
def test_no_verdict_is_empty(id):
    for row in (
        Row(id=id, on="test", reason="all vectors are alike"),
        Row(id=id, on="test", value=0.0, low=0.0, high=0.0, n=26, objects=12),
        Row(id=id, on="test", value=0.0, low=-0.1, high=0.1, n=26, objects=12, bag_of_concepts=0.0),
    ):
        sentence = judge([row], "const.npy").sentence
        assert len(sentence.removeprefix("const.npy")) > 20
        assert row.value is not None or "all vectors are alike" in sentence
