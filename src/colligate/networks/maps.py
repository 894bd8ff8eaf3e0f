"""Maps that repair a frozen text tower: from what it gives for a text to a vector in the other tower's space.

Every map takes the text's vector, divided by its length, and the values that the text names. The product head reads the
values alone, so a caption must be parsed before it, and it says so (`reads`); all others read the vector alone.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from colligate.binding import ValueTables
from colligate.records import WorkError, read_sealed, sealed_json, write_atomic
from colligate.scenes.space import ConceptSpace

MapKind = Literal["linear", "low_rank", "mlp", "product"]
"""Which map; see the class of that name."""

SCHEMA = 1
"""Number of the files' layout; another one is refused."""


@runtime_checkable
class TextMap(Protocol):
    """Anything that turns texts, as vectors and as values, into vectors of the other tower's space."""

    @property
    def reads(self) -> Literal["vectors", "values"]:
        """Which of the two it needs; the other may be anything."""
        ...

    def __call__(
        self, vectors: Float[Tensor, "text dim"], values: Int[Tensor, "text slot concept"]
    ) -> Float[Tensor, "text dim"]:
        """One vector for each text."""
        ...


class LinearMap(nn.Module):
    """One matrix, which starts as the identity.

        m(t) = W t

    Source: LABCLIP, arXiv:2502.03566.

    Example:
        >>> LinearMap(4)(torch.ones(1, 4), torch.zeros(1, 1, 2, dtype=torch.int64)).tolist()
        [[1.0, 1.0, 1.0, 1.0]]
    """

    reads: Literal["vectors"] = "vectors"

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(dim))

    def forward(
        self, vectors: Float[Tensor, "text dim"], values: Int[Tensor, "text slot concept"]
    ) -> Float[Tensor, "text dim"]:
        """Multiply."""
        del values
        return vectors @ self.weight.T

    def distance(self) -> Float[Tensor, ""]:
        """Squared distance from doing nothing."""
        return (self.weight - torch.eye(len(self.weight), dtype=self.weight.dtype)).square().sum()


class LowRankMap(nn.Module):
    """The identity plus a matrix of low rank, a control: can a few directions repair it?

        m(t) = t + U V t,    U starts at zero

    Example:
        >>> LowRankMap(4, rank=2)(torch.ones(1, 4), torch.zeros(1, 1, 2, dtype=torch.int64)).tolist()
        [[1.0, 1.0, 1.0, 1.0]]
    """

    reads: Literal["vectors"] = "vectors"

    def __init__(self, dim: int, rank: int, seed: int = 0) -> None:
        super().__init__()
        self.down = nn.Parameter(_normal((rank, dim), seed, dim**-0.5))
        self.up = nn.Parameter(torch.zeros(dim, rank))

    def forward(
        self, vectors: Float[Tensor, "text dim"], values: Int[Tensor, "text slot concept"]
    ) -> Float[Tensor, "text dim"]:
        """Add what the low-rank matrix gives."""
        del values
        return vectors + (vectors @ self.down.T) @ self.up.T

    def distance(self) -> Float[Tensor, ""]:
        """Squared distance from doing nothing."""
        return ((self.up.T @ self.up) * (self.down @ self.down.T)).sum()


class MLPMap(nn.Module):
    """The identity plus one hidden layer, a control: does it take more than a linear map?

        m(t) = t + A gelu(sqrt(dim) B t + b),    A starts at zero

    Example:
        >>> MLPMap(4, hidden=8)(torch.ones(1, 4), torch.zeros(1, 1, 2, dtype=torch.int64)).tolist()
        [[1.0, 1.0, 1.0, 1.0]]
    """

    reads: Literal["vectors"] = "vectors"

    def __init__(self, dim: int, hidden: int, seed: int = 0) -> None:
        super().__init__()
        self.into = nn.Parameter(_normal((hidden, dim), seed, dim**-0.5))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.out = nn.Parameter(torch.zeros(dim, hidden))

    def forward(
        self, vectors: Float[Tensor, "text dim"], values: Int[Tensor, "text slot concept"]
    ) -> Float[Tensor, "text dim"]:
        """Add what the hidden layer gives."""
        del values
        hidden = nn.functional.gelu(vectors.shape[1] ** 0.5 * vectors @ self.into.T + self.bias)
        return vectors + hidden @ self.out.T

    def distance(self) -> Float[Tensor, ""]:
        """Squared size of what is added."""
        return self.out.square().sum()


class ProductHead(nn.Module):
    """A vector for a text from the values it names: values multiplied per object, summed over objects.

        q(t) = sum over objects ( sum_c u[c, v_c]  +  M prod_c w[c, v_c] )

    An object of which not every value is named ("something red") has no product. Nothing of the text tower is left: the
    head takes parsed concepts. M is the identity where `rank` is None.

    Paper: arXiv:2605.31503, Sec. 5 (per-object products) as a query encoder.

    Example:
        >>> head = ProductHead(ConceptSpace(color=3, shape=2), dim=4)
        >>> head(torch.zeros(2, 4), torch.tensor([[[0, 1], [2, 0]], [[1, -1], [-1, -1]]])).shape
        torch.Size([2, 4])
    """

    reads: Literal["values"] = "values"

    def __init__(self, space: ConceptSpace, dim: int, rank: int | None = None) -> None:
        super().__init__()
        self.sum = ValueTables(space, 1, dim, "shared")
        self.product = ValueTables(space, 1, rank or dim, "shared")
        self.mix = None if rank is None else nn.Parameter(torch.zeros(dim, rank))

    def forward(
        self, vectors: Float[Tensor, "text dim"], values: Int[Tensor, "text slot concept"]
    ) -> Float[Tensor, "text dim"]:
        """Sums and products of what the values look up."""
        del vectors
        named = values >= 0
        index = values.clamp(min=0) + self.sum.offsets[0]
        added = (self.sum.weight[index] * named[..., None]).sum((1, 2))
        bound = (self.product.weight[index].prod(2) * named.all(-1)[..., None]).sum(1)
        return added + (bound if self.mix is None else bound @ self.mix.T)

    def distance(self) -> Float[Tensor, ""]:
        """Squared size of what is multiplied."""
        return self.product.weight.square().sum()


def _normal(shape: tuple[int, int], seed: int, scale: float) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True, kw_only=True)
class MapShape:
    """What a map is built from."""

    kind: MapKind
    """Which map."""
    dim: int
    """Width of the vectors."""
    rank: int | None = None
    """Rank of `low_rank`; products mixed by a `product` head, None for one product a coordinate."""
    hidden: int | None = None
    """Hidden units of `mlp`."""

    def build(self, space: ConceptSpace, seed: int = 0) -> nn.Module:
        """A fresh map.

        Raises:
            ValueError: a size is missing or not positive.

        Example:
            >>> type(MapShape(kind="linear", dim=4).build(ConceptSpace(color=2))).__name__
            'LinearMap'
        """
        for name, size in (("dim", self.dim), ("rank", self.rank), ("hidden", self.hidden)):
            if size is not None and size < 1:
                raise ValueError(f"The {name} of a map must be at least 1; got {size}.")
        if self.kind == "linear":
            return LinearMap(self.dim)
        if self.kind == "product":
            return ProductHead(space, self.dim, self.rank)
        size = self.rank if self.kind == "low_rank" else self.hidden
        if size is None:
            raise ValueError(f"A {self.kind} map needs its {'rank' if self.kind == 'low_rank' else 'hidden'} size.")
        return (LowRankMap if self.kind == "low_rank" else MLPMap)(self.dim, size, seed)


def save_map(folder: Path, map: nn.Module, shape: MapShape, space: ConceptSpace, facts: Mapping[str, object]) -> str:
    """Write a map as `map.safetensors` and `repair.json`, the JSON last, and give the weights' sha256.

    Args:
        folder: where to; made if it isn't there.
        map: what `shape` builds, trained.
        shape: what it is built from.
        space: the concepts whose values it may read.
        facts: JSON-able: the embedder it belongs to, and how it was trained.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shape, space = MapShape(kind="linear", dim=4), ConceptSpace(color=2)
        ...     sha = save_map(Path(folder), shape.build(space), shape, space, {"embedder": "oracle:pair-rotated:4"})
        ...     loaded = load_map(Path(folder))
        >>> loaded.shape == shape, loaded.facts["embedder"], loaded.sha256 == sha
        (True, 'oracle:pair-rotated:4', True)
    """
    from safetensors.torch import save

    weights = save({name: tensor.detach().contiguous() for name, tensor in map.state_dict().items()})
    sha = hashlib.sha256(weights).hexdigest()
    told = {
        "schema": SCHEMA, "map": asdict(shape), "weights": sha,
        "concepts": {name: list(words) for name, words in zip(space.names, space.words, strict=True)}, **facts,
    }  # fmt: skip
    write_atomic(folder / "map.safetensors", weights)
    write_atomic(folder / "repair.json", sealed_json("repair.json", told, indent=1))
    return sha


@dataclass(frozen=True, eq=False)
class LoadedMap:
    """A map as read from its folder.

    Attributes:
        map: ready to be called.
        shape: what it was built from.
        space: the concepts whose values it reads.
        facts: everything that its JSON file tells.
        sha256: of its weights.
    """

    map: Any
    shape: MapShape
    space: ConceptSpace
    facts: Mapping[str, Any]
    sha256: str


def load_map(folder: Path) -> LoadedMap:
    """Read a map that `save_map` wrote.

    Raises:
        FileNotFoundError: the folder holds no map.
        ValueError: another schema.
        WorkError: a file that is damaged, or weights that don't fit what the JSON file says.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    told_at, weights_at = folder / "repair.json", folder / "map.safetensors"
    for path in (told_at, weights_at):
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; name a folder that `colligate repair` wrote a map to.")
    told = read_sealed(told_at, "repair again with --force")
    if told.get("schema") != SCHEMA:
        raise ValueError(f"{told_at} has another schema than {SCHEMA}, which this version reads; repair again.")
    raw = weights_at.read_bytes()
    sha = hashlib.sha256(raw).hexdigest()
    if sha != told.get("weights"):
        raise WorkError(
            f"{weights_at} is not the file that {told_at.name} was written with; repair again with --force."
        )
    try:
        space, shape = ConceptSpace(told["concepts"]), MapShape(**told["map"])
        map = shape.build(space).requires_grad_(False)
        map.load_state_dict(load(raw))
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise WorkError(
            f"{folder} holds no map of this version ({str(error).splitlines()[0]}); repair again with --force."
        ) from None
    return LoadedMap(map, shape, space, told, sha)
