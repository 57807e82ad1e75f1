"""The interface of observers of a run's events. The loop knows saves, guards and evidence by this interface alone."""

import time
from dataclasses import dataclass

from benchmark.run_record.endings import StopReason
from benchmark.training.step import EvaluationResult, StepFlags, StepResult


@dataclass(frozen=True)
class FinishedStep:
    """A step that was just done and counted."""

    result: StepResult
    first_sample: int
    """Index, in the order of samples since step 0, of the first sample that the step read."""
    began: float
    """Time when the step began, by time.perf_counter."""

    def seconds(self) -> float:
        """Return the seconds from the step's beginning until now."""
        return time.perf_counter() - self.began


class Observer:
    """An observer that does nothing; subclasses override the methods for the events that they need.

    All processes tell all observers of all events in the same order, so a method may communicate with the other
    processes. A method that does so says "Collective".
    """

    def begin(self) -> None:
        """The state is loaded, and the clock is about to start."""

    def before_step(self) -> StepFlags | None:
        """A step begins. Returns the requests of this process to all processes."""
        return None

    def step_done(self, step: FinishedStep) -> None:
        """A step is done and counted; if an evaluation is due after it, that comes next."""

    def evaluated(self, result: EvaluationResult) -> None:
        """The validation set was evaluated after this step."""

    def between_steps(self, step: FinishedStep) -> StopReason | None:
        """The step and its evaluation are done, and the run goes on. Returns how the run ends if it must not go on."""
        return None

    def save_due(self, step: FinishedStep) -> bool:
        """Whether a checkpoint is to be begun after this step; asked after :meth:`between_steps`."""
        return False

    def about_to_save(self) -> StopReason | None:
        """A checkpoint is announced. Returns how the run ends if its state must not be saved; later observers, and so
        the one that writes checkpoints (``observers/checkpoint_saver.py``), are then left out."""
        return None

    def end(self, end: StopReason) -> None:
        """Training is over."""
