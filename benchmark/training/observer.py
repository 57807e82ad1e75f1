"""What stands beside a run and is told of its events. The loop knows nothing else of saves, guards or evidence."""

import time
from dataclasses import dataclass

from benchmark.launch.endings import RunEnd
from benchmark.training.step import EvaluationResult, StepResult
from benchmark.training.step_flags import StepFlags


@dataclass(frozen=True)
class StepDone:
    """A step that was just done and counted."""

    result: StepResult
    first_sample: int
    """Where in the order of samples it began to read, since step 0."""
    began: float
    """When it began, by time.perf_counter."""

    def seconds(self) -> float:
        """Since it began, until now."""
        return time.perf_counter() - self.began


class Observer:
    """Does nothing. An observer overrides the events that it needs.

    On every process all observers are told of all events in the same order, so that a method may talk with the other
    processes. One that does says "Collective".
    """

    def begin(self) -> None:
        """The state is loaded, and the clock is about to start."""

    def before_step(self) -> StepFlags | None:
        """A step begins. Returns what this process asks of all."""
        return None

    def step_done(self, step: StepDone) -> None:
        """A step is done and counted; its evaluation, if it has one, comes next."""

    def evaluated(self, result: EvaluationResult) -> None:
        """The validation set was evaluated after this step."""

    def between_steps(self, step: StepDone) -> RunEnd | None:
        """The step and its evaluation are done, and the run goes on. Returns how it ends if it must not."""
        return None

    def about_to_save(self) -> RunEnd | None:
        """A checkpoint is about to be begun. Returns how the run ends if its state must not be saved."""
        return None

    def end(self, end: RunEnd) -> None:
        """Training is over."""
