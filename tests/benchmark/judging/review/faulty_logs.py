"""Faults of logs, and the rule that must tell each: of a record, of a file, of the runs of a result, of times."""

import math
from collections.abc import Callable

from benchmark.judging.results.judged import GPT3
from benchmark.judging.review.rules.copy_rules import published_runs
from tests.benchmark.judging.review.fixture import SEEDS, Log, Submission, T, records
from tests.benchmark.judging.review.submission_changes import LOG, Change, anew, each, run, written

VALIDATION = ("validation_step_timing in s",)


def _twice(log: Log) -> None:
    log.records = [record for record in log.records for _ in range(2)]


def _seconds(log: Log) -> int:
    for record in log.records:
        record["time_ms"] //= 1000
    return 1


def _one_time(log: Log) -> int:
    for record in log.records:
        record["time_ms"] = log.records[0]["time_ms"]
    return log.place("run_stop") + 1


def _goes_on(log: Log) -> int:
    """Let the last evaluation but two meet the target."""
    log.set("eval_accuracy", 2.68995, 21)
    return log.place("eval_accuracy", 22) + 1


def _evaluation_left_out(log: Log) -> int:
    place = log.place("eval_start", 4)
    del log.records[place : place + 3]
    return log.place("eval_accuracy", 4) + 1


def _in_sequences(log: Log) -> int:
    for number in range(24):
        log.metadata("eval_accuracy", number, epoch_num=(number + 1) * 24576)
    return log.place("eval_accuracy") + 1


VALUES: tuple[tuple[str, str, str, object], ...] = (
    ("learning rate of a float32", "schedule.rate", "opt_base_learning_rate", 1.9999999494757503e-05),
    ("schedule cosine", "value.fixed", "opt_learning_rate_decay_schedule", "cosine"),
    ("sequence length as a string", "value.fixed", "max_sequence_length", "2048"),
    ("adamw", "value.fixed", "opt_name", "adamw"),
    ("weight decay 0.01", "value.fixed", "opt_weight_decay", 0.01),
    ("checkpoint step 0", "value.kind", "init_checkpoint_step", 0),
    ("end learning rate 0", "schedule.rate", "opt_end_learning_rate", 0.0),
    ("evaluation on 100 documents", "eval.samples", "eval_samples", 100),
    ("batch size as a string", "value.kind", "global_batch_size", "2048"),
    ("division Closed", "value.kind", "submission_division", "Closed"),
    ("seed as a float", "seed.logged", "seed", 17.5),
    ("another checkpoint by a step", "schedule.formula", "init_checkpoint_step", 3001),
    ("value of an evaluation NaN", "eval.value", "eval_accuracy", math.nan),
    ("tokens of another length", "?stop.samples", "train_samples", 10**9),
    ("first value at the target", "?curve.envelope", "eval_accuracy", 2.70),
)
LOGS: tuple[tuple[str, str, Callable[[Log], object]], ...] = (
    *(
        (f"no {key}", "key.present", lambda log, key=key: log.without(key))
        for key in (*GPT3.configuration[::6], "init_stop", "train_samples", "cache_clear")
    ),
    ("no seed", "seed.logged", lambda log: log.without("seed")),
    (
        "another value in a duplicate", "key.once",
        lambda log: log.insert("global_batch_size", "global_batch_size", 4096) + 1,
    ),
    ("the same value twice", "?key.once", lambda log: log.insert("opt_name", "opt_name", "adam") + 1),
    ("same output captured twice", "?key.once", _twice),
    ("two run_starts", "?key.once", lambda log: log.insert("block_start", "run_start", number=3)),
    ("target never met", "eval.target", lambda log: log.set("eval_accuracy", 2.6901, -1)),
    (
        "samples_count instead of epoch_num", "eval.value",
        lambda log: log.metadata("eval_accuracy", 5, remove=("epoch_num",), samples_count=6),
    ),
    ("initialised for 30 minutes", "init.time", lambda log: log.shift(log.place("init_stop"), 30 * 60_000)),
    ("init_start after init_stop", "clock.order", lambda log: log.move("init_start", "run_start") - 1),
    ("block before run_start", "clock.order", lambda log: log.move("block_start", "run_start")),
    ("run_stop without status", "stop.status", lambda log: log.metadata("run_stop", remove=("status",))),
    ("run aborted", "?stop.status", lambda log: log.metadata("run_stop", status="aborted")),
    ("times in seconds", "clock.order", _seconds),
    (
        "clock goes backwards", "?clock.backwards",
        lambda log: log.set_time("eval_accuracy", log.time("eval_accuracy", 7) - 60_000, 7),
    ),
    (
        "run_stop before run_start on the clock", "?clock.backwards",
        lambda log: log.set_time("run_stop", log.time("run_start") - 5_000),
    ),
    ("one time on all records", "clock.order", _one_time),
    ("run_stop an hour after the last evaluation", "?runs.lost_time",
     lambda log: log.shift(log.place("run_stop"), 60 * 60_000)),
    ("evaluation after run_stop", "stop.target", lambda log: log.move("run_stop", "eval_start", -1)),
    ("trained on after the target", "?stop.target", _goes_on),
    ("an evaluation left out", "eval.cadence", _evaluation_left_out),
    ("sequences instead of tokens", "eval.cadence", _in_sequences),
    ("one evaluation far too good", "?curve.sudden", lambda log: log.set("eval_accuracy", 2.6895, 9)),
    ("a value logged again", "?curve.sudden", lambda log: log.set("eval_accuracy", log.values[9], 10)),
    (
        "a minute between init_stop and run_start", "?init.untimed",
        lambda log: log.shift(log.place("run_start"), 60_000),
    ),
    ("dropout", "value.fixed", lambda log: log.insert("opt_name", "hidden_dropout", 0.1)),
    (
        "restart at an earlier count", "?runs.lost_time",
        lambda log: log.insert("block_start", "restart", 1, 6, step=3 * T),
    ),
    ("seed without its line", "seed.logged", lambda log: log.metadata("seed", remove=("lineno",))),
)  # fmt: skip
"""Faults of one log; the finding has its line."""


def _line_cut(one: Submission) -> int:
    one.bytes_of(LOG, lambda content: b"".join(_lines(content, 49, lambda line: line[:70] + b"\n")))
    return 50


def _joined(one: Submission) -> int:
    one.bytes_of(LOG, lambda content: b"".join(_lines(content, 39, lambda line: line.removesuffix(b"\n"))))
    return 40


def _lines(content: bytes, place: int, change: Callable[[bytes], bytes]) -> list[bytes]:
    lines = content.splitlines(keepends=True)
    return [*lines[:place], change(lines[place]), *lines[place + 1 :]]


def _copied_run(one: Submission) -> None:
    one.logs[1].records = records(SEEDS[0])
    one.logs[1].set("seed", 7)


def _failed(one: Submission) -> None:
    for failing in one.logs[1:]:
        failing.metadata("run_stop", status="aborted")


RUNS: tuple[tuple[str, str, Change], ...] = (
    ("line cut", "record.readable", _line_cut),
    ("two records on a line", "record.readable", _joined),
    ("not a text file", "record.readable", written(LOG, bytes(range(256)) * 64)),
    ("batch size differs between runs", "runs.settings", anew(1, batch_size=1536)),
    (
        "warm-up differs between runs",
        "runs.settings",
        run(1, lambda log: log.set("opt_learning_rate_warmup_steps", 200)),
    ),
    ("a seed used twice", "runs.seeds", run(1, lambda log: log.set("seed", SEEDS[0]))),
    ("a log submitted twice", "runs.copy", lambda one: one.logs.__setitem__(1, one.logs[0])),
    ("a log submitted twice with another seed", "runs.copy", _copied_run),
    ("two runs did not converge", "runs.failed", _failed),
    ("faster than the reference can", "rcp.test", anew(evaluations=22)),
    ("only void reference data lets it pass", "?rcp.test", anew(batch_size=3072, evaluations=8)),
    ("batch size without reference points", "batch.size", anew(batch_size=12288, evaluations=40, rate=3e-5)),
)
"""Faults of one log as a file, or of the three together."""


def _fewer_validation_steps(log: Log) -> None:
    left_out = {id(record) for record, _ in log.tracked(VALIDATION)[::3]}
    log.records = [record for record in log.records if id(record) not in left_out]


def _short_evaluations(log: Log) -> None:
    for number in range(24):
        taken = log.time("eval_accuracy", number) - log.time("eval_start", number)
        log.shift(log.place("eval_accuracy", number), -round(0.9 * taken))
    log.records = [record for record in log.records if VALIDATION[0] not in f"{record['value']}"]


def _idle_steps(log: Log) -> None:
    for record, name in log.tracked()[5::12]:
        record["value"] = {name: 0.001}


def _steps_left_out(log: Log) -> None:
    gone = {id(record) for record, _ in log.tracked()[60:64]}
    log.records = [record for record in log.records if id(record) not in gone]


def _cut_out(log: Log) -> None:
    """Cut half of a block's time out of the stamps."""
    before, after = log.places("eval_accuracy")[8:10]
    start = log.records[before]["time_ms"]
    length = log.records[after]["time_ms"] - start
    for record in log.records[before + 1 : after]:
        record["time_ms"] = start + (record["time_ms"] - start) // 2
    log.shift(after, -(length // 2))


def _published(log: Log) -> None:
    """Take the values of a published run, moved and scaled."""
    table = GPT3.published
    assert table is not None
    published = next(run for run in published_runs(table) if run.name.startswith("v4.1 NVIDIA/eos_n64"))
    for number, value in enumerate(published.trace.values):
        log.set("eval_accuracy", 2.69 + 1.02 * (value - 2.69) - 2e-5, number)


def _copied_times(one: Submission) -> None:
    """Put one run's stamps, 3 % faster, on another's values."""
    first, second = one.logs[0].records, one.logs[1].records
    start = second[0]["time_ms"]
    for record, other in zip(second, first, strict=True):
        record["time_ms"] = start + round(0.97 * (other["time_ms"] - first[0]["time_ms"]))


TIMED: tuple[tuple[str, str, Change], ...] = (
    ("fewer validation steps than the subset takes", "?eval.time", each(_fewer_validation_steps)),
    ("evaluations ten times too short", "?eval.time", each(_short_evaluations)),
    ("one step in twelve that takes no time", "?speed.steps", run(0, _idle_steps)),
    ("steps left out of the statistics", "?speed.steps", run(1, _steps_left_out)),
    ("half of a block cut out", "?speed.block", run(0, _cut_out)),
    ("stamps 15 % shorter, step times as they were", "?speed.steps", run(2, lambda log: log.stretch(lambda _: 0.85))),
    ("ten times as fast as the devices can be", "speed.peak", each(lambda log: log.stretch(lambda _: 0.1))),
    (
        "run_stop a minute after run_start on the clock",
        "speed.peak",
        each(lambda log: log.set_time("run_stop", log.time("run_start") + 60_000)),
    ),
    ("the curve of a published run, scaled", "published.copy", run(0, _published)),
    ("the times of one run on another's values", "runs.copy", _copied_times),
)
"""Faults of logs that have the times of their steps."""
