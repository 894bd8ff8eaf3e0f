"""What networks measure before they have learned anything: ten draws of the weights of each of three text towers.

One draw says little of "random weights". Each architecture keeps its tokenizer and pooling; every weight is drawn anew.
No weights are downloaded: the tokenizers come with the packages that the extras `sbert` and `open-clip` install.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from measuring import Stopwatch, say
from torch import Tensor

from colligate.embedders import load_model
from colligate.embedders.controls import random_init
from colligate.embedders.embedding import embed
from colligate.engine import fitting_threads
from colligate.geometry.editing import edit_rows
from colligate.geometry.measurements import decomposition_rows, information_rows, probe_rows
from colligate.geometry.subject import Settings, Subject
from colligate.scenes.splits import ByScene
from colligate.scenes.worlds import load_world

LONGEST = 16
"""Tokens of the longest caption that CLIP's tower is given."""
SHOWN = {
    "R², objects, avg": ("r2.object.avg", "all"),
    "R², objects, avg+pos": ("r2.object.avg+pos", "all"),
    "retrieval, avg+pos": ("retrieval.object.avg+pos", "all"),
    "probing, values": ("probe.concept", "test"),
    "probing, objects": ("probe.object", "test"),
    "probing, objects against their swap": ("probe.object.swap", "test"),
    "edits retrieve, avg": ("edit.retrieval.avg", "all"),
    "edits retrieve, avg+pos": ("edit.retrieval.avg+pos", "all"),
    "edits retrieve, single objects": ("edit.retrieval.single", "all"),
    "binding information, linear": ("information.linear.ratio", "test"),
}


@dataclass(frozen=True, eq=False)
class Fresh:
    """A network with drawn weights that reads captions."""

    read: Callable[[Sequence[str]], Tensor]
    kind: str = "text"

    def embed(self, items: Sequence[str]) -> Tensor:
        """The vectors of captions."""
        with torch.inference_mode():
            return self.read(items).float()


def minilm(seed: int) -> Any:
    """MiniLM's architecture: 6 layers of width 384, the mean of the tokens."""
    fresh: Any = random_init(load_model("sbert:all-MiniLM-L6-v2"), seed)
    return fresh.towers["text"]


def small(seed: int) -> Any:
    """A network of the same family with 2 layers of width 128 that reads its first token."""
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel

    module: Any = load_model("sbert:all-MiniLM-L6-v2").towers["text"]
    pipeline: SentenceTransformer = module.reader.network.module
    tokenizer: Any = pipeline.tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # noqa: TID251 - the library draws from the global generator
        sizes: dict[str, Any] = {
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 512,
        }
        network = BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).eval()

    def read(items: Sequence[str]) -> Tensor:
        batch = tokenizer(list(items), padding=True, return_tensors="pt")
        return network(**batch).last_hidden_state[:, 0]

    return Fresh(read)


def clip(seed: int) -> Any:
    """CLIP's text tower (ViT-B-32): 12 layers of width 512 that look back only, the vector of the last token."""
    import open_clip

    with torch.random.fork_rng():
        torch.manual_seed(seed)  # noqa: TID251 - the library draws from the global generator
        network: Any = open_clip.create_model("ViT-B-32", pretrained=None).eval().requires_grad_(False)
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    # The tower looks back only and is read at the caption's last token: what stands behind it changes nothing.
    network.positional_embedding = torch.nn.Parameter(network.positional_embedding[:LONGEST], requires_grad=False)
    network.attn_mask = network.attn_mask[:LONGEST, :LONGEST]

    def read(items: Sequence[str]) -> Tensor:
        tokens = tokenizer(list(items))
        if tokens[:, LONGEST:].any():
            raise ValueError(f"A caption is longer than {LONGEST} tokens.")
        return network.encode_text(tokens[:, :LONGEST])

    return Fresh(read)


ARCHITECTURES: dict[str, Callable[[int], Any]] = {
    "MiniLM": minilm, "BERT, 2 layers, first token": small, "CLIP text tower": clip,
}  # fmt: skip


def measure(make: Callable[[int], Any], seed: int, scenes: str) -> dict[str, float]:
    """The numbers of one draw."""
    embeddings = embed(make(seed), load_world(scenes), batch_size=256)
    subject = Subject.of(embeddings, ByScene(), Settings())
    ways = ("avg", "avg+pos", "single")
    rows = [
        *probe_rows(subject), *decomposition_rows(subject, ("object.avg", "object.avg+pos")),
        *edit_rows(subject, ways=ways, brief=True), *information_rows(subject),
    ]  # fmt: skip
    values = {(row.id, row.on): row.value for row in rows}
    return {name: float("nan") if values[key] is None else float(values[key] or 0) for name, key in SHOWN.items()}


def main() -> None:
    """Print one table: medians and ranges over draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--scenes", default="text8x8")
    parser.add_argument("--only", nargs="+", choices=tuple(ARCHITECTURES), default=list(ARCHITECTURES))
    asked = parser.parse_args()
    columns = list[list[str]]()
    for name in asked.only:
        found = list[dict[str, float]]()
        for seed in range(asked.draws):
            with Stopwatch() as watch, fitting_threads():
                found.append(measure(ARCHITECTURES[name], seed, asked.scenes))
            say(f"{name}, seed {seed}: {watch.cpu:.0f} s cpu, {found[-1]}")
        told = {key: sorted(one[key] for one in found) for key in SHOWN}
        columns.append([f"{median(all_):.2f} ({all_[0]:.2f} to {all_[-1]:.2f})" for all_ in told.values()])
    print(f"| median (range) of {asked.draws} draws | " + " | ".join(asked.only) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for i, name in enumerate(SHOWN):
        print(f"| {name} | " + " | ".join(column[i] for column in columns) + " |")


if __name__ == "__main__":
    main()
