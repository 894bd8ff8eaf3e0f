"""Files of models: where they are, what they hash to, and model libraries kept quiet while they load them."""

import hashlib
import importlib.util
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast


def sha256_of_files(paths: Sequence[Path]) -> str:
    """sha256 of the names and bytes of files, read in pieces."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size} ".encode())
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def sha256_of_text(text: str) -> str:
    """sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def config_facts(config: Any) -> dict[str, object]:
    """The sizes and switches of a transformers network, versions and bookkeeping left out."""
    kept = config.to_diff_dict() if hasattr(config, "to_diff_dict") else config.to_dict()
    facts = {k: v for k, v in kept.items() if not k.startswith("_") and k not in {"transformers_version", "dtype"}}
    return json.loads(json.dumps(facts, sort_keys=True, default=str))


_hub = threading.RLock()


@contextmanager
def hub(*, offline: bool) -> Generator[None, None, None]:
    """Keep model libraries quiet and, if `offline`, from reaching for the network, while they load."""
    from huggingface_hub import constants
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    settings = cast("Any", constants)
    with _hub, _transformers_quiet():
        was_offline, had_bars = settings.HF_HUB_OFFLINE, not are_progress_bars_disabled()
        settings.HF_HUB_OFFLINE = was_offline or offline
        if offline:
            disable_progress_bars()
        try:
            yield
        finally:
            settings.HF_HUB_OFFLINE = was_offline
            if offline and had_bars:
                enable_progress_bars()


@contextmanager
def _transformers_quiet() -> Generator[None, None, None]:
    if importlib.util.find_spec("transformers") is None:
        yield
        return
    from transformers.utils import logging

    had_bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()


def model_folder(name: str, *, prefix: str, offline: bool) -> Path:
    """The folder that holds a model: a local folder as it is, else the hub's copy on this machine.

    Raises:
        FileNotFoundError: it is not on this machine; the message says what to fetch and where to put it.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise FileNotFoundError(f"There is no folder {name}; give {prefix}: a model's folder or a hub id.")
    from huggingface_hub import snapshot_download

    if not offline and (reason := unreachable()) is not None:
        try:
            with hub(offline=True):
                return Path(snapshot_download(name, local_files_only=True, ignore_patterns=_UNREAD))
        except Exception:
            raise FileNotFoundError(_to_fetch(name, prefix, f" and could not be fetched: {reason}")) from None
    try:
        with hub(offline=offline):
            return Path(snapshot_download(name, local_files_only=offline, ignore_patterns=_UNREAD))
    except MemoryError:
        raise
    except Exception as error:  # beside the hub's own errors, whatever its HTTP library and a proxy raise
        reason = "" if offline else f" and could not be fetched: {first_line(error)}"
        raise FileNotFoundError(_to_fetch(name, prefix, reason, online=not offline)) from None


_UNREAD = ["*.onnx", "*.msgpack", "*.h5", "*.ot", "*.tflite", "onnx/*", "openvino/*", "coreml/*"]

TIME_OUT = 10.0
"""Seconds after which the network is given up."""


def first_line(error: BaseException) -> str:
    """What an error of a library says, in one line without its full stop."""
    said = " ".join(str(error).strip().splitlines()[:1])[:200].rstrip(".: ")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _to_fetch(name: str, prefix: str, reason: str, *, online: bool = True) -> str:
    """The sentence on weights that aren't here."""
    more = "" if online else "; or add --online (offline=False)"
    return (
        f"The weights of {name} are not on this machine{reason}; fetch them once with `hf download {name}` where "
        f"there is a network, then name the folder they are in, {prefix}:FOLDER{more}."
    )


def unreachable(address: str | None = None) -> str | None:
    """Why a place on the network can't be reached, asked once and for no longer than `TIME_OUT`; None where it can.

    Libraries try again and again, each with time-outs of its own, and none for a name that isn't resolved.

    Args:
        address: an URL; by default that of the hub.
    """
    from huggingface_hub import constants

    target = address or constants.ENDPOINT
    found: list[str | None] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(target, method="HEAD"), timeout=TIME_OUT).close()
            found.append(None)
        except urllib.error.HTTPError:
            found.append(None)  # it answers; what it says of a file is told where the file is asked for
        except Exception as error:
            found.append(first_line(getattr(error, "reason", None) or error) if isinstance(error, OSError)
                         else first_line(error))  # fmt: skip

    asked = threading.Thread(target=ask, daemon=True)
    asked.start()
    asked.join(TIME_OUT)
    if found:
        return None if found[0] is None else f"{target} can't be reached ({found[0]})"
    return f"{target} doesn't answer within {TIME_OUT:.0f} seconds"
