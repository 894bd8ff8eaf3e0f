"""Numbers printed in the paper, for orientation beside ours.

The full text wasn't available: they come from written summaries of it, and each says how many agree. They are shown
as reference values and never enter a result or a verdict.

Paper: arXiv:2605.31503, Tables 2, 3 and 5.
"""

from typing import Literal

World = Literal["text", "clevr", "clevr2d", "pug_spare"]

NOTE = (
    "Paper: CLIP, as reported for the closest data set ({world}); from written summaries of arXiv:2605.31503, for "
    "orientation only. Another model, other scenes and protocol: not a result of this study."
)
WORLDS: dict[str, str] = {"text": "text, 20×20", "clevr": "CLEVR", "clevr2d": "CLEVR-2D", "pug_spare": "PUG:SPARE"}

LAYOUT: dict[str, dict[str, str]] = {
    "text": {"object.avg": "R² 0.90", "object.avg+pos": "R² 0.92"},
    "clevr": {"object.avg": "R² 0.78", "object.avg+pos": "R² 0.83"},
    "clevr2d": {"object.avg": "R² 0.78", "object.avg+pos": "R² 0.83"},
    "pug_spare": {"object.avg": "R² 0.75", "object.avg+pos": "R² 0.84"},
}
"""Table 2. Two summaries agree on these; one names CLEVR, the other CLEVR-2D."""

EDITS: dict[str, dict[str, str]] = {
    "text": {"single": "0.96"},
    "clevr": {"avg": "1.00", "avg+pos": "1.00", "single": "0.97"},
    "clevr2d": {"avg": "0.99", "avg+pos": "0.99", "single": "0.97"},
    "pug_spare": {"avg": "0.86", "avg+pos": "0.94"},
}
"""Table 3, retrieval. One summary."""

REMOVAL: dict[str, dict[str, str]] = {
    "text": {
        "original": "1.00 / 1.00",
        "concept": "0.06 / 0.99",
        "object": "0.05 / 0.04",
        "concept.permuted": "0.92 / 0.99",
        "object.permuted": "0.96 / 1.00",
    },
    "picture": {
        "original": "0.94 / 0.96",
        "concept": "0.05 / 0.85",
        "object": "0.02 / 0.01",
        "concept.permuted": "0.99 / 0.97",
        "object.permuted": "0.86 / 0.92",
    },
}
"""Table 5, re-trained probes, values / objects. Two summaries agree on the first two rows; one gives the others."""


def closest(kind: str, world: str) -> str:
    """The paper's data set that a study is nearest to.

    Example:
        >>> closest("text", "clevr"), closest("picture", "clevr2d"), closest("picture", "mine")
        ('text', 'clevr2d', 'clevr')
    """
    return "text" if kind != "picture" else world if world in WORLDS and world != "text" else "clevr"
