"""The kinds of time that a run's wall time is divided into: every millisecond belongs to exactly one."""

from collections.abc import Mapping
from typing import Literal

Kind = Literal[
    "queue", "start", "init", "productive", "evaluation", "audit", "checkpoint", "lost", "hang", "stop", "idle",
    "other", "unknown",
]  # fmt: skip

MEANINGS: Mapping[Kind, str] = {
    "queue": "a job was submitted, and nothing was launched yet",
    "start": "from the launch until the run's folder is open: processes, imports",
    "init": "processes meet, weights and moments are read, samples are put in order",
    "productive": "steps whose result survived",
    "evaluation": "evaluations that count",
    "audit": "copies that must be the same were compared",
    "checkpoint": "training paused for the copy of a checkpoint",
    "lost": "steps and evaluations done again, cut off by an incident, or skipped",
    "hang": "from the last sign of life until the processes were ended",
    "stop": "from an incident, or the end of training, until the processes were gone",
    "idle": "an attempt had ended, and the next was neither submitted nor launched",
    "other": "between all these, while training: messages, checkpoints waited for",
    "unknown": "from the last trace of an attempt to the first of the next: nobody wrote down when it ended",
}

GAPS: tuple[Kind, ...] = ("queue", "idle", "unknown")
"""Kinds of time between attempts."""
OWN: tuple[Kind, ...] = ("lost", "hang", "stop")
AFTER: tuple[Kind, ...] = ("idle", "unknown", "start", "init")
"""Kinds of time that the end of an attempt costs: of its own time (OWN), and of the next attempt's (AFTER). The queue
is counted separately, because no device stands still in it."""
