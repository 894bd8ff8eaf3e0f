"""Importing does nothing but import: no output, no random draw, no network, no library before it is used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "colligate"

HEAVY = (
    "PIL", "huggingface_hub", "matplotlib", "mitsuba", "open_clip", "pandas", "playwright", "plotly", "pyarrow", "ray",
    "sentence_transformers", "sklearn", "torchvision", "transformers", "xgboost",
)  # fmt: skip

CHECK = """
import contextlib, importlib, io, json, logging, os, random, signal, socket, sys, warnings

# What the foundation stands on, loaded first: only what comes on top of it is colligate's doing.
import jaxtyping, numpy, torch

modules, heavy = json.loads(sys.argv[1]), set(json.loads(sys.argv[2]))

def no_network(*args, **kwargs):
    raise OSError("network at import")

socket.socket.connect = no_network

def state():
    return {
        "torch generator": torch.get_rng_state().numpy().tobytes(),
        "numpy generator": repr(numpy.random.get_state()),
        "random generator": random.getstate(),
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "logging": (list(logging.root.handlers), logging.root.level),
        "warning filters": list(warnings.filters),
        "interrupt handler": signal.getsignal(signal.SIGINT),
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
    }

def packages():
    return {name.partition(".")[0] for name in sys.modules}

found = {}
for module in modules:
    before, loaded, said = state(), packages(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        importlib.import_module(module)
    after, new = state(), packages() - loaded
    found[module] = {
        "changed": [name for name in before if before[name] != after[name]],
        "said": said.getvalue(),
        "heavy": sorted(new & heavy),
        "third party": sorted(new - set(sys.stdlib_module_names) - {module.partition(".")[0]}),
    }
print(json.dumps(found))
"""


def check(modules: list[str], path: Path = SOURCE.parent) -> dict[str, dict[str, object]]:
    """Import the modules one after the other in a fresh interpreter and report what else each did."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHECK, json.dumps(modules), json.dumps(HEAVY)],
        capture_output=True,
        text=True,
        cwd=path,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return json.loads(run.stdout)


def all_modules() -> list[str]:
    names = []
    for file in sorted(SOURCE.rglob("*.py")):
        parts = ("colligate", *file.relative_to(SOURCE).with_suffix("").parts)
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, object]]:
    """What importing each module did, `colligate` itself first."""
    return check(sorted(all_modules()))


def test_colligate_loads_torch_and_numpy_and_nothing_else(found: dict[str, dict[str, object]]):
    assert found["colligate"] == {"changed": [], "said": "", "heavy": [], "third party": []}


def test_every_module_imports_quietly(found: dict[str, dict[str, object]]):
    loud = {
        name: {what: facts[what] for what in ("changed", "said", "heavy") if facts[what]}
        for name, facts in found.items()
        if facts["changed"] or facts["said"] or facts["heavy"]
    }
    assert loud == {}


def test_the_check_sees_a_module_that_does_something(tmp_path: Path):
    lines = {
        "prints": "print('hello')",
        "draws": "import torch; torch.rand(1)",
        "configures": "import logging, os; logging.basicConfig(); os.environ['X'] = '1'",
        "loads": "import PIL.Image",
    }
    for name, line in lines.items():
        (tmp_path / f"{name}.py").write_text(line, encoding="utf-8")
    found = check(list(lines), tmp_path)
    assert found["prints"]["said"] == "hello\n"
    assert found["draws"]["changed"] == ["torch generator"]
    assert found["configures"]["changed"] == ["environment", "logging"]
    assert found["loads"]["heavy"] == ["PIL"]


def test_every_folder_of_modules_is_a_package():
    folders = {file.parent for file in SOURCE.rglob("*.py")}
    assert [str(f.relative_to(SOURCE)) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


def test_no_module_is_named_after_nothing():
    vague = {"utils", "util", "helpers", "common", "core", "base", "types", "misc"}
    assert [name for name in all_modules() if set(name.split(".")) & vague] == []
