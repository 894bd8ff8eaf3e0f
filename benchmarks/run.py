"""The paper's recipes beside ours, timed: `make bench`, or `python benchmarks/run.py --quick` for a look.

The recipes are written from the paper's description, protocol `paper`. Each benchmark runs in a process of its own, so
that its peak memory is its own. Ratios hold within one run; absolute seconds depend on the machine and its load.
"""

import argparse
import dataclasses
import importlib
import json
import subprocess
import sys

from measuring import Line, Stopwatch

BENCHMARKS = ("decomposition", "probes", "measurements", "complexity", "training", "crossmodal")


def seconds(watch: Stopwatch | None) -> str:
    """Wall and processor time."""
    return "" if watch is None else f"{watch.wall:,.1f} s ({watch.cpu:,.1f} cpu)"


def table(lines: list[Line]) -> str:
    """The lines as a Markdown table, notes below it."""
    rows = ["| work | the paper's recipe | ours | ratio wall (cpu) | target |", "|---|---|---|---|---|"]
    notes: list[str] = []
    for line in lines:
        ratio = ""
        if line.recipe is not None:
            ratio = f"{line.recipe.wall / line.ours.wall:,.0f}x ({line.recipe.cpu / max(line.ours.cpu, 1e-9):,.0f}x)"
        rows.append(f"| {line.work} | {seconds(line.recipe)} | {seconds(line.ours)} | {ratio} | {line.target} |")
        if line.note:
            notes.append(f"- {line.work}: {line.note}")
    return "\n".join([*rows, "", *notes])


def in_own_process(name: str, *, quick: bool) -> list[Line]:
    """Run one benchmark and read its lines."""
    command = [sys.executable, __file__, "--child", name, *(["--quick"] if quick else [])]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    watches = ("ours", "recipe")
    return [
        Line(**{key: Stopwatch(**of) if key in watches and of else of for key, of in json.loads(text).items()})
        for text in out.splitlines()
    ]


def main() -> None:
    """Run the benchmarks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--only", choices=BENCHMARKS, help="one benchmark")
    parser.add_argument("--child", choices=BENCHMARKS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        for line in importlib.import_module(given.child).measure(quick=given.quick):
            print(json.dumps(dataclasses.asdict(line)), flush=True)
        return
    chosen = [given.only] if given.only else BENCHMARKS
    lines = [line for name in chosen for line in in_own_process(name, quick=given.quick)]
    print(table(lines))


if __name__ == "__main__":
    main()
