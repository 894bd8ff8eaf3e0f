"""Embedders: anything that turns captions, pictures or scenes into vectors, and the names they load by.

`FORMS` lists the names; `colligate embedders` prints them, with every oracle's answer.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from colligate.choices import EMBEDDERS

if TYPE_CHECKING:
    from colligate.embedders.towers import LoadOptions, Model

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

ORACLES: Mapping[str, str] = {
    "no-binding": "sum over objects and concepts of u[value]: names every value, binds nothing",
    "object-product": "sum over objects of the product of u[value]: binds by a rule that carries over to new objects",
    "object-table": "sum over objects of w[object]: binds by rote",
    "scene-table": "t[scene]: memorised",
    "pair-aligned": "two towers, scenes and captions, that bind by one rule",
    "pair-rotated": "the same, the texts rotated: no match until a linear map",
    "pair-mismatched": "the same values, but each tower binds by a rule of its own",
    "pair-bag": "scenes bind, texts are a bag of concepts",
    "pair-rote": "scenes bind by rote, texts by a rule",
}
"""Name of an oracle -> its formula, and what it knows."""


def load_model(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "float32",
    layer: int | None = None,
    pooling: str | None = None,
    normalize: bool = False,
    offline: bool = True,
) -> "Model":
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
    from colligate.embedders.own import from_factory
    from colligate.embedders.towers import LoadOptions

    options = LoadOptions(
        device=device, dtype=dtype, layer=layer, pooling=pooling, normalize=normalize, offline=offline
    )
    prefix, colon, rest = name.partition(":")
    if prefix in EMBEDDERS and rest:
        load = cast("Callable[[str, LoadOptions], Model]", importlib.import_module(EMBEDDERS[prefix]).load)
        return load(rest, options)
    if not (colon and prefix and rest) or prefix in EMBEDDERS:
        known = ", ".join(f"{prefix}:..." for prefix in EMBEDDERS)
        raise ValueError(
            f"{name!r} names no embedder; write one of {known} or package.module:factory (colligate embedders lists "
            "them)."
        )
    if layer is not None or pooling is not None or normalize:
        raise ValueError(f"{name} is your own embedder: choose its layer, pooling and normalisation in the factory.")
    return from_factory(name)
