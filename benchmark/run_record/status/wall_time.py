"""The wall time of a run as marks: each has a time, and the kind of the time since the mark before.

Every millisecond belongs to exactly one kind: the time of a kind is the sum of the differences between neighbours.
Where two marks are out of order, the later one takes no time.
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from benchmark.run_record.attempt_folder import AttemptEnding, AttemptStart, read_ending, read_start
from benchmark.run_record.events.recorded_events import RecordedEvents
from benchmark.run_record.file_names import attempt_path, attempts_folder
from benchmark.run_record.incidents import Incident, first_cause, read_incidents
from foundation.disk_answers import entries_in

TimeKind = Literal[
    "queue", "start", "init", "productive", "evaluation", "audit", "checkpoint", "lost", "hang", "stop", "idle",
    "other", "unknown",
]  # fmt: skip

MEANINGS: Mapping[TimeKind, str] = {
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

GAPS: tuple[TimeKind, ...] = ("queue", "idle", "unknown")
"""Kinds of time between attempts."""
OWN: tuple[TimeKind, ...] = ("lost", "hang", "stop")
AFTER: tuple[TimeKind, ...] = ("idle", "unknown", "start", "init")
"""Kinds of time that the end of an attempt costs: of its own time (OWN), and of the next attempt's (AFTER). The queue
is counted separately, because no device stands still in it."""

DURATIONS: dict[str, tuple[str, TimeKind]] = {
    "step": ("step_s", "productive"),
    "evaluation": ("seconds", "evaluation"),
    "audit": ("seconds", "audit"),
    "checkpoint": ("seconds", "checkpoint"),
}
"""Events that come at the end of an activity, each with the field of its duration and its kind of time."""
TRAINING = ("ready", "run_start", "restart", "step")
"""Events after which an attempt is no longer in its initial phase."""
MARKED = (*DURATIONS, *TRAINING, "run_stop")
"""Events that end a time of some kind."""
KINDS = tuple(MEANINGS)
MARK_KEYS = ("", *dict.fromkeys(MARKED))
FIRST_MS, LAST_MS = 10**12, 4 * 10**12
"""Years 2001 and 2096 in milliseconds since the epoch. A time beyond them comes from a damaged file."""


@dataclass(frozen=True)
class Attempt:
    """The records of one start of all processes."""

    name: str
    events: RecordedEvents
    start: AttemptStart | None
    end: AttemptEnding | None
    cause: Incident | None
    """The first incident."""

    @property
    def begun_ms(self) -> float:
        """Time to sort by; damaged times count as none."""
        start_s = self.start.launched_s or self.start.started_s if self.start else None
        end_s = self.end.ended_s if self.end else 0
        return float(self.events[0].time_ms) if self.events else 1000.0 * (end_s if start_s is None else start_s)


def attempts_of(run_dir: Path, events: RecordedEvents) -> list[Attempt]:
    """Return the attempts at a run in their order, from its events and its attempt folders.

    An attempt may have a folder alone, if it ended before it opened the run's log, or events alone, if no launcher kept
    folders.
    """
    attempts: dict[str, Attempt] = {}
    for number, (name, section) in enumerate(_sections(events.between(FIRST_MS, LAST_MS)), 1):
        name = name or f"{number:04d}"
        attempts[name] = _attempt(run_dir, name, section)
    for entry in entries_in(attempts_folder(run_dir)):
        if entry.is_dir() and entry.name not in attempts:
            attempts[entry.name] = _attempt(run_dir, entry.name, RecordedEvents())
    return _in_order(attempts)


def _sections(events: RecordedEvents) -> Iterator[tuple[str, RecordedEvents]]:
    """Yield the name of each attempt, which may be empty, with its events.

    Each start notes its name, again if it falls back to an older checkpoint, and its environment. Older versions noted
    the environment first. What an attempt says before its name comes after the start of its first process.
    """
    names, begins, latest = [""], [0], 0
    has_environment = False
    for index in events.indices("attempt", "environment"):
        event = events[index]
        field = event.fields.get("attempt") if event.key == "attempt" else None
        name = field if isinstance(field, str) else ""
        if name and not names[-1]:
            names[-1] = name
        elif has_environment if event.key == "environment" else name and name != names[-1]:
            begun_ms = 1000 * (event.number("started_s") or math.inf)
            while index > latest + 1 and events[index - 1].time_ms >= begun_ms:
                index -= 1
            names.append(name)
            begins.append(index)
            has_environment = False
        has_environment |= event.key == "environment"
        latest = index
    for name, (first, end) in zip(names, pairwise([*begins, len(events)]), strict=True):
        if end > first:
            yield name, events[first:end]


def _in_order(attempts: Mapping[str, Attempt]) -> list[Attempt]:
    """Sort by the time of the beginning, but a launcher's attempts by their numbers, whatever their clocks say; an
    attempt without a time follows the attempt with the name before its own."""
    times, latest = dict[str, float](), 0.0
    for name in sorted(attempts):
        begun_ms = attempts[name].begun_ms or latest
        latest = max(latest, begun_ms) if name.isdigit() else begun_ms
        times[name] = latest
    return sorted(attempts.values(), key=lambda attempt: (times[attempt.name], attempt.name))


def _attempt(run_dir: Path, name: str, events: RecordedEvents) -> Attempt:
    folder = attempt_path(run_dir, name)
    return Attempt(name, events, read_start(folder), read_ending(folder), first_cause(read_incidents(folder)))


class TimeMark(NamedTuple):
    """A moment, and the kind of the time before it."""

    time_ms: float
    """Milliseconds since the epoch."""
    kind: TimeKind
    attempt: int
    """Index of the attempt."""
    key: str = ""
    """Key of the event that ended an activity; empty if none did."""
    tokens: float = math.nan
    """Tokens trained until then, or before the attempt; NaN if nobody wrote them down."""
    skipped: bool = False
    ms: float = 0.0
    """Milliseconds since the mark before."""
    lost: bool = False
    """Whether a step or evaluation was done again later, was skipped, or is left nowhere."""


class TimeMarks(Sequence[TimeMark]):
    """The marks of a run in their order, in columns: a run has two for each of its steps."""

    def __init__(self) -> None:
        self.times_ms, self.tokens, self.lengths_ms = array("d"), array("d"), array("d")
        self.attempts, self._kinds, self._keys = array("I"), array("B"), array("B")
        self._skipped, self._lost = array("b"), array("b")

    def append(self, mark: TimeMark) -> None:
        """Append a mark that is not earlier than the last; a time before it is raised to it."""
        before_ms = self.times_ms[-1] if self.times_ms else mark.time_ms
        time_ms = max(mark.time_ms, before_ms)
        self.times_ms.append(time_ms)
        self.lengths_ms.append(time_ms - before_ms)
        self.tokens.append(mark.tokens)
        self.attempts.append(mark.attempt)
        self._kinds.append(KINDS.index(mark.kind))
        self._keys.append(MARK_KEYS.index(mark.key))
        self._skipped.append(mark.skipped)
        self._lost.append(mark.lost)

    def __len__(self) -> int:
        return len(self.times_ms)

    def __getitem__(self, index: int) -> TimeMark:  # type: ignore[override]
        return TimeMark(
            self.times_ms[index], KINDS[self._kinds[index]], self.attempts[index], MARK_KEYS[self._keys[index]],
            self.tokens[index], bool(self._skipped[index]), self.lengths_ms[index], bool(self._lost[index]),
        )  # fmt: skip

    def lose(self, index: int) -> None:
        """Count the time before a mark as lost."""
        self._lost[index], self._kinds[index] = True, KINDS.index("lost")


def wall_time(attempts: Sequence[Attempt]) -> TimeMarks:
    """Return the marks of a run in their order."""
    marks = TimeMarks()
    next_begin_ms: list[float | None] = [None]
    for attempt in reversed(attempts):
        next_begin_ms.append(attempt.events[0].time_ms if attempt.events else next_begin_ms[-1])
    for number in range(len(attempts)):
        for mark in _marks(attempts, number, next_begin_ms[len(attempts) - number - 1]):
            marks.append(mark)
    went_back = later_tokens = math.inf
    """Fewest tokens of later restarts, and of later steps: a mark with more was done again."""
    for index in range(len(marks) - 1, -1, -1):
        mark = marks[index]
        if mark.kind in ("productive", "evaluation") and (
            mark.skipped or went_back < mark.tokens or later_tokens <= mark.tokens
        ):
            marks.lose(index)
        if mark.key in ("restart", "run_start"):
            went_back = min(went_back, mark.tokens)
        elif mark.key == "step":
            later_tokens = min(later_tokens, mark.tokens)
    return marks


def _marks(attempts: Sequence[Attempt], index: int, next_begin_ms: float | None) -> Iterator[TimeMark]:
    """Yield the marks of an attempt. ``next_begin_ms``: first event of the attempts after it."""
    attempt = attempts[index]
    previous = attempts[index - 1] if index else None
    opened = attempt.events[0].time_ms if attempt.events else None
    gap: TimeKind = "idle" if previous is None or previous.end is not None else "unknown"
    start = attempt.start
    if start is not None:
        same_job = (
            previous is not None and previous.start is not None and previous.start.submitted_s == start.submitted_s
        )
        if start.submitted_s is not None and not same_job:
            yield TimeMark(_within(start.submitted_s, opened), gap, index)
            gap = "queue"
        yield TimeMark(_within(start.launched_s or start.started_s, opened), gap, index)
        gap = "start"
    if opened is not None:
        yield TimeMark(opened, gap, index)
    doing: TimeKind = "init" if attempt.events else "start"
    for event in attempt.events[1:].of(*MARKED):
        if event.key in DURATIONS:
            field, kind = DURATIONS[event.key]
            seconds, tokens = event.number(field) or 0.0, event.number("trained_tokens")
            yield TimeMark(event.time_ms - 1000 * seconds if 0 < seconds < 1e9 else event.time_ms, doing, index)
            skipped = event.fields.get("skipped") is True
            yield TimeMark(event.time_ms, kind, index, event.key, math.nan if tokens is None else tokens, skipped)
        elif event.key in ("run_start", "restart"):
            yield TimeMark(event.time_ms, doing, index, event.key, event.number("step") or 0.0)
        elif event.key == "run_stop":
            hung = attempt.cause is not None and attempt.cause.kind == "hang"
            yield TimeMark(
                event.time_ms, "hang" if hung else "other" if attempt.cause is None else "lost", index, event.key
            )
            doing = "stop"
        elif event.key in TRAINING and doing == "init":
            yield TimeMark(event.time_ms, doing, index, event.key)
        if event.key in TRAINING:
            doing = "other"
    yield from _leaving(attempt, index, doing, next_begin_ms)


def _leaving(attempt: Attempt, index: int, doing: TimeKind, after_ms: float | None) -> Iterator[TimeMark]:
    """Yield the marks from the last event of an attempt to its end, as far as that is known.

    No mark is later than the next attempt's first event, ``after_ms``.
    """
    cause, ended = attempt.cause, attempt.end
    cut_off: TimeKind = "lost" if doing == "other" else doing
    if cause is None:
        if attempt.events:
            yield TimeMark(attempt.events[-1].time_ms, doing, index)
    elif cause.kind == "hang":
        yield TimeMark(_within(ended.ended_s if ended else cause.time_s, after_ms), "hang", index)
    else:
        yield TimeMark(_within(cause.time_s, after_ms), cut_off, index)
        cut_off = "stop"
    if ended is not None:
        yield TimeMark(_within(ended.ended_s, after_ms), cut_off, index)


def _within(seconds: float, latest_ms: float | None) -> float:
    """Return a time of another clock in milliseconds, no later than an event."""
    return 1000 * seconds if latest_ms is None else min(1000 * seconds, latest_ms)
