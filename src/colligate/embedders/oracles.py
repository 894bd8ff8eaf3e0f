"""Embedders whose answer is known: random binding functions that read scenes as integers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
            raise ValueError(f"No oracle is called {self.family!r}; choose one of {', '.join(_FAMILIES)}.")
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


def load(name: str, options: LoadOptions) -> Model:
    """Load `NAME`, `NAME:DIM` or `NAME?dim=DIM&seed=SEED`.

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
    return Model(f"oracle:{name}", {"scene": Oracle(family, **settings)})


def _pair(part: str) -> tuple[str, str]:
    name, _, given = part.partition("=")
    return name, given
