"""Flat pictures of many scenes at once: objects drawn once by a canvas, then laid over a ground by indexing.

A training step needs hundreds of new pictures; drawn one by one they would take longer than the step.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.pictures2d import SHAPES, Canvas
from colligate.scenes.space import ConceptSpace

COLORS = (
    "blue", "brown", "cyan", "gray", "green", "purple", "red", "yellow",
    "orange", "pink", "white", "black", "lime", "navy", "magenta", "olive",
)  # fmt: skip
"""Words for colours that can be told apart at a glance: CLEVR's eight, then eight of CSS."""


def sprite_space(colors: int = len(COLORS), shapes: int = len(SHAPES)) -> ConceptSpace:
    """The first so many colours and shapes.

    Raises:
        ValueError: more than there are, or fewer than two.

    Example:
        >>> sprite_space(3, 2).words
        (('blue', 'brown', 'cyan'), ('square', 'triangle'))
    """
    if not (2 <= colors <= len(COLORS) and 2 <= shapes <= len(SHAPES)):
        raise ValueError(
            f"Sprites have 2 to {len(COLORS)} colours and 2 to {len(SHAPES)} shapes; got {colors} and {shapes}."
        )
    return ConceptSpace(color=COLORS[:colors], shape=SHAPES[:shapes])


def sprite_canvas(side: int = 32, slots: int = 2, *, jitter: int = 0, resize: float = 0.0) -> Canvas:
    """A small canvas whose objects are as large as they can be while one pixel of jitter keeps them apart.

    Example:
        >>> canvas = sprite_canvas()
        >>> canvas.positions, canvas.radius
        (((8.0, 16.0), (24.0, 16.0)), 6.0)
    """
    place = side / slots
    radius = max(1.0, float(int((place / 2 - max(jitter, 1)) / (1 + resize) * 3**0.5 / 2)))
    positions = tuple((place * (k + 0.5), side / 2) for k in range(slots))
    return Canvas(
        side=side, radius=radius, positions=positions, outline=max(1, side // 48), jitter=float(jitter), resize=resize
    )


def sprite_captions() -> CaptionTemplate:
    """How scenes of sprites are said."""
    return CaptionTemplate("a {color} {shape}", single="{color} {shape}")


@dataclass(frozen=True, eq=False)
class SpriteSheet:
    """Every object of a space at every size, and how to lay them on a ground.

    Without jitter the pictures are the canvas's own, pixel for pixel. With jitter, objects move by whole pixels and
    change by whole pixels of radius, as the canvas moves and changes them, but drawn from the caller's generator.

    Attributes:
        canvas: what draws the objects; hard-edged (smooth=1), of a stated radius.
        space: the concepts.
        slots: most objects in a scene.

    Raises:
        ValueError: an anti-aliased canvas, one without radius, or one that can't draw the space.

    Example:
        >>> sheet = SpriteSheet(sprite_canvas(), sprite_space(3, 2), 2)
        >>> scenes = sheet.space.scenes([[0, 3], [5, -1]])
        >>> pixels = sheet.draw(scenes.objects)
        >>> pixels.shape, pixels.dtype
        (torch.Size([2, 3, 32, 32]), torch.uint8)
    """

    canvas: Canvas
    space: ConceptSpace
    slots: int

    def __post_init__(self) -> None:
        if self.canvas.smooth != 1 or self.canvas.radius is None:
            raise ValueError("Sprites have hard edges and a stated size; give a canvas with smooth=1 and a radius.")
        self.canvas.check(self.space)
        self.canvas.draw(self.space.scenes([[0] * self.slots]))  # whether all slots fit, with their jitter

    @property
    def radii(self) -> tuple[int, ...]:
        """Radii in whole pixels that objects can have, smallest first."""
        radius, change = self.canvas.radius or 1.0, self.canvas.resize
        return tuple(range(round(radius * (1 - change)), round(radius * (1 + change)) + 1))

    @property
    def reach(self) -> int:
        """How far objects may move from their place."""
        return int(self.canvas.jitter)

    @cached_property
    def ground(self) -> UInt8[Tensor, "3"]:
        """The color behind the objects."""
        empty = self._drawn(self.canvas.background, self.radii[0], 0)
        return empty[0, :, 0, 0].clone()

    @cached_property
    def sprites(self) -> UInt8[Tensor, "row four"]:
        """Red, green, blue and cover (1 or 0) of every pixel: slot by slot, radius by radius, object by object.

        Each sprite stands on a canvas that is wider by twice the reach, so that a picture is a window on it.
        """
        parts: list[Tensor] = []
        for slot in range(self.slots):
            for radius in self.radii:
                light, dark = (self._drawn(ground, radius, slot) for ground in ((255, 255, 254), (1, 2, 3)))
                cover = (light == dark).all(1, keepdim=True)
                parts.append(torch.cat([dark * cover, cover.to(torch.uint8)], 1))
        padded = torch.nn.functional.pad(torch.cat(parts), [self.reach] * 4)
        return padded.permute(0, 2, 3, 1).reshape(-1, 4).contiguous()

    def _drawn(self, ground: object, radius: int, slot: int) -> UInt8[Tensor, "object 3 high wide"]:
        import numpy as np

        still = replace(self.canvas, background=ground, radius=float(radius), jitter=0.0, resize=0.0)
        objects = torch.full((self.space.num_objects, self.slots), -1)
        objects[:, slot] = torch.arange(self.space.num_objects)
        pictures = still.draw(self.space.scenes(objects))
        return torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures])).permute(0, 3, 1, 2)

    def draw(
        self, objects: Int[Tensor, "scene slot"], generator: torch.Generator | None = None
    ) -> UInt8[Tensor, "scene 3 high wide"]:
        """A picture of each scene, given object ids (negative: an empty slot).

        Args:
            objects: on any device; pictures come out there.
            generator: of the moves and sizes; None draws every object in its place at the canvas's radius.
        """
        device, side, reach = objects.device, self.canvas.side, self.reach
        wide, middle = side + 2 * reach, len(self.radii) // 2
        sprites, num = self._on(device), self.space.num_objects
        row = torch.arange(side, device=device)
        window = row[:, None] * wide + row
        pixels = self.ground.to(device).expand(len(objects), side, side, 3)
        for slot in range(objects.shape[1]):
            of_slot = objects[:, slot]
            size, shift = torch.full_like(of_slot, middle), torch.full_like(of_slot, reach * wide + reach)
            if generator is not None:
                size = torch.randint(len(self.radii), of_slot.shape, generator=generator, device=device)
                moves = torch.randint(2 * reach + 1, (2, len(of_slot)), generator=generator, device=device)
                shift = moves[0] * wide + moves[1]
            sprite = (slot * len(self.radii) + size) * num + of_slot.clamp(min=0)
            found = sprites[(sprite * wide * wide + shift)[:, None, None] + window]
            covered = (found[..., 3:] > 0) & (of_slot >= 0)[:, None, None, None]
            pixels = torch.where(covered, found[..., :3], pixels)
        return pixels.permute(0, 3, 1, 2).contiguous()

    def _on(self, device: torch.device) -> Tensor:
        if self.sprites.device != device:
            self.__dict__["sprites"] = self.sprites.to(device)
        return self.sprites


def as_floats(pixels: UInt8[Tensor, "... 3 high wide"]) -> Float[Tensor, "... 3 high wide"]:
    """Pixels as networks read them: from -1 to 1."""
    return pixels.float() / 127.5 - 1
