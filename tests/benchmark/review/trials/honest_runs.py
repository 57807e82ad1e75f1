"""Runs that went otherwise than most: aborted, restarted, slow, noisy. None of it may be rejected."""

import random

from benchmark.results.judged import JUDGED
from tests.benchmark.review.damage import Log
from tests.benchmark.review.trials.log_changes import PROGRESS, ends, set_steps, trained, values
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import TrialTable

honest = TrialTable()


def abort(log: Log, at: int, whole_block: bool = True) -> None:
    """Ended by hand after evaluation ``at``: no value met the target."""
    place = log.place("eval_accuracy", at)
    following = place + 1
    while log.records[following]["key"] in ("eval_stop", "tracked_stats"):
        following += 1
    progress = trained(log.records[place])
    stop = log.copied(log.place("run_stop"))
    stop["metadata"]["status"] = "aborted"
    ended = log.records[following - 1]["time_ms"] + (5 if whole_block else 40_000)
    rest = [stop | {"time_ms": ended}]
    rest += [
        one | {"time_ms": ended + 1, "value": progress}
        for one in log.records[following:]
        if one["key"] in ("train_samples", "trained_samples")
    ]
    begun = [] if whole_block else [log.copied(following, time_ms=log.records[following]["time_ms"])]
    log.records = [*log.records[:following], *begun, *rest]


def true_throughput(log: Log) -> None:
    """As the code would have computed it."""
    run_ms = log.records[log.place("run_stop")]["time_ms"] - log.records[log.place("run_start")]["time_ms"]
    tokens = log.records[log.place("train_samples")]["value"]
    set_steps(log, lambda _: tokens / run_ms * 1000, ("throughput",))


@honest("third run aborted half-way")
def _aborted(one: SubmissionOnTrial) -> None:
    abort(one.logs[2], 12)


@honest("second run aborted in the middle of a block")
def _in_block(one: SubmissionOnTrial) -> None:
    abort(one.logs[1], 7, whole_block=False)


@honest("second run aborted in a block, all of its tokens counted")
def _counted(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    block = log.place("block_start", 7)
    step = [record for record in log.records[block:] if record["key"] == "tracked_stats"][:5]
    abort(log, 6, whole_block=False)
    log.records[log.place("run_stop") : log.place("run_stop")] = step
    tokens = trained(log.records[log.place("eval_accuracy", -1)]) + 5 * 4_194_304
    stop = max((record["time_ms"] for record in step), default=0)
    for record in log.records[log.place("run_stop") :]:
        record["time_ms"] = max(record["time_ms"], stop + 1)
        if record["key"] in ("train_samples", "trained_samples"):
            record["value"] = tokens


@honest("first run aborted before its first evaluation")
def _before_any(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    abort(log, 0)
    for key in ("eval_start", "eval_stop", "eval_accuracy", "block_stop"):
        log.without(key)


@honest("one run that did not converge within its longest time")
def _never(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    for number in range(len(values(log))):
        log.set("eval_accuracy", values(log)[number] + 0.0025, number)
    log.metadata("run_stop", status="aborted")


@honest("checkpoints written every fourth block, a few seconds each")
def _pauses(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(3, len(ends(log)) - 1, 4):
            log.shift(ends(log)[number] + 1, 4_000)


@honest("evaluations half as long again", "steps", "made")
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


@honest("times with a fraction of a millisecond")
def _fractions(one: SubmissionOnTrial) -> None:
    draw = random.Random(1)
    for log in one.logs:
        for record in log.records:
            record["time_ms"] += draw.random() * 0.4


@honest("the clock set back by 6 ms by NTP")
def _ntp(one: SubmissionOnTrial) -> None:
    one.logs[0].shift(one.logs[0].place("block_start", 7), -6)


@honest("runs of another time zone, days and years apart within a round")
def _zones(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        log.shift(0, -number * 11 * 86_400_000)


@honest("initialised for 29 minutes")
def _long_init(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        taken = log.records[log.place("init_stop")]["time_ms"] - log.records[log.place("init_start")]["time_ms"]
        log.shift(log.place("init_stop"), 29 * 60_000 - taken)


@honest("run_stop a second after the evaluation")
def _late_stop(one: SubmissionOnTrial) -> None:
    one.each(lambda log: log.shift(log.place("run_stop"), 1_200))


@honest("a spike in the middle that recovers")
def _spike(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    for number, more in ((9, 0.012), (10, 0.007), (11, 0.003)):
        log.set("eval_accuracy", values(log)[number] + more, number)


@honest("one run of two evaluations more", "made", "tpu")
def _longer(one: SubmissionOnTrial) -> None:
    """The last block again, twice, with values between."""
    log = one.logs[2]
    for _ in range(2):
        before, last = ends(log)[-2:]
        piece = [log.copied(place) for place in range(before + 1, last + 1)]
        taken = log.records[last]["time_ms"] - log.records[before]["time_ms"]
        more = trained(log.records[last]) - trained(log.records[before])
        log.shift(last + 1, taken + 3)
        for record in piece:
            record["time_ms"] += taken + 3
            for name in PROGRESS:
                if name in record["metadata"]:
                    record["metadata"][name] += more
        for record in log.records[last + 1 :]:
            for name in PROGRESS[:2]:
                if name in record["metadata"]:
                    record["metadata"][name] += more
            if record["key"] in ("train_samples", "trained_samples"):
                record["value"] += more
        log.records[last + 1 : last + 1] = piece
    found = values(log)
    for number, above in enumerate((6.1e-4, 3.7e-4, -8.7e-4), len(found) - 3):
        log.set("eval_accuracy", JUDGED[one.benchmark].target + above, number)


@honest("drift: steps slower by 3 % at the end than at the start", "made", "tpu")
def _drift(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        times = [record["time_ms"] for record in log.records]
        start, length = times[log.place("run_start")], times[log.place("run_stop")] - times[log.place("run_start")]
        for record in log.records[log.place("run_start") :]:
            share = (record["time_ms"] - start) / length
            record["time_ms"] += round(0.015 * length * share * share)
