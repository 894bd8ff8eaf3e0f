"""Picture files of others: which are opened, found under which name, and what is told of them."""

import io
import os
import struct
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, PngImagePlugin

from colligate.scenes.decoding import MOST_PIXELS, open_picture
from colligate.scenes.files import unlisted
from colligate.scenes.sources import check_pictures, read_labels

Form = Literal["NFC", "NFD"]


def labels(folder: Path, *names: str) -> Path:
    path = folder / "mine.csv"
    rows = [f"{a},{b},{name}" for (a, b), name in zip((("a", "b"), ("b", "a"), ("a", "a")), names, strict=False)]
    path.write_text("\n".join(["slot1_c,slot2_c,picture", *rows]), encoding="utf-8")
    return path


def picture(path: Path, color: str = "red", size: tuple[int, int] = (4, 4)) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", size, color).save(path)


# ------------------------------------------------------------------------------------------------- what is not opened


def eps(path: Path) -> None:
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")


def chunked(path: Path, kind: bytes, data: bytes) -> None:
    """A PNG with one more chunk before its pixels."""
    held = io.BytesIO()
    Image.new("RGB", (4, 4)).save(held, format="PNG")
    whole, head = held.getvalue(), 8 + 25
    chunk = struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(whole[:head] + chunk + whole[head:])


def text_bomb(path: Path) -> None:
    chunked(path, b"zTXt", b"Comment\0\0" + zlib.compress(b"x" * 100_000_000, 9))


def broken_exif(path: Path) -> None:
    # Orientation as a rational without its numbers.
    chunked(path, b"eXIf", b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHI", 0x0112, 5, 1) + b"\xff\xff\xff\x7f\0\0\0\0")


def large(path: Path) -> None:
    Image.new("1", (10_000, MOST_PIXELS // 10_000 + 1)).save(path)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


OTHERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "eps": (eps, "its content is none of PNG, JPEG, WEBP, GIF, BMP, TIFF"),
    "icon": (lambda path: Image.new("RGB", (16, 16)).save(path, format="ICO"), "its content is none of PNG"),
    "text bomb": (text_bomb, r"can't be read \(Decompressed data too large"),
    "large": (large, "unpacks to more than 50,000,000 pixels"),
    "pipe": (pipe, "it is a pipe"),
    "device": (device, "it is a device"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_only_regular_files_of_six_formats_are_opened(tmp_path: Path, case: str) -> None:
    make, message = OTHERS[case]
    make(tmp_path / "a.png")
    with pytest.raises(ValueError, match=f"^Row 4: Picture .*{message}") as caught:
        open_picture(tmp_path / "a.png", 3)
    assert "\n" not in str(caught.value)


def test_whatever_a_decoder_raises_is_told_of_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "a.png")

    def broken(self: Image.Image) -> None:
        raise struct.error("unpack requires a buffer of 8 bytes")

    monkeypatch.setattr(Image.Image, "getexif", broken)
    with pytest.raises(ValueError, match=r"^Row 1: Picture .*a\.png can't be read \(unpack requires"):
        open_picture(tmp_path / "a.png", 0)


def test_broken_exif_data_end_in_a_picture_or_a_sentence(tmp_path: Path) -> None:
    broken_exif(tmp_path / "a.png")
    try:
        assert open_picture(tmp_path / "a.png", 0).size == (4, 4)
    except ValueError as error:
        assert "a.png can't be read" in str(error)  # noqa: PT017 - either is right, a traceback isn't


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_every_format_is_opened_whatever_the_file_is_called(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.img", format=kind)
    red, green, _ = np.asarray(open_picture(tmp_path / "a.img"))[0, 0].tolist()
    assert red > 200 > 50 > green


# -------------------------------------------------------------------------------------------------------------- names

NO_NAMES = {
    "data": ("data:image/png;base64,iVBORw0KGgo" + "A" * 5000, "holds a picture itself"),
    "bytes": ("b'x89PNG'", "holds a picture itself"),
    "struct": ("{'bytes': 1}", "holds a picture itself"),
    "address": ("https://example.org/a.png", "is an address, and nothing is fetched"),
    "long": ("a" * 300 + ".png", "is too long for a file name"),
    "very long": ("a/" * 3000 + "a.png", "is too long for a file name"),
    "shadow": ("._a.png", "is a shadow file"),
}


@pytest.mark.parametrize("case", NO_NAMES)
def test_cells_that_are_no_names_are_told_and_cut(tmp_path: Path, case: str) -> None:
    cell, message = NO_NAMES[case]
    with pytest.raises(ValueError, match=f"line 2, column picture: .*{message}") as caught:
        read_labels(labels(tmp_path, f'"{cell}"'))
    assert len(str(caught.value)) < 350


def test_pictures_inside_a_table_are_told(tmp_path: Path) -> None:
    held = [{"bytes": b"\x89PNG", "path": None}]
    table = pa.table({"slot1_c": ["a"], "slot2_c": ["b"], "picture": held})
    pq.write_table(table, tmp_path / "mine.parquet")
    with pytest.raises(ValueError, match="column picture holds 'struct"):
        read_labels(tmp_path / "mine.parquet")


def test_links_in_a_circle_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to("b.png")
    (tmp_path / "b.png").symlink_to("a.png")
    with pytest.raises(ValueError, match=r"column picture: 'a\.png' can't be followed"):
        read_labels(labels(tmp_path, "a.png"))


@pytest.mark.parametrize(("lies", "said"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_name_in_another_unicode_form_is_found(tmp_path: Path, lies: Form, said: Form) -> None:
    name = "\u00e9t\u00e9.png"
    picture(tmp_path / unicodedata.normalize(lies, name))
    world = read_labels(labels(tmp_path, unicodedata.normalize(said, name)))
    check_pictures(world)
    assert any("1 pictures of mine.csv (first: line 2) were found under a name in" in note for note in world.notes)


def test_a_name_with_the_other_separator_is_found(tmp_path: Path) -> None:
    picture(tmp_path / "in" / "a.png")
    world = read_labels(labels(tmp_path, "in\\a.png"))
    assert world.pictures == (tmp_path.resolve() / "in" / "a.png",)
    assert any("other separator" in note for note in world.notes)


def test_a_name_in_other_case_is_pointed_out(tmp_path: Path) -> None:
    picture(tmp_path / "A.png")
    if (tmp_path / "a.png").exists():
        pytest.skip("this file system doesn't tell case")
    with pytest.raises(ValueError, match=r"a\.png is missing; .* There is 'A\.png'; names must agree"):
        check_pictures(read_labels(labels(tmp_path, "a.png")))


def test_shadow_files_are_no_pictures(tmp_path: Path) -> None:
    for name in ("a.png", "._a.png", "other.png", ".hidden.png"):
        picture(tmp_path / name)
    (tmp_path / "Thumbs.db").write_bytes(b"x")
    assert [path.name for path in unlisted((tmp_path / "a.png",))] == ["other.png"]


# ------------------------------------------------------------------------------------------------- transparent parts


def test_content_that_vanishes_on_white_is_told(tmp_path: Path) -> None:
    for name, box in (("a.png", (0, 0, 2, 2)), ("b.png", (2, 2, 4, 4))):
        clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
        clear.paste((255, 255, 255, 255), box)
        clear.save(tmp_path / name)
    one = read_labels(labels(tmp_path, "a.png"))
    assert any("In 1 pictures (first: row 1) all content vanishes" in note for note in check_pictures(one))
    with pytest.raises(
        ValueError, match=r"the same as row 1's a\.png, once both are laid over white, .* vanishes; but"
    ):
        check_pictures(read_labels(labels(tmp_path, "a.png", "b.png")))


def test_content_that_stays_on_white_is_not_told(tmp_path: Path) -> None:
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    clear.paste((255, 0, 0, 255), (0, 0, 2, 2))
    clear.save(tmp_path / "a.png", pnginfo=PngImagePlugin.PngInfo())
    assert not any("vanishes" in note for note in check_pictures(read_labels(labels(tmp_path, "a.png"))))
