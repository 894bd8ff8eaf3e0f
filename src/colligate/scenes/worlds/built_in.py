"""The worlds that are made by code: the paper's, and grids and sprites of any size."""

import re
from collections.abc import Callable, Mapping
from itertools import islice

import torch

from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.pictures2d import Canvas
from colligate.scenes.pictures3d import Studio
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.sprites import sprite_canvas, sprite_captions, sprite_space
from colligate.scenes.worlds.world import World


def load_world(name: str) -> World:
    """A built-in world by name.

    `text20x20` (160,000 pairs and 400 singles), `text8x8` (4,096 and 64), `clevr` and `clevr2d` (576 and 24),
    `pug_spare` (7,392 pairs that share no value, no singles). All have captions, `clevr2d` has pictures. Pairs come
    first, the last slot fastest. `grid:20x20`, for any numbers of values, has no captions: pairs and singles of the
    concepts concept1, concept2, ..., for towers that read scenes. `sprites:16x9`, for any numbers of colours and shapes
    up to these, has captions and small pictures (32 pixels; `sprites:16x9@48` says another size).

    Raises:
        ValueError: no world has that name, or a grid has too many scenes.

    Paper: arXiv:2605.31503, data sets.   Differs: `pug_spare` has captions only; give its pictures as files.

    Example:
        >>> load_world("pug_spare").texts()[0]
        'a red crow and a blue fox'
    """
    if name.startswith("grid:"):
        return _grid(name)
    if name.startswith("sprites:"):
        return _sprites(name)
    if name not in WORLDS:
        known = ", ".join(WORLDS)
        raise ValueError(
            f"No world is called {name!r}; choose {known}, grid:20x20, sprites:16x9, or give a table of scenes."
        )
    return WORLDS[name]()


def sample_world(
    space: ConceptSpace, *, slots: int, num: int, seed: int, captions: CaptionTemplate | None = None
) -> World:
    """Different scenes drawn at random, each equally likely.

    Raises:
        ValueError: more scenes than exist.

    Example:
        >>> world = sample_world(ConceptSpace(color=9, shape=9, size=3), slots=3, num=100, seed=0)
        >>> len(world.scenes.ids.unique()), world.kinds
        (100, ('scene',))
    """
    total = space.num_objects**slots
    if not 1 <= num <= total:
        raise ValueError(f"There are {total:,} scenes of {slots} of {space.num_objects} objects; can't draw {num:,}.")
    generator = torch.Generator().manual_seed(seed)
    if total <= max(4 * num, 10_000):
        scenes = space.all_scenes(slots)[torch.randperm(total, generator=generator)[:num]]
    else:
        rows: dict[tuple[int, ...], None] = {}
        while len(rows) < num:
            drawn = space.sample_scenes(num, slots, generator=generator)
            rows.update(dict.fromkeys(map(tuple, drawn.objects.tolist())))
        scenes = space.scenes(list(islice(rows, num)))
    return World(f"sample of {num} (seed {seed})", scenes, captions)


_ATTRIBUTES = (
    "red blue green yellow purple orange pink brown gray black "
    "small large tiny round sharp rough bumpy smooth matte glossy"
)
_NOUNS = (
    "circle square triangle star heart spiral sphere cylinder cone pyramid "
    "car cat dog man woman tree flower rock bird fish"
)
_COLORS = "blue brown cyan gray green purple red yellow"
_ANIMALS = "crow,fox,deer stag,deer doe,wolf,crocodile,elephant,hippopotamus,lion,lioness,rhinoceros,zebra"
_TEXTURES = "red blue green yellow brown purple cyan gray"


def _pairs_and_singles(space: ConceptSpace) -> Scenes:
    return Scenes.join([space.all_scenes(slots=2), space.all_scenes(slots=1)])


def _grid(name: str) -> World:
    sizes = name.removeprefix("grid:").split("x")
    if not all(size.isdigit() and int(size) > 0 for size in sizes):
        raise ValueError(f"A grid names its numbers of values, such as grid:20x20; got {name!r}.")
    space = ConceptSpace({f"concept{c + 1}": int(size) for c, size in enumerate(sizes)})
    return World(name, _pairs_and_singles(space))


def _sprites(name: str) -> World:
    found = re.fullmatch(r"sprites:(\d+)x(\d+)(?:@(\d+))?", name)
    if found is None:
        raise ValueError(f"Sprites name their numbers of colours and shapes, such as sprites:16x9; got {name!r}.")
    colors, shapes, side = (int(number) for number in found.groups(default="32"))
    scenes = _pairs_and_singles(sprite_space(colors, shapes))
    return World(name, scenes, sprite_captions(), sprite_canvas(side))


def _text20x20() -> World:
    space = ConceptSpace(attribute=_ATTRIBUTES.split(), noun=_NOUNS.split())
    template = CaptionTemplate("a {attribute} {noun}", single="{attribute} {noun}")
    return World("text20x20", _pairs_and_singles(space), template)


def _text8x8() -> World:
    space = ConceptSpace(attribute=_ATTRIBUTES.split()[:8], noun=_NOUNS.split()[:8])
    template = CaptionTemplate("a {attribute} {noun}", single="{attribute} {noun}")
    return World("text8x8", _pairs_and_singles(space), template, notes=("The first 8 x 8 words of text20x20.",))


def _clevr_like(name: str, shapes: str, pictures: Canvas | Studio, slots: int = 2, note: str = "") -> World:
    words = shapes.split()
    space = ConceptSpace(color=_COLORS.split(), shape=words)
    by_index = (
        f"Shapes by index: 0 {words[0]}, 1 {words[1]}, 2 {words[2]}. The labels released with the paper exchange the "
        "names of shapes 1 and 2 against their pictures; their indices agree with these."
    )
    template = CaptionTemplate("a {color} {shape}", single="{color} {shape}")
    scenes = Scenes.join([space.all_scenes(slots), space.all_scenes(slots=1)])
    return World(name, scenes, template, pictures, notes=(by_index, note) if note else (by_index,))


def _clevr_occluded() -> World:
    hidden = 0.25
    note = (
        f"The second object hides {100 * hidden:.0f} % of the first one's pixels; where it stands for that depends on "
        "the two shapes, never on the colours. Singles stand where the first object does."
    )
    return _clevr_like("clevr-occluded", "cube cylinder sphere", Studio(hidden=hidden), note=note)


def _pug_spare() -> World:
    space = ConceptSpace(animal=_ANIMALS.split(","), texture=_TEXTURES.split())
    pairs = space.all_scenes(slots=2)
    note = "Two objects never share an animal or a texture, and there are no singles."
    return World("pug_spare", pairs[~pairs.shares_any()], CaptionTemplate("a {texture} {animal}"), notes=(note,))


WORLDS: Mapping[str, Callable[[], World]] = {
    "text20x20": _text20x20,
    "text8x8": _text8x8,
    "clevr": lambda: _clevr_like("clevr", "cube cylinder sphere", Studio()),
    "clevr3": lambda: _clevr_like("clevr3", "cube cylinder sphere", Studio(), slots=3),
    "clevr-occluded": _clevr_occluded,
    "clevr2d": lambda: _clevr_like("clevr2d", "square triangle circle", Canvas()),
    "pug_spare": _pug_spare,
}
"""Built-in worlds: name -> what makes it."""
