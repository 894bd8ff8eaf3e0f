"""Random-init controls: the same architecture with weights it was never trained to have."""

from dataclasses import dataclass, replace
from typing import Any

from colligate.embedders.towers import Model, Network, NetworkTower, Tower
from colligate.embedders.trained import TrainedTower
from colligate.embedders.trained_pair import TrainedPairTower


@dataclass(frozen=True)
class NoControl:
    """Why there is no random-init control; takes the place of its numbers.

    Attributes:
        reason: one sentence for the reader of the table.
    """

    reason: str


def random_init(of: Model | Tower, seed: int = 0) -> Model | NoControl:
    """Build the same architecture anew, every weight drawn as at the start of training.

    Towers that share a network share the fresh one. Preprocessing, tokenizer, layer and pooling stay as they are.

    Paper: arXiv:2605.31503, random-init rows.   Differs: the authors re-initialise in place, which leaves the weights
    of a vision transformer, and the LayerNorms and biases of the text tower, pretrained; here nothing survives.

    Args:
        of: a model, or one tower.
        seed: of the fresh weights.

    Returns:
        A model with the same towers, or the reason why there can't be one.

    Example:
        >>> from colligate.embedders.oracles import Oracle
        >>> random_init(Oracle("no-binding")).reason
        'An oracle has no trained weights, so a random-init control would be the same thing.'
    """
    model = of if isinstance(of, Model) else Model("tower", {of.kind: of})
    fresh: dict[int, Network] = {}
    towers: dict[str, Tower] = {}
    for kind, tower in model.towers.items():
        if isinstance(tower, TrainedTower | TrainedPairTower):
            towers[kind] = tower.fresh(seed)
            continue
        if not isinstance(tower, NetworkTower):
            return NoControl(_why_not(tower))
        network = tower.reader.network
        try:
            if id(network) not in fresh:
                fresh[id(network)] = network.fresh(seed)
        except (ValueError, NotImplementedError) as error:
            return NoControl(str(error))
        reader: Any = tower.reader
        towers[kind] = replace(tower, reader=replace(reader, network=fresh[id(network)]))
    note = f"Every weight is drawn anew (seed {seed}); nothing of the training is left."
    return Model(f"{model.name} with fresh weights, seed {seed}", towers, (*model.notes, note))


def _why_not(tower: Tower) -> str:
    if (tower.fingerprint or {}).get("oracle"):
        return "An oracle has no trained weights, so a random-init control would be the same thing."
    return (
        f"{type(tower).__name__} is the user's own, and only its author knows how to draw its weights anew; "
        "give vectors of an untrained one as the control."
    )
