"""The signs that an attempt's processes failed or ended, for an srun that does not see it, and the time it has then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmark.run_record.file_names import ALARM_FILE, STACKS_FILE, STOP_NOTE_FILE, rank_file, summary_path

ALARM_S = 240.0
"""Seconds from a failure, or the note of a stop, until srun is ended by force; srun itself waits 60 s."""
LAST_SAVE_S = 840.0
"""Seconds from the summary until then: the last checkpoint, which comes after it, is waited for up to 600 s."""


def signs_of_the_end(run_dir: Path | None, log: Path, start_s: float) -> Iterator[float | None]:
    """Yield, each time it is asked, the seconds that srun has from the first sign on: ``start_s`` until processes have
    begun, and others once they failed, or ended as the run's files say; None as long as they go on.

    ``run_dir``: None if the command leaves no such files. ``log``: the attempt's, which was just opened.
    """
    notes = {} if run_dir is None else {run_dir / STOP_NOTE_FILE: ALARM_S, summary_path(run_dir): LAST_SAVE_S}
    began_s = _changed_s(log) or 0.0
    while run_dir is not None and not _has_begun(log.parent):
        yield start_s
    while True:
        patience_s = None
        if _changed_s(log.with_name(ALARM_FILE)) is not None:
            patience_s = ALARM_S
        for note, seconds in notes.items():
            if patience_s is None and (_changed_s(note) or 0.0) > began_s:
                patience_s = seconds
        yield patience_s


def _has_begun(attempt: Path) -> bool:
    """Return whether rank 0 has made its file for stacks, as it does first."""
    return _changed_s(rank_file(attempt, 0, STACKS_FILE)) is not None


def _changed_s(path: Path) -> float | None:
    """Return the time of the last change; None if there is no file. An error of the disk counts as none, because the
    caller asks again."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
