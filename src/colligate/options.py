"""Options of a call, from the words of a command line or the keywords of a function, checked the same way."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

Config = TypeVar("Config")


class HelpShown(Exception):  # noqa: N818 (nothing is wrong)
    """The call asked for help, and has it."""


def parse(config: type[Config], verb: str, description: str, words: Sequence[str]) -> Config:
    """A config from the words of a command line; --help prints its fields.

    Raises:
        HelpShown: after printing them.
        ValueError: the words don't fit.
    """
    import tyro

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(
                config, prog=f"colligate {verb}", description=description, args=list(words),
                config=(tyro.conf.PositionalRequiredArgs,),
            )  # fmt: skip
    except SystemExit as stop:
        if not stop.code:
            raise HelpShown from None
        raise ValueError(_plainly(said.getvalue(), verb)) from None


def _plainly(boxed: str, verb: str) -> str:
    """What the parser complains of, as one sentence: without its box, the title on top and the help below."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip().strip("│").strip() for line in boxed.splitlines()[1:]]
    end = next((i for i, line in enumerate(lines) if line.strip("─╰╯") == ""), len(lines))
    words = re.sub(r"^Error parsing \w+Config: ", "", " ".join(filter(None, lines[:end])))
    return f"{words.removesuffix('(required)').rstrip('. ')}. See colligate {verb} --help."


def from_keywords(config: type[Config], verb: str, required: Sequence[str], options: Mapping[str, Any]) -> Config:
    """A config from keywords; what is wrong with one gets the sentence that the command line gives.

    Args:
        config: a dataclass whose fields are the options.
        verb: what is done, for the message.
        required: values of the fields without a default, in their order.
        options: keyword -> value; a dataclass or a mapping for a field that is itself a config.

    Raises:
        ValueError: an unknown keyword, or a value that its field can't have.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Config:
        ...     embedder: str
        ...     seed: int = 0
        >>> from_keywords(Config, "probe", ["oracle:no-binding"], {"seed": 3})
        Config(embedder='oracle:no-binding', seed=3)
    """
    return parse(config, verb, "", [*required, *_flags(config, options)])


def _flags(config: type[Any], options: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Keywords as the command line writes them; those at their default are left out."""
    words, known = list[str](), {field.name: field for field in fields(config)}
    for name, value in options.items():
        flag, field = f"--{prefix}{name}".replace("_", "-"), known.get(name)
        default: Any = MISSING
        if field is not None:
            default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is not MISSING and type(value) is type(default) and value == default:
            continue
        if is_dataclass(default) and not isinstance(default, type):
            inner = _own_fields(value, default) if is_dataclass(value) else value
            words += _flags(type(default), inner, f"{name}.")
        elif isinstance(value, bool):
            words.append(flag if value else f"--{prefix}no-{name}".replace("_", "-"))
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            words += [flag, *map(str, value)]
        else:
            words += [flag, str(value)]
    return words


def _own_fields(given: Any, default: Any) -> dict[str, Any]:
    """The fields in which a config differs from the default one.

    Raises:
        ValueError: a config of another kind.
    """
    if not isinstance(given, type(default)):
        raise ValueError(f"Expected a {type(default).__name__}; got a {type(given).__name__}.")
    pairs = ((field.name, getattr(given, field.name)) for field in fields(given))
    return {name: value for name, value in pairs if value != getattr(default, name)}
