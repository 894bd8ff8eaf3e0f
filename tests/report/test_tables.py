"""Cells keep their interval, and a dash keeps its reason."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from colligate.records import Row
from colligate.report.plain import remarks, row_text
from colligate.report.tables import FLOORED, TableBuilder, decimals, floored


def builder() -> TableBuilder:
    return TableBuilder("t", "caption", ("", "value", "random weights"))


def test_reasons_become_footnotes_once():
    made = builder()
    missing = Row(id="x", reason="there are no singles")
    made.add("a", made.value(Row(id="x", value=0.5, low=0.4, high=0.6)), made.level(missing, "random_init"))
    made.add("b", made.value(missing), made.level(missing, "random_init"))
    table = made.build("more")
    assert table is not None
    assert table.rows[0][1].interval == "0.400\N{EN DASH}0.600"
    assert [row[2].note for row in table.rows] == [1, 1]
    assert table.notes == ("1. There are no singles.", "more")


def test_a_table_without_a_number_is_no_table():
    made = builder()
    made.add("a", made.value(Row(id="x", reason="no singles")), made.absent(None))
    assert made.build() is None


def test_empty_columns_are_left_out():
    made = builder()
    made.add("a", made.value(Row(id="x", value=0.5)), made.absent(None))
    table = made.build()
    assert table is not None
    assert table.columns == ("", "value")


def test_a_plain_dash_is_explained():
    made = builder()
    made.add("a", made.value(Row(id="x", value=0.5)), made.absent(None))
    made.add("b", made.value(None), made.value(Row(id="y", value=0.25)))
    table = made.build()
    assert table is not None
    assert table.notes == ("–: not measured in this study.",)


def test_the_reason_of_a_missing_interval_is_told():
    made = builder()
    made.add("a", made.value(Row(id="x", value=0.5, reason="4 objects are too few to resample")), made.absent(None))
    table = made.build()
    assert table is not None
    assert table.notes == ("1. No interval: 4 objects are too few to resample.",)


@given(st.floats(-2, 1, exclude_max=True))
def test_a_number_below_one_is_never_shown_as_one(value):
    assert float(decimals(value).replace("\N{MINUS SIGN}", "-")) < 1


def test_information_below_nothing_is_shown_as_nothing_and_said():
    builder = TableBuilder("information", "", ("", "bits"))
    below = Row(id="information.quadratic.bits", value=-7.2, low=-9.0, high=0.4)
    builder.add("quadratic", builder.value(below))
    table = builder.build()
    assert table is not None
    assert (table.rows[0][1].text, table.rows[0][1].interval) == ("0.000", "0.000–0.400")
    assert table.notes[-1] == FLOORED
    assert floored(replace(below, high=-1.0)).low is None  # no interval without width
    assert floored(replace(below, id="r2.object.single")).value == -7.2
    text = row_text([below])
    assert "0.000–0.400" in text
    assert "7.2" not in text
    assert remarks([below]) == [FLOORED]
