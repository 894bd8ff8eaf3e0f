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


def python(function: str, config: Any) -> str:
    """The Python that has this config; fields without a default are positional, and so is the world.

    Args:
        function: of this package.
        config: a config dataclass.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     embedder: str
        ...     scenes: str = ""
        ...     seed: int = 0
        >>> print(python("probe", Config("oracle:no-binding", "clevr", seed=3)))
        import colligate
        <BLANKLINE>
        result = colligate.probe('oracle:no-binding', 'clevr', seed=3)
    """
    positional, keywords = list[str](), list[str]()
    for field in fields(config):
        value = getattr(config, field.name)
        written = repr(str(value) if isinstance(value, Path) else value)
        if (field.default is MISSING and field.default_factory is MISSING) or (
            field.name in given(config) and field.name == "scenes"
        ):
            positional.append(written)
        elif field.name in given(config) and field.name not in ("out", "runs", "force"):
            keywords.append(f"{field.name}={written}")
    return f"import colligate\n\nresult = colligate.{function}({', '.join([*positional, *keywords])})"
