"""The command line: names of library functions, no logic.

colligate study EMBEDDER --scenes WORLD      every measurement, one record, one page
colligate probe|decompose|edit|remove|information EMBEDDER --scenes WORLD      one of them
colligate recognize|foils|repair EMBEDDER --scenes WORLD      two towers: matching by words, and its repair
colligate embed|render|check-model|check-data|report|reproduce|runs|worlds|embedders
"""

import errno
import signal
import sys
from collections.abc import Callable, Sequence

from colligate.cli.streams import outlets, stoppable
from colligate.cli.terminal import (
    Verb,
    complain,
    of_system,
    of_work,
    plain_warnings,
    say,
    stopped,
)
from colligate.cli.verbs import MEASUREMENTS as MEASUREMENTS
from colligate.cli.verbs import verbs
from colligate.options import HelpShown

ENVIRONMENT = {
    "COLLIGATE_STORE": "Folder of embedded vectors; default: ~/.cache/colligate.",
    "COLLIGATE_THREADS": "Threads that fit and train; default: 1. A record names them, since they decide last digits.",
    "COLLIGATE_DEBUG": "1: show the traceback of a failure.",
}
"""Variable -> what it does."""


EXITS = {
    0: "Done; also where the reader of a pipe had enough before the end.",
    1: "The work failed: our fault, a damaged file of a run, a full disk, numbers that aren't reproduced, a bad model.",
    2: "The call or its input is wrong: one sentence says what, where and what to do.",
    130: "Stopped by Ctrl-C; what was finished is kept.",
    143: "Stopped by SIGTERM; what was finished is kept.",
}
"""Exit code -> what it means."""
BREAKS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors of the system that no other call mends."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code, as `EXITS` lists them.

    Nothing that becomes of stdout or stderr ends the work: it is done and kept, and then what couldn't be printed is
    told. With COLLIGATE_DEBUG=1 in the environment, the traceback of a failure stands before its sentence.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with outlets() as out, plain_warnings(), stoppable() as signalled:
        code = _code(words, signalled)
        out.flush()
        if out.problem is not None:
            reason = (out.problem.strerror or str(out.problem)).lower()
            complain(f"Not all that was found could be printed ({reason}); what the work wrote is kept.")
            code = code or 1
    return code


def _code(words: list[str], signalled: Callable[[], int | None]) -> int:
    try:
        return _run(words)
    except HelpShown:
        return 0
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        number = signalled()  # libraries may turn it into an error of their own
        if number is not None or isinstance(error, KeyboardInterrupt):
            complain(stopped(words))
            return 128 + (number or signal.SIGINT)
        return _failed(error)


def _failed(error: Exception | SystemExit) -> int:
    """Complain of an error, and give its exit code."""
    if isinstance(error, SystemExit):
        complain("Code that was called ended the program (sys.exit) before the work was done; take that call out.")
        return 1
    if isinstance(error, OSError):
        complain(of_system(error))
        ours = error.errno is None and not isinstance(error, FileNotFoundError)
        return 1 if ours or error.errno in BREAKS else 2
    if isinstance(error, ValueError | ImportError):
        complain(str(error))
        return 2
    complain(of_work(error))
    return 1


def _run(words: list[str]) -> int:
    known = verbs()
    if not words or words[0] in ("-h", "--help"):
        say(_help(known))
        return 0 if words else 2
    if words[0] == "--version":
        from colligate.version import __version__

        say(__version__)
        return 0
    if words[0] not in known:
        raise ValueError(f"There is no verb {words[0]!r}; choose one of {', '.join(known)}.")
    return known[words[0]][0](words[1:])


def _help(known: dict[str, Verb]) -> str:
    lines = ["Does an embedding model know which values belong to the same object?", "", "colligate VERB ...", ""]
    lines += [f"  {verb:<13} {question}" for verb, (_, question) in known.items()]
    lines += ["", "colligate VERB --help lists the options of a verb.", "For a start:", ""]
    lines += ["  colligate study sbert:all-MiniLM-L6-v2 --scenes text8x8", "", "In the environment:", ""]
    lines += [f"  {name:<18} {meaning}" for name, meaning in ENVIRONMENT.items()]
    lines += ["", "Exit codes:", ""]
    lines += [f"  {code:<18} {meaning}" for code, meaning in EXITS.items()]
    return "\n".join(lines)
