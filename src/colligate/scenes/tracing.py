"""Light in a small world of solids, traced by Mitsuba: what a camera sees of objects on a gray floor.

Camera, floor and lamps are those of the pictures that the paper's authors released, fitted to them
(docs/pictures.md). A place is (x, y) on the floor, in units in which an object is about 1.4 wide.

Light that bounces twice at most off convex bodies is multilinear in their reflectances: no path meets one body twice.

    picture(a_1, ..., a_K) = sum over subsets S of at most 2 bodies:  c_S prod_{k in S} a_k

So a few *layers*, traced with reflectances 0.02 or 0.9, give the picture for all colours without tracing again, and
exactly so, since all layers follow the same paths (the same random numbers).
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from math import atan, degrees, sqrt
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from colligate.scenes.looks import Point

Finish = Literal["matte", "metal"]
"""Whether a body's surface is chalky or a rough mirror."""
Solid = Literal["cube", "cylinder", "sphere"]
"""What a body can be."""

Reflectance = tuple[float, float, float]
"""What share of red, green and blue light a surface sends back."""

TRACER = 1
"""Version of the scene and of the tracing; it changes whenever a pixel of any picture does."""


@dataclass(frozen=True)
class Body:
    """One object on the floor.

    Attributes:
        solid: its shape.
        place: where its centre stands.
        radius: half its height.
        turn: degrees about the vertical.
        finish: its surface.
    """

    solid: Solid
    place: Point
    radius: float
    turn: float = 0.0
    finish: Finish = "matte"

    @property
    def reach(self) -> float:
        """Radius of the circle on the floor that holds it."""
        return self.radius * (sqrt(2) if self.solid == "cube" else 1.0)


@dataclass(frozen=True)
class Film:
    """What the picture is taken on.

    Attributes:
        width: in pixels.
        height: in pixels.
        rays: light paths for each pixel.
        seed: seed of the paths.
    """

    width: int
    height: int
    rays: int
    seed: int = 0


# The camera, as fitted: where it stands, and its axes (right, up, backwards) in the world's.
_EYE = (7.48113, -6.50764, 5.34367)
_ANGLES = (63.5593, 0.62, 46.6919)
_FOCAL = 366.2 / 320
"""Focal length in widths of the film."""
_FLOOR = 0.5
"""Reflectance of the floor."""
_AMBIENT = (0.1361, 0.1359, 0.1356)
"""What an open floor sends back of the light that comes from everywhere."""
_LAMPS = (
    ((6.62, -2.32, 3.57), (-38.08, 11.41, 0.0), (7.122, 6.585, 5.7)),
    ((-5.41, -3.15, 2.75), (0.43, 3.93, 0.0), (1.302, 1.425, 1.812)),
    ((-0.79, 3.7, 5.25), (5.25, -2.9, -0.08), (2.808, 2.781, 2.697)),
)
"""Square lamps: where they stand, where they aim, and what an open floor sends back at distance 1, straight below."""
_LAMP = 0.3
"""Half the side of a lamp."""
_BLUR = 0.7
"""Standard deviation of the film's filter in pixels of a picture 320 wide."""
_PAINT = 0.64
"""Reflectance of a matte body painted (255, 255, 255)."""
_CUBE = 0.98
"""Half the side of a cube, in radii of a sphere."""
_ROUNDING = {"cube": 0.1, "cylinder": 0.06}
"""Radius of the edges, in radii of the body."""
LOW, HIGH = 0.02, 0.9
"""Reflectances of the layers. Neither is 0 or 1: a path that carries nothing would be cut, and follow other paths."""


def layers_of(count: int) -> tuple[tuple[int, ...], ...]:
    """Which bodies are bright in each layer, for a picture of so many bodies.

    Example:
        >>> layers_of(2), len(layers_of(3))
        (((), (0,), (1,), (0, 1)), 7)
    """
    return tuple(bright for size in range(3) for bright in combinations(range(count), size))


def layer_weights(reflectances: Float[Tensor, "object channel"]) -> Float[Tensor, "layer channel"]:
    """Weight of each layer in the picture of bodies with the given reflectances.

    Example:
        >>> layer_weights(torch.full((2, 3), HIGH))[:, 0].abs().round(decimals=6).tolist()
        [0.0, 0.0, 0.0, 1.0]
    """
    layers = layers_of(len(reflectances))

    def terms(values: Tensor) -> Tensor:
        return torch.stack([values[list(held)].prod(0) for held in layers])

    nodes = torch.full((len(reflectances), len(layers)), LOW, dtype=torch.float64)
    for i, bright in enumerate(layers):
        nodes[list(bright), i] = HIGH
    return torch.linalg.solve(terms(nodes), terms(reflectances.double()))


def reflectance_of(color: tuple[int, int, int], finish: Finish) -> tuple[float, float, float]:
    """Reflectance of a body in a colour.

    CLEVR's colours are screen values that its renderer took for reflectances; so does this.
    """
    red, green, blue = ((_PAINT if finish == "matte" else 1.0) * part / 255 for part in color)
    return red, green, blue


def trace(
    bodies: Sequence[Body],
    reflectances: Sequence[tuple[float, float, float]],
    film: Film,
    *,
    threads: int | None = None,
) -> Float[Tensor, "row column channel"]:
    """Linear radiance of a picture; the same for any number of threads.

    Raises:
        ImportError: mitsuba isn't installed.
    """
    with _mitsuba(threads) as mi:
        solids = {
            f"body{k}": _solid(mi, body, _surface(mi, body.finish, reflectance))
            for k, (body, reflectance) in enumerate(zip(bodies, reflectances, strict=True))
        }
        picture = _developed(mi, {**_set(mi, film), **solids}, film)
    metal = any(body.finish == "metal" for body in bodies)
    return _blurred(_despeckled(picture) if metal else picture, film.width)


def trace_layers(
    bodies: Sequence[Body], film: Film, *, threads: int | None = None, told: Callable[[], None] | None = None
) -> Float[Tensor, "layer row column channel"]:
    """One picture for each of `layers_of(len(bodies))`; `told` is called after each."""
    traced: list[Tensor] = []
    for bright in layers_of(len(bodies)):
        levels = [HIGH if k in bright else LOW for k in range(len(bodies))]
        traced.append(trace(bodies, [(a, a, a) for a in levels], film, threads=threads))
        if told is not None:
            told()
    return torch.stack(traced)


def visible_pixels(bodies: Sequence[Body], film: Film, *, threads: int | None = None) -> Float[Tensor, " object"]:
    """How many pixels each body covers in the picture, those hidden behind others left out.

    Measured by a picture in which each body is seen as its own index, not by light.

    Raises:
        ImportError: mitsuba isn't installed.
    """
    covered: list[Tensor] = []
    with _mitsuba(threads) as mi:
        for start in range(0, len(bodies), 3):  # three bodies at a time: red, green, blue
            colors = [tuple(float(k - start == c) for c in range(3)) for k in range(len(bodies))]
            solids = {
                f"body{k}": _solid(mi, body, _surface(mi, "matte", color))
                for k, (body, color) in enumerate(zip(bodies, colors, strict=True))
            }
            seen = {"type": "aov", "aovs": "index:albedo"}
            picture = _developed(mi, {**_set(mi, film, seen, floor=0.0), **solids}, film)
            covered.append(picture[..., -3:].double().sum((0, 1)))
    return torch.cat(covered)[: len(bodies)]


def screen_position(place: Point, height: float, film: Film) -> tuple[float, float, float]:
    """Right and down in pixels of a point above the floor, and how many pixels a unit is there."""
    axes = _axes()
    x, y, z = axes.T @ (np.array([*place, height]) - np.array(_EYE))
    focal = _FOCAL * film.width
    return film.width / 2 - focal * x / z, film.height / 2 + focal * y / z, float(-focal / z)


def towards_camera(place: Point) -> float:
    """Direction on the floor from a place to the camera, in degrees."""
    return degrees(np.arctan2(_EYE[1] - place[1], _EYE[0] - place[0]))


def mitsuba_version() -> str | None:
    """The installed version; None where there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mitsuba")
    except PackageNotFoundError:
        return None


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _mitsuba(threads: int | None) -> Generator[Any, None, None]:
    """Mitsuba in the variant used here; the caller's own variant and threads come back after it."""
    try:
        import drjit
        import mitsuba as mi
    except ImportError as error:
        raise ImportError(
            f"Pictures in 3-D need mitsuba ({error}); install it with pip install 'colligate[render3d]', or choose "
            "clevr2d, whose pictures need nothing more."
        ) from None
    variant, before = mi.variant(), drjit.thread_count()
    try:
        mi.set_variant("scalar_rgb")
        drjit.set_thread_count(threads or cores())
        yield mi
    finally:
        drjit.set_thread_count(before)
        if variant is not None:
            mi.set_variant(variant)


def _axes() -> Any:
    x, y, z = np.radians(_ANGLES)
    about_x = [[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]]
    about_y = [[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]]
    about_z = [[np.cos(z), -np.sin(z), 0], [np.sin(z), np.cos(z), 0], [0, 0, 1]]
    return np.array(about_z) @ np.array(about_y) @ np.array(about_x)


def _set(mi: Any, film: Film, seen: Mapping[str, object] | None = None, floor: float = _FLOOR) -> dict[str, object]:
    """Camera, floor and lamps as Mitsuba describes them."""
    turn, axes, eye = mi.ScalarTransform4f, _axes(), np.array(_EYE)
    # A box filter keeps pixels apart, so that threads can't change their sums.
    picture = {"type": "hdrfilm", "width": film.width, "height": film.height, "pixel_format": "rgb"}
    parts: dict[str, object] = {
        "type": "scene",
        "integrator": {"type": "path", "max_depth": 3} if seen is None else seen,
        "floor": {"type": "rectangle", "to_world": turn().scale(200.0), "bsdf": _surface(mi, "matte", (floor,) * 3)},
        "ambient": {"type": "constant", "radiance": _rgb([part / _FLOOR for part in _AMBIENT])},
        "camera": {
            "type": "perspective",
            "fov": degrees(2 * atan(0.5 / _FOCAL)),
            "fov_axis": "x",
            "to_world": turn().look_at(_EYE, (eye - axes[:, 2]).tolist(), axes[:, 1].tolist()),
            "film": {**picture, "rfilter": {"type": "box"}},
            "sampler": {"type": "multijitter", "sample_count": film.rays},
        },
    }
    for i, (place, aim, sent) in enumerate(_LAMPS):
        radiance = [part * np.pi / _FLOOR / (2 * _LAMP) ** 2 for part in sent]
        parts[f"lamp{i}"] = {
            "type": "rectangle",
            "to_world": turn().look_at(place, aim, [0, 0, 1]) @ turn().scale(_LAMP),
            "emitter": {"type": "area", "radiance": _rgb(radiance)},
        }
    return parts


def _rgb(parts: Sequence[float]) -> dict[str, object]:
    return {"type": "rgb", "value": [float(part) for part in parts]}


def _surface(mi: Any, finish: Finish, reflectance: tuple[float, ...]) -> Any:
    if finish == "matte":
        return mi.load_dict({"type": "diffuse", "reflectance": _rgb(reflectance)})
    return mi.load_dict({"type": "principled", "base_color": _rgb(reflectance), "metallic": 1.0, "roughness": 0.25})


def _solid(mi: Any, body: Body, surface: Any) -> Any:
    if body.solid == "sphere":
        centre = [*map(float, body.place), body.radius]
        return mi.load_dict({"type": "sphere", "center": centre, "radius": body.radius, "bsdf": surface})
    made = _rounded_cube if body.solid == "cube" else _rounded_cylinder
    points, normals, faces = made(_ROUNDING[body.solid])
    radius = body.radius * (_CUBE if body.solid == "cube" else 1.0)
    angle = np.radians(body.turn)
    turned = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    given = mi.Properties()
    given["bsdf"] = surface
    mesh = mi.Mesh("body", len(points), len(faces), has_vertex_normals=True, props=given)
    fields = mi.traverse(mesh)
    placed = points @ turned.T * radius + np.array([*body.place, radius])
    fields["vertex_positions"] = placed.astype(np.float32).ravel()
    fields["vertex_normals"] = (normals @ turned.T).astype(np.float32).ravel()
    fields["faces"] = faces.astype(np.uint32).ravel()
    fields.update()
    return mesh


def _grid_faces(rows: int, columns: int, start: int = 0, closed: bool = False) -> Any:
    """Triangles between neighbours of a grid of points; a closed grid joins its last row to its first."""
    i, j = np.meshgrid(np.arange(rows if closed else rows - 1), np.arange(columns - 1), indexing="ij")
    here, next_row = (start + i * columns + j).ravel(), (start + (i + 1) % rows * columns + j).ravel()
    first, second = [here, next_row, next_row + 1], [here, next_row + 1, here + 1]
    return np.concatenate([np.stack(first, 1), np.stack(second, 1)])


def _rounded_cube(rounding: float, steps: int = 6) -> tuple[Any, Any, Any]:
    """Points, normals and triangles of a cube from -1 to 1 with rounded edges."""
    inner = 1 - rounding
    edge = np.linspace(inner, 1, steps + 1)
    line = np.concatenate([-edge[::-1], edge])
    first, second = np.meshgrid(line, line, indexing="ij")
    points, faces = [], []
    for axis in range(3):
        for side in (-1, 1):
            face = np.zeros((*first.shape, 3))
            face[..., axis], face[..., (axis + 1) % 3], face[..., (axis + 2) % 3] = side, first, second * side
            faces.append(_grid_faces(*first.shape, start=len(points) * first.size))
            points.append(face.reshape(-1, 3))
    flat = np.concatenate(points)
    held = flat.clip(-inner, inner)
    normals = (flat - held) / np.linalg.norm(flat - held, axis=1, keepdims=True)
    return held + rounding * normals, normals, np.concatenate(faces)


def _rounded_cylinder(rounding: float, around: int = 96, steps: int = 6) -> tuple[Any, Any, Any]:
    """Points, normals and triangles of a cylinder of radius and half height 1 with rounded edges."""
    bend = np.linspace(0, np.pi / 2, steps)
    top = [(0.0, 1.0, 0.0, 1.0)]
    top += [(1 - rounding * (1 - np.sin(b)), 1 - rounding * (1 - np.cos(b)), np.sin(b), np.cos(b)) for b in bend]
    profile = np.array(top + [(r, -z, nr, -nz) for r, z, nr, nz in reversed(top)])
    angle = np.arange(around)[:, None] * 2 * np.pi / around

    def turned(out: Any, up: Any) -> Any:
        return np.stack(np.broadcast_arrays(np.cos(angle) * out, np.sin(angle) * out, up + 0 * angle), -1).reshape(
            -1, 3
        )

    points, normals = turned(profile[:, 0], profile[:, 1]), turned(profile[:, 2], profile[:, 3])
    return points, normals, _grid_faces(around, len(profile), closed=True)[:, ::-1]


def _developed(mi: Any, parts: dict[str, object], film: Film) -> Float[Tensor, "row column channel"]:
    # Loaded in parallel or optimized, lamps come in the order of their addresses, and the noise differs every time.
    scene = mi.load_dict(parts, parallel=False, optimize=False)
    return torch.from_numpy(np.array(mi.render(scene, spp=film.rays, seed=film.seed), dtype=np.float32))


def _despeckled(picture: Float[Tensor, "row column channel"]) -> Float[Tensor, "row column channel"]:
    """Without lone bright pixels, the rare paths from the floor over a metal into a lamp.

    No pixel stays brighter than the third brightest of its eight neighbors. This is the one step that isn't linear, so
    pictures made of layers are exact for matte bodies only.
    """
    padded = torch.nn.functional.pad(picture.permute(2, 0, 1)[None], (1, 1, 1, 1), mode="reflect")
    around = padded.unfold(2, 3, 1).unfold(3, 3, 1)[0].flatten(3)
    limit = around[..., [0, 1, 2, 3, 5, 6, 7, 8]].sort(-1, descending=True).values[..., 2]
    return torch.minimum(picture, limit.permute(1, 2, 0))


def _blurred(picture: Float[Tensor, "row column channel"], width: int) -> Float[Tensor, "row column channel"]:
    """The film's filter: a Gaussian, in linear light."""
    spread = _BLUR * width / 320
    reach = int(3 * spread + 1)
    kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / spread) ** 2)
    kernel = (kernel / kernel.sum()).reshape(1, 1, -1, 1)
    planes = picture.permute(2, 0, 1)[:, None]
    for line in (kernel, kernel.transpose(2, 3)):
        pad = [reach if n > 1 else 0 for n in reversed(line.shape[2:]) for _ in range(2)]
        planes = torch.conv2d(torch.nn.functional.pad(planes, pad, mode="replicate"), line)
    return planes[:, 0].permute(1, 2, 0).contiguous()
