"""Inject faults by class, and print how many were tried and how many promises failed.

python tests/faults/campaign.py                      all of it, some minutes
python tests/faults/campaign.py --short              a few of each class
python tests/faults/campaign.py --only kills damage  some classes
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # processes are forked: no thread may be about
sys.path.insert(0, str(Path(__file__).parent))

from damage import damaged, foreign, shards
from edges import files, models, signals, streams
from injecting import Injection, by_turns
from kills import full, killed, writers

CLASSES: dict[str, tuple[str, Callable[[Path], Iterator[Injection]]]] = {
    "kills": ("killed at a rename, fsync or removal; called again", killed),
    "disks": ("a full disk, a read-only store", full),
    "writers": ("two and four writers, one of them killed", writers),
    "damage": ("a file of a run harmed x each verb", damaged),
    "records": ("records of others", foreign),
    "shards": ("stored vectors harmed or misplaced", shards),
    "streams": ("streams closed, full, gone, ASCII", streams),
    "signals": ("Ctrl-C and SIGTERM", signals),
    "files": ("hostile files", files),
    "models": ("hostile models", models),
}
"""Name of a class -> what it injects, and the injections."""
SHORT = 3
"""Injections of each class in the short form."""


def prepare(base: Path) -> None:
    """Import what calls will need, and write the small world that they measure."""
    import importlib

    import numpy as np

    from colligate.binding import object_table
    from colligate.scenes.space import ConceptSpace
    from colligate.scenes.worlds import World, labels_bytes

    for module in (
        "cli",
        "api",
        "verbs.battery",
        "verbs.compare",
        "training.sweep",
        "report.page",
        "cli.verbs",
        "cli.tables",
        "crossmodal.foils",
    ):
        importlib.import_module(f"colligate.{module}")
    for module in (
        "torch._dynamo",
        "rich.table",
        "rich.progress",
        "tyro",
        "plotly.graph_objects",
        "pandas",
        "sklearn.linear_model",
    ):
        importlib.import_module(module)
    space = ConceptSpace(color=["red", "green", "blue"], shape=["cube", "ball", "cone"])
    scenes = space.all_scenes(2)
    (base / "labels.csv").write_bytes(labels_bytes(World("small", scenes)))
    np.save(base / "vectors.npy", object_table(space, 2, 24, 0)(scenes.values).float().numpy())


def campaign(names: list[str], *, short: int | None, say: Callable[[str], None]) -> int:
    """Try the injections of some classes, print the table, and give the number of failures."""
    started, failures, tried, rows = time.monotonic(), list[str](), 0, list[str]()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        base = Path(folder)
        prepare(base)
        for name in names:
            meaning, inject = CLASSES[name]
            every = list(inject(base))
            some = every if short is None else list(by_turns(every, short))
            failed = 0
            for i, one in enumerate(some):
                at = base / "tries" / f"{name}-{i}"
                at.mkdir(parents=True)
                try:
                    wrong = one.check(at)
                except Exception as error:
                    wrong = [f"the check itself failed: {type(error).__name__}: {error}"]
                failed += bool(wrong)
                if wrong:
                    failures.append(f"{one.name}: {'; '.join(wrong)}")
                    sys.stderr.write(f"FAILED  {failures[-1]}\n")
                    sys.stderr.flush()
                shutil.rmtree(at, ignore_errors=True)
            tried += len(some)
            rows.append(f"| {name} | {meaning} | {len(some)} | {failed} |")
            sys.stderr.write(f"{name}: {len(some)} injections, {failed} failures, {time.monotonic() - started:.0f} s\n")
    say("| class | what is injected | injections | failures |\n|---|---|---|---|")
    for row in rows:
        say(row)
    say(f"| all | | {tried} | {len(failures)} |")
    return len(failures)


def _said(line: str) -> None:
    sys.stdout.write(line + "\n")


def run(words: list[str] | None = None) -> int:
    """Run as a script; exit code 1 where a promise failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help=f"{SHORT} injections of each class")
    parser.add_argument("--each", type=int, default=None, help="so many injections of each class")
    parser.add_argument("--only", nargs="+", choices=list(CLASSES), default=list(CLASSES), help="classes")
    asked = parser.parse_args(words)
    failures = campaign(asked.only, short=SHORT if asked.short else asked.each, say=_said)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(run())
