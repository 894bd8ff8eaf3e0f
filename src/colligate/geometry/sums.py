"""What all decompositions need to know of the vectors, gathered in one pass: sums and counts for each slot and object.

Every design's group sums are sums of these, and R2 on the same scenes follows from them, so four designs and their
averages cost one reading of the vectors. Sums of several parts of the data (shards, machines) merge by addition.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.embeddings import Embeddings
from colligate.geometry.components import (
    Decomposition,
    Design,
    Estimator,
    Parts,
    solve,
)
from colligate.scenes.space import ConceptSpace

BLOCK = 512
"""Scenes read at a time: few enough that a block of float64 vectors stays in a core's cache."""
MOST_PARTS = 10_000
"""Slots times objects above which the table of pairs (their square) is not kept."""


@dataclass(frozen=True, eq=False)
class SceneSums:
    """Sums over scenes, from which components and their R2 on those scenes follow.

    Attributes:
        space: the concepts.
        slots: number of slots.
        scenes: number of scenes of each number of objects.
        totals: sum of their vectors.
        squares: sum of their vectors' squared lengths.
        sums: for each slot and object, the sum of the vectors of the scenes that hold it there.
        pairs: how many scenes hold two such parts.
        reads: how many scenes of each number of objects hold each part.
    """

    space: ConceptSpace
    slots: int
    scenes: Float[Tensor, " count"]
    totals: Float[Tensor, "count dim"]
    squares: Float[Tensor, " count"]
    sums: Float[Tensor, "part dim"]
    pairs: Float[Tensor, "part part"]
    reads: Float[Tensor, "part count"]

    @classmethod
    def of(cls, embeddings: Embeddings, rows: Tensor | None = None) -> "SceneSums":
        """Gather them from all rows, or from some.

        Raises:
            ValueError: so many objects that a table of their pairs would not fit.

        Example:
            >>> from colligate.binding import no_binding
            >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
            >>> embeddings = Embeddings(no_binding(scenes.space, 2, 16)(scenes.values), scenes)
            >>> first, second = SceneSums.of(embeddings[:20]), SceneSums.of(embeddings[20:])
            >>> both = first.merge(second)
            >>> round(both.r2(both.decompose(parts="concept")), 6)
            1.0
        """
        scenes = embeddings.scenes if rows is None else embeddings.scenes[rows]
        design = Design(scenes.space, scenes.slots, "object", positions=True)
        size, kinds = design.size, scenes.slots + 1
        if size > MOST_PARTS:
            raise ValueError(
                f"{scenes.slots} slots of {scenes.space.num_objects} objects are too many for a table of pairs; "
                "use decompose for one design at a time."
            )
        columns = design.columns(scenes)[..., 0]
        columns = torch.where(columns < 0, size, columns)  # a last part for empty slots, dropped at the end
        sums = torch.zeros(size + 1, embeddings.dim, dtype=torch.float64)
        totals = torch.zeros(kinds, embeddings.dim, dtype=torch.float64)
        squares = torch.zeros(kinds, dtype=torch.float64)
        pairs = torch.zeros((size + 1) ** 2, dtype=torch.float64)
        reads = torch.zeros((size + 1) * kinds, dtype=torch.float64)
        for start in range(0, len(scenes), BLOCK):
            block = slice(start, start + BLOCK)
            vectors = embeddings.vectors[block if rows is None else rows[block]].double()
            counts = scenes.counts[block]
            squares.index_add_(0, counts, torch.linalg.vector_norm(vectors, dim=1).square())
            for count in counts.unique().tolist():
                own = counts == count
                totals[count] += (vectors if bool(own.all()) else vectors[own]).sum(0)
            for column in columns[block].unbind(1):
                sums.index_add_(0, column, vectors)
        for column in columns.unbind(1):
            reads += torch.bincount(column * kinds + scenes.counts, minlength=len(reads))
            for other in columns.unbind(1):
                pairs += torch.bincount(column * (size + 1) + other, minlength=len(pairs))
        return cls(
            scenes.space, scenes.slots, torch.bincount(scenes.counts, minlength=kinds).double(), totals, squares,
            sums[:-1], pairs.reshape(size + 1, size + 1)[:-1, :-1], reads.reshape(size + 1, kinds)[:-1],
        )  # fmt: skip

    def merge(self, other: "SceneSums") -> "SceneSums":
        """The sums over both sets of scenes.

        Raises:
            ValueError: another space or another number of slots.
        """
        if self.space != other.space or self.slots != other.slots:
            raise ValueError("Sums can only be merged for scenes of one concept space with as many slots.")
        return SceneSums(
            self.space, self.slots, self.scenes + other.scenes, self.totals + other.totals,
            self.squares + other.squares, self.sums + other.sums, self.pairs + other.pairs, self.reads + other.reads,
        )  # fmt: skip

    @cached_property
    def centres(self) -> Float[Tensor, "count dim"]:
        """Mean vector of the scenes of each number of objects; NaN where there are none."""
        return self.totals / torch.where(self.scenes > 0, self.scenes, torch.nan)[:, None]

    def decompose(
        self, *, parts: Parts = "concept", positions: bool = False, estimator: Estimator = "least_squares"
    ) -> Decomposition:
        """What `components.decompose` gives for these scenes, without reading their vectors again.

        Args:
            parts: what gets a component.
            positions: whether each slot has its own.
            estimator: `least_squares` or `avg`.

        Raises:
            ValueError: another estimator, which needs other sums.
        """
        if estimator not in ("least_squares", "avg"):
            raise ValueError(f"The estimator {estimator!r} needs more than these sums; use components.decompose.")
        design = Design(self.space, self.slots, parts, positions)
        columns = self._columns(design)
        table = torch.cat([_gathered(self.reads, columns, design.size), self.scenes[None]])
        sums = _gathered(self.sums - self.reads @ torch.nan_to_num(self.centres), columns, design.size)
        if estimator == "avg":
            return Decomposition(design, estimator, self.centres, sums / table[:-1].sum(1, keepdim=True), self.centres)
        gram = _gathered(_gathered(self.pairs, columns, design.size).T, columns, design.size)
        components, shift, rank = solve(gram, sums, table)
        components[table[:-1].sum(1) == 0] = torch.nan
        return Decomposition(design, estimator, self.centres + shift, components, self.centres, rank)

    def r2(self, decomposition: Decomposition) -> float:
        """R2 of a decomposition on these scenes.

            sum |x - mean - A u|^2 = sum |x - mean|^2 - 2 <u, A'(x - mean)> + <u, A'A u>

        Example:
            >>> from colligate.binding import object_table
            >>> scenes = ConceptSpace(color=3, shape=2).all_scenes(slots=2)
            >>> embeddings = Embeddings(object_table(scenes.space, 2, 16)(scenes.values), scenes)
            >>> sums = SceneSums.of(embeddings)
            >>> abs(sums.r2(sums.decompose()) - sums.decompose().r2(embeddings)) < 1e-9
            True
        """
        held = self.scenes > 0
        columns = self._columns(decomposition.design)
        means, centres = (torch.where(held[:, None], of, 0.0) for of in (decomposition.means, decomposition.centres))
        from_parts = decomposition.components[columns].sum(1)
        from_parts[self.reads.sum(1) == 0] = 0.0  # parts that no scene holds may be unknown
        errors = self._around(means)
        errors -= 2 * (from_parts * (self.sums - self.reads @ means)).sum()
        errors += (from_parts * (self.pairs @ from_parts)).sum()
        return 1 - float(errors / self._around(centres))

    def _around(self, centres: Float[Tensor, "count dim"]) -> Float[Tensor, ""]:
        """Sum of squared distances from a centre for each number of objects."""
        return (self.squares - 2 * (self.totals * centres).sum(1) + self.scenes * centres.square().sum(1)).sum()

    def _columns(self, design: Design) -> Int[Tensor, "part column"]:
        """Which components of a design each slot and object reads."""
        objects = torch.arange(self.space.num_objects)
        everywhere = self.space.scenes(objects[:, None].expand(-1, self.slots))
        return design.columns(everywhere).transpose(0, 1).flatten(0, 1)


def _gathered(
    of_parts: Float[Tensor, "part _"], columns: Int[Tensor, "part column"], size: int
) -> Float[Tensor, "component _"]:
    """Sum over the parts that read each component."""
    found = torch.zeros(size, of_parts.shape[1], dtype=of_parts.dtype)
    for column in columns.unbind(1):
        found.index_add_(0, column, of_parts)
    return found
