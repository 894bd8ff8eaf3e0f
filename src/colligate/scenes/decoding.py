"""Opening picture files of the user's, so that nothing is shown wrongly and nothing else is started.

Six formats are ever decoded (others may start programs: an EPS file does, whatever it is called), from regular files
whose size is looked at before their pixels are.
"""

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from colligate.scenes.regular import read_regular

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""Formats that are decoded, by Pillow's names."""
MOST_PIXELS = 50_000_000
"""Pixels up to which a picture is opened: with transparent parts it takes 15 bytes for each on the way."""
_ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held."""


class Decoded(NamedTuple):
    """A picture, and what was done to have it.

    Attributes:
        picture: as RGB.
        mode: its mode in the file.
        turned: whether it was turned as its EXIF data say.
        vanished: whether nothing is left of it once its transparent parts lie over white.
    """

    picture: "Image"
    mode: str
    turned: bool
    vanished: bool


def open_picture(path: Path, row: int | None = None) -> "Image":
    """A picture file as RGB, turned as its EXIF data say; transparent parts are laid over white.

    Args:
        path: the file.
        row: the row that names it, for errors.

    Raises:
        ValueError: the file is missing, no regular file, truncated, no picture in one of the formats, animated, has
            more than 8 bits a channel, or would unpack to more pixels than are opened (a decompression bomb).
    """
    return decode(path, row).picture


def decode(path: Path, row: int | None = None) -> Decoded:
    """The picture with what was done to have it.

    Raises:
        ValueError: as `open_picture`; names the row.
    """
    try:
        return _decoded(path)
    except ValueError as error:
        raise ValueError(str(error) if row is None else f"Row {row + 1}: {error}") from None


def _decoded(path: Path) -> Decoded:
    from PIL import Image

    try:
        content = read_regular(path, "Picture ")
    except FileNotFoundError:
        raise ValueError(f"Picture {path} is missing; put it there or leave its row out.") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a decoder overlooks, the picture tells
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture, mode, turned = _upright(content, path)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(
            f"Picture {path} unpacks to more than {MOST_PIXELS:,} pixels, like a decompression bomb; give a "
            "smaller one."
        ) from None
    except Image.UnidentifiedImageError:
        raise ValueError(
            f"Picture {path} can't be read (its content is none of {', '.join(FORMATS)}); it is truncated, broken or "
            "no picture, or must be saved in one of these formats."
        ) from None
    except (MemoryError, _RefusalError):
        raise
    except Exception as error:  # decoders raise whatever they like (struct.error, TypeError, ...), always of the input
        said = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ValueError(f"Picture {path} can't be read ({said}); it is truncated, broken or no picture.") from None
    if picture.mode.startswith(("I", "F")):
        raise ValueError(f"Picture {path} has more than 8 bits a channel ({picture.mode}); save it as 8-bit RGB.")
    if not picture.has_transparency_data:
        return Decoded(picture.convert("RGB"), mode, turned, vanished=False)
    laid = picture.convert("RGBA")
    picture = Image.alpha_composite(Image.new("RGBA", laid.size, "white"), laid)
    vanished = picture.getcolors(1) is not None and laid.getcolors(1) is None
    return Decoded(picture.convert("RGB"), mode, turned, vanished)


def _upright(content: bytes, path: Path) -> tuple["Image", str, bool]:
    """The picture turned as its EXIF data say, its mode, and whether it was turned."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
        if opened.width * opened.height > MOST_PIXELS:
            raise Image.DecompressionBombError
        # A camera's MPO file holds the picture first and previews after it.
        if getattr(opened, "n_frames", 1) > 1 and opened.format != "MPO":
            raise _RefusalError(f"Picture {path} is animated or has several pages; give one of them.")
        opened.load()
        turned = opened.getexif().get(_ORIENTATION, 1) not in (0, 1)
        return ImageOps.exif_transpose(opened), opened.mode, turned


class _RefusalError(ValueError):
    """A sentence of ours, raised among the library's."""
