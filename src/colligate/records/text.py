"""Text of the user's, shown as it stands: nothing in a name or value may steer a terminal, a page or a spreadsheet."""

import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

_JOINERS = "\u200c\u200d"
"""Zero-width characters that words of some scripts, and emoji, are written with."""
FORMULA = ("=", "+", "-", "@")
"""What a cell begins with that a spreadsheet takes as a formula."""


@lru_cache(maxsize=4096)
def _steers(character: str) -> bool:
    """Whether it is a control, a mark that turns or hides what follows, a line of its own, or half a character."""
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and character not in _JOINERS


def inert(text: str, *, lines: bool = False) -> str:
    r"""Text in which all that steers is written out: escapes of terminals, right-to-left marks, line separators.

    Args:
        text: whatever a user could have typed.
        lines: whether the line breaks are ours, and stay.

    Example:
        >>> print(inert("red\x1b[2J\u202ecube\n"))
        red\x1b[2J\u202ecube\n
        >>> inert("snow\N{LATIN SMALL LETTER E WITH ACUTE}, \U0001f9ca")
        'snowé, 🧊'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if not _steers(character) or (lines and character == "\n")
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def inert_json(content: Any) -> Any:
    r"""JSON-able content with all its texts inert, keys too; line breaks stay, which a page shows as spaces.

    Example:
        >>> inert_json({"a\x07": ["b\x1b", 1, None]})
        {'a\\x07': ['b\\x1b', 1, None]}
    """
    if isinstance(content, str):
        return inert(content, lines=True)
    if isinstance(content, Mapping):
        return {inert_json(key): inert_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [inert_json(one) for one in content]
    return content


def formula_note(name: str, cells: Iterable[str]) -> str | None:
    """What to tell of a CSV file in which cells look like formulas; None where none do.

    The cells are written as they are, since other programs read them; a spreadsheet would compute them.

    Args:
        name: of the file.
        cells: its texts; numbers are no formulas.

    Example:
        >>> formula_note("labels.csv", ["red", "-1.5", "=1+1", "@home", "=1+1"])
        "2 words of labels.csv begin with =, +, - or @ ('=1+1', ...): import it into a spreadsheet as text, ..."
        >>> formula_note("labels.csv", ["red", "-1"]) is None
        True
    """
    found = [cell for cell in dict.fromkeys(cells) if cell.startswith(FORMULA) and not _is_number(cell)]
    if not found:
        return None
    many = "1 word" if len(found) == 1 else f"{len(found)} words"
    begin = "begins" if len(found) == 1 else "begin"
    first = found[0] if len(found[0]) <= 40 else found[0][:37] + "..."
    more = ", ..." if len(found) > 1 else ""
    return (
        f"{many} of {name} {begin} with =, +, - or @ ({first!r}{more}): import it into a spreadsheet as text, "
        "not formulas."
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def verbatim(text: object) -> "Text":
    """Text that stands as it was written: no markup, no names of emoji, nothing that steers the terminal."""
    from rich.text import Text

    return Text(inert(str(text)))
