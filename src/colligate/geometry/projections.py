"""Coordinates to look at: a quadruple of two values by two values, all objects, and scenes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings


class Projection(NamedTuple):
    """Points in three dimensions, and how true they are.

    Attributes:
        points: coordinates.
        method: in words.
        explained: PCA: share of variance on each axis; MDS: empty.
        stress: MDS: root of the squared misfit over squared distances; PCA: None.
    """

    points: Float[Tensor, "point axis"]
    method: str
    explained: tuple[float, ...] = ()
    stress: float | None = None


def principal_axes(vectors: Float[Tensor, "point dim"], axes: int = 3) -> Projection:
    """Project centred vectors on their first principal axes.

    Example:
        >>> projection = principal_axes(torch.eye(5))
        >>> projection.points.shape, [round(e, 2) for e in projection.explained]
        (torch.Size([5, 3]), [0.25, 0.25, 0.25])
    """
    centred = vectors.double() - vectors.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    shown = min(axes, len(sizes))
    points = torch.zeros(len(vectors), axes, dtype=torch.float64)
    points[:, :shown] = centred @ directions[:shown].T
    shares = (sizes.square() / sizes.square().sum().clamp(min=1e-30))[:shown]
    return Projection(points, "PCA", tuple(shares.tolist()))


def scaled_distances(vectors: Float[Tensor, "point dim"], axes: int = 3) -> Projection:
    """Place points so that their distances come close to 1 - cosine (metric MDS).

    Paper: arXiv:2605.31503, Fig. 2.

    Example:
        >>> projection = scaled_distances(torch.eye(4))
        >>> projection.points.shape, round(projection.stress, 2)
        (torch.Size([4, 3]), 0.0)
    """
    from sklearn.manifold import smacof

    directions = torch.nn.functional.normalize(vectors.double(), dim=1)
    distances = (1 - directions @ directions.T).clamp(min=0)
    distances = ((distances + distances.T) / 2).fill_diagonal_(0)
    total = float(distances.square().sum()) / 2
    if total < len(vectors) ** 2 * 1e-24:  # all in one direction, up to rounding
        return Projection(torch.zeros(len(vectors), axes, dtype=torch.float64), "MDS of 1 - cosine", stress=0.0)
    found = smacof(
        distances.numpy(),
        n_components=axes,
        n_init=4,
        max_iter=300,
        random_state=0,
        normalized_stress=False,  # pyright: ignore[reportArgumentType]
    )
    points = torch.as_tensor(found[0])
    misfit = float((torch.cdist(points, points) - distances).square().sum()) / 2
    return Projection(points, "MDS of 1 - cosine", stress=(misfit / total) ** 0.5)


class Quadruple(NamedTuple):
    """The vectors behind the figure of two values by two values: names, kinds and groups of the points."""

    vectors: Float[Tensor, "point dim"]
    labels: tuple[str, ...]
    kinds: tuple[str, ...]


def quadruple(embeddings: Embeddings, values: Mapping[int, tuple[int, int]]) -> Quadruple:
    """Concept means, object means, the two scenes that share them, and the sums that the objects predict.

    With values B, C of one concept and R, S of another: the means of B, C, R, S; of objects BR, BS, CR, CS; the scenes
    BR + CS and BS + CR (a scene and its swap, in both orders); and mean + (BR - mean) + (CS - mean).

    Args:
        embeddings: scenes of two objects.
        values: two concepts, and two values of each. Other concepts are held at their first value.

    Raises:
        ValueError: a scene of the quadruple is not in the set.

    Paper: arXiv:2605.31503, Fig. 2.

    Example:
        >>> from colligate.binding import object_table
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> embeddings = Embeddings(object_table(scenes.space, 2, 16)(scenes.values), scenes)
        >>> quadruple(embeddings, {0: (0, 1), 1: (0, 1)}).kinds.count("object")
        4
    """
    scenes, space = embeddings.scenes, embeddings.scenes.space
    vectors = embeddings.vectors.double()
    mean = vectors.mean(0)
    (first, (b, c)), (second, (r, s)) = values.items()
    labels, kinds, points = list[str](), list[str](), list[Tensor]()

    def add(label: str, kind: str, vector: Tensor) -> None:
        labels.append(label)
        kinds.append(kind)
        points.append(vector)

    for concept, pair in ((first, (b, c)), (second, (r, s))):
        for value in pair:
            add(space.words[concept][value], "concept", vectors[scenes.contains(concept)[:, value]].mean(0))
    objects: dict[tuple[int, int], int] = {}
    for one in (b, c):
        for two in (r, s):
            chosen = torch.zeros(space.num_concepts, dtype=torch.int64)
            chosen[first], chosen[second] = one, two
            objects[one, two] = int(space.object_ids(chosen))
    means = {o: vectors[(scenes.objects == o).any(1)].mean(0) for o in objects.values()}
    for o, vector in means.items():
        add(space.describe_object(o), "object", vector)
    for pair in ((objects[b, r], objects[c, s]), (objects[b, s], objects[c, r])):
        for order in (pair, pair[::-1]):
            row = _row(embeddings, order)
            add(scenes.describe(row), "scene", vectors[row])
        add(" + ".join(space.describe_object(o) for o in pair), "sum", means[pair[0]] + means[pair[1]] - mean)
    return Quadruple(torch.stack(points), tuple(labels), tuple(kinds))


def _row(embeddings: Embeddings, objects: Sequence[int]) -> int:
    wanted = embeddings.scenes.space.scenes([list(objects)])
    row: Int[Tensor, " one"] = embeddings.scenes.rows_of(wanted)
    if int(row[0]) < 0:
        raise ValueError(f"The set has no scene {wanted.describe(0)!r}; choose other values for the quadruple.")
    return int(row[0])
