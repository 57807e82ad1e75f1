"""Requests to stop: a signal, a time limit."""

import os
import signal
import time

from benchmark.training.stop_request import StopRequest, seconds_since_process_start
from tests.benchmark.tiny import in_processes


def test_signal_asks_and_the_handler_before_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(None) as stop:
        assert not stop.requested()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested()
        assert stop.requested()  # once asked, it stays
    assert signal.getsignal(signal.SIGTERM) == before


def test_time_limit_counts_from_the_start_of_the_process() -> None:
    now = seconds_since_process_start()
    assert StopRequest(now - 0.01).requested()
    assert not StopRequest(now + 600).requested()
    assert not StopRequest(None).requested()


def test_seconds_are_those_of_this_process() -> None:
    started = time.monotonic()
    before = seconds_since_process_start()
    measured = time.monotonic()
    (child,) = in_processes(1, seconds_since_process_start)
    ended = time.monotonic()
    passed = seconds_since_process_start() - before
    assert -0.02 < child < ended - started + 0.02  # in ticks of 10 ms
    assert ended - measured - 0.001 < passed < time.monotonic() - started + 0.001
