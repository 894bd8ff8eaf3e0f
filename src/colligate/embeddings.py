"""Vectors that can't lose their scenes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.scenes.space import Scenes

LARGEST, SMALLEST = 1e15, 1e-15
"""Between which the largest number of vectors must lie: then sums of squares fit into single precision."""


def listed_rows(rows: Sequence[int]) -> str:
    """Rows as a table shows them, counted from 1: the first eight, and how many more."""
    return ", ".join(str(row + 1) for row in rows[:8]) + (f" and {len(rows) - 8:,} more" if len(rows) > 8 else "")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors locked row by row to scenes, with where they came from.

        vectors[i] = f(item i),    item i = a caption, picture or token scene of scenes[i]

    Args:
        vectors: one row an item; kept in its own floating dtype.
        scenes: the scene that each row shows. A scene in several rows has replicates.
        captions: a text for each row, shown to the reader (optional).
        provenance: JSON-able facts: model, weights hash, preprocessing, layer, pooling, dtype, world.

    Raises:
        ValueError: rows and scenes differ in number, vectors without width, or a vector that is not finite or whose
            squares can't be computed with (the message names the rows, counted from 1).

    Example:
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=2, shape=2).all_scenes(slots=2)
        >>> Embeddings(torch.randn(16, 8), scenes).normalized().vectors.norm(dim=1).allclose(torch.ones(16))
        True
    """

    vectors: Float[Tensor, "scene dim"]
    scenes: Scenes
    captions: Sequence[str] | None = None
    provenance: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        vectors = self.vectors
        if vectors.ndim != 2 or not vectors.dtype.is_floating_point:
            raise ValueError(f"Vectors must be floating [scene, dim]; got {vectors.dtype} {tuple(vectors.shape)}.")
        if len(vectors) != len(self.scenes):
            raise ValueError(f"{len(vectors)} vectors for {len(self.scenes)} scenes; give exactly one row for each.")
        if self.captions is not None and len(self.captions) != len(vectors):
            raise ValueError(f"{len(self.captions)} captions for {len(vectors)} vectors; give exactly one for each.")
        if not vectors.shape[1]:
            raise ValueError("Vectors have no width (0 numbers each); embed the scenes again.")
        if not len(vectors):
            raise ValueError("There are no scenes to study; the table of scenes is empty.")
        bad = (~torch.isfinite(vectors)).any(1).nonzero()[:, 0].tolist()
        if bad:
            raise ValueError(f"Vectors hold NaN or infinity in rows {listed_rows(bad)}; embed those again.")
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Refuse numbers whose squares, or sums of them, are beyond the range of single precision."""
        largest = self.vectors.abs().amax(1).double()
        huge = (largest > LARGEST).nonzero()[:, 0].tolist()
        if huge:
            raise ValueError(
                f"Vectors hold numbers as large as {float(largest.max()):.3g} in rows {listed_rows(huge)}, whose "
                "squares are too large to compute with; embed those again, or divide all vectors by one number, to "
                f"below {LARGEST:g}."
            )

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Embedding width, D."""
        return self.vectors.shape[1]

    @cached_property
    def replicates(self) -> Int[Tensor, " scene"]:
        """Running number of each row among the rows of the same scene."""
        ids, order = self.scenes.ids.sort(stable=True)
        first = torch.searchsorted(ids, ids)
        numbers = torch.empty_like(ids)
        numbers[order] = torch.arange(len(ids)) - first
        return numbers

    def __getitem__(self, rows: Tensor | slice) -> "Embeddings":
        """The given rows (indices, a mask or a slice), in that order."""
        index = torch.arange(len(self))[rows]
        captions = None if self.captions is None else [self.captions[i] for i in index.tolist()]
        return replace(self, vectors=self.vectors[index], scenes=self.scenes[index], captions=captions)

    def normalized(self) -> "Embeddings":
        """Every vector divided by its length (in float32 or better), recorded in the provenance.

        Raises:
            ValueError: a vector has length zero; the message names the rows.
        """
        wide = self.vectors.to(torch.promote_types(self.vectors.dtype, torch.float32))
        lengths = wide.norm(dim=1, keepdim=True)
        zero = (lengths[:, 0] == 0).nonzero()[:, 0].tolist()
        if zero:
            raise ValueError(f"Vectors in rows {listed_rows(zero)} are zero and have no direction; embed those again.")
        return replace(self, vectors=wide / lengths, provenance={**self.provenance, "normalized": True})

    def collapse(self) -> tuple[str, ...]:
        """What a reader should know of vectors that can't tell scenes apart: all equal, or many the same.

        Example:
            >>> from colligate.scenes.space import ConceptSpace
            >>> scenes = ConceptSpace(color=2, shape=2).all_scenes(slots=2)
            >>> Embeddings(torch.ones(16, 8), scenes).collapse()[0]
            'All 16 vectors are equal, so nothing can be told apart by them: every score is a tie.'
        """
        scenes = len(self.scenes.ids.unique())  # repeats of a scene may well have one vector
        if len(self) < 2 or scenes < 2:
            return ()
        if bool((self.vectors == self.vectors[0]).all()):
            what = "equal, so nothing can be told apart by them: every score is a tie"
            return (f"All {len(self):,} vectors are {what}.",)
        wide = self.vectors.to(torch.promote_types(self.vectors.dtype, torch.float32))
        different = len(wide.unique(dim=0))
        if different >= scenes:
            return ()
        return (
            f"The vectors of {scenes:,} different scenes are only {different:,} different ones: scenes with the same "
            "vector tie in every score.",
        )


def check_scale(vectors: Float[Tensor, "row dim"]) -> None:
    """Refuse vectors from outside whose squares all vanish in single precision; what a fit leaves may be as small.

    Example:
        >>> check_scale(torch.full((2, 3), 1e-20))
        Traceback (most recent call last):
        ValueError: Vectors hold no number larger than 1e-20, whose square is too small to compute with...
    """
    largest = float(vectors.abs().max()) if vectors.numel() else 0.0
    if 0 < largest < SMALLEST:
        raise ValueError(
            f"Vectors hold no number larger than {largest:.3g}, whose square is too small to compute with; embed them "
            "again, or multiply all of them by one number."
        )
