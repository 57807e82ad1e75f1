"""What the processes of a run tell each other at every step, in the all-reduce that the step makes anyway."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Literal

StopReason = Literal["exit trigger", "signal SIGUSR2", "signal SIGTERM", "time limit"]


@dataclass(frozen=True)
class StepFlags:
    """Of one process; after the step, of all: what is set on any of them."""

    save: bool = False
    """A checkpoint is wanted: it is time (rank 0's clock), or somebody asked."""
    exit_trigger: bool = False
    """Stop: the file ``exit`` is in the run folder."""
    sigusr2: bool = False
    """Stop: the signal came, which saves and stops."""
    sigterm: bool = False
    """Stop: the signal came, as Slurm and torchrun send it; or that of Ctrl-C, or of a terminal that was closed."""
    time_limit: bool = False
    """Stop: the time is up."""
    writer_busy: bool = False
    """A checkpoint is still being written in the background."""
    writer_broken: bool = False
    """The background's messages failed; its group has to be made anew before it writes again."""

    @property
    def stop_by(self) -> StopReason | None:
        """What asked for the end, a person first; None: nothing did."""
        if self.exit_trigger:
            return "exit trigger"
        if self.sigusr2:
            return "signal SIGUSR2"
        if self.sigterm:
            return "signal SIGTERM"
        return "time limit" if self.time_limit else None

    def numbers(self) -> list[float]:
        """1 for what is set; summed over all processes, :meth:`of_all` reads them."""
        return [float(value) for value in astuple(self)]

    @staticmethod
    def of_all(sums: Sequence[float]) -> "StepFlags":
        return StepFlags(*(number > 0 for number in sums))


NO_FLAGS = StepFlags()


def any_of(several: Sequence[StepFlags]) -> StepFlags:
    """What is set in any of them."""
    return StepFlags(*map(any, zip(*map(astuple, several), strict=True))) if several else NO_FLAGS
