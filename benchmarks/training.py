"""A training step of the dual encoders at the paper's README sizes, and steps of our default recipe.

The recipe side is written from the paper's description: scenes and targets made by Python loops, every query padded to
the longest scene, float32, torch's own transformer with padding masks.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import torch
from measuring import Line, Stopwatch, say
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from colligate.engine import fitting_threads, processor_flags
from colligate.networks.encoders import sinusoids
from colligate.training.config import TrainConfig
from colligate.training.presets import PaperConfig
from colligate.training.trainer import Trainer

CPU = torch.device("cpu")
VALUES, LIMIT = 20, 64
SOO, EOO, EOS, PAD = (2 * VALUES + i for i in range(4))
WINDOW = 9


class RecipeEncoder(nn.Module):
    """Embedding, positions, padded pre-norm transformer, read at the last token that is no padding."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * VALUES + 4, config.width, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, config.hidden, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.head = nn.Linear(config.width, config.dim)
        self.register_buffer("positions", sinusoids(WINDOW, config.width))

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors of length one."""
        padded = ids == PAD
        x = self.layers(self.table(ids) + self.positions, src_key_padding_mask=padded)
        return nn.functional.normalize(self.head(x[torch.arange(len(x)), (~padded).sum(1) - 1]), dim=1)


def sequence(objects: list[tuple[int, int]]) -> list[int]:
    """Tokens of a scene, or of a query for an object, padded to the window."""
    tokens: list[int] = []
    for color, shape in objects:
        tokens += [SOO, color, VALUES + shape, EOO]
    tokens.append(EOS)
    return tokens + [PAD] * (WINDOW - len(tokens))


def recipe_batch(seen: list[tuple[int, int]], size: int, draw: random.Random) -> tuple[Tensor, ...]:
    """Scenes, queries and targets, by loops."""
    scenes = [[draw.choice(seen) for _ in range(draw.randint(1, 2))] for _ in range(size)]
    objects = list(dict.fromkeys(o for scene in scenes for o in scene))[:LIMIT]
    for scene in scenes:
        if len(scene) == 2:
            (a, b), (c, d) = scene
            foil = draw.choice([(c, b), (a, d)])
            if foil not in objects:
                objects.append(foil)
    values = sorted({v for scene in scenes for color, shape in scene for v in (color, VALUES + shape)})[:LIMIT]
    of_objects = torch.tensor([[float(o in scene) for o in objects] for scene in scenes])
    of_values = torch.tensor([
        [float(any(v in (color, VALUES + shape) for color, shape in scene)) for v in values] for scene in scenes
    ])  # fmt: skip
    asked = [[v, EOS] + [PAD] * (WINDOW - 2) for v in values]
    return (
        torch.tensor([sequence(scene) for scene in scenes]), torch.tensor([sequence([o]) for o in objects]),
        torch.tensor(asked), of_objects, of_values,
    )  # fmt: skip


def recipe_steps(config: TrainConfig, steps: int) -> tuple[Stopwatch, float]:
    """Seconds of one step as the paper's code takes it, and its floating-point operations in matrix products."""
    draw = random.Random(0)
    seen = [(a, b) for a in range(VALUES) for b in range(VALUES) if draw.random() < config.coverage]
    scene, query = RecipeEncoder(config), RecipeEncoder(config)
    tau = nn.Parameter(torch.tensor(1.15))
    optimizer = torch.optim.AdamW([*scene.parameters(), *query.parameters(), tau], lr=config.rate, weight_decay=0.1)

    def step() -> None:
        scenes, objects, values, of_objects, of_values = recipe_batch(seen, config.batch, draw)
        vectors, scale = scene(scenes), tau.exp().clamp(max=10)
        loss = torch.zeros(())
        for ids, true in ((objects, of_objects), (values, of_values)):
            some = true.sum(1) > 0
            logits = scale * vectors[some] @ query(ids).T
            target = true[some] / true[some].sum(1, keepdim=True)
            loss = loss - (target * logits.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    counter = FlopCounterMode(display=False)
    with counter:
        step()
    with Stopwatch() as watch:
        for _ in range(steps):
            step()
    return watch.times(1 / steps), float(counter.get_total_flops())


def our_steps(config: TrainConfig, steps: int) -> tuple[Stopwatch, float, Trainer]:
    """Seconds of one of our steps, and its floating-point operations in matrix products."""
    trainer = Trainer([config], CPU)
    trainer.advance()
    counter = FlopCounterMode(display=False)
    with counter:
        trainer.advance()
    with Stopwatch() as watch:
        for _ in range(steps):
            trainer.advance()
    return watch.times(1 / steps), float(counter.get_total_flops()), trainer


def peak(dtype: torch.dtype) -> float:
    """Operations a second that a large matrix product reaches here."""
    x = torch.randn(2048, 2048).to(dtype)
    x @ x
    with Stopwatch() as watch:
        for _ in range(5):
            x @ x
    return 5 * 2 * 2048**3 / watch.wall


def measure(*, quick: bool) -> Iterator[Line]:
    """The table's lines."""
    small = {"layers": 2, "query_layers": 2, "batch": 64} if quick else {}
    config = replace(PaperConfig(), warmup=0, **small)
    steps = 2 if quick else 3
    with fitting_threads() as threads:
        recipe, theirs = recipe_steps(config, steps)
        say(f"  recipe {recipe.wall:.2f} s and {theirs / 1e9:.0f} GFLOP a step")
        units = {"avx512_bf16", "amx_bf16"} & processor_flags()  # without them a step takes minutes
        for precision in ("float32", "bfloat16") if units else ("float32",):
            ours, operations, _ = our_steps(replace(config, precision=precision), steps)
            rate = operations / ours.wall
            limit = peak(torch.bfloat16 if precision == "bfloat16" else torch.float32)
            yield Line(
                f"training step, README sizes, batch {config.batch}, {precision}", ours, recipe, target=">= 4x",
                note=f"{operations / 1e9:.1f} GFLOP a step (recipe {theirs / 1e9:.1f}), {rate / 1e9:.0f} GFLOP/s, "
                f"{rate / limit:.0%} of the measured {precision} matrix product ({limit / 1e9:.0f} GFLOP/s), at which "
                f"it would be {recipe.wall * limit / operations:.1f}x; {threads} threads",
            )  # fmt: skip
        default = TrainConfig()
        ours, operations, trainer = our_steps(default, 5 if quick else 50)
        yield Line(
            f"{default.steps:,} steps of the default recipe, 400 objects", ours.times(default.steps), target="< 120 s",
            note=f"extrapolated from 50 steps of {ours.wall * 1e3:.0f} ms, {operations / 1e9:.2f} GFLOP each, "
            f"{trainer.precision}; {threads} threads",
        )  # fmt: skip
