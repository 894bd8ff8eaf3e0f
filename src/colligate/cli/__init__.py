"""The command line: names of library functions, no logic.

colligate study EMBEDDER --scenes WORLD      every measurement, one record, one page
colligate probe|decompose|edit|remove|information EMBEDDER --scenes WORLD      one of them
colligate recognize|foils|repair EMBEDDER --scenes WORLD      two towers: matching by words, and its repair
colligate embed|render|check-model|check-data|report|reproduce|runs|worlds|embedders
"""

import os
import sys
from collections.abc import Sequence

from colligate.cli.terminal import Verb, complain, of_system, of_work, say, stopped
from colligate.cli.verbs import MEASUREMENTS as MEASUREMENTS
from colligate.cli.verbs import verbs

ENVIRONMENT = {
    "COLLIGATE_STORE": "Folder of embedded vectors; default: ~/.cache/colligate.",
    "COLLIGATE_THREADS": "Threads that fit and train; default: 1. A record names them, since they decide last digits.",
    "COLLIGATE_DEBUG": "1: show the traceback of a failure.",
}
"""Variable -> what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code: 0 done, 1 the work failed, 2 the call was wrong.

    With COLLIGATE_DEBUG=1 in the environment, the traceback of a failure stands before its sentence.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        complain(stopped(words))
        return 1
    except BrokenPipeError:  # the reader of a pipe has gone; nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
        return 0
    except (ValueError, FileNotFoundError, ImportError) as error:
        complain(of_system(error) if isinstance(error, OSError) else str(error))
        return 2
    except OSError as error:
        complain(of_system(error))
        return 1
    except (RuntimeError, MemoryError) as error:
        complain(of_work(error))
        return 1


def _run(words: list[str]) -> int:
    known = verbs()
    if not words or words[0] in ("-h", "--help"):
        say(_help(known))
        return 0 if words else 2
    if words[0] == "--version":
        from colligate import __version__

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
    return "\n".join(lines)
