"""A world: scenes together with what can be shown of them."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.files import open_picture
from colligate.scenes.pictures2d import Canvas
from colligate.scenes.pictures3d import Report, Studio
from colligate.scenes.regular import read_regular
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.tables import Table

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
        table: the user's table of labels, row by row, by whose columns other tables are joined; or None.

    Raises:
        ValueError: captions, pictures or parts that differ from the scenes in number, a template, canvas or studio
            that doesn't fit the concepts, an unknown part, or one picture for two rows of the same scene.

    Example:
        >>> from colligate.scenes.worlds import load_world
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
    table: Table | None = None

    def __post_init__(self) -> None:
        for what, given in (("captions", self.captions), ("pictures", self.pictures), ("parts", self.parts)):
            if isinstance(given, tuple) and len(given) != len(self.scenes):
                raise ValueError(
                    f"World {self.name!r} has {len(given)} {what} for {len(self.scenes)} scenes; give one for each."
                )
        for row, part in enumerate(self.parts or ()):
            if part not in PARTS:
                raise ValueError(
                    f"World {self.name!r}, row {row + 1}: {part!r} is no part of a split ({', '.join(PARTS)})."
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
            >>> from colligate.scenes.worlds import load_world
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

        table = None if self.table is None else self.table.taken(index)
        picked = {what: pick(getattr(self, what)) for what in ("captions", "pictures", "parts")}
        return replace(
            self,
            name=name or self.name,
            scenes=self.scenes[torch.tensor(index, dtype=torch.int64)],
            table=table,
            **picked,
        )

    def subgrid(self, name: str | None = None, /, **sizes: int) -> "World":
        """The scenes that use only the first values of each named concept.

        Example:
            >>> from colligate.scenes.worlds import load_world
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
                    digest.update(hashlib.sha256(read_regular(path, "picture ")).digest())
                except (FileNotFoundError, ValueError) as error:
                    raise ValueError(f"Row {row + 1}: {error}") from None
            found["pictures"] = digest.hexdigest()
        return found
