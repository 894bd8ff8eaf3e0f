"""A metric that doesn't depend on the scale of axes: contrasts are measured in it, and noise is told from the rest.

Rules are fitted in the vectors' principal axes, each axis by least squares and with a penalty of its own, so that no
axis has a say in another. What looks at several axes at once looks through this metric.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.approximation.readers import some
from colligate.scenes.space import Scenes

TOLD = 4
"""Scenes for each axis that may be widened to unit variance; of fewer, the narrower axes stay as narrow as they are."""
LEAST = 1e-3
"""Weight of axes in which scenes share nothing."""
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
"""Penalties of the smoother, in units of a scene's likeness with itself."""
SMOOTHED = 1000
"""Most scenes that the smoother looks at; above it, a seeded choice."""


@dataclass(frozen=True, eq=False)
class Metric:
    """Whitened axes, each weighted by its reliability: how much of it the other scenes say.

        z(s) = diag(l)^-1/2 x(s)                     x in principal axes of variance l
        y(s) = sum over t != s of a[s, t] z(t)       what the other scenes say of scene s
        B = sum over s of (z(s) y(s)' + y(s) z(s)') / 2N = Q diag(r) Q'
        |x| = | diag(max(r, LEAST))^1/2 Q' z |

    y is kernel ridge regression on how many values two scenes share slot by slot (likeness 2^matches - 1, all orders of
    interaction, each with half the weight of the one below), each scene predicted without itself. In an axis that is a
    function of values r comes near 1, in noise it is about 0, whatever the variances of the two. Whitened coordinates
    only turn under an invertible linear map of the vectors, and r doesn't change at all: the metric doesn't depend on a
    few large axes, on a rotation, on the scale of axes, on an offset or on axes that are there twice.

    A sample of N scenes determines no more than N / 4 axes well enough to widen them: narrower ones are widened as much
    as the last of those. With fewer than 4 scenes for each axis the metric therefore does depend on scale.

    Attributes:
        measure: takes principal coordinates to the metric's own.
        shared: of each principal axis, how much the other scenes say.

    Example:
        >>> from colligate.binding import object_product
        >>> from colligate.approximation.approximators import Data
        >>> from colligate.embeddings import Embeddings
        >>> from colligate.scenes.space import ConceptSpace
        >>> scenes = ConceptSpace(color=6, shape=6).all_scenes(slots=2)
        >>> noise = 100 * torch.randn(len(scenes), 1, generator=torch.Generator().manual_seed(0))
        >>> vectors = torch.cat([object_product(scenes.space, 2, 8)(scenes.values).float(), noise], dim=1)
        >>> data = Data.of(Embeddings(vectors, scenes))
        >>> metric = Metric.of(data.targets, scenes, torch.arange(0, len(scenes), 2))
        >>> seen = (data.targets.double() @ metric.measure).square().mean(0)
        >>> data.frame.largest[0] > 0.99, bool((seen[:8] > 0.4).all()), bool(seen[8] < 0.05)
        (True, True, True)
    """

    measure: Float[Tensor, "axis axis"]
    shared: Float[Tensor, " axis"]

    @classmethod
    def of(
        cls, targets: Float[Tensor, "scene axis"], scenes: Scenes, rows: Int[Tensor, " row"], seed: int = 0
    ) -> "Metric":
        """Learn it.

        Args:
            targets: centred vectors in principal axes. Variances are those of all scenes (they know nothing of values).
            scenes: theirs.
            rows: scenes from which reliability is learned; none of them may be scored by it.
            seed: of the choice among many rows.
        """
        energies = targets.double().square().mean(0)
        told = len(targets) // TOLD
        ordered = energies.sort(descending=True).values
        width = energies.clamp(min=float(ordered[told]) if told < len(ordered) else 1e-300).sqrt()
        chosen = some(rows, SMOOTHED, seed)
        reliability, axes = _reliability(targets[chosen].double() / width, scenes[chosen])
        weights = reliability.clamp(LEAST, 1)
        return cls(axes / width[:, None] * weights.sqrt(), axes.square() @ weights)


def _reliability(
    whitened: Float[Tensor, "scene axis"], scenes: Scenes
) -> tuple[Float[Tensor, " axis"], Float[Tensor, "axis axis"]]:
    """What the other scenes say of each, axis by axis, the most reliable axis first; under the ridge that says most."""
    values = scenes.values.flatten(1)
    likeness = 2.0 ** (values[:, None] == values).sum(2).double() - 1
    own = float(likeness.diagonal().mean())
    likeness += 10 * own  # an intercept, all but unpenalised
    best: tuple[float, Tensor, Tensor] | None = None
    for ridge in RIDGES:
        penalised = likeness + ridge * own * torch.eye(len(scenes), dtype=torch.float64)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(penalised))
        told = whitened - inverse @ whitened / inverse.diagonal()[:, None]
        both = whitened.T @ told / len(scenes)
        reliability, axes = torch.linalg.eigh((both + both.T) / 2)
        total = float(reliability.clamp(0, 1).sum())
        if best is None or total > best[0]:
            best = total, reliability.flip(0), axes.flip(1)
    assert best is not None
    return best[1], best[2]
