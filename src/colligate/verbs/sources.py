"""Where vectors come from: a model and a world, or files."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

import torch

from colligate.embedders import load_model
from colligate.embedders.crops import seen_of
from colligate.embedders.embedding import embed
from colligate.embedders.precomputed import check_suffix, read_vectors
from colligate.embedders.towers import Model, Tower
from colligate.embedders.trained import TrainedTower
from colligate.embedders.trained_pair import TrainedPairTower
from colligate.embeddings import Embeddings
from colligate.engine import Report
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.sources import read_labels, read_space
from colligate.scenes.space import ConceptSpace
from colligate.scenes.tables import keep_of, listed
from colligate.scenes.worlds import WORLDS, Kind, World, labels_bytes, load_world
from colligate.store import Store
from colligate.verbs.config import VectorsConfig


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """What a caller hands over as objects; the config names the rest, and says what these are called.

    Attributes:
        model: instead of the one that `embedder` names.
        embeddings: vectors of scenes, instead of a file of them.
        world: instead of the one that `scenes` or `labels` names.
        control: vectors of the same scenes by a random model.
    """

    model: Model | None = None
    embeddings: Embeddings | None = None
    world: World | None = None
    control: Embeddings | None = None

    @property
    def objects(self) -> tuple[str, ...]:
        """Fields of the config for which an object stands."""
        stands = {"embedder": self.model or self.embeddings, "scenes": self.world, "control": self.control}
        return tuple(field for field, given in stands.items() if given is not None)


class Source(NamedTuple):
    """Vectors of scenes, a model behind them or none, and the world they show or none.

    `control` holds vectors of a random model where they were given, `objects` the config's fields that name no more
    than objects of the caller's.
    """

    embeddings: Embeddings
    name: str
    world: World | None
    tower: Tower | None
    model: Model | None
    notes: tuple[str, ...]
    facts: Mapping[str, object]
    control: Embeddings | None = None
    objects: tuple[str, ...] = ()


def open_source(config: VectorsConfig, report: Report | None = None, inputs: Inputs | None = None) -> Source:
    """Read or make the vectors that a config asks for.

    Args:
        config: names them.
        report: told about progress.
        inputs: what is handed over as objects.

    Raises:
        ValueError: the embedder, world, labels or tower don't fit together.
    """
    inputs = inputs or Inputs()
    return _opened(config, report, inputs)._replace(control=inputs.control, objects=inputs.objects)


def _opened(config: VectorsConfig, report: Report | None, inputs: Inputs) -> Source:
    if inputs.embeddings is not None:
        return _of_embeddings(config, inputs.embeddings, inputs.world)
    if config.of_vectors and inputs.model is None:
        return _open_file(config, Path(config.embedder), inputs.world)
    if config.labels is not None:
        raise ValueError("--labels goes with a file of vectors; a model takes its labels from --scenes.")
    model, world, own = open_model(config, inputs)
    kind, notes = _choose_tower(config, model, world)
    tower = model.towers[kind]
    embeddings = embed(tower, world, store=store_of(config), progress=progress_of(report), report=report)
    notes += crop_notes(tower, world)
    return Source(
        embeddings, config.embedder, world, tower, model,
        (*model.notes, *world.notes, *own, *notes, *embeddings.collapse()),
        {"tower": getattr(tower, "fingerprint", None) or vectors_hash(embeddings)},
    )  # fmt: skip


def open_model(config: VectorsConfig, inputs: Inputs | None = None) -> tuple[Model, World, tuple[str, ...]]:
    """The model that a config names, the world that it is shown, and what was chosen where the config says nothing.

    Raises:
        ValueError: one of them can't be had, or an option can't change a model that was given as an object.
    """
    inputs = inputs or Inputs()
    named = inputs.world is not None or bool(config.scenes)
    world = open_world(config, inputs.world) if named else None  # first: a wrong name shows before a model is loaded
    if inputs.model is None:
        model = load_model(
            config.embedder, device=config.device, dtype=config.dtype, layer=config.layer, pooling=config.pooling,
            normalize=config.normalize, offline=not config.online,
        )  # fmt: skip
    else:
        model = inputs.model
        idle = [name for name in LOADED if getattr(config, name) != getattr(VectorsConfig, name)]
        if idle:
            raise ValueError(
                f"{idle[0]} says how a named model is loaded and can't change one that is given as an object; leave it "
                "out, or give the model's name."
            )
    if world is not None:
        return model, world, ()
    of_model = [tower.grid for tower in model.towers.values() if isinstance(tower, TrainedTower | TrainedPairTower)]
    chosen = of_model[0] if of_model else "clevr2d" if "picture" in model.towers else "text8x8"
    note = f"No scenes were named, so {chosen} was taken; --scenes names others."
    return model, open_world(replace(config, scenes=chosen)), (note,)


LOADED = ("layer", "pooling", "device", "dtype", "normalize")
"""Fields that say how a named model is loaded and read."""
MODEL_FLAGS = ("tower", "caption", "words", "layer", "pooling", "device", "dtype", "online")
"""Fields that say how a model is loaded or what it is shown, and say nothing of a file of vectors."""


def _idle(config: VectorsConfig, name: str) -> None:
    """Refuse options that say something of a model where there is none."""
    idle = [f"--{field}" for field in MODEL_FLAGS if getattr(config, field) != getattr(VectorsConfig, field)]
    if idle:
        raise ValueError(f"{name} holds vectors, made already; {', '.join(idle)} can't change them: leave it out.")


def _open_file(config: VectorsConfig, path: Path, world: World | None) -> Source:
    check_suffix(path)
    _idle(config, path.name)
    if config.labels is not None and config.scenes:
        raise ValueError(f"{path.name} takes one labels table; give --labels or --scenes, not both.")
    labels = config.labels or (Path(config.scenes) if config.scenes else None)
    if world is None:
        if labels is None:
            raise ValueError(f"{path.name} holds vectors and needs a labels table: add --labels scenes.csv.")
        world = _read_world(config, labels)
    return _source_of(config, read_vectors(path, world), path.name, world)


def _of_embeddings(config: VectorsConfig, embeddings: Embeddings, world: World | None) -> Source:
    """Vectors that a caller hands over."""
    _idle(config, config.embedder)
    return _source_of(config, embeddings, config.embedder, world)


def _source_of(config: VectorsConfig, embeddings: Embeddings, name: str, world: World | None) -> Source:
    notes = (*cast("list[str]", embeddings.provenance.get("notes", [])), *embeddings.collapse())
    if config.normalize:
        embeddings = embeddings.normalized()
    return Source(
        embeddings, name, world, None, None, notes, {"vectors": vectors_hash(embeddings)}
    )  # fmt: skip


def _read_world(config: VectorsConfig, labels: Path) -> World:
    """The user's table, as `space` and `keep` say."""
    return read_labels(
        labels, space=None if config.space is None else read_space(config.space), keep=keep_of(config.keep)
    )


def open_world(config: VectorsConfig, given: World | None = None) -> World:
    """The world that a config names, or the given one, with the user's caption template and words.

    Raises:
        ValueError: there is no such world or table, or an option doesn't go with it.
    """
    if not config.scenes and given is None:
        raise ValueError(f"Say which scenes to embed: --scenes {', '.join(WORLDS)} or a labels table.")
    path = Path(config.scenes)
    if given is None and (path.suffix in (".csv", ".parquet") or (config.scenes not in WORLDS and path.is_dir())):
        world = _read_world(config, path)
    else:
        world = given or load_world(config.scenes)
        for flag, value in (("--space", config.space), ("--keep", config.keep)):
            if value:
                what = "a built-in world" if given is None else "given as an object"
                raise ValueError(f"{flag} goes with a labels table; {world.name} is {what}: leave it out.")
    if config.caption is not None:
        world = replace(world, captions=CaptionTemplate(config.caption))
    if not config.words:
        return world
    if not isinstance(world.captions, CaptionTemplate):
        raise ValueError(f"World {world.name!r} has no caption template, so its words can't be others; add --caption.")
    words = said_words(world.scenes.space, world.captions, config.words)
    note = f"In captions and queries {listed(config.words)} (value = word)."
    return replace(world, captions=replace(world.captions, words=words), notes=(*world.notes, note))


def said_words(space: ConceptSpace, captions: CaptionTemplate, others: Sequence[str] = ()) -> dict[str, list[str]]:
    """The words that captions say for the values of each concept.

    Args:
        space: whose values.
        captions: how its scenes are said.
        others: words to say instead, as value=word.

    Raises:
        ValueError: no value has that word, or it isn't written so.

    Example:
        >>> space = ConceptSpace(color=["red", "blue"], shape=["cube", "sphere"])
        >>> said_words(space, CaptionTemplate(), ["cube=square", "sphere=circle"])
        {'color': ['red', 'blue'], 'shape': ['square', 'circle']}
    """
    concepts = dict(zip(space.names, space.words, strict=True))
    said = {name: list((captions.words or {}).get(name, own)) for name, own in concepts.items()}
    for given in others:
        value, equal, word = given.partition("=")
        places = [(name, own.index(value)) for name, own in concepts.items() if value in own]
        if not equal or not word or len(places) != 1:
            known = "; ".join(f"{name} {listed(own)}" for name, own in concepts.items())
            raise ValueError(f"--words {given!r} isn't value=word for one of the world's values ({known}).")
        name, place = places[0]
        said[name][place] = word
    return said


def _choose_tower(config: VectorsConfig, model: Model, world: World) -> tuple[str, tuple[str, ...]]:
    able = [kind for kind in ("text", "picture", "scene") if kind in model.towers and kind in world.kinds]
    if config.tower is not None:
        if config.tower not in able:
            raise ValueError(
                f"{model.name} has {', '.join(model.towers)} towers and world {world.name!r} shows "
                f"{', '.join(world.kinds)}; --tower {config.tower} is not in both."
            )
        return config.tower, ()
    if not able:
        raise ValueError(
            f"{model.name} reads {', '.join(model.towers)} and world {world.name!r} shows {', '.join(world.kinds)}; "
            "choose a world that shows what the model reads."
        )
    others = [kind for kind in able[1:] if kind != "scene"]
    notes = tuple(f"This is the {able[0]} tower; study the other with --tower {kind}." for kind in others)
    return able[0], notes


def crop_notes(tower: Tower, world: World) -> tuple[str, ...]:
    """What a picture tower's preprocessing cuts off, seen on a few pictures spread over the world."""
    if tower.kind != "picture" or "picture" not in world.kinds:
        return ()
    rows = torch.linspace(0, len(world.scenes) - 1, min(16, len(world.scenes))).long()
    seen = seen_of(tower, world.images(rows))
    return () if seen is None or seen.sentence is None else (seen.sentence,)


def labels_of(source: Source) -> tuple[bytes, tuple[str, ...]]:
    """The labels table of a source's vectors, one row each, and what who reads it again should know.

    Raises:
        ValueError: the vectors show scenes of no world.
    """
    world, scenes, captions = source.world, source.embeddings.scenes, source.embeddings.captions
    if world is None:
        raise ValueError(f"{source.name} has no labels to write; name its labels table.")
    notes: tuple[str, ...] = ()
    if captions is not None and len(set(zip(scenes.ids.tolist(), captions, strict=True))) < len(scenes):
        captions = None  # a table without pictures may not say the same of the same scene twice
        notes = ("Captions were left out of labels.csv: rows of the same scene have the same one.",)
    for c, (name, words) in enumerate(zip(scenes.space.names, scenes.space.words, strict=True)):
        seen = set(scenes.values[..., c][scenes.filled].tolist())
        if unseen := [word for value, word in enumerate(words) if value not in seen]:
            notes += (f"No scene shows {name} {listed(unseen)}: read labels.csv with the same --space.",)
    if len(scenes.counts.unique()) > 1:
        notes += ("Rows of labels.csv whose last slots are empty are scenes of fewer objects.",)
    parts = None if world.parts is None else (*world.parts, *["fit"] * (len(scenes) - len(world.parts)))
    said = None if captions is None else tuple(captions)
    return labels_bytes(World(world.name, scenes, said, parts=parts)), notes


def store_of(config: VectorsConfig) -> Store:
    """The folder of embedded vectors that a config names, or the user's.

    Raises:
        ValueError: none is named, and the user has no home folder.
    """
    named = config.store or Path(os.environ.get("COLLIGATE_STORE") or "~/.cache/colligate")
    try:
        return Store(named.expanduser())
    except RuntimeError:
        raise ValueError(
            f"There is no home folder for the store {named}; name a folder with --store or in COLLIGATE_STORE."
        ) from None


def progress_of(report: Report | None, stage: str = "embedding") -> Callable[[int, int], None] | None:
    """Progress of embedding as a stage."""
    return None if report is None else lambda done, total: report(stage, done, total)


def vectors_hash(embeddings: Embeddings) -> str:
    """sha256 of the vectors, their type and shape."""
    vectors = embeddings.vectors.contiguous()
    digest = hashlib.sha256(f"{vectors.dtype} {tuple(vectors.shape)} ".encode())
    digest.update(vectors.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def shown(source: Source) -> dict[str, object]:
    """What the tower and the reader are shown of the scenes, and a given split: facts that decide a run's rows."""
    world = source.world
    if world is None:
        return {}
    kinds = {"text", *([] if source.tower is None else [source.tower.kind])} & set(world.kinds)
    items = {kind: world.describe(cast("Kind", kind)) for kind in sorted(kinds)}
    return {"items": items, "parts": world.parts, "notes": world.notes}
