"""Why a run stopped that may be continued: left by it as ``RUN_DIR/stopped.json``, read by its launcher.

The next start of the run removes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmark.launch.small_files import read_object, write_object


@dataclass(frozen=True)
class StopNote:
    by: str
    """One of "exit trigger", "signal SIGUSR2", "signal SIGTERM" or "time limit"."""
    steps: int
    """Optimizer steps since the initial checkpoint that were done."""
    saved: bool
    """A checkpoint of just these steps is there; otherwise the run goes on from an older one."""


def stop_note_path(run_dir: Path) -> Path:
    return run_dir / "stopped.json"


def write_stop_note(run_dir: Path, note: StopNote) -> None:
    """Raises OSError, as for a full disk."""
    write_object(stop_note_path(run_dir), note)


def read_stop_note(run_dir: Path) -> StopNote | None:
    """None where there is none, or it is not what was written."""
    fields = read_object(stop_note_path(run_dir))
    try:
        note = StopNote(**fields) if fields is not None else None
    except TypeError:
        return None
    sound = note is not None and isinstance(note.by, str) and isinstance(note.steps, int)
    return note if sound else None


def remove_stop_note(run_dir: Path) -> None:
    path = stop_note_path(run_dir)
    if path.exists():
        path.unlink()
