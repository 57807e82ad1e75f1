"""The signs that an attempt's processes failed or ended, for an srun that does not see it, and the time it has then."""

from __future__ import annotations

from pathlib import Path

from benchmark.run_record.file_names import (
    ALARM_FILE,
    ATTEMPT_START_FILE,
    STACKS_FILE,
    STOP_NOTE_FILE,
    rank_file,
    summary_path,
)
from foundation.disk_answers import is_there

ALARM_S = 240.0
"""Seconds from a failure, the note of a stop, or the end of srun's step until srun is ended by force; srun itself waits
60 s."""
LAST_SAVE_S = 840.0
"""Seconds from the summary until then: the last checkpoint, which comes after it, is waited for up to 600 s."""


def patience_s(run_dir: Path, attempt: Path, start_s: float, *, step_is_over: bool) -> float | None:
    """Return the seconds that srun has from the first sign on: ``start_s`` until processes have begun, and others once
    they failed, or ended as Slurm or the run's files say; None as long as they go on, or the disk does not say."""
    try:
        if not is_there(rank_file(attempt, 0, STACKS_FILE)):  # rank 0 makes it first
            return start_s
        if step_is_over or is_there(attempt / ALARM_FILE):
            return ALARM_S
        if is_there(attempt / ATTEMPT_START_FILE):  # until then a stop note is an earlier attempt's
            if is_there(summary_path(run_dir)):
                return LAST_SAVE_S
            if is_there(run_dir / STOP_NOTE_FILE):
                return ALARM_S
    except OSError:
        pass
    return None
