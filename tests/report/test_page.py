"""The page is whole for every study, escaped, and tells its numbers in tables."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from markupsafe import escape

from colligate.records import Row, WorkError, write_record
from colligate.report import render_page, write_page

HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "link", "input", "img", "br", "hr"}


class Outline(HTMLParser):
    """Elements in order, with a check that they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch):
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly */")


@pytest.mark.parametrize("name", ["whole", "bag of concepts", "undecided", "too few", "ragged", "empty"])
def test_every_study_gives_a_well_formed_page(name, studies, record):
    outline = Outline(render_page(record, studies[name], {}))
    assert not outline.open
    ids = [attrs["id"] for _, attrs in outline.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [attrs["href"] for tag, attrs in outline.elements if tag == "a"]
    assert all(href is not None and href.removeprefix("#") in ids for href in links if href)


def test_a_page_needs_no_record_facts():
    assert "Unnamed model" in render_page({}, [], {})


def test_tables_are_tables(studies, record, figures):
    outline = Outline(render_page(record, studies["whole"], figures))
    kinds = [tag for tag, _ in outline.elements]
    assert kinds.count("table") == kinds.count("caption") >= 10
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in outline.elements if tag == "th")
    plots = [attrs for _, attrs in outline.elements if "data-figure" in attrs]
    assert plots
    assert all(attrs.get("role") == "img" and attrs.get("aria-label") for attrs in plots)


def test_what_a_user_typed_is_text(studies, record, figures):
    record["inputs"]["model"]["name"] = record["command"] = HOSTILE
    record["inputs"]["world"]["concepts"] = {HOSTILE: [HOSTILE, "x"], "shape": ["a", "b"]}
    record["notes"] = [HOSTILE]
    record["config"] = {HOSTILE: HOSTILE}
    for point in figures["quadruple"]["points"] + figures["objects"]["points"]:
        point.update(label=HOSTILE, hover=HOSTILE, values={HOSTILE: HOSTILE})
    for example in figures["edit_examples"]:
        example.update(base=HOSTILE, target=HOSTILE, edit=HOSTILE, retrieved=HOSTILE, estimator=HOSTILE)
    rows = [*studies["whole"], Row(id=f"probe.concept.{HOSTILE}", concept=HOSTILE, value=0.5, reason=HOSTILE)]
    page = render_page(record, rows, figures)
    assert HOSTILE not in page
    assert str(escape(HOSTILE)) in page
    assert sum(tag == "script" for tag, _ in Outline(page).elements) == 3


def test_a_figure_cant_close_its_script(studies, record, figures):
    figures["objects"]["points"][0]["values"] = {"color": "</script><img src=x onerror=alert(1)>"}
    page = render_page(record, studies["whole"], figures)
    text = page.split('id="figures">')[1].split("</script>")[0]
    assert "</script><img" not in page
    assert json.loads(text)["map-objects"]["map"]["points"][0]["values"]["color"].startswith("</script>")


def test_no_address_of_the_network_is_loaded(studies, record, figures):
    outline = Outline(render_page(record, studies["whole"], figures))
    sources = [attrs[a] for _, attrs in outline.elements for a in ("src", "href", "srcset") if attrs.get(a)]
    assert all(s is not None and s.startswith(("#", "data:")) for s in sources)
    policy = next(a["content"] for t, a in outline.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


def test_numbers_stand_with_their_intervals(studies, record):
    page = render_page(record, studies["whole"], {})
    assert "0.970<small>0.956\N{EN DASH}0.980</small>" in page
    assert page.count("paper (CLIP") >= 3


def test_missing_sections_say_so_in_a_sentence(studies, record):
    page = render_page(record, studies["ragged"], {})
    assert "This study holds no removal of components." in page
    assert "Edits were not measured: there are no scenes of a single object." in page
    assert "There are no scenes of a single object." in page


@pytest.mark.parametrize(
    ("kind", "kept", "cards"),
    [
        ("probes", {"probes"}, 2),
        ("decomposition", {"layout"}, 1),
        ("edits", {"edits"}, 1),
        ("removal", {"removal"}, 0),
        ("probes-information", {"probes", "information"}, 3),
        ("study", {"probes", "layout", "edits", "removal", "information", "complexity", "normalized"}, 5),
    ],
)
def test_a_run_of_some_stages_shows_only_what_it_was_asked_for(kind, kept, cards, record):
    """Also where it has no number of it: then the page says why."""
    outline = Outline(render_page({**record, "kind": kind}, [], {}))
    shown = {str(attrs["id"]) for tag, attrs in outline.elements if tag == "section"}
    assert shown == {*kept, "reproduce"}
    assert sum(attrs.get("class") == "tile" for _, attrs in outline.elements) == cards


def test_normalised_vectors_that_change_the_verdict_are_named(studies, record):
    given: dict[str, Any] = {"on": "test", "n": 800, "bag_of_concepts": 0.4}
    rows = [
        Row(id="probe.object", value=0.9, low=0.85, high=0.95, **given),
        Row(id="normalized.probe.object", value=0.42, low=0.35, high=0.5, **given),
    ]
    assert "The verdict changes: objects recognised (yes → undecided)." in render_page(record, rows, {})
    assert "Dividing by the length changes no verdict" in render_page(record, studies["whole"], {})


def test_the_papers_numbers_follow_the_world(studies, record):
    record["inputs"]["model"]["kind"] = "picture"
    record["inputs"]["world"]["name"] = "pug_spare"
    page = render_page(record, studies["whole"], {})
    assert "R² 0.75" in page
    assert "R² 0.90<" not in page


def test_rows_of_single_objects_say_what_they_are(studies, record):
    page = render_page(record, studies["whole"], {})
    assert page.count("its other slots are empty") == 2, "once under the sums, once under the edits"
    without = [row for row in studies["whole"] if "single" not in row.id]
    assert "its other slots are empty" not in render_page(record, without, {})


def test_a_folder_becomes_a_page(tmp_path, studies, record, figures):
    write_record(tmp_path / "run", record, studies["whole"], figures, {})
    page = write_page(tmp_path / "run")
    assert page == tmp_path / "run" / "report.html"
    elsewhere = write_page(tmp_path / "run", tmp_path / "other.html")
    assert elsewhere.read_bytes() == page.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "record.json").unlink(), "isn't a finished run"),
        (lambda folder: (folder / "record.json").write_text('{"schema": 99}'), "schema 99"),
        (lambda folder: (folder / "table.csv").unlink(), "table.csv is missing"),
        (lambda folder: (folder / "figures.json").write_text("{"), "figures.json is damaged"),
    ],
)
def test_a_broken_folder_is_an_error_that_names_the_file(tmp_path, studies, record, spoil, message):
    write_record(tmp_path, record, studies["ragged"], {}, {})
    spoil(tmp_path)
    with pytest.raises((ValueError, WorkError), match=message):
        write_page(tmp_path)
    assert not (tmp_path / "report.html").exists()
