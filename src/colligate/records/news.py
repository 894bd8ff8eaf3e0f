"""What a user should know while work goes on, and that stops nothing."""

import sys
from contextlib import suppress


def tell(sentence: str) -> None:
    """Say a sentence on stderr, as the command line says its own; where nobody listens, nothing is said.

    Args:
        sentence: plain text; characters that steer a terminal are shown, not obeyed.
    """
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)
    with suppress(OSError, ValueError, AttributeError):  # stderr may be closed, broken or not there at all
        sys.stderr.write(f"colligate: {plain}\n")
        sys.stderr.flush()
