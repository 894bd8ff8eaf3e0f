"""Do all values bind, or some? A number for scenes that hold a value, and for those of the values that tell least."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from colligate.records import Row
from colligate.scenes.space import Scenes

FEWEST_VALUES = 4
"""Fewest values of a concept that are divided into those which bind and those which may not."""
CLEAR_GAP = 0.1
"""How much more must be told of scenes that hold the next value before values are divided there."""


def by_value(
    name: str,
    scenes: Scenes,
    counted: Bool[Tensor, " scene"],
    row: Callable[..., Row],
    looked_at: Scenes,
    told: Float[Tensor, " looked"],
    there: Float[Tensor, " looked"],
) -> Iterator[Row]:
    """Rows for scenes that hold a value, then for scenes of nothing but the values that tell least, and for all others.

    Which values those are is chosen on other scenes: below the widest gap between two neighbours, at least two on each
    side. An object that binds also tells what stands beside it, so only scenes without such an object show those that
    don't.

    Args:
        name: what ids begin with.
        scenes: the scored scenes.
        counted: which of them leave anything to tell.
        row: makes a row from an id, a mask of the scored scenes, and columns.
        looked_at: scenes on which values are divided.
        told: what is told of each of them, in units of `there`.
        there: what there is to tell.
    """
    for concept, title in enumerate(scenes.space.names):
        holds, words = scenes.contains(concept), scenes.space.words[concept]
        for value, word in enumerate(words):
            among = holds[:, value] & counted
            if bool(among.any()):
                yield row(f"{name}.value.{title}", among, concept=title, family=word)
        least = tell_least(told, there, looked_at.contains(concept))
        if least is None:
            continue
        outside = (holds & ~least).any(1)
        named = ", ".join(word for word, low in zip(words, least.tolist(), strict=True) if low)
        for part, among in (("least", ~outside), ("others", outside)):
            yield row(
                f"{name}.{part}.{title}", among & counted, concept=title,
                family=f"{int(least.sum())} of {len(words)}", reason=f"values that tell least: {named}",
            )  # fmt: skip


def tell_least(
    told: Float[Tensor, " scene"], there: Float[Tensor, " scene"], holds: Bool[Tensor, "scene value"]
) -> Bool[Tensor, " value"] | None:
    """The values below the widest gap in what is told of scenes that hold them; None where there is no clear one.

    Example:
        >>> holds = torch.eye(4, dtype=torch.bool)
        >>> tell_least(torch.tensor([0.9, 0.1, 0.0, 1.0]), torch.ones(4), holds).tolist()
        [False, True, True, False]
        >>> tell_least(torch.tensor([0.9, 0.9, 0.9, 1.0]), torch.ones(4), holds) is None
        True
    """
    holding = holds.double() * (there > 0).double()[:, None]
    open_to_tell = there.double() @ holding
    if holds.shape[1] < FEWEST_VALUES or not bool((open_to_tell > 0).all()):
        return None
    share = (told.double() @ holding) / open_to_tell
    order = share.argsort()
    gaps = share[order].diff()[1:-1]  # two values at least on each side
    if float(gaps.max()) < CLEAR_GAP:
        return None
    least = torch.zeros(holds.shape[1], dtype=torch.bool)
    least[order[: int(gaps.argmax()) + 2]] = True
    return least
