"""A config as the command line and the Python that have it."""

import shlex
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, cast

RUN_FIELDS = ("out", "runs", "store", "force", "online", "device")
"""Fields of a config that decide where and how work is done, and no number."""


def settings(config: Any) -> dict[str, object]:
    """The fields of a config dataclass that decide the numbers, ready for JSON."""
    kept = {name: value for name, value in asdict(config).items() if name not in RUN_FIELDS}
    return {name: _plain(value) for name, value in kept.items()}


def _plain(value: object) -> object:
    """What JSON would give back."""
    if isinstance(value, Path):
        return str(value)
    return [_plain(one) for one in cast("Sequence[object]", value)] if isinstance(value, list | tuple) else value


def given(config: Any) -> list[str]:
    """Names of the fields that differ from their defaults, or have none."""
    found = list[str]()
    for field in fields(config):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is MISSING or getattr(config, field.name) != default:
            found.append(field.name)
    return found


def command(verb: str, config: Any) -> str:
    """The command line that has this config; fields without a default are positional.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     embedder: str
        ...     depth: bool = True
        >>> command("study", Config("oracle:no-binding", depth=False))
        'colligate study oracle:no-binding --no-depth'
    """
    words, options = ["colligate", verb], list[str]()
    for field in fields(config):
        value, flag = getattr(config, field.name), field.name.replace("_", "-")
        if field.default is MISSING and field.default_factory is MISSING:
            words.append(str(value))
        elif field.name not in given(config) or field.name in ("force", "out", "runs"):
            continue
        elif isinstance(value, bool):
            options.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list | tuple):
            options += [f"--{flag}", *(str(one) for one in cast("Sequence[object]", value))]
        else:
            options += [f"--{flag}", str(value)]
    return shlex.join([*words, *options])


def construction(config: Any) -> str:
    """Python that makes this config.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     embedder: str
        >>> construction(Config("oracle:no-binding"))
        "Config(embedder='oracle:no-binding')"
    """
    shown = ((name, getattr(config, name)) for name in given(config) if name not in ("out", "runs", "force"))
    arguments = (f"{name}=Path({str(value)!r})" if isinstance(value, Path) else f"{name}={value!r}"
                 for name, value in shown)  # fmt: skip
    return f"{type(config).__name__}({', '.join(arguments)})"


def python(config: Any, imports: Sequence[str], code: str) -> str:
    """A snippet: imports of this package, then `code` with `{config}` in it.

    Args:
        config: a config dataclass.
        imports: lines such as "from colligate.study import StudyConfig, study".
        code: what is done; `{config}` stands for the config's construction.
    """
    made = construction(config)
    lines = [*imports, *(["from pathlib import Path"] if "Path(" in made else [])]
    groups = (sorted(line for line in lines if ("colligate" in line) is own) for own in (False, True))
    head = "\n\n".join("\n".join(group) for group in groups if group)
    return head + "\n\n" + code.replace("{config}", made)
