"""Golden worlds: whatever folders of outside values lie beside this checkout, read from their own files alone."""

import csv
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from colligate.embedders.precomputed import read_vectors
from colligate.embeddings import Embeddings
from colligate.probes import Probes
from colligate.scenes.space import ConceptSpace, Scenes

GOLDEN = Path(__file__).parents[2] / ".." / "shared" / "golden"
FOLDERS = sorted(path.parent.name for path in GOLDEN.glob("*/meta.json"))


@dataclass(frozen=True, eq=False)
class GoldenWorld:
    """One folder of vectors, exact values and the authors' values."""

    folder: Path

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder; empty where there is none."""
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    @cached_property
    def meta(self) -> dict[str, Any]:
        return self.json("meta.json")

    @cached_property
    def exact(self) -> dict[str, Any]:
        return self.json("exact.json")

    @cached_property
    def authors(self) -> dict[str, Any]:
        return self.json("authors.json")

    @cached_property
    def space(self) -> ConceptSpace:
        return ConceptSpace(dict(zip(self.meta["concept_names"], self.meta["words"], strict=True)))

    @cached_property
    def all(self) -> Embeddings:
        """Scenes and, where there are any, singles."""
        return read_vectors(self.folder / "vectors.safetensors", self.folder / "scenes.csv", space=self.space)

    @cached_property
    def embeddings(self) -> Embeddings:
        return self.all[self.all.scenes.counts > 1]

    @cached_property
    def singles(self) -> Embeddings | None:
        alone = self.all.scenes.counts == 1
        return self.all[alone] if alone.any() else None

    @property
    def scenes(self) -> Scenes:
        return self.embeddings.scenes

    @cached_property
    def mean(self) -> Float[Tensor, " dim"]:
        return self.embeddings.vectors.double().mean(0)

    @property
    def modes(self) -> list[str]:
        """The ways of editing that the authors' lists hold."""
        return sorted(p.stem.removeprefix("interventions_") for p in self.folder.glob("interventions_*.csv"))

    def edit_list(self, mode: str) -> Path:
        return self.folder / f"interventions_{mode}.csv"

    def column(self, mode: str, name: str) -> Tensor:
        with self.edit_list(mode).open(newline="") as file:
            return torch.tensor([int(row[name]) for row in csv.DictReader(file)])

    @cached_property
    def probes(self) -> Probes:
        """The authors' trained probes; their object rows are in order of first appearance."""
        with np.load(self.folder / "probes.npz") as file:
            arrays = {name: torch.from_numpy(file[name]) for name in file.files}
        order = self.space.object_ids(arrays["object_order"])
        objects = torch.zeros(self.space.num_objects, arrays["object"].shape[1])
        objects[order] = arrays["object"]
        concepts = tuple(arrays[f"concept{c}"] for c in range(self.space.num_concepts))
        known = torch.isin(torch.arange(self.space.num_objects), order)
        return Probes(self.space, concepts, objects, {}, {}, {}, known)

    @cached_property
    def train_rows(self) -> list[int]:
        with np.load(self.folder / "probes.npz") as file:
            return file["train_rows"].tolist()


@pytest.fixture(
    scope="session",
    params=FOLDERS or [pytest.param("", marks=pytest.mark.skip(reason="../shared/golden is not beside this checkout"))],
)
def golden(request: pytest.FixtureRequest) -> GoldenWorld:
    """Each world in turn."""
    return GoldenWorld(GOLDEN / request.param)
