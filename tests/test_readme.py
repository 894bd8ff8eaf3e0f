"""The README is run: its Python, its marked shell commands, what it says they print, its links.

A comment on the line before a block says what happens with it:

    (none)            Python runs; shell is only shown
    <!-- test -->     shell runs too
    <!-- long -->     runs, in `make test-long` only
    <!-- output -->   is what the block before prints (`...` stands for anything)

Every block runs by itself in an empty folder.
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FENCE = re.compile(
    r"^(?:<!-- *(?P<mark>[a-z]+) *-->\n)?```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    mark: str
    expected: str | None = None

    @property
    def runs(self) -> bool:
        return self.language == "python" or (self.language == "bash" and self.mark in {"test", "long"})


def blocks(markdown: str) -> list[Block]:
    found: list[Block] = []
    for match in FENCE.finditer(markdown):
        mark, text = match["mark"] or "", match["text"]
        if mark == "output":
            last = found.pop()
            found.append(Block(last.language, last.text, last.line, last.mark, expected=text))
        else:
            found.append(Block(match["language"], text, markdown[: match.start("text")].count("\n"), mark))
    return found


def run(block: Block, folder: Path) -> str:
    bash = shutil.which("bash") or "bash"
    command = [sys.executable, "-W", "error", "-c"] if block.language == "python" else [bash, "-euo", "pipefail", "-c"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [*command, block.text],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "120", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"README line {block.line}:\n{block.text}\n{done.stdout}{done.stderr}"
    return done.stdout


def prints(block: Block, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return block.expected is None or doctest.OutputChecker().check_output(block.expected, printed, flags)


RUNNABLE = [block for block in blocks(README.read_text(encoding="utf-8")) if block.runs]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"line{block.line}", marks=[pytest.mark.long] if block.mark == "long" else [])
        for block in RUNNABLE
    ],
)
def test_block_runs_and_prints_what_the_readme_says(block: Block, tmp_path: Path):
    printed = run(block, tmp_path)
    assert prints(block, printed), f"README line {block.line} says\n{block.expected}\nbut it printed\n{printed}"


def test_readme_shows_python_that_runs():
    assert any(block.language == "python" for block in RUNNABLE)


def test_make_targets_in_the_readme_exist():
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README.read_text(encoding="utf-8"), re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


SAMPLE = """
```python
print(1 + 1)
```

<!-- output -->
```
2
```

```bash
make demo
```

<!-- test -->
```bash
echo hello | tr h j
false | true
```
"""


def test_blocks_are_found_with_their_marks():
    first, shown, marked = blocks(SAMPLE)
    assert (first.language, first.line, first.expected, first.runs) == ("python", 2, "2\n", True)
    assert (shown.text, shown.runs) == ("make demo\n", False)
    assert (marked.mark, marked.runs) == ("test", True)


def test_a_wrong_output_and_a_failing_command_are_seen(tmp_path: Path):
    first, _, marked = blocks(SAMPLE)
    assert prints(first, run(first, tmp_path))
    assert not prints(first, "3\n")
    with pytest.raises(AssertionError, match="README line"):
        run(marked, tmp_path)  # `false | true` fails under pipefail
