"""Concepts, objects and scenes as integers: what there is to bind.

A concept (colour) has values (red, blue); an object has one value of each concept; a scene is an ordered tuple of
objects. Everything here is arithmetic on indices: ids are mixed radix, never an order of first appearance.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from jaxtyping import Bool, Int
from torch import Tensor

EMPTY = -1
"""What `Scenes.values` and `Scenes.objects` hold where a slot is empty."""
RESERVED = frozenset({
    "", "object", "concept", "concepts", "joint", "across", "swap", "shared", "different", "avg", "avg+pos", "avg.set",
    "single", "orthogonal", "least_squares", "up_to_order",
})  # fmt: skip
"""Words that stand beside concept names in metric ids."""


@dataclass(frozen=True, init=False)
class ConceptSpace:
    """Name the concepts and the values that each can take.

        C = C_1 x ... x C_C,   object = (c_1, ..., c_C),   object id = mixed radix of its values (last concept fastest)

    Paper: arXiv:2605.31503, Sec. 3.

    Args:
        concepts: concept name -> number of values, or the values' words in index order. Keywords say the same.

    Raises:
        ValueError: no concept, a concept without values, a repeated word, or a reserved name.

    Example:
        >>> space = ConceptSpace(color=["red", "blue"], shape=3)
        >>> space.sizes, space.num_objects
        ((2, 3), 6)
        >>> space.describe_object(4)
        'blue shape1'
    """

    names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]

    def __init__(
        self, concepts: Mapping[str, int | Sequence[str]] | None = None, /, **named: int | Sequence[str]
    ) -> None:
        listed = {**(concepts or {}), **named}
        for name, given in listed.items():
            if isinstance(given, str):
                raise ValueError(f"Concept {name!r} got the single word {given!r}; list its values, [{given!r}, ...].")
        words = tuple(
            tuple(f"{name}{i}" for i in range(given)) if isinstance(given, int) else tuple(str(w) for w in given)
            for name, given in listed.items()
        )
        object.__setattr__(self, "names", tuple(listed))
        object.__setattr__(self, "words", words)
        if not self.names:
            raise ValueError("A concept space needs at least one concept, for example ConceptSpace(color=3, shape=2).")
        for name, of_concept in zip(self.names, self.words, strict=True):
            if not of_concept:
                raise ValueError(f"Concept {name!r} has no values; give it at least one.")
            if len(set(of_concept)) < len(of_concept):
                repeated = Counter(of_concept).most_common(1)[0][0]
                raise ValueError(f"Concept {name!r} lists the value {repeated!r} twice; each value needs its own word.")
            if name in RESERVED:
                raise ValueError(f"A concept can't be called {name!r}, which means something in metric ids; rename it.")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each concept."""
        return tuple(len(words) for words in self.words)

    @property
    def num_concepts(self) -> int:
        """Number of concepts, C."""
        return len(self.names)

    @property
    def num_objects(self) -> int:
        """Number of objects, prod V_c."""
        return prod(self.sizes)

    @property
    def _strides(self) -> Int[Tensor, " concept"]:
        return torch.tensor([prod(self.sizes[c + 1 :]) for c in range(self.num_concepts)], dtype=torch.int64)

    def concept(self, name: str) -> int:
        """Index of the concept called `name`."""
        if name not in self.names:
            raise ValueError(f"No concept is called {name!r}; this space has {', '.join(self.names)}.")
        return self.names.index(name)

    def object_ids(self, values: Int[Tensor, "*rows concept"]) -> Int[Tensor, "*rows"]:
        """Object id of each row of values; a row with an empty value gives `EMPTY`.

        Example:
            >>> ConceptSpace(color=2, shape=3).object_ids(torch.tensor([[1, 2], [-1, -1]])).tolist()
            [5, -1]
        """
        ids = (values * self._strides.to(values.device)).sum(-1)
        return torch.where((values < 0).any(-1), torch.full_like(ids, EMPTY), ids)

    def object_values(self, ids: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows concept"]:
        """Values of each object id; the inverse of `object_ids`.

        Example:
            >>> ConceptSpace(color=2, shape=3).object_values(torch.tensor([5, -1])).tolist()
            [[1, 2], [-1, -1]]
        """
        sizes = torch.tensor(self.sizes, device=ids.device)
        values = torch.div(ids[..., None], self._strides.to(ids.device), rounding_mode="floor") % sizes
        return torch.where(ids[..., None] < 0, torch.full_like(values, EMPTY), values)

    def describe_object(self, object_id: int) -> str:
        """The object's words, separated by blanks."""
        values = self.object_values(torch.tensor(object_id)).tolist()
        return " ".join(words[v] for words, v in zip(self.words, values, strict=True))

    def scenes(self, objects: Int[Tensor, "scene slot"] | Sequence[Sequence[int]]) -> "Scenes":
        """Scenes from object ids, one row a scene, one column a slot, `EMPTY` where a slot holds nothing.

        Example:
            >>> ConceptSpace(color=2, shape=2).scenes([[0, 3], [1, -1]]).counts.tolist()
            [2, 1]
        """
        ids = torch.as_tensor(objects, dtype=torch.int64)
        if ids.ndim != 2:
            raise ValueError(f"Object ids must be [scene, slot]; got shape {tuple(ids.shape)}.")
        outside = ids[(ids < EMPTY) | (ids >= self.num_objects)]
        if len(outside):
            raise ValueError(
                f"Object id {int(outside[0])} is outside this space of {self.num_objects} objects ({EMPTY}: none)."
            )
        return Scenes(self, self.object_values(ids))

    def all_scenes(self, slots: int = 2) -> "Scenes":
        """Every ordered combination of `slots` objects, the last slot varying fastest.

        Example:
            >>> len(ConceptSpace(color=2, shape=2).all_scenes(slots=2))
            16
        """
        if slots < 1:
            raise ValueError(f"Scenes need at least one slot; got slots={slots}.")
        if self.num_objects**slots > 50_000_000:
            raise ValueError(
                f"All combinations of {slots} of {self.num_objects} objects are {self.num_objects**slots:,} scenes; "
                "draw some with sample_scenes instead."
            )
        objects = torch.arange(self.num_objects)
        return self.scenes(torch.cartesian_prod(*[objects] * slots).reshape(-1, slots))

    def sample_scenes(self, num: int, slots: int = 2, *, generator: torch.Generator) -> "Scenes":
        """`num` scenes of objects drawn independently and uniformly, with replacement.

        Example:
            >>> space = ConceptSpace(color=9, shape=9)
            >>> len(space.sample_scenes(5, slots=3, generator=torch.Generator().manual_seed(0)))
            5
        """
        return self.scenes(torch.randint(self.num_objects, (num, slots), generator=generator))


@dataclass(frozen=True, eq=False)
class Scenes:
    """Rows of scenes: which value of which concept stands in which slot.

    Scenes may hold different numbers of objects. An empty slot holds `EMPTY` for every concept. The same scene may
    stand in several rows (replicates: other pictures or captions of it).

    Attributes:
        space: the concepts and their values.
        values: value index for each scene, slot and concept.

    Raises:
        ValueError: a value outside the space, a slot filled in part, a scene without objects.

    Example:
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> scenes.values.shape, scenes.describe(7)
        (torch.Size([36, 2, 2]), 'color0 shape1 | color0 shape1')
    """

    space: ConceptSpace
    values: Int[Tensor, "scene slot concept"]

    def __post_init__(self) -> None:
        values = self.values
        if values.ndim != 3 or values.shape[2] != self.space.num_concepts or values.dtype != torch.int64:
            raise ValueError(
                f"Scene values must be int64 [scene, slot, {self.space.num_concepts} concepts]; "
                f"got {values.dtype} {tuple(values.shape)}."
            )
        for c, (name, size) in enumerate(zip(self.space.names, self.space.sizes, strict=True)):
            wrong = (values[..., c] < EMPTY) | (values[..., c] >= size)
            if wrong.any():
                row, slot = (int(i) for i in wrong.nonzero()[0])
                raise ValueError(
                    f"Scene {row}, slot {slot + 1}: {name} {int(values[row, slot, c])} is outside 0..{size - 1}."
                )
        in_part = (values < 0).any(-1) & (values >= 0).any(-1)
        if in_part.any():
            row, slot = (int(i) for i in in_part.nonzero()[0])
            raise ValueError(f"Scene {row}, slot {slot + 1} has some concepts and lacks others; fill all or none.")
        if len(values) and not self.filled.any(1).all():
            raise ValueError(f"Scene {int((~self.filled.any(1)).nonzero()[0])} holds no object; leave it out.")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def slots(self) -> int:
        """Number of slots, K (the most objects a scene can hold)."""
        return self.values.shape[1]

    @cached_property
    def filled(self) -> Bool[Tensor, "scene slot"]:
        """Which slots hold an object."""
        return (self.values >= 0).all(-1)

    @cached_property
    def counts(self) -> Int[Tensor, " scene"]:
        """Number of objects in each scene."""
        return self.filled.sum(1)

    @cached_property
    def objects(self) -> Int[Tensor, "scene slot"]:
        """Object id in each slot, `EMPTY` where there is none."""
        return self.space.object_ids(self.values)

    @cached_property
    def ids(self) -> Int[Tensor, " scene"]:
        """Scene id: mixed radix of the slots' object ids, an empty slot counting as digit zero."""
        return self._encode(self.objects)

    @cached_property
    def unordered_ids(self) -> Int[Tensor, " scene"]:
        """The same number for scenes that hold the same objects in whatever slots (a scene and its twin)."""
        return self._encode(self.objects.sort(dim=1, descending=True).values)

    @property
    def objects_by_appearance(self) -> Int[Tensor, " object"]:
        """Object ids as they first appear, scene after scene: how the paper's code numbers them.

        Example:
            >>> ConceptSpace(color=3, shape=2).scenes([[4, 1], [1, 0]]).objects_by_appearance.tolist()
            [4, 1, 0]
        """
        return torch.tensor(list(dict.fromkeys(self.objects[self.filled].tolist())))

    def _encode(self, objects: Int[Tensor, "scene slot"]) -> Int[Tensor, " scene"]:
        base = self.space.num_objects + 1
        if base**self.slots >= 2**63:
            raise ValueError(f"{self.slots} slots of {self.space.num_objects} objects overflow 64-bit scene ids.")
        powers = torch.tensor([base**k for k in reversed(range(self.slots))], device=objects.device)
        return ((objects + 1) * powers).sum(1)

    @cached_property
    def bags(self) -> Int[Tensor, " scene"]:
        """The same number for scenes that a bag of concepts can't tell apart: equal values of each concept, counted."""
        ordered = self.values.sort(dim=1).values.reshape(len(self), -1)
        return torch.unique(ordered, dim=0, return_inverse=True)[1]

    @cached_property
    def value_sets(self) -> Int[Tensor, " scene"]:
        """The same number for scenes in which the same values occur, however often."""
        present = torch.cat([self.contains(c) for c in range(self.space.num_concepts)], dim=1)
        return torch.unique(present, dim=0, return_inverse=True)[1]

    def contains(self, concept: int) -> Bool[Tensor, "scene value"]:
        """Which values of a concept occur in each scene."""
        return self.multiplicity(concept) > 0

    def multiplicity(self, concept: int) -> Int[Tensor, "scene value"]:
        """How many slots hold each value of a concept."""
        counts = torch.zeros(len(self), self.space.sizes[concept], dtype=torch.int64, device=self.values.device)
        return counts.scatter_add_(1, self.values[..., concept].clamp(min=0), self.filled.long())

    def contains_objects(self) -> Bool[Tensor, "scene object"]:
        """Which objects occur in each scene."""
        counts = torch.zeros(len(self), self.space.num_objects, dtype=torch.int32, device=self.values.device)
        return counts.scatter_add_(1, self.objects.clamp(min=0), self.filled.int()) > 0

    def shares(self, concept: int) -> Bool[Tensor, " scene"]:
        """Whether two objects of the scene have the same value of a concept."""
        return (self.multiplicity(concept) > 1).any(1)

    def shares_any(self) -> Bool[Tensor, " scene"]:
        """Whether two objects of the scene have the same value of any concept."""
        return torch.stack([self.shares(c) for c in range(self.space.num_concepts)]).any(0)

    def __getitem__(self, rows: Tensor | slice | Sequence[int]) -> "Scenes":
        """The scenes in the given rows (indices, a mask or a slice), in that order."""
        index = rows if isinstance(rows, Tensor | slice) else torch.tensor(list(rows), dtype=torch.int64)
        return Scenes(self.space, self.values[index])

    def rows_of(self, scenes: "Scenes") -> Int[Tensor, " query"]:
        """First row in which each of the other scenes stands here, or -1.

        Example:
            >>> all_pairs = ConceptSpace(color=2, shape=2).all_scenes(slots=2)
            >>> all_pairs.rows_of(all_pairs.space.scenes([[0, 1], [3, 3]])).tolist()
            [1, 15]
        """
        if scenes.space != self.space:
            raise ValueError("Rows can only be looked up for scenes of the same concept space.")
        wanted = scenes.padded(self.slots)._encode(scenes.padded(self.slots).objects)
        ids, order = self.ids.sort(stable=True)
        place = torch.searchsorted(ids, wanted).clamp(max=max(len(ids) - 1, 0))
        if not len(ids):
            return torch.full_like(wanted, -1)
        return torch.where(ids[place] == wanted, order[place], torch.full_like(wanted, -1))

    def padded(self, slots: int) -> "Scenes":
        """The same scenes with empty slots added at the end."""
        if slots < self.slots:
            raise ValueError(f"Can't pad scenes of {self.slots} slots to {slots}.")
        extra = self.values.new_full((len(self), slots - self.slots, self.space.num_concepts), EMPTY)
        return self if slots == self.slots else Scenes(self.space, torch.cat([self.values, extra], dim=1))

    @staticmethod
    def join(parts: Iterable["Scenes"]) -> "Scenes":
        """Rows of several sets of scenes of one space, one after the other.

        Example:
            >>> space = ConceptSpace(color=2, shape=2)
            >>> Scenes.join([space.all_scenes(slots=2), space.all_scenes(slots=1)]).counts.unique().tolist()
            [1, 2]
        """
        listed = list(parts)
        if len({part.space for part in listed}) != 1:
            raise ValueError("Scenes can only be joined within one concept space.")
        slots = max(part.slots for part in listed)
        return Scenes(listed[0].space, torch.cat([part.padded(slots).values for part in listed]))

    def replace(self, slot: int, values: Int[Tensor, "scene concept"]) -> "Scenes":
        """The scenes with the object in `slot` exchanged for another, one for each scene."""
        changed = self.values.clone()
        changed[:, slot] = values
        return Scenes(self.space, changed)

    def swap(self, concept: int, slots: tuple[int, int] = (0, 1)) -> "Scenes":
        """The scenes after two slots exchange their value of one concept (the binding foil).

        Example:
            >>> scenes = ConceptSpace(color=2, shape=2).scenes([[0, 3]])
            >>> scenes.swap(0).objects.tolist()
            [[2, 1]]
        """
        changed = self.values.clone()
        changed[:, list(slots), concept] = self.values[:, list(reversed(slots)), concept]
        return Scenes(self.space, changed)

    def twins(self) -> "Scenes":
        """The scenes with their objects in the opposite order of slots."""
        objects = self.objects.clone()
        for count in self.counts.unique().tolist():
            rows = (self.counts == count).nonzero()[:, 0]
            held = self.objects[rows][self.filled[rows]].reshape(len(rows), count)
            block = objects[rows]
            block[self.filled[rows]] = held.flip(1).reshape(-1)
            objects[rows] = block
        return self.space.scenes(objects)

    def describe(self, row: int) -> str:
        """The scene's words, slots separated by a bar."""
        return " | ".join(self.space.describe_object(o) for o in self.objects[row].tolist() if o >= 0)

    @cached_property
    def content_hash(self) -> str:
        """sha256 of the space and of every row, the same on every machine."""
        digest = hashlib.sha256(repr((self.space.names, self.space.words, self.slots)).encode())
        digest.update(self.values.cpu().numpy().astype("<i8").tobytes())
        return digest.hexdigest()
