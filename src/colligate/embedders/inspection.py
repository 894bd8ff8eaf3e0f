"""Is this embedder what it seems? A dozen quick checks before a long run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from colligate.embedders.crops import seen_of
from colligate.embedders.embedding import checked
from colligate.embedders.towers import Model, NetworkTower, Tower
from colligate.embedders.trained import TrainedTower
from colligate.embedders.trained_pair import TrainedPairTower
from colligate.scenes.worlds import Kind, World, load_world

Verdict = Literal["good", "mind", "bad", "fact"]
"""Good, to be kept in mind, wrong, or neither: a fact to know."""


@dataclass(frozen=True)
class Finding:
    """One thing found about a tower.

    Attributes:
        tower: kind of the tower.
        name: what was looked at.
        value: what was found, as text or a number.
        verdict: good, mind, bad, or fact where there is nothing to judge.
        note: what it means for the reader, where it means something.
    """

    tower: str
    name: str
    value: str | float | int | bool | None
    verdict: Verdict = "fact"
    note: str = ""


def check_model(model: Model, world: World | None = None, *, items: int = 24) -> list[Finding]:
    """Try every tower on a few items and say what it does.

    Args:
        model: the embedder.
        world: where the items come from; None: the built-in `clevr2d`, and for a model trained here its own.
        items: number of rows to try, spread over the world.

    Returns:
        One finding for each thing looked at: width, dtype, lengths, repeatability, effect of batching and order,
        preprocessing, longest caption, throughput.

    Example:
        >>> from colligate.embedders.oracles import Oracle
        >>> found = check_model(Model("oracle", {"scene": Oracle("no-binding", dim=8)}))
        >>> [(f.name, f.value) for f in found][:2]
        [('dim', 8), ('dtype', 'float32')]
    """
    findings: list[Finding] = []
    for kind, tower in model.towers.items():
        trained = isinstance(tower, TrainedTower | TrainedPairTower)
        shown = world or load_world(tower.grid if trained else "clevr2d")
        if kind not in shown.kinds:
            note = f"World {shown.name!r} shows no {kind}s; this tower was not tried."
            findings.append(Finding(kind, "items", None, "mind", note))
            continue
        rows = torch.linspace(0, len(shown.scenes) - 1, min(items, len(shown.scenes))).long()
        findings.extend(_try(tower, shown, rows))
    return findings


def _try(tower: Tower, world: World, rows: Tensor) -> list[Finding]:
    kind = cast("Kind", tower.kind)

    def embed(chosen: Tensor) -> Tensor:
        given: Any = tower.embed(world.items(kind, chosen))
        return given.detach().cpu() if isinstance(given, Tensor) and given.ndim != 2 else checked(tower, given, chosen)

    embed(rows[:1])  # the first call may load and compile
    started = time.perf_counter()
    vectors = embed(rows)
    seconds = time.perf_counter() - started
    if vectors.ndim != 2 or len(vectors) != len(rows):
        return [Finding(kind, "shape", str(tuple(vectors.shape)), "bad", f"Expected [{len(rows)} items, dim].")]
    found = [
        Finding(kind, "dim", vectors.shape[1]),
        Finding(kind, "dtype", str(vectors.dtype).removeprefix("torch.")),
        *_lengths(kind, vectors),
    ]
    wide = vectors.double()
    finite = bool(torch.isfinite(wide).all())
    found.append(Finding(kind, "finite", finite, "good" if finite else "bad"))
    same = torch.equal(vectors, embed(rows))
    note = "" if same else "Two calls differ; average or seed it."
    found.append(Finding(kind, "repeatable", same, "good" if same else "mind", note))
    found.extend(_compared(kind, "one at a time", wide, torch.cat([embed(row[None]) for row in rows]).double()))
    shuffled = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    found.extend(_compared(kind, "shuffled", wide[shuffled], embed(rows[shuffled]).double()))
    found.extend(_among_others(kind, embed, wide, rows, len(world.scenes)))
    if kind == "picture" and (seen := seen_of(tower, cast("list[Any]", world.items(kind, rows)))) is not None:
        told = f"{sum(seen.shares) / len(seen.shares):.0%}"
        found.append(
            Finding(kind, "shown of the pictures", told, "mind" if seen.sentence else "good", seen.sentence or "")
        )
    distinct = len(torch.unique(wide, dim=0))
    told_apart = distinct == len(torch.unique(world.scenes[rows].ids))
    note = "" if told_apart else "Some different scenes share a vector."
    found.append(
        Finding(kind, "distinct vectors", f"{distinct} of {len(rows)}", "good" if told_apart else "mind", note)
    )
    found.extend(_facts(tower))
    found.append(Finding(kind, "items per second", round(len(rows) / max(seconds, 1e-9), 1)))
    return found


def _lengths(kind: str, vectors: Tensor) -> list[Finding]:
    lengths = vectors.double().norm(dim=1)
    low, mean, high = (round(float(f(lengths)), 4) for f in (torch.min, torch.mean, torch.max))
    unit = bool((lengths - 1).abs().max() < 1e-3)
    return [
        Finding(kind, "length", f"{low} to {high}, mean {mean}"),
        Finding(kind, "unit length", unit, "fact", "Lengths carry nothing." if unit else "Raw vectors; lengths vary."),
    ]


def _compared(kind: str, how: str, expected: Tensor, given: Tensor) -> list[Finding]:
    """Largest difference and smallest cosine between two ways to embed the same items."""
    difference = float((expected - given).abs().max())
    scale = float(expected.abs().max())
    cosine = float(nn.functional.cosine_similarity(expected, given, dim=1).min())
    verdict: Verdict = "good" if difference <= 1e-4 * scale else "mind" if cosine > 0.999 else "bad"
    note = {"good": "", "mind": "Vectors depend a little on their batch.", "bad": "Vectors depend on their batch."}
    return [
        Finding(kind, f"{how}: largest difference", float(f"{difference:.3g}"), verdict, note[verdict]),
        Finding(kind, f"{how}: smallest cosine", round(cosine, 7), verdict),
    ]


def _among_others(
    kind: str, embed: Callable[[Tensor], Tensor], expected: Tensor, rows: Tensor, scenes: int
) -> list[Finding]:
    """The same items in batches of other sizes and beside other items: an item's vector is its own.

    A tower may read single items apart, and a batch in another order has the same mean, so neither tells such towers.
    """
    pairs = torch.cat([embed(part) for part in rows.split(2)]).double()
    sevens = torch.cat([embed(part) for part in rows.split(7)]).double()
    others = torch.linspace(0, scenes - 1, 3 * len(rows)).long().add(1).remainder(scenes)
    among = embed(torch.cat([others, rows]))[len(others) :].double()
    repeated = embed(torch.cat([rows, rows[:1].expand(len(rows))]))[: len(rows)].double()
    compared = {"two at a time": pairs, "seven at a time": sevens, "among others": among, "beside copies": repeated}
    return [one for how, given in compared.items() for one in _compared(kind, how, expected, given)]


def _facts(tower: Tower) -> list[Finding]:
    """What the tower says of itself."""
    kind = tower.kind
    told: Any = getattr(tower, "fingerprint", None)
    if told is None:
        note = "Its vectors are never kept, because nothing says what determines them."
        return [Finding(kind, "fingerprint", None, "mind", note)]
    shown = ("library", "architecture", "activation", "pooling", "layer", "normalize", "padding", "prompt",
             "modules_left_out", "preprocessing")  # fmt: skip
    found = [Finding(kind, name, str(told[name])) for name in shown if told.get(name) not in (None, "", [])]
    if isinstance(tower, NetworkTower) and tower.max_tokens is not None:
        found.append(Finding(kind, "longest caption in tokens", tower.max_tokens))
    return found
