"""One writer to a folder, and files that are whole: held, waited for, swept."""

import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from colligate.records import find_run, held, locks, one_writer, sweep_temporaries, tell, write_atomic, write_record

NAME = "study-0123456789"
HOLDER = """
import sys, time
from pathlib import Path
from colligate.records import held
with held(Path(sys.argv[1])):
    Path(sys.argv[2]).touch()
    time.sleep(float(sys.argv[3]))
    (Path(sys.argv[1]) / "by").write_text("another")
"""


def holder(folder: Path, mark: Path, seconds: float) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), str(mark), str(seconds)])
    until = time.monotonic() + 120
    while not mark.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return process


def test_who_comes_second_waits_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    process = holder(tmp_path / NAME, tmp_path / "mark", 1.0)
    with held(tmp_path / NAME):
        assert (tmp_path / NAME / "by").read_text() == "another"
    assert process.wait() == 0
    assert (
        capsys.readouterr().err
        == f"colligate: {tmp_path / NAME} is being written by another process; waiting for it.\n"
    )


def test_a_holder_that_is_killed_holds_nothing(tmp_path: Path):
    process = holder(tmp_path / NAME, tmp_path / "mark", 600)
    process.kill()
    process.wait()
    assert (tmp_path / NAME / ".lock").exists()
    with held(tmp_path / NAME):
        pass
    assert not (tmp_path / NAME).exists()


def test_a_folder_is_held_as_long_as_the_call_that_didnt_find_a_run_in_it(tmp_path: Path):
    folder = tmp_path / NAME

    @one_writer
    def work() -> bool:
        assert find_run(folder) is None
        assert find_run(folder, force=True) is None  # held already: nobody waits for themselves
        with held(folder):
            assert (folder / ".lock").exists()
        write_record(folder, {"kind": "study"}, [], {}, {})
        return (folder / ".lock").exists()

    assert work()
    assert sorted(path.name for path in folder.iterdir()) == [
        "arrays.safetensors", "figures.json", "record.json", "table.csv",
    ]  # fmt: skip
    assert find_run(folder) is not None


def test_a_call_that_fails_lets_go_and_leaves_no_empty_folder(tmp_path: Path):
    @one_writer
    def work() -> None:
        assert find_run(tmp_path / NAME) is None
        raise ValueError("no such model")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such model"):
            work()
        assert not (tmp_path / NAME).exists()


def test_outside_of_a_call_nothing_is_held(tmp_path: Path):
    assert find_run(tmp_path / NAME) is None
    assert not (tmp_path / NAME).exists()


def test_where_files_can_t_be_locked_it_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def cant(*_: object) -> None:
        raise OSError(next(iter(locks.CANT_LOCK)), "no locks here")

    monkeypatch.setattr(fcntl, "flock", cant)
    (tmp_path / ".x.0a1b2c3d.part").touch()
    with held(tmp_path):
        write_atomic(tmp_path / "x", b"1")
    sweep_temporaries(tmp_path)
    assert (tmp_path / "x").read_bytes() == b"1"
    assert (tmp_path / ".x.0a1b2c3d.part").exists(), "who can't tell whether it is in use leaves it"


def test_a_temporary_file_in_use_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, seen = os.fsync, list[str]()

    def sweeping(handle: int) -> None:
        sweep_temporaries(tmp_path)
        seen.extend(path.name for path in tmp_path.iterdir())
        real(handle)

    monkeypatch.setattr(os, "fsync", sweeping)
    write_atomic(tmp_path / "x", b"1")
    assert len(seen) == 1
    assert seen[0].startswith(".x.")
    assert seen[0].endswith(".part")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_what_isnt_ours_is_not_swept(tmp_path: Path):
    for name in (".hidden", ".a.part", "x.part", ".env.settings", ".x.0a1b2c3d.parts"):
        (tmp_path / name).touch()
    (tmp_path / "elsewhere").touch()
    (tmp_path / ".x.0a1b2c3d.part").symlink_to(tmp_path / "elsewhere")
    before = sorted(path.name for path in tmp_path.iterdir())
    sweep_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_news_steer_no_terminal_and_need_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    tell("red \x1b[31m and\na new line.")
    assert capsys.readouterr().err == "colligate: red \\x1b[31m and\\na new line.\n"
    monkeypatch.setattr(sys, "stderr", None)
    with suppress(BrokenPipeError):
        tell("nobody listens.")
