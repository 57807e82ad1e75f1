"""Why a run stopped that may be continued: left by it as ``RUN_DIR/stopped.json``, read by its launcher.

The next start of the run removes it.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from stage.json_files import UNREADABLE, read_json
from stage.outputs.publish import write_text


@dataclass(frozen=True)
class StopNote:
    by: str
    """One of "exit trigger", "signal SIGUSR2", "signal SIGTERM", "time limit" or "rollback"."""
    steps: int
    """Optimizer steps since the initial checkpoint that were done."""
    saved: bool
    """A checkpoint of just these steps is there; otherwise the run goes on from an older one."""


def stop_note_path(run_dir: Path) -> Path:
    return run_dir / "stopped.json"


def write_stop_note(run_dir: Path, note: StopNote) -> None:
    """Raises OSError, as for a full disk."""
    write_text(stop_note_path(run_dir), json.dumps(asdict(note)) + "\n")


def read_stop_note(run_dir: Path) -> StopNote | None:
    """None where there is none, or it is not what was written."""
    try:
        return read_json(stop_note_path(run_dir), StopNote)
    except UNREADABLE:
        return None


def remove_stop_note(run_dir: Path) -> None:
    stop_note_path(run_dir).unlink(missing_ok=True)
