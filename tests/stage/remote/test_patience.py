"""How long, and how fast."""

from typing import Any

import pytest

from stage.remote.patience import LONGEST_PAUSE_S, RateLimit, pause_s


def test_the_rate_is_bounded_for_all_threads_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    waited: list[float] = []
    monkeypatch.setattr("time.monotonic", lambda: now)
    limit = RateLimit(1000.0, waited.append)
    for count in (500, 500, 2000):
        limit.spend(count)
    assert waited == pytest.approx([0.5, 1.0, 3.0])
    unbounded: list[Any] = []
    RateLimit(None, unbounded.append).spend(10**12)
    assert unbounded == []


def test_pauses_grow_up_to_a_bound() -> None:
    for failures, longest in ((1, 1.0), (2, 2.0), (5, 16.0), (6, LONGEST_PAUSE_S), (60, LONGEST_PAUSE_S)):
        assert longest / 2 <= pause_s(failures) <= longest
