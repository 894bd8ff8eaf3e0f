"""What training minimises: a contrastive loss over scenes and queries with several positives."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from colligate.choices import LossKind
from colligate.training.queries import Targets

_NEVER = -1e9  # a score that counts for nothing; minus infinity has no gradient where nothing else is left


@dataclass(frozen=True)
class Objective:
    """A soft multi-positive cross-entropy, or the sum of binary ones.

        scene-to-query   mean_s  [ logsumexp_q z(s, q)  -  mean_{q true of s} z(s, q) ]
        query-to-scene   mean_q  [ logsumexp_s z(s, q)  -  mean_{s that hold q} z(s, q) ]      queries some scene holds
        sigmoid          1/S sum_{s, q}  [ log(1 + exp z(s, q))  -  z(s, q) if q is true of s ]

    Where scenes times queries exceed `at_once`, scores are made in blocks of scenes and made again for the gradient,
    so that memory doesn't grow with the table.

    Paper: arXiv:2605.31503, Sec. 6: "symmetric"; its code: scene-to-query.

    Args:
        kind: which loss.
        at_once: most scores of one member that are kept.
    """

    kind: LossKind = "both"
    at_once: int = 2**24

    def __call__(
        self,
        scenes: Float[Tensor, "member scene dim"],
        queries: Float[Tensor, "member query dim"],
        targets: Targets,
        scale: Float[Tensor, "member 1 1"],
        bias: Float[Tensor, "member 1 1"],
    ) -> Float[Tensor, " member"]:
        """The loss of each member.

        Args:
            scenes: vectors, of length one under cosine.
            queries: vectors, one for each of the targets' ids.
            targets: which queries are true of which scene.
            scale: factor on similarities.
            bias: added to them (sigmoid only).
        """
        size = max(1, self.at_once // queries.shape[1])
        parts: list[_Sums] = []
        for start in range(0, scenes.shape[1], size):
            rows = slice(start, start + size)
            given = (
                scenes[:, rows], queries, targets.columns[:, rows], targets.shares[:, rows], targets.valid, scale, bias,
            )  # fmt: skip
            if size >= scenes.shape[1]:
                parts.append(self._block(*given))
            else:
                parts.append(_Sums(*checkpoint(self._block, *given, use_reentrant=False)))  # type: ignore[misc]
        whole = parts[0] if len(parts) == 1 else _joined(parts)
        return self._reduce(whole, targets)

    def _block(
        self,
        scenes: Float[Tensor, "member scene dim"],
        queries: Float[Tensor, "member query dim"],
        columns: Tensor,
        shares: Tensor,
        valid: Bool[Tensor, "member query"] | None,
        scale: Tensor,
        bias: Tensor,
    ) -> "_Sums":
        z = torch.bmm(scenes * scale, queries.transpose(1, 2))  # [member scene query]
        if self.kind == "sigmoid":
            z = z + bias
        true = z.gather(2, columns)
        if valid is not None:
            z = z.masked_fill(~valid[:, None], _NEVER)
        none = z.new_zeros(len(z), 0)
        by_scene = z.logsumexp(2) if self.kind in {"scene-to-query", "both"} else none
        by_query = z.logsumexp(1) if self.kind in {"query-to-scene", "both"} else none
        alone = torch.nn.functional.softplus(z).sum((1, 2)) if self.kind == "sigmoid" else z.new_zeros(len(z))
        return _Sums(true, by_scene, by_query, alone)

    def _reduce(self, sums: "_Sums", targets: Targets) -> Float[Tensor, " member"]:
        shares = targets.shares.to(sums.true.dtype)
        if self.kind == "sigmoid":
            return (sums.alone - (shares * sums.true).sum((1, 2))) / shares.shape[1]
        total = sums.true.new_zeros(len(shares))
        if self.kind != "query-to-scene":
            held = shares.sum(2)
            mean = (shares * sums.true).sum(2) / held.clamp(min=1e-9)
            some = held > 0
            total = total + ((sums.by_scene - mean) * some).sum(1) / some.sum(1).clamp(min=1)
        if self.kind != "scene-to-query":
            flat = targets.columns.flatten(1)
            held = torch.zeros_like(targets.ids, dtype=shares.dtype).scatter_add_(1, flat, shares.flatten(1))
            some = held > 1e-9
            weights = shares.flatten(1) / held.gather(1, flat).clamp(min=1e-9)
            whole = (sums.by_query.masked_fill(~some, 0.0)).sum(1) - (weights * sums.true.flatten(1)).sum(1)
            total = total + whole / some.sum(1).clamp(min=1)
        return total / 2 if self.kind == "both" else total


class _Sums(NamedTuple):
    """What is kept of the scores of some scenes."""

    true: Float[Tensor, "member scene positive"]
    by_scene: Tensor
    by_query: Tensor
    alone: Tensor


def _joined(parts: list[_Sums]) -> _Sums:
    by_query = torch.stack([part.by_query for part in parts]).logsumexp(0)
    return _Sums(
        torch.cat([part.true for part in parts], 1),
        torch.cat([part.by_scene for part in parts], 1),
        by_query,
        torch.stack([part.alone for part in parts]).sum(0),
    )
