"""Ensembles of trees on the values of every slot: rules without algebra."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from colligate.approximation.approximators import Approximator, Data, Fitted, Rule, additive_design, generator_of
from colligate.engine import chosen_threads
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split


def _inputs(scenes: Scenes) -> Float[Tensor, "scene column"]:
    """One indicator for each value in each slot."""
    return additive_design(scenes, "own").float()


@dataclass(frozen=True)
class Forest:
    """A random forest: a mean of trees grown on resampled scenes.

    Paper: arXiv:2605.31503, Sec. 5; its settings are unknown, so these are scikit-learn's but for their number.

    Args:
        trees: number of trees.

    Example:
        >>> from colligate.binding import no_binding
        >>> from colligate.embeddings import Embeddings
        >>> from colligate.scenes.space import ConceptSpace
        >>> from colligate.scenes.splits import ByObject
        >>> scenes = ConceptSpace(color=4, shape=3).all_scenes(slots=2)
        >>> data = Data.of(Embeddings(no_binding(scenes.space, 2, 8)(scenes.values), scenes))
        >>> fitted = Forest(trees=5).fit(data, [ByObject(coverage=0.6).split(scenes, seed=0)], seed=0)[0]
        >>> fitted.rule(scenes).shape == data.targets.shape
        True
    """

    trees: int = 50

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "forest"

    def contains(self, other: Approximator) -> bool:
        """Nothing is promised."""
        del other
        return False

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Grow one forest for each split."""
        from sklearn.ensemble import RandomForestRegressor

        inputs, found = _inputs(data.scenes).numpy(), list[Fitted]()
        for split in splits:
            state = int(torch.randint(2**31 - 1, (1,), generator=generator_of(split, seed)))
            forest = RandomForestRegressor(self.trees, random_state=state, n_jobs=chosen_threads())
            forest.fit(inputs[split.fit.numpy()], data.targets[split.fit].numpy())
            found.append(Fitted(_predicting(forest, data.targets.shape[1])))
        return found


@dataclass(frozen=True)
class Boosted:
    """Gradient-boosted trees whose leaves hold whole vectors.

    Paper: arXiv:2605.31503, Sec. 5 (XGBoost); its settings are unknown, so these are the library's but for rounds, rate
    and vector leaves.

    Args:
        rounds: number of trees.
        rate: share of each tree that is added.
        depth: deepest split.

    Raises:
        ValueError: xgboost isn't installed.

    Example:
        >>> Boosted().name
        'boosted'
    """

    rounds: int = 150
    rate: float = 0.1
    depth: int = 6

    @property
    def name(self) -> str:
        """As in the `family` column."""
        return "boosted"

    def contains(self, other: Approximator) -> bool:
        """Nothing is promised."""
        del other
        return False

    def fit(self, data: Data, splits: Sequence[Split], seed: int) -> list[Fitted]:
        """Boost on each split."""
        try:
            from xgboost import XGBRegressor  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ValueError("Boosted trees need xgboost; install it with pip install 'colligate[trees]'.") from error
        inputs, found = _inputs(data.scenes).numpy(), list[Fitted]()
        for split in splits:
            state = int(torch.randint(2**31 - 1, (1,), generator=generator_of(split, seed)))
            boosted = XGBRegressor(
                n_estimators=self.rounds, learning_rate=self.rate, max_depth=self.depth, tree_method="hist",
                multi_strategy="multi_output_tree", random_state=state, n_jobs=chosen_threads(),
            )  # fmt: skip
            boosted.fit(inputs[split.fit.numpy()], data.targets[split.fit].numpy())
            found.append(Fitted(_predicting(boosted, data.targets.shape[1])))
        return found


def _predicting(model: object, axes: int) -> Rule:
    def rule(scenes: Scenes) -> Tensor:
        predicted = model.predict(_inputs(scenes).numpy())  # pyright: ignore[reportAttributeAccessIssue]
        return torch.as_tensor(predicted).float().reshape(len(scenes), axes)

    return rule
