"""Embedders whose answer is known: random binding functions that read scenes as integers.

Pairs (`pair-...`) have two towers, one for scenes and one for captions, with a gap between them that is chosen.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from colligate import binding
from colligate.embedders.towers import LoadOptions, Model
from colligate.scenes.space import Scenes

_FAMILIES: dict[str, Callable[..., nn.Module]] = {
    "no-binding": binding.no_binding,
    "object-product": binding.object_product,
    "object-table": binding.object_table,
    "scene-table": binding.scene_table,
}

Rule = Literal["bag", "product", "own-product", "rote", "rotated"]
"""What one tower of a pair does with the words of each object, beyond adding up their vectors.

bag: nothing. product, own-product: adds the elementwise product of the words' factors, which both towers share or which
are this tower's own. rote: adds a free vector for the object. rotated: `product`, then a random rotation.
"""

PAIRS: Mapping[str, tuple[Rule, Rule]] = {
    "pair-aligned": ("product", "product"),
    "pair-rotated": ("product", "rotated"),
    "pair-mismatched": ("product", "own-product"),
    "pair-bag": ("product", "bag"),
    "pair-rote": ("rote", "product"),
}
"""Name of a pair -> what its scene tower and its text tower do."""


_SILENT = frozenset(["a", "an", "the", "photo", "picture", "image", "of", "something", "thing", "object", "in", "with"])
_BETWEEN = re.compile(r"\b(?:and|left of|right of|above|below|behind|in front of|next to)\b|[,;.]")


@dataclass(frozen=True)
class Oracle:
    """Embed scenes by a random binding function, so that every measurement has a known answer.

        no-binding      sum_k sum_c u[c, v]      names every value, binds nothing
        object-product  sum_k prod_c u[c, v]     binds by a rule that carries over to unseen objects
        object-table    sum_k w[object]          binds by rote
        scene-table     t[scene]                 memorised

    The function depends on the scenes' space and number of slots alone, so any subset of rows gets the same vectors.

    Args:
        family: no-binding, object-product, object-table or scene-table.
        dim: embedding width; at least the number of objects if every one is to be told apart linearly.
        seed: of the random parameters.

    Raises:
        ValueError: the family is not known.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> oracle = Oracle("no-binding", dim=16)
        >>> bool((oracle.embed(scenes) - oracle.embed(scenes.swap(0))).abs().max() < 1e-6)
        True
    """

    family: str
    dim: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.family not in _FAMILIES:
            known = ", ".join((*_FAMILIES, *PAIRS))
            raise ValueError(f"No oracle is called {self.family!r}; choose one of {known}.")
        if self.dim < 1:
            raise ValueError(f"An oracle needs at least one dimension; got dim={self.dim}.")

    @property
    def kind(self) -> Literal["scene"]:
        """Oracles read scenes."""
        return "scene"

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """Family, width and seed determine the vectors."""
        return {"library": "colligate", "oracle": self.family, "dim": self.dim, "seed": self.seed, "dtype": "float32"}

    def embed(self, items: Scenes) -> Float[Tensor, "item dim"]:
        """One vector for each scene."""
        function = _FAMILIES[self.family](items.space, items.slots, self.dim, self.seed)
        return function(items.values).float()


@dataclass(frozen=True)
class PairedOracle:
    """One tower of a pair that sees the same objects as the other and may bind them by another function.

        x = sum over objects ( sum_w u[w]  +  bound(words of the object) ),    u[w] in {-1, 1}^dim, the same in both

    `bound` is 0 (bag), prod_w v[w] (product), a free vector (rote). Words that only build the sentence are skipped and
    an object ends at "and", a comma or a relation, so captions of any wording can be read. A single word ("something
    red") has no product.

    What can be repaired on the text side is known: `pair-rotated` by a linear map; `pair-mismatched` by a rule that
    knows the values, but by no linear map on objects never seen; `pair-bag` by no linear map at all, since a caption
    and its swap have one vector; `pair-rote` by nothing, on objects never seen. `pair-aligned` needs no repair.

    Args:
        kind: "scene" or "text".
        rule: what binds an object's words.
        dim: width.
        seed: of every vector.

    Example:
        >>> text = PairedOracle("text", "product", dim=8)
        >>> both = text.embed(["a red cube and a blue sphere", "a photo of a red cube", "a blue sphere"])
        >>> bool(torch.equal(both[0], both[1] + both[2]))
        True
    """

    kind: Literal["scene", "text"]
    rule: Rule
    dim: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ValueError(f"An oracle needs at least one dimension; got dim={self.dim}.")

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """Rule, width and seed determine the vectors."""
        return {
            "library": "colligate", "oracle": f"paired {self.rule}", "kind": self.kind, "dim": self.dim,
            "seed": self.seed, "dtype": "float32",
        }  # fmt: skip

    def embed(self, items: Scenes | Sequence[str]) -> Float[Tensor, "item dim"]:
        """One vector for each scene or caption.

        Raises:
            ValueError: a caption names no object.
        """
        if isinstance(items, Scenes):
            known = items.objects.unique()
            words = [tuple(_tokens(items.space.describe_object(int(o)))) if o >= 0 else () for o in known]
            table = torch.stack([self._object(of) for of in words])
            vectors = table[torch.searchsorted(known, items.objects)].sum(1)
        else:
            objects = [_objects_of(text) for text in items]
            place = {words: row for row, words in enumerate(dict.fromkeys(words for row in objects for words in row))}
            table = torch.stack([self._object(words) for words in place])
            rows = torch.tensor([row for row, of in enumerate(objects) for _ in of])
            columns = torch.tensor([place[words] for of in objects for words in of])
            vectors = torch.zeros(len(objects), self.dim, dtype=torch.float64).index_add_(0, rows, table[columns])
        if self.rule == "rotated":
            square = torch.randn(self.dim, self.dim, generator=self._generator("rotation"), dtype=torch.float64)
            vectors = vectors @ torch.linalg.qr(square).Q
        return vectors.float()

    def _object(self, words: tuple[str, ...]) -> Float[Tensor, " dim"]:
        total = torch.zeros(self.dim, dtype=torch.float64)
        for word in words:
            total += self._signs("value", word)
        if len(words) < 2 or self.rule == "bag":
            return total
        if self.rule == "rote":
            return total + self._signs("object", " ".join(sorted(words)))
        role = f"factor of {self.kind}" if self.rule == "own-product" else "factor"
        return total + torch.stack([self._signs(role, word) for word in words]).prod(0)

    def _signs(self, role: str, word: str) -> Float[Tensor, " dim"]:
        drawn = torch.randint(2, (self.dim,), generator=self._generator(f"{role} {word}"))
        return 2 * drawn.double() - 1

    def _generator(self, what: str) -> torch.Generator:
        digest = hashlib.sha256(f"{self.seed} {what}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _tokens(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if word not in _SILENT]


def _objects_of(text: str) -> list[tuple[str, ...]]:
    """The words of each object that a caption names."""
    found = [words for part in _BETWEEN.split(text.lower()) if (words := tuple(_tokens(part)))]
    if not found:
        raise ValueError(f"The caption {text!r} names no object; an oracle reads captions such as 'a red cube'.")
    return found


def load(name: str, options: LoadOptions) -> Model:
    """Load `NAME`, `NAME:DIM` or `NAME?dim=DIM&seed=SEED`; a name in `PAIRS` gives a scene and a text tower.

    Raises:
        ValueError: the name or a setting is not known, or an option was given that oracles don't have.

    Example:
        >>> load("no-binding?dim=8&seed=3", LoadOptions()).towers["scene"]
        Oracle(family='no-binding', dim=8, seed=3)
    """
    if options.layer is not None or options.pooling is not None:
        raise ValueError("An oracle has no layers and no pooling; leave them out.")
    if options.normalize:
        raise ValueError("An oracle's vectors are known sums and products; normalise the embeddings instead.")
    family, _, query = name.partition("?")
    family, _, width = family.partition(":")
    settings: dict[str, Any] = {}
    for name_of, given in [*([("dim", width)] if width else []), *(_pair(part) for part in query.split("&") if part)]:
        if name_of not in {"dim", "seed"} or not given.isdigit():
            raise ValueError(f"An oracle takes dim=NUMBER and seed=NUMBER; got {name_of}={given} in oracle:{name}.")
        settings[name_of] = int(given)
    if family in PAIRS:
        kinds: tuple[Literal["scene", "text"], ...] = ("scene", "text")
        towers = {kind: PairedOracle(kind, rule, **settings) for kind, rule in zip(kinds, PAIRS[family], strict=True)}
        return Model(f"oracle:{name}", towers)
    return Model(f"oracle:{name}", {"scene": Oracle(family, **settings)})


def _pair(part: str) -> tuple[str, str]:
    name, _, given = part.partition("=")
    return name, given
