"""The documentation doesn't drift: links lead somewhere, the layers drawn are the layers enforced, ids are listed."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = page.parent / path if path else page
        if not goal.exists() or (anchor and anchor not in anchors(goal)):
            broken.append(target)
    assert broken == []


def test_the_layers_drawn_are_the_layers_enforced():
    drawn = re.search(r"<!-- layers -->\n```\n(.*?)```", (ROOT / "docs/architecture.md").read_text("utf-8"), re.DOTALL)
    assert drawn, "docs/architecture.md shows the layers in a block after <!-- layers -->"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    enforced = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert [line.split("  ")[0].strip() for line in drawn[1].strip().splitlines()] == [
        layer.replace("(", "").replace(")", "") for layer in enforced
    ]


def test_every_module_stands_in_the_tree():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "colligate"
    modules = [file for file in sorted(source.rglob("*.py")) if file.name != "__init__.py"]
    assert [str(file.relative_to(source)) for file in modules if f"`{file.relative_to(source)}`" not in text] == []


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("probe.concept", True),
        ("probe.concept.joint", True),
        ("probe.object.swap", True),
        ("r2.object+pos.least_squares", True),
        ("r2.objects_from_concepts", True),
        ("retrieval.object.avg+pos.up_to_order", True),
        ("edit.retrieval.avg+pos.shared.color", True),
        ("edit.retrieval.shape.avg.different", True),
        ("removal.object.permuted.frozen.concept", True),
        ("information.quadratic.bits", True),
        ("normalized.probe.object", True),
        ("normalized.probe", False),
        ("r2.object.guess", False),
        ("probe", False),
    ],
)
def test_metric_ids_are_listed(documented: Callable[[str], bool], name: str, listed: bool):
    assert documented(name) is listed
