"""The signs that an attempt's processes failed or ended, for an srun that does not see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmark.run_record.file_names import ALARM_FILE, STOP_NOTE_FILE, summary_path


def signs_of_the_end(run_dir: Path | None, log: Path) -> Iterator[bool]:
    """Yield, each time it is asked, whether an attempt's processes failed, or ended as the run's files say.

    ``run_dir``: None if the command leaves no such files. ``log``: the attempt's, which was just opened.
    """
    notes = [] if run_dir is None else [run_dir / STOP_NOTE_FILE, summary_path(run_dir)]
    began_s = _changed_s(log) or 0.0
    while True:
        failed = _changed_s(log.with_name(ALARM_FILE)) is not None
        yield failed or any((_changed_s(note) or 0.0) > began_s for note in notes)


def _changed_s(path: Path) -> float | None:
    """Return the time of the last change; None if there is no file. An error of the disk counts as none, because the
    caller asks again."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
