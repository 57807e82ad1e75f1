"""Spans end to end, whatever was written down, and however wrongly."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from benchmark.goodput.recorded_attempts import Cause, RecordedAttempt
from benchmark.goodput.steady_clock import steady
from benchmark.goodput.time_kinds import MEANINGS
from benchmark.goodput.wall_time import Span, merged, wall_time
from benchmark.results.recorded_events import RecordedEvent

T0 = 1_700_000_000_000
KEYS = (
    "environment", "attempt", "ready", "run_start", "restart", "step", "evaluation", "audit", "checkpoint",
    "checkpoint_written", "message", "run_stop",
)  # fmt: skip
TIMES = st.none() | st.integers(T0 - 50_000, T0 + 50_000)
SECONDS = st.none() | st.floats() | st.integers(-5, 20)
EVENTS = st.builds(
    RecordedEvent,
    st.integers(T0 - 20_000, T0 + 20_000),
    st.sampled_from(KEYS),
    st.none(),
    st.fixed_dictionaries({}, optional={"step_s": SECONDS, "seconds": SECONDS, "trained_tokens": SECONDS}),
)
CAUSES = st.none() | st.builds(
    Cause, TIMES, st.sampled_from(("hang", "killed")), st.none(), st.just(""), st.just(""), st.just("")
)


@st.composite
def recorded(draw: st.DrawFn) -> tuple[list[RecordedAttempt], list[RecordedEvent]]:
    """Attempts with any times and any events."""
    events: list[RecordedEvent] = []
    attempts = []
    for number in range(draw(st.integers(0, 4))):
        own = draw(st.lists(EVENTS, max_size=8))
        place = range(len(events), len(events) + len(own))
        events += own
        job = draw(st.sampled_from((None, "1", "2")))
        times = [draw(TIMES) for _ in range(4)]
        attempts.append(
            RecordedAttempt(
                str(number),
                place,
                job,
                submitted_ms=times[0],
                launched_ms=times[1],
                started_ms=times[2],
                ended_ms=times[3],
                cause=draw(CAUSES),
            )
        )
    return attempts, events


@given(recorded())
def test_spans_lie_end_to_end(made: tuple[list[RecordedAttempt], list[RecordedEvent]]) -> None:
    attempts, events = made
    clock = steady([event.time_ms for event in events])
    found = wall_time(attempts, events, clock)
    assert all(span.ms > 0 and span.kind in MEANINGS for span in found.spans)
    assert all(before.end_ms == after.begin_ms for before, after in pairwise(found.spans))
    assert [span.attempt for span in found.spans] == sorted(span.attempt for span in found.spans)
    if found.spans:
        assert sum(span.ms for span in found.spans) == found.spans[-1].end_ms - found.spans[0].begin_ms
        assert found.spans[-1].end_ms >= max(clock.times_ms, default=0)
    assert list(merged(merged(found.spans))) == list(merged(found.spans))
    assert sum(span.ms for span in merged(found.spans)) == sum(span.ms for span in found.spans)


def spans_of(attempts: list[RecordedAttempt], events: list[RecordedEvent]) -> list[tuple[int, str, int]]:
    """Attempt, kind and length of each."""
    found = wall_time(attempts, events, steady([event.time_ms for event in events]))
    return [(span.attempt, span.kind, span.ms) for span in found.spans]


def event(ms: int, key: str, **fields: float) -> RecordedEvent:
    return RecordedEvent(T0 + ms, key, None, fields)


def attempt(first: int, stop: int, **times: int) -> RecordedAttempt:
    return RecordedAttempt("1", range(first, stop), **{name: T0 + ms for name, ms in times.items()})  # type: ignore[arg-type]


def test_each_part_of_an_attempt_has_its_kind() -> None:
    events = [
        event(9_000, "environment"),
        event(12_000, "ready"),
        event(13_500, "step", step_s=1.0),
        event(13_900, "eval_start"),
        event(15_500, "evaluation", seconds=1.5),
        event(15_600, "audit", seconds=0.1),
        event(15_900, "checkpoint", seconds=0.2),
        event(16_000, "run_stop"),
    ]
    one = attempt(0, 8, submitted_ms=0, launched_ms=4_000, started_ms=5_000, ended_ms=17_000)
    assert spans_of([one], events) == [
        (0, "queue", 4_000),
        (0, "start", 5_000),
        (0, "init", 3_000),
        (0, "other", 500),
        (0, "productive", 1_000),
        (0, "other", 500),
        (0, "evaluation", 1_500),
        (0, "audit", 100),
        (0, "other", 100),
        (0, "checkpoint", 200),
        (0, "other", 100),
        (0, "stop", 1_000),
    ]


def test_times_between_attempts() -> None:
    """The same job again is idle, another one queues; where no end is known, nothing is."""
    events = [event(0, "environment"), event(1_000, "run_stop"), event(9_000, "environment"), event(10_000, "step")]
    first = attempt(0, 2, ended_ms=2_000)
    again = attempt(2, 4, launched_ms=8_000)
    queued = attempt(2, 4, submitted_ms=3_000, launched_ms=8_000)
    queued_before = attempt(2, 4, submitted_ms=500, launched_ms=8_000)
    no_end = attempt(0, 2)

    def between(*attempts: RecordedAttempt) -> list[tuple[str, int]]:
        return [(kind, ms) for place, kind, ms in spans_of(list(attempts), events) if place == 1][:-1]

    assert between(first, again) == [("idle", 6_000), ("start", 1_000)]
    assert between(first, queued) == [("idle", 1_000), ("queue", 5_000), ("start", 1_000)]
    assert between(first, queued_before) == [("queue", 6_000), ("start", 1_000)]
    assert between(no_end, again) == [("unknown", 7_000), ("start", 1_000)]
    assert between(no_end, queued) == [("unknown", 2_000), ("queue", 5_000), ("start", 1_000)]
    assert between(no_end, queued_before) == [("unknown", 7_000), ("start", 1_000)]
    assert between(no_end, attempt(2, 4)) == [("unknown", 8_000)]


def test_ends_of_attempts() -> None:
    events = [event(0, "ready"), event(1_000, "step", step_s=1.0), event(1_200, "eval_start")]

    def after(*, ended: int | None, cause: Cause | None = None) -> list[tuple[str, int]]:
        one = RecordedAttempt("1", range(3), ended_ms=None if ended is None else T0 + ended, cause=cause)
        return [(kind, ms) for _, kind, ms in spans_of([one], events)][1:]

    def cause(kind: str, ms: int | None) -> Cause:
        return Cause(None if ms is None else T0 + ms, kind, 0, "n1", "passes", "")

    assert after(ended=None) == [("other", 200)]
    assert after(ended=5_000) == [("lost", 4_000)]
    assert after(ended=5_000, cause=cause("killed", 3_000)) == [("lost", 2_000), ("stop", 2_000)]
    assert after(ended=None, cause=cause("killed", 3_000)) == [("lost", 2_000)]
    assert after(ended=5_000, cause=cause("killed", 9_000)) == [("lost", 4_000)]
    assert after(ended=5_000, cause=cause("hang", 4_000)) == [("lost", 200), ("hang", 3_800)]
    assert after(ended=None, cause=cause("hang", 4_000)) == [("lost", 200), ("hang", 2_800)]
    assert after(ended=5_000, cause=cause("killed", None)) == [("lost", 200), ("stop", 3_800)]


def test_wrong_clock_of_another_machine_takes_nothing_from_the_next_attempt() -> None:
    events = [
        event(0, "ready"),
        event(1_000, "step", step_s=1.0),
        event(4_000, "ready"),
        event(5_000, "step", step_s=1),
    ]
    far = attempt(0, 2, ended_ms=900_000)
    assert spans_of([far, attempt(2, 4, launched_ms=800_000)], events) == [
        (0, "productive", 1_000),
        (0, "lost", 3_000),
        (1, "productive", 1_000),
    ]


def test_neighbours_are_merged_within_an_attempt() -> None:
    spans = [Span(0, "other", 0, 1), Span(0, "other", 1, 3), Span(1, "other", 3, 4), Span(1, "lost", 4, 5)]
    assert list(merged(spans)) == [Span(0, "other", 0, 3), Span(1, "other", 3, 4), Span(1, "lost", 4, 5)]
