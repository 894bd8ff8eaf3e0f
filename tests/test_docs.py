"""The documentation doesn't drift: links lead somewhere, the layers drawn are the layers enforced, ids are listed."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from colligate.binding import object_table
from colligate.embeddings import Embeddings
from colligate.geometry.editing import edit_rows
from colligate.geometry.measurements import (
    attention_rows,
    decomposition_rows,
    information_rows,
    probe_rows,
    removal_rows,
)
from colligate.geometry.subject import Settings, Subject
from colligate.scenes.space import ConceptSpace, Scenes
from colligate.scenes.splits import ByScene

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
        ("edit.retrieval.shape.orthogonal", False),
        ("edit.strength.concepts", False),
        ("interference.overshoot.avg", False),
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


SPACE = ConceptSpace(color=["red", "green", "blue"], shape=["cube", "ball", "cone"])
QUESTION_1 = ("probe.", "r2.", "retrieval.", "reconstruction.", "edit.", "interference.", "removal.", "information.",
              "ties.")  # fmt: skip


@pytest.fixture(scope="module")
def produced() -> set[str]:
    """Ids of every row of question 1 on a world that has what each of them needs: singles, shared values, tokens."""
    subject = subject_of(Scenes.join([SPACE.all_scenes(2), SPACE.all_scenes(1)]))
    measured = (probe_rows, decomposition_rows, edit_rows, removal_rows, information_rows)
    rows = [row for measure in measured for row in measure(subject)]
    unbound = subject_of(ConceptSpace(letter=list("abcdef")).all_scenes(2))  # says why not, under the same ids
    count = len(unbound.scenes)
    told = attention_rows(unbound, torch.ones(count, 1, 2), torch.ones(count, 1, dtype=torch.bool))
    half = half_bound()
    return {row.id for row in [*rows, *told, *probe_rows(half), *information_rows(half)]}


def half_bound() -> Subject:
    """Objects of every other colour bind, so that values can be told apart by how much they tell."""
    scenes = ConceptSpace(color=6, shape=4).all_scenes(2)
    generator = torch.Generator().manual_seed(0)
    colours, shapes, objects = (torch.randn(size, 48, generator=generator) for size in (6, 4, 24))
    bound = objects * (torch.arange(24) // 4 % 2 == 0)[:, None]
    each = colours[scenes.values[..., 0]] + shapes[scenes.values[..., 1]] + bound[scenes.objects]
    return Subject.of(Embeddings(each.sum(1), scenes), ByScene(fit=0.6, validation=0.2), Settings())


def subject_of(scenes: Scenes) -> Subject:
    vectors = object_table(scenes.space, 2, 24, 0)(scenes.values).float()
    return Subject.of(Embeddings(vectors, scenes), ByScene(fit=0.6, validation=0.2), Settings())


def test_every_id_that_is_produced_is_documented(produced: set[str], documented: Callable[[str], bool]):
    assert {id for id in produced if not documented(id)} == set()
    assert len(produced) > 300


def documented_names(page: Path) -> list[str]:
    """Every id of question 1 that the page lists, choices and options written out, placeholders left."""
    listed = re.findall(r"^\| `([^`]+)`", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [name for pattern in listed for name in written_out(pattern) if name.startswith(QUESTION_1)]


def written_out(pattern: str) -> list[str]:
    """An id with choices and options -> all ids that it stands for."""
    if found := re.search(r"\[([^\]]*)\]", pattern):
        choices = ["", found[1]]
    elif found := re.search(r"\{([^}]*)\}", pattern):
        choices = [choice.strip() for choice in found[1].split(",")]
    else:
        return [pattern]
    return [name for one in choices for name in written_out(pattern[: found.start()] + one + pattern[found.end() :])]


def test_every_id_that_is_documented_is_produced(produced: set[str]):
    names = documented_names(ROOT / "docs" / "metrics.md")
    assert len(names) > 200
    stand_for = {"<concept>": (*SPACE.names, "object"), "<shared>": SPACE.names}

    def there(name: str) -> bool:
        held = re.search(r"<[^>]+>", name)
        return name in produced if held is None else any(
            there(name.replace(held[0], one)) for one in stand_for[held[0]]
        )  # fmt: skip

    assert [name for name in names if not there(name)] == []


def test_choices_and_options_are_written_out():
    assert written_out("a.{b, c}[.d]") == ["a.b", "a.c", "a.b.d", "a.c.d"]
    assert written_out("a[.{b, c}]") == ["a", "a.b", "a.c"]
