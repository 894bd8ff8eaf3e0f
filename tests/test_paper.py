"""The whole paper on one page, from end to end."""

from pathlib import Path

import pytest

from colligate.report.page import finding, part_folder, read_run, render_page
from colligate.verbs.config import PaperConfig
from colligate.verbs.paper import SHIPPED, paper


def test_something_must_be_asked_for():
    with pytest.raises(ValueError, match="Name an embedder, a coverage"):
        PaperConfig(embedder="", coverages=())


def test_what_is_shipped_has_its_place_on_the_page():
    parts = [read_run(part_folder(Path("runs"), named), title) for title, named in SHIPPED]
    said = [finding(part) for part in parts]
    assert "binds objects that it never saw" in said[0]
    assert "does not clear an ideal bag of concepts, on seen objects or on unseen ones" in said[1]
    assert "finds which values belong together" in said[2]
    assert "finds the values of a scene" in said[3]
    assert "but not which belong together" in said[3]
    page = render_page({"kind": "paper", "name": "All"}, [], {}, parts)
    for title, _ in SHIPPED:
        assert title.replace("'", "&#39;") in page


def test_shipped_records_name_no_place_of_the_machine_that_made_them():
    for _, named in SHIPPED:
        folder = part_folder(Path("runs"), named)
        for file in folder.glob("*.json"):
            text = file.read_text(encoding="utf-8")
            assert "/tmp" not in text
            assert "/home" not in text
            assert "/work" not in text


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_parts_stand_on_one_page(tmp_path: Path):
    config = PaperConfig(
        embedder="oracle:object-product:32", scenes="clevr", coverages=(0.8,), steps=8, pictures=4,
        runs=tmp_path / "runs", store=tmp_path / "store", out=tmp_path / "paper.html",
    )  # fmt: skip
    done = paper(config)
    assert len(done.parts) == 5
    page = done.page.read_text(encoding="utf-8")
    for part in done.parts:
        assert f"{part.title}: " in page
    again = paper(config)
    assert again.folder == done.folder
