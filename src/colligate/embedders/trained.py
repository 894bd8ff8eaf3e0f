"""Dual encoders that `colligate train` made, as embedders: `run:FOLDER`, and those that come with the library."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from colligate.embedders.towers import LoadOptions, Model, Tower
from colligate.embedders.trained_pair import pair_towers
from colligate.networks.checkpoint import load_checkpoint
from colligate.networks.dual import DualEncoder
from colligate.records import open_run
from colligate.scenes.space import Scenes

GRID_OBJECTS = 400
"""About how many objects a trained model is studied on: a sub-grid of its space."""
REFERENCES = ("binds", "bag")
"""Names of the trained models that come with the library: one that binds, and a bag of concepts, which can't."""
_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class TrainedTower:
    """Embed scenes by a trained scene encoder, as the encoder gives the vectors (not divided by their length).

    Scenes of any space with as many concepts and no more values of each are read; value 0 is the trained value 0.

    Args:
        network: a dual encoder of one member.
        weights: hash that identifies it.
        normalize: divide every vector by its length.

    Example:
        >>> from colligate.networks.dual import DualShape
        >>> from colligate.scenes.space import ConceptSpace
        >>> space = ConceptSpace(color=3, shape=2)
        >>> tower = TrainedTower(DualEncoder(space, 2, DualShape(), seeds=[0]), "fresh")
        >>> tower.embed(space.all_scenes(slots=2)).shape, tower.grid
        (torch.Size([36, 256]), 'grid:3x2')
    """

    network: DualEncoder
    weights: str
    normalize: bool = False

    def __post_init__(self) -> None:
        self.network.eval().requires_grad_(False)

    @property
    def kind(self) -> Literal["scene"]:
        """It reads scenes."""
        return "scene"

    @property
    def device(self) -> str:
        """Where the network runs."""
        return str(self.network.log_scale.device)

    @property
    def fingerprint(self) -> Mapping[str, object]:
        """The weights determine the vectors."""
        return {
            "library": "colligate",
            "trained": self.network.shape.scene.kind,
            "weights": self.weights,
            "normalize": self.normalize,
        }

    @property
    def grid(self) -> str:
        """The world on which it is studied: the first min(V, ceil(400^(1/C))) values of each concept.

        Paper: arXiv:2605.31503: larger spaces are analysed on this sub-grid.
        """
        sizes = self.network.space.sizes
        most = math.ceil(round(GRID_OBJECTS ** (1 / len(sizes)), 9))
        return "grid:" + "x".join(str(min(size, most)) for size in sizes)

    def embed(self, items: Scenes) -> Float[Tensor, "item dim"]:
        """One vector for each scene.

        Raises:
            ValueError: scenes of another number of concepts, of more values, or of more objects than it was built for.
        """
        trained = self.network.space.sizes
        sizes = items.space.sizes
        if len(sizes) != len(trained) or any(size > most for size, most in zip(sizes, trained, strict=True)):
            raise ValueError(
                f"This model was trained on {'x'.join(map(str, trained))} values and the scenes have "
                f"{'x'.join(map(str, sizes))}; take --scenes {self.grid}."
            )
        device = self.network.log_scale.device
        parts = [self.network.scenes(some[None].to(device))[0].float().cpu() for some in items.values.split(_BLOCK)]
        vectors = torch.cat(parts)
        return torch.nn.functional.normalize(vectors, dim=1) if self.normalize else vectors

    def object_queries(self, objects: Int[Tensor, " object"]) -> Float[Tensor, "object dim"]:
        """Vectors of length one (under cosine) that ask for objects, by their id in the trained space."""
        ids = objects.to(self.network.log_scale.device)[None]
        return self.network.compared(self.network.object_queries(ids))[0].cpu()

    def value_queries(self) -> tuple[Float[Tensor, "value dim"], ...]:
        """Vectors of length one (under cosine) that ask for each value, concept by concept."""
        queries = self.network.compared(self.network.value_queries())[0].cpu()
        return queries.split(list(self.network.space.sizes))

    def fresh(self, seed: int) -> "TrainedTower":
        """The same architecture with weights drawn anew."""
        network = self.network
        drawn = DualEncoder(network.space, network.slots, network.shape, [seed + 1_000_003])
        return replace(self, network=drawn.to(network.log_scale.device), weights=f"fresh weights, seed {seed}")


def reference_folder(name: str) -> Path:
    """Run folder of a trained model that comes with the library: `reference:binds` or `reference:bag`.

    It holds what `colligate train` leaves, less the outcomes of every scene: the weights in half precision, the record
    (with the command that made it, and what other seeds gave), the table and the curve.

    Raises:
        ValueError: no such name.

    Example:
        >>> sorted(path.name for path in reference_folder("bag").glob("*.json"))
        ['figures.json', 'model.json', 'record.json']
    """
    if name not in REFERENCES:
        raise ValueError(f"No reference model is called {name!r}; take {' or '.join(REFERENCES)}.")
    return Path(__file__).parents[1] / "reference" / name


def load(name: str, options: LoadOptions) -> Model:
    """Load `FOLDER`, a run that `colligate train` left.

    Raises:
        FileNotFoundError: the folder holds no checkpoint.
        ValueError: an option that these models don't have, or a checkpoint of another schema.
    """
    if options.layer is not None or options.pooling is not None or options.dtype != "float32":
        raise ValueError("A trained model is read at its output in float32; leave layer, pooling and dtype out.")
    folder = Path(name).expanduser()
    found = load_checkpoint(folder)
    notes = _whole(folder)
    network = found.model.to(options.torch_device)
    towers: Mapping[str, Tower] = {"scene": TrainedTower(network, found.weights, options.normalize)}
    if network.shape.scene.kind == "pictures":
        towers = pair_towers(network, found.weights, unit=options.normalize)
    config = found.facts.get("config", {})
    note = (
        f"Trained from scratch on {100 * config.get('coverage', 0):.0f} % of "
        f"{found.model.space.num_objects:,} objects, "
        f"step {found.facts.get('step')}."
    )
    if tuned := found.facts.get("finetuned"):
        note = (
            f"Fine-tuned from {tuned['from']} on {tuned['objects']} of the objects of {tuned['world']}; kept: "
            f"{tuned['chosen']}."
        )
    return Model(f"run:{name}", towers, ((note,) if config else ()) + notes)


def _whole(folder: Path) -> tuple[str, ...]:
    """Compare every file of the run that a model came from with its hash, and give what is to be doubted of it.

    Raises:
        WorkError: one is damaged.
    """
    return tuple(open_run(folder).doubts) if (folder / "record.json").is_file() else ()
