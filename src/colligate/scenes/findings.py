"""What a world holds, what it lacks for a balanced design, and how it can be divided: in sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import torch

from colligate.scenes.files import check_files, unlisted
from colligate.scenes.space import Scenes
from colligate.scenes.splits import ByObject, ByScene, BySwaps, ByValuePair, Given, SplitRule
from colligate.scenes.worlds import World

_MOST = 50_000
"""Rows up to which divisions are tried out."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was understood of a world; every field holds sentences.

    Attributes:
        scenes: how many there are, with how many objects, and what shows them.
        concepts: each concept's values, and how often they occur.
        missing: what is missing for a balanced design; empty where nothing is.
        splits: which divisions are possible, and why others are not.
        pictures: what was found in the files of pictures.
        notes: what was noted when the world was read.
    """

    scenes: tuple[str, ...]
    concepts: tuple[str, ...]
    missing: tuple[str, ...]
    splits: tuple[str, ...]
    pictures: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """All of them, in the order of reading."""
        missing = self.missing or ("Nothing is missing for a balanced design.",)
        notes = (f"Note: {note}" for note in self.notes)
        return (*self.scenes, *self.concepts, *notes, *missing, *self.splits, *self.pictures)


def understand(world: World, *, open_pictures: bool = True) -> Findings:
    """Say what a world holds, what it lacks for a balanced design, and how it can be divided.

    A design is balanced if every object that the concepts allow occurs equally often in each slot, and with every
    other; then a concept can't stand in for another, and averages over scenes are the components that they estimate.

    Args:
        world: the user's own, or a built-in one.
        open_pictures: whether to open every picture file.

    Raises:
        ValueError: a picture that can't be opened, or that disagrees with its labels; names its row.

    Example:
        >>> from colligate.scenes.worlds import load_world
        >>> found = understand(load_world("clevr2d"))
        >>> found.missing, found.scenes[0]
        ((), '600 scenes: 576 of 2 objects, 24 of 1; all different.')
        >>> found.splits[0]
        'By scene: fit 363, validation 119, test 118.'
    """
    scenes = world.scenes
    return Findings(
        scenes=_of_scenes(world),
        concepts=tuple(_of_concept(scenes, c) for c in range(scenes.space.num_concepts)),
        missing=_missing(scenes),
        splits=_splits(world),
        pictures=of_pictures(world) if open_pictures else (),
        notes=world.notes,
    )


ALONE = "Scenes of one object give the components of the estimator `single`; nothing else is measured on them."
"""What rows with a single object are for."""


def _of_scenes(world: World) -> tuple[str, ...]:
    scenes = world.scenes
    counts = sorted(scenes.counts.unique().tolist(), reverse=True)
    by_count = [f"{int((scenes.counts == c).sum()):,} of {c}{' objects' * (i == 0)}" for i, c in enumerate(counts)]
    different = len(scenes.ids.unique())
    repeats = "all different" if different == len(scenes) else f"{different:,} different ones"
    objects = len(scenes.objects[scenes.filled].unique())
    smaller = ("A scene of fewer objects leaves the cells of its last slots empty.",) if len(counts) > 1 else ()
    alone = (ALONE,) if 1 in counts and len(counts) > 1 else ()
    return (
        f"{len(scenes):,} scenes: {', '.join(by_count)}; {repeats}.",
        *(" ".join((*smaller, *alone)),) * bool(smaller),
        f"{objects:,} of {scenes.space.num_objects:,} objects occur; the world shows {', '.join(world.kinds)}.",
    )


def _of_concept(scenes: Scenes, c: int) -> str:
    name, words = scenes.space.names[c], scenes.space.words[c]
    counts = torch.bincount(scenes.values[..., c][scenes.filled], minlength=len(words))
    listed = ", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")
    low, high = int(counts.min()), int(counts.max())
    often = f"{low:,} times" if low == high else f"{low:,} to {high:,} times"
    return f"Concept {name} has {len(words)} values ({listed}); each occurs {often}."


def _missing(scenes: Scenes) -> tuple[str, ...]:
    """What a balanced design would have and these scenes lack."""
    space = scenes.space
    found: list[str] = []
    held = torch.bincount(scenes.objects[scenes.filled], minlength=space.num_objects)
    absent = (held == 0).nonzero()[:, 0].tolist()
    if absent:
        found.append(
            f"Objects that never occur: {len(absent):,} ({_first([space.describe_object(o) for o in absent])})."
        )
    several = scenes[scenes.counts > 1]
    if not len(several):
        return (*found, "No scene holds more than one object, so nothing can be said about binding.")
    found += _sharing(several)
    for count in several.counts.unique().tolist():
        rows = several[several.counts == count]
        whole, different = space.num_objects**count, len(rows.ids.unique())
        if different < whole:
            found.append(f"Of {whole:,} ordered scenes of {count} objects, {different:,} are here.")
    found += _uneven(several)
    twins = (scenes.rows_of(several.twins()) < 0).sum()
    if twins:
        found.append(f"Scenes that lack their twin (the same objects in the opposite order): {int(twins):,}.")
    alone = scenes[scenes.counts == 1].objects
    singles = len(alone[alone >= 0].unique())
    if singles < space.num_objects:
        what = f"{singles:,} of {space.num_objects:,} objects occur" if singles else "No object occurs"
        found.append(f"{what} alone in a scene; the estimator `single` needs them.")
    return tuple(found)


def _sharing(several: Scenes) -> list[str]:
    """Concepts of which two objects of a scene never have the same value, or always."""
    found: list[str] = []
    for c, name in enumerate(several.space.names):
        share = several.shares(c)
        if several.space.sizes[c] > 1 and not share.any():
            found.append(f"Two objects of a scene never have the same {name}.")
        elif share.all():
            found.append(f"In every scene two objects have the same {name}, which then tells no object from another.")
    for a, b in combinations(range(several.space.num_concepts), 2):
        seen = several.values[several.filled][:, [a, b]].unique(dim=0)
        whole = prod(several.space.sizes[c] for c in (a, b))
        if len(seen) < whole:
            names = several.space.names[a], several.space.names[b]
            found.append(f"Of {whole:,} pairs of {names[0]} and {names[1]}, {len(seen):,} occur in an object.")
    return found


def _uneven(several: Scenes) -> list[str]:
    """Slots in which some objects occur more often than others."""
    found: list[str] = []
    for slot in range(several.slots):
        objects = several.objects[:, slot]
        counts = torch.bincount(objects[objects >= 0], minlength=several.space.num_objects)
        present = counts[counts > 0]
        low, high = (int(present.min()), int(present.max())) if len(present) else (0, 0)
        if low < high:
            found.append(f"Slot {slot + 1} holds some objects {low:,} times and others {high:,} times.")
    return found


def _splits(world: World) -> tuple[str, ...]:
    if len(world.scenes) > _MOST:
        return (f"Divisions are not tried out on more than {_MOST:,} rows.",)
    rules: dict[str, SplitRule] = {} if world.parts is None else {"As the column split says": Given(world.parts)}
    rules |= {"By scene": ByScene(), "By object": ByObject(), "By swaps": BySwaps()}
    rules |= {f"By {a} and {b}": ByValuePair(a, b) for a, b in combinations(world.scenes.space.names, 2)}
    found: list[str] = []
    for said, rule in rules.items():
        try:
            split = rule.split(world.scenes, seed=0)
        except ValueError as error:
            found.append(f"{said}: not possible. {error}")
            continue
        sizes = f"fit {len(split.fit):,}, validation {len(split.validation):,}, test {len(split.test):,}"
        found.append(f"{said}: {sizes}.")
    return tuple(found)


def of_pictures(world: World) -> tuple[str, ...]:
    """Open a world's picture files, if it has any, and say what was found.

    Raises:
        ValueError: as `understand`.
    """
    if not isinstance(world.pictures, tuple):
        return ()
    found = check_files(world.pictures, world.scenes)
    others = unlisted(world.pictures)
    if others:
        first = _first([other.name for other in others])
        found += (f"Pictures that lie beside those and that no row names: {len(others):,} ({first}).",)
    return ("All pictures open.", *found)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _first(words: Sequence[str]) -> str:
    """The first five, where the number of all was said before."""
    return _listed(words[:5]) + (", ..." if len(words) > 5 else "")
