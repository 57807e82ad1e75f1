"""What a file holds as a whole: the records of one run, once (docs/facts/mlperf_review.md 3.1, 8.3)."""

from collections.abc import Iterator

from benchmark.results.result_log import LogEvent
from benchmark.review.findings import Deviation, Run, at
from benchmark.review.rules.key_rules import EXACTLY_ONE

MANY = 5
"""So many keys of a run repeated are no slip, but a second run or copy."""


def two_runs(run: Run) -> Iterator[Deviation]:
    """A second run appended to a file: everything else that is found there follows from it."""
    second = _second_records(run)
    if second and not _is_copy(run, second):
        first = second[0]
        count = max(len(run.log.all("run_start")), 2)
        found = f"another run begins here: {count} runs in one file, with {first.key} again"
        mend = "give each run a file of its own, opened anew"
        yield at(run, first, found, "the records of one run", mend)


def captured_twice(run: Run) -> Iterator[Deviation]:
    """Every record twice, with the same time: written by a logger and captured from the output as well."""
    second = _second_records(run)
    if second and _is_copy(run, second):
        found = f"{second[0].key} again, and {len(second) - 1} other records, each with the same time"
        mend = "log from one process only, and keep stdout out of the file"
        yield at(run, second[0], found, "every record once", mend)


def _second_records(run: Run) -> list[LogEvent]:
    """The second record of each key of which a run has one, by line; empty where only a few are repeated."""
    second = [run.log.all(key)[1] for key in EXACTLY_ONE if len(run.log.all(key)) > 1]
    ours = len(second) >= MANY and len(run.log.all("run_start")) > 1
    return sorted(second, key=lambda event: event.line) if ours else []


def _is_copy(run: Run, second: list[LogEvent]) -> bool:
    return all(event.time_ms == run.log.all(event.key)[0].time_ms for event in second)
