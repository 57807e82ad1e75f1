"""Damages to the made-up submission, mistakes of submitters, and a few frauds, each with the rule that must tell it."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.benchmark.judging.review.faulty_logs import LOGS, RUNS, TIMED, VALUES
from tests.benchmark.judging.review.faulty_packages import FIELDS, FOLDERS
from tests.benchmark.judging.review.fixture import Log
from tests.benchmark.judging.review.submission_changes import DESCRIPTION, LOG, Change, described, run


@dataclass(frozen=True)
class Fault:
    """A submission with one fault."""

    name: str
    rule: str
    """Rule that must find it; beginning with "?": as a question, else as an error."""
    change: Change
    """Makes the fault; returns the line that it is in, or anything else where the line does not matter."""
    path: str | None = None
    """Place of the finding, relative to the package; None where it does not matter."""
    steps: bool = False
    """True if the logs have the times of their steps."""


def _valued(key: str, value: object) -> Callable[[Log], int]:
    return lambda log: log.set(key, value)


FAULTS = (
    *(Fault(name, rule, run(1, _valued(key, value)), LOG) for name, rule, key, value in VALUES),
    *(Fault(name, rule, run(1, change), LOG) for name, rule, change in LOGS),
    *(Fault(name, rule, change, LOG) for name, rule, change in RUNS),
    *(Fault(name, rule, described(**{field: value}), DESCRIPTION) for name, rule, field, value in FIELDS),
    *(Fault(name, rule, change, path) for name, rule, path, change in FOLDERS),
    *(Fault(name, rule, change, steps=True) for name, rule, change in TIMED),
)
