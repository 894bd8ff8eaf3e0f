"""Items that a tower can't read: told by their rows, so that a caller may leave them out."""

from collections.abc import Mapping, Sequence
from typing import Any

NAMED = 3
"""Items that a message names each by itself; of the others there is the count."""


class UnreadableItemsError(ValueError):
    """Some items can't be read as they are; the others can.

    Attributes:
        reasons: row of an item (from 0; messages count from 1) -> why, such as "takes 82 tokens and this tower reads
            77". Rows are places among the items that were given, or the rows of a world that hold them.
        captions: row of an item -> its text.

    Example:
        >>> str(UnreadableItemsError({1: "takes 82 tokens and this tower reads 77"}, {1: "a red cube ..."}))
        "Caption 2 takes 82 tokens and this tower reads 77 ('a red cube ...'); change it, or leave it out."
    """

    def __init__(self, reasons: Mapping[int, str], captions: Mapping[int, str]) -> None:
        self.reasons, self.captions = dict(sorted(reasons.items())), dict(captions)
        told = [f"{row + 1} {why} ({_short(self.captions[row])})" for row, why in list(self.reasons.items())[:NAMED]]
        more = f"; and {len(self.reasons) - NAMED} more" if len(self.reasons) > NAMED else ""
        which = "it" if len(self.reasons) == 1 else "them"
        super().__init__(f"Caption {'; '.join(told)}{more}; change {which}, or leave {which} out.")

    def at(self, rows: Sequence[int]) -> "UnreadableItemsError":
        """The same, each item by the row that stands at its place."""
        return UnreadableItemsError(
            {rows[place]: why for place, why in self.reasons.items()},
            {rows[place]: text for place, text in self.captions.items()},
        )


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


def outside(ids: Sequence[Sequence[int]], known: int, tokenizer: Any) -> dict[int, str]:
    """Captions with a token that the network has no vector for.

    Args:
        ids: the tokens of each caption.
        known: how many tokens the network has a vector for.
        tokenizer: that names a token by its id.

    Returns:
        Place of a caption -> why it can't be read.
    """
    found = dict[int, str]()
    for i, each in enumerate(ids):
        if each and max(each) >= known:
            name = tokenizer.convert_ids_to_tokens([max(each)])[0]
            found[i] = f"holds the token {name!r} (id {max(each)}), and the network knows {known} tokens"
    return found
