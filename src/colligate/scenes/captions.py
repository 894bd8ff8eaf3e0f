"""Scenes as sentences: a phrase for each object, joined; or one sentence for the whole scene.

Words are put in place by concatenation, never by a second round of formatting, so that a word may hold any character.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter

from colligate.scenes.space import ConceptSpace, Scenes

_ARTICLE = re.compile(r"(?:^|(?<=\s))[Aa]\s+$")


@dataclass(frozen=True)
class _Place:
    """Where a word goes: the text before it, the concept it names, and the slot (counted from 1) if one is named."""

    before: str
    concept: str
    slot: int | None


@dataclass(frozen=True)
class _Phrase:
    """A parsed template: places in order, then the text after the last."""

    text: str
    places: tuple[_Place, ...]
    after: str

    @property
    def slots(self) -> int:
        """Number of slots that a whole-scene template names; 0 for the phrase of one object."""
        return max((place.slot or 0 for place in self.places), default=0)


@dataclass(frozen=True)
class CaptionTemplate:
    """Say each scene in words.

        caption(o_1, ..., o_K) = phrase(o_1) + joiner + ... + joiner + phrase(o_K)

    A place is a concept's name in braces, `{color}`; a literal brace is doubled, `{{`. A template for the whole scene
    numbers the slots from 1 instead: `{1.color}`; it then says scenes of exactly that many objects. The opposite order
    of objects is the caption of `scenes.twins()`.

    Args:
        pair: the phrase of one object among several, or a template for the whole scene.
        joiner: text between two objects (not read for a whole-scene template).
        single: the phrase of an object that stands alone; None uses `pair`.
        words: concept -> words to say, in index order, where they differ from the space's own.
        article: turn a lone "a" before a place into "an" where the word that follows begins with a, e, i, o or u. Off
            by default: the paper's captions say "a orange circle".

    Raises:
        ValueError: an unmatched brace, a place without a name, numbered and plain places in one template, or numbered
            places in `single`.

    Paper: arXiv:2605.31503, the text scenes.   Differs: any number of objects, any template.

    Example:
        >>> scenes = ConceptSpace(color=["red", "orange"], shape=["cube", "cone"]).scenes([[0, 3], [2, -1]])
        >>> CaptionTemplate()(scenes)
        ['a red cube and a orange cone', 'a orange cube']
        >>> CaptionTemplate(single="{color} {shape}", article=True)(scenes)
        ['a red cube and an orange cone', 'orange cube']
        >>> CaptionTemplate("a {1.color} {1.shape} left of a {2.color} {2.shape}")(scenes[:1])
        ['a red cube left of a orange cone']
    """

    pair: str = "a {color} {shape}"
    joiner: str = " and "
    single: str | None = None
    words: Mapping[str, Sequence[str]] | None = None
    article: bool = False
    _many: _Phrase = field(init=False, repr=False, compare=False)
    _alone: _Phrase | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        many = _parse(self.pair)
        alone = _parse(self.single) if self.single is not None else None if many.slots > 1 else many
        object.__setattr__(self, "_many", many)
        object.__setattr__(self, "_alone", alone)
        if self.single is not None and _parse(self.single).slots:
            raise ValueError(f"The single caption {self.single!r} numbers its slots; write {{color}}, not {{1.color}}.")

    def __call__(self, scenes: Scenes) -> list[str]:
        """The caption of each scene.

        Raises:
            ValueError: the template doesn't fit the space (see `check`) or a scene's number of objects.
        """
        self.check(scenes.space)
        if self._many.slots:
            return self._whole(scenes)
        said = self._objects(scenes, self._many)
        alone = said if self._alone is self._many else self._objects(scenes, self._alone or self._many)
        rows = [[o for o in row if o >= 0] for row in scenes.objects.tolist()]
        return [self.joiner.join([said[o] for o in row]) if len(row) > 1 else alone[row[0]] for row in rows]

    def check(self, space: ConceptSpace) -> None:
        """Make sure that captions name every concept of a space and tell its values apart.

        Raises:
            ValueError: a place for an unknown concept, a concept without a place (or a slot's concept, in a whole-scene
                template), or words that are too few, too many or repeated.
        """
        self._spoken(space)
        for phrase in (self._many, self._alone):
            if phrase is None:
                continue
            for place in phrase.places:
                if place.concept not in space.names:
                    raise ValueError(
                        f"The caption {phrase.text!r} has a place {{{place.concept}}}, but the concepts are "
                        f"{', '.join(space.names)}; write one of those, or {{{{...}}}} for a literal brace."
                    )
            held = {(place.slot, place.concept) for place in phrase.places}
            for slot in range(1, phrase.slots + 1) if phrase.slots else [None]:
                for name in space.names:
                    if (slot, name) not in held:
                        place = name if slot is None else f"{slot}.{name}"
                        raise ValueError(f"The caption {phrase.text!r} never says the {name}; add {{{place}}}.")

    def describe(self) -> dict[str, object]:
        """JSON-able facts that determine the captions, given the scenes."""
        words = None if self.words is None else {name: list(words) for name, words in self.words.items()}
        return {
            "pair": self.pair,
            "joiner": self.joiner,
            "single": self.single,
            "words": words,
            "article": self.article,
        }

    def _spoken(self, space: ConceptSpace) -> dict[str, Sequence[str]]:
        """The words to say for each concept."""
        spoken: dict[str, Sequence[str]] = dict(zip(space.names, space.words, strict=True))
        for name, words in (self.words or {}).items():
            size = space.sizes[space.concept(name)]
            if isinstance(words, str) or len(words) != size:
                raise ValueError(f"The caption's words for {name} must be {size}, one for each value; got {words!r}.")
            if len(set(words)) < size:
                repeated = next(word for word in words if list(words).count(word) > 1)
                raise ValueError(f"The caption says two values of {name} as {repeated!r}; give each its own word.")
            spoken[name] = words
        return spoken

    def _pieces(self, place: _Place, words: Sequence[str]) -> list[str]:
        """The text before a place together with each word that may fill it."""
        article = _ARTICLE.search(place.before) if self.article else None
        if article is None:
            return [place.before + word for word in words]
        cut = article.start() + 1
        an = place.before[:cut] + "n" + place.before[cut:]
        return [(an if word[:1].lower() in set("aeiou") else place.before) + word for word in words]

    def _objects(self, scenes: Scenes, phrase: _Phrase) -> dict[int, str]:
        """Object id -> phrase, for the objects that occur."""
        spoken = self._spoken(scenes.space)
        pieces = [(scenes.space.concept(p.concept), self._pieces(p, spoken[p.concept])) for p in phrase.places]
        ids = scenes.objects.unique()
        ids = ids[ids >= 0]
        said = {
            o: "".join([words[values[c]] for c, words in pieces]) + phrase.after
            for o, values in zip(ids.tolist(), scenes.space.object_values(ids).tolist(), strict=True)
        }
        owners: dict[str, int] = {}
        for o, text in said.items():
            if text in owners:
                one, other = (scenes.space.describe_object(i) for i in (owners[text], o))
                raise ValueError(f"The caption {phrase.text!r} says {one!r} and {other!r} alike; set the words apart.")
            owners[text] = o
        return said

    def _whole(self, scenes: Scenes) -> list[str]:
        """Captions from a template that numbers the slots."""
        lone = scenes.counts == 1 if self._alone is not None and self._alone is not self._many else None
        wrong = scenes.counts != self._many.slots if lone is None else (scenes.counts != self._many.slots) & ~lone
        if wrong.any():
            row = int(wrong.nonzero()[0])
            hint = ", or give `single`" if int(scenes.counts[row]) == 1 else ""
            raise ValueError(
                f"The caption {self.pair!r} is for {self._many.slots} objects, but scene {row} holds "
                f"{int(scenes.counts[row])}; caption such scenes with a template of their own{hint}."
            )
        spoken = self._spoken(scenes.space)
        order = (~scenes.filled).to(scenes.values.dtype).argsort(dim=1, stable=True)
        values = scenes.values.gather(1, order[..., None].expand_as(scenes.values))
        columns: list[list[str]] = []
        for place in self._many.places:
            pieces = self._pieces(place, spoken[place.concept])
            slot = min(place.slot or 1, scenes.slots) - 1  # a lone object's row is overwritten below
            columns.append([pieces[v] for v in values[:, slot, scenes.space.concept(place.concept)].tolist()])
        texts = ["".join(row) + self._many.after for row in zip(*columns, strict=True)]
        if lone is None or self._alone is None:
            return texts
        said = self._objects(scenes[lone], self._alone)
        for row, o in zip(lone.nonzero()[:, 0].tolist(), scenes.objects[lone].amax(1).tolist(), strict=True):
            texts[row] = said[o]
        return texts


def _parse(text: str) -> _Phrase:
    """Split a template at its places."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(
            f"The caption {text!r} has an unmatched brace ({error}); double a literal one: {{{{."
        ) from None
    places: list[_Place] = []
    before = ""
    for literal, name, spec, conversion in parts:
        before += literal
        if name is None:
            continue
        if not name or spec or conversion:
            raise ValueError(
                f"A place in the caption {text!r} isn't a plain {{concept}}; write its concept's name only."
            )
        numbered = re.fullmatch(r"([1-9]\d*)\.(.+)", name)
        places.append(_Place(before, numbered[2] if numbered else name, int(numbered[1]) if numbered else None))
        before = ""
    if len({place.slot is None for place in places}) > 1:
        raise ValueError(f"The caption {text!r} numbers some slots and not others; number all of its places or none.")
    return _Phrase(text, tuple(places), before)
