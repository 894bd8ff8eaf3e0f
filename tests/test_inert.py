"""Names and values of the user's steer nothing: neither a terminal, nor the page, nor JSON, nor a spreadsheet."""

import csv
import io
import json
import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from colligate.binding import object_table
from colligate.cli import main, tables
from colligate.records import Row
from colligate.records.text import formula_note, inert, inert_json
from colligate.report.page import render_page
from colligate.scenes.space import ConceptSpace

ESCAPE = "cu\x1b[2J\x1b]0;pwn\x07be"
RIGHT_TO_LEFT = "\u202eeulb\u2066"
MARKUP = "[bold red]ball[/]"
FORMULA = "=HYPERLINK(1)"
HTML = "<script>alert(1)</script>"
EMOJI = ":red_circle:"
NAMES = ("size[/m]", "price[usd]")
SPACE = ConceptSpace(
    {NAMES[0]: [ESCAPE, RIGHT_TO_LEFT, MARKUP, FORMULA], NAMES[1]: [HTML, EMOJI, "@home", "line\ntwo"]}
)
STEERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff]")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path / "store"))
    scenes = SPACE.all_scenes(2)
    save_file({"vectors": object_table(SPACE, 2, 24, 0)(scenes.values).float()}, tmp_path / "v.safetensors")
    with (tmp_path / "l.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([f"slot{slot}_{name}" for slot in (1, 2) for name in NAMES])
        for scene in scenes.values.tolist():
            writer.writerow([SPACE.words[c][value] for slot in scene for c, value in enumerate(slot)])


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command line; all that it says is inert."""

    def run(*words: str, code: int = 0) -> str:
        found = main(words)
        said = capsys.readouterr()
        assert found == code, said
        assert not STEERS.search(said.out + said.err), (said.out + said.err).encode("unicode_escape")
        return said.out + said.err

    return run


def test_names_stand_in_the_terminal_as_written(call: Callable[..., str]):
    said = call("probe", "v.safetensors", "--labels", "l.csv")
    assert all(f"probe.concept.{name} " in said for name in NAMES)
    checked = call("check-data", "l.csv")
    for word in (r"cu\x1b[2J\x1b]0;pwn\x07be", r"\u202eeulb\u2066", MARKUP, HTML, EMOJI, r"line\ntwo"):
        assert word in checked
    assert (
        "2 words of l.csv begin with =, +, - or @ ('=HYPERLINK(1)', ...): import it into a spreadsheet as text"
        in checked
    )


def test_lists_and_tables_obey_no_markup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """On a terminal, where rich colours what it prints."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "300")
    words = (MARKUP, "size[/m]", "[query] ", "a\\", EMOJI, ESCAPE)
    tables.print_list({f"{word}": f"means {word}" for word in words})
    tables.show([Row(id=f"probe.{word}", on="test", value=0.5, reason=word) for word in words], as_json=False)
    tables.show([Row(id=f"probe.{word}", reason=f"none for {word}") for word in words], as_json=False)
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    for word in words:
        assert f"means {inert(word)}" in said
        assert f"probe.{inert(word)}" in said
        assert f"none for {inert(word).rstrip('.')}" in said
    assert not STEERS.search(said)


def test_complaints_and_notes_are_one_line_each(call: Callable[..., str], tmp_path: Path):
    (tmp_path / "bad.csv").write_text(f'slot1_color,slot2_color\n"{ESCAPE}\ncolligate: all is well",\n')
    call("check-data", "bad.csv", "--space", "none.json", code=2)
    said = call("probe", "v.safetensors", "--labels", f"no{ESCAPE}\nthing.csv", code=2)
    assert said.count("\n") == 1
    assert said.startswith("colligate: ")
    assert call(f"{ESCAPE}", code=2).count("\n") == 1


def test_json_is_ascii_and_keeps_every_name(call: Callable[..., str]):
    rows = json.loads(call("probe", "v.safetensors", "--labels", "l.csv", "--json"))
    assert {row["concept"] for row in rows} >= set(NAMES)


def test_the_page_shows_what_is_written_and_turns_nothing_round():
    facts = {
        "kind": "probe", "name": f"model {ESCAPE}{RIGHT_TO_LEFT}", "notes": [f"A note on {HTML}{RIGHT_TO_LEFT}"],
        "python": "first\nsecond", "inputs": {"world": {"concepts": {NAMES[0]: list(SPACE.words[0])}}},
    }  # fmt: skip
    rows = [Row(id=f"probe.concept.{RIGHT_TO_LEFT}", concept=RIGHT_TO_LEFT, value=0.5, n=9, reason=ESCAPE)]
    figures: dict[str, Any] = {"points": {"labels": [RIGHT_TO_LEFT, HTML]}}
    page = render_page(facts, rows, figures)
    ours = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # plotly's own code lists such characters
    assert not re.search(r"[\x1b\x07\u202e\u2066]", ours)
    assert r"\u202eeulb\u2066" in ours
    assert HTML not in page
    assert "first\nsecond" in ours  # line breaks of ours stay


def test_tables_keep_their_cells_and_tell_those_that_look_like_formulas(call: Callable[..., str], tmp_path: Path):
    """Other programs read them, so nothing is put before such a cell."""
    said = call("embed", "oracle:object-table:8", "--scenes", "l.csv", "--out", "e")
    assert "2 words of labels.csv begin with =, +, - or @" in said
    written = list(csv.DictReader(io.StringIO((tmp_path / "e" / "labels.csv").read_text(encoding="utf-8"))))
    assert {cell for row in written for cell in row.values()} >= {word for words in SPACE.words for word in words}
    assert formula_note("t.csv", ["-1", "+2.5", "-inf", "red"]) is None
    assert '("=" ' not in str(formula_note("t.csv", ["=" * 99]))
    assert len(str(formula_note("t.csv", ["=" * 9999]))) < 200


@given(st.text())
def test_inert_text_shows_every_character_and_nothing_that_steers(text: str):
    shown = inert(text)
    assert not STEERS.search(shown)
    assert "\n" not in shown
    assert inert(shown) == shown  # what was written out is not written out again
    unchanged = all(not STEERS.search(one) and unicodedata.category(one) != "Cf" and one != "\n" for one in text)
    assert (shown == text) >= unchanged
    assert inert_json({text: [text]}) == {inert(text, lines=True): [inert(text, lines=True)]}
