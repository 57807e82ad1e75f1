"""The reason why a run stopped that may be continued: ``RUN_DIR/stopped.json``, written by the run for its launcher.

The next start of the run removes the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmark.launch.small_files import read_object, write_object


@dataclass(frozen=True)
class StopNote:
    by: str
    """The request that stopped it: "exit trigger", "signal SIGUSR2", "signal SIGTERM" or "time limit"."""
    steps: int
    """Optimizer steps done since the initial checkpoint."""
    saved: bool
    """True if there is a checkpoint of exactly these steps; otherwise the run goes on from an older one."""


def stop_note_path(run_dir: Path) -> Path:
    return run_dir / "stopped.json"


def write_stop_note(run_dir: Path, note: StopNote) -> None:
    """Write the note. Raises OSError, for example for a full disk."""
    write_object(stop_note_path(run_dir), note)


def read_stop_note(run_dir: Path) -> StopNote | None:
    """Read the note; None if there is none, or it is damaged."""
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
