"""Feeding readers with mutated files: only errors of input may escape, within limits of time and memory.

A reader is one entry in `READERS` of `test_readers.py`: a function that reads a file, and files that it reads well.
Mutations cut, repeat, overwrite and insert bytes of those, or write numbers and words at which readers stumble. A block
of files is read in a process of its own, whose address space is limited and which is ended if one file takes too long.
"""

import faulthandler
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

SECONDS = 5
"""That reading one file may take, on a machine that does nothing else; waiting for a processor isn't counted."""
MEMORY = 2 * 1024**3
"""Bytes that reading may take beyond what the process held before."""
STUMBLES = (
    b"\0", b"\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n", b'"', b",", b"{", b"[" * 200, b"}", b"null", b"NaN",
    b"-1", b"1e999", b"00", b"9" * 30, b"\x80\x04", b"PK\x03\x04", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"../",
    b"\xff" * 8, b"\xe2\x80\xa8", b"e\xcc\x81", b"\xef\xbb\xbf", b"%!PS", b" " * 100,
)  # fmt: skip
"""Pieces that are inserted or written over others."""


@dataclass(frozen=True)
class Reader:
    """What is fed, and with what.

    Attributes:
        read: reads a file; raises one of `allowed` if it can't.
        seeds: name of a file -> content that `read` takes.
        allowed: errors that tell a user of an input.
    """

    read: Callable[[Path], object]
    seeds: Mapping[str, bytes]
    allowed: tuple[type[Exception], ...] = (ValueError, FileNotFoundError)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The content after one to six mutations."""
    found = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at, length = draw.randint(0, len(found)), draw.choice((1, 1, 2, 4, 8, 64))
        kind = draw.randrange(7)
        if kind == 0 and found:
            found[at % len(found)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            found[at : at + length] = draw.randbytes(length)
        elif kind == 2:
            found[at:at] = draw.choice(STUMBLES)
        elif kind == 3:
            piece = draw.choice(STUMBLES)
            found[at : at + len(piece)] = piece
        elif kind == 4:
            del found[at : at + draw.choice((1, 4, 64, len(found)))]
        elif kind == 5:
            found[at:at] = found[at : at + length] * draw.choice((1, 2, 50))
        else:
            other = draw.randint(0, len(found))
            found[at : at + length] = found[other : other + length]
    return bytes(found)


def feed(reader: Reader, folder: Path, *, start: int, count: int, seconds: float = float("inf")) -> int:
    """Read mutated files in this process, and return how many.

    Raises:
        AssertionError: another error escaped, a sentence of several lines, or a file took too long or too much memory;
            it names the seed with which `mutated` makes the file again.
    """
    names = sorted(reader.seeds)
    for name in names:
        (folder / name).write_bytes(reader.seeds[name])
        reader.read(folder / name)  # a seed must be read, or mutations reach nothing
    end, number = time.monotonic() + seconds, start
    for number in range(start, start + count):
        draw = random.Random(number)
        name = draw.choice(names)
        path = folder / name
        path.write_bytes(mutated(reader.seeds[name], draw))
        begun = time.process_time()
        try:
            reader.read(path)
        except reader.allowed as error:
            said = str(error)
            assert said, f"seed {number} ({name}): an error without a word"
            assert "\n" not in said, f"seed {number} ({name}): several lines: {said!r}"
            assert "allow_pickle" not in said, f"seed {number} ({name}): {said!r}"
        except Exception as error:
            raise AssertionError(f"seed {number} ({name}): {type(error).__name__} escaped: {error}") from error
        took = time.process_time() - begun
        assert took < SECONDS, f"seed {number} ({name}) took {took:.1f} s"
        if time.monotonic() > end:
            break
    return number - start + 1


def feed_apart(which: str, folder: Path, *, start: int, count: int, seconds: float) -> str:
    """The same for a reader of `test_readers.py` in a process of its own, with limits; what it printed.

    Raises:
        AssertionError: it failed, ended by itself, or took longer than it may.
    """
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "import harness, test_readers;"
        "reader = test_readers.READERS[sys.argv[2]](); harness.limit();"
        "print(harness.feed(reader, Path(sys.argv[3]), start=int(sys.argv[4]), count=int(sys.argv[5]),"
        " seconds=float(sys.argv[6])))"
    )
    given = [str(Path(__file__).parent), which, str(folder), str(start), str(count), str(seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(
        [sys.executable, "-c", script, *given], capture_output=True, text=True, check=False, env=environment,
        timeout=60 + 3 * seconds,
    )  # fmt: skip
    assert done.returncode == 0, f"{which}: {(done.stderr[:1000], done.stderr[-1000:])}"
    return done.stdout


def limit() -> None:
    """Let this process take no more memory than it has by so much, and say where it stands if it crashes."""
    faulthandler.enable()
    pages = Path("/proc/self/statm")
    if pages.is_file():
        held = int(pages.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
