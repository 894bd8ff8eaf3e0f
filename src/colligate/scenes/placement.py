"""Where solids stand: apart from each other, inside the picture, or one hiding a stated part of another."""

from collections.abc import Sequence
from functools import lru_cache
from math import cos, dist, radians, sin

import torch
from jaxtyping import Float
from torch import Tensor

from colligate.scenes.looks import Point
from colligate.scenes.tracing import Body, Film, screen_position, towards_camera, visible_pixels

PLACES: tuple[Point, ...] = ((-2.036, 0.996), (1.21, 0.719), (0.9, -2.2))
"""Where slots stand: the first two as in the released pictures, the third in front on the left."""
GAP = 0.05
"""The least distance between objects on the floor."""
_AREA = ((-3.2, 3.2), (-3.0, 3.0))
"""Where scattered objects may stand: from and to, in x and y."""
SEARCH = Film(120, 90, 9)
"""The film of the search for a hidden fraction."""
_CLOSE = 0.006
"""How near the hidden fraction comes to the stated one, as measured on the film of the search."""


def scattered(right: float, far: float) -> Point:
    """A place on the floor from two numbers in [-1, 1).

    Example:
        >>> scattered(-1.0, 0.0)
        (-3.2, 0.0)
    """
    (west, east), (south, north) = _AREA
    return west + (east - west) * (right + 1) / 2, south + (north - south) * (far + 1) / 2


def trouble(bodies: Sequence[Body], film: Film) -> str | None:
    """Why solids can't stand where they do: they touch, or leave the picture; None where they can.

    Example:
        >>> trouble([Body("cube", (0.0, 0.0), 0.7), Body("cube", (1.0, 0.0), 0.7)], Film(320, 240, 1))
        'Objects 1 and 2 of a scene would touch at (0, 0) and (1, 0)'
    """
    for k, body in enumerate(bodies):
        for i, other in enumerate(bodies[:k]):
            if dist(body.place, other.place) < body.reach + other.reach + GAP:
                where = f"{_said(other.place)} and {_said(body.place)}"
                return f"Objects {i + 1} and {k + 1} of a scene would touch at {where}"
        right, down, unit = screen_position(body.place, body.radius, film)
        reach = unit * max(body.reach, body.radius)
        if min(right, down) < reach or right > film.width - reach or down > film.height - reach:
            return f"Object {k + 1} of a scene, at {_said(body.place)}, would leave the picture"
    return None


def hidden(bodies: Sequence[Body], film: Film, *, threads: int | None = None) -> Float[Tensor, " object"]:
    """Fraction of each solid's pixels that the others hide: 1 - visible / alone."""
    visible = visible_pixels(bodies, film, threads=threads)
    alone = torch.cat([visible_pixels([body], film, threads=threads) for body in bodies])
    return (1 - visible / alone).clamp(min=0)


@lru_cache(maxsize=4096)
def occluding(
    behind: Body, front: Body, wanted: float, *, film: Film = SEARCH, threads: int | None = None
) -> tuple[Body, Body]:
    """The two solids with the second put close to the first so that it hides the wanted fraction of its pixels.

    It's turned about the first, from straight towards the camera, where it hides most, to the side, where it hides
    nothing; the angle is found by false position on pictures, of the given size, that show which solid is seen.

    Raises:
        ValueError: the solid in front can't hide that much.
        ImportError: mitsuba isn't installed.
    """
    apart = behind.reach + front.reach + GAP
    alone = float(visible_pixels([behind], film, threads=threads)[0])

    def turned(angle: float) -> tuple[Body, Body]:
        x, y = behind.place
        at = radians(towards_camera(behind.place) + angle)
        place = (x + apart * cos(at), y + apart * sin(at))
        return behind, Body(front.solid, place, front.radius, front.turn, front.finish)

    def over(angle: float) -> float:
        return 1 - float(visible_pixels(turned(angle), film, threads=threads)[0]) / alone - wanted

    low, high = 0.0, 90.0
    more, less = over(low), over(high)
    if more < 0:
        raise ValueError(
            f"A {front.solid} hides at most {100 * (more + wanted):.0f} % of a {behind.solid} behind it here, not "
            f"{100 * wanted:.0f} %; "
            "take a smaller fraction."
        )
    for step in range(30):
        # False position, and bisection every third time, so that a bent curve can't hold one end for ever.
        angle = (low + high) / 2 if step % 3 == 2 or more == less else (high * more - low * less) / (more - less)
        found = over(angle)
        if abs(found) < _CLOSE:
            return turned(angle)
        if found > 0:
            low, more = angle, found
        else:
            high, less = angle, found
    return turned((low + high) / 2)


def _said(place: Point) -> str:
    return f"({place[0]:g}, {place[1]:g})"
