"""What a user names as `package.module:factory`: found, called, and its failures told in one sentence."""

import importlib
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from colligate.embedders.consent import check_consent
from colligate.embedders.towers import KINDS, Model, Tower
from colligate.records import WorkError


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
    given = call_factory(name)
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
    return Model(name, {str(kind): _named(tower, name) for kind, tower in towers.items()})


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
    if type(tower).__module__.partition(".")[0] == "colligate":
        return tower
    return cast("Tower", type(type(tower).__name__, (_Own,), {})(tower, name))


@contextmanager
def told_plainly(name: str) -> Generator[None, None, None]:
    """Turn whatever the user's code raises into a sentence: its name, the exception, and the user's line."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        said = " ".join(str(error).strip().splitlines()[:1]).rstrip(".")
        what = f"{type(error).__name__}: {said}" if said else type(error).__name__
        where = _line(error)
        raise WorkError(f"{name} raised {what}{f' ({where})' if where else ''}; put that right there.") from error


def _line(error: Exception) -> str:
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
