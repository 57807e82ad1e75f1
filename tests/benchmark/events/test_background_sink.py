"""Sinks that fail: reported once, tried again, and never felt by who reports events."""

import errno
import os
import threading
import time

import pytest

from benchmark.events.background_sink import Background
from benchmark.events.event import Event
from tests.benchmark.events.recorder import Recorder, event


def test_full_disk_is_told_once_and_nothing_is_lost(capfd: pytest.CaptureFixture[str]) -> None:
    failures = iter([OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))] * 4)

    def fail_four_times(_: Event) -> None:
        for failure in failures:
            raise failure

    sink = Recorder(fail_four_times)
    background = Background(sink, retry_s=0.01)
    for number in range(50):
        background.write(event(str(number)))
    background.close()
    assert sink.keys == [str(number) for number in range(50)]
    assert sink.closed
    told = capfd.readouterr().err.splitlines()
    expected = "warning: recorder: No space left on device; training goes on, and it is tried again"
    assert told == [expected, "warning: recorder: works again"]


def test_drained_is_a_sink_that_has_every_event() -> None:
    failing = threading.Event()
    failing.set()

    def fail(_: Event) -> None:
        if failing.is_set():
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    sink = Recorder(fail)
    background = Background(sink, retry_s=0.01, most_pending=2)
    background.write(event("first"))
    assert [one.key for one in background.pending()] == ["first"]
    assert not background.drain(patience_s=0.05)
    failing.clear()
    assert background.drain()
    assert (sink.keys, background.pending()) == (["first"], ())
    failing.set()
    for key in ("second", "third", "one too many"):
        background.write(event(key))
    failing.clear()
    assert not background.drain()  # one is lost
    background.close()


def test_sink_that_hangs_slows_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    """It hangs until the end of the test: whoever waited for it would do so for ever."""
    released = threading.Event()

    def hang(_: Event) -> None:
        released.wait()

    sink = Recorder(hang)
    background = Background(sink)
    started = time.thread_time()  # of a processor: others may have this one
    for number in range(1000):
        background.write(event(str(number)))
    assert time.thread_time() - started < 1.0
    background.close(patience_s=0.2)
    assert sink.keys == []
    assert "warning: recorder: 1000 events could not be written" in capfd.readouterr().err
    assert not sink.closed
    released.set()


def test_event_that_a_sink_cannot_take_does_not_block_the_next(capfd: pytest.CaptureFixture[str]) -> None:
    def refuse_odd(one: Event) -> None:
        if one.key == "odd":
            raise TypeError("cannot be encoded")

    sink = Recorder(refuse_odd)
    background = Background(sink, retry_s=0.01)
    for key in ("a", "odd", "b"):
        background.write(event(key))
    background.close()
    assert sink.keys == ["a", "b"]
    told = capfd.readouterr().err
    assert told.count("cannot be encoded") == 1
    assert "1 events could not be written" in told


def test_sink_that_hangs_while_it_is_closed_does_not_hold_the_end_up() -> None:
    released = threading.Event()

    class Hangs(Recorder):
        def close(self) -> None:
            released.wait()
            super().close()

    sink = Hangs(lambda _: None)
    background = Background(sink)
    background.write(event("a"))
    while not sink.keys:
        time.sleep(0.001)
    background.close(patience_s=0.2)
    assert sink.keys == ["a"]
    assert not sink.closed
    released.set()
