"""Damages to one log, and to what three logs have in common."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmark.review.damage import LOG, RESULTS, Damage, Log, T, in_log, in_runs, in_text, missing_keys
from tests.benchmark.review.fixture import SEEDS, Record, as_text, records

Change = Callable[[Log], int | None]
FLOAT32 = 1.9999999494757503e-05

VALUES: tuple[tuple[str, str, str, object], ...] = (
    ("learning rate of a float32", "schedule.rate", "opt_base_learning_rate", FLOAT32),
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
    ("first value at the target", "?curve.envelope", "eval_accuracy", 2.70),
)


def damages() -> Iterator[Damage]:
    yield from missing_keys()
    for name, rule, key, value in VALUES:
        yield Damage(name, rule, LOG, in_log(_set(key, value)))
    for name, rule, change in CHANGES:
        yield Damage(name, rule, LOG, in_log(change))
    for name, rule, spoil in TEXTS:
        yield Damage(name, rule, LOG, spoil)
    for name, rule, path, spoil in RUNS:
        yield Damage(name, rule, path, spoil)


def _set(key: str, value: object) -> Change:
    return lambda log: log.set(key, value)


def _repeat(key: str, value: object) -> Change:
    def change(log: Log) -> int:
        place = log.place(key)
        log.records.insert(place + 1, log.copied(place, value=value))
        return place + 2

    return change


def _move(key: str, before: str) -> Change:
    """Record and time; the line of the one it overtakes."""

    def change(log: Log) -> int:
        record = log.records.pop(log.place(key))
        place = log.place(before)
        record["time_ms"] = log.records[place]["time_ms"]
        log.records.insert(place, record)
        return place + 1

    return change


def _twice(log: Log) -> None:
    log.records = [record for record in log.records for _ in range(2)]


def _never(log: Log) -> int:
    return log.set("eval_accuracy", 2.6901, -1)


def _no_tokens(log: Log) -> int:
    return log.metadata("eval_accuracy", 5, remove=("epoch_num",), samples_count=6)


def _long_init(log: Log) -> int:
    log.shift(log.place("init_stop"), 30 * 60_000)
    return log.place("init_stop") + 1


def _init_start_late(log: Log) -> int:
    record = log.records.pop(log.place("init_start"))
    place = log.place("init_stop")
    record["time_ms"] = log.records[place]["time_ms"] + 1
    log.records.insert(place + 1, record)
    return place + 1


def _seconds(log: Log) -> int:
    for record in log.records:
        record["time_ms"] //= 1000
    return 1


def _backwards(log: Log) -> int:
    place = log.place("eval_accuracy", 7)
    log.records[place]["time_ms"] -= 60_000
    return place + 1


def _stop_before_start(log: Log) -> int:
    place = log.place("run_stop")
    log.records[place]["time_ms"] = log.records[log.place("run_start")]["time_ms"] - 5_000
    return place + 1


def _second_start(log: Log) -> int:
    place = log.place("block_start", 3)
    log.records.insert(place, log.copied(log.place("run_start"), time_ms=log.records[place]["time_ms"]))
    return place + 1


def _stop_early(log: Log) -> int:
    record = log.records.pop(log.place("run_stop"))
    place = log.place("eval_start", -1)
    record["time_ms"] = log.records[place]["time_ms"]
    log.records.insert(place, record)
    return log.place("run_stop") + 1


def _goes_on(log: Log) -> int:
    """The run's last evaluation but two already met the target."""
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


def _drop(log: Log) -> int:
    return log.set("eval_accuracy", 2.6895, 9)


def _value_again(log: Log) -> int:
    return log.set("eval_accuracy", log.records[log.place("eval_accuracy", 9)]["value"], 10)


def _untimed(log: Log) -> int:
    log.shift(log.place("run_start"), 60_000)
    return log.place("run_start") + 1


def _dropout(log: Log) -> int:
    place = log.place("opt_name")
    log.records.insert(place, log.copied(place, key="hidden_dropout", value=0.1))
    return place + 1


def _restart_back(log: Log) -> int:
    place = log.place("block_start", 6)
    restart = log.copied(place, key="restart", value=1, event_type="POINT_IN_TIME")
    restart["metadata"]["step"] = 3 * T
    log.records.insert(place, restart)
    return place + 1


CHANGES: tuple[tuple[str, str, Change], ...] = (
    ("another value in a duplicate", "key.once", _repeat("global_batch_size", 4096)),
    ("the same value twice", "?key.once", _repeat("opt_name", "adam")),
    ("same output captured twice", "?key.once", _twice),
    ("two run_starts", "?key.once", _second_start),
    ("target never met", "eval.target", _never),
    ("samples_count instead of epoch_num", "eval.value", _no_tokens),
    ("initialised for 30 minutes", "init.time", _long_init),
    ("init_start after init_stop", "clock.order", _init_start_late),
    ("block before run_start", "clock.order", _move("block_start", "run_start")),
    ("run_stop without status", "stop.status", lambda log: log.metadata("run_stop", remove=("status",))),
    ("run aborted", "?stop.status", lambda log: log.metadata("run_stop", status="aborted")),
    ("times in seconds", "clock.order", _seconds),
    ("clock goes backwards", "?clock.backwards", _backwards),
    ("run_stop before run_start on the clock", "clock.order", _stop_before_start),
    ("evaluation after run_stop", "stop.target", _stop_early),
    ("trained on after the target", "?stop.target", _goes_on),
    ("an evaluation left out", "eval.cadence", _evaluation_left_out),
    ("sequences instead of tokens", "eval.cadence", _in_sequences),
    ("one evaluation far too good", "?curve.sudden", _drop),
    ("a value logged again", "?curve.sudden", _value_again),
    ("a minute between init_stop and run_start", "?init.untimed", _untimed),
    ("dropout", "value.fixed", _dropout),
    ("restart at an earlier count", "?runs.lost_time", _restart_back),
    ("seed without its line", "seed.logged", lambda log: log.metadata("seed", remove=("lineno",))),
)


def _line(number: int, change: Callable[[str], str]) -> Callable[[Path], int | None]:
    def spoil(lines: list[str]) -> int:
        lines[number - 1] = change(lines[number - 1])
        return number

    return in_text(spoil)


def _joined(lines: list[str]) -> int:
    lines[39] += lines.pop(40)
    return 40


def _garbage(package: Path) -> None:
    (package / LOG).write_bytes(bytes(range(256)) * 64)


TEXTS: tuple[tuple[str, str, Callable[[Path], int | None]], ...] = (
    ("line cut", "record.readable", _line(50, lambda text: text[:70])),
    ("two records on a line", "record.readable", in_text(_joined)),
    ("not a text file", "record.readable", _garbage),
)


def _run(number: int, make: Callable[[], list[Record]]) -> Callable[[Path], int | None]:
    def spoil(package: Path) -> None:
        (package / RESULTS / f"result_{number}.txt").write_text(as_text(make()))

    return spoil


def _other_seed() -> list[Record]:
    log = Log(records(SEEDS[0]))
    log.set("seed", 7)
    return log.records


def _other_rate() -> list[Record]:
    log = Log(records(SEEDS[1]))
    log.set("opt_learning_rate_warmup_steps", 200)
    return log.records


def _same_seed() -> list[Record]:
    log = Log(records(SEEDS[1]))
    log.set("seed", SEEDS[0])
    return log.records


def _failed(package: Path) -> None:
    for number in (1, 2):
        log = Log(records(SEEDS[number]))
        log.metadata("run_stop", status="aborted")
        (package / RESULTS / f"result_{number}.txt").write_text(as_text(log.records))


RUNS: tuple[tuple[str, str, str, Callable[[Path], int | None]], ...] = (
    ("batch size differs between runs", "runs.settings", LOG, _run(1, lambda: records(SEEDS[1], batch_size=1536))),
    ("warm-up differs between runs", "runs.settings", LOG, _run(1, _other_rate)),
    ("a seed used twice", "runs.seeds", LOG, _run(1, _same_seed)),
    ("a log submitted twice", "runs.copy", LOG, _run(1, lambda: records(SEEDS[0]))),
    ("a log submitted twice with another seed", "runs.copy", LOG, _run(1, _other_seed)),
    ("two runs did not converge", "runs.failed", LOG, _failed),
    ("faster than the reference can", "rcp.test", LOG, in_runs(lambda seed: records(seed, evaluations=22))),
    (
        "only void reference data lets it pass",
        "?rcp.test",
        LOG,
        in_runs(lambda seed: records(seed, batch_size=3072, evaluations=8)),
    ),
    (
        "batch size without reference points",
        "batch.size",
        LOG,
        in_runs(lambda seed: records(seed, batch_size=12288, evaluations=40, rate=3e-5)),
    ),
)
