"""What honest submitters, other frameworks and older rounds do: one change each to a submission without fault.

None of it may be rejected, and restarts and lost time are one question.
"""

import json
import math
from pathlib import Path

from benchmark.judging.results.judged import JUDGED
from tests.benchmark.judging.review.fixture import PROGRESS, Log, Record, Submission
from tests.benchmark.judging.review.restarted_runs import RESTARTS
from tests.benchmark.judging.review.submission_changes import (
    MINUTE_MS,
    Change,
    Trial,
    abort,
    each,
    each_record,
    fields,
    keys,
    log_bytes,
    run,
    trained,
)

GPT3 = ("made", "steps", "tpu")


def _aborted_in_block(log: Log) -> None:
    """Abort in a block, with all of its tokens counted."""
    step = [record for record in log.records[log.place("block_start", 7) :] if record["key"] == "tracked_stats"][:5]
    abort(log, 6, whole_block=False)
    log.records[log.place("run_stop") : log.place("run_stop")] = step
    tokens = trained(log.records[log.place("eval_accuracy", -1)]) + 5 * 4_194_304
    stop = max((record["time_ms"] for record in step), default=0)
    for record in log.records[log.place("run_stop") :]:
        record["time_ms"] = max(record["time_ms"], stop + 1)
        if record["key"] in ("train_samples", "trained_samples"):
            record["value"] = tokens


def _killed(log: Log) -> None:
    """End the log in the middle of a block, as that of a killed job."""
    log.records = log.records[: log.place("eval_accuracy", len(log.values) // 2) + 1]


def _killed_at(log: Log, key: str) -> None:
    log.records = log.records[: log.place(key)]


def _clock_set_back(log: Log) -> None:
    """Set the clock back by more than a block, within a block."""
    log.shift(log.place("block_start", 8) + 1, -3 * (log.time("eval_accuracy", 4) - log.time("eval_accuracy", 3)))


def _aborted_before_any(log: Log) -> None:
    abort(log, 0)
    log.without("eval_start", "eval_stop", "eval_accuracy", "block_stop")


def _never_converged(log: Log) -> None:
    for number, value in enumerate(log.values):
        log.set("eval_accuracy", value + 0.0025, number)
    log.metadata("run_stop", status="aborted")


def _diverged(log: Log) -> None:
    for number in range(8, len(log.values)):
        log.set("eval_accuracy", math.nan, number)
    log.metadata("run_stop", status="aborted")


def _killed_at_nan(log: Log) -> None:
    _diverged(log)
    log.without("run_stop")


def _failed(log: Log) -> None:
    _never_converged(log)
    log.metadata("run_stop", status="failed")


def _by_all_ranks(log: Log) -> None:
    """Write each record by eight processes, a few milliseconds apart; each has a seed of its own."""
    ranks = [(rank, record | {"time_ms": record["time_ms"] + rank % 3}) for record in log.records for rank in range(8)]
    log.records = [
        record | {"value": record["value"] + rank} if record["key"] == "seed" else record for rank, record in ranks
    ]


def _checkpoints(log: Log) -> None:
    for place in log.places("eval_accuracy")[3:-1:4]:
        log.shift(place + 1, 4_000)


def _slow_evaluations(log: Log) -> None:
    for number in range(len(log.values)):
        taken = log.time("eval_accuracy", number) - log.time("eval_start", number)
        log.shift(log.place("eval_accuracy", number), taken // 2)
    for record, name in log.tracked(("validation_step_timing in s",)):
        record["value"] = {name: 1.5 * record["value"][name]}


def _zones(one: Submission) -> None:
    for number, log in enumerate(one.logs):
        log.shift(0, -number * 11 * 86_400_000)


def _spike(log: Log) -> None:
    for number, more in ((9, 0.012), (10, 0.007), (11, 0.003)):
        log.set("eval_accuracy", log.values[number] + more, number)


def _longer(one: Submission) -> None:
    """Repeat the last block of a run twice, with values between."""
    log = one.logs[2]
    for _ in range(2):
        before, last = log.places("eval_accuracy")[-2:]
        piece = [log.copied(place) for place in range(before + 1, last + 1)]
        taken = log.records[last]["time_ms"] - log.records[before]["time_ms"]
        more = trained(log.records[last]) - trained(log.records[before])
        log.shift(last + 1, taken + 3)
        for record in piece:
            record["time_ms"] += taken + 3
        for record in (*piece, *log.records[last + 1 :]):
            for name in PROGRESS:
                if name in record["metadata"]:
                    record["metadata"][name] += more
            if record["key"] in ("train_samples", "trained_samples"):
                record["value"] += more
        log.records[last + 1 : last + 1] = piece
    for number, above in zip((-3, -2, -1), (6.1e-4, 3.7e-4, -8.7e-4), strict=True):
        log.set("eval_accuracy", JUDGED[one.benchmark].target + above, number)


def _slow_node(log: Log) -> None:
    log.stretch(lambda _: 1.12)
    for record, name in log.tracked():
        record["value"] = {name: 1.12 * record["value"][name]}


def _throughput(log: Log) -> None:
    """Log the throughput at every evaluation, in sequences per second and device."""
    speed = log.records[log.place("train_samples")]["value"] / (log.time("run_stop") - log.time("run_start"))
    for number in range(len(log.values)):
        log.insert("eval_accuracy", "tracked_stats", {"throughput": 1000 * speed / 2048 / 512}, number)


def _every_tenth(log: Log) -> None:
    timed = [id(record) for record, _ in log.tracked()]
    gone = {*timed} - {*timed[::10]}
    log.records = [record for record in log.records if id(record) not in gone]


def _samples_in_sequences(log: Log) -> None:
    for number, (record, _) in enumerate(log.tracked()):
        record["metadata"]["step"] = number
    for key in ("train_samples", "trained_samples"):
        for place in log.places(key):
            log.records[place]["value"] //= 2048


def _at_start(one: Submission) -> None:
    for number, log in enumerate(one.logs):
        done = {name: 0 for name in PROGRESS if name in log.records[log.place("eval_accuracy")]["metadata"]}
        log.insert("block_start", "initial_eval_loss", 2.7767 + 1e-4 * number, **done)


def _own_order(log: Log) -> None:
    log.records = [{"rank": 0, "host": "n1", **dict(reversed(record.items()))} for record in log.records]


def _no_source(record: Record) -> None:
    """Leave the code's file and line out, but for seeds: of these the official checker wants them."""
    for name in ("file", "lineno") if record["key"] != "seed" else ():
        record["metadata"].pop(name, None)


def _behind(log: Log) -> None:
    for place in log.places("eval_accuracy"):
        value, stop = log.records[place : place + 2]
        if stop["key"] == "eval_stop":
            value["time_ms"], stop["time_ms"] = stop["time_ms"], value["time_ms"]
            log.records[place : place + 2] = [stop, value]


def _seeds_of_ranks(log: Log) -> None:
    first = log.records[log.place("seed")]["value"]
    for rank in range(1, 64):
        log.insert("global_batch_size", "seed", first + 1000 * rank)


def _rounding(log: Log) -> None:
    log.records[log.place("opt_learning_rate_warmup_steps")]["value"] -= 1
    log.set("opt_end_learning_rate", 0.1)


def _floats(log: Log) -> None:
    for key in ("train_samples", "global_batch_size", "init_checkpoint_step"):
        log.set(key, float(log.records[log.place(key)]["value"]))


def _beside(log: Log) -> None:
    for number, place in enumerate(log.places("eval_accuracy"), 1):
        log.records[place]["metadata"] |= {"step_num": 12 * number, "samples_count": 24576 * number}


def _several_words(one: Submission) -> None:
    one.description["submitter"] = name = f"{one.org} & Søn (東京)"
    each(lambda log: log.set("submission_org", name))(one)


def _other_benchmark(one: Submission) -> None:
    for number in range(10):
        one.file(f"results/{one.system}/bert/result_{number}.txt", ":::MLLOG not ours\n")
    one.file("benchmarks/bert/implementations/x/README.md", "bert\n")


def _documents(one: Submission) -> None:
    one.file("documentation/calibration.md", "none\n")
    one.file("LICENSE", "Apache-2.0\n")
    one.file(f"{one.code}/parse.py", "for line in open('result_0.txt'):\n    print(':::MLLOG {' in line)\n")
    one.file(f"{one.code}/docs/run.md", 'It prints `:::MLLOG {"key": "run_start", "value": null}`.\n')


def _power(one: Submission) -> None:
    """Write a node's meter as in v4.0 smc-ac-power, but for a reading every two seconds."""
    line = ':::MLLOG {"namespace": "", "time_ms": %d, "event_type": "%s", "key": "%s", "value": %s, "metadata": ""}\n'
    watts = 812.0 * int(one.description["accelerators_per_node"])
    for number, log in enumerate(one.logs):
        start, stop = log.time("run_start"), log.time("run_stop")
        text = line % (start, "INTERVAL_START", "power_measurement_start", "null")
        for time in (*range(start, stop, 20_000), stop):
            text += line % (time, "POINT_IN_TIME", "power_reading", f"{watts:g}")
        text += line % (stop, "INTERVAL_END", "power_measurement_stop", "null")
        for node in range(int(one.description["number_of_nodes"])):
            one.file(f"{one.results}/power/result_{number}/node_{node}.txt", text)


def _numbered(one: Submission) -> None:
    def change(package: Path) -> None:
        for path in sorted((package / one.results).glob("result_*.txt"), reverse=True):
            path.rename(path.with_name(f"result_5849-{int(path.stem[7:]) + 1}.txt"))

    one.afterwards.append(change)


BAR = b"\rEpoch 0: 10%|#  | 1/10 [00:09]\rEpoch 0: 20%|## | 2/10 [00:18]\n"
COLOURED = b"\x1b[32m[rank0] 2024-10-09 12:00:01,123 INFO\x1b[0m "
TRIALS: tuple[tuple[str, tuple[str, ...], Change], ...] = (
    # runs
    ("third run aborted half-way", (), run(2, lambda log: abort(log, 12))),
    ("second run aborted in the middle of a block", (), run(1, lambda log: abort(log, 7, whole_block=False))),
    ("second run aborted in a block, all of its tokens counted", ("steps",), run(1, _aborted_in_block)),
    ("first run aborted before its first evaluation", (), run(0, _aborted_before_any)),
    ("second run killed, without run_stop", (), run(1, _killed)),
    ("second run killed at run_start", (), run(1, lambda log: _killed_at(log, "epoch_start"))),
    ("second run killed while it was initialised", (), run(1, lambda log: _killed_at(log, "init_stop"))),
    ("the clock set back by three blocks", (), run(1, _clock_set_back)),
    ("one run that did not converge within its longest time", (), run(1, _never_converged)),
    ("one run that failed, with a word of its own for it", (), run(1, _failed)),
    ("one run that diverged to NaN", (), run(1, _diverged)),
    ("one run that diverged to NaN and was killed", (), run(1, _killed_at_nan)),
    ("checkpoints written every fourth block, a few seconds each", (), each(_checkpoints)),
    ("evaluations half as long again", ("steps", "made"), each(_slow_evaluations)),
    (
        "times with a fraction of a millisecond", (),
        each_record(lambda record: record.update(time_ms=record["time_ms"] + record["time_ms"] % 7 / 20)),
    ),
    ("the clock set back by 6 ms by NTP", (), run(0, lambda log: log.shift(log.place("block_start", 7), -6))),
    ("runs of another time zone, days and years apart within a round", (), _zones),
    (
        "initialised for 29 minutes", (),
        each(lambda log: log.shift(
            log.place("init_stop"), 29 * MINUTE_MS + log.time("init_start") - log.time("init_stop"))),
    ),
    ("run_stop a second after the evaluation", (), each(lambda log: log.shift(log.place("run_stop"), 1_200))),
    ("a spike in the middle that recovers", (), run(1, _spike)),
    ("one run of two evaluations more", ("made", "tpu"), _longer),
    (
        "drift: steps slower by 3 % at the end than at the start", ("made", "tpu"),
        each(lambda log: log.stretch(lambda share: 1 + 0.015 * share)),
    ),
    ("the first block a minute longer: compiled there", (),
     each(lambda log: log.shift(log.place("eval_accuracy"), MINUTE_MS))),
    ("one run 12 % slower: a slow node all along", ("steps",), run(2, _slow_node)),
    # records
    ("line ends of Windows", (), log_bytes(lambda content: content.replace(b"\n", b"\r\n"))),
    (
        "output of other programs between the records", (),
        log_bytes(lambda content: content.replace(b"\n", b"\n0: step done \xe2\x9c\x93\n")),
    ),
    (
        "a rank before every record, as srun writes it", (),
        log_bytes(lambda content: b"".join(b"  0: " + line + b"\n" for line in content.splitlines())),
    ),
    (
        "a time and colours before every record", (),
        log_bytes(lambda content: b"".join(COLOURED + line + b"\n" for line in content.splitlines())),
    ),
    ("a byte order mark before the first record", (), log_bytes(lambda content: b"\xef\xbb\xbf" + content)),
    (
        "progress bars with carriage returns between the records", (),
        log_bytes(lambda content: content.replace(b"\n", b"\n" + BAR)),
    ),
    (
        "ten megabytes of other output between the records", ("made",),
        log_bytes(lambda content: content.replace(b"\n", b"\n" + 60_000 * b"x" + b"\n")),
    ),
    (
        "a namespace of the framework on every record", (),
        each_record(lambda record: record.update(namespace="worker0")),
    ),
    ("fields of its own in every record, in another order", (), each(_own_order)),
    ("records without file and line of the code, but for seeds", (), each_record(_no_source)),
    (
        "the run's folder in the file of every record", (),
        each_record(lambda record: record["metadata"].update(file=f"/scratch/job_{record['time_ms']}/code/a.py")),
    ),
    # keys and values
    (
        "informative keys of its own", (),
        keys(tensor_parallel_size=8, framework_version="2.13", precision="fp8", git_commit="a" * 40,
             hostnames=["n1", "n2"], power_cap_w=700),
    ),
    (
        "keys of its own: data, optimizer, precisions", (),
        keys(dataset="c4/en", optimizer="AdamW", precision="bf16-mixed", ema=None),
    ),
    (
        "keys of its own: rates under other names", (),
        keys(lr=2e-5, min_lr=2e-6, weight_decay=0.1, dropout=0, clip_grad=1.0),
    ),
    (
        "keys of its own: parallel layout", (),
        keys(tensor_parallel=8, pp=16, dp=4, sequence_parallel=True, vocab_size=51200),
    ),
    (
        "keys of its own: keys of HPU", (),
        keys(hidden_dropout=0.0, attention_dropout=0.0, num_layers=96, tokenizer="SPM"),
    ),
    (
        "statistics under other names", (),
        each(lambda log: [log.insert("block_start", "tracked_stats", {name: 9.51}, 4)
                          for name in ("step_time_ms", "samples_per_second", "tflops", "gpu_temperature")]),
    ),
    ("throughput per device and in sequences", ("steps",), each(_throughput)),
    ("step times of every tenth step only", ("steps",), each(_every_tenth)),
    ("steps counted in the statistics, and samples in sequences", ("steps", "made"), each(_samples_in_sequences)),
    (
        "caches cleared on many nodes, at different times", (),
        each(lambda log: [log.insert("cache_clear", "cache_clear", True, 0, number % 7 * 90) for number in range(40)]),
    ),
    (
        "init_start of many ranks", (),
        each(lambda log: [log.insert("init_start", "init_start", None, 0, number * 11) for number in range(30)]),
    ),
    ("warm-up rounded down and end rate as a ratio", GPT3, each(_rounding)),
    ("numbers of samples as floats", (), each(_floats)),
    ("steps and samples beside the tokens of evaluations", GPT3, each(_beside)),
    ("validation subset counted in documents", GPT3, each(lambda log: log.set("eval_samples", 24567))),
    ("train_samples before run_stop", (), each(lambda log: log.move("train_samples", "run_stop"))),
    ("no eval_start, no eval_stop", (), each(lambda log: log.without("eval_start", "eval_stop"))),
    ("values logged behind eval_stop", (), each(_behind)),
    ("the checkpoint evaluated at the start, as a value of its own", (), _at_start),
    (
        "seeds one after the other", (),
        lambda one: [log.set("seed", 1000 + number) for number, log in enumerate(one.logs)],
    ),
    (
        "seeds from the clock, near each other", (),
        each(lambda log: log.set("seed", log.records[0]["time_ms"] // 1000)),
    ),
    ("a seed of every rank", (), each(_seeds_of_ranks)),
    ("all records by every rank", (), each(_by_all_ranks)),
    ("seeds as texts", (), each(lambda log: log.set("seed", str(log.records[log.place("seed")]["value"])))),
    # folders and descriptions
    ("an organisation of several words and signs", (), _several_words),
    (
        "names with numbers of racks and clusters", (),
        lambda one: (each(lambda log: log.set("submission_platform", "gpu-cluster-01_rack-12"))(one),
                     one.description.update(system_name="phase-2 cluster-03")),
    ),
    (
        "description with fields of its own", (),
        fields(power_supply="2 x 3 kW", framework_name="ours", network={"switches": 12, "speeds": [400]}),
    ),
    ("description: memory in MiB", ("steps", "made"), fields(accelerator_memory_capacity="81559MiB")),
    ("description: memory with its kind", ("steps", "made"), fields(accelerator_memory_capacity="80 GB HBM3")),
    ("description: notes about what is to come", (), fields(hw_notes="GPU TDP: 700W. Preview of the next driver.")),
    ("description: unknown caches", (), fields(host_processor_caches="unknown", accelerator_frequency="N/A")),
    (
        "description with line ends of Windows", (),
        lambda one: one.bytes_of(one.description_path, lambda content: content.replace(b"\n", b"\r\n")),
    ),
    (
        "description written by another tool: escaped, indented by tabs", (),
        lambda one: one.file(
            one.description_path,
            json.dumps({**one.description, "cooling": "eau à 18 °C"}, indent="\t", sort_keys=True)),
    ),
    ("description: notes of several lines, and null", (), fields(hw_notes="700 W\nliquid", sw_notes=None)),
    ("description: a number of nodes with a point", (),
     lambda one: one.description.update(number_of_nodes=float(one.description["number_of_nodes"]))),
    (
        "counts as numbers where the tools take them", (),
        lambda one: one.description.update(number_of_nodes=int(one.description["number_of_nodes"])),
    ),
    (
        "description of a system without results", (),
        lambda one: one.file("systems/other_h100.json", json.dumps(one.description | {"system_name": "other"})),
    ),
    ("documents beside it, a licence, scripts and instructions that read logs", (), _documents),
    ("power logs, as round 4.0 has them", (), _power),
    ("result files numbered from 1, with an identifier", (), _numbered),
    ("another benchmark beside it", GPT3, _other_benchmark),
)  # fmt: skip


HONEST = [*RESTARTS, *(Trial(name, change, bases) for name, bases, change in TRIALS)]
