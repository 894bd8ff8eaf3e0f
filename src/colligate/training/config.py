"""What is trained, on what, and how."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from colligate.choices import Activation, EncoderKind, LossKind, OptimizerKind, PenaltyKind, Similarity
from colligate.records.calls import given

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

    from colligate.networks.dual import DualShape
    from colligate.scenes.space import ConceptSpace
    from colligate.training.data import BatchPlan


PARTS = {
    "encoder", "width", "layers", "query_layers", "heads", "hidden", "activation", "dim", "scale", "towers",
    "similarity", "temperature", "batch", "slots", "fewer", "scenes", "queries", "values", "shapes", "side", "patch",
    "jitter", "resize",
}  # fmt: skip
"""Fields that encoders, batches, queries and pictures check."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A dual encoder trained from scratch on scenes of some objects; tested on scenes of the others."""

    concepts: int = 2
    """Number of concepts, C."""
    values: int = 20
    """Number of values of each concept, V; there are V^C objects."""
    slots: int = 2
    """Most objects in a scene."""
    coverage: float = 0.8
    """Share of objects that training shows."""
    hold_out: Literal["objects", "swaps"] = "objects"
    """How objects are held out: at random (the paper), or in closed swap quadruples, so that there are many swaps among
    unseen objects (harder)."""
    validation: float = 0.2
    """Share of the held-out objects that choose the checkpoint."""
    encoder: EncoderKind = "object-tokens"
    """What reads scenes and queries: object-tokens, grouped-objects (the first layer within an object), value-tokens
    (the paper), relative-tokens (the same sequence, attention by distance), grouped-tokens (the first layer's attention
    within an object), causal-tokens, product (binds by construction), bag (can't bind)."""
    width: int = 192
    """Width of tokens."""
    layers: int = 2
    """Transformer layers of the scene encoder."""
    query_layers: int = 1
    """Transformer layers of a query encoder of its own."""
    heads: int = 2
    """Attention heads."""
    hidden: int = 0
    """Width inside a layer; 0 for four times the width."""
    activation: Activation = "gated"
    """Inside a layer: gelu, or gated (one half of the units, after GELU, multiplies the other)."""
    dim: int = 256
    """Width of the vectors that are compared."""
    scale: float = 1.0
    """Deviation of the values' vectors at the start."""
    towers: Literal["separate", "shared"] = "shared"
    """Whether queries have an encoder of their own, or are read by the scenes' as scenes of one object (or value)."""
    similarity: Similarity = "cosine"
    """How vectors are compared."""
    temperature: float = 40.0
    """Factor on similarities at the start; it is learned."""
    warmest: float = 100.0
    """Most it may become."""
    scenes: str = "mixed:0.6"
    """Scenes that training shows: random (independent seen objects; the paper), quadruples (a scene and its swap, all
    four objects seen), or mixed:SHARE of quadruples."""
    fewer: float = 0.1
    """Share of scenes with fewer objects than slots."""
    queries: str = "auto"
    """Objects that are queries at each step: table (every seen one), auto (the table; where more than 4,096 objects are
    seen, random:1024), in-batch, swaps (and swaps; swaps:64 keeps 64 of the batch's), random:N (and N random ones)."""
    held_out_negatives: bool = False
    """Let held-out objects be queries, where they are always negatives; the paper's code does."""
    loss: LossKind = "both"
    """Which way the softmax runs: scene-to-query, query-to-scene, both, or sigmoid."""
    value_loss: float = 0.3
    """Weight of the loss on queries for single values."""
    penalty: PenaltyKind = "none"
    """Pull towards a simple binding function: object-products, or additive (which can't bind)."""
    penalty_weight: float = 0.1
    """Weight of the penalty."""
    batch: int = 256
    """Scenes in a step."""
    steps: int = 800
    """Steps of training; it stops by steps, never by the clock."""
    optimizer: OptimizerKind = "muon"
    """What steps the matrices of layers: muon (their momentum made orthogonal), or adamw, which steps all else too."""
    rate: float = 3e-3
    """Learning rate of AdamW after the warm-up."""
    matrix_rate: float = 0.03
    """Learning rate of Muon after the warm-up."""
    average: float = 0.99
    """Memory of the exponential average of the weights, which is what is scored and kept; 0 for the weights
    themselves."""
    warmup: int | None = None
    """Steps in which the rate rises; by default 50 (pictures 100, the paper's preset 5,000), or a quarter of the
    steps where that is less."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the rate falls to zero afterwards."""
    decay: float = 0.1
    """Weight decay of matrices."""
    momentum: float = 0.98
    """Second moment's memory in AdamW (beta2)."""
    clip: float = 1.0
    """Longest gradient of a member; 0 for no limit."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the encoders' products; auto takes bfloat16 where the hardware multiplies it fast. Scores are in float32."""
    compile: bool = False
    """Compile the layers (torch.compile): the first step takes a minute or more, later ones less than without where the
    hardware is fast."""
    evaluate_every: int = 200
    """Steps between looks at recognition."""
    checkpoint_every: int = 500
    """Steps between states that a killed run goes on from."""
    keep: Literal["float32", "float16"] = "float32"
    """Precision of the weights on disk; what is scored at the end are these weights."""
    budget: int = 4096
    """Most scenes of a part that are scored at the end (512 along the way)."""
    seed: int = 0
    """Of the division of objects, the start and the scenes."""
    device: str = "auto"
    """Where it runs: auto, cpu, cuda."""
    runs: Path = Path("runs")
    """Folder of run folders."""
    force: bool = False
    """Train again even if the same run is finished."""

    def __post_init__(self) -> None:
        if self.values < 2 or self.concepts < 2:
            raise ValueError(
                f"Binding needs at least 2 concepts of 2 values; got {self.concepts} of {self.values}. Give more."
            )
        if min(self.steps, self.evaluate_every, self.checkpoint_every, self.budget) < 1 or self.rate <= 0:
            raise ValueError("Steps, evaluate-every, checkpoint-every and budget start at 1, and the rate above 0.")
        if not 0 <= self.average < 1 or self.matrix_rate <= 0:
            raise ValueError(
                f"The average's memory lies in [0, 1) and the matrix rate above 0; got {self.average:g} and "
                f"{self.matrix_rate:g}."
            )
        if self.warmup is not None and not 0 <= self.warmup <= self.steps:
            raise ValueError(
                f"The warm-up of {self.warmup} steps must fit into {self.steps} steps; lower it, or leave it out."
            )
        if self.slots < 2 and self.scenes != "random":
            raise ValueError("Swaps need two objects in a scene; give more slots, or scenes=random.")
        if PARTS & set(given(self)):  # what is at its default needs no check, and no library
            self._check_parts()

    def _check_parts(self) -> None:
        """Let every part check its own settings."""
        from colligate.training.data import scene_draw
        from colligate.training.queries import query_choice

        _ = self.shape, self.plan, scene_draw(self.scenes), query_choice(self.queries)

    @property
    def space(self) -> "ConceptSpace":
        """The concepts, named concept1, concept2, ..."""
        from colligate.scenes.space import ConceptSpace

        return ConceptSpace({f"concept{c + 1}": self.values for c in range(self.concepts)})

    @property
    def shape(self) -> "DualShape":
        """The two encoders."""
        from colligate.networks.dual import DualShape
        from colligate.networks.encoders import EncoderShape

        scene = EncoderShape(
            kind=self.encoder, width=self.width, layers=self.layers, heads=self.heads, hidden=self.hidden, dim=self.dim,
            scale=self.scale, activation=self.activation,
        )  # fmt: skip
        query = EncoderShape(
            kind=self.encoder, width=self.width, layers=self.query_layers, heads=self.heads, hidden=self.hidden,
            dim=self.dim, scale=self.scale, activation=self.activation,
        )  # fmt: skip
        return DualShape(
            scene=scene, query=query, towers=self.towers, similarity=self.similarity, temperature=self.temperature
        )

    @property
    def family(self) -> str:
        """What the model is called in rows."""
        return self.encoder

    @property
    def plan(self) -> "BatchPlan":
        """Scenes of a step."""
        from colligate.training.data import BatchPlan

        plan = BatchPlan(self.batch, self.slots, self.fewer if self.slots > 1 else 0.0)
        if plan.groups[0][0] % 2 and self.scenes == "quadruples":
            raise ValueError(f"Quadruples come in pairs; a batch with {plan.groups[0][0]} full scenes has an odd one.")
        return plan

    def divide(self) -> 'dict[str, Int[Tensor, " object"]]':
        """Object ids of fit, validation and test.

        Raises:
            ValueError: the coverage leaves a value unseen or a part empty.

        Example:
            >>> {part: len(ids) for part, ids in TrainConfig().divide().items()}
            {'fit': 320, 'validation': 16, 'test': 64}
        """
        from colligate.scenes.splits import ByObject, BySwaps
        from colligate.training.data import ObjectPool

        if self.hold_out == "swaps":
            parts = BySwaps(coverage=self.coverage, validation=self.validation).objects(self.space, self.seed)
        else:
            rule = ByObject(coverage=self.coverage, validation=self.validation)
            split = rule.split(self.space.all_scenes(slots=1), self.seed)
            parts = dict(split.objects or {})
        ObjectPool(self.space, parts["fit"])  # every value is seen
        return {part: parts[part] for part in ("fit", "validation", "test")}

    longest_warmup: ClassVar[int] = 50
    """Steps of the warm-up where none are asked for and training isn't short."""

    @property
    def rising(self) -> int:
        """Steps of the warm-up: those asked for, else the recipe's, which shrink with a short training.

        Example:
            >>> TrainConfig().rising, TrainConfig(steps=30).rising, TrainConfig(steps=30, warmup=20).rising
            (50, 7, 20)
        """
        return min(self.longest_warmup, self.steps // 4) if self.warmup is None else self.warmup

    def rate_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0.

        Example:
            >>> TrainConfig(rate=1.0, warmup=10, steps=110).rate_at(9), TrainConfig(steps=200).rate_at(200)
            (1.0, 0.0)
        """
        if step < self.rising:
            return self.rate * (step + 1) / self.rising
        import torch

        left = (self.steps - step) / max(1, self.steps - self.rising)
        if self.schedule == "constant":
            return self.rate
        return self.rate * (
            left if self.schedule == "linear" else 0.5 - 0.5 * torch.tensor(left * torch.pi).cos().item()
        )
