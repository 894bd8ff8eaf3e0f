"""A two-tower model after its repair: frozen, with a fitted map behind its text tower, or with weights of its own.

repaired:FOLDER    what `colligate repair` wrote
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from colligate.embedders import trained
from colligate.embedders.towers import LoadOptions, Model, Tower
from colligate.networks.maps import LoadedMap, load_map
from colligate.records import open_run
from colligate.scenes.space import EMPTY, ConceptSpace


def parse_captions(texts: Sequence[str], space: ConceptSpace) -> Int[Tensor, "text slot concept"]:
    """Find the values that captions name, object by object.

    Words are looked for from left to right, longer ones first; a value of a concept that the object at hand already has
    begins the next object. "something red" names one value of one object.

    Raises:
        ValueError: a text names no value, or two concepts share a word.

    Example:
        >>> space = ConceptSpace(color=["red", "blue"], shape=["cube", "deer stag"])
        >>> parse_captions(["a red cube and a blue deer stag", "something blue"], space).tolist()
        [[[0, 0], [1, 1]], [[1, -1], [-1, -1]]]
    """
    places = [(w.lower(), c, v) for c, words in enumerate(space.words) for v, w in enumerate(words)]
    known = {word: (concept, value) for word, concept, value in places}
    if len(known) < len(places):
        raise ValueError("Two values share a word, so captions can't be parsed into values; set their words apart.")
    ordered = sorted(known, key=len, reverse=True)
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, ordered)) + r")(?!\w)")
    parsed = [_objects(text, pattern, known, space.num_concepts) for text in texts]
    values = torch.full((len(texts), max(map(len, parsed), default=1), space.num_concepts), EMPTY)
    for row, objects in enumerate(parsed):
        values[row, : len(objects)] = torch.tensor(objects)
    return values


def _objects(
    text: str, pattern: "re.Pattern[str]", known: Mapping[str, tuple[int, int]], concepts: int
) -> list[list[int]]:
    found = [[EMPTY] * concepts]
    for word in pattern.findall(text.lower()):
        concept, value = known[word]
        if found[-1][concept] != EMPTY:
            found.append([EMPTY] * concepts)
        found[-1][concept] = value
    if found == [[EMPTY] * concepts]:
        raise ValueError(f"The text {text[:60]!r} names no value that the product head was fitted on.")
    return found


@dataclass(frozen=True, eq=False)
class RepairedTower:
    """The text tower of a model, followed by a map into the space of its other tower.

    Attributes:
        tower: the text tower as it was.
        loaded: the map.
    """

    tower: Tower
    loaded: LoadedMap

    @property
    def kind(self) -> Literal["text"]:
        """Repairs are on the text side."""
        return "text"

    @property
    def fingerprint(self) -> Mapping[str, object] | None:
        """The tower's own and the map's."""
        own = self.tower.fingerprint
        if own is None:
            return None
        return {**own, "repair": self.loaded.shape.kind, "repair_weights": self.loaded.sha256}

    @property
    def device(self) -> str:
        """Where the tower runs."""
        return str(getattr(self.tower, "device", "cpu"))

    def embed(self, items: Sequence[str]) -> Float[Tensor, "item dim"]:
        """One unit vector for each text.

        Raises:
            ValueError: the map reads values and a text names none.
        """
        if self.loaded.map.reads == "values":
            values = parse_captions(items, self.loaded.space)
            vectors = torch.zeros(len(items), self.loaded.shape.dim)
        else:
            vectors = normalize(torch.as_tensor(self.tower.embed(items)).detach().cpu().float(), dim=1)
            values = torch.full((len(items), 1, self.loaded.space.num_concepts), EMPTY)
        with torch.no_grad():
            return normalize(self.loaded.map(vectors, values), dim=1)


def load(name: str, options: LoadOptions) -> Model:
    """Load the model that a repair belongs to, with its text tower repaired, or the network that fine-tuning left.

    Raises:
        FileNotFoundError: the folder holds no map, or the model's weights aren't on this machine.
        ValueError: another layer, pooling or normalisation than it was fitted with was asked for, the model has no text
            tower, or its text tower isn't the one that the map was fitted on.
    """
    from colligate.embedders import load_model

    folder = Path(name).expanduser()
    if (folder / "model.json").is_file() and not (folder / "repair.json").is_file():
        return trained.load(name, options)
    loaded = load_map(folder)
    if options.layer is not None or options.pooling is not None or options.normalize:
        raise ValueError("A repair fits the vectors that it was made for; leave layer, pooling and normalize out.")
    told: Mapping[str, Any] = loaded.facts
    read = told.get("read", {})
    model = load_model(
        told["embedder"], device=options.device, dtype=options.dtype, layer=read.get("layer"),
        pooling=read.get("pooling"), normalize=read.get("normalize", False), offline=options.offline,
    )  # fmt: skip
    if "text" not in model.towers:
        raise ValueError(f"{told['embedder']} has no text tower, so {name} can't be its repair; name the right folder.")
    fitted_on, tower = told.get("tower"), model.towers["text"]
    if fitted_on is not None and tower.fingerprint is not None and not _alike(tower.fingerprint, fitted_on):
        raise ValueError(
            f"The text tower of {told['embedder']} is another than the one that {name} was fitted on; repair it again."
        )
    how = {"vectors": "vectors", "values": "values parsed from captions; the text tower itself is not read"}
    doubts = open_run(folder).doubts if (folder / "record.json").is_file() else []
    note = f"Texts go through a {loaded.shape.kind} map that reads {how[loaded.map.reads]}."
    return Model(
        f"repaired:{name}", {**model.towers, "text": RepairedTower(tower, loaded)}, (*model.notes, note, *doubts)
    )


def _alike(now: Mapping[str, object], then: Mapping[str, object]) -> bool:
    """Whether two fingerprints are of one tower; its precision may differ."""
    told = (json.dumps({k: v for k, v in facts.items() if k != "dtype"}, sort_keys=True) for facts in (now, then))
    return len(set(told)) == 1
