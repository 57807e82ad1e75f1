"""Changes to a made-up submission, from which the tables of honest and of faulty submissions are made."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.benchmark.judging.review.fixture import PROGRESS, SEEDS, SYSTEM, Log, Record, Submission, as_text, records

Change = Callable[[Submission], object]
MINUTE_MS = 60_000
RESULTS = f"results/{SYSTEM}/gpt3"
LOG = f"{RESULTS}/result_1.txt"
DESCRIPTION = f"systems/{SYSTEM}.json"
REMOVED = object()
"""Value of a field that is removed."""


@dataclass(frozen=True)
class Trial:
    name: str
    change: Change
    bases: tuple[str, ...] = ()
    """Submissions that it can be tried on; empty: all."""


def each(change: Callable[[Log], object]) -> Change:
    return lambda one: [change(log) for log in one.logs]


def run(number: int, change: Callable[[Log], object]) -> Change:
    return lambda one: change(one.logs[number])


def keys(**extra: Any) -> Change:
    return each(lambda log: [log.insert("init_stop", key, value) for key, value in extra.items()])


def fields(**changes: Any) -> Change:
    return lambda one: one.description.update(changes)


def log_bytes(change: Callable[[bytes], bytes]) -> Change:
    def rewrite(one: Submission) -> None:
        for number in range(len(one.logs)):
            one.bytes_of(f"{one.results}/result_{number}.txt", change)

    return rewrite


def each_record(change: Callable[[Record], object]) -> Change:
    return each(lambda log: [change(record) for record in log.records])


def trained(record: Record) -> int:
    """Return how far training is, as its benchmark's logs count it."""
    return next(int(record["metadata"][name]) for name in PROGRESS if name in record["metadata"])


def abort(log: Log, at: int, whole_block: bool = True) -> None:
    """End a run by hand after evaluation ``at``, perhaps in a block: no value met the target."""
    following = log.place("eval_accuracy", at) + 1
    while log.records[following]["key"] in ("eval_stop", "tracked_stats"):
        following += 1
    progress = trained(log.records[log.place("eval_accuracy", at)])
    ended = log.records[following - 1]["time_ms"] + (5 if whole_block else 40_000)
    begun = [] if whole_block else [log.copied(following, time_ms=log.records[following]["time_ms"])]
    stop = log.copied(log.place("run_stop"), time_ms=ended)
    stop["metadata"]["status"] = "aborted"
    counts = [one for one in log.records[following:] if one["key"] in ("train_samples", "trained_samples")]
    rest = [one | {"time_ms": ended + 1, "value": progress} for one in counts]
    log.records = [*log.records[:following], *begun, stop, *rest]


def described(**changes: object) -> Change:
    """Change or remove fields of the description; returns the line of the last."""

    def change(one: Submission) -> int:
        for name, value in changes.items():
            one.description[name] = value
            if value is REMOVED:
                del one.description[name]
        lines = json.dumps(one.description, indent=1).splitlines()
        return next((number for number, line in enumerate(lines, 1) if f'"{[*changes][-1]}":' in line), 1)

    return change


def written(path: str, content: str | bytes = "", line: int | None = None) -> Change:
    """Write a file into the package; {0} is the system's name. Without content it is the first run."""

    def change(one: Submission) -> int | None:
        one.file(path.format(one.system), content or as_text(one.logs[0].records))
        return line

    return change


def moved(path: str, name: str) -> Change:
    return lambda one: one.afterwards.append(lambda package: (package / path).rename((package / path).parent / name))


def linked(path: str, target: str) -> Change:
    return lambda one: one.afterwards.append(lambda package: (package / path).symlink_to(target))


def anew(number: int | None = None, **options: int | float) -> Change:
    """Make one run, or all, anew with other settings."""

    def change(one: Submission) -> None:
        for place in range(3) if number is None else [number]:
            one.logs[place] = Log(records(SEEDS[place], **options))  # type: ignore[arg-type]

    return change
