"""What a record says of its inputs, and how to have its numbers again."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from colligate.records import command, python
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split
from colligate.verbs.config import (
    ASKED,
    BatteryConfig,
    EditConfig,
    MeasureConfig,
    SourceConfig,
    StudyConfig,
)
from colligate.verbs.sources import Source

CALLS: Mapping[str, str] = {
    "probes": "probe",
    "layout": "decompose",
    "edits": "edit",
    "removal": "remove",
    "information": "information",
    "complexity": "complexity",
    "normalized": "probe",
}
"""Section of the page -> the function that gives its numbers."""


VERBS: Mapping[str, str] = {
    "probes": "probe",
    "decomposition": "decompose",
    "edits": "edit",
    "removal": "remove",
    "information": "information",
    "complexity": "complexity",
}
"""Battery -> the verb that takes it alone."""


def python_calls(
    config: StudyConfig, only: tuple[str, ...] | None = None, *, objects: tuple[str, ...] = ()
) -> dict[str, object]:
    """The command and the Python that give a study, whole and by section; none for objects, which no text names.

    Args:
        config: what was asked.
        only: the batteries that were taken; None for all. Several of them have no verb, so that `command` is empty.
        objects: fields of the config for which an object of the caller's stands.

    Example:
        >>> python_calls(StudyConfig(embedder="oracle:no-binding"), ("edits",))["command"]
        'colligate edit oracle:no-binding'
    """
    if objects:
        return {"command": "", "python": "", "calls": {}, "in_memory": list(objects)}
    whole = "study" if only is None else VERBS.get(only[0], "") if len(only) == 1 else ""
    return {
        "command": _command(config, only),
        "python": python(whole, _as(_kind(whole), config)) if whole else "",
        "calls": {
            section: _section(section, verb, config)
            for section, verb in CALLS.items()
            if section != "normalized" or not config.embedder.startswith("oracle:")  # which can't be read so
        },
    }


def _section(section: str, verb: str, config: StudyConfig) -> str:
    """The Python that gives one section's numbers."""
    asked = replace(config, normalize=True) if section == "normalized" else config
    return python(verb, _as(_kind(verb), asked))


def _kind(verb: str) -> type[BatteryConfig]:
    """What a verb is asked."""
    batteries = {name: battery for battery, name in VERBS.items()}
    return StudyConfig if verb == "study" else ASKED.get(batteries[verb], MeasureConfig)


def _command(config: StudyConfig, only: tuple[str, ...] | None) -> str:
    """The command that takes these batteries; empty where no verb does."""
    if only is None:
        return command("study", config)
    if len(only) != 1:
        return ""
    (battery,) = only
    kind = ASKED.get(battery, MeasureConfig)
    if battery not in VERBS or (config.edits is not None and not issubclass(kind, EditConfig)):
        return ""
    return command(VERBS[battery], _as(kind, config))


def _as(kind: type[BatteryConfig], config: StudyConfig) -> BatteryConfig:
    """The same settings as the config of a verb, which may have fewer, and other defaults."""
    return kind(**{field.name: getattr(config, field.name) for field in fields(kind)})


def describe_inputs(
    config: SourceConfig, source: Source, scenes: Scenes, *, singles: int, split: Split | None
) -> dict[str, object]:
    """Model, world, split and files of a run, by content.

    Args:
        config: what was asked.
        source: what it opened.
        scenes: the scenes of several objects.
        singles: how many scenes of one object there are beside them.
        split: parts that were fitted and scored, or None.
    """
    every = source.embeddings.scenes
    provenance = dict(source.embeddings.provenance)
    tower = provenance.pop("tower", None)
    found: dict[str, object] = {
        "model": {"name": source.name, **(dict(tower) if isinstance(tower, Mapping) else {}), **provenance},
        "world": {
            "name": source.world.name if source.world is not None else config.scenes,
            "concepts": dict(zip(every.space.names, map(list, every.space.words), strict=True)),
            "scenes": len(scenes), "singles": singles, "slots": every.slots,
            "objects": len(scenes.objects[scenes.filled].unique()), "content_hash": every.content_hash,
        },
    }  # fmt: skip
    if split is not None:
        sizes = {"fit": len(split.fit), "validation": len(split.validation), "test": len(split.test)}
        found["split"] = {"name": split.name, **sizes}
    return found


def file_hashes(**paths: Path | None) -> dict[str, str]:
    """sha256 of the files that a config names beside the embedder and its labels.

    Raises:
        ValueError: one of them can't be read.
    """
    found = dict[str, str]()
    for name, path in paths.items():
        if path is None:
            continue
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device read without end
            raise ValueError(f"{path} is no regular file; name a file that is there.")
        try:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ValueError(f"{path} can't be read ({error.strerror}); name a file that is there.") from None
    return found
