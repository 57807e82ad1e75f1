"""Changes to a log that several trials make."""

from collections.abc import Callable, Sequence
from typing import Any

from benchmark.results.run_summary import STEP_TIMING
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import Record
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import Change


def insert(
    log: Log, before: str, key: str, value: Any = None, number: int = 0, later_ms: int = 0, **fields: Any
) -> None:
    place = log.place(before, number)
    metadata = {"file": "train.py", "lineno": 7, **fields}
    time = log.records[place]["time_ms"] + later_ms
    kind = "INTERVAL_START" if key.endswith("start") else "INTERVAL_END" if key.endswith("stop") else "POINT_IN_TIME"
    record: Record = {
        "namespace": "", "time_ms": time, "event_type": kind, "key": key, "value": value, "metadata": metadata,
    }  # fmt: skip
    log.records.insert(place, record)


def fields(**changes: Any) -> Change:
    """Other fields of the description."""

    def change(one: SubmissionOnTrial) -> None:
        one.description |= changes

    return change


def steps(log: Log, names: tuple[str, ...] = STEP_TIMING) -> list[tuple[Record, str]]:
    tracked = [one for one in log.records if one["key"] == "tracked_stats"]
    return [(one, name) for one in tracked for name in names if name in one["value"]]


def set_steps(log: Log, change: Callable[[float], float], names: tuple[str, ...] = STEP_TIMING) -> None:
    for record, name in steps(log, names):
        record["value"] = record["value"] | {name: change(record["value"][name])}


def stretch(log: Log, factor: float) -> None:
    """All delays after run_start by a factor."""
    start = log.place("run_start")
    begun = log.records[start]["time_ms"]
    for record in log.records[start + 1 :]:
        record["time_ms"] = begun + round((record["time_ms"] - begun) * factor)


PROGRESS = ("epoch_num", "samples_count", "first_epoch_num", "step")
"""Metadata that tell how far training is."""


def trained(record: Record) -> int:
    """As its benchmark's logs count it."""
    return next(int(record["metadata"][name]) for name in PROGRESS if name in record["metadata"])


def ends(log: Log) -> list[int]:
    return [place for place, record in enumerate(log.records) if record["key"] == "eval_accuracy"]


def values(log: Log) -> list[float]:
    return [record["value"] for record in log.records if record["key"] == "eval_accuracy"]


def raw(log: Log, new: Sequence[float]) -> None:
    for number, value in enumerate(new):
        log.set("eval_accuracy", value, number)


def power_log(log: Log, watts: float, until: float = 1.0) -> str:
    """A node's meter, as in v4.0 smc-ac-power: a reading every two seconds, up to a share of the run."""
    start, stop = (log.records[log.place(key)]["time_ms"] for key in ("run_start", "run_stop"))
    stop = start + round(until * (stop - start))
    head = ':::MLLOG {"namespace": "", "time_ms": %d, "event_type": "%s", "key": "%s", "value": %s, "metadata": ""}\n'
    lines = [head % (start, "INTERVAL_START", "power_measurement_start", "null")]
    lines += [
        head % (time, "POINT_IN_TIME", "power_reading", f"{watts:g}") for time in (*range(start, stop, 2000), stop)
    ]
    return "".join([*lines, head % (stop, "INTERVAL_END", "power_measurement_stop", "null")])
