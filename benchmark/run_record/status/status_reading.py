"""Read the status of a run from its folder alone. The files in it may be damaged or still growing."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.endings import ENDINGS
from benchmark.run_record.events.recorded_events import RecordedEvent, RecordedEvents, read_events
from benchmark.run_record.file_names import (
    CONFIG_FILE,
    EVENTS_FILE,
    STOP_NOTE_FILE,
    SUMMARY_FILE,
    attempts_folder,
    lease_path,
)
from benchmark.run_record.lease import Lease, read_lease
from benchmark.run_record.small_files import read_object
from benchmark.run_record.status.run_status import AttemptRow, RunStatus
from benchmark.run_record.status.wall_time import (
    AFTER,
    GAPS,
    MEANINGS,
    OWN,
    Attempt,
    TimeKind,
    TimeMark,
    TimeMarks,
    attempts_of,
    wall_time,
)
from foundation.disk_answers import folder_is_there, is_there
from foundation.errors import InputError
from foundation.plain_text import printable

INTERRUPTED = ENDINGS["interrupted"].exit_status
SILENT_S = 1800.0
"""Seconds without an event after which a run without an end is no longer said to be running."""
LATEST_EVENTS = 50
"""Number of latest events among which a finished run has its run_stop."""
LATEST_STEPS = 21
"""Number of latest steps whose median is the time of a step."""
HELD_STATES = ("starting", "running", "starting again")
AT_ONCE: Mapping[str, str] = {"requeue": "waiting", "stop": "given up", "again": "starting again"}
"""State of a run after an attempt, by its launcher's decision."""


def read_status(run_dir: Path, events: RecordedEvents | None = None) -> RunStatus:
    """Return the status of the run in a folder. ``events``: the contents of its events.jsonl, if they are read already.

    Raises InputError for a folder that holds neither events nor attempts, and for files too large to read.
    """
    if not is_there(run_dir / EVENTS_FILE) and not folder_is_there(attempts_folder(run_dir)):
        raise InputError(f"{run_dir}: expected the folder of a run, with events.jsonl or attempts in it")
    events = read_events(run_dir / EVENTS_FILE) if events is None else events
    attempts = attempts_of(run_dir, events)
    summary = read_object(run_dir / SUMMARY_FILE)
    marks = wall_time(attempts)
    finished = summary is not None or any(
        event.key == "run_stop" and event.fields.get("status") == "success" for event in events[-LATEST_EVENTS:]
    )
    unsaved = [] if finished else _beyond_checkpoint(events, marks)
    unsaved_steps = sum(marks[index].key == "step" and not marks[index].lost for index in unsaved)
    if attempts and attempts[-1].end is not None:
        for index in unsaved:  # no later attempt can do more than do it again
            marks.lose(index)
        unsaved_steps = 0
    config = read_object(run_dir / CONFIG_FILE) or {}
    heard_s = max(events.times_ms, default=0) / 1000 or None
    steps = events.of("step")
    last_step, eta = _last_event(events, "step"), _last_event(events, "eta")
    steps_done = last_step.number("steps")
    step_times_s = steps[-LATEST_STEPS:].present_numbers("step_s")
    step_s = median(step_times_s) if step_times_s else None
    speed, last_step_s = last_step.number("tokens_per_s"), last_step.number("step_s")
    expected_s, tokens, target = eta.number("seconds"), last_step.number("trained_tokens"), eta.number("target_tokens")
    lease, unrenewed_s, now_s = read_lease(run_dir), 0.0, time.time()
    if lease is not None:
        # by the disk's clock, because the holder's may have jumped
        unrenewed_s = now_s - _changed_s(lease_path(run_dir), lease.renewed_s)
    state = _state(run_dir, attempts, summary, lease, unrenewed_s, heard_s, now_s)
    counts = Counter("skipped" if mark.skipped else mark.lost for mark in marks if mark.key == "step")
    return RunStatus(
        run_dir,
        state,
        step=None if steps_done is None else int(steps_done),
        steps=round(target * steps_done / tokens) if target and steps_done and tokens else _most_steps(config),
        loss=last_step.number("loss"),
        log_perplexity=_last_event(events, "evaluation").number("log_perplexity"),
        step_s=step_s,
        tokens_per_s=speed * last_step_s / step_s if speed and last_step_s and step_s else None,
        mfu=last_step.number("mfu"),
        precision=precision if isinstance(precision := config.get("precision"), str) else None,
        checkpoint=newest_checkpoint(run_dir),
        expected_end_s=None if expected_s is None or state != "running" else eta.time_ms / 1000 + expected_s,
        heard_s=heard_s,
        attempts=_rows(attempts, marks, finished=finished, goes_on=state in HELD_STATES[:2]),
        devices=_devices(attempts, config),
        marks=marks,
        steps_kept=counts[False],
        steps_lost=counts[True],
        steps_skipped=counts["skipped"],
        remarks=[*_unsaved_remark(unsaved_steps), *_lease_remark(state, lease, unrenewed_s)],
    )


def _last_event(events: RecordedEvents, key: str) -> RecordedEvent:
    """Return the last event of a key; an empty one without any."""
    return next(reversed(events.of(key)), RecordedEvent(0, key, None, {}))


def _state(
    run_dir: Path,
    attempts: Sequence[Attempt],
    summary: Mapping[str, Any] | None,
    lease: Lease | None,
    unrenewed_s: float,
    heard_s: float | None,
    now_s: float,
) -> str:
    if summary is not None:
        return printable(str(summary.get("status")))
    is_held = lease is not None and unrenewed_s < lease.length_s
    end = attempts[-1].end if attempts else None
    if end is None:
        if is_held and heard_s is not None:
            heard_s = max(heard_s, _changed_s(run_dir / EVENTS_FILE, heard_s))
        begun = attempts[-1].name if attempts and attempts[-1].events else None
        if lease is not None and is_held and lease.attempt != begun:  # its holder has begun no attempt yet
            return "starting"
        if is_held and heard_s is not None and now_s - heard_s < SILENT_S:
            return "running"
        return "silent" if is_held or not is_there(run_dir / STOP_NOTE_FILE) else "stopped"
    if lease is not None and (not is_held if end.action == "again" else is_held and lease.since_s > end.ended_s):
        return "starting again" if is_held else "silent"
    has_queue = attempts[-1].start is None or attempts[-1].start.job is not None
    if end.status == INTERRUPTED and (end.action == "stop" or (end.action == "requeue" and not has_queue)):
        return "stopped"
    return AT_ONCE.get(end.action, printable(end.action))


def _beyond_checkpoint(events: RecordedEvents, marks: TimeMarks) -> list[int]:
    """Return the marks of steps and evaluations after the newest checkpoint that is known to be whole."""
    saved, tokens, copied = 0.0, 0.0, dict[float, float]()
    for event in events.of("step", "checkpoint", "checkpoint_written", "run_start", "restart"):
        if event.key == "step":
            tokens = event.number("trained_tokens") or tokens
        elif event.key == "checkpoint":
            copied[event.number("steps") or 0.0] = tokens
        elif event.key == "checkpoint_written":
            saved = copied.get(event.number("steps") or 0.0, saved)
        else:
            saved = tokens = event.number("step") or 0.0
    return [index for index, mark in enumerate(marks) if mark.key in ("step", "evaluation") and mark.tokens > saved]


@dataclass
class _AttemptTimes:
    """The time and the steps of one attempt."""

    by_kind: dict[TimeKind, float] = field(default_factory=lambda: dict.fromkeys(MEANINGS, 0.0))
    begun_ms: float | None = None
    ended_ms: float | None = None
    steps: int = 0
    steps_lost: int = 0

    def add(self, mark: TimeMark) -> None:
        self.by_kind[mark.kind] += mark.ms
        if mark.ms > 0 and mark.kind not in GAPS:
            self.begun_ms = mark.time_ms - mark.ms if self.begun_ms is None else self.begun_ms
            self.ended_ms = mark.time_ms
        if mark.key == "step":
            self.steps += 1
            self.steps_lost += mark.lost and not mark.skipped


def _rows(attempts: Sequence[Attempt], marks: TimeMarks, *, finished: bool, goes_on: bool) -> list[AttemptRow]:
    times = [_AttemptTimes() for _ in attempts]
    for mark in marks:
        times[mark.attempt].add(mark)
    rows = []
    for number, attempt in enumerate(attempts):
        time_of, is_last = times[number], number == len(attempts) - 1
        kind = "finished" if is_last and finished else _how_ended(attempt, goes_on=goes_on and is_last)
        cost_ms = sum(time_of.by_kind[name] for name in OWN) - (time_of.by_kind["stop"] if kind == "finished" else 0.0)
        cost_ms += 0.0 if is_last else sum(times[number + 1].by_kind[name] for name in AFTER)
        cause, end = attempt.cause, attempt.end
        where = "" if cause is None else f"rank {cause.rank} on {cause.host} in {cause.phase}"
        reason = end.reason if end is not None and end.reason else "" if cause is None else cause.line()
        rows.append(
            AttemptRow(
                name=printable(attempt.name),
                begun_ms=time_of.begun_ms,
                ended_ms=time_of.ended_ms,
                kind=printable(kind),
                where=printable(where),
                reason=printable(reason),
                action="" if end is None else printable(end.action),
                steps=time_of.steps,
                steps_lost=time_of.steps_lost,
                by_kind=time_of.by_kind,
                cost_ms=cost_ms,
            )
        )
    return rows


def _how_ended(attempt: Attempt, *, goes_on: bool) -> str:
    stopped = len(attempt.events.of("run_stop")) > 0
    status = None if attempt.end is None else attempt.end.status
    if attempt.cause is not None and status != INTERRUPTED:
        return attempt.cause.kind
    if stopped or status == INTERRUPTED:
        return "interrupted"
    if status is not None:
        return "failed" if status else "finished"
    return "running" if goes_on else "unknown"


def _unsaved_remark(unsaved: int) -> list[str]:
    if not unsaved:
        return []
    words = ("step is", "it") if unsaved == 1 else ("steps are", "them")
    return [f"{unsaved:,} {words[0]} in no whole checkpoint yet: a restart would do {words[1]} again"]


def _changed_s(path: Path, default_s: float) -> float:
    """Return the time at which a file was changed, by the disk's clock; the default if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return default_s


def _lease_remark(state: str, lease: Lease | None, unrenewed_s: float) -> list[str]:
    """Return the line about a holder that may be lost, before the lease has run out."""
    if state not in HELD_STATES or lease is None or unrenewed_s < lease.length_s / 2:
        return []
    return [f"the lease of {lease.line()} was renewed {unrenewed_s:.0f} s ago: its holder may be lost"]


def _most_steps(config: Mapping[str, Any]) -> int | None:
    """Return the steps from the initial checkpoint, which may have had another batch size, to the last sample."""
    names = ("train_samples", "global_batch_size", "start_iterations", "start_global_batch_size")
    samples, batch, begun, begun_batch = (_number(config, "benchmark", name) for name in names)
    if samples is None or not batch or begun is None or begun_batch is None:
        return None
    return int(samples // batch - begun * begun_batch // batch)


def _devices(attempts: Sequence[Attempt], config: Mapping[str, Any]) -> int | None:
    """Return the world size from the hosts of an attempt, else from the run's configuration."""
    sizes = [len(attempt.start.hosts) for attempt in attempts if attempt.start is not None and attempt.start.hosts]
    nodes, per_node = (_number(config, "system", name) for name in ("nodes", "devices_per_node"))
    return sizes[-1] if sizes else int(nodes * per_node) if nodes and per_node else None


def _number(config: Mapping[str, Any], section: str, name: str) -> float | None:
    fields = config.get(section)
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
