"""Read the status of a run from its folder alone, whose files may be damaged or still growing."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from benchmark.launch.attempt_folder import attempts_folder, newest_saved
from benchmark.launch.next_attempt import INTERRUPTED
from benchmark.launch.small_files import read_object
from benchmark.results.printable import printable
from benchmark.results.recorded_run import RecordedEvent, read_events
from benchmark.status.time_kinds import AFTER, GAPS, MEANINGS, OWN, Kind
from benchmark.status.wall_time import Attempt, attempts_of, wall_time
from stage.errors import InputError

SILENT_S = 1800.0
"""Seconds without an event after which a run without an end is no longer said to be running."""
TOLD_MS = 1000.0
"""Least jump of a clock, in milliseconds, that is reported."""
AT_ONCE: Mapping[str, str] = {"requeue": "waiting", "stop": "given up", "again": "starting again"}
"""State of a run after an attempt, by its launcher's decision."""


class Span(NamedTuple):
    """A stretch of time of one kind; the time before an attempt counts as that attempt's."""

    attempt: int
    """Index of the attempt."""
    kind: Kind
    begin_ms: float
    end_ms: float


@dataclass(frozen=True)
class AttemptRow:
    """One attempt. Times are milliseconds; texts are printable."""

    name: str
    begun_ms: float | None
    """Time of the attempt's first trace since the epoch; None if the attempt took no time."""
    ended_ms: float | None
    """Time of its last trace since the epoch."""
    kind: str
    """End of the attempt: "finished"; "interrupted" if it was saved and stopped; the kind of its first incident;
    "failed" if that is not known; "unknown" if nobody recorded the end; "running" if that attempt is the last."""
    where: str
    """Rank, host and phase of the first incident."""
    said: str
    """Text of the launcher's line, or of the first incident."""
    action: str
    """The launcher's decision; empty if it made none."""
    steps: int
    steps_lost: int
    """Steps among them that were done again later, or are in no checkpoint."""
    by_kind: Mapping[Kind, float]
    """Milliseconds of the attempt, and of the time since the attempt before, by kind."""
    cost_ms: float
    """Cost of the attempt's end: its own lost time, hang and stop, and all time until the next attempt was ready,
    without its queue."""

    @property
    def failed(self) -> bool:
        return self.kind not in ("finished", "interrupted", "running")


@dataclass(frozen=True)
class RunStatus:
    """The status of a run. Fields that its files do not tell are None."""

    run_dir: Path
    state: str
    """One of: running, silent, starting again, waiting (in the queue), given up, stopped (by a person), or the status
    with which the run has ended, such as success."""
    step: int | None
    """Optimizer steps since the initial checkpoint."""
    steps: int | None
    """Steps at which the run expects the target, or else the most steps that there may be."""
    loss: float | None
    log_perplexity: float | None
    """Log perplexity of the last evaluation."""
    step_s: float | None
    """Median seconds of the last steps."""
    tokens_per_s: float | None
    mfu: float | None
    checkpoint: int | None
    """Steps of the newest whole checkpoint."""
    expected_end_s: float | None
    """Seconds since the epoch at which the run expects the target."""
    heard_s: float | None
    """Seconds since the epoch of the last event."""
    attempts: Sequence[AttemptRow]
    devices: int | None
    spans: Sequence[Span]
    """Spans without gaps from the first trace of the run to the last."""
    steps_kept: int
    steps_lost: int
    steps_skipped: int
    remarks: Sequence[str]
    """Remarks that a reader has to know to judge the figures."""

    @property
    def by_kind(self) -> dict[Kind, float]:
        """Milliseconds of each kind, in the order of MEANINGS; they add up to ``whole_ms``."""
        return {kind: sum(row.by_kind[kind] for row in self.attempts) for kind in MEANINGS}

    @property
    def whole_ms(self) -> float:
        return sum(self.by_kind.values())

    @property
    def goodput(self) -> float | None:
        """Productive time divided by the whole; None if there is no time at all."""
        return self.by_kind["productive"] / self.whole_ms if self.whole_ms else None

    @property
    def goodput_without_queue(self) -> float | None:
        rest = self.whole_ms - self.by_kind["queue"]
        return self.by_kind["productive"] / rest if rest > 0 else None

    @property
    def device_hours_lost(self) -> float | None:
        """Hours that the ends of all attempts cost, times the devices that stood still."""
        return device_hours(sum(row.cost_ms for row in self.attempts), self.devices)


def device_hours(ms: float, devices: int | None) -> float | None:
    return None if devices is None else ms * devices / 3_600_000


def as_utc(time_ms: float) -> str:
    """Return a time for people: "2026-03-01 12:00:07Z"."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def read_status(run_dir: Path, events: Sequence[RecordedEvent] | None = None) -> RunStatus:
    """Return the status of the run in a folder. ``events``: the contents of its events.jsonl, if they are read already.

    Raises InputError for a folder that holds neither events nor attempts, and for files too large to read.
    """
    if not (run_dir / "events.jsonl").is_file() and not attempts_folder(run_dir).is_dir():
        raise InputError(f"{run_dir}: expected the folder of a run, with events.jsonl or attempts in it")
    given = read_events(run_dir / "events.jsonl") if events is None else events
    attempts = attempts_of(run_dir, given)
    summary = read_object(run_dir / "summary.json")
    marks = wall_time(attempts)
    finished = summary is not None or any(
        event.key == "run_stop" and event.fields.get("status") == "success" for event in given[-50:]
    )
    unsaved = _beyond_checkpoint(given, marks)
    ended = bool(attempts) and attempts[-1].end is not None and not finished
    if ended:  # what it did beyond its last checkpoint is left nowhere
        marks.loc[unsaved, "lost"] = True
        marks.loc[unsaved & marks["kind"].isin(["productive", "evaluation"]), "kind"] = "lost"
    is_step = marks["key"] == "step"
    skipped = marks["skipped"].eq(True)
    rows = _rows(attempts, marks, finished=finished)
    heard_s = max((event.time_ms for event in given), default=0) / 1000 or None
    steps = [event for event in given if event.key == "step"]
    last = steps[-1] if steps else None
    config = read_object(run_dir / "config.json") or {}
    recent = pd.Series([event.number("step_s") for event in steps[-21:]], dtype="float64")
    state = _state(attempts, summary, heard_s, time.time())
    return RunStatus(
        run_dir,
        state,
        step=None if last is None else _steps_done(last, config),
        steps=_expected_steps(given, last, config) or _most_steps(config),
        loss=None if last is None else last.number("loss"),
        log_perplexity=_last_number(given, "evaluation", "log_perplexity"),
        step_s=float(recent.median()) if recent.notna().any() else None,
        tokens_per_s=None if last is None else last.number("tokens_per_s"),
        mfu=None if last is None else last.number("mfu"),
        checkpoint=newest_saved(run_dir),
        expected_end_s=_expected_end_s(given) if state == "running" else None,
        heard_s=heard_s,
        attempts=rows,
        devices=_devices(attempts, config),
        spans=_spans(marks),
        steps_kept=int((is_step & ~marks["lost"]).sum()),
        steps_lost=int((is_step & marks["lost"] & ~skipped).sum()),
        steps_skipped=int((is_step & skipped).sum()),
        remarks=_remarks(marks, int((unsaved & is_step & ~marks["lost"]).sum()) if not finished else 0),
    )


def _state(attempts: Sequence[Attempt], summary: Mapping[str, Any] | None, heard_s: float | None, now_s: float) -> str:
    if summary is not None:
        return printable(str(summary.get("status")))
    end = attempts[-1].end if attempts else None
    if end is None:
        return "running" if heard_s is not None and now_s - heard_s < SILENT_S else "silent"
    if end.action == "stop" and end.status == INTERRUPTED:
        return "stopped"
    return AT_ONCE.get(end.action, printable(end.action))


def _beyond_checkpoint(events: Sequence[RecordedEvent], marks: pd.DataFrame) -> "pd.Series[bool]":
    """Mark steps and evaluations after the newest checkpoint that is known to be whole."""
    saved, tokens, copied = 0.0, 0.0, dict[float, float]()
    for event in events:
        if event.key == "step":
            tokens = event.number("trained_tokens") or tokens
        elif event.key == "checkpoint":
            copied[event.number("steps") or 0.0] = tokens
        elif event.key == "checkpoint_written":
            saved = copied.get(event.number("steps") or 0.0, saved)
        elif event.key in ("run_start", "restart"):
            saved = tokens = event.number("step") or 0.0
    return marks["key"].isin(["step", "evaluation"]) & (marks["tokens"] > saved)


def _rows(attempts: Sequence[Attempt], marks: pd.DataFrame, *, finished: bool) -> list[AttemptRow]:
    times = marks.groupby(["attempt", "kind"])["ms"].sum()
    by_kind = [{kind: float(times.get((place, kind), 0.0)) for kind in MEANINGS} for place in range(len(attempts))]
    rows = []
    for place, attempt in enumerate(attempts):
        own = marks[(marks["attempt"] == place) & ~marks["kind"].isin(GAPS) & (marks["ms"] > 0)]
        steps = marks[(marks["attempt"] == place) & (marks["key"] == "step")]
        is_last = place == len(attempts) - 1
        kind = "finished" if is_last and finished else _how_ended(attempt, is_last=is_last)
        cost_ms = sum(by_kind[place][name] for name in OWN) - (by_kind[place]["stop"] if kind == "finished" else 0.0)
        cost_ms += 0.0 if is_last else sum(by_kind[place + 1][name] for name in AFTER)
        cause, end = attempt.cause, attempt.end
        where = "" if cause is None else f"rank {cause.rank} on {cause.host} in {cause.phase}"
        said = end.reason if end is not None and end.reason else "" if cause is None else cause.line()
        rows.append(
            AttemptRow(
                name=printable(attempt.name),
                begun_ms=float(own["time_ms"].iloc[0] - own["ms"].iloc[0]) if len(own) else None,
                ended_ms=float(own["time_ms"].iloc[-1]) if len(own) else None,
                kind=printable(kind),
                where=printable(where),
                said=printable(said),
                action="" if end is None else printable(end.action),
                steps=len(steps),
                steps_lost=int((steps["lost"] & ~steps["skipped"].eq(True)).sum()),
                by_kind=by_kind[place],
                cost_ms=cost_ms,
            )
        )
    return rows


def _how_ended(attempt: Attempt, *, is_last: bool) -> str:
    stopped = any(event.key == "run_stop" for event in attempt.events)
    status = None if attempt.end is None else attempt.end.status
    if attempt.cause is not None and status != INTERRUPTED:
        return attempt.cause.kind
    if stopped or status == INTERRUPTED:
        return "interrupted"
    if status is not None:
        return "failed" if status else "finished"
    return "running" if is_last else "unknown"


def _spans(marks: pd.DataFrame) -> list[Span]:
    """Join neighbours of one attempt and one kind into one span."""
    kept = marks[marks["ms"] > 0]
    same = (kept["attempt"] == kept["attempt"].shift()) & (kept["kind"] == kept["kind"].shift())
    parts = kept.assign(begin_ms=kept["time_ms"] - kept["ms"]).groupby((~same).cumsum())
    first, last = parts.first(), parts.last()
    return list(map(Span, first["attempt"], first["kind"], first["begin_ms"], last["time_ms"]))


def _remarks(marks: pd.DataFrame, unsaved: int) -> list[str]:
    jumps = marks["back_ms"].diff().fillna(0.0)
    found = [
        f"the clock went back by {back / 1000:,.3f} s at {as_utc(at - late)}: no time is counted there, and as much "
        "before it may not have passed"
        for back, at, late in zip(jumps, marks["time_ms"], marks["back_ms"], strict=True)
        if back >= TOLD_MS
    ]
    if unsaved:
        those = ("step is", "it") if unsaved == 1 else ("steps are", "them")
        found.append(f"{unsaved:,} {those[0]} in no whole checkpoint yet: a restart would do {those[1]} again")
    return found


def _expected_end_s(events: Sequence[RecordedEvent]) -> float | None:
    told = next((event for event in reversed(events) if event.key == "eta"), None)
    seconds = None if told is None else told.number("seconds")
    return None if told is None or seconds is None else told.time_ms / 1000 + seconds


def _expected_steps(
    events: Sequence[RecordedEvent], step: RecordedEvent | None, config: Mapping[str, Any]
) -> int | None:
    done = None if step is None else _steps_done(step, config)
    tokens = None if step is None else step.number("trained_tokens")
    target = _last_number(events, "eta", "target_tokens")
    return round(target * done / tokens) if target and done and tokens else None


def _last_number(events: Sequence[RecordedEvent], key: str, name: str) -> float | None:
    return next((event.number(name) for event in reversed(events) if event.key == key), None)


def _steps_done(step: RecordedEvent, config: Mapping[str, Any]) -> int | None:
    iteration, start = step.number("iteration"), _number(config, "benchmark", "start_iterations")
    return None if iteration is None else int(iteration - (_start_iteration(config) or start or 0))


def _start_iteration(config: Mapping[str, Any]) -> float | None:
    """Return the steps of the initial checkpoint, counted at the run's own batch size."""
    batch = _number(config, "benchmark", "global_batch_size")
    begun = [_number(config, "benchmark", name) for name in ("start_iterations", "start_global_batch_size")]
    return begun[0] * begun[1] // batch if batch and begun[0] is not None and begun[1] is not None else None


def _most_steps(config: Mapping[str, Any]) -> int | None:
    samples, batch = (_number(config, "benchmark", name) for name in ("train_samples", "global_batch_size"))
    begun = _start_iteration(config)
    return int(samples // batch - begun) if samples and batch and begun is not None else None


def _devices(attempts: Sequence[Attempt], config: Mapping[str, Any]) -> int | None:
    """Return the world size from the hosts of an attempt, else from the run's configuration."""
    sizes = [len(attempt.start.hosts) for attempt in attempts if attempt.start is not None and attempt.start.hosts]
    nodes, per_node = (_number(config, "system", name) for name in ("nodes", "devices_per_node"))
    return sizes[-1] if sizes else int(nodes * per_node) if nodes and per_node else None


def _number(config: Mapping[str, Any], section: str, name: str) -> float | None:
    fields = config.get(section)
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
