"""Every command that a page shows is one that the command line takes: its verb, its flags and their values."""

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from colligate import options
from colligate.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^ *```[a-z]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"`(colligate [^`]+)`")


class Parsed(BaseException):
    """Thrown once a verb has its config, so that nothing is run."""


def written_out(block: str) -> list[str]:
    """The lines of a block, with the variables that it sets put in."""
    given = {name: shlex.split(value)[0] for name, value in re.findall(r"^ *([A-Z]+)=(.+)$", block, re.MULTILINE)}
    return [re.sub(r"\$([A-Z]+)", lambda found: given.get(found[1], found[0]), line) for line in block.splitlines()]


def commands(page: str) -> list[list[str]]:
    """Words of every command with arguments, in code blocks, indented lines and code spans."""
    lines = [line for block in FENCE.findall(page) for line in written_out(block.replace("\\\n", " "))]
    rest = FENCE.sub("", page)
    lines += [line for line in rest.splitlines() if line.startswith("    ")]
    lines += [span.replace("\n", " ") for span in SHOWN.findall(rest)]
    found = list[list[str]]()
    for line in lines:
        if not line.strip().startswith("colligate ") or "|" in line.split("#")[0]:
            continue
        words = shlex.split(line.strip(), comments=True)[1:]
        if len(words) > 1 and re.fullmatch(r"[a-z-]+", words[0]):
            found.append(words)
    return found


SHOWN_COMMANDS = {
    f"{page.name}: {' '.join(words)}": words for page in PAGES for words in commands(page.read_text("utf-8"))
}


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs stop once their words are a config."""

    def parse(*given: Any) -> Any:
        raise Parsed(options.parse(*given))

    for name in ("verbs", "crossmodal_verbs", "train_verbs"):
        monkeypatch.setattr(import_module(f"colligate.cli.{name}"), "parse", parse)


@pytest.mark.usefixtures("only_parsed")
@pytest.mark.parametrize("name", SHOWN_COMMANDS)
def test_the_command_is_taken(name: str, capsys: pytest.CaptureFixture[str]):
    try:
        code = main(SHOWN_COMMANDS[name])
    except Parsed:
        return
    raise AssertionError(f"{name} gives {code}: {capsys.readouterr().err}")


@pytest.mark.usefixtures("only_parsed")
def test_a_wrong_flag_would_be_found():
    assert main(["study", "oracle:no-binding", "--nonsense", "1"]) == 2


def test_commands_are_found_in_blocks_spans_and_lines():
    block = "```\nX='--x 1'\ncolligate a b \\\n  --c d   # why\ncolligate a $X\n```\n"
    page = block + "as `colligate e\nf`, `colligate g`\n\n    colligate h i\n"
    assert commands(page) == [["a", "b", "--c", "d"], ["a", "--x", "1"], ["h", "i"], ["e", "f"]]


def test_every_value_of_the_paper_has_its_command():
    """Rows of the tables that quote numbers name a command, and one that was checked above."""
    page = (ROOT / "docs" / "paper-map.md").read_text("utf-8")
    tables = re.findall(r"### Table.*?(?=\n#|\Z)", page, re.DOTALL)
    assert len(tables) == 4
    for table in tables:
        rows = [row for row in re.findall(r"^\|(.+)\|$", table, re.MULTILINE)[2:] if re.search(r"\.\d|unknown", row)]
        lacking = [row for row in rows if "`colligate " not in row]
        assert lacking == []
