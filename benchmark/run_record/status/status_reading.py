"""Read the status of a run from its folder alone, whose files may be damaged or still growing."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.endings import ENDINGS
from benchmark.run_record.file_names import CONFIG_FILE, EVENTS_FILE, SUMMARY_FILE, attempts_folder
from benchmark.run_record.recorded_events import RecordedEvent, read_events
from benchmark.run_record.small_files import read_object
from benchmark.run_record.status.run_status import AttemptRow, RunStatus, Span
from benchmark.run_record.status.wall_time import (
    AFTER,
    GAPS,
    MEANINGS,
    OWN,
    Attempt,
    Kind,
    TimeMark,
    attempts_of,
    wall_time,
)
from foundation.errors import InputError
from foundation.plain_text import printable

INTERRUPTED = ENDINGS["interrupted"].exit_status
SILENT_S = 1800.0
"""Seconds without an event after which a run without an end is no longer said to be running."""
LATEST_STEPS = 21
"""Number of latest steps whose median is the time of a step."""
AT_ONCE: Mapping[str, str] = {"requeue": "waiting", "stop": "given up", "again": "starting again"}
"""State of a run after an attempt, by its launcher's decision."""


def read_status(run_dir: Path, events: Sequence[RecordedEvent] | None = None) -> RunStatus:
    """Return the status of the run in a folder. ``events``: the contents of its events.jsonl, if they are read already.

    Raises InputError for a folder that holds neither events nor attempts, and for files too large to read.
    """
    if not (run_dir / EVENTS_FILE).is_file() and not attempts_folder(run_dir).is_dir():
        raise InputError(f"{run_dir}: expected the folder of a run, with events.jsonl or attempts in it")
    given = read_events(run_dir / EVENTS_FILE) if events is None else events
    attempts = attempts_of(run_dir, given)
    summary = read_object(run_dir / SUMMARY_FILE)
    marks = wall_time(attempts)
    finished = summary is not None or any(
        event.key == "run_stop" and event.fields.get("status") == "success" for event in given[-50:]
    )
    unsaved = [] if finished else _beyond_checkpoint(given, marks)
    if attempts and attempts[-1].end is not None:
        for mark in unsaved:  # no later attempt can do more than do it again
            mark.lose()
    config = read_object(run_dir / CONFIG_FILE) or {}
    heard_s = max((event.time_ms for event in given), default=0) / 1000 or None
    steps = [event for event in given if event.key == "step"]
    last = steps[-1] if steps else RecordedEvent(0, "step", None, {})
    done = last.number("steps")
    recent = [seconds for event in steps[-LATEST_STEPS:] if (seconds := event.number("step_s")) is not None]
    eta = next((event for event in reversed(given) if event.key == "eta"), RecordedEvent(0, "eta", None, {}))
    expected_s, tokens, target = eta.number("seconds"), last.number("trained_tokens"), eta.number("target_tokens")
    state = _state(attempts, summary, heard_s, time.time())
    counted = Counter("skipped" if mark.skipped else mark.lost for mark in marks if mark.key == "step")
    return RunStatus(
        run_dir,
        state,
        step=None if done is None else int(done),
        steps=round(target * done / tokens) if target and done and tokens else _most_steps(config),
        loss=last.number("loss"),
        log_perplexity=next((one.number("log_perplexity") for one in reversed(given) if one.key == "evaluation"), None),
        step_s=median(recent) if recent else None,
        tokens_per_s=last.number("tokens_per_s"),
        mfu=last.number("mfu"),
        checkpoint=newest_checkpoint(run_dir),
        expected_end_s=None if expected_s is None or state != "running" else eta.time_ms / 1000 + expected_s,
        heard_s=heard_s,
        attempts=_rows(attempts, marks, finished=finished),
        devices=_devices(attempts, config),
        spans=_spans(marks),
        steps_kept=counted[False],
        steps_lost=counted[True],
        steps_skipped=counted["skipped"],
        remarks=_remarks(sum(mark.key == "step" and not mark.lost for mark in unsaved)),
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


def _beyond_checkpoint(events: Sequence[RecordedEvent], marks: Sequence[TimeMark]) -> list[TimeMark]:
    """Return steps and evaluations after the newest checkpoint that is known to be whole."""
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
    return [mark for mark in marks if mark.key in ("step", "evaluation") and mark.tokens > saved]


def _rows(attempts: Sequence[Attempt], marks: Sequence[TimeMark], *, finished: bool) -> list[AttemptRow]:
    by_kind: list[dict[Kind, float]] = [dict.fromkeys(MEANINGS, 0.0) for _ in attempts]
    for mark in marks:
        by_kind[mark.attempt][mark.kind] += mark.ms
    rows = []
    for place, attempt in enumerate(attempts):
        own = [mark for mark in marks if mark.attempt == place and mark.kind not in GAPS and mark.ms > 0]
        steps = [mark for mark in marks if mark.attempt == place and mark.key == "step"]
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
                begun_ms=own[0].time_ms - own[0].ms if own else None,
                ended_ms=own[-1].time_ms if own else None,
                kind=printable(kind),
                where=printable(where),
                said=printable(said),
                action="" if end is None else printable(end.action),
                steps=len(steps),
                steps_lost=sum(mark.lost and not mark.skipped for mark in steps),
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


def _spans(marks: Sequence[TimeMark]) -> list[Span]:
    """Join neighbours of one attempt and one kind into one span."""
    found = []
    for (attempt, kind), same in groupby((one for one in marks if one.ms > 0), lambda one: (one.attempt, one.kind)):
        together = list(same)
        found.append(Span(attempt, kind, together[0].time_ms - together[0].ms, together[-1].time_ms))
    return found


def _remarks(unsaved: int) -> list[str]:
    if not unsaved:
        return []
    those = ("step is", "it") if unsaved == 1 else ("steps are", "them")
    return [f"{unsaved:,} {those[0]} in no whole checkpoint yet: a restart would do {those[1]} again"]


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
