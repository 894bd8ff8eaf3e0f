"""A whole study of 4,096 scenes whose vectors are in memory: every measurement of question 1, with intervals."""

from collections.abc import Iterator

import torch
from measuring import Line, Stopwatch, say
from vectors import grid, sentence_like

from colligate.embeddings import Embeddings
from colligate.geometry.subject import Settings, Subject
from colligate.scenes.space import Scenes
from colligate.scenes.splits import ByScene
from colligate.verbs.battery import BATTERIES


def measure(*, quick: bool) -> Iterator[Line]:
    """The table's lines."""
    size = 4 if quick else 8
    space = grid(size, size)
    together = Scenes.join([space.all_scenes(slots=2), space.all_scenes(slots=1)])
    embeddings: Embeddings = sentence_like(together, 384)
    subject = Subject.of(embeddings, ByScene(), Settings())
    total, parts = Stopwatch(), list[str]()
    for name, battery in BATTERIES.items():
        if name == "complexity":  # question 2 has a benchmark of its own
            continue
        with Stopwatch() as watch:
            rows = battery(subject)
        total = Stopwatch(total.wall + watch.wall, total.cpu + watch.cpu)
        parts.append(f"{name} {watch.wall:.1f} s ({len(rows)} rows)")
        say(f"  {parts[-1]}")
    threads = torch.get_num_threads()
    yield Line(
        f"study, {len(subject.embeddings):,} x {embeddings.dim}, all measurements of question 1 with intervals", total,
        target="< 60 s", note=", ".join(parts) + f"; {threads} threads",
    )  # fmt: skip
