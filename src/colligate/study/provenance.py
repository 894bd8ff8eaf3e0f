"""What a record says of its inputs, and how to have its numbers again."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from colligate.records import command, python
from colligate.scenes.space import Scenes
from colligate.scenes.splits import Split
from colligate.study.config import (
    ASKED,
    BatteryConfig,
    ComplexityConfig,
    EditConfig,
    MeasureConfig,
    SourceConfig,
    StudyConfig,
)
from colligate.study.sources import Source

CALLS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "probes": (("from colligate.geometry.measurements import probe_rows",), "rows = probe_rows(subject)"),
    "layout": (
        ("from colligate.geometry.measurements import decomposition_rows",), "rows = decomposition_rows(subject)"
    ),
    "edits": (("from colligate.geometry.editing import edit_rows",), "rows = edit_rows(subject)"),
    "removal": (("from colligate.geometry.measurements import removal_rows",), "rows = removal_rows(subject)"),
    "information": (
        ("from colligate.geometry.measurements import information_rows",), "rows = information_rows(subject)"
    ),
    "complexity": (
        ("from colligate.study.rules import rule_rows",), "rows = rule_rows(subject)"
    ),
    "normalized": (
        ("from dataclasses import replace", "from colligate.geometry.measurements import probe_rows"),
        "rows = probe_rows(replace(subject, embeddings=subject.embeddings.normalized()))",
    ),
}  # fmt: skip
"""Section of the page -> imports and code that give its numbers of a `subject`."""


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
    kind: type[BatteryConfig] = ComplexityConfig if only == ("complexity",) else StudyConfig
    asked, taken = _as(kind, config), "" if only is None else f", only={only!r}"
    opened = f"from colligate.study import {kind.__name__}, open_subject"
    return {
        "command": _command(config, only),
        "python": python(
            asked, [f"from colligate.study import {kind.__name__}, study"], f"result = study({{config}}{taken})"
        ),
        "calls": {
            section: python(asked, [*imports, opened], f"subject = open_subject({{config}})\n{code}")
            for section, (imports, code) in CALLS.items()
        },
    }


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
