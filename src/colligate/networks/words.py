"""An encoder of captions: a small transformer over words, stacked, with its vocabulary."""

import re
from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from colligate.networks.encoders import Encoder, EncoderShape, sinusoids
from colligate.networks.stacked import Affine, Block, Table, generators
from colligate.scenes.space import ConceptSpace

OTHERS = ("a", "an", "and", "left", "of", "photo", "picture", "right", "something", "with")
"""Words besides those for values."""
SCENES = ("{objects}", "a photo of {objects}", "a picture of {objects}", "a picture with {objects}")
"""Wordings of a scene; an object is "a" and its values' words, two are joined by "and"."""
VALUES = ("a photo of something {value}", "something {value}", "a picture of something {value}")
"""Wordings of a value alone."""
LONGEST = 64
"""Most words of a text."""
_BLOCK = 512
_WORD = re.compile(r"\w+")


class CaptionEncoder(Encoder):
    """A pre-norm transformer over the words of a text, read at a last token of its own.

    A word has a vector and a sinusoidal position. `encode` says scenes in the first wording; `encode_words` takes any
    texts, as `tokenize` or `say` gives them.

    Args:
        space: concepts whose values are single words.
        slots: not used: any number of objects can be said.
        shape: sizes.
        seeds: one for each member.

    Raises:
        ValueError: a value of several words, or one that stands for two values.

    Example:
        >>> space = ConceptSpace(color=["red", "blue"], shape=["square", "circle"])
        >>> encoder = CaptionEncoder(space, 1, EncoderShape(kind="captions", width=16, heads=2, dim=8), seeds=[0])
        >>> encoder.encode(torch.tensor([[[[0, 1], [1, 0]]]])).shape
        torch.Size([1, 1, 8])
        >>> encoder.text(encoder.say(torch.tensor([[[[0, 1], [1, 0]]]]), 1)[0, 0])
        'a photo of a red circle and a blue square'
    """

    def __init__(self, space: ConceptSpace, slots: int, shape: EncoderShape, seeds: Sequence[int]) -> None:
        super().__init__(space, slots, shape.dim)
        values = [word.lower() for words in space.words for word in words]
        for word in values:
            if not _WORD.fullmatch(word) or values.count(word) > 1 or word in OTHERS:
                raise ValueError(
                    f"Captions are read word by word, so each value needs one word of its own; {word!r} isn't one."
                )
        self.words = (*values, *OTHERS)
        self.width = shape.width
        members = generators(seeds)
        self.table = Table(members, len(self.words) + 1, shape.width, shape.scale)
        self.blocks = nn.ModuleList(
            Block(members, shape.width, shape.heads, shape.inner, shape.layers, shape.activation)
            for _ in range(shape.layers)
        )
        self.head = Affine(members, shape.width, shape.dim)
        self.register_buffer("positions", sinusoids(LONGEST + 1, shape.width), persistent=False)
        self.positions: Tensor

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def tokenize(self, text: str) -> list[int]:
        """Numbers of a text's words; case and punctuation are not read.

        Raises:
            ValueError: no word, too many, or one that this encoder never learned.
        """
        words = _WORD.findall(text.lower())
        unknown = [word for word in words if word not in self.numbers]
        if unknown:
            raise ValueError(
                f"This text encoder never learned {unknown[0]!r} (in {text[:60]!r}); it knows {', '.join(OTHERS)} and "
                f"the words of {' and '.join(self.space.names)}."
            )
        if not 1 <= len(words) <= LONGEST:
            raise ValueError(f"This text encoder reads 1 to {LONGEST} words; {text[:60]!r} has {len(words)}.")
        return [self.numbers[word] for word in words]

    def text(self, words: Int[Tensor, " token"]) -> str:
        """The text of some word numbers."""
        return " ".join(self.words[number] for number in words.tolist())

    def say(
        self, values: Int[Tensor, "member item slot concept"], wording: int = 0
    ) -> Int[Tensor, "member item token"]:
        """Word numbers of scenes, all of one number of objects, in one of the wordings `SCENES`."""
        head = values.shape[:2]
        a, joined = (self._fixed(word, head, values.device) for word in ("a", "and"))
        before, after = SCENES[wording].split("{objects}")
        parts = [self._fixed(word, head, values.device) for word in before.split()]
        for slot in range(values.shape[2]):
            parts += [joined] * (slot > 0) + [a, values[:, :, slot] + self.starts]
        return torch.cat([*parts, *(self._fixed(word, head, values.device) for word in after.split())], 2)

    def say_places(
        self, values: Int[Tensor, "member item 2 concept"], leftmost: Bool[Tensor, "member item"]
    ) -> Int[Tensor, "member item token"]:
        """Word numbers of "a ... left of a ...", or "right of" where the first one isn't the leftmost."""
        head = values.shape[:2]
        a, of, left, right = (self._fixed(word, head, values.device) for word in ("a", "of", "left", "right"))
        first, second = (values + self.starts).unbind(2)
        return torch.cat([a, first, torch.where(leftmost[..., None], left, right), of, a, second], 2)

    def say_values(self, members: int, wording: int = 0) -> Int[Tensor, "member value token"]:
        """Word numbers that ask for each value, concept by concept, in one of the wordings `VALUES`."""
        device = self.starts.device
        values = torch.arange(sum(self.space.sizes), device=device).expand(members, -1)[..., None]
        before, after = VALUES[wording].split("{value}")
        head = values.shape[:2]
        left, right = ([self._fixed(word, head, device) for word in part.split()] for part in (before, after))
        return torch.cat([*left, values, *right], 2)

    def _fixed(self, word: str, head: Sequence[int], device: torch.device) -> Int[Tensor, "member item 1"]:
        return torch.full((*head, 1), self.numbers[word], device=device)

    def encode(self, values: Int[Tensor, "member item slot concept"]) -> Float[Tensor, "member item dim"]:
        """A vector for the caption of each scene."""
        return self.encode_words(self.say(values))

    def encode_values(self) -> Float[Tensor, "member query dim"]:
        """A vector for the text that asks for each value."""
        return self.encode_words(self.say_values(len(self.table.weight)))

    def encode_words(self, words: Int[Tensor, "member item token"]) -> Float[Tensor, "member item dim"]:
        """A vector for each text; all have as many words."""
        last = words.new_full((*words.shape[:2], 1), len(self.words))
        tokens = self.table(torch.cat([words, last], 2)) + self.positions[: words.shape[2] + 1]
        for i, block in enumerate(self.blocks):
            tokens = block(tokens, None, last=i == len(self.blocks) - 1)
        return self.head(nn.functional.layer_norm(tokens[:, :, -1], (self.width,)))

    def encode_texts(self, texts: Sequence[Sequence[int]]) -> Float[Tensor, "member text dim"]:
        """A vector for each text, given as `tokenize` gives it; texts of one length are read together."""
        lengths = torch.tensor([len(text) for text in texts])
        found, order = list[Tensor](), list[Tensor]()
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero()[:, 0]
            words = torch.tensor([texts[row] for row in rows.tolist()], device=self.starts.device)
            members = words.expand(len(self.table.weight), -1, -1)
            found += [self.encode_words(some) for some in members.split(_BLOCK, dim=1)]
            order.append(rows)
        return torch.cat(found, 1)[:, torch.cat(order).argsort().to(self.starts.device)]
