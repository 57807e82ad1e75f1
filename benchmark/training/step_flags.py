"""Flags that the processes of a run exchange at every step, in the all-reduce that the step makes anyway."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Literal

StopReason = Literal["exit trigger", "signal SIGUSR2", "signal SIGTERM", "time limit"]


@dataclass(frozen=True)
class StepFlags:
    """Requests of one process; after the step, the requests of all processes together."""

    save: bool = False
    """Save a checkpoint: it is time (by rank 0's clock), or somebody asked."""
    exit_trigger: bool = False
    """Stop: the file ``exit`` is in the run folder."""
    sigusr2: bool = False
    """Stop: SIGUSR2 came, which saves and stops."""
    sigterm: bool = False
    """Stop: SIGTERM came, which Slurm and torchrun send; or SIGINT (Ctrl-C), or SIGHUP (a terminal was closed)."""
    time_limit: bool = False
    """Stop: the time limit is reached."""
    writer_busy: bool = False
    """A checkpoint is still being written in the background."""
    writer_broken: bool = False
    """The background's messages failed; its process group must be renewed before it writes again."""

    @property
    def stop_by(self) -> StopReason | None:
        """The reason to stop, a person's request first; None if there is none."""
        if self.exit_trigger:
            return "exit trigger"
        if self.sigusr2:
            return "signal SIGUSR2"
        if self.sigterm:
            return "signal SIGTERM"
        return "time limit" if self.time_limit else None

    def numbers(self) -> list[float]:
        """Return 1 for each flag that is set, else 0; :meth:`of_all` reads their sums over all processes."""
        return [float(value) for value in astuple(self)]

    @staticmethod
    def of_all(sums: Sequence[float]) -> "StepFlags":
        return StepFlags(*(number > 0 for number in sums))


NO_FLAGS = StepFlags()


def any_of(several: Sequence[StepFlags]) -> StepFlags:
    """Return the flags that are set in any of ``several``."""
    return StepFlags(*map(any, zip(*map(astuple, several), strict=True))) if several else NO_FLAGS
