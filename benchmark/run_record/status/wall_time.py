"""The wall time of a run as marks: each has a time, and the kind of the time since the mark before.

Every millisecond belongs to exactly one kind: the time of a kind is the sum of the differences between neighbours.
Where two marks are out of order, the later one takes no time.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from benchmark.run_record.attempt_folder import AttemptEnding, AttemptStart, read_ending, read_start
from benchmark.run_record.file_names import attempt_path, attempts_folder
from benchmark.run_record.incidents import Incident, first_cause, read_incidents
from benchmark.run_record.recorded_events import RecordedEvent

Kind = Literal[
    "queue", "start", "init", "productive", "evaluation", "audit", "checkpoint", "lost", "hang", "stop", "idle",
    "other", "unknown",
]  # fmt: skip

MEANINGS: Mapping[Kind, str] = {
    "queue": "a job was submitted, and nothing was launched yet",
    "start": "from the launch until the run's folder is open: processes, imports",
    "init": "processes meet, weights and moments are read, samples are put in order",
    "productive": "steps whose result survived",
    "evaluation": "evaluations that count",
    "audit": "copies that must be the same were compared",
    "checkpoint": "training paused for the copy of a checkpoint",
    "lost": "steps and evaluations done again, cut off by an incident, or skipped",
    "hang": "from the last sign of life until the processes were ended",
    "stop": "from an incident, or the end of training, until the processes were gone",
    "idle": "an attempt had ended, and the next was neither submitted nor launched",
    "other": "between all these, while training: messages, checkpoints waited for",
    "unknown": "from the last trace of an attempt to the first of the next: nobody wrote down when it ended",
}

GAPS: tuple[Kind, ...] = ("queue", "idle", "unknown")
"""Kinds of time between attempts."""
OWN: tuple[Kind, ...] = ("lost", "hang", "stop")
AFTER: tuple[Kind, ...] = ("idle", "unknown", "start", "init")
"""Kinds of time that the end of an attempt costs: of its own time (OWN), and of the next attempt's (AFTER). The queue
is counted separately, because no device stands still in it."""

DURATIONS: dict[str, tuple[str, Kind]] = {
    "step": ("step_s", "productive"),
    "evaluation": ("seconds", "evaluation"),
    "audit": ("seconds", "audit"),
    "checkpoint": ("seconds", "checkpoint"),
}
"""Events that come at the end of an activity, each with the field of its duration and its kind of time."""
TRAINING = ("ready", "run_start", "restart", "step")
"""Events after which an attempt is no longer in its initial phase."""
FIRST_MS, LAST_MS = 10**12, 4 * 10**12
"""Years 2001 and 2096 in milliseconds since the epoch. A time beyond them comes from a damaged file."""


@dataclass(frozen=True)
class Attempt:
    """The records of one start of all processes."""

    name: str
    events: Sequence[RecordedEvent]
    start: AttemptStart | None
    end: AttemptEnding | None
    cause: Incident | None
    """The first incident."""

    @property
    def begun_ms(self) -> float:
        """Time to sort by; damaged times count as none."""
        told = (self.start.launched_s or self.start.started_s) if self.start else self.end.ended_s if self.end else 0
        return float(self.events[0].time_ms) if self.events else 1000.0 * told


def attempts_of(run_dir: Path, events: Sequence[RecordedEvent]) -> list[Attempt]:
    """Return the attempts at a run in their order, from its events and its attempt folders.

    Each start notes its environment in the events. An attempt may have a folder alone, if it ended before it opened the
    run's log, or events alone, if no launcher kept folders.
    """
    dated = [event for event in events if FIRST_MS <= event.time_ms <= LAST_MS]
    begun = [place for place, event in enumerate(dated) if event.key == "environment"] or [0] * bool(dated)
    found: dict[str, Attempt] = {}
    for number, (first, end) in enumerate(pairwise([*begun, len(dated)])):
        section = dated[0 if number == 0 else first : end]
        noted = [event.fields.get("attempt") for event in section if event.key == "attempt"]
        name = noted[0] if noted and isinstance(noted[0], str) else f"{number + 1:04d}"
        found[name] = _attempt(run_dir, name, section)
    folder = attempts_folder(run_dir)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.name not in found:
            found[path.name] = _attempt(run_dir, path.name, ())
    return sorted(found.values(), key=lambda attempt: attempt.begun_ms)


def _attempt(run_dir: Path, name: str, events: Sequence[RecordedEvent]) -> Attempt:
    folder = attempt_path(run_dir, name)
    return Attempt(name, events, read_start(folder), read_ending(folder), first_cause(read_incidents(folder)))


@dataclass
class TimeMark:
    """A moment, and what the time before it was."""

    time_ms: float
    """Milliseconds since the epoch."""
    kind: Kind
    attempt: int
    """Index of the attempt."""
    key: str = ""
    """Key of the event that ended an activity; empty if none did."""
    tokens: float = math.nan
    """Tokens trained until then, or those that the attempt goes on from; NaN if nobody wrote them down."""
    skipped: bool = False
    ms: float = 0.0
    """Milliseconds since the mark before."""
    lost: bool = False
    """Whether a step or evaluation was done again later, was skipped, or is left nowhere."""

    def lose(self) -> None:
        self.lost, self.kind = True, "lost"


def wall_time(attempts: Sequence[Attempt]) -> list[TimeMark]:
    """Return the marks of a run in their order."""
    marks = [mark for place in range(len(attempts)) for mark in _marks(attempts, place)]
    for before, mark in pairwise(marks):
        mark.time_ms = max(mark.time_ms, before.time_ms)
        mark.ms = mark.time_ms - before.time_ms
    went_back = again = math.inf
    """Fewest tokens of later restarts, and of later steps: what has more was done again."""
    for mark in reversed(marks):
        if mark.kind in ("productive", "evaluation") and (
            mark.skipped or went_back < mark.tokens or again <= mark.tokens
        ):
            mark.lose()
        if mark.key in ("restart", "run_start"):
            went_back = min(went_back, mark.tokens)
        elif mark.key == "step":
            again = min(again, mark.tokens)
    return marks


def _marks(attempts: Sequence[Attempt], place: int) -> Iterator[TimeMark]:
    attempt = attempts[place]
    before = attempts[place - 1] if place else None
    opened = attempt.events[0].time_ms if attempt.events else None
    gap: Kind = "idle" if before is None or before.end is not None else "unknown"
    start = attempt.start
    if start is not None:
        same_job = before is not None and before.start is not None and before.start.submitted_s == start.submitted_s
        if start.submitted_s is not None and not same_job:
            yield TimeMark(_within(start.submitted_s, opened), gap, place)
            gap = "queue"
        yield TimeMark(_within(start.launched_s or start.started_s, opened), gap, place)
        gap = "start"
    if opened is not None:
        yield TimeMark(opened, gap, place)
    doing: Kind = "init" if attempt.events else "start"
    for event in attempt.events[1:]:
        if event.key in DURATIONS:
            field, kind = DURATIONS[event.key]
            seconds, tokens = event.number(field) or 0.0, event.number("trained_tokens")
            yield TimeMark(event.time_ms - 1000 * seconds if 0 < seconds < 1e9 else event.time_ms, doing, place)
            skipped = event.fields.get("skipped") is True
            yield TimeMark(event.time_ms, kind, place, event.key, math.nan if tokens is None else tokens, skipped)
        elif event.key in ("run_start", "restart"):
            yield TimeMark(event.time_ms, doing, place, event.key, event.number("step") or 0.0)
        elif event.key == "run_stop":
            hung = attempt.cause is not None and attempt.cause.kind == "hang"
            yield TimeMark(
                event.time_ms, "hang" if hung else "other" if attempt.cause is None else "lost", place, event.key
            )
            doing = "stop"
        elif event.key in TRAINING and doing == "init":
            yield TimeMark(event.time_ms, doing, place, event.key)
        if event.key in TRAINING:
            doing = "other"
    after = next((other.events[0].time_ms for other in attempts[place + 1 :] if other.events), None)
    yield from _leaving(attempt, place, doing, after)


def _leaving(attempt: Attempt, place: int, doing: Kind, after_ms: float | None) -> Iterator[TimeMark]:
    """Yield the marks from the last event of an attempt to its end, as far as that is known.

    No mark is later than the next attempt's first event, ``after_ms``.
    """
    cause, ended = attempt.cause, attempt.end
    cut_off: Kind = "lost" if doing == "other" else doing
    if cause is None:
        if attempt.events:
            yield TimeMark(attempt.events[-1].time_ms, doing, place)
    elif cause.kind == "hang":
        yield TimeMark(_within(ended.ended_s if ended else cause.time_s, after_ms), "hang", place)
    else:
        yield TimeMark(_within(cause.time_s, after_ms), cut_off, place)
        cut_off = "stop"
    if ended is not None:
        yield TimeMark(_within(ended.ended_s, after_ms), cut_off, place)


def _within(seconds: float, latest_ms: float | None) -> float:
    """Return a time of another clock in milliseconds, no later than an event."""
    return 1000 * seconds if latest_ms is None else min(1000 * seconds, latest_ms)
