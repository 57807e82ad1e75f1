"""A run's time never goes back, whoever sets the clock, in its attempts and between them."""

import dataclasses
import json
import time
from typing import Any

import pytest

from benchmark.run_record.events.run_clock import ClockMark, RunClock

HOUR_NS = 3_600_000_000_000


def set_clock(monkeypatch: pytest.MonkeyPatch, by_ns: int) -> None:
    clock_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock_ns() + by_ns)


@pytest.mark.parametrize("jump_ns", [-HOUR_NS, 24 * HOUR_NS])
def test_on_the_same_machine_it_goes_on_however_the_clock_was_set(
    jump_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = RunClock()
    mark = ClockMark(**json.loads(json.dumps(dataclasses.asdict(clock.mark()))))
    before_ms = clock.time_ms()
    assert abs(before_ms - time.time_ns() // 1_000_000) < 60_000
    set_clock(monkeypatch, jump_ns)
    again = RunClock(mark)
    assert before_ms <= again.time_ms() <= clock.time_ms()
    assert (again.behind_s, again.mark().began_ns) == (0.0, mark.began_ns)


@pytest.mark.parametrize("elsewhere", [{"boot": "another"}, {"boot": ""}, {"ticks_ns": HOUR_NS}])
def test_on_another_machine_it_is_the_time_of_day_unless_that_is_behind(
    elsewhere: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that was started anew has fewer ticks than the mark, and is as good as another one."""
    mark, more = RunClock().mark(), elsewhere.get("ticks_ns", 0)
    fields = {"ticks_ns": mark.ticks_ns + more, "began_ns": mark.began_ns - more}
    mark = dataclasses.replace(mark, **{**elsewhere, **fields})
    marked_ns = mark.began_ns + mark.ticks_ns
    with monkeypatch.context() as later:
        set_clock(later, HOUR_NS)
        ahead = RunClock(mark)
        assert ahead.time_ms() >= (marked_ns + HOUR_NS) // 1_000_000 - 60_000
        assert ahead.behind_s == 0.0
    set_clock(monkeypatch, -HOUR_NS)
    behind = RunClock(mark)
    assert behind.time_ms() >= marked_ns // 1_000_000
    assert 3000 < behind.behind_s < 3660
