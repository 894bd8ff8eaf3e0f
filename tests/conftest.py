"""What every test shares: repeatable draws, no network, no accelerator assumed.

Nothing of colligate is imported here: the shape checks must be installed first (`--jaxtyping-packages`).
"""

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests are small: threads that wait for each other cost tenfold

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, max_examples=40)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs an accelerator where there is none."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing:
        import torch

        if not torch.cuda.is_available():
            for item in needing:
                item.add_marker(pytest.mark.skip(reason="needs an accelerator, and this machine has none"))


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Refuse every connection that leaves this machine: nothing may touch the network unless asked."""
    connect = socket.socket.connect
    here = {"127.0.0.1", "::1", "localhost"}

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family in {socket.AF_INET, socket.AF_INET6} and address[0] not in here:
            raise OSError(f"a test tried to reach {address}; tests stay on this machine")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", local_only)
        yield


@pytest.fixture(scope="session")
def documented() -> Callable[[str], bool]:
    """Whether an id of a table row is listed in docs/metrics.md.

    There, an id stands in backticks at the start of a table row; `<word>` is any one part or more, `{a,b}` one of
    several, `[.x]` may be there or not.
    """
    listed = re.findall(r"^\| `([^`]+)`", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    patterns = [re.compile(_as_regex(pattern)) for pattern in listed]

    def listed_there(name: str) -> bool:
        plain = name.removeprefix("normalized.").removeprefix("rescaled.")
        return any(pattern.fullmatch(plain) for pattern in patterns)

    return listed_there


@pytest.fixture(scope="session")
def rewrite() -> Callable[..., None]:
    """Write a finished run again with other rows or facts, whole and sealed as any run."""
    from colligate.records import open_run, write_record

    def again(folder: Path, *, rows: Any = None, **facts: object) -> None:
        run = open_run(folder)
        write_record(folder, {**run.record, **facts}, run.rows if rows is None else rows, run.figures, run.arrays)

    return again


def _as_regex(pattern: str) -> str:
    parts = re.split(r"(<[^>]+>|\{[^}]+\}|\[|\])", pattern)
    turned = []
    for part in parts:
        if part.startswith("<"):
            turned.append(r"[^.]+")
        elif part.startswith("{"):
            turned.append("(?:" + "|".join(re.escape(choice.strip()) for choice in part[1:-1].split(",")) + ")")
        elif part in {"[", "]"}:
            turned.append("(?:" if part == "[" else ")?")
        else:
            turned.append(re.escape(part))
    return "".join(turned)
