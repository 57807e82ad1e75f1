"""Realistic mistakes of submitters, and a few dishonest ones: how each is told."""

import json
from dataclasses import dataclass
from pathlib import Path

from benchmark.results.judged import GPT3
from benchmark.review.rules.copy_rules import published_runs
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records
from tests.benchmark.review.trials.log_changes import (
    ends,
    fields,
    insert,
    raw,
    steps,
    stretch,
)
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial, as_lines
from tests.benchmark.review.trials.trial_table import Change

VALIDATION = ("validation_step_timing in s",)


@dataclass(frozen=True)
class Mistake:
    name: str
    rule: str
    """That must tell it; beginning with "?": as a question, and nothing is refused."""
    change: Change


def _fewer_validation_steps(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        left_out = {id(record) for record, _ in steps(log, VALIDATION)[::3]}
        log.records = [record for record in log.records if id(record) not in left_out]


def _short_evaluations(log: Log) -> None:
    for number in range(len(ends(log))):
        place, start = log.place("eval_accuracy", number), log.place("eval_start", number)
        taken = log.records[place]["time_ms"] - log.records[start]["time_ms"]
        log.shift(place, -round(0.9 * taken))
    log.records = [record for record in log.records if VALIDATION[0] not in f"{record['value']}"]


def _idle_steps(log: Log) -> None:
    for record, name in steps(log)[5::12]:
        record["value"] = {name: 0.001}


def _steps_left_out(log: Log) -> None:
    gone = {id(record) for record, _ in steps(log)[60:64]}
    log.records = [record for record in log.records if id(record) not in gone]


def _cut_out(log: Log) -> None:
    """Half of a block's time cut out of the stamps."""
    places = ends(log)
    length = log.records[places[9]]["time_ms"] - log.records[places[8]]["time_ms"]
    start = log.records[places[8]]["time_ms"]
    for record in log.records[places[8] + 1 : places[9]]:
        record["time_ms"] = start + (record["time_ms"] - start) // 2
    log.shift(places[9], -(length // 2))


def _twins(one: SubmissionOnTrial) -> None:
    one.file(f"systems/{one.system}_again.json", json.dumps(one.description | {"system_name": "again"}))
    for number in range(3):
        one.file(f"results/{one.system}_again/gpt3/result_{number}.txt", as_lines(records(70_100 + 17 * number**2)))


def _published(one: SubmissionOnTrial) -> None:
    """The values of a published run, moved and scaled."""
    table = GPT3.published
    assert table is not None
    published = next(run for run in published_runs(table) if run.name.startswith("v4.1 NVIDIA/eos_n64"))
    raw(one.logs[0], [2.69 + 1.02 * (value - 2.69) - 2e-5 for value in published.trace.values])


def _copied_times(one: SubmissionOnTrial) -> None:
    """One run's stamps, 3 % faster, on another's values."""
    first, second = one.logs[0].records, one.logs[1].records
    start = second[0]["time_ms"]
    for record, other in zip(second, first, strict=True):
        record["time_ms"] = start + round(0.97 * (other["time_ms"] - first[0]["time_ms"]))


def _each(key: str, value: object) -> Change:
    return lambda one: one.each(lambda log: log.set(key, value))


def _run(path: str) -> Change:
    return lambda one: one.file(path.format(one.system), as_lines(one.logs[0].records))


def _no_code(one: SubmissionOnTrial) -> None:
    def empty(package: Path) -> None:
        for path in (package / one.code).iterdir():
            path.unlink()

    one.afterwards.append(empty)


def _late_start(log: Log) -> None:
    log.records[log.place("init_start")]["time_ms"] = log.records[log.place("init_stop")]["time_ms"] - 900


MISTAKES = (
    Mistake("fewer validation steps than the subset takes", "?eval.time", _fewer_validation_steps),
    Mistake("evaluations ten times too short", "?eval.time", lambda one: one.each(_short_evaluations)),
    Mistake("one step in twelve that takes no time", "?speed.steps", lambda one: _idle_steps(one.logs[0])),
    Mistake("steps left out of the statistics", "?speed.steps", lambda one: _steps_left_out(one.logs[1])),
    Mistake("half of a block cut out", "?speed.block", lambda one: _cut_out(one.logs[0])),
    Mistake("stamps 15 % shorter, step times as they were", "?speed.steps", lambda one: stretch(one.logs[2], 0.85)),
    Mistake(
        "ten times as fast as the devices can be", "speed.peak", lambda one: one.each(lambda log: stretch(log, 0.1))
    ),
    Mistake("a tenth of the nodes that are described", "?speed.peak", fields(number_of_nodes="640", system_name="x")),
    Mistake("the same system handed in twice", "?package.twins", _twins),
    Mistake("a run among another benchmark's results", "?package.stray_run", _run("results/{0}/bert/result_3.txt")),
    Mistake("a fourth run beside the three", "?package.stray_run", _run("results/{0}/gpt3/run_3.log")),
    Mistake("runs among the code", "?package.stray_run", _run("benchmarks/gpt3/implementations/{0}/logs/slurm.out")),
    Mistake("a name that says other counts than its fields", "?named.counts", fields(system_name="dgxh100_n32")),
    Mistake("a platform of other counts", "?named.counts", _each("submission_platform", "32xDGXH100")),
    Mistake("another accelerator in the log", "?named.accelerator", _each("submission_platform", "tpu-v5p")),
    Mistake("logs of another organisation", "?named.submitter", _each("submission_org", "Umbrella Computing")),
    Mistake(
        "a placeholder for the organisation",
        "?named.placeholder",
        _each("submission_org", "SUBMISSION_ORG_PLACEHOLDER"),
    ),
    Mistake("memory that the device is not sold with", "?system.memory", fields(accelerator_memory_capacity="141 GB")),
    Mistake("a name that says nothing", "?system.filled_in", fields(framework="N/A")),
    Mistake("no devices", "system.fields", fields(accelerators_per_node="0")),
    Mistake("a letter that cannot be seen", "?package.letters", fields(system_name="acme\u200b_h100")),
    Mistake("no code", "?package.code", _no_code),
    Mistake("the curve of a published run, scaled", "published.copy", _published),
    Mistake("the times of one run on another's values", "runs.copy", _copied_times),
    Mistake(
        "seeds one after the other",
        "?runs.seeds",
        lambda one: [log.set("seed", 7 + number) for number, log in enumerate(one.logs)],
    ),
    Mistake("init_start logged when all is loaded", "?init.time", lambda one: one.each(_late_start)),
    Mistake(
        "caches cleared after the start only",
        "cache.clear",
        lambda one: one.each(lambda log: log.records.insert(log.place("run_start"), log.records.pop(0))),
    ),
    Mistake("caches not cleared", "cache.clear", _each("cache_clear", False)),
    Mistake(
        "another model", "value.fixed", lambda one: one.each(lambda log: insert(log, "init_stop", "num_layers", 88))
    ),
    Mistake(
        "accumulation differs between runs",
        "?runs.settings",
        lambda one: one.logs[1].set("gradient_accumulation_steps", 8),
    ),
)
