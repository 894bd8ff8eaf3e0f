"""Scenes as flat pictures: coloured shapes with a black outline on a plain ground.

The default canvas draws CLEVR-2D pixel for pixel as its authors released it; every setting beyond it is a nuisance or
a control (places, sizes, jitter, occlusion).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from math import cos, pi, sin, sqrt
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.looks import Color, Point, color_of, replicates, roles, set_apart, uniforms, words_of
from colligate.scenes.space import ConceptSpace, Scenes

if TYPE_CHECKING:
    import PIL.Image

RENDERER = 1
"""Version of the drawing; it changes whenever a pixel of any picture does."""

SHAPES = ("square", "triangle", "circle", "diamond", "pentagon", "hexagon", "star", "cross", "heart")
"""Words for shapes that can be drawn."""

_REACH = 2 / sqrt(3)
"""Half the width of the widest shape (the triangle) at radius 1."""


@dataclass(frozen=True, kw_only=True)
class Canvas:
    """Draw scenes as coloured shapes on a plain square.

    Slot k of K has its own place, also where other slots are empty: the places stand evenly on the middle row, 3/8 of
    the side apart (closer where more than two slots have to fit). Later slots are drawn over earlier ones. The same
    settings and seed give the same bytes under one Pillow version.

    Paper: arXiv:2605.31503, CLEVR-2D.   Differs: the defaults are that data set (0 pixels differ from the eight
    released pictures); more slots, shapes and colours, sizes, jitter and occlusion are added.

    Args:
        palette: word -> colour (a CSS name, "#rrggbb" or a triple), before CLEVR's palette and CSS names.
        sizes: word -> factor on the radius, for spaces with a size concept.
        color: name of the concept that is shown as colour; None looks for "color" or "colour".
        shape: name of the concept that is shown as shape; None looks for "shape".
        size: name of the concept that is shown as size; None looks for "size", which a space may lack.

    Raises:
        ValueError: a setting out of its range, or `overlap` beside `positions`.

    Example:
        >>> scenes = ConceptSpace(color=["red", "blue"], shape=["square", "circle"]).scenes([[0, 3]])
        >>> picture = Canvas().draw(scenes)[0]
        >>> picture.size, picture.getpixel((70, 112)), picture.getpixel((154, 112))
        ((224, 224), (173, 35, 35), (42, 75, 215))
    """

    side: int = 224
    """Width and height in pixels."""
    background: str | Color = (245, 245, 245)
    palette: Mapping[str, str | Color] = field(default_factory=dict[str, str | Color])
    outline: int = 2
    """Width of the black outline in pixels; 0 draws none."""
    radius: float | None = None
    """Half the side of a square in pixels; None takes 1/7 of the side, or what fits."""
    positions: tuple[Point, ...] | None = None
    """Centre of each slot in pixels from the upper left; None lays them out evenly."""
    overlap: float | None = None
    """Fraction of an object's width that its right neighbour's bounding box covers; None keeps objects apart."""
    jitter: float = 0.0
    """Each object's centre moves by up to this many pixels, left or right and up or down."""
    resize: float = 0.0
    """Each object's radius changes by up to this fraction, either way."""
    sizes: Mapping[str, float] = field(default_factory=lambda: {"small": 0.5, "medium": 0.75, "large": 1.0})
    smooth: int = 1
    """Draw this many times larger and average (anti-aliasing); 1 has hard edges, as the released pictures do."""
    seed: int = 0
    """Seed of jitter and resize, drawn for each object of each (scene, replicate) by itself."""
    color: str | None = None
    shape: str | None = None
    size: str | None = None

    def __post_init__(self) -> None:
        for name, low in (("side", 8), ("outline", 0), ("smooth", 1), ("jitter", 0), ("resize", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"Canvas {name} must be at least {low}; got {getattr(self, name)}.")
        if self.resize >= 1:
            raise ValueError(f"Canvas resize is a fraction below 1; got {self.resize}.")
        if self.radius is not None and self.radius < 1:
            raise ValueError(f"Canvas radius must be at least 1 pixel; got {self.radius}.")
        if self.overlap is not None and not 0 <= self.overlap < 1:
            raise ValueError(f"Canvas overlap is a fraction from 0 to below 1; got {self.overlap}.")
        if self.overlap is not None and self.positions is not None:
            raise ValueError("Canvas takes overlap or positions, not both; overlap is measured between even places.")
        if any(factor <= 0 for factor in self.sizes.values()):
            raise ValueError(f"Canvas sizes must be above 0; got {dict(self.sizes)}.")

    @property
    def varies(self) -> bool:
        """Whether replicates of a scene get different pictures."""
        return self.jitter > 0 or self.resize > 0

    def draw(self, scenes: Scenes, rows: Int[Tensor, " row"] | None = None) -> list["PIL.Image.Image"]:
        """One RGB picture for each scene, or for the given rows.

        A scene that stands in several rows is drawn with another jitter in each of them.

        Raises:
            ValueError: a word that can't be drawn (see `check`), more slots than `positions`, or objects that would
                leave the picture.
        """
        looks = _Looks(self, scenes.space)
        places, radius = self._layout(scenes.slots, largest=max(looks.factors))
        wanted = torch.arange(len(scenes)) if rows is None else torch.arange(len(scenes))[rows]
        numbers = replicates(scenes)[wanted].tolist() if self.varies else [0] * len(wanted)
        return [
            self._picture(looks, objects, number, places, radius)
            for objects, number in zip(scenes.objects[wanted].tolist(), numbers, strict=True)
        ]

    def check(self, space: ConceptSpace) -> None:
        """Make sure that every object of a space can be drawn and looks unlike every other.

        Raises:
            ValueError: no concept to show as colour or shape, a concept that can't be shown, a word that is no colour,
                shape or size, or two words that look alike.
        """
        _Looks(self, space)

    def describe(self) -> dict[str, object]:
        """JSON-able facts that determine the pictures, given the scenes."""
        return {"renderer": RENDERER, "pillow": version("pillow"), **asdict(self)}

    def _layout(self, slots: int, largest: float) -> tuple[list[Point], float]:
        """The centre of each slot, and the radius at factor 1."""
        spacing = self.side * min(3 / 8, 1 / slots)
        middle = (self.side - self.side % 2) / 2
        if self.positions is not None:
            if len(self.positions) < slots:
                raise ValueError(f"Canvas has {len(self.positions)} positions for {slots} slots; give one for each.")
            places, radius = list(self.positions[:slots]), self.radius or self.side / 7
        else:
            if self.overlap is None:
                radius = self.radius or spacing * 8 / 21
            else:
                fits = (self.side / 2 - 2) / ((slots - 1) * (1 - self.overlap) + _REACH)
                radius = self.radius or min(self.side / 7, fits)
                spacing = 2 * radius * (1 - self.overlap)
            places = [(middle + (k - (slots - 1) / 2) * spacing, middle) for k in range(slots)]
        reach = radius * largest * (1 + self.resize) * _REACH + self.jitter
        for k, (x, y) in enumerate(places):
            if min(x, y) - reach < 0 or max(x, y) + reach > self.side:
                raise ValueError(
                    f"An object in slot {k + 1}, at ({x:g}, {y:g}), can reach {reach:.1f} pixels from its centre and "
                    f"leave the picture of {self.side}; take a smaller radius, jitter or resize, or other positions."
                )
        return places, radius

    def _picture(
        self, looks: "_Looks", objects: list[int], replicate: int, places: list[Point], radius: float
    ) -> "PIL.Image.Image":
        from PIL import Image, ImageDraw

        picture = Image.new("RGB", (self.side * self.smooth, self.side * self.smooth), looks.background)
        pen = ImageDraw.Draw(picture)
        held = [o for o in objects if o >= 0]
        for slot, o in enumerate(objects):
            if o < 0:
                continue
            right, down, larger = uniforms(self.seed, held, replicate, slot) if self.varies else (0.0, 0.0, 0.0)
            x, y = (round(at + self.jitter * move) for at, move in zip(places[slot], (right, down), strict=True))
            reach = round(radius * looks.factor(o) * (1 + self.resize * larger))
            _object(pen, looks.shape(o), looks.color(o), (x, y), reach, outline=self.outline, scale=self.smooth)
        return picture.reduce(self.smooth) if self.smooth > 1 else picture


class _Looks:
    """How the objects of a space look on a canvas: colour, shape and factor on the radius."""

    def __init__(self, canvas: Canvas, space: ConceptSpace) -> None:
        found = roles(space, {"color": canvas.color, "shape": canvas.shape, "size": canvas.size}, "Canvas")
        self.background = color_of(canvas.background, canvas.palette)
        self.space = space
        self._colors, self._shapes, self._sizes = (words_of(space, found[role]) for role in ("color", "shape", "size"))
        self._found = found
        self._rgb = [color_of(word, canvas.palette) for word in self._colors]
        for word in self._shapes:
            if word not in SHAPES:
                raise ValueError(f"No shape is called {word!r}; the canvas draws {', '.join(SHAPES)}.")
        for word in self._sizes:
            if word not in canvas.sizes:
                raise ValueError(f"No size is called {word!r}; the canvas has {', '.join(canvas.sizes)} (set `sizes`).")
        self.factors = [float(canvas.sizes[word]) for word in self._sizes] or [1.0]
        set_apart(self._colors, self._rgb)
        set_apart(self._sizes, self.factors)
        if not canvas.outline and self.background in self._rgb:
            word = self._colors[self._rgb.index(self.background)]
            raise ValueError(f"{word!r} has the background's colour and no outline; change one of the three.")

    def color(self, object_id: int) -> Color:
        return self._rgb[self._value(object_id, "color")]

    def shape(self, object_id: int) -> str:
        return self._shapes[self._value(object_id, "shape")]

    def factor(self, object_id: int) -> float:
        return self.factors[self._value(object_id, "size")] if self._sizes else 1.0

    def _value(self, object_id: int, role: str) -> int:
        c = self.space.names.index(str(self._found[role]))
        for size in self.space.sizes[:c:-1]:
            object_id //= size
        return object_id % self.space.sizes[c]


def _object(
    pen: Any,
    shape: str,
    color: Color,
    centre: tuple[int, int],
    radius: int,
    *,
    outline: int,
    scale: int,
) -> None:
    """Draw one object; whole pixels throughout, since the released pictures have hard edges."""
    (x, y), black, width = centre, (0, 0, 0), outline * scale
    if shape in {"square", "circle"}:
        box = [(x - radius) * scale, (y - radius) * scale]
        box += [(x + radius + 1) * scale - 1, (y + radius + 1) * scale - 1]
        draw = pen.rectangle if shape == "square" else pen.ellipse
        draw(box, fill=color, outline=black if outline else None, width=width)
        return
    corners = [
        (int((x + radius * right) * scale + (scale - 1) / 2), int((y + radius * down) * scale + (scale - 1) / 2))
        for right, down in _corners(shape)
    ]
    if shape != "triangle":
        pen.polygon(corners, fill=color, outline=black if outline else None, width=max(width, 1))
        return
    pen.polygon(corners, fill=color)
    if outline:  # as the released triangles: strokes along the edges, not inside them
        pen.line([*corners, *corners[:2]], fill=black, width=width, joint="curve")


def _corners(shape: str) -> list[Point]:
    """Corners of a shape at radius 1, downwards positive, anticlockwise from the top."""
    if shape == "triangle":
        return [(0.0, -1.0), (-_REACH, 1.0), (_REACH, 1.0)]
    if shape == "cross":
        arm = [(-0.35, -1.0), (-0.35, -0.35), (-1.0, -0.35)]
        return [*arm, *((y, -x) for x, y in arm), *((-x, -y) for x, y in arm), *((-y, x) for x, y in arm)]
    if shape == "heart":
        turns = [2 * pi * i / 60 for i in range(60)]
        return [
            (-(sin(t) ** 3), -(13 * cos(t) - 5 * cos(2 * t) - 2 * cos(3 * t) - cos(4 * t) + 2.5) / 14.5) for t in turns
        ]
    count, inner = {"diamond": (4, 1.0), "pentagon": (5, 1.0), "hexagon": (6, 1.0), "star": (10, 0.45)}[shape]
    radii = [1.1 * (1.0 if i % 2 == 0 else inner) for i in range(count)]
    return [(-r * sin(2 * pi * i / count), -r * cos(2 * pi * i / count)) for i, r in enumerate(radii)]
