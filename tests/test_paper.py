"""The whole paper on one page, from end to end."""

from pathlib import Path

import pytest

from colligate.study.paper import PaperConfig, paper


def test_something_must_be_asked_for():
    with pytest.raises(ValueError, match="Name an embedder, a coverage"):
        PaperConfig(embedder="", coverages=())


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
