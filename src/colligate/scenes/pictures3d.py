"""Scenes as photographs: solids on a gray floor, lit and seen as the paper's CLEVR pictures are.

The default studio takes those pictures; every setting beyond it is a nuisance or a control (places, sizes, materials,
occlusion). Needs mitsuba (`pip install 'colligate[render3d]'`). What was traced is kept on disk.
"""

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from colligate.records import write_atomic
from colligate.scenes.looks import Color, Point, color_of, replicates, roles, set_apart, uniforms, words_of
from colligate.scenes.placement import PLACES, hidden, occluding, scattered, trouble
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.tracing import (
    TRACER,
    Body,
    Film,
    Finish,
    Reflectance,
    Solid,
    layer_weights,
    layers_of,
    mitsuba_version,
    reflectance_of,
    trace,
    trace_layers,
)

if TYPE_CHECKING:
    import PIL.Image

Report = Callable[[str, int, int], None]
"""Called with a stage, how many traces are done, and how many there are."""

SOLIDS: Mapping[str, Solid] = {"cube": "cube", "cylinder": "cylinder", "sphere": "sphere", "ball": "sphere"}
"""Words for shapes that can be shown."""
FINISHES: Mapping[str, Finish] = {"matte": "matte", "rubber": "matte", "metal": "metal"}
"""Words for materials that can be shown."""
_STEPS = 65_535
"""Steps of linear light from none to full."""
_HEIGHT = 0.708
"""Half an object's height at size 1, as in the released pictures."""


@dataclass(frozen=True, kw_only=True)
class Studio:
    """Photograph scenes as coloured solids on a gray floor.

    Slot k has its own place, also where other slots are empty. Where places don't vary, all pictures of the same
    shapes are made of a few traced layers, exactly (`tracing`); where they do, each is traced by itself. Noise has the
    same seed in all pictures. The same settings and seed give the same bytes on one machine under one version of
    mitsuba, whatever the number of threads.

    Paper: arXiv:2605.31503, CLEVR.   Differs: traced by Mitsuba, not Blender; camera, lamps, places and paint are
    fitted to the eight released pictures (docs/pictures.md says how closely); three objects, sizes, materials, other
    places and occlusion are added.

    Args:
        palette: word -> color, before CLEVR's palette and CSS names.
        sizes: word -> factor on the height, for spaces with a size concept.
        color: name of the concept that is shown as color; None looks for "color" or "colour".
        shape: name of the concept that is shown as shape; None looks for "shape".
        size: name of the concept that is shown as size; None looks for "size", which a space may lack.
        material: name of the concept that is shown as material; None looks for "material", which a space may lack.

    Raises:
        ValueError: a setting out of its range, or `hidden` beside places that vary.

    Example:
        >>> space = ConceptSpace(color=["red", "blue"], shape=["cube", "sphere"])
        >>> Studio().bodies(space.scenes([[0, 3]]))[0][1].solid
        'sphere'
    """

    width: int = 320
    """Width of a picture in pixels."""
    height: int = 240
    """Height of a picture in pixels."""
    rays: int = 64
    """Light paths for each pixel; noise falls with their square root or faster."""
    positions: tuple[Point, ...] | Literal["scatter"] | None = None
    """Where each slot stands on the floor; "scatter" draws places for each scene; None takes the released ones."""
    hidden: float | None = None
    """Fraction of the first object's pixels that the second hides; it's found for each pair of shapes and sizes."""
    jitter: float = 0.0
    """Each object moves by up to this much along x and y; an object is about 1.4 wide."""
    turn: float = 0.0
    """Each object turns by up to this many degrees, either way."""
    finish: Finish = "matte"
    """Surface of all objects, in spaces without a material."""
    palette: Mapping[str, str | Color] = field(default_factory=dict[str, str | Color])
    sizes: Mapping[str, float] = field(default_factory=lambda: {"small": 0.5, "medium": 0.75, "large": 1.0})
    seed: int = 0
    """Seed of the light paths, and of places and turns, drawn for each object of each (scene, replicate) by itself."""
    color: str | None = None
    shape: str | None = None
    size: str | None = None
    material: str | None = None
    cache: Path | None = None
    """Folder for what was traced; None takes $COLLIGATE_STORE or ~/.cache/colligate."""
    threads: int | None = None
    """How many cores trace; None takes all."""

    def __post_init__(self) -> None:
        for name, low in (("width", 16), ("height", 16), ("rays", 1), ("jitter", 0), ("turn", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"Studio {name} must be at least {low}; got {getattr(self, name)}.")
        if self.hidden is not None and not 0 <= self.hidden < 1:
            raise ValueError(f"Studio hidden is a fraction from 0 to below 1; got {self.hidden}.")
        if self.hidden is not None and (self.varies or self.positions is not None):
            raise ValueError("Studio hidden finds the second object's place; leave positions, jitter and turn out.")
        if any(not 0 < factor <= 1.5 for factor in self.sizes.values()):
            raise ValueError(f"Studio sizes must be above 0 and at most 1.5; got {dict(self.sizes)}.")

    @property
    def varies(self) -> bool:
        """Whether replicates of a scene get different pictures."""
        return self.jitter > 0 or self.turn > 0 or self.positions == "scatter"

    def draw(
        self, scenes: Scenes, rows: Int[Tensor, " row"] | None = None, report: Report | None = None
    ) -> list["PIL.Image.Image"]:
        """One RGB picture for each scene, or for the given rows; what isn't on disk yet is traced.

        Raises:
            ValueError: a word that can't be shown (see `check`), a slot without a place, or objects that would touch
                or leave the picture.
            ImportError: mitsuba isn't installed.
        """
        wanted = torch.arange(len(scenes)) if rows is None else torch.arange(len(scenes))[rows]
        looks = _Looks(self, scenes.space)
        shots = self._shots(scenes, wanted, looks)
        needed = list(dict.fromkeys(shots)) if self.varies else list(dict.fromkeys(shot.bodies_only for shot in shots))
        steps = [1 if self.varies else len(layers_of(len(shot.bodies))) for shot in needed]
        done, total = 0, sum(steps)

        def told() -> None:
            nonlocal done
            done += 1
            if report is not None:
                report("tracing light", done, total)

        pictures: list[PIL.Image.Image | None] = [None] * len(shots)
        for shot, count in zip(needed, steps, strict=True):
            before = done
            if self.varies:
                made = {shot: self._single(shot, told)}
            else:
                same = dict.fromkeys(other for other in shots if other.bodies == shot.bodies)
                film = Film(self.width, self.height, self.rays, self.seed)
                planes = self._layers(shot.bodies, film, told).permute(3, 0, 1, 2).flatten(2).float()
                made = {other: _composed(planes, other.reflectances, film) for other in same}
            for row, other in enumerate(shots):
                if other in made:
                    pictures[row] = made[other].copy()
            while done < before + count:  # what was on disk
                told()
        return cast("list[PIL.Image.Image]", pictures)

    def bodies(self, scenes: Scenes, rows: Int[Tensor, " row"] | None = None) -> list[tuple[Body, ...]]:
        """The solids of each scene and where they stand, slot by slot.

        Raises:
            ValueError: as `draw`.
        """
        wanted = torch.arange(len(scenes)) if rows is None else torch.arange(len(scenes))[rows]
        return [shot.bodies for shot in self._shots(scenes, wanted, _Looks(self, scenes.space))]

    def hidden_fractions(self, scenes: Scenes, rows: Int[Tensor, " row"] | None = None) -> Float[Tensor, "scene slot"]:
        """Fraction of each object's pixels that other objects hide: 1 - visible / alone; NaN where a slot is empty.

        Raises:
            ValueError: as `draw`.
            ImportError: mitsuba isn't installed.
        """
        wanted = torch.arange(len(scenes)) if rows is None else torch.arange(len(scenes))[rows]
        found = torch.full((len(wanted), scenes.slots), torch.nan, dtype=torch.float64)
        film = Film(self.width, self.height, 16)
        for row, bodies in enumerate(self.bodies(scenes, wanted)):
            found[row, scenes.filled[wanted[row]]] = hidden(bodies, film, threads=self.threads)
        return found

    def check(self, space: ConceptSpace) -> None:
        """Make sure that every object of a space can be shown and looks unlike every other.

        Raises:
            ValueError: no concept to show as color or shape, a concept that can't be shown, a word that is no color,
                shape, size or material, or two words that look alike.
        """
        _Looks(self, space)

    def describe(self) -> dict[str, object]:
        """JSON-able facts that determine the pictures, given the scenes."""
        facts = {name: value for name, value in asdict(self).items() if name not in ("cache", "threads")}
        return {"renderer": f"tracing {TRACER}", "mitsuba": mitsuba_version(), **facts}

    # ------------------------------------------------------------------------------------------------- where and what

    def _shots(self, scenes: Scenes, wanted: Int[Tensor, " row"], looks: "_Looks") -> list["_Shot"]:
        numbers = replicates(scenes)[wanted].tolist() if self.varies else [0] * len(wanted)
        if self.hidden is not None and scenes.slots != 2:
            raise ValueError(f"Studio hidden needs scenes of two slots; these have {scenes.slots}.")
        known: dict[tuple[tuple[int, ...], int], _Shot] = {}
        shots: list[_Shot] = []
        for objects, number in zip(scenes.objects[wanted].tolist(), numbers, strict=True):
            key = (tuple(objects), number)
            if key not in known:
                held = {slot: o for slot, o in enumerate(objects) if o >= 0}
                bodies = self._place({slot: looks.body(o) for slot, o in held.items()}, list(held.values()), number)
                known[key] = _Shot(bodies, tuple(looks.reflectance(o) for o in held.values()))
            shots.append(known[key])
        return shots

    def _place(self, loose: dict[int, Body], objects: list[int], replicate: int) -> tuple[Body, ...]:
        if self.hidden is not None:
            alone = {slot: Body(b.solid, PLACES[0], b.radius, 0.0, b.finish) for slot, b in loose.items()}
            if len(loose) < 2:
                return tuple(alone.values())
            return occluding(alone[0], alone[1], self.hidden, threads=self.threads)
        free, film = self.positions == "scatter", Film(self.width, self.height, 1)
        for attempt in range(1000 if free else 1):
            bodies: list[Body] = []
            for slot, body in loose.items():
                right, far, turned = uniforms(self.seed, objects, replicate, slot, attempt)
                if free:
                    place = scattered(right, far)
                else:
                    x, y = self._slot(slot)
                    place = (x + self.jitter * right, y + self.jitter * far)
                turn = self.turn * turned if self.turn else 0.0  # never -0.0, which would be kept under another key
                bodies.append(Body(body.solid, place, body.radius, turn, body.finish))
                if free and trouble(bodies, film) is not None:
                    break  # the others can't mend it
            found = trouble(bodies, film)
            if found is None:
                return tuple(bodies)
            if not free:
                raise ValueError(f"{found}; take a smaller jitter, or other positions or sizes.")
        raise ValueError(f"No room was found for {len(loose)} objects in 1,000 attempts; take fewer or smaller ones.")

    def _slot(self, slot: int) -> Point:
        places = PLACES if self.positions is None or isinstance(self.positions, str) else self.positions
        if slot >= len(places):
            raise ValueError(f"Studio has {len(places)} positions and slot {slot + 1} is filled; give one for each.")
        return places[slot]

    # ---------------------------------------------------------------------------------------------- traced, or on disk

    def _layers(
        self, bodies: tuple[Body, ...], film: Film, told: Callable[[], None]
    ) -> Float[Tensor, "layer row column channel"]:
        from safetensors import SafetensorError
        from safetensors.torch import load, save

        path = self._path({"layers": [asdict(body) for body in bodies], "film": asdict(film)}, "safetensors")
        if path.exists():
            try:
                return load(path.read_bytes())["layers"]
            except (SafetensorError, KeyError):  # damaged on disk: it is traced again
                path.unlink(missing_ok=True)
        layers = trace_layers(bodies, film, threads=self.threads, told=told).half()
        write_atomic(path, save({"layers": layers}))
        return layers

    def _single(self, shot: "_Shot", told: Callable[[], None]) -> "PIL.Image.Image":
        from PIL import Image, UnidentifiedImageError

        film = Film(self.width, self.height, self.rays, self.seed)
        facts = {"bodies": [asdict(body) for body in shot.bodies], "reflectances": shot.reflectances}
        path = self._path({**facts, "film": asdict(film)}, "png")
        if path.exists():
            try:
                with Image.open(path) as kept:
                    return kept.convert("RGB")
            except (UnidentifiedImageError, OSError, SyntaxError):  # damaged on disk: it is traced again
                path.unlink(missing_ok=True)
        picture = _printed(trace(shot.bodies, shot.reflectances, film, threads=self.threads))
        png = io.BytesIO()
        picture.save(png, format="PNG")
        write_atomic(path, png.getvalue())
        told()
        return picture

    def _path(self, facts: Mapping[str, object], suffix: str) -> Path:
        """Where something traced lies: under the hash of all that determines it."""
        root = self.cache or Path(os.environ.get("COLLIGATE_STORE", "~/.cache/colligate")).expanduser()
        said = json.dumps({"tracer": TRACER, "mitsuba": mitsuba_version(), **facts}, sort_keys=True)
        key = hashlib.sha256(said.encode()).hexdigest()
        return root / "pictures3d" / key[:2] / f"{key}.{suffix}"


@dataclass(frozen=True)
class _Shot:
    """What is photographed: solids and their reflectances."""

    bodies: tuple[Body, ...]
    reflectances: tuple[Reflectance, ...]

    @property
    def bodies_only(self) -> "_Shot":
        return _Shot(self.bodies, ())


class _Looks:
    """How the objects of a space look: solid, height, finish and reflectance of each object id."""

    def __init__(self, studio: Studio, space: ConceptSpace) -> None:
        given = {"color": studio.color, "shape": studio.shape, "size": studio.size, "material": studio.material}
        found = roles(space, given, "Studio")
        words = {role: words_of(space, name) for role, name in found.items()}
        _known("shape", words["shape"], SOLIDS, "the studio shows")
        _known("size", words["size"], studio.sizes, "the studio has")
        _known("material", words["material"], FINISHES, "the studio shows")
        self._space, self._found = space, found
        self._colors = [color_of(word, studio.palette) for word in words["color"]]
        self._solids: list[Solid] = [SOLIDS[word] for word in words["shape"]]
        self._factors = [float(studio.sizes[word]) for word in words["size"]]
        self._finishes: list[Finish] = [FINISHES[word] for word in words["material"]]
        self._finish: Finish = studio.finish
        looks: tuple[tuple[str, Sequence[object]], ...] = (
            ("color", self._colors),
            ("shape", self._solids),
            ("size", self._factors),
            ("material", self._finishes),
        )
        for role, shown in looks:
            set_apart(words[role], shown)

    def body(self, object_id: int) -> Body:
        """The object's solid, at no place yet."""
        solid, factor = self._solids[self._value(object_id, "shape")], 1.0
        if self._factors:
            factor = self._factors[self._value(object_id, "size")]
        return Body(solid, (0.0, 0.0), _HEIGHT * factor, 0.0, self._finish_of(object_id))

    def reflectance(self, object_id: int) -> Reflectance:
        """The object's color as the light meets it."""
        return reflectance_of(self._colors[self._value(object_id, "color")], self._finish_of(object_id))

    def _finish_of(self, object_id: int) -> Finish:
        return self._finishes[self._value(object_id, "material")] if self._finishes else self._finish

    def _value(self, object_id: int, role: str) -> int:
        values = self._space.object_values(torch.tensor(object_id)).tolist()
        return values[self._space.concept(str(self._found[role]))]


def _known(role: str, words: Sequence[str], known: Mapping[str, object], owner: str) -> None:
    for word in words:
        if word not in known:
            raise ValueError(f"No {role} is called {word!r}; {owner} {', '.join(known)}.")


def _composed(
    planes: Float[Tensor, "channel layer pixel"], reflectances: tuple[Reflectance, ...], film: Film
) -> "PIL.Image.Image":
    """The picture of bodies with these reflectances from the layers of its shapes."""
    weights = layer_weights(torch.tensor(reflectances, dtype=torch.float64)).float()
    # One picture at a time: a product of another shape could round otherwise.
    light = torch.bmm(weights.T[:, None], planes)[:, 0]
    return _printed(light.T.reshape(film.height, film.width, 3))


def _printed(light: Float[Tensor, "row column channel"]) -> "PIL.Image.Image":
    """Linear light as 8-bit sRGB."""
    from PIL import Image

    steps = (light.clamp(0, 1) * _STEPS + 0.5).to(torch.int32)
    return Image.fromarray(_screen()[steps].numpy())


@lru_cache(maxsize=1)
def _screen() -> UInt8[Tensor, " step"]:
    """The screen value of each step of linear light; steps are far finer than screen values, in the dark too."""
    light = torch.arange(_STEPS + 1, dtype=torch.float64) / _STEPS
    screen = torch.where(light <= 0.0031308, 12.92 * light, 1.055 * light.clamp(min=1e-6) ** (1 / 2.4) - 0.055)
    return (screen * 255 + 0.5).to(torch.uint8)
