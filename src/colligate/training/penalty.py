"""A penalty towards low complexity: how far a batch's vectors lie from the nearest simple binding function.

The paper names it as future work. A rule of few parameters that explains the vectors of seen objects also says what
those of unseen ones should be; pulling the encoder towards such a rule should make it generalise at lower coverage.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from colligate.networks.encoders import EncoderShape, ProductEncoder
from colligate.scenes.space import ConceptSpace


class Distance(nn.Module):
    """Unexplained share of the variance of a batch's vectors: 1 - R2 of the nearest function of the family.

        additive         x(s) ~ b + sum_k sum_c u[c, s[k, c]]             least squares within the batch
        object-products  the same + sum_k prod_c v[c, s[k, c]]            its own tables, trained along

    Args:
        kind: the family.
        space: the concepts.
        slots: most objects in a scene.
        dim: width of the vectors.
        seeds: one for each member.

    Example:
        >>> space = ConceptSpace(color=3, shape=3)
        >>> values = space.all_scenes(slots=2).values[None]
        >>> vectors = nn.functional.one_hot(values).sum((2, 3)).float()
        >>> round(float(Distance("additive", space, 2, 3, [0])(vectors, values)), 4)
        0.0
    """

    def __init__(
        self,
        kind: Literal["additive", "object-products"],
        space: ConceptSpace,
        slots: int,
        dim: int,
        seeds: Sequence[int],
    ) -> None:
        super().__init__()
        self.kind, self.space, self.slots = kind, space, slots
        self.rule: ProductEncoder | None = None
        if kind == "object-products":
            shape = EncoderShape(kind="product", dim=dim)
            self.rule = ProductEncoder(space, slots, shape, [3 * seed + 2 for seed in seeds])
            self.intercepts = nn.Parameter(torch.zeros(len(seeds), slots, dim))

    def forward(
        self, vectors: Float[Tensor, "member scene dim"], values: Int[Tensor, "member scene slot concept"]
    ) -> Float[Tensor, " member"]:
        """The unexplained share, for each member.

        Args:
            vectors: of the batch's scenes.
            values: of those scenes, -1 in empty slots.
        """
        counts = (values >= 0).all(-1).sum(-1)
        if self.rule is None:
            error = vectors - self._least_squares(vectors, values, counts)
        else:
            member = torch.arange(len(vectors), device=vectors.device)[:, None]
            error = vectors - self.rule(values) - self.intercepts[member, counts - 1]
        spread = vectors - vectors.mean(1, keepdim=True)
        return error.square().sum((1, 2)) / spread.square().sum((1, 2)).clamp(min=1e-12)

    def _least_squares(self, vectors: Tensor, values: Tensor, counts: Tensor) -> Float[Tensor, "member scene dim"]:
        """The best sum of one vector for each value and one for each number of objects."""
        design = [nn.functional.one_hot(counts - 1, self.slots)]
        for c, size in enumerate(self.space.sizes):
            of_concept = nn.functional.one_hot(values[..., c].clamp(min=0), size)
            design.append((of_concept * (values[..., c] >= 0)[..., None]).sum(2))
        table = torch.cat(design, 2).to(vectors.dtype)
        gram = table.transpose(1, 2) @ table
        ridge = 1e-4 * torch.eye(gram.shape[-1], device=gram.device, dtype=gram.dtype)
        return table @ torch.linalg.solve(gram + ridge, table.transpose(1, 2) @ vectors)
