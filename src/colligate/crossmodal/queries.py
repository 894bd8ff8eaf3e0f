"""Texts that ask for one value or one object, and their vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from colligate.choices import VALUE_QUERIES
from colligate.embedders.embedding import embed
from colligate.embedders.towers import Model, Tower
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import ConceptSpace
from colligate.scenes.worlds import World
from colligate.store import Store


@dataclass(frozen=True, kw_only=True)
class QueryTemplates:
    """How values and objects are asked for; several templates of one thing are an ensemble.

    Example:
        >>> templates = QueryTemplates(values=("something {color}", "a {shape}"), article=True)
        >>> templates.of_value(ConceptSpace(color=["red"], shape=["oval"]), 1)[0].pair
        'a {shape}'
    """

    values: tuple[str, ...] = VALUE_QUERIES
    """Texts that ask for one value: {value} stands for any concept's word, {color} for a color's only. A concept that
    some template names takes those templates alone."""
    objects: tuple[str, ...] = ()
    """Texts that ask for one object, such as "a photo of a {color} {shape}"; by default as the world's captions say
    it, else "a" and its words."""
    words: Mapping[str, Sequence[str]] | None = None
    """Concept -> words to say, in index order, where they differ from the space's own."""
    article: bool = False
    """Turn a lone "a" before a place into "an" where the word begins with a vowel."""

    def of_value(self, space: ConceptSpace, concept: int) -> list[CaptionTemplate]:
        """The templates that ask for values of a concept.

        Raises:
            ValueError: a template has no place for a concept, names two, or none asks for this one.
        """
        name = space.names[concept]
        named = {template: self._places(template, space) for template in self.values}
        own = [template for template, places in named.items() if places == {name}]
        if not own:
            own = [template for template, places in named.items() if places == {"value"}]
        if not own:
            raise ValueError(f"No template asks for the {name}; add one with {{value}} or {{{name}}}.")
        if name != "value":
            own = [template.replace("{value}", f"{{{name}}}") for template in own]
        words = None if name not in (self.words or {}) else {name: (self.words or {})[name]}
        return [CaptionTemplate(text, words=words, article=self.article) for text in own]

    def of_object(self, space: ConceptSpace, like: CaptionTemplate | None = None) -> list[CaptionTemplate]:
        """The templates that ask for objects, by default in the words of the captions `like`."""
        texts, words, article = self.objects, self.words, self.article
        if not texts and like is not None and "{1." not in like.pair:
            texts, words, article = (like.pair,), words or like.words, article or like.article
        texts = texts or ("a " + " ".join(f"{{{name}}}" for name in space.names),)
        return [CaptionTemplate(text, words=words, article=article) for text in texts]

    @staticmethod
    def _places(template: str, space: ConceptSpace) -> set[str]:
        known = {name for name in (*space.names, "value") if f"{{{name}}}" in template}
        if len(known) != 1:
            held = "no place for a concept" if not known else f"places for {' and '.join(sorted(known))}"
            options = ", ".join(f"{{{name}}}" for name in space.names)
            raise ValueError(f"The value template {template!r} has {held}; write {{value}} or one of {options} in it.")
        return known


@dataclass(frozen=True, eq=False)
class QueryVectors:
    """A vector for each value and for each object of a space.

    Attributes:
        space: the concepts.
        concepts: for each concept a vector for each of its values; None where the tower can't say a single value.
        objects: a vector for each object.

    Raises:
        ValueError: rows that don't fit the space, or widths that differ.

    Example:
        >>> queries = QueryVectors(ConceptSpace(color=2, shape=3), None, torch.eye(6))
        >>> queries.matrix.shape
        torch.Size([6, 6])
    """

    space: ConceptSpace
    concepts: tuple[Float[Tensor, "_ dim"], ...] | None
    objects: Float[Tensor, "object dim"]

    def __post_init__(self) -> None:
        if len(self.objects) != self.space.num_objects:
            raise ValueError(f"{len(self.objects)} object queries for {self.space.num_objects} objects; give one each.")
        sizes = tuple(map(len, self.concepts or ()))
        if self.concepts is not None and sizes != self.space.sizes:
            raise ValueError(f"Value queries number {sizes} for concepts of {self.space.sizes} values; give one each.")
        if {vectors.shape[1] for vectors in self.concepts or ()} - {self.objects.shape[1]}:
            raise ValueError("Value queries and object queries differ in width; embed both with one tower.")

    @cached_property
    def matrix(self) -> Float[Tensor, "query dim"]:
        """Unit vectors: the values of each concept, then the objects."""
        return normalize(torch.cat([*(self.concepts or ()), self.objects]).float(), dim=1)

    @property
    def num_values(self) -> int:
        """Number of value queries."""
        return 0 if self.concepts is None else sum(self.space.sizes)


@runtime_checkable
class AsksByItself(Protocol):
    """A tower whose model has queries of its own instead of texts, as dual encoders trained on token scenes have."""

    @property
    def network(self) -> Any:
        """Its `space` says which objects the queries are of."""
        ...

    def object_queries(self, objects: Int[Tensor, " object"]) -> Float[Tensor, "object dim"]:
        """Vectors that ask for objects."""
        ...

    def value_queries(self) -> tuple[Float[Tensor, "value dim"], ...]:
        """Vectors that ask for each value, concept by concept."""
        ...


def query_tower(model: Model) -> Tower:
    """The tower that is asked: the one that reads texts, or one that has queries of its own.

    Raises:
        ValueError: the model reads no text.

    Example:
        >>> from colligate.embedders import load_model
        >>> query_tower(load_model("oracle:pair-rotated:8")).kind
        'text'
    """
    if "text" in model.towers:
        return model.towers["text"]
    for tower in model.towers.values():
        if isinstance(tower, AsksByItself):
            return tower
    raise ValueError(
        f"{model.name} has no text tower (only {', '.join(model.towers)}), so nothing can be asked of it in words; "
        "choose a two-tower model such as CLIP, or study its own tower."
    )


def scene_tower(model: Model, world: World, kind: str | None = None) -> Tower:
    """The tower that embeds scenes: pictures if the model and the world have them, else token scenes.

    Args:
        model: two towers.
        world: what can be shown.
        kind: picture, scene or text (captions of scenes); None chooses.

    Raises:
        ValueError: the model lacks such a tower, or the world doesn't show what it reads.
    """
    wanted = (kind,) if kind is not None else ("picture", "scene")
    able = [one for one in wanted if one in model.towers]
    if not able:
        raise ValueError(
            f"{model.name} has no {' or '.join(wanted)} tower (only {', '.join(model.towers)}), so there is nothing "
            "to match texts with; choose a two-tower model, or scenes as captions with the tower `text`."
        )
    shown = [one for one in able if one in world.kinds]
    if not shown:
        raise ValueError(
            f"{model.name} reads {', '.join(able)} items and world {world.name!r} shows {', '.join(world.kinds)}; "
            "choose a world with pictures, such as clevr2d."
        )
    return model.towers[shown[0]]


def embed_queries(
    tower: Tower, world: World, templates: QueryTemplates | None = None, *, store: Store | None = None
) -> QueryVectors:
    """Embed a text for every value and every object of a world's space.

    Vectors of an ensemble's templates are averaged after each is divided by its length.

    Args:
        tower: reads texts, or has queries of its own; another one that reads scenes embeds single objects, no values.
        world: names the concepts, and how its captions say objects.
        templates: the wording.
        store: where vectors are kept.

    Raises:
        ValueError: a template without a place, or with words that don't tell values apart.

    Example:
        >>> from colligate.embedders import load_model
        >>> from colligate.scenes.worlds import load_world
        >>> queries = embed_queries(load_model("oracle:pair-rotated:8").towers["text"], load_world("clevr"))
        >>> [len(values) for values in queries.concepts], len(queries.objects)
        ([8, 3], 24)
    """
    templates, space = templates or QueryTemplates(), world.scenes.space
    if isinstance(tower, AsksByItself):
        return _own_queries(tower, space)

    def vectors(wordings: Sequence[World]) -> Tensor:
        found = [embed(tower, one, store=store).vectors for one in wordings]
        return found[0] if len(found) == 1 else torch.stack([normalize(one.float(), dim=1) for one in found]).mean(0)

    *values, objects = query_worlds(world, templates, values=tower.kind == "text")
    of_objects = vectors(objects)
    return QueryVectors(space, tuple(map(vectors, values)) if values else None, of_objects)


def query_worlds(world: World, templates: QueryTemplates | None = None, *, values: bool = True) -> list[list[World]]:
    """Worlds whose captions ask for every value, concept by concept, and for every object; one for each wording.

    Args:
        world: names the concepts, and how its captions say objects.
        templates: the wording.
        values: ask for single values too.

    Raises:
        ValueError: a template without a place.

    Example:
        >>> from colligate.scenes.worlds import load_world
        >>> [of[0].texts()[0] for of in query_worlds(load_world("clevr"))]
        ['a photo of something blue', 'a photo of something cube', 'a blue cube']
    """
    templates, space = templates or QueryTemplates(), world.scenes.space
    like = world.captions if isinstance(world.captions, CaptionTemplate) else None

    def asking(name: str, of: ConceptSpace, wordings: Sequence[CaptionTemplate]) -> list[World]:
        return [World(f"queries for each {name}", of.all_scenes(slots=1), wording) for wording in wordings]

    objects = asking("object", space, templates.of_object(space, like))
    if not values:
        return [objects]
    if templates.words is None and like is not None and like.words is not None:
        templates = QueryTemplates(
            values=templates.values, objects=templates.objects, words=like.words, article=templates.article
        )
    concepts = [
        asking(name, ConceptSpace({name: words}), templates.of_value(space, c))
        for c, (name, words) in enumerate(zip(space.names, space.words, strict=True))
    ]
    return [*concepts, objects]


def _own_queries(tower: AsksByItself, space: ConceptSpace) -> QueryVectors:
    """What a model trained with queries asks; its space may have more values than the world shows."""
    ids = tower.network.space.object_ids(space.object_values(torch.arange(space.num_objects)))
    values = tuple(of[:size] for of, size in zip(tower.value_queries(), space.sizes, strict=True))
    return QueryVectors(space, values, tower.object_queries(ids))
