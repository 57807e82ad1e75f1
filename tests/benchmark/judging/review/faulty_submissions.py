"""Damages to the made-up submission, mistakes of submitters, and a few frauds, each with the rule that must tell it."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmark.judging.results.judged import GPT3
from benchmark.judging.review.rules.copy_rules import published_runs
from tests.benchmark.judging.review.fixture import SEEDS, SYSTEM, Log, Submission, T, as_text, records

Change = Callable[[Submission], object]
RESULTS = f"results/{SYSTEM}/gpt3"
LOG = f"{RESULTS}/result_1.txt"
DESCRIPTION = f"systems/{SYSTEM}.json"
VALIDATION = ("validation_step_timing in s",)
REMOVED = object()


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


def log(change: Callable[[Log], object], number: int = 1) -> Change:
    return lambda one: change(one.logs[number])


def valued(key: str, value: object) -> Change:
    return log(lambda log: log.set(key, value))


def each(change: Callable[[Log], object]) -> Change:
    return lambda one: [change(log) for log in one.logs]


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


def _twice(log: Log) -> None:
    log.records = [record for record in log.records for _ in range(2)]


def _seconds(log: Log) -> int:
    for record in log.records:
        record["time_ms"] //= 1000
    return 1


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
        "run_stop before run_start on the clock", "clock.order",
        lambda log: log.set_time("run_stop", log.time("run_start") - 5_000),
    ),
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
    for log in one.logs[1:]:
        log.metadata("run_stop", status="aborted")


RUNS: tuple[tuple[str, str, Change], ...] = (
    ("line cut", "record.readable", _line_cut),
    ("two records on a line", "record.readable", _joined),
    ("not a text file", "record.readable", written(LOG, bytes(range(256)) * 64)),
    ("batch size differs between runs", "runs.settings", anew(1, batch_size=1536)),
    ("warm-up differs between runs", "runs.settings", log(lambda log: log.set("opt_learning_rate_warmup_steps", 200))),
    ("a seed used twice", "runs.seeds", log(lambda log: log.set("seed", SEEDS[0]))),
    ("a log submitted twice", "runs.copy", lambda one: one.logs.__setitem__(1, one.logs[0])),
    ("a log submitted twice with another seed", "runs.copy", _copied_run),
    ("two runs did not converge", "runs.failed", _failed),
    ("faster than the reference can", "rcp.test", anew(evaluations=22)),
    ("only void reference data lets it pass", "?rcp.test", anew(batch_size=3072, evaluations=8)),
    ("batch size without reference points", "batch.size", anew(batch_size=12288, evaluations=40, rate=3e-5)),
)
"""Faults of one log as a file, or of the three together."""
FIELDS: tuple[tuple[str, str, str, object], ...] = (
    ("accelerators per node as a number", "system.fields", "accelerators_per_node", 8),
    ("status onprem in round 4", "system.fields", "status", "onprem"),
    ("division Closed in the description", "system.fields", "division", "Closed"),
    ("nodes in words", "system.fields", "number_of_nodes", "sixty-four"),
    ("no devices", "system.fields", "accelerators_per_node", "0"),
    ("framework not filled in", "?system.filled_in", "framework", "TODO"),
    ("a name that says nothing", "?system.filled_in", "framework", "N/A"),
    ("a line break in the system's name", "system.fields", "system_name", "a\nINFO - RCP Test Passed: x"),
    ("memory that the device is not sold with", "?system.memory", "accelerator_memory_capacity", "141 GB"),
    ("a name that says other counts than its fields", "?named.counts", "system_name", "dgxh100_n32"),
    ("a letter that cannot be seen", "?package.letters", "system_name", "acme\u200b_h100"),
    ("description without accelerator_on-chip_memories", "system.fields", "accelerator_on-chip_memories", REMOVED),
    ("description without status", "system.fields", "status", REMOVED),
    ("description without sw_notes", "system.fields", "sw_notes", REMOVED),
)


def _field_twice(one: Submission) -> int:
    one.bytes_of(DESCRIPTION, lambda content: content.replace(b"{", b'{\n"division": "open",', 1))
    return 2


def _pattern_in_name(one: Submission) -> None:
    moved(f"results/{SYSTEM}", f"{SYSTEM}[1]")(one)
    moved(DESCRIPTION, f"{SYSTEM}[1].json")(one)


def _second_system(one: Submission) -> None:
    """Hand the same runs in under another name."""
    one.afterwards.append(lambda package: shutil.copytree(package / f"results/{SYSTEM}", package / "results/other"))
    one.afterwards.append(lambda package: shutil.copy(package / DESCRIPTION, package / "systems/other.json"))


def _twins(one: Submission) -> None:
    one.file(f"systems/{one.system}_again.json", json.dumps(one.description | {"system_name": "again"}))
    for number in range(3):
        one.file(f"results/{one.system}_again/gpt3/result_{number}.txt", as_text(records(70_100 + 17 * number**2)))


def _without(path: str) -> Change:
    def remove(package: Path) -> None:
        if (package / path).is_dir():
            shutil.rmtree(package / path)
        else:
            (package / path).unlink()

    return lambda one: one.afterwards.append(remove)


FOURTH = as_text(records(1004))
PARAMETERS = f"{RESULTS}/package_checker_params"
OTHER_RUN = "benchmarks/gpt3/implementations/{0}/logs/slurm.out"
FOLDERS: tuple[tuple[str, str, str | None, Change], ...] = (
    ("description is not JSON", "system.readable", DESCRIPTION, written(DESCRIPTION, '{"submitter": ')),
    ("description with a field twice", "?system.readable", DESCRIPTION, _field_twice),
    ("no description", "package.layout", f"results/{SYSTEM}", _without(DESCRIPTION)),
    ("no results", "package.layout", "", _without("results")),
    ("no code", "?package.code", "benchmarks/gpt3", _without("benchmarks/gpt3/implementations")),
    ("four runs", "package.layout", RESULTS, written(f"{RESULTS}/result_3.txt", FOURTH)),
    ("a run named run_1.txt", "package.layout", RESULTS, moved(LOG, "run_1.txt")),
    ("benchmark folder gpt-3", "package.layout", f"results/{SYSTEM}/gpt-3", moved(RESULTS, "gpt-3")),
    ("a folder logs beside gpt3", "package.layout", f"results/{SYSTEM}/logs", written("results/{0}/logs/x", "x")),
    (
        "results without gpt3/", "?package.stray_run", f"results/{SYSTEM}/result_0.txt",
        written("results/{0}/result_0.txt", FOURTH),
    ),
    ("a run among another benchmark's results", "?package.stray_run", None, written("results/{0}/bert/result_3.txt")),
    ("a fourth run beside the three", "?package.stray_run", None, written("results/{0}/gpt3/run_3.log")),
    ("runs among the code", "?package.stray_run", None, written(OTHER_RUN)),
    ("runs of another system", "package.copy", "results/other/gpt3/result_0.txt", _second_system),
    ("the same system handed in twice", "?package.twins", None, _twins),
    ("a hidden file", "package.files", "benchmarks/.gitignore", written("benchmarks/.gitignore", "x")),
    ("a space in a name", "package.files", "benchmarks/a b.sh", written("benchmarks/a b.sh", "x")),
    ("a pattern in the system's name", "package.files", f"results/{SYSTEM}[1]", _pattern_in_name),
    ("a broken link", "package.files", "benchmarks/data", linked("benchmarks/data", "nowhere")),
    ("a link out of the package", "package.files", "benchmarks/etc", linked("benchmarks/etc", "/etc")),
    ("bypass of the convergence test", "package.bypass", PARAMETERS, written(PARAMETERS, "rcp-bypass", 1)),
    (
        "bypass of the seed checker", "package.bypass", "package_checker_params",
        written("package_checker_params", "\nseed-checker-bypass\n", 2),
    ),
    (
        "open in one log, closed in the description", "package.division", LOG,
        log(lambda log: log.set("submission_division", "open")),
    ),
    ("a tenth of the nodes that are described", "?speed.peak", None, described(number_of_nodes="640", system_name="x")),
    (
        "a platform of other counts", "?named.counts", None,
        each(lambda log: log.set("submission_platform", "32xDGXH100")),
    ),
    (
        "another accelerator in the log", "?named.accelerator", None,
        each(lambda log: log.set("submission_platform", "tpu-v5p")),
    ),
    (
        "logs of another organisation", "?named.submitter", None,
        each(lambda log: log.set("submission_org", "Umbrella Computing")),
    ),
    (
        "a placeholder for the organisation", "?named.placeholder", None,
        each(lambda log: log.set("submission_org", "SUBMISSION_ORG_PLACEHOLDER")),
    ),
    (
        "init_start logged when all is loaded", "?init.time", None,
        each(lambda log: log.set_time("init_start", log.time("init_stop") - 900)),
    ),
    (
        "caches cleared after the start only", "cache.clear", None,
        each(lambda log: log.move("cache_clear", "epoch_start")),
    ),
    ("caches not cleared", "cache.clear", None, each(lambda log: log.set("cache_clear", False))),
    ("another model", "value.fixed", None, each(lambda log: log.insert("init_stop", "num_layers", 88))),
    (
        "accumulation differs between runs", "?runs.settings", None,
        log(lambda log: log.set("gradient_accumulation_steps", 8)),
    ),
)  # fmt: skip
"""Faults of the package, and of all its logs."""


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
    ("one step in twelve that takes no time", "?speed.steps", log(_idle_steps, 0)),
    ("steps left out of the statistics", "?speed.steps", log(_steps_left_out)),
    ("half of a block cut out", "?speed.block", log(_cut_out, 0)),
    ("stamps 15 % shorter, step times as they were", "?speed.steps", log(lambda log: log.stretch(lambda _: 0.85), 2)),
    ("ten times as fast as the devices can be", "speed.peak", each(lambda log: log.stretch(lambda _: 0.1))),
    ("the curve of a published run, scaled", "published.copy", log(_published, 0)),
    ("the times of one run on another's values", "runs.copy", _copied_times),
)
"""Faults of logs that have the times of their steps."""

FAULTS = (
    *(Fault(name, rule, valued(key, value), LOG) for name, rule, key, value in VALUES),
    *(Fault(name, rule, log(change), LOG) for name, rule, change in LOGS),
    *(Fault(name, rule, change, LOG) for name, rule, change in RUNS),
    *(Fault(name, rule, described(**{field: value}), DESCRIPTION) for name, rule, field, value in FIELDS),
    *(Fault(name, rule, change, path) for name, rule, path, change in FOLDERS),
    *(Fault(name, rule, change, steps=True) for name, rule, change in TIMED),
)
