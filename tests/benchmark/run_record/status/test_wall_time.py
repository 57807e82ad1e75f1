"""Marks end to end, whatever was written down, and however wrongly."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.run_record.attempt_folder import AttemptEnding, AttemptStart
from benchmark.run_record.events.recorded_events import RecordedEvent, RecordedEvents
from benchmark.run_record.incidents import Incident
from benchmark.run_record.status.wall_time import MEANINGS, Attempt, attempts_of, wall_time
from tests.benchmark.run_record.noted_events import events_of

T0 = 1_700_000_000_000
KEYS = (
    "environment", "attempt", "ready", "run_start", "restart", "step", "evaluation", "audit", "checkpoint",
    "checkpoint_written", "message", "run_stop",
)  # fmt: skip
SECONDS = st.sampled_from([None, math.nan, math.inf, -5, 0, 0.25, 7, 20])
FIELDS = st.fixed_dictionaries({}, optional={"step_s": SECONDS, "seconds": SECONDS, "trained_tokens": SECONDS})
EVENTS = st.builds(RecordedEvent, st.integers(T0 - 20_000, T0 + 20_000), st.sampled_from(KEYS), st.none(), FIELDS)
TIMES_S = st.integers(T0 // 1000 - 50, T0 // 1000 + 50)
STARTS = st.none() | st.builds(
    AttemptStart, st.just("1"), st.none(), st.none() | TIMES_S, st.none() | TIMES_S, TIMES_S, st.none(), st.just(())
)
ENDS = st.none() | st.builds(AttemptEnding, TIMES_S, st.just(70), st.just("again"), st.just(""))
CAUSES = st.none() | st.builds(
    Incident, TIMES_S, st.just(0), st.just("n1"), st.just(1), st.sampled_from(("hang", "killed")), st.none(),
    st.just("passes"), st.just(""),
)  # fmt: skip
ATTEMPTS = st.lists(
    st.builds(Attempt, st.just("1"), st.lists(EVENTS, max_size=5).map(events_of), STARTS, ENDS, CAUSES), max_size=3
)


@given(ATTEMPTS)
def test_every_moment_is_of_one_kind(attempts: list[Attempt]) -> None:
    marks = wall_time(attempts)
    assert all(mark.ms >= 0 and mark.kind in MEANINGS for mark in marks)
    if marks:
        assert sum(mark.ms for mark in marks) == marks[-1].time_ms - marks[0].time_ms


def event(ms: int, key: str, **fields: float) -> RecordedEvent:
    return RecordedEvent(T0 + ms, key, None, fields)


@pytest.mark.parametrize(
    ("events", "names"),
    [
        ("m1e m2e", "1:m1e 2:m2e"),
        ("1e 2 3e", "1:1e 2:2 3:3e"),  # one that ended before it noted its environment
        ("1es 3es", "1:1es 3:3es"),  # one that left no event
        ("1 1es 2e", "1:11es 2:2e"),  # one that fell back to an older checkpoint
        ("e1s e2s", "1:e1s 2:e2s"),  # the order of older versions
        ("es es", "0001:es 0002:es"),
    ],
)
def test_the_events_of_an_attempt_have_its_name(events: str, names: str, tmp_path: Path) -> None:
    """A letter for each event: m a message, e the environment, s a step, a digit the attempt; a blank is a minute."""
    keys = {"m": "message", "e": "environment", "s": "step"}
    noted, begun_ms = list[RecordedEvent](), T0
    for part in events.split():
        for number, letter in enumerate(part, 1):
            fields = {"attempt": letter, "started_s": begun_ms / 1000} if letter.isdigit() else {}
            noted.append(RecordedEvent(begun_ms + number, keys.get(letter, "attempt"), letter, fields))
        begun_ms += 60_000
    attempts = attempts_of(tmp_path, events_of(noted))
    assert " ".join(f"{one.name}:{''.join(event.value for event in one.events)}" for one in attempts) == names


def test_each_part_of_an_attempt_has_its_kind(tmp_path: Path) -> None:
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
    begun_s = T0 / 1000
    start = AttemptStart("1", "7", begun_s, begun_s + 4, begun_s + 5, None, ("n1",))
    one = Attempt("1", events_of(events), start, AttemptEnding(begun_s + 17, 0, "done", ""), None)
    assert [(mark.kind, round(mark.ms)) for mark in wall_time([one]) if mark.ms] == [
        ("queue", 4_000),
        ("start", 5_000),
        ("init", 3_000),
        ("other", 500),
        ("productive", 1_000),
        ("other", 500),
        ("evaluation", 1_500),
        ("audit", 100),
        ("other", 100),
        ("checkpoint", 200),
        ("other", 100),
        ("stop", 1_000),
    ]
    assert attempts_of(tmp_path, events_of(events))[0].events == events_of(events)
    (tmp_path / "attempts" / "0001").mkdir(parents=True)  # a job's status is asked for as soon as it begins
    assert [(attempt.name, attempt.events) for attempt in attempts_of(tmp_path, RecordedEvents())] == [
        ("0001", RecordedEvents())
    ]
