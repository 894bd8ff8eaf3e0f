"""The tiny models, built once for the folder."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def _builders() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).parent / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a tiny model by the name of its builder, made when first asked for."""
    builders, root, made = _builders(), tmp_path_factory.mktemp("tiny"), dict[str, Path]()

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = getattr(builders, name)(root / name)
        return made[name]

    return folder
