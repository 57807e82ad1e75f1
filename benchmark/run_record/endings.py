"""The five endings of a start of a run, the consequence of each for the caller, and the note of a stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmark.run_record.file_names import summary_path
from benchmark.run_record.small_files import read_object

Ending = Literal["success", "target not reached", "interrupted", "failed", "bad input"]
Action = Literal["done", "requeue", "again", "stop"]
"""done: nothing more is to be done. requeue: the run goes back to the queue, and its next start goes on from the newest
checkpoint. again: the run is started again at once and goes on from there. stop: a person has to mend something
first."""


@dataclass(frozen=True)
class Consequence:
    exit_status: int
    action: Action
    """The launcher's action by the status alone; other knowledge, for example of a faulty machine, may change it."""


ENDINGS: Mapping[Ending, Consequence] = {
    "success": Consequence(0, "done"),  # the target is reached; without a target, all samples are trained
    "target not reached": Consequence(1, "done"),  # training ended without it, or cannot reach it any more
    "interrupted": Consequence(75, "requeue"),  # EX_TEMPFAIL: somebody, or the time limit, asked the run to stop
    "failed": Consequence(70, "again"),  # EX_SOFTWARE: something broke, or a check found broken weights
    "bad input": Consequence(2, "stop"),  # an option or a file is refused before or while the run reads it
}


@dataclass(frozen=True)
class StopReason:
    """The way in which the training of a run has ended; the values are equal on all processes."""

    ending: Ending
    why: str
    """Reason in a few words for people."""
    reached_target: bool = False


@dataclass(frozen=True)
class StopNote:
    """The contents of ``stopped.json``, which the run writes for the launcher if it may be continued; its next start
    removes it."""

    by: str
    """The request that stopped it: "exit trigger", "signal SIGUSR2", "signal SIGTERM" or "time limit"."""
    steps: int
    """Optimizer steps done since the initial checkpoint."""
    saved: bool
    """True if there is a checkpoint of exactly these steps; otherwise the run goes on from an older one."""


def finished_status(run_dir: Path) -> str | None:
    """Return the status with which the run has ended by itself, from ``summary.json``; None if it has not."""
    summary = read_object(summary_path(run_dir))
    return None if summary is None else str(summary.get("status"))
