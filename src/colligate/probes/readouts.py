"""Linear read-outs as problems that are solved many at a time: their axes, their penalty, their loss."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def soft_targets(present: Bool[Tensor, "scene query"], dtype: torch.dtype) -> Float[Tensor, "scene query"]:
    """Uniform over what is present."""
    return present.to(dtype) / present.sum(1, keepdim=True)


def cross_entropy(scores: Float[Tensor, "scene query"], targets: Float[Tensor, "scene query"]) -> Float[Tensor, ""]:
    """Mean cross-entropy of softmax scores against soft targets, in nats."""
    return (scores.logsumexp(1) - (targets * scores).sum(1)).mean()


@runtime_checkable
class ScoreLoss(Protocol):
    """A loss on linear scores, for a stack of members; `members` index whatever the loss keeps for each."""

    def value(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, " member"]:
        """Mean loss over scenes, in nats."""
        ...

    def gradient(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member scene query"]:
        """Its gradient in the scores."""
        ...


class SoftmaxLoss:
    """Cross-entropy of softmax scores against soft targets; member m has targets `targets[of[m]]`."""

    def __init__(self, targets: Float[Tensor, "problem scene query"], of: Int[Tensor, " member"]) -> None:
        self.targets, self.of = targets, of

    def value(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, " member"]:
        """Mean cross-entropy, in nats."""
        targets = self.targets[self.of[members]]
        return (scores.logsumexp(2) - (targets * scores).sum(2)).mean(1)

    def gradient(
        self, scores: Float[Tensor, "member scene query"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member scene query"]:
        """Softmax minus targets, over the number of scenes."""
        return (scores.softmax(2) - self.targets[self.of[members]]) / scores.shape[1]


@dataclass(frozen=True, eq=False)
class Axes:
    """Principal axes of the vectors of a fit part, in which read-outs are fitted.

    Attributes:
        to_axes: maps vectors to features: the vectors in their principal axes, over the root of their variance.
    """

    to_axes: Float[Tensor, "dim axis"]

    @classmethod
    def of(cls, vectors: Float[Tensor, "scene dim"]) -> "Axes":
        """The axes of these vectors (uncentred; read-outs have no bias, and the mean direction serves as one)."""
        wide = vectors.double()
        size = (wide - wide.mean(0)).square().sum(1).mean().sqrt().clamp(min=1e-12)
        axes = torch.linalg.eigh(wide.T @ wide)[1].flip(1)[:, : min(wide.shape)]
        return cls((axes / size).float())

    def features(self, vectors: Float[Tensor, "scene dim"]) -> Float[Tensor, "scene axis"]:
        """Vectors in these axes."""
        return (vectors.double() @ self.to_axes.double()).float()


class LinearReadouts:
    """Stack of penalised linear read-outs that share their features, as a problem for `fitting.minimise`.

    Member m has shrinkage `shrinkages[m]`. Its parameters are its weights divided by
    `scale = (energy + shrinkage)^-1/2`, under which the penalty is plain and the problem well conditioned.
    """

    def __init__(
        self,
        features: Float[Tensor, "scene axis"],
        loss: ScoreLoss,
        queries: int,
        shrinkages: Float[Tensor, " member"],
        penalty: float,
    ) -> None:
        self.features, self.loss, self.penalty = features, loss, penalty
        self.scale = 1 / (features.square().mean(0) + shrinkages[:, None]).sqrt()
        self.shape = (features.shape[1], queries)

    def weights(
        self, parameters: Float[Tensor, "member parameter"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member axis query"]:
        """Unscaled weights."""
        return parameters.reshape(-1, *self.shape) * self.scale[members][:, :, None]

    def state(
        self, parameters: Float[Tensor, "member parameter"], members: Int[Tensor, " member"]
    ) -> Float[Tensor, "member scene query"]:
        """Scores."""
        weights = self.weights(parameters, members)
        flat = weights.permute(1, 0, 2).reshape(self.shape[0], -1)  # axis, member * query
        return (self.features @ flat).reshape(len(self.features), len(members), -1).permute(1, 0, 2)

    def value(
        self,
        state: Float[Tensor, "member scene query"],
        parameters: Float[Tensor, "member parameter"],
        members: Int[Tensor, " member"],
    ) -> Float[Tensor, " member"]:
        """Loss plus penalty."""
        return self.loss.value(state, members) + 0.5 * self.penalty * parameters.square().sum(1)

    def gradient(
        self,
        state: Float[Tensor, "member scene query"],
        parameters: Float[Tensor, "member parameter"],
        members: Int[Tensor, " member"],
    ) -> Float[Tensor, "member parameter"]:
        """Gradient in the scaled parameters."""
        residual = self.loss.gradient(state, members)
        flat = residual.permute(1, 0, 2).reshape(len(self.features), -1)
        by_weight = (self.features.T @ flat).reshape(self.shape[0], len(members), -1).permute(1, 0, 2)
        return (by_weight * self.scale[members][:, :, None]).reshape(len(members), -1) + self.penalty * parameters
