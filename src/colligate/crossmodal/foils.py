"""Behavioural tests: does a picture lie nearer to its caption than to a foil of it?

A foil type makes captions and foils from scenes; a table of pictures, captions and foils from elsewhere goes through
the same code. A tie counts one half and tie rates are reported: to a bag of words, half of some benchmarks is tied.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from colligate.embedders.embedding import embed_items
from colligate.embedders.towers import NetworkTower, Tower
from colligate.measures import tie_tolerance
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import Scenes


@dataclass(frozen=True, eq=False)
class FoilTable:
    """Which picture goes with which caption, and what it must be told from.

    Attributes:
        name: of the foil type or the file.
        rows: for each pair, the picture's place among the pictures (or the scene's among the scenes).
        captions: what is true of it.
        foils: what isn't (or, for a control, what is just as true).
        control: both captions are true: the number shows a preference, one half being none.
        kinds: where pairs are of several kinds, the kind of each.
        groups: where a caption has several foils, the number of its group, from 0: it should beat all of them.
        relations: where pairs turn a relation round, such as "on" or "to the left of", the one of each.

    Raises:
        ValueError: columns of unequal length, no row, or a foil equal to its caption.

    Example:
        >>> FoilTable("mine", torch.tensor([0]), ("a cat",), ("a cat",))
        Traceback (most recent call last):
        ValueError: Row 1 of mine has the foil 'a cat' equal to its caption; give another foil or leave the row out.
    """

    name: str
    rows: Int[Tensor, " pair"]
    captions: tuple[str, ...]
    foils: tuple[str, ...]
    control: bool = False
    kinds: tuple[str, ...] = ()
    groups: Int[Tensor, " pair"] | None = None
    relations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.rows) == len(self.captions) == len(self.foils):
            raise ValueError(
                f"{self.name} has {len(self.rows)} pictures, {len(self.captions)} captions and {len(self.foils)} "
                "foils; give one of each in every row."
            )
        if not self.captions:
            raise ValueError(f"{self.name} has no pairs of caption and foil to test.")
        for row, (caption, foil) in enumerate(zip(self.captions, self.foils, strict=True)):
            if caption.strip() == foil.strip():
                raise ValueError(
                    f"Row {row + 1} of {self.name} has the foil {foil!r} equal to its caption; "
                    "give another foil or leave the row out."
                )

    @property
    def same_words(self) -> Bool[Tensor, " pair"]:
        """Where caption and foil are the same bag of words: what no bag of words can tell apart."""
        return torch.tensor([_bag(c) == _bag(f) for c, f in zip(self.captions, self.foils, strict=True)])


def _bag(text: str) -> list[str]:
    return sorted("a" if word == "an" else word for word in re.findall(r"\w+", text.lower()))


@runtime_checkable
class FoilType(Protocol):
    """Whatever makes captions and foils of scenes."""

    @property
    def name(self) -> str:
        """As in metric ids."""
        ...

    def table(self, scenes: Scenes, captions: CaptionTemplate, seed: int) -> FoilTable:
        """A pair for each scene that has such a foil."""
        ...


@dataclass(frozen=True)
class SwappedValue:
    """Two objects exchange their value of one concept: the foil of binding.

    Scenes whose objects share a value of the concept, or of all others, have none.

    Args:
        concept: which; None: the first.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=["red", "blue"], shape=["cube", "ball"]).scenes([[0, 3], [0, 1]])
        >>> SwappedValue().table(scenes, CaptionTemplate(), seed=0).foils
        ('a blue cube and a red ball',)
    """

    concept: str | None = None

    @property
    def name(self) -> str:
        """As in metric ids."""
        return "swapped" if self.concept is None else f"swapped.{self.concept}"

    def table(self, scenes: Scenes, captions: CaptionTemplate, seed: int) -> FoilTable:
        """A pair for each scene of two or more objects that a swap changes."""
        del seed
        concept = 0 if self.concept is None else scenes.space.concept(self.concept)
        rows = of_two(scenes)
        swapped = scenes[rows].swap(concept, (0, 1))
        return _said(self.name, rows, scenes, swapped, captions)


@dataclass(frozen=True)
class ReplacedValue:
    """One value of one object becomes another, drawn at random: a foil that a bag of concepts can tell.

    Args:
        concept: of which concept; None: drawn for each scene.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=["red", "blue"], shape=["cube"]).scenes([[0, 0]])
        >>> ReplacedValue().table(scenes, CaptionTemplate(), seed=0).captions
        ('a red cube and a red cube',)
    """

    concept: str | None = None

    @property
    def name(self) -> str:
        """As in metric ids."""
        return "replaced" if self.concept is None else f"replaced.{self.concept}"

    def table(self, scenes: Scenes, captions: CaptionTemplate, seed: int) -> FoilTable:
        """A pair for each scene."""
        generator = torch.Generator().manual_seed(seed)
        able = [c for c, size in enumerate(scenes.space.sizes) if size > 1]
        if self.concept is not None:
            able = [c for c in able if c == scenes.space.concept(self.concept)]
        if not able:
            raise ValueError("No concept has another value to put in place of one; name one that has two or more.")
        num = len(scenes)
        rows = torch.arange(num)
        concept = torch.tensor(able)[torch.randint(len(able), (num,), generator=generator)]
        slot = (torch.rand(scenes.filled.shape, generator=generator) * scenes.filled).argmax(1)
        old = scenes.values[rows, slot, concept]
        size = torch.tensor(scenes.space.sizes)[concept]
        shift = 1 + (torch.rand(num, generator=generator) * (size - 1)).long().clamp(max=size - 2)
        changed = scenes.values.clone()
        changed[rows, slot, concept] = (old + shift) % size
        return _said(self.name, rows, scenes, Scenes(scenes.space, changed), captions)


@dataclass(frozen=True)
class ExchangedOrder:
    """The objects are mentioned in the opposite order: as true as before where captions name no places, so a control.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=["red", "blue"], shape=["cube", "ball"]).scenes([[0, 3]])
        >>> ExchangedOrder().table(scenes, CaptionTemplate(), seed=0).foils
        ('a blue ball and a red cube',)
    """

    name: str = "order"

    def table(self, scenes: Scenes, captions: CaptionTemplate, seed: int) -> FoilTable:
        """A pair for each scene whose objects differ."""
        del seed
        rows = of_two(scenes)
        return _said(self.name, rows, scenes, scenes[rows].twins(), captions, control=True)


@dataclass(frozen=True)
class LeftRight:
    """A relation between the first two objects is turned round: the same words, another picture.

    Args:
        relation: the words between two objects, true of slot 1 and slot 2 in that order.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=["red", "blue"], shape=["cube", "ball"]).scenes([[0, 3]])
        >>> LeftRight().table(scenes, CaptionTemplate(), seed=0).foils
        ('a blue ball left of a red cube',)
    """

    relation: str = "left of"
    name: str = "left_right"

    def table(self, scenes: Scenes, captions: CaptionTemplate, seed: int) -> FoilTable:
        """A pair for each scene of exactly two different objects."""
        del seed
        rows = of_two(scenes)
        rows = rows[scenes.counts[rows] == 2]
        said = CaptionTemplate(
            captions.pair if "{1." not in captions.pair else "a " + " ".join(f"{{{n}}}" for n in scenes.space.names),
            joiner=f" {self.relation} ", words=captions.words, article=captions.article,
        )  # fmt: skip
        return _said(self.name, rows, scenes, scenes[rows].twins(), said)


FOILS: tuple[FoilType, ...] = (SwappedValue(), ReplacedValue(), ExchangedOrder(), LeftRight())
"""The foil types that are tried where none are named."""


def of_two(scenes: Scenes) -> Int[Tensor, " row"]:
    """Scenes whose first two slots hold objects."""
    if scenes.slots < 2:
        return torch.zeros(0, dtype=torch.int64)
    return (scenes.filled[:, 0] & scenes.filled[:, 1]).nonzero()[:, 0]


def _said(
    name: str, rows: Tensor, scenes: Scenes, foils: Scenes, captions: CaptionTemplate, *, control: bool = False
) -> FoilTable:
    """Pairs in words, without those that the foil leaves as they are (or, but for order, with the same objects)."""
    before = scenes[rows]
    same = (before.objects == foils.objects).all(1)
    if not control and name != "left_right":
        same |= before.unordered_ids == foils.unordered_ids
    kept = (~same).nonzero()[:, 0]
    if not len(kept):
        raise ValueError(f"No scene has a foil of type {name}; give scenes of two objects that differ.")
    return FoilTable(name, rows[kept], tuple(captions(before[kept])), tuple(captions(foils[kept])), control=control)


class FoilOutcomes(NamedTuple):
    """Per pair: 1 where the caption wins, 0 where the foil does, one half where they tie; and whether they tie."""

    hits: Float[Tensor, " pair"]
    ties: Bool[Tensor, " pair"]


def compare(right: Float[Tensor, " pair"], wrong: Float[Tensor, " pair"]) -> FoilOutcomes:
    """Whether the right score is higher; a tie counts one half.

    Example:
        >>> compare(torch.tensor([1.0, 0.0, 0.5]), torch.tensor([0.5, 1.0, 0.5])).hits.tolist()
        [1.0, 0.0, 0.5]
    """
    ties = (right - wrong).abs() <= tie_tolerance(right.dtype) * torch.maximum(right.abs(), wrong.abs())
    return FoilOutcomes(torch.where(ties, 0.5, (right > wrong).double()), ties)


def embed_texts(tower: Tower, texts: Sequence[str]) -> tuple[Float[Tensor, "text dim"], dict[str, int]]:
    """Unit vectors of the distinct texts, and the row of each.

    Raises:
        ValueError: the tower reads no text.
    """
    if tower.kind != "text":
        raise ValueError(f"Captions and foils need a text tower; this one reads {tower.kind}s.")
    distinct = list(dict.fromkeys(texts))
    vectors = torch.cat([embed_items(tower, distinct[start : start + 1024]) for start in range(0, len(distinct), 1024)])
    return normalize(vectors.float(), dim=1), {text: row for row, text in enumerate(distinct)}


def too_long(tower: Tower, texts: Sequence[str]) -> dict[str, str]:
    """Text -> why a tower can't read all of it; towers that tell no limit read any text.

    Args:
        tower: reads texts.
        texts: captions and foils.
    """
    inner = getattr(tower, "tower", tower)  # a repaired tower reads as the one in it
    if not isinstance(inner, NetworkTower) or inner.max_tokens is None:
        return {}
    distinct = list(dict.fromkeys(texts))
    return {
        text: f"takes {length} tokens where this tower reads {inner.max_tokens}"
        for text, length in zip(distinct, inner.reader.lengths(distinct), strict=True) if length > inner.max_tokens
    }  # fmt: skip


def judge_foils(pictures: Float[Tensor, "picture dim"], tower: Tower, table: FoilTable) -> FoilOutcomes:
    """Score every picture with its caption and with its foil, by cosine.

    Raises:
        ValueError: towers of different widths, or a pair that points at no picture.

    Example:
        >>> from colligate.embedders import load_model
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr"), load_model("oracle:pair-bag:256")
        >>> table = SwappedValue().table(world.scenes, world.captions, seed=0)
        >>> outcomes = judge_foils(model.towers["scene"].embed(world.scenes), model.towers["text"], table)
        >>> outcomes.hits.mean().item(), outcomes.ties.double().mean().item()
        (0.5, 1.0)
    """
    if len(table.rows) and int(table.rows.max()) >= len(pictures):
        raise ValueError(
            f"{table.name} points at picture {int(table.rows.max()) + 1} of {len(pictures)}; give its vector."
        )
    texts, place = embed_texts(tower, (*table.captions, *table.foils))
    if texts.shape[1] != pictures.shape[1]:
        raise ValueError(
            f"Pictures' vectors are {pictures.shape[1]} wide and texts' {texts.shape[1]}; no common space."
        )
    units = normalize(pictures.float(), dim=1)[table.rows]
    right, wrong = (
        (units * texts[torch.tensor([place[text] for text in of])]).sum(1) for of in (table.captions, table.foils)
    )
    return compare(right, wrong)
