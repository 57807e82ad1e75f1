"""When the rate of failures is worth telling."""

from benchmark.goodput.observed_failures import expectation
from benchmark.goodput.time_kinds import MEANINGS, Kind
from benchmark.goodput.wall_time import DatedEvent, Span
from benchmark.results.recorded_events import RecordedEvent

BY_KIND: dict[Kind, int] = {**dict.fromkeys(MEANINGS, 0), "productive": 60_000, "checkpoint": 900, "queue": 10**9}


def event(key: str, attempt: int = 0, ms: int = 500, **fields: object) -> DatedEvent:
    return DatedEvent(attempt, RecordedEvent(0, key, None, fields), Span(attempt, "productive", 0, ms))


STEPS = [event("step") for _ in range(10)]
SAVES = [event("checkpoint", steps=steps) for steps in (4, 8, 12)]


def test_means_of_the_run() -> None:
    events = [*STEPS, *SAVES, event("checkpoint_written", seconds=3.0), event("checkpoint_written", seconds="x")]
    found = expectation(BY_KIND, events, restarts_ms=[1000, 2000, 3000])
    assert found is not None
    assert (found.failures, found.run.mtbf_s, found.run.restart_s) == (3, 20.3, 2.0)
    assert (found.run.step_s, found.run.save_steps, found.run.pause_s, found.run.write_s) == (0.5, 4, 0.3, 3.0)


def test_too_little_is_no_rate() -> None:
    assert expectation(BY_KIND, [*STEPS, *SAVES], restarts_ms=[1000, 2000]) is None
    assert expectation(BY_KIND, SAVES, restarts_ms=[1000] * 3) is None
    assert expectation(BY_KIND, [*STEPS, SAVES[0]], restarts_ms=[1000] * 3) is None
    elsewhere = event("checkpoint", attempt=1, steps=8)
    assert expectation(BY_KIND, [*STEPS, SAVES[0], elsewhere], restarts_ms=[1000] * 3) is None
