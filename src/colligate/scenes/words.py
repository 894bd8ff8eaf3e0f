"""When two written words are one, and when they only look it.

Unicode writes `é` as one sign or as two; both are the same text (Unicode Standard Annex 15) and are read as one word.
Words that differ in case, in blanks or in letters of other scripts stay two, and the reader is told.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

# Cyrillic and Greek letters that print as Latin ones: the common part of Unicode's table of confusables (UTS 39).
_LOOK_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u051b\u04bb\u03bf\u03bd\u03b1\u03b9\u03c1\u03c5\u0131\u043a\u043c\u0442\u0432\u043d\u03ba\u03c4",
    "aeopcyxijsdlhovaipuikmtbhkt",
)


def composed(text: str) -> str:
    """The text in Unicode's composed form (NFC), in which equal words are equal strings.

    Example:
        >>> composed("fonce" + chr(0x301)) == "fonc" + chr(0xE9)
        True
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def looks(text: str) -> str:
    """What is left of a word once case, blanks, invisible signs and look-alike letters make no difference.

    Example:
        >>> looks("Dark  Red") == looks("dark r" + chr(0x435) + "d") == "dark red"
        True
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    seen = "".join(sign for sign in plain if unicodedata.category(sign) not in {"Cf", "Cc"} or sign.isspace())
    return re.sub(r"\s+", " ", seen).strip().translate(_LOOK_ALIKE)


def look_alikes(words: Iterable[str]) -> list[Sequence[str]]:
    """Groups of different words that look the same.

    Example:
        >>> look_alikes(["red", "Red", "blue"])
        [['Red', 'red']]
    """
    groups: dict[str, list[str]] = {}
    for word in sorted(words):
        groups.setdefault(looks(word), []).append(word)
    return [group for group in groups.values() if len(group) > 1]
