"""The list of a run's checkpoints, by the names of their folders. A folder gets its final name once it is whole."""

from __future__ import annotations

import re
from pathlib import Path

from benchmark.run_record.file_names import checkpoints_folder
from foundation.disk_answers import entries_in

CHECKPOINT_NAME = re.compile(r"step_(\d+)")


def whole_checkpoints(run_dir: Path) -> list[int]:
    """Return the steps of the checkpoints in the run folder, the oldest first. Raises OSError if the disk does not
    say."""
    names = [entry.name for entry in entries_in(checkpoints_folder(run_dir))]
    return sorted(int(match[1]) for match in map(CHECKPOINT_NAME.fullmatch, names) if match)


def newest_checkpoint(run_dir: Path) -> int | None:
    """Return the optimizer steps of the newest whole checkpoint, or None if there is none."""
    steps = whole_checkpoints(run_dir)
    return steps[-1] if steps else None
