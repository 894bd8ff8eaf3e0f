"""The campaign of faults: one of each class in the suite, all of it with the long tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "campaign.py"
CLASSES = 10
"""Classes of faults that the script knows."""


def campaign(*words: str) -> str:
    """What the script prints, in a process of its own: it forks, which a process with threads shouldn't."""
    env = {name: value for name, value in os.environ.items() if name != "COLLIGATE_STORE"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False, env=env
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_fault_of_each_class_fails_nothing():
    table = campaign("--each", "1")
    assert f"| all | | {CLASSES} | 0 |" in table


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_whole_campaign_fails_nothing():
    table = campaign()
    tried, failed = table.splitlines()[-1].split("|")[3:5]
    assert int(tried) >= 200
    assert int(failed) == 0
