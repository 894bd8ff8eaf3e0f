"""Why there is no control, where there is none. That controls keep nothing is tested in contracts/test_towers.py."""

from typing import Any

import torch
from torch import nn

from colligate.embedders import load_model
from colligate.embedders.controls import NoControl, random_init
from colligate.embedders.towers import Model, Network, NetworkTower


class Own:
    kind = "text"
    fingerprint = None

    def embed(self, items: list[str]) -> torch.Tensor:
        return torch.zeros(len(items), 2)


def test_a_user_s_own_tower_has_no_control() -> None:
    control = random_init(Own())
    assert isinstance(control, NoControl)
    assert control.reason.startswith("Own is the user's own")


def test_a_single_tower_has_one(tiny) -> None:
    tower = load_model(f"hf:{tiny('dinov2')}").towers["picture"]
    control = random_init(tower, 2)
    assert isinstance(control, Model)
    assert list(control.towers) == ["picture"]
    assert "seed 2" in control.notes[-1]


def test_a_network_that_can_t_be_drawn_anew_says_so(tiny) -> None:
    model = load_model(f"sbert:{tiny('sbert')}")
    tower = model.towers["text"]
    assert isinstance(tower, NetworkTower)
    odd = nn.Module()
    odd.register_parameter("weight", nn.Parameter(torch.ones(2)))
    module: Any = tower.reader.network.module
    module.append(odd)  # a module without reset_parameters
    control = random_init(model)
    assert isinstance(control, NoControl)
    assert "does not say how its weights are drawn" in control.reason


def test_the_hash_of_the_weights_sees_one_changed_number() -> None:
    def network(value: float) -> Network:
        module = nn.Linear(2, 2)
        with torch.no_grad():
            module.weight.fill_(1.0)
            module.bias.copy_(torch.tensor([0.0, value]))
        return Network(module, rebuild=lambda: nn.Linear(2, 2))

    assert network(0.0).weights_hash == network(0.0).weights_hash
    assert network(0.0).weights_hash != network(1e-7).weights_hash
