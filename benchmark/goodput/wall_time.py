"""The wall time of a run as spans end to end: each begins where the one before ends, so nothing counts twice and
nothing is left out.

A cursor walks over the times that were written down. Each moves it on, and says what the time before it was: the last
``step_s`` before a step was that step, what is before those was what the attempt was doing in general.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmark.goodput.recorded_attempts import TRAINING, RecordedAttempt
from benchmark.goodput.steady_clock import SteadyTimes
from benchmark.goodput.time_kinds import Kind
from benchmark.results.recorded_events import RecordedEvent

DURATIONS: dict[str, tuple[str, Kind]] = {
    "step": ("step_s", "productive"),
    "evaluation": ("seconds", "evaluation"),
    "audit": ("seconds", "audit"),
    "checkpoint": ("seconds", "checkpoint"),
}
"""Events that come at the end of something, the field that says how long it took, and what it was."""
COUNTED = {*DURATIONS, *TRAINING, "checkpoint_written", "run_stop"}
CUT_OFF: dict[Kind, Kind] = {"start": "start", "init": "init", "other": "lost", "stop": "stop"}
"""What the time before an incident was, by what the attempt was doing."""


@dataclass
class Span:
    """Milliseconds on the steady scale; ``end_ms`` belongs to the next one."""

    attempt: int
    """Its place among the attempts; the time before one is its own."""
    kind: Kind
    begin_ms: int
    end_ms: int

    @property
    def ms(self) -> int:
        return self.end_ms - self.begin_ms


@dataclass(frozen=True)
class DatedEvent:
    """An event that the ledger counts, and the span that it ends; None where it took no time."""

    attempt: int
    event: RecordedEvent
    span: Span | None


@dataclass(frozen=True)
class WallTime:
    """Of a run."""

    spans: Sequence[Span]
    events: Sequence[DatedEvent]
    """In their order."""


def wall_time(attempts: Sequence[RecordedAttempt], events: Sequence[RecordedEvent], clock: SteadyTimes) -> WallTime:
    """``clock``: of ``events``."""
    walk = _Walk(events, clock)
    for place, attempt in enumerate(attempts):
        walk.pass_attempt(place, attempt, attempts[place - 1] if place else None)
    return WallTime(walk.spans, walk.dated)


class _Walk:
    def __init__(self, events: Sequence[RecordedEvent], clock: SteadyTimes) -> None:
        self._events, self._clock = events, clock
        self._now: int | None = None
        """The cursor."""
        self._place = 0
        self._end_is_known = False
        """Somebody wrote down when the attempt before ended."""
        self.spans: list[Span] = []
        self.dated: list[DatedEvent] = []

    def pass_attempt(self, place: int, attempt: RecordedAttempt, before: RecordedAttempt | None) -> None:
        self._place = place
        self._come_to(attempt, before)
        self._leave(attempt, self._work_through(attempt))

    def _until(self, time_ms: int | None, kind: Kind) -> Span | None:
        """Move the cursor on; None, and no time at all, is no move."""
        if time_ms is None:
            return None
        if self._now is None:
            self._now = time_ms
        if time_ms <= self._now:
            return None
        span = Span(self._place, kind, self._now, time_ms)
        self.spans.append(span)
        self._now = time_ms
        return span

    def _come_to(self, attempt: RecordedAttempt, before: RecordedAttempt | None) -> None:
        """The time before its first event: since the attempt before, or since it was submitted."""
        opened = self._clock.times_ms[attempt.events.start] if attempt.events else None
        limits = (opened, self._end(attempt), self._next_opened(attempt))
        latest = next((time for time in limits if time is not None), None)
        submitted, launched, started = (
            self._placed(time, attempt.events.start, latest)
            for time in (attempt.submitted_ms, attempt.launched_ms, attempt.started_ms)
        )
        gap: Kind = "idle" if self._end_is_known else "unknown"
        was = self._now
        queued = submitted is not None and (before is None or not _same_job(before, attempt))
        if queued and self._until(submitted, gap) is None and was is not None and gap == "unknown":
            queued = False  # submitted while the one before ran, whose end is not known
        began = launched if launched is not None else started
        if began is not None:
            self._until(began, "queue" if queued else gap)
            gap = "start"
        self._until(opened, gap)

    def _placed(self, clock_ms: int | None, place: int, latest_ms: int | None) -> int | None:
        """What another file than the events has as the time about the event at ``place``, on the events' scale."""
        if clock_ms is None:
            return None
        late_ms = self._clock.late_ms
        time_ms = clock_ms + (late_ms[max(0, min(place, len(late_ms) - 1))] if late_ms else 0)
        return time_ms if latest_ms is None else min(time_ms, latest_ms)

    def _next_opened(self, attempt: RecordedAttempt) -> int | None:
        """When one of the attempts after it opened the log; nothing of this one can be later."""
        after = attempt.events.stop
        return self._clock.times_ms[after] if after < len(self._events) else None

    def _end(self, attempt: RecordedAttempt) -> int | None:
        return self._placed(attempt.ended_ms, attempt.events.stop - 1, self._next_opened(attempt))

    def _work_through(self, attempt: RecordedAttempt) -> Kind:
        """Its events; what it was doing after the last one."""
        doing: Kind = "init" if attempt.events else "start"
        for place in attempt.events:
            event, time_ms = self._events[place], self._clock.times_ms[place]
            span = None
            if event.key in DURATIONS:
                field, kind = DURATIONS[event.key]
                self._until(time_ms - _milliseconds(event.number(field)), doing)
                span = self._until(time_ms, kind)
            elif event.key in TRAINING and doing == "init":
                self._until(time_ms, doing)
            elif event.key == "run_stop":
                self._until(time_ms, "other" if attempt.cause is None else "lost")
                doing = "stop"
            if event.key in TRAINING:
                doing = "other"
            if event.key in COUNTED:
                self.dated.append(DatedEvent(self._place, event, span))
        return doing

    def _leave(self, attempt: RecordedAttempt, doing: Kind) -> None:
        """From its last work, after which it was ``doing`` something, to its end, as far as that is known."""
        cause, ended = attempt.cause, self._end(attempt)
        seen = self._clock.times_ms[attempt.events.stop - 1] if attempt.events else None
        self._end_is_known = ended is not None
        if ended is not None:
            ended = _later(seen, ended)
        latest = ended if ended is not None else self._next_opened(attempt)
        caught = None if cause is None else self._placed(cause.time_ms, attempt.events.stop - 1, latest)
        if cause is None:
            self._until(seen if ended is None else ended, doing if ended is None else CUT_OFF[doing])
        elif cause.kind == "hang":
            self._until(seen, CUT_OFF[doing])
            self._until(caught if ended is None else ended, "hang")
        else:
            self._until(_later(seen, caught), CUT_OFF[doing])
            self._until(ended, "stop")


def _same_job(before: RecordedAttempt, attempt: RecordedAttempt) -> bool:
    """Whether the same job launched both, without being queued between."""
    if before.job != attempt.job or attempt.submitted_ms is None:
        return False
    return before.submitted_ms == attempt.submitted_ms


def _later(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _milliseconds(seconds: float | None) -> int:
    """A duration; 0 for what is none."""
    return round(seconds * 1000) if seconds is not None and 0 < seconds < 1e9 else 0


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Neighbours of one attempt and one kind as one."""
    held: Span | None = None
    for span in spans:
        if held is not None and (held.attempt, held.kind) == (span.attempt, span.kind):
            held = Span(held.attempt, held.kind, held.begin_ms, span.end_ms)
        else:
            if held is not None:
                yield held
            held = span
    if held is not None:
        yield held
