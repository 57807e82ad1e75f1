"""The wall time of a run as a frame of marks: each row gives a time and the kind of the time before it.

Nothing counts twice and nothing is left out: the time of a kind is the sum of the differences between neighbours. Where
two marks are out of order, the later row takes no time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from benchmark.launch.attempt_folder import (
    AttemptEnd,
    AttemptStart,
    attempt_path,
    attempts_folder,
    read_end,
    read_start,
)
from benchmark.launch.incidents import Incident, first_cause, read_incidents
from benchmark.results.recorded_run import RecordedEvent
from benchmark.status.time_kinds import Kind

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
COLUMNS = ["time_ms", "kind", "attempt", "key", "tokens", "skipped", "back_ms"]


@dataclass(frozen=True)
class Attempt:
    """The records of one start of all processes."""

    name: str
    events: Sequence[RecordedEvent]
    start: AttemptStart | None
    end: AttemptEnd | None
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
    return Attempt(name, events, read_start(folder), read_end(folder), first_cause(read_incidents(folder)))


def wall_time(attempts: Sequence[Attempt]) -> pd.DataFrame:
    """Return the marks of a run. ``ms``: the time before each; ``back_ms``: the lag of a clock that was set back.

    While a machine's clock is set back no time is counted; the times after that are shifted by the lag.
    """
    rows = [row for place in range(len(attempts)) for row in _marks(attempts, place)]
    marks = pd.DataFrame(rows, columns=COLUMNS).astype({"time_ms": "float64", "tokens": "float64"})
    marks["back_ms"] = marks["back_ms"].fillna(0.0).astype("float64").cumsum()
    marks["time_ms"] = (marks["time_ms"] + marks["back_ms"]).cummax()
    marks["ms"] = marks["time_ms"].diff().fillna(0.0)
    lost = _lost(marks) & marks["kind"].isin(["productive", "evaluation"])
    marks["lost"] = lost
    marks.loc[lost, "kind"] = "lost"
    return marks


def _lost(marks: pd.DataFrame) -> "pd.Series[bool]":
    """Mark steps and evaluations that were done again: a later restart has fewer tokens, or a later step the same
    number."""
    back = marks["tokens"].where(marks["key"].isin(["restart", "run_start", "end"]))
    again = marks["tokens"].where(marks["key"] == "step")
    to_back, to_again = (each.iloc[::-1].cummin().ffill().iloc[::-1].shift(-1) for each in (back, again))
    skipped = marks["skipped"].eq(True)
    return skipped | (to_back < marks["tokens"]) | (to_again <= marks["tokens"])


def _marks(attempts: Sequence[Attempt], place: int) -> Iterator[dict[str, Any]]:
    attempt = attempts[place]
    before = attempts[place - 1] if place else None
    opened = attempt.events[0].time_ms if attempt.events else None

    def mark(time_ms: float, kind: Kind, key: str = "", **more: Any) -> dict[str, Any]:
        return {"time_ms": time_ms, "kind": kind, "attempt": place, "key": key, **more}

    gap: Kind = "idle" if before is None or before.end is not None else "unknown"
    start = attempt.start
    if start is not None:
        same_job = before is not None and before.start is not None and before.start.submitted_s == start.submitted_s
        if start.submitted_s is not None and not same_job:
            yield mark(_within(start.submitted_s, opened), gap)
            gap = "queue"
        yield mark(_within(start.launched_s or start.started_s, opened), gap)
        gap = "start"
    doing: Kind = "init" if attempt.events else "start"
    last_ms = opened
    for number, event in enumerate(attempt.events):
        back_ms = max(0, last_ms - event.time_ms) if last_ms is not None else 0
        last_ms = event.time_ms
        if number == 0:
            yield mark(event.time_ms, gap)
            continue
        if event.key in DURATIONS:
            field, kind = DURATIONS[event.key]
            seconds = event.number(field) or 0.0
            tokens = event.number("trained_tokens")
            skipped = event.fields.get("skipped") is True
            yield mark(event.time_ms - 1000 * seconds if 0 < seconds < 1e9 else event.time_ms, doing, back_ms=back_ms)
            yield mark(event.time_ms, kind, event.key, tokens=tokens, skipped=skipped)
        elif event.key in ("run_start", "restart"):
            yield mark(event.time_ms, doing, event.key, tokens=event.number("step") or 0.0, back_ms=back_ms)
        elif event.key == "run_stop":
            hung = attempt.cause is not None and attempt.cause.kind == "hang"
            yield mark(event.time_ms, "hang" if hung else "other" if attempt.cause is None else "lost", event.key)
            doing = "stop"
        elif back_ms or (event.key in TRAINING and doing == "init"):
            yield mark(event.time_ms, doing, event.key, back_ms=back_ms)
        if event.key in TRAINING:
            doing = "other"
    after = next((other.events[0].time_ms for other in attempts[place + 1 :] if other.events), None)
    yield from _leaving(attempt, doing, last_ms, after, mark)


def _leaving(
    attempt: Attempt, doing: Kind, seen_ms: float | None, after_ms: float | None, mark: Any
) -> Iterator[dict[str, Any]]:
    """Yield the marks from the last event of an attempt to its end, as far as that is known.

    No mark is later than the next attempt's first event, ``after_ms``.
    """
    cause, ended = attempt.cause, attempt.end
    cut_off: Kind = "lost" if doing == "other" else doing
    if cause is None:
        if seen_ms is not None:
            yield mark(seen_ms, doing)
    elif cause.kind == "hang":
        yield mark(_within(ended.ended_s if ended else cause.time_s, after_ms), "hang")
    else:
        yield mark(_within(cause.time_s, after_ms), cut_off)
        cut_off = "stop"
    if ended is not None:
        yield mark(_within(ended.ended_s, after_ms), cut_off)


def _within(seconds: float, latest_ms: float | None) -> float:
    """Return a time of another clock in milliseconds, no later than an event."""
    return 1000 * seconds if latest_ms is None else min(1000 * seconds, latest_ms)
