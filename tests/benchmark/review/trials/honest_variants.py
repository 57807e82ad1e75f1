"""What honest submitters do, however odd: none of it may be rejected."""

import random
from typing import Any

from tests.benchmark.review.damage import Log
from tests.benchmark.review.trials.cheats_in_records import insert
from tests.benchmark.review.trials.cheats_in_times import ends, set_steps, steps, stretch
from tests.benchmark.review.trials.cheats_in_values import values
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial, as_lines
from tests.benchmark.review.trials.trial_table import TrialTable

honest = TrialTable()


def abort(log: Log, at: int, whole_block: bool = True) -> None:
    """Ended by hand after evaluation ``at``: no value met the target."""
    place = log.place("eval_accuracy", at)
    following = place + 1
    while log.records[following]["key"] in ("eval_stop", "tracked_stats"):
        following += 1
    tokens = log.records[place]["metadata"]["epoch_num"]
    stop = log.copied(log.place("run_stop"))
    stop["metadata"]["status"] = "aborted"
    ended = log.records[following - 1]["time_ms"] + (5 if whole_block else 40_000)
    rest = [stop | {"time_ms": ended}]
    rest += [
        one | {"time_ms": ended + 1, "value": tokens}
        for one in log.records
        if one["key"] in ("train_samples", "trained_samples")
    ]
    begun = [] if whole_block else [log.copied(following, time_ms=log.records[following]["time_ms"])]
    log.records = [*log.records[:following], *begun, *rest]


def true_throughput(log: Log) -> None:
    """As the code would have computed it."""
    run_ms = log.records[log.place("run_stop")]["time_ms"] - log.records[log.place("run_start")]["time_ms"]
    tokens = log.records[log.place("train_samples")]["value"]
    set_steps(log, lambda _: tokens / run_ms * 1000, ("throughput",))


@honest("third run aborted half-way", "kept")
def _aborted(one: SubmissionOnTrial) -> None:
    abort(one.logs[2], 12)


@honest("second run aborted in the middle of a block", "kept")
def _in_block(one: SubmissionOnTrial) -> None:
    abort(one.logs[1], 7, whole_block=False)


@honest("second run aborted in a block, all of its tokens counted", "kept")
def _counted(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    block = log.place("block_start", 7)
    step = [record for record in log.records[block:] if record["key"] == "tracked_stats"][:5]
    abort(log, 6, whole_block=False)
    log.records[log.place("run_stop") : log.place("run_stop")] = step
    tokens = log.records[log.place("eval_accuracy", -1)]["metadata"]["epoch_num"] + 5 * 4_194_304
    stop = max((record["time_ms"] for record in step), default=0)
    for record in log.records[log.place("run_stop") :]:
        record["time_ms"] = max(record["time_ms"], stop + 1)
        if record["key"] in ("train_samples", "trained_samples"):
            record["value"] = tokens


@honest("first run aborted before its first evaluation", "kept")
def _before_any(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    abort(log, 0)
    for key in ("eval_start", "eval_stop", "eval_accuracy", "block_stop"):
        log.without(key)


@honest("one run aborted after its first evaluation", "kept")
def _at_once(one: SubmissionOnTrial) -> None:
    abort(one.logs[0], 0)


@honest("one run that did not converge within its longest time", "kept")
def _never(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    for number in range(len(values(log))):
        log.set("eval_accuracy", values(log)[number] + 0.0025, number)
    log.metadata("run_stop", status="aborted")


@honest("restart from a checkpoint, logged", "kept")
def _restart(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    place = log.place("block_start", 9)
    tokens = log.records[log.place("eval_accuracy", 8)]["metadata"]["epoch_num"]
    log.shift(place + 1, 400_000)
    record = log.copied(place, key="restart", value=1, event_type="POINT_IN_TIME")
    record["metadata"] = {"file": "x.py", "lineno": 1, "step": tokens}
    record["time_ms"] += 399_000
    log.records.insert(place + 1, record)
    true_throughput(log)


@honest("a fault of a node: one block four times as long", "kept")
def _stall(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    places = ends(log)
    usual = log.records[places[5]]["time_ms"] - log.records[places[4]]["time_ms"]
    log.shift(places[9], 3 * usual)
    true_throughput(log)


@honest("checkpoints written every fourth block, a few seconds each", "kept")
def _pauses(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(3, len(ends(log)) - 1, 4):
            log.shift(ends(log)[number] + 1, 4_000)


@honest("evaluations half as long again", "kept", "steps", "made")
def _slow_evaluation(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(len(ends(log))):
            place = log.place("eval_accuracy", number)
            taken = log.records[place]["time_ms"] - log.records[log.place("eval_start", number)]["time_ms"]
            log.shift(place, taken // 2)
        set_steps(log, lambda value: value * 1.5, ("validation_step_timing in s",))
        log.records = [
            r for r in log.records if "throughput" not in (r["value"] if isinstance(r["value"], dict) else ())
        ]


@honest("all of it 8 % slower", "kept")
def _slower(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        stretch(log, 1.08)
        set_steps(log, lambda value: value * 1.08)
        set_steps(log, lambda value: value / 1.08, ("throughput",))


@honest("times with a fraction of a millisecond", "kept")
def _fractions(one: SubmissionOnTrial) -> None:
    draw = random.Random(1)
    for log in one.logs:
        for record in log.records:
            record["time_ms"] += draw.random() * 0.4


@honest("the clock set back by 6 ms by NTP", "kept")
def _ntp(one: SubmissionOnTrial) -> None:
    one.logs[0].shift(one.logs[0].place("block_start", 7), -6)


@honest("runs of another time zone, days and years apart within a round", "kept")
def _zones(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        log.shift(0, -number * 11 * 86_400_000)


@honest("runs across the change to winter time", "kept")
def _winter(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        log.shift(0, 1_729_991_400_000 - log.records[0]["time_ms"])


@honest("line ends of Windows", "kept")
def _windows(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b"\n", b"\r\n"))


@honest("output of other programs between the records", "kept")
def _noise(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b"\n", b"\n0: step done \xe2\x9c\x93\n"))


@honest("a rank before every record, as srun writes it", "kept")
def _srun(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: b"".join(b"  0: " + line + b"\n" for line in content.splitlines()))


@honest("no line end behind the last record", "kept")
def _no_newline(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.rstrip(b"\n"))


@honest("a byte order mark before the first record", "kept")
def _mark(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: b"\xef\xbb\xbf" + content)


@honest("records without blanks, as another writer of JSON has them", "kept")
def _compact(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b'": ', b'":').replace(b', "', b',"'))


@honest("informative keys of its own", "kept")
def _keys(one: SubmissionOnTrial) -> None:
    extra: dict[str, Any] = {
        "tensor_parallel_size": 8, "pipeline_parallel_size": 16, "framework_version": "2.13", "precision": "fp8",
        "num_accelerators": 512, "git_commit": "a" * 40, "hostnames": ["n1", "n2"], "power_cap_w": 700,
    }  # fmt: skip
    for log in one.logs:
        for key, value in extra.items():
            insert(log, "init_stop", key, value)


@honest("sizes of the model under names of other frameworks", "kept")
def _model(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for key, value in (("n_layer", 96), ("d_model", 12288), ("vocab_size", 50257), ("emb_dim", 12288)):
            insert(log, "init_stop", key, value)


@honest("statistics under other names", "kept")
def _statistics(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        place = log.place("block_start", 4)
        for name in ("step_time_ms", "samples_per_second", "tflops", "gpu_temperature"):
            record = log.copied(place, key="tracked_stats", value={name: 9.51}, event_type="POINT_IN_TIME")
            log.records.insert(place, record)


@honest("step times to the millisecond", "kept", "steps")
def _milliseconds(one: SubmissionOnTrial) -> None:
    one.each(lambda log: set_steps(log, lambda value: round(value, 3)))


@honest("step times of every tenth step only", "kept", "steps")
def _every_tenth(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        kept = {id(record) for record, _ in steps(log)[::10]}
        timed = {id(record) for record, _ in steps(log)}
        log.records = [record for record in log.records if id(record) in kept or id(record) not in timed]


@honest("losses of steps as they are", "kept", "steps")
def _losses(one: SubmissionOnTrial) -> None:
    draw = random.Random(2)
    for log in one.logs:
        for number, (record, _) in enumerate(steps(log)):
            record["value"] = record["value"] | {"reduced_train_loss": 2.74 - 2e-4 * number + draw.gauss(0, 0.02)}


@honest("caches cleared on many nodes, at different times", "kept")
def _caches(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(40):
            insert(log, "cache_clear", "cache_clear", True, 0, later_ms=(number % 7) * 90)


@honest("init_start of many ranks", "kept")
def _many_ranks(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(30):
            insert(log, "init_start", "init_start", None, 0, later_ms=number * 11)


@honest("initialised for 29 minutes", "kept")
def _long_init(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        taken = log.records[log.place("init_stop")]["time_ms"] - log.records[log.place("init_start")]["time_ms"]
        log.shift(log.place("init_stop"), 29 * 60_000 - taken)


@honest("warm-up rounded down and end rate as a ratio", "kept")
def _rounding(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        place = log.place("opt_learning_rate_warmup_steps")
        log.records[place]["value"] -= 1
        log.set("opt_end_learning_rate", 0.1)


@honest("numbers of samples as floats", "kept")
def _floats(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for key in ("train_samples", "global_batch_size", "init_checkpoint_step"):
            log.set(key, float(log.records[log.place(key)]["value"]))


@honest("tokens as floats", "kept")
def _float_tokens(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record in log.records:
            if "epoch_num" in record["metadata"]:
                record["metadata"]["epoch_num"] = float(record["metadata"]["epoch_num"])


@honest("steps and samples beside the tokens of evaluations", "kept")
def _beside(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number, place in enumerate(ends(log), 1):
            log.records[place]["metadata"] |= {"step_num": 12 * number, "samples_count": 24576 * number}


@honest("validation subset counted in documents", "kept")
def _documents(one: SubmissionOnTrial) -> None:
    one.each(lambda log: log.set("eval_samples", 24567))


@honest("train_samples before run_stop", "kept")
def _early_samples(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        record = log.records.pop(log.place("train_samples"))
        place = log.place("run_stop")
        record["time_ms"] = log.records[place]["time_ms"]
        log.records.insert(place, record)


@honest("run_stop a second after the evaluation", "kept")
def _late_stop(one: SubmissionOnTrial) -> None:
    one.each(lambda log: log.shift(log.place("run_stop"), 1_200))


@honest("no eval_start, no eval_stop", "kept")
def _no_starts(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        log.without("eval_start")
        log.without("eval_stop")


@honest("a spike in the middle that recovers", "kept")
def _spike(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    for number, more in ((9, 0.012), (10, 0.007), (11, 0.003)):
        log.set("eval_accuracy", values(log)[number] + more, number)


@honest("a noisier curve", "kept")
def _noisier(one: SubmissionOnTrial) -> None:
    draw, log = random.Random(4), one.logs[0]
    old = values(log)
    for number, value in enumerate(old[:-1]):
        log.set("eval_accuracy", max(value + draw.gauss(0, 4e-4), 2.69 + draw.uniform(1e-5, 5e-4)), number)


@honest("one run of two evaluations more", "kept", "made", "tpu")
def _longer(one: SubmissionOnTrial) -> None:
    """The last block again, twice, with values between."""
    log = one.logs[2]
    for _ in range(2):
        before, last = ends(log)[-2:]
        piece = [log.copied(place) for place in range(before + 1, last + 1)]
        taken = log.records[last]["time_ms"] - log.records[before]["time_ms"]
        more = log.records[last]["metadata"]["epoch_num"] - log.records[before]["metadata"]["epoch_num"]
        log.shift(last + 1, taken + 3)
        for record in piece:
            record["time_ms"] += taken + 3
            for name in ("epoch_num", "first_epoch_num", "step"):
                if name in record["metadata"]:
                    record["metadata"][name] += more
        for record in log.records[last + 1 :]:
            if "epoch_num" in record["metadata"]:
                record["metadata"]["epoch_num"] += more
            if record["key"] in ("train_samples", "trained_samples"):
                record["value"] += more
        log.records[last + 1 : last + 1] = piece
    found = values(log)
    for number, value in enumerate((2.69061, 2.69037, 2.68913), len(found) - 3):
        log.set("eval_accuracy", value, number)


@honest("description with fields of its own", "kept")
def _fields(one: SubmissionOnTrial) -> None:
    one.description |= {
        "power_supply": "2 x 3 kW",
        "framework_name": "ours",
        "network": {"switches": 12, "speeds": [400]},
    }


@honest("description with line ends of Windows", "kept")
def _description_windows(one: SubmissionOnTrial) -> None:
    one.bytes_of(one.description_path, lambda content: content.replace(b"\n", b"\r\n"))


@honest("description with letters of other languages", "kept")
def _letters(one: SubmissionOnTrial) -> None:
    one.description |= {"hw_notes": "Gehäuse, 機架", "cooling": "eau à 18 °C"}


@honest("counts as numbers where the tools take them", "kept")
def _numbers(one: SubmissionOnTrial) -> None:
    one.description["number_of_nodes"] = int(one.description["number_of_nodes"])


@honest("code in several folders, with files of its own", "kept")
def _code(one: SubmissionOnTrial) -> None:
    for name in ("src/train.py", "configs/a.yaml", "Dockerfile", "requirements.txt", "data/prepare.py"):
        one.file(f"{one.code}/{name}", "x = 1\n")


@honest("documents beside it, and a licence", "kept")
def _documents_folder(one: SubmissionOnTrial) -> None:
    one.file("documentation/calibration.md", "none\n")
    one.file("LICENSE", "Apache-2.0\n")


@honest("power logs", "kept")
def _power(one: SubmissionOnTrial) -> None:
    for number in range(3):
        one.file(f"{one.results}/power/result_{number}/node_0.txt", as_lines([]) + "time, watt\n")


@honest("description of a system without results", "kept")
def _without_results(one: SubmissionOnTrial) -> None:
    import json

    one.file("systems/other_h100.json", json.dumps(one.description | {"system_name": "other"}))


@honest("result files numbered from 1, with an identifier", "kept")
def _numbered(one: SubmissionOnTrial) -> None:
    def change(package: Any) -> None:
        for number in (2, 1, 0):
            (package / one.results / f"result_{number}.txt").rename(
                package / one.results / f"result_5849-{number + 1}.txt"
            )

    one.afterwards.append(change)


@honest("drift: steps slower by 3 % at the end than at the start", "kept", "made", "tpu")
def _drift(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        times = [record["time_ms"] for record in log.records]
        start, length = times[log.place("run_start")], times[log.place("run_stop")] - times[log.place("run_start")]
        for record in log.records[log.place("run_start") :]:
            share = (record["time_ms"] - start) / length
            record["time_ms"] += round(0.015 * length * share * share)


@honest("seeds from the clock, near each other", "kept")
def _clock_seeds(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        log.set("seed", log.records[0]["time_ms"] // 1000)


@honest("two nodes fewer in use than the folder's name says", "kept", "steps")
def _spares(one: SubmissionOnTrial) -> None:
    one.description["sw_notes"] = "two spare nodes"
