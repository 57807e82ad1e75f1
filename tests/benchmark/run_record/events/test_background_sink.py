"""Sinks that fail: reported once, tried again, and never felt by who reports events."""

import errno
import os
import threading

import pytest

from benchmark.run_record.events.background_sink import Background
from benchmark.run_record.events.event import Event
from tests.benchmark.run_record.events.recorder import Recorder, event


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
    """It hangs until the end of the test, in an event or as it is closed: whoever waited would do so for ever."""
    released = threading.Event()

    class HangsAsItIsClosed(Recorder):
        def close(self) -> None:
            released.wait()
            super().close()

    def wait(_: Event) -> None:
        released.wait()

    hangs = Recorder(wait)
    closing = HangsAsItIsClosed(lambda _: None)
    for sink in (hangs, closing):
        background = Background(sink)
        for number in range(100):
            background.write(event(str(number)))
        assert background.drain(patience_s=0.1 if sink is hangs else 60.0) == (sink is closing)
        background.close(patience_s=0.1)
    assert (len(hangs.keys), len(closing.keys)) == (0, 100)
    assert not hangs.closed and not closing.closed
    assert capfd.readouterr().err.splitlines() == ["warning: recorder: 100 events could not be written"]
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
