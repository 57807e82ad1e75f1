"""The files that the attempts at a run leave.

    RUN_DIR/attempts/0003/   attempt.json               when and where it began (rank 0)
                             ended.json                 how it ended and what was decided (the launcher)
                             launcher.log               errors of the launcher, and of rank 0
                             rank_00005.log             output of a process; rank 0 has the launcher's
                             rank_00005.incident.json   the failure of a process (incidents.py)
                             rank_00005.stacks.txt      its Python stacks, if it hung
                             rank_00005.collectives.json   the collectives it waited in, the oldest first
                             alarm                      who failed first; the watchdogs of the others look for it

An attempt is one start of all processes. A run has several when it was interrupted or failed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from benchmark.run_record.file_names import (
    ALARM_FILE,
    ATTEMPT_ENDING_FILE,
    ATTEMPT_START_FILE,
    attempt_path,
    attempts_folder,
)
from benchmark.run_record.small_files import read_record, write_object
from foundation.disk_answers import entries_in

RUN_FOLDER_MODE = 0o750
"""Mode of a new run folder, which an existing folder does not get."""


@dataclass(frozen=True)
class AttemptStart:
    """The contents of ``attempt.json``. Times are seconds since the epoch."""

    attempt: str
    job: str | None
    """Slurm's number of the job; None outside Slurm."""
    submitted_s: float | None
    """Time when the job was submitted or requeued."""
    launched_s: float | None
    """Time when the launcher started the processes; None without a launcher."""
    started_s: float
    """Time when the operating system started rank 0."""
    resumed_at: int | None
    """Optimizer steps of the checkpoint that the attempt goes on from; None if it begins at the initial checkpoint."""
    hosts: tuple[str, ...]
    """Host names by rank."""


@dataclass(frozen=True)
class AttemptEnding:
    """The contents of ``ended.json``."""

    ended_s: float
    """Seconds since the epoch."""
    status: int
    """Exit status of the attempt's processes; if they differ, the one that the launcher or srun chose."""
    action: str
    """The decision (next_attempt.py)."""
    reason: str
    """The reason for it, in one line for people."""
    exclude: tuple[str, ...] = ()
    """Hosts that the next attempt leaves out."""


def make_run_folder(run_dir: Path) -> None:
    """Make the folder of a run, unless it exists. Raises OSError."""
    run_dir.mkdir(RUN_FOLDER_MODE, parents=True, exist_ok=True)


def all_attempts(run_dir: Path) -> list[Path]:
    """Return the folders of the attempts at a run, the oldest first; a launcher's are in the order of their numbers,
    whatever the clocks of its nodes say."""
    latest_s, rows = 0.0, list[tuple[float, Path]]()
    for entry in (Path(entry) for entry in entries_in(attempts_folder(run_dir)) if entry.is_dir()):
        begun_s = _begun_s(entry)
        latest_s = max(latest_s, begun_s) if entry.name.isdigit() else latest_s
        rows.append((latest_s if entry.name.isdigit() else begun_s, entry))
    return [entry for _, entry in sorted(rows)]


def _begun_s(attempt: Path) -> float:
    start = read_start(attempt)
    return attempt.stat().st_mtime if start is None else start.launched_s or start.started_s


def new_attempt(run_dir: Path) -> str:
    """Make the folder of the next attempt and return its name, which the launcher hands to all processes.

    Raises OSError if the folder cannot be made.
    """
    numbers = [int(entry.name) for entry in all_attempts(run_dir) if entry.name.isdigit()]
    name = f"{max(numbers, default=0) + 1:04d}"
    attempt_path(run_dir, name).mkdir(parents=True)
    return name


def write_start(attempt: Path, start: AttemptStart) -> None:
    write_object(attempt / ATTEMPT_START_FILE, start)


def write_ending(attempt: Path, end: AttemptEnding) -> None:
    write_object(attempt / ATTEMPT_ENDING_FILE, end)


def read_start(attempt: Path) -> AttemptStart | None:
    """Read ``attempt.json``; None if the attempt ended before it began, or the file is damaged."""
    return read_record(attempt / ATTEMPT_START_FILE, AttemptStart)


def read_ending(attempt: Path) -> AttemptEnding | None:
    """Read ``ended.json``; None if no launcher saw the end, or the file is damaged."""
    return read_record(attempt / ATTEMPT_ENDING_FILE, AttemptEnding)


def raise_alarm(attempt: Path, text: str) -> bool:
    """Tell the watchdogs of all processes that one failed; return whether this is the attempt's first alarm."""
    try:
        handle = os.open(attempt / ALARM_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w") as file:
        file.write(f"{text}\n")
    return True
