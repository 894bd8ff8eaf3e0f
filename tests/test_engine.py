"""How work is run: the same number of threads whatever the machine is busy with."""

from threading import Barrier, current_thread

import pytest
import torch

from colligate import engine
from colligate.engine import Clock, chosen_threads, fitting_threads, side_by_side, using_threads


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLLIGATE_THREADS", raising=False)


def test_one_thread_fits_unless_told_otherwise_and_no_stopwatch_decides(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine.time, "perf_counter", lambda: pytest.fail("a clock was read"))
    with fitting_threads() as threads:
        assert threads == torch.get_num_threads() == 1
    monkeypatch.setenv("COLLIGATE_THREADS", "3")
    before = torch.get_num_threads()
    with fitting_threads() as threads:
        assert threads == torch.get_num_threads() == 3
    assert torch.get_num_threads() == before


def test_a_caller_is_heard_before_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLLIGATE_THREADS", "3")
    with using_threads(2):
        assert chosen_threads() == 2
        with using_threads(None):
            assert chosen_threads() == 2
    assert chosen_threads() == 3


@pytest.mark.parametrize("named", ["0", "-1", "two", "1.5", "\u00b2"])
def test_a_wrong_number_of_threads_is_refused(monkeypatch: pytest.MonkeyPatch, named: str):
    monkeypatch.setenv("COLLIGATE_THREADS", named)
    with pytest.raises(ValueError, match=r"COLLIGATE_THREADS is .*; give a number of threads"):
        chosen_threads()


def test_the_old_number_comes_back_after_a_failure():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), using_threads(before + 1), fitting_threads():
        raise KeyError
    assert torch.get_num_threads() == before


def test_stages_are_timed_and_told():
    told = list[tuple[str, int, int]]()
    clock = Clock(lambda *what: told.append(what))
    with clock.stage("a"):
        pass
    assert told == [("a", 0, 1), ("a", 1, 1)]
    assert clock.seconds["a"] >= 0


def test_jobs_side_by_side_come_in_order_with_the_threads_of_their_caller(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda _: range(4), raising=False)
    with fitting_threads():
        met = Barrier(2)  # passed only if two jobs run at a time

        def job(number: int) -> tuple[int, int, int]:
            met.wait(timeout=60)
            return number, torch.get_num_threads(), chosen_threads()

        monkeypatch.setenv("COLLIGATE_THREADS", "3")
        with using_threads(1):  # a caller is heard before the environment, in every job too
            assert list(side_by_side(job, range(4))) == [(number, 1, 1) for number in range(4)]
    with using_threads(4), fitting_threads():
        assert list(side_by_side(lambda number: current_thread(), range(2))) == [current_thread()] * 2


def test_a_job_that_fails_side_by_side_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda _: range(4), raising=False)

    def job(number: int) -> int:
        return 1 // number

    with fitting_threads(), pytest.raises(ZeroDivisionError):
        list(side_by_side(job, [1, 0, 1]))
