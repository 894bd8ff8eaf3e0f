"""Explain a vector as a mean plus one component for each part of the scene, in closed form.

A design says which component each slot of a scene reads: one for each value or object, shared by the slots or one for
each slot. Least squares and the paper's averages need only group sums and counts, so scenes are read once, in blocks.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.measures import SCORES_AT_ONCE, Retrieval, Scratch, joined, retrieve_sums
from colligate.scenes.space import ConceptSpace, Scenes

Parts = Literal["concept", "object"]
"""Level-II (one component for each value of each concept) or Level-I (one for each object)."""

Estimator = Literal["least_squares", "avg", "avg.set", "single"]
"""How components are found.

least_squares: the best fit. avg: mean of the scenes with the part, a scene counting once for each slot that holds it.
avg.set: the same, a scene counting once. single: the vectors of single-object scenes.
"""

BLOCK = 512
"""Scenes read at a time: few enough that a block of float64 vectors stays in a core's cache."""
ROUNDING = 1e-13
"""Length, relative to a vector's own, below which a difference of float64 vectors is rounding."""


@dataclass(frozen=True)
class Design:
    """Which component each slot of a scene reads.

    Attributes:
        space: the concepts.
        slots: number of slots.
        parts: what has a component.
        positions: whether each slot has components of its own ("+pos").
    """

    space: ConceptSpace
    slots: int
    parts: Parts
    positions: bool = False

    @property
    def name(self) -> str:
        """As in metric ids: concept, concept+pos, object, object+pos."""
        return self.parts + ("+pos" if self.positions else "")

    @property
    def per_slot(self) -> int:
        """Number of components that one slot can read."""
        return sum(self.space.sizes) if self.parts == "concept" else self.space.num_objects

    @property
    def size(self) -> int:
        """Number of components."""
        return self.per_slot * (self.slots if self.positions else 1)

    def columns(self, scenes: Scenes) -> Int[Tensor, "scene slot part"]:
        """Index of every component that a scene reads, -1 for empty slots."""
        if self.parts == "object":
            columns = scenes.objects[..., None]
        else:
            starts = torch.tensor([sum(self.space.sizes[:c]) for c in range(self.space.num_concepts)])
            columns = scenes.values + starts
        if self.positions:
            columns = columns + torch.arange(scenes.slots)[:, None] * self.per_slot
        return torch.where(scenes.filled[..., None], columns, -1)

    def describe(self, column: int) -> str:
        """What a component stands for, in words."""
        slot, rest = divmod(column, self.per_slot) if self.positions else (None, column)
        where = "" if slot is None else f" in slot {slot + 1}"
        if self.parts == "object":
            return f"object {self.space.describe_object(rest)!r}{where}"
        for name, words in zip(self.space.names, self.space.words, strict=True):
            if rest < len(words):
                return f"{name} {words[rest]!r}{where}"
            rest -= len(words)
        raise IndexError(column)


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A mean for each number of objects, plus components that add up to a scene's vector.

    Attributes:
        design: which component a slot reads.
        estimator: how they were found.
        means: for each number of objects (row index), the intercept; rows that were not fitted hold NaN.
        components: one vector for each part, centred; rows of parts that the fit part never showed hold NaN.
        centres: for each number of objects, the mean vector of the fit part, against which R2 is taken.
        rank: rank of the design (least squares), else None.
    """

    design: Design
    estimator: Estimator
    means: Float[Tensor, "count dim"]
    components: Float[Tensor, "component dim"]
    centres: Float[Tensor, "count dim"]
    rank: int | None = None

    def predict(self, scenes: Scenes) -> Float[Tensor, "scene dim"]:
        """The vector that the components add up to.

        Raises:
            ValueError: a scene holds a part that was not in the fit part; the message names it.
        """
        self._check_counts(scenes)
        return self.sum_of_parts(scenes) + self.means[scenes.counts]

    def sum_of_parts(self, scenes: Scenes) -> Float[Tensor, "scene dim"]:
        """The sum of the scenes' components, without the mean.

        Raises:
            ValueError: a scene holds a part that was not in the fit part; the message names it.
        """
        columns = self.design.columns(scenes).flatten(1)
        self._check_parts(columns)
        return self._sum(columns)

    def _sum(self, columns: Int[Tensor, "scene part"]) -> Float[Tensor, "scene dim"]:
        total = torch.zeros(len(columns), self.components.shape[1], dtype=self.components.dtype)
        for column in columns.unbind(1):
            part = self.components.index_select(0, column.clamp(min=0))
            if bool((column < 0).any()):
                part[column < 0] = 0.0
            total += part
        return total

    def _check_counts(self, scenes: Scenes) -> None:
        found = scenes.counts.unique()
        unfitted = found[~torch.isfinite(self.means[found]).all(1)].tolist()
        if unfitted:
            raise ValueError(f"No scene of {' or '.join(map(str, unfitted))} objects was fitted; fit on some.")

    def _check_parts(self, columns: Int[Tensor, "scene part"]) -> None:
        known = torch.isfinite(self.components).all(1)
        unknown = columns[(columns >= 0) & ~known[columns.clamp(min=0)]]
        if len(unknown):
            raise ValueError(
                f"The fit part never shows {self.design.describe(int(unknown[0]))}, so its component is unknown; "
                "fit on more scenes or leave such scenes out."
            )

    def retrieve(
        self,
        embeddings: Embeddings,
        rows: Int[Tensor, " row"],
        directions: Float[Tensor, "dim scene"] | None = None,
    ) -> Retrieval:
        """Whether the vectors predicted for these rows are nearest, by cosine, to their own scene among all scenes.

        Two notions of right, as columns of `hits`: the scene itself (any replicate), and any order of its objects.

        Args:
            embeddings: all scenes.
            rows: those whose predictions are looked up.
            directions: `directions_of(embeddings)`, if it is at hand.
        """
        scenes = embeddings.scenes
        directions = directions_of(embeddings) if directions is None else directions
        keys = torch.stack([scenes.ids, scenes.unordered_ids], dim=1)
        columns = self.design.columns(scenes[rows]).flatten(1)
        rank = len(self.components)
        columns = torch.cat([columns, rank + scenes.counts[rows, None]], dim=1)
        from_parts = torch.cat([self.components, self.means]) @ directions
        step, scratch = max(16, SCORES_AT_ONCE // max(len(scenes), 1)), Scratch()
        return joined(
            [
                retrieve_sums(None, columns[i : i + step], None, from_parts, keys[rows[i : i + step]], keys, scratch)
                for i in range(0, len(rows), step)
            ],
            keys=2,
        )

    def squares(
        self, embeddings: Embeddings, rows: Int[Tensor, " row"] | None = None
    ) -> tuple[Float[Tensor, " scene"], Float[Tensor, " scene"]]:
        """Per scene, the squared error and the squared distance from the fit part's mean of its number of objects.

        Args:
            embeddings: vectors and scenes.
            rows: those to look at; all by default.
        """
        scenes = embeddings.scenes if rows is None else embeddings.scenes[rows]
        columns = self.design.columns(scenes).flatten(1)
        self._check_counts(scenes)
        self._check_parts(columns)
        errors = torch.empty(len(scenes), dtype=torch.float64)
        totals = torch.empty(len(scenes), dtype=torch.float64)
        for start in range(0, len(scenes), BLOCK):
            block = slice(start, start + BLOCK)
            vectors = embeddings.vectors[block if rows is None else rows[block]].double()
            counts = scenes.counts[block]
            totals[block] = squares_around(self.centres.index_select(0, counts), vectors)
            left = (vectors - self._sum(columns[block])).sub_(self.means.index_select(0, counts))
            errors[block] = torch.linalg.vector_norm(left, dim=1).square()
        return errors, totals

    def r2(self, embeddings: Embeddings) -> float:
        """Share of the variance within each number of objects that the components explain.

        R2 = 1 - sum_s |x(s) - predicted(s)|^2 / sum_s |x(s) - mean of the fit part|^2
        """
        errors, totals = self.squares(embeddings)
        return 1 - float(errors.sum() / totals.sum())


def directions_of(embeddings: Embeddings) -> Float[Tensor, "dim scene"]:
    """The vectors at length one, in float64, a column each: what cosines are taken with."""
    return torch.nn.functional.normalize(embeddings.vectors.double(), dim=1).T.contiguous()


def squares_around(centres: Float[Tensor, "scene dim"], vectors: Float[Tensor, "scene dim"]) -> Float[Tensor, " scene"]:
    """Squared distances from the centres; zero where they are no more than the rounding of the vectors themselves.

    Example:
        >>> squares_around(torch.full((1, 2), 0.3).double() + 1e-16, torch.full((1, 2), 0.3).double()).tolist()
        [0.0]
    """
    distances = torch.linalg.vector_norm(vectors - centres, dim=1)
    return torch.where(distances > ROUNDING * torch.linalg.vector_norm(vectors, dim=1), distances.square(), 0.0)


def decompose(
    embeddings: Embeddings,
    rows: Tensor | None = None,
    *,
    parts: Parts = "concept",
    positions: bool = False,
    estimator: Estimator = "least_squares",
    singles: Embeddings | None = None,
) -> Decomposition:
    """Explain every vector as a mean plus one component for each part of the scene.

        x(s) ~ mean + sum_k sum_c  u[c, s[k, c]]        parts="concept"  (Level-II)
        x(s) ~ mean + sum_k        w[object(s[k])]      parts="object"   (Level-I)

    `positions=True` gives each slot components of its own. Least squares or the paper's averages, both in closed form:
    no seed, no step count, no learning rate. The averages take the mean of the scenes that hold a part, minus the mean
    of all, as its component.

    Args:
        embeddings: vectors and scenes.
        rows: the fit part; all rows by default.
        parts: what gets a component.
        positions: whether each slot has its own.
        estimator: how they are found.
        singles: vectors of single-object scenes, for `estimator="single"`.

    Raises:
        ValueError: `single` without singles or with positions, or singles that lack an object.

    Paper: arXiv:2605.31503, Sec. 4 and Table 1.   Differs: the authors fit the sums by 10,000 AdamW steps.

    Example:
        >>> from colligate.binding import no_binding
        >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
        >>> embeddings = Embeddings(no_binding(scenes.space, 2, 16)(scenes.values), scenes)
        >>> round(decompose(embeddings).r2(embeddings), 6)
        1.0
    """
    fitted = embeddings if rows is None else embeddings[rows]
    design = Design(fitted.scenes.space, fitted.scenes.slots, parts, positions)
    centres = _means_by_count(fitted)
    if estimator == "single":
        return _from_singles(design, centres, singles)
    columns = design.columns(fitted.scenes).flatten(1)
    if estimator == "avg.set":
        columns = _without_repeats(columns)
    sums, counts = _group_sums(fitted, columns, design.size, centres)
    if estimator == "least_squares":
        gram = _gram(fitted.scenes, design)
        components, shift, rank = solve(gram, sums, _count_columns(fitted.scenes, design))
        components[counts == 0] = torch.nan
        return Decomposition(design, estimator, centres + shift, components, centres, rank)
    components = sums / counts[:, None]
    return Decomposition(design, estimator, centres, components, centres)


def _means_by_count(embeddings: Embeddings) -> Float[Tensor, "count dim"]:
    counts = embeddings.scenes.counts
    sums = torch.zeros(embeddings.scenes.slots + 1, embeddings.dim, dtype=torch.float64)
    for start in range(0, len(embeddings), BLOCK):
        rows = slice(start, start + BLOCK)
        for count in counts[rows].unique().tolist():
            own = counts[rows] == count
            vectors = embeddings.vectors[rows] if bool(own.all()) else embeddings.vectors[rows][own]
            sums[count] += vectors.sum(0, dtype=torch.float64)
    held = torch.bincount(counts, minlength=embeddings.scenes.slots + 1)
    return sums / torch.where(held > 0, held, torch.nan)[:, None]


def _group_sums(
    embeddings: Embeddings, columns: Int[Tensor, "scene part"], size: int, centres: Tensor
) -> tuple[Float[Tensor, "component dim"], Float[Tensor, " component"]]:
    """Sum of the centred vectors of the scenes that read each component, and how many read it."""
    sums = torch.zeros(size + 1, embeddings.dim, dtype=torch.float64)  # the last row takes what reads nothing
    columns = torch.where(columns < 0, size, columns)
    for start in range(0, len(embeddings), BLOCK):
        rows = slice(start, start + BLOCK)
        vectors = embeddings.vectors[rows].double() - centres.index_select(0, embeddings.scenes.counts[rows])
        for column in columns[rows].unbind(1):
            sums.index_add_(0, column, vectors)
    counts = torch.bincount(columns.flatten(), minlength=size + 1).double()
    return sums[:-1], counts[:-1]


def _without_repeats(columns: Int[Tensor, "scene part"]) -> Int[Tensor, "scene part"]:
    ordered = columns.sort(dim=1).values
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = -1
    return ordered


def _gram(scenes: Scenes, design: Design) -> Float[Tensor, "component component"]:
    """How often two components are read together: the normal equations' matrix, a table of counts."""
    columns = design.columns(scenes).flatten(1)
    size = design.size
    gram = torch.zeros(size * size, dtype=torch.float64)
    for first in columns.unbind(1):
        for second in columns.unbind(1):
            both = (first >= 0) & (second >= 0)
            gram += torch.bincount(first[both] * size + second[both], minlength=size * size)
    return gram.reshape(size, size)


def _count_columns(scenes: Scenes, design: Design) -> Float[Tensor, "component count"]:
    """How often each component is read by the scenes of each number of objects; last row: how many scenes there are."""
    columns = design.columns(scenes).flatten(1)
    table = torch.zeros(design.size + 1, scenes.slots + 1, dtype=torch.float64)
    for count in scenes.counts.unique().tolist():
        held = columns[scenes.counts == count]
        table[:-1, count] = torch.bincount(held[held >= 0], minlength=design.size)
        table[-1, count] = len(held)
    return table


def solve(
    gram: Float[Tensor, "component component"], sums: Float[Tensor, "component dim"], table: Tensor
) -> tuple[Tensor, Tensor, int]:
    """Least-squares components after projecting out one intercept for each number of objects.

    Returns the components, what they add to each intercept, and the rank with intercepts. Targets are centred within
    each number of objects, so that projecting the intercepts out of the design alone is enough.
    """
    reads, scenes = table[:-1], table[-1]
    used = scenes > 0
    per_scene = reads[:, used] / scenes[used]  # mean design row of each number of objects
    centred = gram - (per_scene * scenes[used]) @ per_scene.T
    values, vectors = torch.linalg.eigh(centred)
    good = values > values[-1].clamp(min=1e-300) * len(values) * 1e-13
    inverse = torch.where(good, 1 / torch.where(good, values, 1.0), 0.0)
    components = vectors @ (inverse[:, None] * (vectors.T @ sums))
    shift = torch.zeros(table.shape[1], sums.shape[1], dtype=sums.dtype)
    shift[used] = -per_scene.T @ components
    return components, shift, int(good.sum()) + int(used.sum())


def _from_singles(design: Design, centres: Tensor, singles: Embeddings | None) -> Decomposition:
    if singles is None or design.positions:
        raise ValueError(
            "The single estimator reads scenes of one object, which say nothing about slots: give `singles` and "
            "leave `positions` out."
        )
    alone = decompose(singles, parts=design.parts, estimator="avg")
    missing = (~torch.isfinite(alone.components)).any(1).nonzero()[:, 0].tolist()
    if missing:
        raise ValueError(f"No single-object scene shows {design.describe(missing[0])}; embed all single objects.")
    return Decomposition(design, "single", centres, alone.components, centres)
