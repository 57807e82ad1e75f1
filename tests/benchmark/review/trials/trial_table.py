"""What a trial is: one change to a submission that an honest submitter may make, and that must not be refused."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial

Change = Callable[[SubmissionOnTrial], object]


@dataclass(frozen=True)
class Trial:
    name: str
    change: Change
    bases: tuple[str, ...] = ()
    """The submissions it can be tried on; empty: all."""


class TrialTable:
    """Filled by its decorator."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def __call__(self, name: str, *bases: str) -> Callable[[Change], Change]:
        def add(change: Change) -> Change:
            self.trials.append(Trial(name, change, bases))
            return change

        return add
