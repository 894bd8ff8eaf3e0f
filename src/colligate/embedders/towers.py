"""What an embedder is: towers, models, and the tower that reads vectors out of a neural network."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from colligate.embedders.unreadable import UnreadableItemsError as UnreadableItemsError
from colligate.scenes.worlds import Kind

KINDS: tuple[Kind, ...] = ("text", "picture", "scene")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@runtime_checkable
class Tower(Protocol):
    """Anything that embeds items of one kind; no base class is needed.

    Attributes:
        kind: "text" (a list of captions), "picture" (a list of PIL images) or "scene" (`Scenes`).
        fingerprint: JSON-able facts that determine the vectors; None: they are never cached.
    """

    @property
    def kind(self) -> str: ...  # noqa: D102

    @property
    def fingerprint(self) -> Mapping[str, object] | None: ...  # noqa: D102

    def embed(self, items: Any) -> Float[Tensor, "item dim"]:
        """One vector for each item, in their order."""
        ...


@dataclass(frozen=True, eq=False)
class Model:
    """A named set of towers.

    Attributes:
        name: what the user called it.
        towers: kind -> tower.
        notes: what a reader of its results should know, one sentence each.
    """

    name: str
    towers: Mapping[str, Tower]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Model({self.name!r}, towers: {', '.join(self.towers)})"

    def __post_init__(self) -> None:
        if not self.towers:
            raise ValueError(f"Model {self.name!r} has no tower; give at least one of {', '.join(KINDS)}.")
        for kind, tower in self.towers.items():
            if kind not in KINDS or getattr(tower, "kind", kind) != kind:
                raise ValueError(
                    f"Model {self.name!r} files a tower of kind {getattr(tower, 'kind', kind)!r} under {kind!r}; "
                    f"kinds are {', '.join(KINDS)}."
                )


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a model is loaded and read."""

    device: str = "auto"
    """Where it runs: auto (a GPU if there is one), cpu, cuda, mps."""
    dtype: str = "float32"
    """Precision of the network: float32, bfloat16, float16 or float64. Vectors come out in float32 or better."""
    layer: int | None = None
    """Layer to read, 0 for the input embeddings, negative from the end; None for the model's own output."""
    pooling: str | None = None
    """How tokens become one vector; None for the model's own way. For one tower of several: picture=cls,text=last."""
    normalize: bool = False
    """Divide every vector by its length."""
    offline: bool = True
    """Use only what is on this machine; False lets model libraries download."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is not known; choose one of {', '.join(DTYPES)}.")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch knows it."""
        return DTYPES[self.dtype]

    @property
    def torch_device(self) -> torch.device:
        """The device, `auto` resolved.

        Raises:
            ValueError: torch has no such device here.
        """
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, NotImplementedError):
            raise ValueError(f"This machine has no device {self.device!r}; choose cpu or auto.") from None
        return device

    def towers(self, readers: "Sequence[Reader]") -> dict[str, Tower]:
        """A tower for each reader, read as these options say.

        Raises:
            ValueError: a layer or pooling that one of the towers doesn't have.
        """
        return {
            reader.kind: NetworkTower(reader, self.layer, self._pooling_of(reader.kind), self.normalize)
            for reader in readers
        }

    def _pooling_of(self, kind: str) -> str | None:
        if self.pooling is None or "=" not in self.pooling:
            return self.pooling
        pairs: dict[str, str] = {}
        for part in self.pooling.split(","):
            named, _, pooling = part.partition("=")
            pairs[named] = pooling
        unknown = set(pairs) - set(KINDS)
        if unknown:
            raise ValueError(f"Pooling {self.pooling!r} names {sorted(unknown)[0]!r}; kinds are {', '.join(KINDS)}.")
        return pairs.get(kind)


@dataclass(frozen=True, eq=False)
class Network:
    """A neural network with a way to build the same architecture anew.

    Attributes:
        module: the network, in evaluation mode on its device.
        rebuild: gives the architecture with newly drawn weights from torch's generator, on the CPU.
    """

    module: nn.Module
    rebuild: Callable[[], nn.Module]

    def __post_init__(self) -> None:
        self.module.eval().requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return next(self.module.parameters()).dtype

    @cached_property
    def weights_hash(self) -> str:
        """sha256 of every weight and buffer: name, dtype, shape and bytes, one at a time."""
        digest = hashlib.sha256()
        for name, value in sorted(self.module.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def fresh(self, seed: int) -> "Network":
        """The same architecture with weights drawn anew under a seed; torch's own generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # noqa: TID251 (networks draw their weights from torch's own generator)
            module = self.rebuild()
        return replace(self, module=module.to(device=self.device, dtype=self.dtype))


class Reading(NamedTuple):
    """One forward pass, and every place in it where a vector can be read."""

    outputs: Mapping[str, Tensor]
    """The model's own vectors [item dim] by name: projected, pooler, sentence."""
    layers: Mapping[int, Tensor]
    """Tokens [item token dim] after each layer, 0 for the input embeddings; empty unless asked for."""
    final: Tensor | None
    """Tokens [item token dim] of the model's last hidden state (after its last norm where the model applies one)."""
    mask: Tensor | None
    """Tokens [item token] that `mean` averages."""
    places: Mapping[str, Tensor]
    """Token index [item] of the named places: cls, last."""

    def pool(self, tokens: Float[Tensor, "item token dim"], pooling: str) -> Float[Tensor, "item dim"]:
        """One vector from an item's tokens: their mean, or the token at a named place."""
        if pooling == "mean":
            assert self.mask is not None
            wide = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
            mask = self.mask[..., None].to(wide.dtype)
            return (wide * mask).sum(1) / mask.sum(1)
        return tokens[torch.arange(len(tokens), device=tokens.device), self.places[pooling]]


@runtime_checkable
class Reader(Protocol):
    """How one family of networks is read; each adapter has one for each kind of item."""

    @property
    def kind(self) -> Kind: ...  # noqa: D102

    @property
    def network(self) -> Network: ...  # noqa: D102

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model's own vectors, the default first."""
        ...

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings that make sense at any layer, the default first; empty where no tokens are exposed."""
        ...

    @property
    def num_layers(self) -> int:
        """Number of layers that can be read."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """Longest caption, in tokens."""
        ...

    @property
    def facts(self) -> Mapping[str, object]:
        """JSON-able: library, architecture, activation, preprocessing, tokenizer."""
        ...

    def lengths(self, items: Sequence[Any]) -> list[int]:
        """Tokens that each item takes; zeros where all items take the same."""
        ...

    def refused(self, items: Sequence[Any]) -> Mapping[int, str]:
        """Items that can't be read for another reason than their length: place -> why."""
        ...

    def read(self, items: Sequence[Any], *, layers: bool) -> Reading:
        """One forward pass."""
        ...


@dataclass(frozen=True, eq=False)
class NetworkTower:
    """A tower that reads one vector an item out of a network.

    Items are sorted by length and embedded in batches; a caption that stands in several rows is embedded once.
    Vectors come out on the CPU in float32 or better; lengths and means are computed in float32 or better.

    Args:
        reader: how this network is read.
        layer: None for the model's own output, else a layer, 0 for the input embeddings, negative from the end.
        pooling: None for the default there.
        normalize: divide every vector by its length.
        batch_size: items in one forward pass; None: 64 on a CPU, 512 elsewhere.

    Raises:
        ValueError: the layer or pooling does not exist; the message lists those that do.
    """

    reader: Reader
    layer: int | None = None
    pooling: str | None = None
    normalize: bool = False
    batch_size: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.layer is not None and not self.reader.poolings:
            raise ValueError(f"This {self.kind} tower exposes no layers; leave layer out to read its own output.")
        if self.layer is not None and not -self.depth <= self.layer < self.depth:
            raise ValueError(
                f"Layer {self.layer} does not exist; this {self.kind} tower has layers 0 to {self.depth - 1}."
            )
        if self.pooling is not None and self.pooling not in self._choices:
            where = "at its output" if self.layer is None else "at a layer"
            raise ValueError(
                f"Pooling {self.pooling!r} does not exist {where} of this {self.kind} tower; choose one of "
                f"{', '.join(self._choices)} (for one tower of several: {self.kind}={self._choices[0]})."
            )

    @property
    def kind(self) -> Kind:
        """What the tower reads."""
        return self.reader.kind

    @property
    def depth(self) -> int:
        """Number of readable layers, the input embeddings included."""
        return self.reader.num_layers + 1

    @property
    def max_tokens(self) -> int | None:
        """Longest caption, in tokens; None where there is no such limit."""
        return self.reader.max_tokens

    @property
    def _choices(self) -> tuple[str, ...]:
        at_output = dict.fromkeys((*self.reader.outputs, *self.reader.poolings))
        return tuple(at_output) if self.layer is None else self.reader.poolings

    @property
    def read_at(self) -> tuple[int | None, str]:
        """The layer (counted from 0) and pooling in use."""
        layer = None if self.layer is None else self.layer % self.depth
        return layer, self.pooling or self._choices[0]

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """Everything that determines the vectors."""
        layer, pooling = self.read_at
        return {
            **self.reader.facts,
            "kind": self.kind,
            "weights": self.reader.network.weights_hash,
            "dtype": str(self.reader.network.dtype).removeprefix("torch."),
            "layer": layer,
            "pooling": pooling,
            "normalize": self.normalize,
        }

    @property
    def device(self) -> str:
        """Where the network runs."""
        return str(self.reader.network.device)

    def embed(self, items: Sequence[Any]) -> Float[Tensor, "item dim"]:
        """One vector for each item, in their order.

        Raises:
            ValueError: a caption is longer than the tower can read, or the items are of another kind.
        """
        layer, pooling = self.read_at

        def vectors(reading: Reading) -> dict[str, Tensor]:
            if layer is None and pooling in reading.outputs:
                return {"": reading.outputs[pooling]}
            tokens = reading.final if layer is None else reading.layers[layer]
            assert tokens is not None
            return {"": reading.pool(tokens, pooling)}

        read = self._read(items, vectors, layers=layer is not None)[""]
        return nn.functional.normalize(read, dim=1) if self.normalize else read

    def embed_depth(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Every layer and pooling in one forward pass, under names like "layer 3 mean"; empty where none is exposed.

        Layer 0 has had no attention, so only its mean depends on the whole item and only that is given.
        """
        if not self.reader.poolings:
            return {}

        def vectors(reading: Reading) -> dict[str, Tensor]:
            return {
                f"layer {layer} {pooling}": reading.pool(tokens, pooling)
                for layer, tokens in sorted(reading.layers.items())
                for pooling in self.reader.poolings
                if layer > 0 or pooling == "mean"
            }

        read = self._read(items, vectors, layers=True)
        return {name: nn.functional.normalize(v, dim=1) for name, v in read.items()} if self.normalize else read

    def embed_tokens(self, items: Sequence[Any]) -> tuple[Float[Tensor, "item token dim"], Bool[Tensor, "item token"]]:
        """The tokens of each item at the layer in use (or the last hidden state), and which of them are real.

        Raises:
            ValueError: this network exposes no tokens.
        """
        if not self.reader.poolings:
            raise ValueError(f"This {self.kind} tower exposes no tokens; read its vectors with embed.")
        layer, _ = self.read_at
        ragged: dict[int, Tensor] = {}
        for rows, reading in self._batches(items, layers=layer is not None):
            tokens = reading.final if layer is None else reading.layers[layer]
            assert tokens is not None
            assert reading.mask is not None
            for i, group in enumerate(rows):
                for row in group:
                    ragged[row] = _to_cpu(tokens[i][reading.mask[i].bool()])
        longest = max(len(tokens) for tokens in ragged.values())
        mask = torch.zeros(len(items), longest, dtype=torch.bool)
        padded = ragged[0].new_zeros(len(items), longest, ragged[0].shape[1])
        for row, tokens in ragged.items():
            padded[row, : len(tokens)], mask[row, : len(tokens)] = tokens, True
        return padded, mask

    def unreadable(self, items: Sequence[Any]) -> dict[int, str]:
        """Items that `embed` would refuse: their place among those given -> why; empty where it reads all.

        Raises:
            ValueError: the items are of another kind.
        """
        if not len(items):
            return {}
        distinct, rows = _distinct(items, self.kind)
        reasons = self._unreadable(distinct, self.reader.lengths(distinct))
        return {row: why for i, why in reasons.items() for row in rows[i]}

    def _unreadable(self, items: Sequence[Any], lengths: Sequence[int]) -> dict[int, str]:
        most = self.max_tokens
        long = {
            i: f"takes {length} tokens and this tower reads {most}"
            for i, length in enumerate(lengths) if most is not None and length > most
        }  # fmt: skip
        return {**self.reader.refused(items), **long}

    def _read(
        self, items: Sequence[Any], vectors: Callable[[Reading], dict[str, Tensor]], *, layers: bool
    ) -> dict[str, Tensor]:
        gathered: dict[str, Tensor] = {}
        for rows, reading in self._batches(items, layers=layers):
            index = torch.tensor([row for group in rows for row in group])
            source = torch.tensor([i for i, group in enumerate(rows) for _ in group])
            for name, batch in vectors(reading).items():
                found = _to_cpu(batch)
                if name not in gathered:
                    gathered[name] = torch.empty(len(items), found.shape[1], dtype=found.dtype)
                gathered[name][index] = found[source]
        return gathered

    def _batches(self, items: Sequence[Any], *, layers: bool) -> Iterator[tuple[list[list[int]], Reading]]:
        """Forward passes over distinct items, longest first, each with the rows that hold its items."""
        if not len(items):
            raise ValueError("There is nothing to embed; give at least one item.")
        distinct, rows = _distinct(items, self.kind)
        lengths = self.reader.lengths(distinct)
        if reasons := self._unreadable(distinct, lengths):
            bad = {row: why for i, why in reasons.items() for row in rows[i]}
            raise UnreadableItemsError(bad, {row: items[row] for row in bad})
        order = sorted(range(len(distinct)), key=lambda i: -lengths[i])
        size = self.batch_size or (64 if self.reader.network.device.type == "cpu" else 512)
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            with torch.no_grad():
                reading = self.reader.read([distinct[i] for i in batch], layers=layers)
            yield [rows[i] for i in batch], reading


def _distinct(items: Sequence[Any], kind: Kind) -> tuple[list[Any], list[list[int]]]:
    """The distinct texts (or all pictures), each with the rows that hold it."""
    if kind != "text":
        return list(items), [[row] for row in range(len(items))]
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(items):
        if not isinstance(text, str):
            raise ValueError(f"A text tower reads captions; item {row} is a {type(text).__name__}.")
        rows.setdefault(text, []).append(row)
    return list(rows), list(rows.values())


def _to_cpu(vectors: Tensor) -> Tensor:
    return vectors.detach().to("cpu", torch.promote_types(vectors.dtype, torch.float32))
