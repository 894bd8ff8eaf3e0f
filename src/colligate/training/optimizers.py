"""How weights are stepped: AdamW for all, or Muon for the matrices of layers; and a running average of the weights."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from colligate.choices import OptimizerKind
from colligate.networks.stacked import Affine

_ROUNDS = 5
_CUBIC, _QUINTIC, _LINEAR = -4.7750, 2.0315, 3.4445


def orthogonalized(
    matrix: Float[Tensor, "member row dim"], *, dtype: torch.dtype | None = None
) -> Float[Tensor, "member row dim"]:
    """A matrix with the same singular vectors whose singular values lie near one (about 0.7 to 1.2).

    Five rounds of X <- a X + (b A + c A^2) X with A = X X^T, which push every singular value of X / |X| towards one.

    Args:
        matrix: one for each member.
        dtype: of the products; None for the matrix's own.

    Source: Newton-Schulz rounds and constants of Muon (Jordan et al. 2024).

    Example:
        >>> made = orthogonalized(torch.tensor([[[3.0, 0.0], [0.0, 0.1]]]))
        >>> bool((made[0].diagonal() > 0.6).all() and (made[0].diagonal() < 1.3).all())
        True
    """
    x = matrix if dtype is None else matrix.to(dtype)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    for _ in range(_ROUNDS):
        squared = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=_CUBIC, alpha=_QUINTIC), x, beta=_LINEAR)
    return (x.mT if tall else x).to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    """Step matrices along their momentum made orthogonal: every direction moves as far, not only the steepest few.

    W <- (1 - rate decay) W - rate sqrt(max(1, out / in)) orthogonalized(g + momentum (m - g)),  m the mean of gradients

    Each member of a stack is a matrix of its own.

    Args:
        parameters: of shape [member, in, out].
        rate: how far a step moves (the largest singular value of its change).
        decay: weight decay.
        dtype: of the products that orthogonalize; None for the weights' own.
        momentum: memory of the mean of gradients.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".

    Example:
        >>> weight = nn.Parameter(torch.zeros(1, 2, 2))
        >>> weight.grad = torch.tensor([[[5.0, 0.0], [0.0, -5.0]]])
        >>> _ = Muon([weight], rate=0.1).step()
        >>> weight[0].mul(10).round().int().tolist()
        [[-1, 0], [0, 1]]
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        rate: float,
        decay: float = 0.0,
        dtype: torch.dtype | None = None,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(parameters, {"lr": rate, "weight_decay": decay})
        self.momentum, self.dtype = momentum, dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is ever given
        """One step from the gradients that are there."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(weight, group["lr"], group["weight_decay"])

    def _step(self, weight: nn.Parameter, rate: float, decay: float) -> None:
        gradient: Tensor = weight.grad  # type: ignore[assignment]  # the caller looked
        state = self.state[weight]
        if "mean" not in state:
            state["mean"] = torch.zeros_like(weight)
        mean: Tensor = state["mean"]
        mean.lerp_(gradient, 1 - self.momentum)
        change = orthogonalized(gradient.lerp(mean, self.momentum), dtype=self.dtype)
        wide = max(1.0, weight.shape[2] / weight.shape[1]) ** 0.5
        weight.mul_(1 - rate * decay).add_(change, alpha=-rate * wide)


class Optimizers:
    """The optimizers of a stack: what each steps, at which rate, and their state under one name.

    Args:
        modules: what is trained; weights whose names hold `table` or `distance` don't decay.
        kind: muon or adamw, for the matrices of layers.
        rate: AdamW's rate at its highest.
        matrix_rate: Muon's.
        decay: weight decay of matrices.
        momentum: AdamW's second moment's memory.
        dtype: of Muon's products; None for the weights' own.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        kind: OptimizerKind,
        *,
        rate: float,
        matrix_rate: float,
        decay: float,
        momentum: float,
        dtype: torch.dtype | None,
    ) -> None:
        named = [pair for module in modules for pair in module.named_parameters()]
        affine = {id(m.weight) for module in modules for m in module.modules() if isinstance(m, Affine)}
        layers = affine if kind == "muon" else set[int]()
        mine = [p for _, p in named if id(p) in layers]
        rest = [(name, p) for name, p in named if id(p) not in layers]
        decays = [name.endswith("weight") and "table" not in name and "distance" not in name for name, _ in rest]
        decayed = [p for (_, p), decay in zip(rest, decays, strict=True) if decay]
        free = [p for (_, p), decay in zip(rest, decays, strict=True) if not decay]
        groups = [{"params": decayed, "weight_decay": decay}, {"params": free, "weight_decay": 0.0}]
        self.parameters = [*decayed, *free, *mine]
        groups = [group for group in groups if group["params"]]
        self._all: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups, lr=rate, betas=(0.9, momentum), fused=True)]
        if mine:
            self._all.append(Muon(mine, rate=matrix_rate, decay=decay, dtype=dtype))
        self._highest = [rate, matrix_rate]

    def step(self, share: float) -> None:
        """One step at a share of each one's highest rate."""
        for one, highest in zip(self._all, self._highest, strict=False):
            for group in one.param_groups:
                group["lr"] = highest * share
            one.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for one in self._all:
            one.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """What a later call goes on from, by name."""
        return {
            f"{o}.{i}.{name}": value
            for o, one in enumerate(self._all)
            for i, slots in one.state_dict()["state"].items()
            for name, value in slots.items()
        }

    def load_state(self, found: Mapping[str, Tensor]) -> None:
        """Take what `state` gave."""
        for o, one in enumerate(self._all):
            slots: dict[int, dict[str, Any]] = {}
            for name, value in found.items():
                number, i, slot = name.split(".", 2)
                if int(number) == o:
                    slots.setdefault(int(i), {})[slot] = value
            one.load_state_dict({**one.state_dict(), "state": slots})


class Average:
    """An exponential average of a network's weights: less noisy than the weights of any one step.

        a <- a + (1 - m) (w - a),    m = min(memory, (1 + step) / (10 + step)),    a = w at the first step

    Args:
        network: whose weights.
        memory: share of the average that a step keeps; 0 follows the weights themselves.

    Example:
        >>> network = nn.Linear(1, 1, bias=False)
        >>> average, before = Average(network, 0.9), network.weight.item()
        >>> average.follow(0)
        >>> with torch.no_grad():
        ...     _ = network.weight.add_(1.0)
        >>> average.follow(100_000)
        >>> with average.shown():
        ...     round(network.weight.item() - before, 3)
        0.1
    """

    def __init__(self, network: nn.Module, memory: float) -> None:
        self.memory = memory
        self._weights = list(network.parameters())
        self.held: list[Tensor] = []  # from the first step on

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Move towards the weights after a step."""
        if not self.memory:
            return
        if not self.held:
            self.held = [p.detach().clone() for p in self._weights]
        kept = min(self.memory, (1 + step) / (10 + step))
        for average, weight in zip(self.held, self._weights, strict=True):
            average.lerp_(weight, 1 - kept)

    @contextmanager
    def shown(self) -> Generator[None, None, None]:
        """The network with the averaged weights, for as long as the context lasts."""
        if not self.held:
            yield
            return
        own = [p.detach().clone() for p in self._weights]
        self._put(self.held)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, values: Sequence[Tensor]) -> None:
        for weight, value in zip(self._weights, values, strict=True):
            weight.copy_(value)
