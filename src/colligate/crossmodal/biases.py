"""Known biases as controls: does the object mentioned first, or the larger one, weigh more?"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from colligate.crossmodal.foils import FoilOutcomes, compare, of_two
from colligate.scenes.space import Scenes


def first_mentioned(
    scenes: Scenes, vectors: Float[Tensor, "scene dim"], objects: Float[Tensor, "object dim"]
) -> tuple[FoilOutcomes, Int[Tensor, " row"]]:
    """Whether a scene's vector lies nearer to its first object than to its second: one half is no bias.

    With captions this is the order of mention, with pictures the place.

    Returns:
        Outcomes, and the scenes that they are of (two objects that differ).

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=2).scenes([[0, 1], [1, 1]])
        >>> outcomes, rows = first_mentioned(scenes, torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.eye(2))
        >>> outcomes.hits.tolist(), rows.tolist()
        ([1.0], [0])
    """
    rows = of_two(scenes)
    rows = rows[scenes.objects[rows, 0] != scenes.objects[rows, 1]]
    units, asked = normalize(vectors[rows].float(), dim=1), normalize(objects.float(), dim=1)
    first, second = ((units * asked[scenes.objects[rows, slot]]).sum(1) for slot in (0, 1))
    return compare(first, second), rows


def larger_object(
    scenes: Scenes,
    vectors: Float[Tensor, "scene dim"],
    objects: Float[Tensor, "object dim"],
    *,
    size: str = "size",
    order: Sequence[str] = ("tiny", "small", "medium", "large"),
) -> tuple[FoilOutcomes, Int[Tensor, " row"]]:
    """Whether a picture's vector lies nearer to its larger object than to its smaller one: one half is no bias.

    Args:
        scenes: with a concept of size.
        vectors: of pictures.
        objects: query vectors.
        size: name of that concept.
        order: its words, from small to large.

    Returns:
        Outcomes, and the scenes that they are of (two objects of different sizes).

    Raises:
        ValueError: no such concept, or a word that `order` doesn't know.

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(size=["small", "large"]).scenes([[0, 1], [1, 0], [1, 1]])
        >>> outcomes, rows = larger_object(scenes, torch.eye(2)[[1, 1, 1]], torch.eye(2))
        >>> outcomes.hits.tolist(), rows.tolist()
        ([1.0, 1.0], [0, 1])
    """
    concept = scenes.space.concept(size)
    unknown = [word for word in scenes.space.words[concept] if word not in order]
    if unknown:
        raise ValueError(
            f"The size {unknown[0]!r} has no place in the order {', '.join(order)}; give an order with it."
        )
    rank = torch.tensor([list(order).index(word) for word in scenes.space.words[concept]])
    rows = of_two(scenes)
    held = rank[scenes.values[rows][:, :2, concept]]
    rows, held = rows[held[:, 0] != held[:, 1]], held[held[:, 0] != held[:, 1]]
    large = (held[:, 1] > held[:, 0]).long()
    units, asked = normalize(vectors[rows].float(), dim=1), normalize(objects.float(), dim=1)
    bigger, smaller = ((units * asked[scenes.objects[rows, slot]]).sum(1) for slot in (large, 1 - large))
    return compare(bigger, smaller), rows
