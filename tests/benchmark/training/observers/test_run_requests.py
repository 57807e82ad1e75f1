"""Requests to save and to stop: signals, files, a time limit."""

import os
import signal
import time
from pathlib import Path

import pytest

from benchmark.training.machine.run_environment import seconds_since_process_start
from benchmark.training.observers import run_requests
from benchmark.training.observers.run_requests import RunRequests, TriggerFiles
from benchmark.training.step import NO_FLAGS, StepFlags
from tests.benchmark.tiny import in_processes


def test_signals_ask_and_the_handlers_before_are_put_back() -> None:
    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with RunRequests() as requests:
        os.kill(os.getpid(), signal.SIGUSR1)  # before training begins, too: it must not end the process
        assert signal.getsignal(signal.SIGTERM) == before[2]
        requests.obey_stops(None)
        assert requests.before_step() == StepFlags(save=True)
        requests.about_to_save()
        assert requests.before_step() == NO_FLAGS
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR2)
        requests.about_to_save()
        assert requests.before_step() == StepFlags(sigusr2=True, sigterm=True)  # once asked to stop, it stays
    assert [signal.getsignal(number) for number in numbers] == before


def test_time_limit_counts_from_the_start_of_the_process() -> None:
    now = seconds_since_process_start()
    assert RunRequests(now - 0.01).before_step() == StepFlags(time_limit=True)
    assert RunRequests(now + 600).before_step() == NO_FLAGS


def test_files_ask_even_if_they_came_while_nothing_ran(tmp_path: Path) -> None:
    (tmp_path / "save").touch()
    files = TriggerFiles(tmp_path)
    files.close()
    files._thread.join()  # the test looks instead of it
    assert (files.save_asked, files.exit_asked) == (True, False)
    assert not (tmp_path / "save").exists()
    files.save_asked = False
    files._look()
    assert not files.save_asked
    (tmp_path / "save").touch()
    (tmp_path / "exit").touch()
    files._look()
    assert (files.save_asked, files.exit_asked) == (True, True)
    assert (tmp_path / "exit").exists()  # until the run ends
    files.exited()
    assert not (tmp_path / "exit").exists()
    files._look()
    assert files.exit_asked


def test_thread_looks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_requests, "LOOK_S", 0.01)
    with RunRequests() as requests:
        requests.obey_stops(tmp_path)
        (tmp_path / "save").touch()
        for _ in range(1000):
            if requests.before_step().save:
                break
            time.sleep(0.01)
        assert requests.before_step() == StepFlags(save=True)


def test_seconds_are_those_of_this_process() -> None:
    started = time.monotonic()
    before = seconds_since_process_start()
    measured = time.monotonic()
    (child,) = in_processes(1, seconds_since_process_start)
    ended = time.monotonic()
    passed = seconds_since_process_start() - before
    assert -0.02 < child < ended - started + 0.02  # in ticks of 10 ms
    assert ended - measured - 0.001 < passed < time.monotonic() - started + 0.001


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_what_asks_for_the_end_stops_in_good_order_unless_it_was_ignored(
    number: signal.Signals, before: signal.Handlers
) -> None:
    """nohup ignores SIGHUP; a shell's "&" ignores SIGINT."""
    old = signal.signal(number, before)
    try:
        with RunRequests() as requests:
            requests.obey_stops(None)
            os.kill(os.getpid(), number)
            assert requests.before_step() == StepFlags(sigterm=before == signal.SIG_DFL)
        assert signal.getsignal(number) == before
    finally:
        signal.signal(number, old)
