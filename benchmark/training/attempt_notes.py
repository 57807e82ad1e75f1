"""Note, on rank 0, when and where an attempt began, and how the one before it ended (launch/attempt_folder.py)."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from benchmark.events.event_log import EventLog
from benchmark.launch.attempt_folder import AttemptStart, all_attempts, attempt_path, read_end, write_start
from benchmark.machine.run_environment import seconds_since_process_start
from benchmark.training.engine.distributed import Environment


def note_attempt(
    events: EventLog, run_dir: Path, environment: Environment, hosts: Sequence[str], resumed_at: int | None
) -> None:
    """Record when and where the attempt began, in its folder and in the events. ``resumed_at``: steps of the checkpoint
    that it goes on from."""
    if environment.rank != 0:
        return
    start = AttemptStart(
        attempt=environment.attempt,
        job=environment.job,
        submitted_s=environment.submitted_s,
        launched_s=environment.launched_s,
        started_s=time.time() - seconds_since_process_start(),
        resumed_at=resumed_at,
        hosts=tuple(hosts),
    )
    write_start(attempt_path(run_dir, environment.attempt), start)
    events.note("attempt", **dataclasses.asdict(start))


def note_last_incident(events: EventLog, run_dir: Path, environment: Environment) -> None:
    """Note how the attempt before this one ended, according to its launcher; nothing if it left no record."""
    if environment.rank != 0:
        return
    before = [folder for folder in all_attempts(run_dir) if folder.name != environment.attempt]
    end = read_end(before[-1]) if before else None
    if end is not None:
        events.note("incident", end.reason, attempt=before[-1].name, status=end.status, action=end.action)
