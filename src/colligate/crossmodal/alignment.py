"""Why one tower finds, or fails to find, what the other shows: are the parts of their vectors the same?

A scene's vector is explained by one component for each object, an object's component by one for each of its values and
an interaction: what the values together add to the sum of them. Concepts can be matched by shared value components;
only shared interactions tell which values belong together.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from colligate.crossmodal.queries import QueryVectors
from colligate.scenes.space import ConceptSpace, Scenes

_ROWS = 4096
"""Scenes read at a time."""


@dataclass(frozen=True, eq=False)
class ObjectParts:
    """Vectors of objects, and what they are made of.

        objects[o] = centre + sum_c values[c, o_c] + interactions[o]

    Attributes:
        space: the concepts.
        objects: one vector for each object; NaN where unknown.
        known: objects with a vector.
        centre: mean of the known objects.
        values: best-fitting component of each value, concept by concept; NaN where no known object has it.
        interactions: the rest; NaN where the object is unknown.
    """

    space: ConceptSpace
    objects: Float[Tensor, "object dim"]
    known: Bool[Tensor, " object"]
    centre: Float[Tensor, " dim"]
    values: Float[Tensor, "value dim"]
    interactions: Float[Tensor, "object dim"]

    @classmethod
    def of(
        cls, space: ConceptSpace, objects: Float[Tensor, "object dim"], known: Bool[Tensor, " object"] | None = None
    ) -> "ObjectParts":
        """Part given vectors of objects by least squares, in float64.

        Example:
            >>> space = ConceptSpace(color=2, shape=2)
            >>> parts = ObjectParts.of(space, torch.tensor([[0.0], [1.0], [2.0], [5.0]]))
            >>> parts.interactions[:, 0].round(decimals=6).tolist(), parts.centre.item()
            ([0.5, -0.5, -0.5, 0.5], 2.0)
        """
        known = torch.ones(len(objects), dtype=torch.bool) if known is None else known
        ids = known.nonzero()[:, 0]
        held = objects[ids].double()
        centre = held.mean(0)
        columns = value_columns(space)[ids]
        design = torch.zeros(len(ids), sum(space.sizes), dtype=torch.float64).scatter_(1, columns, 1.0)
        # The least-norm solution: each concept's components have mean zero where all objects are known.
        found = torch.linalg.pinv(design) @ (held - centre)
        rest = torch.full_like(objects, torch.nan, dtype=torch.float64)
        rest[ids] = held - centre - found[columns].sum(1)
        found[~design.any(0)] = torch.nan
        kept = torch.where(known[:, None], objects.double(), torch.nan)
        return cls(space, kept, known, centre, found, rest)

    @property
    def interaction_share(self) -> float:
        """Share of the objects' variance that their values' components don't explain: 0 for a bag of concepts."""
        spread = (self.objects[self.known] - self.centre).square().sum()
        return float(self.interactions[self.known].square().sum() / spread.clamp(min=1e-300))

    def additive(self) -> Float[Tensor, "object dim"]:
        """Sum of the values' components of every object."""
        return self.values[value_columns(self.space)].sum(1)


def value_columns(space: ConceptSpace) -> Int[Tensor, "object concept"]:
    """Place of each object's values in a list of all concepts' values.

    Example:
        >>> value_columns(ConceptSpace(color=2, shape=2)).tolist()
        [[0, 2], [0, 3], [1, 2], [1, 3]]
    """
    starts = torch.tensor([sum(space.sizes[:c]) for c in range(space.num_concepts)])
    return space.object_values(torch.arange(space.num_objects)) + starts


def object_parts(vectors: Float[Tensor, "scene dim"], scenes: Scenes) -> ObjectParts:
    """Find the component of every object in scenes' vectors by least squares, and part it.

        x(s) ~ mu(number of objects) + sum_k w[o_k],    component of o = w[o] + mean of mu(n) / n

    Vectors are taken as they are: divide them by their lengths first if cosines are to be explained.

    Example:
        >>> from colligate.binding import object_product
        >>> scenes = ConceptSpace(color=3, shape=3).all_scenes(slots=2)
        >>> rule = object_product(scenes.space, 2, 16)
        >>> parts = object_parts(rule(scenes.values), scenes)
        >>> objects = rule(scenes.space.all_scenes(slots=1).values)
        >>> bool((parts.objects - objects).abs().max() < 1e-9)
        True
    """
    space, size = scenes.space, scenes.space.num_objects
    counts = scenes.counts.unique()
    width = size + len(counts)
    gram = torch.zeros(width, width, dtype=torch.float64)
    sums = torch.zeros(width, vectors.shape[1], dtype=torch.float64)
    for start in range(0, len(scenes), _ROWS):
        block = slice(start, start + _ROWS)
        design = torch.zeros(len(scenes.objects[block]), width + 1, dtype=torch.float64)
        design.scatter_add_(1, scenes.objects[block] % (width + 1), torch.ones(scenes.objects[block].shape).double())
        design[:, size:width] = (scenes.counts[block, None] == counts).double()
        design = design[:, :width]  # empty slots have fallen into the last column
        gram += design.T @ design
        sums += design.T @ vectors[block].double()
    known = gram.diagonal()[:size] > 0
    solved = torch.linalg.pinv(gram, hermitian=True) @ sums
    # The intercepts are shared out among the objects: only their sum with the components is identified.
    shares = gram.diagonal()[size:, None] / len(scenes)
    return ObjectParts.of(space, solved[:size] + (shares * solved[size:] / counts[:, None]).sum(0), known)


def query_parts(queries: QueryVectors) -> ObjectParts:
    """The parts of the object queries, as unit vectors."""
    return ObjectParts.of(queries.space, normalize(queries.objects.double(), dim=1))


class Agreement(NamedTuple):
    """How alike two sets of vectors are, row by row and as configurations.

    Attributes:
        cosine: mean cosine of corresponding rows, after each set's mean is taken off.
        elsewhere: mean cosine of rows that don't correspond: what `cosine` is to be read beside.
        cka: linear centred kernel alignment, in [0, 1]; the same for any rotation of either set.
        residual: share of the second set's variance that no rotation and scaling of the first explains.
        cosines: the cosine of each row.
    """

    cosine: float
    elsewhere: float
    cka: float
    residual: float
    cosines: Float[Tensor, " row"]


def agreement(first: Float[Tensor, "row dim"], second: Float[Tensor, "row other"]) -> Agreement:
    """Compare two sets of vectors of the same things.

        CKA = |A'B|^2 / (|A'A| |B'B|),    residual = 1 - |A'B|_nuclear^2 / (|A|^2 |B|^2),    A, B centred

    Cosines need equal widths and are NaN otherwise; the others don't.

    Raises:
        ValueError: the sets differ in number, or have fewer than two rows.

    Example:
        >>> points = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> turned = points @ torch.linalg.qr(points[:4]).Q
        >>> found = agreement(points, 3 * turned)
        >>> round(found.cka, 6), round(abs(found.residual), 6), found.cosine < 0.9
        (1.0, 0.0, True)
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(f"Vectors of the same things are compared row by row; got {len(first)} and {len(second)}.")
    a, b = (rows.double() - rows.double().mean(0) for rows in (first, second))
    cross = a.T @ b
    norms = (a.T @ a).norm() * (b.T @ b).norm()
    cka = float(cross.square().sum() / norms.clamp(min=1e-300))
    spread = a.square().sum() * b.square().sum()
    residual = 1 - float(torch.linalg.svdvals(cross).sum().square() / spread.clamp(min=1e-300))
    if a.shape[1] != b.shape[1]:
        cosines = torch.full((len(a),), torch.nan, dtype=torch.float64)
        return Agreement(torch.nan, torch.nan, cka, residual, cosines)
    table = normalize(a, dim=1) @ normalize(b, dim=1).T
    cosines = table.diagonal()
    others = (table.sum() - cosines.sum()) / (len(a) * (len(a) - 1))
    return Agreement(float(cosines.mean()), float(others), cka, residual, cosines)


def compare_parts(first: ObjectParts, second: ObjectParts) -> dict[str, Agreement]:
    """Agreement of two towers' objects, of their values' components, and of their interactions.

    A part without any length (the interactions of a bag of concepts) is left out.

    Raises:
        ValueError: the towers know different spaces or share fewer than two objects.

    Example:
        >>> space = ConceptSpace(color=3, shape=3)
        >>> parts = ObjectParts.of(space, torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))
        >>> {name: round(found.cosine, 3) for name, found in compare_parts(parts, parts).items()}
        {'object': 1.0, 'concept': 1.0, 'interaction': 1.0}
    """
    if first.space != second.space:
        raise ValueError("The two towers' objects come from different spaces; embed the same world with both.")
    both = first.known & second.known
    valued = torch.isfinite(first.values).all(1) & torch.isfinite(second.values).all(1)
    pairs = {
        "object": (first.objects[both], second.objects[both]),
        "concept": (first.values[valued], second.values[valued]),
        "interaction": (first.interactions[both], second.interactions[both]),
    }
    spreads = [float((parts.objects[both] - parts.centre).square().sum()) for parts in (first, second)]
    return {
        name: agreement(*pair)
        for name, pair in pairs.items()
        if all(float(rows.square().sum()) > 1e-12 * spread for rows, spread in zip(pair, spreads, strict=True))
    }


Removed = ("concept", "interaction", "object")
"""What can be taken out: the values' components, the interactions, or both."""


def without(
    vectors: Float[Tensor, "scene dim"],
    scenes: Scenes,
    parts: ObjectParts,
    removed: str,
    names: Int[Tensor, " object"] | None = None,
) -> Float[Tensor, "scene dim"]:
    """Scenes' vectors without some of their objects' components.

    Args:
        vectors: of the scenes, as they were when `parts` were found.
        scenes: what they show.
        parts: components.
        removed: concept, interaction or object.
        names: object -> object whose components are taken away in its place: the control that removes as much.

    Raises:
        ValueError: a scene holds an object without a component.

    Example:
        >>> from colligate.binding import no_binding
        >>> scenes = ConceptSpace(color=3, shape=3).all_scenes(slots=2)
        >>> vectors = no_binding(scenes.space, 2, 16)(scenes.values)
        >>> rest = without(vectors, scenes, object_parts(vectors, scenes), "concept")
        >>> bool((rest - rest[0]).abs().max() < 1e-9)
        True
    """
    table = component_table(parts, removed)
    names = torch.arange(len(table)) if names is None else names
    wanted = names[scenes.objects.clamp(min=0)]
    if not bool(torch.isfinite(table[wanted[scenes.filled]]).all()):
        raise ValueError(f"A scene holds an object without a {removed} component; find the parts on more scenes.")
    return vectors.double() - torch.where(scenes.filled[..., None], table[wanted], 0.0).sum(1)


def component_table(parts: ObjectParts, removed: str) -> Float[Tensor, "object dim"]:
    """What is taken away for each object."""
    if removed not in Removed:
        raise ValueError(f"{removed!r} can't be removed; choose {', '.join(Removed)}.")
    if removed == "interaction":
        return parts.interactions
    return parts.additive() if removed == "concept" else parts.objects - parts.centre


def queries_without(queries: QueryVectors, removed: str, names: Int[Tensor, " object"] | None = None) -> QueryVectors:
    """Object queries without some of their components; value queries stay.

    Example:
        >>> space = ConceptSpace(color=3, shape=3)
        >>> queries = QueryVectors(space, None, torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))
        >>> round(query_parts(queries_without(queries, "interaction")).interaction_share, 1) < 0.2
        True
    """
    table = component_table(query_parts(queries), removed)
    names = torch.arange(len(table)) if names is None else names
    left = normalize(queries.objects.double(), dim=1) - table[names]
    return QueryVectors(queries.space, queries.concepts, left.to(queries.objects.dtype))


def rotation(first: Float[Tensor, "row dim"], second: Float[Tensor, "row dim"]) -> Float[Tensor, "dim dim"]:
    """The rotation that brings the first set nearest to the second (orthogonal Procrustes), vectors as rows.

    Example:
        >>> points = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> turn = torch.linalg.qr(points[:4]).Q
        >>> bool((rotation(points, points @ turn) - turn).abs().max() < 1e-9)
        True
    """
    left, _, right = torch.linalg.svd(first.double().T @ second.double())
    return left @ right
