"""Streams and signals: whatever becomes of a terminal or a pipe, work is kept and the exit code says how it ended.

The verbs here do nothing heavy; a `torch` of our own stands in where a signal must come while it is imported.
"""

import errno
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import BaseFileLock

from colligate.cli import EXITS, main, streams
from colligate.cli.streams import Outlet
from colligate.verbs.config import SourceConfig
from colligate.verbs.sources import store_of

RUN = "import sys; from colligate.cli import main; sys.exit(main())"
SOURCE = str(Path(__file__).parents[1] / "src")
ORACLE = ("information", "oracle:object-table:24", "--scenes", "clevr")


def shell(words: tuple[str, ...], how: str = "", *, path: str = "", **env: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a call, with redirections as a shell writes them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # an ignored signal is inherited, a handler isn't
    try:
        done = subprocess.run(
            ["bash", "-c", f'set -o pipefail; "$@" {how}', "bash", sys.executable, "-c", RUN, *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, SOURCE])), **env},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("buffered", ["", "1"])
def test_help_goes_into_a_pipe_that_is_closed_early(buffered: str):
    assert shell(("--help",), "| head -1", PYTHONUNBUFFERED=buffered) == (
        0, "Does an embedding model know which values belong to the same object?\n", ""
    )  # fmt: skip
    assert shell(("--help",), "| true", PYTHONUNBUFFERED=buffered) == (0, "", "")


def test_lists_and_options_go_into_a_pipe_that_is_closed_early():
    """These are printed by libraries, which would end the program themselves."""
    code, out, err = shell(("embedders",), "| head -1")
    assert (code, out.count("\n"), err) == (0, 1, "")
    assert shell(("runs", "--help"), "| true") == (0, "", "")


@pytest.mark.parametrize("how", ["2>&-", "2>&- <&-"])
def test_a_closed_stderr_ends_nothing(how: str):
    assert shell(("--version",), how) == (0, "0.1.0\n", "")
    assert shell(("nothing",), how) == (2, "", "")


def test_a_closed_stdout_ends_nothing():
    assert shell(("--version",), ">&-") == (0, "", "")
    code, out, err = shell(("nothing",), ">&-")
    assert (code, out) == (2, "")
    assert err.startswith("colligate: There is no verb 'nothing'")
    assert shell(("nothing",), ">&- 2>&- <&-") == (2, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_output_that_can_not_be_written_is_told():
    assert shell(("--help",), "> /dev/full") == (
        1, "",
        "colligate: Not all that was found could be printed (no space left on device); what the work wrote is kept.\n",
    )  # fmt: skip
    assert shell(("nothing",), "2> /dev/full") == (2, "", "")


def test_a_run_is_kept_though_no_one_reads_and_the_terminal_is_plain(tmp_path: Path):
    """One run with all of it: a reader that leaves at once, ASCII, no home folder."""
    env = {"COLLIGATE_STORE": str(tmp_path / "store"), "PYTHONIOENCODING": "ascii", "HOME": "", "OMP_NUM_THREADS": "1"}
    words = (*ORACLE, "--runs", str(tmp_path / "runs"))
    assert shell(words, "2>/dev/null | true", **env)[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    before = (folder / "record.json").read_bytes()
    code, out, err = shell(words, **env)
    assert (code, err) == (0, "")
    assert out.isascii()
    assert re.search(r"\d-\d", out)  # the dash of an interval, plainly
    assert (folder / "record.json").read_bytes() == before


INTERRUPTED = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.{name})
    time.sleep(20)
except BaseException:
    {then}
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("then", ["raise", "raise ImportError('half a library')"])
def test_a_signal_while_libraries_are_imported_is_one_line(name: str, code: int, then: str, tmp_path: Path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(INTERRUPTED.format(name=name, then=then))
    found, out, err = shell(("probe", "oracle:no-binding", "--scenes", "clevr"), path=str(tmp_path))
    assert (found, out) == (code, "")
    assert err.startswith("colligate: Stopped. ")
    assert err.count("\n") == 1


def test_a_second_signal_ends_what_does_not_stop(tmp_path: Path):
    """Such as a library that goes on after any exception; a sender that repeats itself at once ends nothing."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGTERM)\nexcept BaseException:\n    pass\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('still there', flush=True)\n"
        f"time.sleep({streams.TWICE + 0.1})\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(20)\n"
    )
    assert shell(("probe", "oracle:no-binding"), path=str(tmp_path)) == (143, "still there\n", "")


def test_what_the_caller_ignores_stays_ignored(tmp_path: Path):
    (tmp_path / "tyro").mkdir()
    (tmp_path / "tyro" / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {RUN}"
    done = subprocess.run(
        [sys.executable, "-c", ignoring, "report", "--help"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), SOURCE])}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "Stopped" not in done.stderr
    assert "tyro" in done.stderr  # our stand-in holds nothing else, and the work got that far
    assert done.returncode == 1


def test_signals_and_streams_are_the_callers_again_afterwards(capsys: pytest.CaptureFixture[str]):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.stdout, sys.stderr
    assert main(["--version"]) == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "0.1.0\n"


def test_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]):
    main(["--help"])
    said = capsys.readouterr().out
    assert all(f"  {code} " in said and meaning in said for code, meaning in EXITS.items())


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("l.csv, line 3: no value\nof its own"), 2, "l.csv, line 3: no value of its own"),
        (PermissionError(errno.EACCES, "Permission denied", "here"), 2, "here: permission denied; name another place"),
        (OSError(errno.EROFS, "Read-only file system", "here"), 2, "here: read-only file system"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "The disk is full"),
        (
            OSError("The disk that holds the store is full; free some space."),
            1,
            "The disk that holds the store is full",
        ),
        (FileNotFoundError("The weights are not on this machine."), 2, "The weights are not on this machine."),
        (KeyError("scene"), 1, "The work failed: KeyError 'scene'"),
        (ZeroDivisionError("division by zero"), 1, "The work failed: ZeroDivisionError division by zero"),
        (RecursionError("too deep"), 1, "The work failed: too deep"),
        (SystemExit(0), 1, "ended the program (sys.exit) before the work was done"),
        (KeyboardInterrupt(), 130, "Stopped."),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_error_is_one_line_with_its_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def fail(words: list[str]) -> int:
        raise error

    monkeypatch.setattr("colligate.cli.verbs", lambda: {"fail": (fail, "")})
    assert main(["fail"]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("colligate: ")
    assert said in shown.err
    assert shown.err.count("\n") == 1


def test_warnings_are_told_without_their_place_in_the_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    import warnings

    def warn(words: list[str]) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("Stored vectors \x1b[2J are broken;\n computing them again.", stacklevel=1)
        return 0

    monkeypatch.setattr("colligate.cli.verbs", lambda: {"warn": (warn, "")})
    shown_by = warnings.showwarning
    assert main(["warn"]) == 0
    assert capsys.readouterr().err == (
        "colligate: Note: Stored vectors \\x1b[2J are broken; computing them again.\n"
    )  # fmt: skip
    assert warnings.showwarning is shown_by


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", "0.1-0.2 x R2 \\u2603\\xe9"), ("latin-1", "0.1-0.2 x R2 \\u2603é")]
)
def test_signs_that_a_terminal_lacks_are_written_plainly(encoding: str, shown: str):
    below = io.BytesIO()
    outlet = Outlet(io.TextIOWrapper(below, encoding=encoding, write_through=True))
    outlet.write("0.1–0.2 × R² ☃é")
    assert below.getvalue().decode(encoding) == shown
    assert (outlet.encoding, outlet.problem) == (encoding, None)


def test_a_stream_is_given_up_at_its_first_error(tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as pipe:  # noqa: PTH123
        outlet = Outlet(pipe)
        assert outlet.write("lost") == 4
        outlet.flush()
        assert outlet.failed is not None
        assert outlet.problem is None  # a reader that had enough
        outlet.write("lost, too")
    closed = (tmp_path / "closed").open("w")
    closed.close()
    outlet = Outlet(closed)
    outlet.write("lost")
    assert outlet.problem is not None


def test_a_store_that_is_full_and_may_not_be_written_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = [*ORACLE, "--json", "--store", str(tmp_path / "store"), "--runs", str(tmp_path / "runs")]
    assert main(words) == 0
    rows = capsys.readouterr().out

    def refusing(of: Callable[..., object]) -> Callable[..., object]:
        def refuse(*args: object, **more: object) -> object:
            named = [str(getattr(one, "lock_file", one)) for one in (*args, *more.values())]
            if any(name.startswith(str(tmp_path / "store")) for name in named):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), named[0])
            return of(*args, **more)

        return refuse

    monkeypatch.setattr("tempfile.mkstemp", refusing(__import__("tempfile").mkstemp))
    monkeypatch.setattr(BaseFileLock, "acquire", refusing(BaseFileLock.acquire))
    assert main([*words, "--force"]) == 0
    assert capsys.readouterr().out == rows


def test_without_a_home_folder_the_store_must_be_named(monkeypatch: pytest.MonkeyPatch):
    def homeless(self: Path) -> Path:
        if str(self).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return self

    monkeypatch.setattr(Path, "expanduser", homeless)
    monkeypatch.delenv("COLLIGATE_STORE", raising=False)
    with pytest.raises(
        ValueError, match=r"no home folder for the store ~/.cache/colligate; name a folder with --store"
    ):
        store_of(SourceConfig(embedder="oracle:no-binding"))
    assert store_of(SourceConfig(embedder="oracle:no-binding", store=Path("here"))) is not None


def test_help_answers_without_torch():
    code = "import sys; from colligate.cli import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SOURCE},
        timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.endswith("False\n")
