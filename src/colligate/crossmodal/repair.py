"""Repair a frozen two-tower model on the text side, and say honestly what it brought on objects never seen."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from colligate.crossmodal.alignment import object_parts
from colligate.crossmodal.contrast import Contrast
from colligate.crossmodal.queries import QueryVectors
from colligate.crossmodal.repair_data import RepairData
from colligate.crossmodal.starts import start_linear, start_product
from colligate.embeddings import Embeddings
from colligate.networks.maps import LinearMap, MapKind, MapShape, ProductHead
from colligate.scenes.space import EMPTY, ConceptSpace
from colligate.scenes.splits import Split


@runtime_checkable
class Fit(Protocol):
    """A repair that was fitted: what the towers' vectors are after it."""

    @property
    def chosen(self) -> str:
        """Which candidate validation chose, in words; "none" leaves the model as it was."""
        ...

    @property
    def validation(self) -> tuple[float, float]:
        """Score of the chosen candidate on validation scenes, and of no repair."""
        ...

    def applied(self, data: RepairData) -> RepairData:
        """The same scenes and texts as the repaired model has them."""
        ...

    def shown(self, scenes: Embeddings) -> Embeddings:
        """Other scenes of the scene tower as the repaired model has them."""
        ...


@runtime_checkable
class Repairer(Protocol):
    """Whatever can be fitted on seen objects to repair a model: a map of texts (`RepairSettings`), or new weights."""

    @property
    def kind(self) -> str:
        """What it is called in rows."""
        ...

    @property
    def seed(self) -> int:
        """Of its draws."""
        ...

    def fit(self, data: RepairData, split: Split) -> Fit:
        """Fit on the split's fit objects, choose on its validation objects, never look at its test objects."""
        ...


@dataclass(frozen=True, kw_only=True)
class RepairSettings:
    """How a map is fitted."""

    kind: MapKind = "linear"
    """`linear`: a matrix (LABCLIP). `low_rank`, `mlp`: controls. `product`: values multiplied per object; takes parsed
    concepts instead of text."""
    rank: int = 16
    """Rank of `low_rank`, and of a `product` head whose products are mixed."""
    hidden: int = 256
    """Hidden units of `mlp`."""
    penalties: tuple[float, ...] = (1e-4, 1e-2)
    """Shrinkages tried: of the closed-form start, and towards it while training."""
    steps: int = 150
    """Adam steps for each candidate; 0 keeps the closed form."""
    batch: int = 256
    """Scenes in a step, each with its caption and its swap's."""
    rate: float = 0.02
    """Step size, relative to 1 / sqrt(dim), falling to zero by a cosine."""
    temperature: float = 0.07
    """Of the cosines at the start; trained along."""
    every: int = 15
    """Steps between looks at the validation scenes."""
    least: float = 0.02
    """Least gain on validation scenes for which the tower is changed at all; below it, chance may have chosen."""
    seed: int = 0
    """Of starts and batches."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.batch < 2 or self.every < 1 or not self.penalties:
            raise ValueError("A repair takes steps >= 0, a batch of at least 2, every >= 1 and at least one penalty.")

    def fit(self, data: RepairData, split: Split) -> "Repair":
        """`fit_repair` with these settings."""
        return fit_repair(data, split, self)


@dataclass(frozen=True, eq=False)
class Repair:
    """A fitted map.

    Attributes:
        map: from texts to the scene tower's space.
        shape: what it was built from.
        chosen: which candidate validation chose, in words; "none" keeps the tower as it was.
        validation: score of the chosen candidate on validation scenes, and of no repair.
        tried: score of every candidate at its best step.
    """

    map: nn.Module
    shape: MapShape
    space: ConceptSpace
    chosen: str
    validation: tuple[float, float]
    tried: dict[str, float] = field(default_factory=dict[str, float])

    def texts(
        self, vectors: Float[Tensor, "text dim"], values: Int[Tensor, "text slot concept"]
    ) -> Float[Tensor, "text dim"]:
        """Repaired unit vectors of texts."""
        with torch.no_grad():
            return normalize(self.map(normalize(vectors.float(), dim=1), values), dim=1)

    def queries(self, queries: QueryVectors) -> QueryVectors:
        """Repaired queries."""
        values = query_values(queries.space)
        mapped = self.texts(torch.cat([*(queries.concepts or ()), queries.objects]), values)
        *concepts, objects = mapped.split([*queries.space.sizes, queries.space.num_objects])
        return QueryVectors(queries.space, tuple(concepts), objects)

    def applied(self, data: RepairData) -> RepairData:
        """The same scenes, with repaired captions and queries."""
        return replace(
            data,
            captions=self.texts(data.captions, data.scenes.values),
            foil_captions=self.texts(data.foil_captions, data.foils.values),
            queries=self.queries(data.queries),
        )

    def shown(self, scenes: Embeddings) -> Embeddings:
        """Scenes as they are: the map is on the text side."""
        return scenes


def query_values(space: ConceptSpace) -> Int[Tensor, "query slot concept"]:
    """The values that each query names: single values concept by concept, then objects.

    Example:
        >>> query_values(ConceptSpace(color=2, shape=1))[:, 0].tolist()
        [[0, -1], [1, -1], [-1, 0], [0, 0], [1, 0]]
    """
    singles = torch.full((sum(space.sizes), space.num_concepts), EMPTY)
    start = 0
    for concept, size in enumerate(space.sizes):
        singles[start : start + size, concept] = torch.arange(size)
        start += size
    return torch.cat([singles, space.object_values(torch.arange(space.num_objects))])[:, None]


def fit_repair(data: RepairData, split: Split, settings: RepairSettings | None = None) -> Repair:
    """Fit a map on scenes of fit objects and choose its shrinkage and length on validation objects.

    The loss is that of `Contrast`, and a little shrinkage towards the start. Candidates start in closed form (ridge
    regression of scenes on their captions; rank-one tables of the objects' interactions) or, where the map can be one,
    from the identity; doing nothing is a candidate too.

    Args:
        data: both towers' vectors.
        split: by objects (`BySwaps`, `ByObject`).
        settings: which map, and how.

    Raises:
        ValueError: the split holds no objects out, or no swap stays within the fit objects.

    Source: LABCLIP, arXiv:2502.03566 (linear map, swap negatives).
    Differs: starts in closed form and is chosen on held-out objects; see `Contrast` for its loss.

    Example:
        >>> from colligate.crossmodal.repair_data import repair_data
        >>> from colligate.embedders import load_model
        >>> from colligate.scenes.splits import BySwaps
        >>> from colligate.scenes.worlds import load_world
        >>> world, model = load_world("clevr").select(slice(0, 576)), load_model("oracle:pair-rotated:16")
        >>> data = repair_data(model.towers["scene"], model.towers["text"], world)
        >>> split = BySwaps(coverage=0.5).split(world.scenes, seed=0)
        >>> fit_repair(data, split, RepairSettings(steps=0)).chosen
        'from least squares, penalty 0.0001'
    """
    settings = settings or RepairSettings()
    training = _Training(data, split, settings)
    before = training.score(None)
    best, tried = (before, "none", _nothing(data)), {"none": before}
    for name, map, shape in training.candidates():
        found, state = training.fit(map)
        tried[name] = found
        if found > max(best[0] + 1e-9, before + settings.least):
            map.load_state_dict(state)
            best = (found, name, (map, shape))
    (map, shape), chosen = best[2], best[1]
    return Repair(map.requires_grad_(False), shape, data.space, chosen, (best[0], before), tried)


def _nothing(data: RepairData) -> tuple[nn.Module, MapShape]:
    """The map that leaves texts as they are."""
    shape = MapShape(kind="linear", dim=data.vectors.shape[1])
    return shape.build(data.space), shape


class _Kept(NamedTuple):
    score: float
    state: dict[str, Tensor]


class _Training:
    """What all candidates share: unit vectors, and what is true of each scene."""

    def __init__(self, data: RepairData, split: Split, settings: RepairSettings) -> None:
        self.data, self.split, self.settings = data, split, settings
        self.contrast = Contrast(data, split, settings.seed)
        self.scenes = normalize(data.vectors.float(), dim=1)
        self.captions = normalize(data.captions.float(), dim=1)
        self.foil_captions = normalize(data.foil_captions.float(), dim=1)
        self.query_vectors = normalize(torch.cat([*(data.queries.concepts or ()), data.queries.objects]).float(), dim=1)
        self.query_values = query_values(data.space)

    def candidates(self) -> Iterator[tuple[str, nn.Module, MapShape]]:
        """Maps to be tried, each at its start."""
        kind, dim, space, settings = self.settings.kind, self.data.vectors.shape[1], self.data.space, self.settings
        rank = min(settings.rank, dim) if kind == "low_rank" else None
        shape = MapShape(kind=kind, dim=dim, rank=rank, hidden=settings.hidden if kind == "mlp" else None)
        if kind != "product":
            yield "from the identity", shape.build(space, settings.seed), shape
        rows = self.split.fit
        if kind == "linear":
            texts, goals = self.captions[rows], self.scenes[rows]
            for penalty in settings.penalties:
                map = LinearMap(dim)
                start_linear(map, texts, goals, penalty)
                yield f"from least squares, penalty {penalty:g}", map, shape
        if kind == "product":
            parts = object_parts(self.scenes[rows], self.data.scenes[rows])
            for mixed in (None, min(settings.rank, dim)):
                shape = MapShape(kind=kind, dim=dim, rank=mixed)
                for penalty in settings.penalties:
                    head = ProductHead(space, dim, mixed)
                    start_product(head, parts, penalty=penalty, seed=settings.seed)
                    how = "each coordinate" if mixed is None else f"{mixed} mixed"
                    yield f"products of {how}, penalty {penalty:g}", head, shape

    def fit(self, map: nn.Module) -> _Kept:
        """The best state on the way, from the start to the last step."""
        settings = self.settings
        kept = _Kept(self.score(map), _state(map))
        generator = torch.Generator().manual_seed(settings.seed)
        start = [parameter.detach().clone() for parameter in map.parameters()]
        scale = nn.Parameter(-torch.tensor(settings.temperature).log())
        rate = settings.rate * self.data.vectors.shape[1] ** -0.5
        optimizer = torch.optim.Adam(
            [{"params": list(map.parameters()), "lr": rate}, {"params": [scale], "lr": settings.rate}]
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(settings.steps, 1))
        for step in range(1, settings.steps + 1):
            drawn = torch.randperm(len(self.split.fit), generator=generator)[: settings.batch]
            drift = sum(((p - s).square().sum() for p, s in zip(map.parameters(), start, strict=True)), torch.zeros(()))
            loss = self.loss(map, self.split.fit[drawn], scale.clamp(max=4.6).exp()) + 1e-4 * drift
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % settings.every == 0 or step == settings.steps:
                score = self.score(map)
                if score > kept.score + 1e-9:
                    kept = _Kept(score, _state(map))
        return kept

    def loss(self, map: nn.Module, rows: Int[Tensor, " row"], scale: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """Cross-entropies of a batch."""
        data, foiled = self.data, self.contrast.foiled(rows)
        texts = torch.cat([self.captions[rows], self.foil_captions[foiled], self.query_vectors])
        # Slots differ between captions and queries, so values are padded to the captions' number.
        asked = torch.full((len(self.query_values), data.scenes.slots, data.space.num_concepts), EMPTY)
        asked[:, :1] = self.query_values
        values = torch.cat([data.scenes.values[rows], data.foils.values[foiled], asked])
        return self.contrast.loss(rows, self.scenes[rows], normalize(map(texts, values), dim=1), scale)

    def score(self, map: nn.Module | None) -> float:
        """How well validation objects are recognised through the map."""
        if map is None:
            return self.contrast.score(self.data)
        with torch.no_grad():
            mapped = normalize(map(self.query_vectors, self.query_values), dim=1)
        *concepts, objects = mapped.split([*self.data.space.sizes, self.data.space.num_objects])
        return self.contrast.score(replace(self.data, queries=QueryVectors(self.data.space, tuple(concepts), objects)))


def _state(map: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in map.state_dict().items()}
