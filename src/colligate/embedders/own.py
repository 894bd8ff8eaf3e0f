"""What a user names as `package.module:factory`: found, called, and its failures told in one sentence."""

import contextlib
import importlib
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from colligate.embedders.consent import check_consent
from colligate.embedders.towers import KINDS, Model, Tower
from colligate.records import WorkError
from colligate.scenes.worlds import Kind


def call_factory(name: str) -> Any:
    """What the user's function gives.

    Args:
        name: `package.module:factory`; the current folder is searched too.

    Raises:
        ValueError: there is no such module or function, or a file names it to which the user didn't agree.
        WorkError: the user's code raised; the message says what and in which line.
    """
    check_consent(name)
    module, _, factory = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        with told_plainly(name):
            try:
                found: Any = importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                    raise  # the user's module is there and lacks one of its own imports
                found = None
    finally:
        sys.path.remove(here)
    if found is None:
        raise ValueError(f"There is no module {module!r} to load {name} from, looked for in {here} too.")
    if not callable(getattr(found, factory, None)):
        raise ValueError(f"Module {module!r} has no function {factory!r}; {name} must name one without arguments.")
    with told_plainly(name):
        return getattr(found, factory)()


def from_factory(name: str) -> Model:
    """The user's towers by the name of what gives them, as `call_factory` does.

    Raises:
        ValueError: there is no such module or function, or it gives no towers.
        WorkError: the user's code raised.
    """
    return as_model(call_factory(name), name)


def as_model(given: Any, name: str) -> Model:
    """A user's object as a model: a tower, a dict of towers by kind, or a model as it is.

    Args:
        given: what the user made.
        name: what messages call it.

    Raises:
        ValueError: it is none of them.
    """
    if isinstance(given, Model):
        return given
    towers = given if isinstance(given, Mapping) else {getattr(given, "kind", None): given}
    for kind, tower in towers.items():
        if kind is None and callable(getattr(tower, "embed", None)):
            *some, last = (f'"{one}"' for one in KINDS)
            choices = f"{', '.join(some)} or {last}"
            raise ValueError(f"{name} gave a {type(tower).__name__} without `kind`; set kind to {choices}.")
        if kind not in KINDS or not callable(getattr(tower, "embed", None)):
            raise ValueError(
                f"{name} gave a {type(tower).__name__} under {kind!r}; expected an object with embed(items) and "
                f"a kind of {', '.join(KINDS)}, a dict of them by kind, or a Model."
            )
    for tower in towers.values():
        _check_fingerprint(tower, name)
    return Model(name, {str(kind): _named(tower, name) for kind, tower in towers.items()})


def _check_fingerprint(tower: Any, name: str) -> None:
    """A fingerprint says what determines the vectors, in JSON: it names them in the store and in the record.

    Raises:
        ValueError: it is something else.
    """
    with told_plainly(name):
        told = getattr(tower, "fingerprint", None)
    if told is None:
        return
    remedy = "give facts in JSON (texts, numbers, lists, objects by text), or None to have vectors never kept"
    if not isinstance(told, Mapping):
        raise ValueError(f"{name} has a {type(told).__name__} as its fingerprint; {remedy}.")
    for key, value in told.items():
        if not isinstance(key, str) or not _is_json(value):
            raise ValueError(f"{name} has a fingerprint with {key!r}: a {type(value).__name__}, no JSON; {remedy}.")


def _is_json(value: Any) -> bool:
    """Whether JSON gives the value back as it is."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, cast("list[Any]", value)))
    return not isinstance(value, float) or math.isfinite(value)


@dataclass(frozen=True, eq=False)
class FunctionTower:
    """A tower made of a function.

    Attributes:
        function: from a list of items to one vector each: a tensor or array [item, dim].
        kind: what the items are: "text" (captions), "picture" (PIL images) or "scene" (`Scenes`).
        fingerprint: JSON-able facts that determine the vectors, by which they are kept; None: they are never kept.

    Example:
        >>> tower = FunctionTower(lambda texts: torch.tensor([[float(len(text)), 1.0] for text in texts]))
        >>> tower.kind, tower.embed(["a red cube"]).tolist()
        ('text', [[10.0, 1.0]])
    """

    function: Callable[[Any], Any]
    kind: Kind = "text"
    fingerprint: Mapping[str, object] | None = None

    def embed(self, items: Any) -> Any:
        """What the function gives."""
        return self.function(items)


class _Own:
    """A user's tower whose failures name the factory that it came from; without a fingerprint, it is never kept."""

    def __init__(self, tower: Any, name: str) -> None:
        self._tower, self._name = tower, name

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tower, name)
        return self._plainly(found) if name in ("embed_depth", "embed_tokens") else found

    @property
    def kind(self) -> str:
        return self._tower.kind

    @property
    def fingerprint(self) -> Mapping[str, object] | None:
        return getattr(self._tower, "fingerprint", None)

    def embed(self, items: Any) -> Any:
        return self._plainly(self._tower.embed)(items)

    def _plainly(self, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def called(items: Any) -> Any:
            with told_plainly(self._name):
                return method(items)

        return called


def _named(tower: Any, name: str) -> Tower:
    """The tower under its own name, which messages give; one of ours as it is."""
    if type(tower).__module__.partition(".")[0] == "colligate" and not isinstance(tower, FunctionTower):
        return tower
    return cast("Tower", type(type(tower).__name__, (_Own,), {})(tower, name))


@contextmanager
def told_plainly(name: str) -> Generator[None, None, None]:
    """Run the user's code apart from ours, and turn whatever it raises into a sentence: its name, and the user's line.

    What it prints goes to stderr, since stdout is for results. What it sets for the whole process (torch's default
    type, device and threads, whether gradients are taken, the current folder) holds while it runs, and not for us.
    """
    try:
        with _stdout_apart(), _settings_apart(name):
            yield
    except (MemoryError, KeyboardInterrupt, GeneratorExit):
        raise
    except SystemExit as error:
        where = _line(error)
        raise WorkError(
            f"{name} ended the program (sys.exit({error.code!r})){f' ({where})' if where else ''}; raise an exception "
            "that says what is wrong, or give what was asked."
        ) from None
    except Exception as error:
        said = " ".join(str(error).strip().splitlines()[:1]).rstrip(".")
        what = f"{type(error).__name__}: {said}" if said else type(error).__name__
        where = _line(error)
        raise WorkError(f"{name} raised {what}{f' ({where})' if where else ''}; put that right there.") from error


@contextmanager
def _stdout_apart() -> Generator[None, None, None]:
    """Send to stderr what is printed, by Python or by what it calls."""
    kept = None
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream may be closed, or no file
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.flush()
            os.dup2(kept, 1)
            os.close(kept)


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.is_grad_enabled, lambda on: torch.autograd.set_grad_enabled(on)),
    (torch.get_num_threads, torch.set_num_threads),
    (os.getcwd, os.chdir),
)
"""What a process has one of: how it is read, and how it is set."""

_theirs: dict[str, list[Any]] = {}
"""Name of a user's embedder -> settings as its code left them."""


@contextmanager
def _settings_apart(name: str) -> Generator[None, None, None]:
    ours = [get() for get, _ in _SETTINGS]
    _set(_theirs.get(name, ours))
    try:
        yield
    finally:
        left = [get() for get, _ in _SETTINGS]
        if left != ours:
            _theirs[name] = left
        else:
            _theirs.pop(name, None)
        _set(ours)


def _set(wanted: list[Any]) -> None:
    for (get, put), value in zip(_SETTINGS, wanted, strict=True):
        if get() != value:
            put(value)


def _line(error: BaseException) -> str:
    """File and line of the user's that an exception comes from: the innermost that no library or part of ours holds."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    ours, libraries = str(Path(__file__).parents[1]), (str(Path(traceback.__file__).parent), "<")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, *libraries)) and "site-packages" not in Path(frame.filename).parts
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
