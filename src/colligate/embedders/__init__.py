"""Embedders: anything that turns captions, pictures or scenes into vectors, and the names they load by.

`FORMS` lists the names; `colligate embedders` prints them, with every oracle's answer.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import cast

from colligate.embedders.controls import NoControl as NoControl
from colligate.embedders.controls import random_init as random_init
from colligate.embedders.embedding import checked as checked
from colligate.embedders.embedding import embed as embed
from colligate.embedders.embedding import embed_items as embed_items
from colligate.embedders.embedding import embed_layers as embed_layers
from colligate.embedders.embedding import embed_tokens as embed_tokens
from colligate.embedders.inspection import Finding as Finding
from colligate.embedders.inspection import check_model as check_model
from colligate.embedders.oracles import Oracle as Oracle
from colligate.embedders.own import FunctionTower as FunctionTower
from colligate.embedders.own import as_model as as_model
from colligate.embedders.own import from_factory
from colligate.embedders.towers import KINDS as KINDS
from colligate.embedders.towers import LoadOptions as LoadOptions
from colligate.embedders.towers import Model as Model
from colligate.embedders.towers import NetworkTower as NetworkTower
from colligate.embedders.towers import Tower as Tower
from colligate.embedders.unreadable import UnreadableItemsError as UnreadableItemsError

PREFIXES = {
    "sbert": "colligate.embedders.sentence_transformers",
    "hf": "colligate.embedders.transformers",
    "open_clip": "colligate.embedders.open_clip",
    "oracle": "colligate.embedders.oracles",
    "repaired": "colligate.embedders.repaired",
    "run": "colligate.embedders.trained",
    "reference": "colligate.embedders.references",
}
"""Prefix of a name -> the module whose `load(rest, options)` reads it; imported when first used."""


FORMS: Mapping[str, str] = {
    "sbert:all-MiniLM-L6-v2": "a sentence embedder: the packaged MiniLM, a hub id or a folder",
    "hf:openai/clip-vit-base-patch32": "CLIP, SigLIP, DINOv2 through transformers: a hub id or a folder",
    "open_clip:ViT-B-32/TAG": "OpenCLIP: a pretrained tag, a checkpoint file or a folder",
    "run:runs/train-0123456789": "a model that colligate train made",
    "repaired:runs/repair-0123456789": "a two-tower model with the repair that colligate repair wrote",
    "reference:binds": "a trained model that comes with the library and binds; reference:bag is one that can't",
    "oracle:NAME": "an embedder whose answer is known; oracle:NAME:DIM sets its width, oracle:NAME?dim=64&seed=3 both",
    "package.module:factory": "your own: a function that gives a tower, a model or a dict of towers by kind",
}
"""Name of an embedder, or how it is made -> what it loads."""


def load_model(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "float32",
    layer: int | None = None,
    pooling: str | None = None,
    normalize: bool = False,
    offline: bool = True,
) -> Model:
    """Load an embedder by its name.

    Args:
        name: one of `FORMS`.
        device: auto (a GPU if there is one), cpu, cuda, mps.
        dtype: precision of the network.
        layer: layer to read, 0 for the input embeddings, negative from the end; None for the model's own output.
        pooling: how tokens become one vector; None for the model's own way; `picture=cls,text=last` for each tower.
        normalize: divide every vector by its length; raw vectors are the default.
        offline: use only what is on this machine; False lets model libraries download.

    Raises:
        ValueError: the name, layer, pooling, dtype or device does not exist.
        FileNotFoundError: the weights are not on this machine; the message says what to fetch and where to put it.
        ImportError: a library is missing; the message says which extra to install.
        WorkError: a factory of the user's raised; the message says what, and in which line.

    Example:
        >>> load_model("oracle:no-binding:64").towers["scene"].dim
        64
    """
    options = LoadOptions(
        device=device, dtype=dtype, layer=layer, pooling=pooling, normalize=normalize, offline=offline
    )
    prefix, colon, rest = name.partition(":")
    if prefix in PREFIXES and rest:
        load = cast("Callable[[str, LoadOptions], Model]", importlib.import_module(PREFIXES[prefix]).load)
        return load(rest, options)
    if not (colon and prefix and rest) or prefix in PREFIXES:
        known = ", ".join(f"{prefix}:..." for prefix in PREFIXES)
        raise ValueError(
            f"{name!r} names no embedder; write one of {known} or package.module:factory (colligate embedders lists "
            "them)."
        )
    if layer is not None or pooling is not None or normalize:
        raise ValueError(f"{name} is your own embedder: choose its layer, pooling and normalisation in the factory.")
    return from_factory(name)
