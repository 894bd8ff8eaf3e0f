"""Protocol `paper`: the authors' recipe, step by step, for several splits or seeds at once.

Learned embeddings of every value in every slot, Adam at a constant 1e-2, 4,000 full-batch steps on raw vectors, and the
step that scores best on the *test* scenes. It is kept to show what it does, not because it should be used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.approximation.approximators import Approximator, Data, Fitted, value_columns
from colligate.approximation.layers import read_values
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split

Form = Literal["linear", "hidden", "product", "sum+product"]
Judge = Callable[[Tensor, Tensor], float]
"""Vectors, rows -> how many of those scenes' objects are recognised."""


@dataclass(frozen=True)
class PaperRecipe:
    """One of the authors' approximators, trained as they do.

        e = embeddings of the values, one table for each slot and concept, as wide as the vectors
        linear: W [e; ...] + b     hidden: W relu(V [e; ...] + a) + b
        product: W (e * ... * e) + b     sum+product: W [e * ... * e; sum of other embeddings] + b

    Paper: arXiv:2605.31503, Sec. 5; `approximate_complexity_scenes.py`.
    Differs: products of an embedding table with the first layer are taken value by value, not scene by scene; the same
    numbers up to rounding, and the same steps.

    Args:
        form: the rule.
        width: hidden units.
        steps: Adam steps.
        every: steps between two looks at the test scenes.
        judge: recognition of objects, by which the step is chosen on test; without one, the last step is taken.

    Example:
        >>> PaperRecipe("hidden", 256).name
        'paper.mlp256'
    """

    form: Form
    width: int = 0
    steps: int = 4000
    every: int = 100
    judge: Judge | None = None

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return {
            "linear": "paper.additive", "hidden": f"paper.mlp{self.width}", "product": "paper.global_product",
            "sum+product": "paper.additive+global_product",
        }[self.form]  # fmt: skip

    def contains(self, other: Approximator) -> bool:
        """What this recipe reaches isn't held against others."""
        del other
        return False

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Train on every split; those with equally many rows step together.

        Starts follow the authors' stream of draws, so that a seed of theirs is the same seed here: the n-th of several
        splits with equally many rows starts from `seed` + n.
        """
        found: list[Fitted | None] = [None] * len(splits)
        for size in {len(split.fit) for split in splits}:
            chosen = [i for i, split in enumerate(splits) if len(split.fit) == size]
            for i, fitted in zip(chosen, self._fit(data, [splits[i] for i in chosen], seed), strict=True):
                found[i] = fitted
        return [one for one in found if one is not None]

    def _start(self, scenes: Scenes, dim: int, seed: int) -> list[Tensor]:
        """Parameters of one member, drawn in the authors' order: objects' permutation, linear layers, tables.

        Their published losses before the first step are met to six digits (tests/external/test_complexity.py).
        """
        generator = torch.Generator().manual_seed(seed)
        torch.randperm(int(scenes.contains_objects().any(0).sum()), generator=generator)  # divides the objects there
        parts = scenes.slots * scenes.space.num_concepts

        def linear(inputs: int, outputs: int) -> list[Tensor]:
            """Weights and biases as `torch.nn.Linear` starts them."""
            bound = inputs**-0.5
            weights = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
            return [weights.T.contiguous(), torch.empty(1, outputs).uniform_(-bound, bound, generator=generator)]

        def tables() -> Tensor:
            return torch.cat([
                torch.empty(size, dim).normal_(generator=generator) for size in scenes.space.sizes * scenes.slots
            ])  # fmt: skip

        if self.form == "linear":
            layers = linear(parts * dim, dim)
        elif self.form == "hidden":
            layers = [*linear(parts * dim, self.width), *linear(self.width, dim)]
        else:
            layers = linear(dim if self.form == "product" else 2 * dim, dim)
        product = tables()
        return [product, tables(), *layers] if self.form == "sum+product" else [product, *layers]

    def _forward(
        self, parameters: Sequence[Tensor], columns: Int[Tensor, "member row part"], parts: Tensor
    ) -> Float[Tensor, "member row dim"]:
        """Predictions; `parts` says which part (slot and concept) each column of the tables belongs to."""
        tables, *rest = parameters
        if self.form in ("linear", "hidden"):
            weights = rest[0].unflatten(1, (-1, tables.shape[2]))  # member, part, dim, unit
            mapped = torch.cat(
                [torch.bmm(tables[:, parts == part], weights[:, part]) for part in range(columns.shape[2])], dim=1
            )
            first = read_values(mapped, columns) + rest[1]
            return first if self.form == "linear" else torch.bmm(first.relu(), rest[2]) + rest[3]
        product = read_values(tables, columns[..., :1])
        for part in range(1, columns.shape[2]):
            product = product * read_values(tables, columns[..., part, None])
        if self.form == "product":
            return torch.bmm(product, rest[0]) + rest[1]
        dim = product.shape[2]
        summed = read_values(rest[0], columns)
        return torch.bmm(product, rest[1][:, :dim]) + torch.bmm(summed, rest[1][:, dim:]) + rest[2]

    def _fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        scenes = data.scenes
        if not bool(scenes.filled.all()):
            raise ValueError("The authors' recipe needs scenes of equally many objects; use protocol strict.")
        parts = scenes.slots * scenes.space.num_concepts
        of_column = torch.repeat_interleave(torch.arange(parts), torch.tensor(scenes.space.sizes * scenes.slots))
        every = value_columns(scenes, "own").flatten(1)
        targets = data.frame.restore(data.targets)
        columns = torch.stack([every[split.fit] for split in splits])
        wanted = torch.stack([targets[split.fit] for split in splits])
        started = [self._start(scenes, targets.shape[1], seed + i) for i in range(len(splits))]
        parameters = [torch.stack(same).requires_grad_() for same in zip(*started, strict=True)]
        optimiser = torch.optim.Adam(parameters, lr=1e-2, fused=True)
        best: list[tuple[float, int, list[Tensor]]] = [(-1.0, 0, []) for _ in splits]
        for step in range(self.steps + 1):
            if self.judge is not None and step % self.every == 0 and step < self.steps:
                self._look(parameters, splits, every, of_column, best, step)
            if step == self.steps:
                break
            optimiser.zero_grad(set_to_none=True)
            predicted = self._forward(parameters, columns, of_column)
            (predicted - wanted).square().mean((1, 2)).sum().backward()
            optimiser.step()
        found = list[Fitted]()
        for i in range(len(splits)):
            kept = best[i][2] or [of.detach()[i : i + 1].clone() for of in parameters]
            step = best[i][1] if best[i][2] else self.steps

            def rule(scenes: Scenes, kept: list[Tensor] = kept) -> Tensor:
                with torch.no_grad():
                    return data.frame.reduce(
                        self._forward(kept, value_columns(scenes, "own").flatten(1)[None], of_column)[0]
                    )

            found.append(Fitted(rule, chosen=f"step {step}"))
        return found

    def _look(
        self, parameters: Sequence[Tensor], splits: Sequence[Split], every: Tensor, of_column: Tensor,
        best: list[tuple[float, int, list[Tensor]]], step: int,
    ) -> None:  # fmt: skip
        assert self.judge is not None
        for i, split in enumerate(splits):
            now = [of.detach()[i : i + 1].clone() for of in parameters]
            with torch.no_grad():
                score = self.judge(self._forward(now, every[split.test][None], of_column)[0], split.test)
            if score > best[i][0]:
                best[i] = (score, step, now)
