"""How many small faults the tests notice: one is put into a copy of the code, its module's tests run, and so on.

A fault is one operator, comparison, constant or reduction that says something else (`<` for `<=`, `+` for `-`, `all`
for `any`, 1 for 0). Which ones is a seeded choice, the same number for each module. A fault that no test notices
survives.

    python benchmarks/mutants.py                        # all modules
    python benchmarks/mutants.py --only splits --seed 1 # other faults of one of them
    python benchmarks/mutants.py --show                 # what would be tried
"""

import argparse
import ast
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "colligate"


@dataclass(frozen=True)
class Group:
    """Modules, and the tests that are to notice what is wrong in them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Classes and functions that are left as they are."""


GROUPS = {
    "measures": Group(("measures.py",), ("tests/test_measures.py",)),
    "components": Group(
        ("geometry/components.py",), ("tests/geometry/test_components.py", "tests/geometry/test_sums.py")
    ),
    "interventions": Group(("geometry/interventions.py",), ("tests/geometry/test_interventions.py",)),
    "information": Group(("geometry/information.py",), ("tests/geometry/test_information.py",)),
    "recognition": Group(("crossmodal/recognition.py",), ("tests/crossmodal/test_recognition.py",)),
    "splits": Group(
        tuple(f"scenes/splits/{name}.py" for name in ("parts", "by_scene", "by_object", "by_swaps")),
        ("tests/scenes/test_splits.py",),
    ),
}

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
NAMES = {
    "all": "any", "any": "all", "min": "max", "max": "min", "amin": "amax", "amax": "amin", "maximum": "minimum",
    "minimum": "maximum", "sum": "mean", "mean": "sum", "argmax": "argmin", "log": "log1p", "exp": "expm1",
    "zeros_like": "ones_like", "ones_like": "zeros_like", "cumsum": "cumprod", "sqrt": "square", "square": "abs",
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A place in a file, and what stands there instead."""

    path: Path
    line: int
    start: int
    end: int
    now: str
    instead: str

    def applied(self, text: str) -> str:
        """The file with the fault in it."""
        return text[: self.start] + self.instead + text[self.end :]

    def __str__(self) -> str:
        name = self.path.relative_to(SOURCE).as_posix()
        return f"{name}:{self.line}: {' '.join(self.now.split())} -> {' '.join(self.instead.split())}"


def faults(path: Path, without: tuple[str, ...]) -> list[Fault]:
    """Every fault that can be put into a file."""
    text = path.read_text(encoding="utf-8")
    if not text.isascii():
        raise ValueError(f"{path} holds characters beyond ASCII, whose places the parser counts in bytes.")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = list[Fault]()
    for node, instead in _changed(ast.parse(text), without):
        start, end = (starts[row - 1] + column for row, column in _ends(node))
        said = f"({ast.unparse(instead)})"
        if isinstance(instead, ast.Constant | ast.Name):
            said = said[1:-1]
        elif isinstance(node, ast.Attribute) and isinstance(instead, ast.Attribute):
            # Only the name changes: what stands before it keeps its own layout.
            start, said = end - len(text[start:end].rsplit(".", 1)[1]), instead.attr
        found.append(Fault(path, node.lineno, start, end, text[start:end], said))
    return found


def _ends(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _left_alone(node: ast.AST, without: tuple[str, ...]) -> bool:
    """Messages, imports, limits of memory, and guards against faults of ours that nothing right depends on."""
    match node:
        case ast.ClassDef(name) | ast.FunctionDef(name):
            return name in without
        case ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case ast.Assign(targets):  # names in capitals are limits and lists of names
            return all(isinstance(target, ast.Name) and target.id.isupper() for target in targets)
        case ast.keyword(arg):
            return arg == "strict"
        case _:
            return False


def _changed(node: ast.AST, without: tuple[str, ...]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Expressions and what may stand in their place; not in annotations, decorators or what is left alone."""
    if _left_alone(node, without):
        return
    if isinstance(node, ast.expr):
        yield from ((node, instead) for instead in _instead(node))
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "type_params", "bases"}:
            continue
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST):
                yield from _changed(child, without)


def _instead(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in COMPARISONS:
            yield ast.Compare(left, [COMPARISONS[type(operator)]()], [right])
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.And() if isinstance(operator, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(ast.Not() | ast.Invert() | ast.USub(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool() | int() | float() as value):
            yield ast.Constant(_other_number(value))
        case ast.Attribute(value, attr) if attr in NAMES:
            yield ast.Attribute(value, NAMES[attr])
        case ast.Name(id) if id in NAMES:
            yield ast.Name(NAMES[id])
        case _:
            return


def _other_number(value: float) -> float:
    """The other truth value, 1 for 0, 0 for 1, and twice any other number."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 1 - value if value in (0, 1) else 2 * value
    return 2 * value or 1.0


def chosen(group: Group, number: int, seed: int) -> list[Fault]:
    """A seeded choice of faults in these modules."""
    every = [fault for module in group.modules for fault in faults(SOURCE / module, group.without)]
    return sorted(random.Random(seed).sample(every, min(number, len(every))), key=lambda f: (f.path, f.start))


def noticed(tests: tuple[str, ...], source: Path, seconds: int, *, compiled: bool = False) -> bool:
    """Whether these tests fail on this copy of the code, in a process that inherits the libraries loaded here."""
    child = os.fork()
    if child == 0:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        sys.path.insert(0, str(source))
        sys.dont_write_bytecode = (
            not compiled
        )  # kept of the code without a fault alone, so that the rest is not compiled anew
        os.chdir(ROOT)
        import pytest

        status = pytest.main(["-x", "-q", "-n0", "-p", "no:cacheprovider", *tests])
        os._exit(int(status))
    waited = time.monotonic() + seconds
    while time.monotonic() < waited:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return True  # it never ends: that would be noticed


def main() -> None:
    """Try every fault and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(GROUPS), default=list(GROUPS))
    parser.add_argument("--number", type=int, default=10, help="of faults for each module")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--show", action="store_true", help="say what would be tried, and try nothing")
    asked = parser.parse_args()
    if asked.show:
        for name in asked.only:
            for fault in chosen(GROUPS[name], asked.number, asked.seed):
                print(fault)
        return
    import numpy  # what the tests need is loaded once; the package under test must not be
    import pandas
    import scipy
    import torch

    del numpy, pandas, scipy, torch
    assert not any(name.split(".")[0] == "colligate" for name in sys.modules)
    print("| modules | faults | noticed |\n|---|---|---|")
    every, survivors = 0, list[Fault]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name in asked.only:
            group = GROUPS[name]
            tried = chosen(group, asked.number, asked.seed)
            left = survivors_of(group, tried, copy)
            print(f"| {name} | {len(tried)} | {len(tried) - len(left)} |", flush=True)
            every, survivors = every + len(tried), survivors + left
    print(f"| all | {every} | {every - len(survivors)} ({1 - len(survivors) / every:.0%}) |")
    for fault in survivors:
        print(f"- {fault}")


def survivors_of(group: Group, tried: list[Fault], copy: Path) -> list[Fault]:
    """The faults that the tests of a group don't notice in a copy of the code."""
    if noticed(group.tests, copy, 600, compiled=True):
        raise SystemExit(f"Tests fail without any fault: {' '.join(group.tests)}")
    found = list[Fault]()
    for fault in tried:
        target = copy / "colligate" / fault.path.relative_to(SOURCE)
        before = target.stat()
        text = fault.path.read_text(encoding="utf-8")
        target.write_text(fault.applied(text), encoding="utf-8")
        os.utime(target, (before.st_atime, before.st_mtime + 10))  # what was compiled is told by its time
        killed = noticed(group.tests, copy, 300)
        target.write_text(text, encoding="utf-8")
        os.utime(target, (before.st_atime, before.st_mtime))
        if not killed:
            found.append(fault)
        print(f"{'noticed ' if killed else 'SURVIVED'} {fault}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
