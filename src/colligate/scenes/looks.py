"""What words look like in a picture: which concept plays which part, and the colour of a word."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from colligate.scenes.space import ConceptSpace, Scenes

Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""
Point = tuple[float, float]
"""A place: right and down in pixels, or x and y on the ground."""

PALETTE: Mapping[str, Color] = {
    "blue": (42, 75, 215),
    "brown": (129, 74, 25),
    "cyan": (41, 208, 208),
    "gray": (87, 87, 87),
    "green": (29, 105, 20),
    "purple": (129, 38, 192),
    "red": (173, 35, 35),
    "yellow": (255, 238, 51),
}
"""CLEVR's colours; any other word is looked up among the CSS colours."""

_NAMES = {
    "color": ("color", "colour"),
    "shape": ("shape",),
    "size": ("size",),
    "material": ("material",),
}
"""Role -> the names of concepts that play it unasked."""
_NEEDED = ("color", "shape")


def roles(space: ConceptSpace, given: Mapping[str, str | None], owner: str) -> dict[str, str | None]:
    """Name of the concept that plays each role, None where a role has none.

    Args:
        space: the concepts.
        given: role -> concept's name, or None to look for it by its usual name.
        owner: what draws ("Canvas"), for the errors.

    Raises:
        ValueError: no concept to show as colour or shape, or a concept that plays no role.

    Example:
        >>> roles(ConceptSpace(colour=2, shape=2), {"color": None, "shape": None, "size": None}, "Canvas")
        {'color': 'colour', 'shape': 'shape', 'size': None}
    """
    found = {role: _concept(space, role, name, owner) for role, name in given.items()}
    for name in space.names:
        if name not in found.values():
            listed = list(given)
            raise ValueError(
                f"A picture can't show the concept {name!r}, only {', '.join(listed[:-1])} and {listed[-1]}; "
                f"say which it is, for example {owner}(color={name!r}), or leave it out."
            )
    return found


def _concept(space: ConceptSpace, role: str, given: str | None, owner: str) -> str | None:
    if given is not None:
        return space.names[space.concept(given)]
    found = [name for name in space.names if name.lower() in _NAMES[role]]
    if len(found) == 1 or (not found and role not in _NEEDED):
        return found[0] if found else None
    raise ValueError(
        f"Pictures need one concept to show as {role}; this space has {', '.join(space.names)}. "
        f'Say which it is, for example {owner}({role}="{space.names[0]}").'
    )


def words_of(space: ConceptSpace, name: str | None) -> tuple[str, ...]:
    """The words of a concept; none for None."""
    return () if name is None else space.words[space.concept(name)]


def set_apart(words: Sequence[str], looks: Sequence[object]) -> None:
    """Make sure that no two words look the same.

    Raises:
        ValueError: two do.
    """
    for i, word in enumerate(words):
        if looks.index(looks[i]) < i:
            raise ValueError(f"{words[looks.index(looks[i])]!r} and {word!r} look the same; give them other looks.")


def color_of(given: str | Color, palette: Mapping[str, str | Color]) -> Color:
    """Red, green and blue of a word or triple: by the palette, CLEVR's, CSS or #rrggbb.

    Raises:
        ValueError: no colour.

    Example:
        >>> color_of("red", {}), color_of("sky", {"sky": "skyblue"})
        ((173, 35, 35), (135, 206, 235))
    """
    look: Any = palette.get(given, PALETTE.get(given, given)) if isinstance(given, str) else given
    if isinstance(look, str):
        from PIL import ImageColor

        try:
            look = ImageColor.getrgb(look.replace(" ", ""))
        except ValueError:
            raise ValueError(
                f"No colour is called {look!r}; use {', '.join(PALETTE)}, a CSS name, #rrggbb, or set `palette`."
            ) from None
    rgb = tuple(int(part) for part in look)
    if len(rgb) != 3 or not all(0 <= part <= 255 for part in rgb):
        raise ValueError(f"A colour is three numbers from 0 to 255; {given!r} is {look!r}.")
    return rgb


def replicates(scenes: Scenes) -> Int[Tensor, " scene"]:
    """Running number of each row among the rows of the same scene.

    Example:
        >>> replicates(ConceptSpace(color=2).scenes([[0], [1], [0]])).tolist()
        [0, 0, 1]
    """
    ids, order = torch.unique(scenes.objects, dim=0, return_inverse=True)[1].sort(stable=True)
    numbers = torch.empty_like(ids)
    numbers[order] = torch.arange(len(ids)) - torch.searchsorted(ids, ids)
    return numbers


def uniforms(seed: int, objects: list[int], replicate: int, *place: int) -> tuple[float, float, float]:
    """Three numbers in [-1, 1) for one object, by hash: no generator, no order of drawing, equal on every machine.

    Args:
        seed: the picture's seed.
        objects: object ids of the scene.
        replicate: running number of the row among equal scenes.
        place: the slot, and the number of the attempt where there are several.
    """
    digest = hashlib.sha256(repr((seed, tuple(objects), replicate, *place)).encode()).digest()
    x, y, z = (int.from_bytes(digest[8 * i : 8 * i + 8], "little") / 2**63 - 1 for i in range(3))
    return x, y, z
