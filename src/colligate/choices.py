"""Choices that have names: what configs may say, without the libraries that carry them out."""

from typing import Literal

Over = Literal["values", "objects"]
"""What an interval speaks of: other values (and the objects made of them), or other objects of the same values."""
EncoderKind = Literal[
    "object-tokens",
    "grouped-objects",
    "value-tokens",
    "relative-tokens",
    "grouped-tokens",
    "causal-tokens",
    "product",
    "bag",
]
"""What reads the values.

object-tokens    transformer over one token an object (its values' vectors summed) and a read-out token; no positions
grouped-objects  the same, with the first of several layers kept within an object: nothing else is looked at
value-tokens     transformer over the paper's sequence: a token for each value, markers, sinusoidal positions
relative-tokens  the same sequence, without positions: attention depends on how far apart two tokens stand
grouped-tokens   value-tokens, with the first of several layers' attention kept within an object
causal-tokens    value-tokens, each token seeing only those before it
product          a product of one vector for each value, summed over objects: binds by construction
bag              a sum of one vector for each value, through an MLP: can't bind
"""
Activation = Literal["gelu", "gated"]
"""What stands between the two maps of a layer."""
Similarity = Literal["cosine", "dot"]
"""How a scene's vector is compared with a query's."""
LossKind = Literal["scene-to-query", "query-to-scene", "both", "sigmoid"]
"""Which way the softmax runs, or no softmax: each pair on its own.

scene-to-query   among the queries, those true of the scene; the paper's code
query-to-scene   among the scenes, those that hold the query
both             the mean of the two, as CLIP
sigmoid          each pair of scene and query judged alone, as SigLIP
"""
OptimizerKind = Literal["muon", "adamw"]
"""What steps the matrices of layers; AdamW steps everything else."""
PenaltyKind = Literal["none", "additive", "object-products"]
"""The simple family. `additive` can't bind, so pulling towards it should hurt: the control."""
VALUE_QUERIES = ("a photo of something {value}",)
"""Texts that ask for one value, unless others are given."""
PICKLES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npz")
"""Suffixes of files that are, or may hold, pickles; none is opened."""
EMBEDDERS = {
    "sbert": "colligate.embedders.sentence_transformers",
    "hf": "colligate.embedders.transformers",
    "open_clip": "colligate.embedders.open_clip",
    "oracle": "colligate.embedders.oracles",
    "repaired": "colligate.embedders.repaired",
    "run": "colligate.embedders.trained",
    "reference": "colligate.embedders.references",
}
"""Prefix of an embedder's name -> the module whose `load(rest, options)` reads it; imported when first used."""
