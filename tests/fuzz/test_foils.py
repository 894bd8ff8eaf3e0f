"""Files of foils as nobody would write them: each is read, or refused in one sentence that names the file.

Rows of every layout get cells of any kind, and then the file's bytes are changed. No error of a library comes through,
and what is read can be embedded: texts are whole, every pair points at a picture, and rows add up.
"""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from colligate.crossmodal.foil_files import FoilFile, read_foils
from colligate.crossmodal.foils import FoilTable

LONG = int(os.environ.get("COLLIGATE_FUZZ_EXAMPLES", "4000"))
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"picture": "p0.png", "caption": "a cat on a mat", "foil": "a mat on a cat"},
    {"image_path": "p1", "true_caption": "a cat on a mat", "false_caption": "a mat on a cat", "relation_name": "on",
     "bbox_x": 1, "bbox_y": 2, "bbox_w": 5, "bbox_h": 6},
    {"filename": "p0.png", "caption": "a cat", "negative_caption": "a dog"},
    {"id": 1, "image_0": "p0", "image_1": "p1", "caption_0": "a cat on a mat", "caption_1": "a mat on a cat"},
    {"image": "p0.png", "caption_options": ["a cat on a mat", "a mat on a cat", "mat a cat a on"]},
    {"images": "p1.png", "correct_caption": "a cat on a mat", "hard_text_1": "a mat on a cat", "hard_text_2": "cat"},
    {"image": "p0.png", "caption": ["A cat lies on a red mat.", "A mat."]},
)  # fmt: skip
HOSTILE = (
    "", " ", "a", "../p0.png", "/etc/passwd", "p0.png\0", "x" * 300, "x" * 5000, "data:image/png;base64,AAAA",
    "nan", "inf", "-1", "1e400", "9" * 400, "[]", "['a', 'b']", "['a' 'b']", '["a"', "[b'a', 'b']", "[" * 2000,
    "{'bytes': b''}",
    "cafe\u0301.png", "p0\\p1.png", "~", "$HOME", "p0.png/", ".", "..", "\u2028", "\u202e", "\ud800", "\udcff",
    "\ufeff", "pipe", "circle", "images", "\r", "\n", '"', ",",
)  # fmt: skip
CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(-10, 10**30), st.floats(), st.text(max_size=8), st.sampled_from(HOSTILE),
    st.lists(st.sampled_from(("a cat", "a dog", "", 3, None, ["a"])), max_size=3),
    st.dictionaries(st.sampled_from(("bytes", "path", "a")), st.text(max_size=3), max_size=2),
)  # fmt: skip
NAMES = tuple(dict.fromkeys(name for row in LAYOUTS for name in row))


@st.composite
def rows(draw: st.DrawFn) -> list[Any]:
    """Rows of one layout, a few of whose cells are changed, left away, or another layout's."""
    layout = draw(st.sampled_from(LAYOUTS))
    made = list[Any]()
    for _ in range(draw(st.integers(0, 4))):
        row = dict(draw(st.sampled_from((layout, layout, layout, draw(st.sampled_from(LAYOUTS))))))
        for name in draw(st.lists(st.sampled_from((*layout, *NAMES)), max_size=2)):
            row[name] = draw(CELLS)
        for name in draw(st.lists(st.sampled_from(tuple(row)), max_size=1)):
            del row[name]
        made.append(draw(st.sampled_from((row, row, row, row, draw(CELLS)))))
    return made


def as_json(given: list[Any]) -> bytes:
    return json.dumps(given).encode()


def as_keyed(given: list[Any]) -> bytes:
    return json.dumps({str(i): row for i, row in enumerate(given)}).encode()


def as_lines(given: list[Any]) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in given).encode(errors="surrogatepass")


def as_csv(given: list[Any]) -> bytes:
    text = io.StringIO()
    kept = [row for row in given if isinstance(row, dict)]
    writer = csv.DictWriter(text, list(dict.fromkeys(str(name) for row in kept for name in row)) or ["picture"])
    writer.writeheader()
    writer.writerows(kept)
    return text.getvalue().encode(errors="surrogatepass")


FORMS: dict[str, tuple[str, Callable[[list[Any]], bytes]]] = {
    "json": ("t.json", as_json), "keyed": ("t.json", as_keyed), "lines": ("t.jsonl", as_lines),
    "csv": ("t.csv", as_csv),
}  # fmt: skip
CHANGES = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=4)), max_size=3
)  # where, how many bytes go, which come


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures, and what is none: a pipe that no one writes to, links in a circle and out of the folder."""
    made = tmp_path_factory.mktemp("foils")
    for i in range(2):
        Image.new("RGB", (20, 10), (60 * i, 10, 200)).save(made / f"p{i}.png")
    os.mkfifo(made / "pipe")
    (made / "circle").symlink_to("circle")
    (made / "out.png").symlink_to("/etc/passwd")
    (made / "images").mkdir()
    return made


def check(path: Path, folder: Path) -> None:
    """Read a file with and without bad rows: it is usable, or refused in one sentence."""
    read = list[FoilFile]()
    for skip in (False, True):
        refused: ValueError | None = None
        try:
            read.append(read_foils(path, folder, skip=skip))
        except ValueError as error:
            refused = error
        if refused is not None:
            assert type(refused) is ValueError, repr(refused)  # ours, not a library's kind
            assert path.name in str(refused)
            assert len(str(refused)) < 4000
            assert str(refused).endswith("."), refused
    for found in read:
        table = found.table
        said = (*table.captions, *table.foils) if isinstance(table, FoilTable) else sum(table.captions, ())
        assert all(text.strip() and text.encode() for text in said)
        assert 0 <= int(table.rows.min())
        assert int(table.rows.max()) < len(found.pictures)
        assert len(table.captions) == len(found.rows) == len(table.rows)
        assert not set(found.rows) & set(found.left_out)
        assert all(one.path.is_file() and one.path.resolve().parent == folder.resolve() for one in found.pictures)
        assert all(one.box is None or (min(one.box[:2]) >= 0 and min(one.box[2:]) >= 1) for one in found.pictures)
    if len(read) == 2:  # nothing was bad, so nothing was left out
        assert read[1].table.captions == read[0].table.captions
        assert not read[1].left_out


def try_one(form: str, given: list[Any], changes: list[tuple[float, int, bytes]], folder: Path) -> None:
    name, write = FORMS[form]
    content = write(given)
    for where, gone, come in changes:
        at = int(where * len(content))
        content = content[:at] + come + content[at + gone :]
    path = folder / name
    path.write_bytes(content)
    check(path, folder)


@pytest.mark.parametrize("form", FORMS)
@given(given_rows=rows(), changes=CHANGES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_any_file_is_read_or_refused(form: str, given_rows: list[Any], changes: list[Any], folder: Path):
    try_one(form, given_rows, changes, folder)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@given(given_rows=rows(), changes=CHANGES)
@settings(
    max_examples=LONG, derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_any_file_is_read_or_refused_many_times(form: str, given_rows: list[Any], changes: list[Any], folder: Path):
    try_one(form, given_rows, changes, folder)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_rows_that_are_not_changed_are_read(form: str, layout: int, folder: Path):
    """The fuzz starts from files that are right."""
    name, write = FORMS[form]
    (folder / name).write_bytes(write([LAYOUTS[layout]] * 2))
    assert len(read_foils(folder / name, folder).table.captions) >= 2
