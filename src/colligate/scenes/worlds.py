"""Worlds: scenes together with what can be shown of them, captions and pictures.

The built-in ones are those of the paper, made by code.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.records import write_atomic
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.files import open_picture
from colligate.scenes.pictures2d import Canvas
from colligate.scenes.pictures3d import Report, Studio
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.sprites import sprite_canvas, sprite_captions, sprite_space

if TYPE_CHECKING:
    import PIL.Image

Kind = Literal["text", "picture", "scene"]
"""What a tower reads: captions, pictures, or the scenes themselves."""

PARTS = ("fit", "validation", "test")
"""Names of the parts of a given split."""


@dataclass(frozen=True, eq=False)
class World:
    """Scenes, and the captions and pictures that show them, row by row.

    Attributes:
        name: what the world is called in records and reports.
        scenes: the scenes, one a row.
        captions: a template, a text for each row, or None.
        pictures: a canvas or studio that draws them, a file for each row, or None.
        parts: a given split ("fit", "validation" or "test" for each row), or None.
        notes: what a reader of results should know about the world.

    Raises:
        ValueError: captions, pictures or parts that differ from the scenes in number, a template, canvas or studio
            that doesn't fit the concepts, an unknown part, or one picture for two rows of the same scene.

    Example:
        >>> world = load_world("clevr2d")
        >>> len(world), world.kinds, world.items("text", torch.tensor([1]))
        (600, ('text', 'picture', 'scene'), ['a blue square and a blue triangle'])
    """

    name: str
    scenes: Scenes
    captions: CaptionTemplate | tuple[str, ...] | None = None
    pictures: Canvas | Studio | tuple[Path, ...] | None = None
    parts: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, given in (("captions", self.captions), ("pictures", self.pictures), ("parts", self.parts)):
            if isinstance(given, tuple) and len(given) != len(self.scenes):
                raise ValueError(
                    f"World {self.name!r} has {len(given)} {what} for {len(self.scenes)} scenes; give one for each."
                )
        for row, part in enumerate(self.parts or ()):
            if part not in PARTS:
                raise ValueError(
                    f"World {self.name!r}, row {row}: {part!r} is no part of a split ({', '.join(PARTS)})."
                )
        if isinstance(self.captions, CaptionTemplate):
            self.captions.check(self.scenes.space)
        if isinstance(self.pictures, Canvas | Studio):
            self.pictures.check(self.scenes.space)
            if not self.pictures.varies and len(self.scenes) > len(self.scenes.objects.unique(dim=0)):
                raise ValueError(
                    f"World {self.name!r} draws the same picture for each row of a repeated scene; "
                    "give it jitter, or leave the repeats out."
                )

    def __len__(self) -> int:
        return len(self.scenes)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What can be shown of the scenes."""
        shown: dict[Kind, object] = {"text": self.captions, "picture": self.pictures, "scene": self.scenes}
        return tuple(kind for kind, given in shown.items() if given is not None)

    def items(
        self, kind: Kind, rows: Int[Tensor, " row"] | None = None, report: Report | None = None
    ) -> list[str] | list["PIL.Image.Image"] | Scenes:
        """What a tower of this kind reads, for all rows or the given ones.

        Raises:
            ValueError: the world doesn't show scenes that way, or a picture can't be read.
        """
        self._require(kind)
        if kind == "scene":
            return self.scenes if rows is None else self.scenes[rows]
        return self.texts(rows) if kind == "text" else self.images(rows, report)

    def texts(self, rows: Int[Tensor, " row"] | None = None) -> list[str]:
        """The captions of all rows or the given ones."""
        self._require("text")
        if isinstance(self.captions, CaptionTemplate):
            return self.captions(self.scenes if rows is None else self.scenes[rows])
        return [str((self.captions or ())[row]) for row in self._rows(rows)]

    def images(self, rows: Int[Tensor, " row"] | None = None, report: Report | None = None) -> list["PIL.Image.Image"]:
        """The pictures of all rows or the given ones, drawn or read from their files.

        Raises:
            ValueError: the world has no pictures, or a file can't be read.
            ImportError: the pictures are in 3-D and mitsuba isn't installed.
        """
        self._require("picture")
        if isinstance(self.pictures, Studio):
            return self.pictures.draw(self.scenes, rows, report)
        if isinstance(self.pictures, Canvas):
            return self.pictures.draw(self.scenes, rows)
        return [open_picture((self.pictures or ())[row], row) for row in self._rows(rows)]

    def describe(self, kind: Kind) -> dict[str, object]:
        """JSON-able facts that determine the items of a kind: settings and versions, or hashes of content.

        Example:
            >>> sorted(load_world("text8x8").describe("text"))
            ['captions', 'kind', 'scenes']
        """
        self._require(kind)
        facts: dict[str, object] = {"kind": kind, "scenes": self.scenes.content_hash}
        if kind == "text":
            given = self.captions
            facts["captions"] = given.describe() if isinstance(given, CaptionTemplate) else self._content["captions"]
        if kind == "picture":
            given = self.pictures
            facts["pictures"] = given.describe() if isinstance(given, Canvas | Studio) else self._content["pictures"]
        return facts

    def select(self, rows: Tensor | slice, name: str | None = None) -> "World":
        """The world of the given rows (indices, a mask or a slice), in that order."""
        index = torch.arange(len(self))[rows].tolist()

        def pick(given: object) -> object:
            return tuple(given[row] for row in index) if isinstance(given, tuple) else given

        picked = {what: pick(getattr(self, what)) for what in ("captions", "pictures", "parts")}
        return replace(
            self, name=name or self.name, scenes=self.scenes[torch.tensor(index, dtype=torch.int64)], **picked
        )

    def subgrid(self, name: str | None = None, /, **sizes: int) -> "World":
        """The scenes that use only the first values of each named concept.

        Example:
            >>> small = load_world("text20x20").subgrid(attribute=2, noun=3)
            >>> small.name, small.scenes.space.sizes, len(small)
            ('text20x20[attribute=2,noun=3]', (2, 3), 42)

        Raises:
            ValueError: an unknown concept, or more values than it has or none.
        """
        space = self.scenes.space
        kept = list(space.sizes)
        for concept, size in sizes.items():
            c = space.concept(concept)
            if not 1 <= size <= space.sizes[c]:
                raise ValueError(f"Concept {concept!r} has {space.sizes[c]} values; can't keep the first {size}.")
            kept[c] = size
        inside = (self.scenes.values < torch.tensor(kept)).all(-1).all(-1)
        if not inside.any():
            raise ValueError(f"No scene of world {self.name!r} uses only the first values asked for ({sizes}).")
        listed = ",".join(f"{concept}={size}" for concept, size in sizes.items())
        picked = self.select(inside, name or f"{self.name}[{listed}]")
        words = {of: space.words[c][: kept[c]] for c, of in enumerate(space.names)}
        captions = picked.captions
        if isinstance(captions, CaptionTemplate) and captions.words is not None:
            cut = {of: tuple(said)[: kept[space.concept(of)]] for of, said in captions.words.items()}
            captions = replace(captions, words=cut)
        return replace(picked, scenes=Scenes(ConceptSpace(words), picked.scenes.values), captions=captions)

    def _rows(self, rows: Tensor | None) -> list[int]:
        return list(range(len(self))) if rows is None else torch.arange(len(self))[rows].tolist()

    def _require(self, kind: Kind) -> None:
        if kind not in self.kinds:
            what = {"text": "captions", "picture": "pictures", "scene": "scenes"}.get(kind, f"{kind!r} items")
            raise ValueError(
                f"World {self.name!r} has no {what}, only {' and '.join(self.kinds)}; "
                "choose a tower that reads those, or a world that shows more (clevr2d has captions and pictures)."
            )

    @cached_property
    def _content(self) -> dict[str, str]:
        """sha256 of given texts and of given pictures' files."""
        found: dict[str, str] = {}
        if isinstance(self.captions, tuple):
            found["captions"] = hashlib.sha256(json.dumps(self.captions).encode()).hexdigest()
        if isinstance(self.pictures, tuple):
            digest = hashlib.sha256()
            for row, path in enumerate(self.pictures):
                try:
                    digest.update(hashlib.sha256(path.read_bytes()).digest())
                except OSError as error:
                    raise ValueError(f"Row {row}: picture {path} can't be read ({error.strerror}).") from None
            found["pictures"] = digest.hexdigest()
        return found


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


def render(world: World, folder: Path, *, limit: int | None = None, report: Report | None = None) -> Path:
    """Write a world's drawn pictures as PNG files with a table of labels, and return the table's path.

    The table `labels.csv` holds a row for each picture: `filename`; index and word of each slot's concepts
    (`slot1_color`, `slot1_color_word`, ...), empty where a slot is; `caption` and `split` where the world has them.
    Every file is written whole or not at all, the table last; the same call goes on where a killed one stopped.

    Args:
        world: what to draw; its pictures are a canvas or a studio.
        folder: where to, made if it isn't there.
        limit: draw the first so many scenes only.
        report: called with a stage, how much of it is done, and how much there is.

    Raises:
        ValueError: the world draws no pictures, the folder holds something else, or one of its files is a link that
            leads out of it.
        ImportError: the pictures are in 3-D and mitsuba isn't installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     labels = render(load_world("clevr2d"), Path(folder), limit=2)
        ...     len(labels.read_text().splitlines()), len(list(labels.parent.glob("*.png")))
        (3, 2)
    """
    if not isinstance(world.pictures, Canvas | Studio):
        raise ValueError(f"World {world.name!r} draws no pictures; choose one that does, such as clevr2d.")
    if limit is not None and limit < 1:
        raise ValueError(f"The limit must be at least 1 picture; got {limit}.")
    facts = json.dumps(json.loads(json.dumps(world.describe("picture"))), indent=1, sort_keys=True)
    stamp = _inside(folder, "render.json")
    if stamp.exists() and stamp.read_text(encoding="utf-8") != facts:
        raise ValueError(f"{folder} holds another render (its render.json differs); name a new folder.")
    if not stamp.exists() and folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise ValueError(f"{folder} already holds other files; name a new or empty folder.")
    write_atomic(stamp, facts.encode())
    rows = torch.arange(min(limit or len(world), len(world)))
    names = [f"{row:07d}.png" for row in rows.tolist()]
    missing = [row for row, name in zip(rows.tolist(), names, strict=True) if not _inside(folder, name).exists()]
    for start in range(0, len(missing), 256):
        block = missing[start : start + 256]
        for row, picture in zip(block, world.images(torch.tensor(block), report), strict=True):
            png = io.BytesIO()
            picture.save(png, format="PNG")
            write_atomic(_inside(folder, names[row]), png.getvalue())
        if report is not None:
            report("drawing", start + len(block), len(missing))
    labels = _inside(folder, "labels.csv")
    write_atomic(labels, labels_bytes(world, rows, names))
    return labels


def labels_bytes(
    world: World, rows: Int[Tensor, " row"] | None = None, filenames: Sequence[str] | None = None
) -> bytes:
    """A world's labels table as CSV: what `sources.read_labels` reads back as the same scenes.

    Args:
        world: scenes, and captions and split if it has them.
        rows: rows to list; all by default.
        filenames: a picture file for each row.

    Example:
        >>> print(labels_bytes(load_world("clevr"), torch.tensor([1])).decode().splitlines()[1])
        0,blue,0,cube,0,blue,1,cylinder,a blue cube and a blue cylinder
    """
    listed = torch.arange(len(world)) if rows is None else rows
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(_label_rows(world, listed, filenames))
    return table.getvalue().encode()


def _inside(folder: Path, name: str) -> Path:
    """A path in a folder, after making sure that no link leads out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} leads out of its folder; remove that link or name another folder.")
    return path


def _label_rows(world: World, rows: Int[Tensor, " row"], filenames: Sequence[str] | None) -> Iterator[list[object]]:
    """Header and rows of a labels table."""
    space, scenes = world.scenes.space, world.scenes[rows]
    texts = world.texts(rows) if world.captions is not None else None
    head: list[object] = [] if filenames is None else ["filename"]
    for k in range(scenes.slots):
        head += [column for name in space.names for column in (f"slot{k + 1}_{name}", f"slot{k + 1}_{name}_word")]
    yield head + ["caption"] * (texts is not None) + ["split"] * (world.parts is not None)
    for i, slots in enumerate(scenes.values.tolist()):
        cells: list[object] = [] if filenames is None else [filenames[i]]
        for values in slots:
            for words, value in zip(space.words, values, strict=True):
                cells += [value, words[value]] if value >= 0 else ["", ""]
        cells += [] if texts is None else [texts[i]]
        yield cells + ([] if world.parts is None else [world.parts[int(rows[i])]])


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
SIZED: Mapping[str, str] = {
    "grid:20x20": "pairs and singles of any numbers of values, two or more concepts; shows scene",
    "sprites:16x9": "pairs and singles of up to 16 colours and 9 shapes, 32 pixels; sprites:16x9@48 draws others; "
    "shows text, picture, scene",
}
"""Worlds whose name says their size -> what they hold."""
