"""Emergence at 125,000 objects on an accelerator: `python benchmarks/gpu.py`; without one, the same in small.

Encoders of the paper's size (width 512, six layers, vectors of 512 numbers; 16 million weights each) are trained on
30 % and 40 % of 50 x 50 x 50 objects for a fixed number of steps, first with two encoders (the paper), then with one
that reads queries too (our default). Steps a second, the share of the card's matrix rate that is reached, and the
recognition curve are printed as Markdown for docs/gpu.md.
"""

import argparse
import time
from datetime import UTC, datetime
from typing import Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from colligate.training.config import TrainConfig
from colligate.training.trainer import Trainer

SHOWN = ("seen.table", "unseen.table", "unseen.among", "unseen.swaps", "concept.unseen")


Towers = Literal["separate", "shared"]


def full_size(coverage: float, towers: Towers, steps: int) -> TrainConfig:
    """The paper's size."""
    return TrainConfig(
        concepts=3, values=50, coverage=coverage, towers=towers, encoder="object-tokens", width=512, layers=6,
        query_layers=6, heads=8, hidden=2048, dim=512, queries="random:1024", batch=1024, steps=steps,
        warmup=max(1, steps // 20), rate=1e-3, evaluate_every=max(1, steps // 6), budget=2048, device="cuda",
    )  # fmt: skip


def small(coverage: float, towers: Towers, steps: int) -> TrainConfig:
    """The same shape of run for a processor."""
    return TrainConfig(
        concepts=2, values=50, coverage=coverage, towers=towers, width=64, layers=2, heads=2, dim=64,
        queries="random:256", batch=128, steps=steps, warmup=max(1, steps // 10), evaluate_every=max(1, steps // 3),
        budget=512, device="cpu",
    )  # fmt: skip


def matrix_rate(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Floating-point operations a second of a large matrix product: what the card can reach."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(5):
        start = _now(device)
        for _ in range(4):
            _ = left @ right
        best = max(best, 8 * size**3 / (_now(device) - start))
    return best


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def run(config: TrainConfig) -> None:
    """Train one model and print what it reached."""
    device = torch.device(config.device)
    trainer = Trainer([config], device)
    trainer.advance()  # what is compiled or allocated once
    with FlopCounterMode(display=False) as counted:
        trainer.advance()
    trainer.look()
    start, spent = _now(device), 0.0
    while trainer.step < config.steps:
        trainer.advance()
        if trainer.step % config.evaluate_every == 0:
            spent += _now(device) - start
            trainer.look()
            start = _now(device)
    spent += _now(device) - start
    rate = (config.steps - 2) / spent
    dtype = torch.bfloat16 if trainer.precision == "bfloat16" else torch.float32
    peak = matrix_rate(device, dtype, 8192 if device.type == "cuda" else 1024)
    reached = counted.get_total_flops() * rate
    weights = sum(p.numel() for p in trainer.model.parameters())
    print(f"\n{config.space.num_objects:,} objects, {config.coverage:.0%} seen, {config.towers} towers, "
          f"{weights / 1e6:.1f}M weights: {rate:.1f} steps/s, "
          f"{reached / 1e12:.2f} TFLOP/s, {reached / peak:.0%} of a large {trainer.precision} product\n")  # fmt: skip
    print("| step | " + " | ".join(SHOWN) + " |\n|" + "---|" * (len(SHOWN) + 1))
    for entry in trainer.curves[0]:
        print(f"| {entry['step']:.0f} | " + " | ".join(f"{entry.get(name, float('nan')):.3f}" for name in SHOWN) + " |")


def main() -> None:
    """Both coverages, with two encoders and with one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, help="steps of each training; default 2,000 on a card, 60 on a processor")
    given = parser.parse_args()
    there = torch.cuda.is_available()
    name = torch.cuda.get_device_name() if there else "no card: a small run on the processor"
    print(f"{datetime.now(UTC).date()}, {name}, torch {torch.__version__}")
    steps = given.steps or (2_000 if there else 60)
    both: tuple[Towers, Towers] = ("separate", "shared")
    for towers in both:
        for coverage in (0.3, 0.4):
            run((full_size if there else small)(coverage, towers, steps))


if __name__ == "__main__":
    main()
