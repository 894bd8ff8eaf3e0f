"""The notebooks in examples/ run from top to bottom, and show what they say."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries that run notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLLIGATE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook: Any = nbformat.read(path, 4)
    kept = json.loads(path.read_text(encoding="utf-8"))
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    for now, then in zip(notebook.cells, kept["cells"], strict=True):
        if then["cell_type"] == "code":
            assert then["outputs"] or not _shown(now), "the notebook was kept without what it shows; run it and save it"
    assert [one.name for one in tmp_path.iterdir() if one.name not in ("store", "ipython")] == []  # nothing is left


def _shown(cell: Any) -> bool:
    return any(output["output_type"] in ("execute_result", "display_data") for output in cell["outputs"])
