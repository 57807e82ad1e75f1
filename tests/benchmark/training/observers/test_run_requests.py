"""Requests to save and to stop: signals, files, a time limit."""

import os
import signal
import time
from pathlib import Path

import pytest

from benchmark.machine.run_environment import seconds_since_process_start
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


def looked(files: TriggerFiles) -> TriggerFiles:
    """After the thread has ended: the test looks instead of it."""
    files.close()
    files._thread.join()
    files._look()
    return files


def test_file_asks_once_for_a_checkpoint_and_is_removed(tmp_path: Path) -> None:
    (tmp_path / "save").touch()  # while nothing ran
    files = looked(TriggerFiles(tmp_path))
    assert files.save_asked()
    files._look()
    assert files.save_asked()  # until one is begun
    files.saved()
    assert not files.save_asked()
    files._look()
    assert not files.save_asked()
    assert not (tmp_path / "save").exists()
    (tmp_path / "save").touch()
    files._look()
    assert files.save_asked()


def test_file_that_cannot_be_removed_asks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", refuse)
    (tmp_path / "save").touch()
    files = looked(TriggerFiles(tmp_path))
    files.saved()
    files._look()
    assert not files.save_asked()
    os.utime(tmp_path / "save", ns=(1, 1))  # touched again
    files._look()
    assert files.save_asked()


def test_exit_stays_asked_for_and_goes_when_the_run_ends(tmp_path: Path) -> None:
    files = looked(TriggerFiles(tmp_path))
    assert not files.exit_asked()
    (tmp_path / "exit").touch()
    files._look()
    assert files.exit_asked()
    assert (tmp_path / "exit").exists()
    files.exited()
    assert not (tmp_path / "exit").exists()
    files._look()
    assert files.exit_asked()


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
def test_what_asks_for_the_end_stops_in_good_order(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # whoever runs the tests may ignore it, as a shell's "&" does
    try:
        with RunRequests() as requests:
            requests.obey_stops(None)
            os.kill(os.getpid(), number)
            assert requests.before_step() == StepFlags(sigterm=True)
    finally:
        signal.signal(number, before)


def test_ignored_signal_stays_ignored() -> None:
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with RunRequests() as requests:
            requests.obey_stops(None)
            os.kill(os.getpid(), signal.SIGHUP)
            assert requests.before_step() == NO_FLAGS
    finally:
        signal.signal(signal.SIGHUP, before)
