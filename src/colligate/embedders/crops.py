"""What a model's preprocessing shows of a picture: a centre crop may cut objects off."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from colligate.embedders.towers import NetworkTower, Tower

if TYPE_CHECKING:
    from PIL.Image import Image

FAINT = 24
"""Steps of 256 by which a pixel must differ from the picture's border to stand out."""


@dataclass(frozen=True)
class Seen:
    """How much of some pictures a tower is shown.

    Attributes:
        shares: of each picture, the share of what stands out from its background.
        box: left, top, right and bottom of the part of the first picture that is shown, as shares of width and height.
    """

    shares: tuple[float, ...]
    box: tuple[float, float, float, float]

    @property
    def sentence(self) -> str | None:
        """What a reader should know; None where nothing is cut off."""
        if min(self.shares) > 0.995:
            return None
        mean, least = sum(self.shares) / len(self.shares), min(self.shares)
        width, height = self.box[2] - self.box[0], self.box[3] - self.box[1]
        return (
            f"The model's preprocessing crops pictures to {width:.0%} of their width and {height:.0%} of their height: "
            f"it shows {mean:.0%} of what stands out from the background (of {len(self.shares)} pictures; the worst: "
            f"{least:.0%}). Pad them to the shape that the model takes."
        )


def seen_of(tower: Tower, pictures: Sequence["Image"]) -> Seen | None:
    """How much of some pictures a tower's preprocessing shows; None where that can't be seen from outside.

    A picture whose grey grows from left to right, and one from top to bottom, are prepared as the pictures are: which
    greys come out says which part was shown, whatever the steps of preparing are. Black and white say what the greys
    are after normalisation; where both come out the same, there is padding.

    Args:
        tower: one that reads pictures.
        pictures: to be shown.
    """
    if not isinstance(tower, NetworkTower) or tower.kind != "picture" or not hasattr(tower.reader, "pixels"):
        return None
    boxes = dict[tuple[int, int], tuple[float, float, float, float]]()
    shares = list[float]()
    for picture in pictures:
        if picture.size not in boxes:
            boxes[picture.size] = _box(tower.reader, picture.size)
        shares.append(_share(picture, boxes[picture.size]))
    return Seen(tuple(shares), boxes[pictures[0].size]) if shares else None


def _box(reader: Any, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """The part of a picture of this size that is shown, as shares of its width and height."""
    from PIL import Image

    def prepared(grey: Any) -> Tensor:
        return reader.pixels(
            [Image.fromarray(np.broadcast_to(grey, size[::-1]).astype(np.uint8)).convert("RGB")]
        ).float()

    black, white = (prepared(np.array(grey)) for grey in (0, 255))
    shown = (white - black).abs() > 1e-6
    ends = list[float]()
    for ramp in (np.linspace(0, 255, size[0])[None, :], np.linspace(0, 255, size[1])[:, None]):
        place = ((prepared(ramp) - black)[shown] / (white - black)[shown]).clamp(0, 1)
        ends += [float(place.min()), float(place.max())]
    left, right, top, bottom = (0.0 if end < 0.02 else 1.0 if end > 0.98 else end for end in ends)
    return left, top, right, bottom


def _share(picture: "Image", box: tuple[float, float, float, float]) -> float:
    """The share of a picture's content that lies in a part of it."""
    pixels = torch.from_numpy(np.array(picture.convert("RGB"))).int()
    border = torch.cat([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    content = ((pixels - border.median(0).values).abs() > FAINT).any(2)
    if content.float().mean() < 0.001:
        content = torch.ones_like(content)  # nothing stands out: all of it counts
    height, width = content.shape
    left, right = round(box[0] * width), round(box[2] * width)
    top, bottom = round(box[1] * height), round(box[3] * height)
    return float(content[top:bottom, left:right].sum() / content.sum())
