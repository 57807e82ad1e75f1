"""What a trial is: one change to a submission, and what a review must make of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial

Due = Literal["rejected", "asked", "kept"]
"""rejected: an error; asked: at least a question that the submission as it was does not raise; kept: no error."""
Change = Callable[[SubmissionOnTrial], object]


@dataclass(frozen=True)
class Trial:
    name: str
    due: Due
    change: Change
    bases: tuple[str, ...] = ()
    """The submissions it can be tried on; empty: all."""


class TrialTable:
    """Filled by its decorator."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def __call__(self, name: str, due: Due, *bases: str) -> Callable[[Change], Change]:
        def add(change: Change) -> Change:
            self.trials.append(Trial(name, due, change, bases))
            return change

        return add
