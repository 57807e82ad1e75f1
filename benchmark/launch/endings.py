"""The five ways in which a start of a run can end, and what each means for the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
class RunEnd:
    """The way in which the training of a run has ended; the values are equal on all processes."""

    ending: Ending
    why: str
    """Reason in a few words for people."""
    reached_target: bool = False
