"""Folders of models with a changed config or header: read, or refused in one sentence; never a library's traceback."""

import importlib.util
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.embedders import load_model

_spec = importlib.util.spec_from_file_location("tiny_models", Path(__file__).parents[1] / "embedders" / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
tiny = _module.tiny

MODELS = {"clip": ("hf", "config.json"), "dinov2": ("hf", "config.json"), "sbert": ("sbert", "config.json"),
          "open_clip": ("open_clip", "open_clip_config.json")}  # fmt: skip

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 200),
    st.sampled_from([10**6, 10**9, 10**13, -(10**9)]),
    st.text(max_size=4),
    st.floats(),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def places(told: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value where another value may stand."""
    inside = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    return [place for key, value in inside for place in ((*before, key), *places(value, (*before, key)))]


def put(told: Any, place: tuple[Any, ...], value: Any) -> None:
    for key in place[:-1]:
        told = told[key]
    told[place[-1]] = value


def opened(name: str) -> None:
    """Load and read a model; what is wrong with it must be one sentence on input."""
    try:
        for kind, tower in load_model(name).towers.items():
            if kind == "text":
                tower.embed(["a red cube"])
    except (ValueError, FileNotFoundError) as error:
        said = str(error)
        assert len(said.splitlines()) == 1, said
        assert len(said) < 1200, said
        assert "Traceback" not in said


def config_of(name: str, tiny: Callable[[str], Path], copy: Path) -> tuple[str, Path]:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tiny(name), copy)
    prefix, file = MODELS[name]
    return f"{prefix}:{copy}", copy / file


def change_a_config(name: str, data: Any, tiny: Callable[[str], Path], copy: Path) -> None:
    named, path = config_of(name, tiny, copy)
    told = json.loads(path.read_text())
    place = data.draw(st.sampled_from(places(told)))
    put(told, place, data.draw(VALUES))
    path.write_text(json.dumps(told))
    opened(named)


def change_a_header(name: str, data: Any, tiny: Callable[[str], Path], copy: Path) -> None:
    named, _ = config_of(name, tiny, copy)
    (path,) = copy.glob("*.safetensors")
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    told = json.loads(whole[8 : 8 + length])
    place = data.draw(st.sampled_from(places(told)))
    put(told, place, data.draw(VALUES))
    header = json.dumps(told).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + whole[8 + length :])
    opened(named)


CHECKS = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,
)
QUICK = settings(max_examples=3, suppress_health_check=CHECKS)
LONG = settings(max_examples=150, suppress_health_check=CHECKS)
every = pytest.mark.parametrize("name", list(MODELS))


@every
@QUICK
@given(data=st.data())
def test_a_changed_config(name: str, data: Any, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    change_a_config(name, data, tiny, tmp_path / "copy")


@pytest.mark.parametrize("name", ["dinov2", "sbert"])
@QUICK
@given(data=st.data())
def test_a_changed_header(name: str, data: Any, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    change_a_header(name, data, tiny, tmp_path / "copy")


@pytest.mark.long
@every
@LONG
@given(data=st.data())
def test_many_changed_configs(name: str, data: Any, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    change_a_config(name, data, tiny, tmp_path / "copy")


@pytest.mark.long
@every
@LONG
@given(data=st.data())
def test_many_changed_headers(name: str, data: Any, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    change_a_header(name, data, tiny, tmp_path / "copy")
