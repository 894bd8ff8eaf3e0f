"""The tiny models of tests/embedders, here too."""

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("tiny_models", Path(__file__).parents[1] / "embedders" / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
tiny = _module.tiny
