"""The goodput ledger of a run: its whole wall time by kind, and what each attempt cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmark.goodput.observed_failures import Expectation, expectation
from benchmark.goodput.recorded_attempts import Cause, RecordedAttempt, recorded_attempts
from benchmark.goodput.steady_clock import FIRST_MS, LAST_MS, TOLD_MS, steady
from benchmark.goodput.survival import Survival, survival
from benchmark.goodput.time_kinds import AFTER, GAPS, MEANINGS, OWN, Kind
from benchmark.goodput.wall_time import DatedEvent, Span, merged, wall_time
from benchmark.results.recorded_events import RecordedEvent, read_events
from benchmark.supervision.attempt_folder import attempts_folder
from stage.errors import InputError
from stage.json_files import UNREADABLE, read_json

SAVED = 75
"""Exit status of an attempt that was interrupted and saved."""
MOST_DEVICES = 1 << 20
MOST_BYTES = 1 << 20
"""Of a configuration."""


@dataclass(frozen=True)
class AttemptRow:
    """One attempt. Times are milliseconds; texts are printable."""

    name: str
    begun_ms: int | None
    """Since the epoch: its first trace, on the scale of the run's events; None of an attempt that took no time."""
    ended_ms: int | None
    """Its last."""
    kind: str
    """How it ended: "finished"; "interrupted" and saved; the kind of its first incident; "failed" where that is not
    known; "unknown" where nobody saw it end; "running" of the last one then."""
    cause: Cause | None
    action: str
    """What the launcher decided; empty where it did not."""
    reason: str
    steps: int
    """Steps it did."""
    steps_lost: int
    """Of these, those done again later, or left nowhere."""
    by_kind: Mapping[Kind, int]
    """Its time, and the time before it since the attempt before."""
    cost_ms: int
    """What its end cost: its own lost time, hang and stop, and all until the next attempt was ready but its queue."""
    queued_ms: int
    """The queue of the next attempt."""

    @property
    def restart_ms(self) -> int:
        """Of the cost, what is not lost work."""
        return self.cost_ms - self.by_kind["lost"]

    @property
    def failed(self) -> bool:
        return self.kind not in ("finished", "interrupted", "running")


@dataclass(frozen=True)
class GoodputLedger:
    """Of a run. ``spans`` lie end to end from the first trace of the run to the last."""

    spans: Sequence[Span]
    attempts: Sequence[AttemptRow]
    devices: int | None
    """World size; None where it is not known."""
    steps_kept: int
    steps_lost: int
    steps_skipped: int
    """Steps that updated nothing, their gradients not being finite. Their time is lost."""
    expected: Expectation | None
    """At the failures it had; None where these are too few to tell."""
    remarks: Sequence[str]
    """What a reader has to know to believe it."""

    @property
    def by_kind(self) -> dict[Kind, int]:
        """Milliseconds of each kind, in the order of MEANINGS; they add up to ``whole_ms``."""
        return _by_kind(self.spans)

    @property
    def whole_ms(self) -> int:
        return self.spans[-1].end_ms - self.spans[0].begin_ms if self.spans else 0

    @property
    def goodput(self) -> float | None:
        """Productive / whole; None of no time at all."""
        return _share(self.by_kind["productive"], self.whole_ms)

    @property
    def goodput_without_queue(self) -> float | None:
        return _share(self.by_kind["productive"], self.whole_ms - self.by_kind["queue"])

    @property
    def device_hours_lost(self) -> float | None:
        """What the ends of all attempts cost, times the devices that stood still."""
        return device_hours(sum(row.cost_ms for row in self.attempts), self.devices)


def device_hours(ms: int, devices: int | None) -> float | None:
    return None if devices is None else ms * devices / 3_600_000


def read_ledger(run_dir: Path, events: Sequence[RecordedEvent] | None = None) -> GoodputLedger:
    """The ledger of the run in a folder. ``events``: those of its events.jsonl, if they have been read already.

    Raises InputError for a folder that holds neither events nor attempts, and for files too large to read.
    """
    if not (run_dir / "events.jsonl").is_file() and not attempts_folder(run_dir).is_dir():
        raise InputError(f"{run_dir}: expected the folder of a run, with events.jsonl or attempts in it")
    given = read_events(run_dir / "events.jsonl") if events is None else events
    dated = [event for event in given if FIRST_MS <= event.time_ms <= LAST_MS]
    attempts = recorded_attempts(run_dir, dated)
    return make_ledger(
        attempts, dated, devices=_devices(run_dir, attempts), finished=(run_dir / "summary.json").is_file()
    )


def make_ledger(
    attempts: Sequence[RecordedAttempt], events: Sequence[RecordedEvent], *, devices: int | None, finished: bool
) -> GoodputLedger:
    """``finished``: the run left its summary. What is not in a checkpoint of it is not missed then."""
    clock = steady([event.time_ms for event in events])
    times = wall_time(attempts, events, clock)
    stopped = {done.attempt: done.event.fields.get("status") for done in times.events if done.event.key == "run_stop"}
    finished = finished or stopped.get(len(attempts) - 1) == "success"
    ended_early = not finished and bool(attempts) and attempts[-1].ended_ms is not None
    fate = survival(times.events, unsaved_is_lost=ended_early)
    for done in fate.lost:
        if done.span is not None:
            done.span.kind = "lost"
    rows = _rows(attempts, times.spans, times.events, fate, finished=finished)
    remarks = [
        f"the clock went back by {jump.back_ms / 1000:,.3f} s at {as_utc(jump.at_ms)}: no time is counted there, and "
        "as much before it may not have passed"
        for jump in clock.jumps
        if jump.back_ms >= TOLD_MS
    ]
    if fate.unsaved and not finished:
        those = ("step is", "it") if fate.unsaved == 1 else ("steps are", "them")
        remarks.append(f"{fate.unsaved:,} {those[0]} in no whole checkpoint yet: a restart would do {those[1]} again")
    spans = list(merged(times.spans))
    failed_ms = [row.restart_ms for row in rows[:-1] if row.failed]
    return GoodputLedger(
        spans=spans,
        attempts=rows,
        devices=devices,
        steps_kept=len(fate.kept),
        steps_lost=sum(row.steps_lost for row in rows),
        steps_skipped=sum(_skipped(done) for done in fate.lost),
        expected=expectation(_by_kind(spans), times.events, restarts_ms=failed_ms),
        remarks=remarks,
    )


def as_utc(time_ms: int) -> str:
    """For people: "2026-03-01 12:00:07Z"."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _rows(
    attempts: Sequence[RecordedAttempt],
    spans: Sequence[Span],
    events: Sequence[DatedEvent],
    fate: Survival,
    *,
    finished: bool,
) -> list[AttemptRow]:
    of_attempt: list[list[Span]] = [[] for _ in attempts]
    for span in spans:
        of_attempt[span.attempt].append(span)
    stopped = {done.attempt for done in events if done.event.key == "run_stop"}
    steps = Counter(done.attempt for done in events if done.event.key == "step")
    lost = Counter(done.attempt for done in fate.lost if done.event.key == "step" and not _skipped(done))
    by_kind = [_by_kind(own) for own in of_attempt]
    rows = []
    for place, attempt in enumerate(attempts):
        is_last = place == len(attempts) - 1
        kind = "finished" if is_last and finished else _how_ended(attempt, place in stopped, is_last=is_last)
        own, after = by_kind[place], None if is_last else by_kind[place + 1]
        cost_ms = sum(own[name] for name in OWN) - (own["stop"] if is_last and finished else 0)
        cost_ms += 0 if after is None else sum(after[name] for name in AFTER)
        lived = [span for span in of_attempt[place] if span.kind not in GAPS]
        rows.append(
            AttemptRow(
                name=attempt.name,
                begun_ms=lived[0].begin_ms if lived else None,
                ended_ms=lived[-1].end_ms if lived else None,
                kind=kind,
                cause=attempt.cause,
                action=attempt.action,
                reason=attempt.reason,
                steps=steps[place],
                steps_lost=lost[place],
                by_kind=own,
                cost_ms=cost_ms,
                queued_ms=0 if after is None else after["queue"],
            )
        )
    return rows


def _how_ended(attempt: RecordedAttempt, stopped: bool, *, is_last: bool) -> str:
    """``stopped``: it logged the end of its run, whatever status torchrun makes of it."""
    if attempt.cause is not None and attempt.status != SAVED:
        return attempt.cause.kind
    if stopped or attempt.status == SAVED:
        return "interrupted"
    if attempt.status is not None:
        return "failed" if attempt.status else "finished"
    return "running" if is_last else "unknown"


def _by_kind(spans: Sequence[Span]) -> dict[Kind, int]:
    found: dict[Kind, int] = dict.fromkeys(MEANINGS, 0)
    for span in spans:
        found[span.kind] += span.ms
    return found


def _skipped(done: DatedEvent) -> bool:
    return done.event.key == "step" and done.event.fields.get("skipped") is True


def _share(part_ms: int, whole_ms: int) -> float | None:
    return part_ms / whole_ms if whole_ms > 0 else None


def _devices(run_dir: Path, attempts: Sequence[RecordedAttempt]) -> int | None:
    """World size: by the hosts of an attempt, else by the run's configuration."""
    sizes = [len(attempt.hosts) for attempt in attempts if attempt.hosts]
    if sizes:
        return sizes[-1]
    path = run_dir / "config.json"
    try:
        system = read_json(path, dict, largest=MOST_BYTES)["system"]
        found = system["nodes"] * system["devices_per_node"]
    except UNREADABLE:
        return None
    return found if isinstance(found, int) and 0 < found <= MOST_DEVICES else None
