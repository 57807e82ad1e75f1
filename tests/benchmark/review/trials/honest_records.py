"""Logs as other writers and frameworks have them: files, keys, statistics. None of it may be rejected."""

from typing import Any

from tests.benchmark.review.trials.log_changes import ends, insert, steps
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import TrialTable

honest = TrialTable()


@honest("line ends of Windows")
def _windows(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b"\n", b"\r\n"))


@honest("output of other programs between the records")
def _noise(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: content.replace(b"\n", b"\n0: step done \xe2\x9c\x93\n"))


@honest("a rank before every record, as srun writes it")
def _srun(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: b"".join(b"  0: " + line + b"\n" for line in content.splitlines()))


@honest("a byte order mark before the first record")
def _mark(one: SubmissionOnTrial) -> None:
    one.log_bytes(lambda content: b"\xef\xbb\xbf" + content)


@honest("informative keys of its own")
def _keys(one: SubmissionOnTrial) -> None:
    extra: dict[str, Any] = {
        "tensor_parallel_size": 8, "pipeline_parallel_size": 16, "framework_version": "2.13", "precision": "fp8",
        "num_accelerators": 512, "git_commit": "a" * 40, "hostnames": ["n1", "n2"], "power_cap_w": 700,
    }  # fmt: skip
    for log in one.logs:
        for key, value in extra.items():
            insert(log, "init_stop", key, value)


@honest("statistics under other names")
def _statistics(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        place = log.place("block_start", 4)
        for name in ("step_time_ms", "samples_per_second", "tflops", "gpu_temperature"):
            record = log.copied(place, key="tracked_stats", value={name: 9.51}, event_type="POINT_IN_TIME")
            log.records.insert(place, record)


@honest("step times of every tenth step only", "steps")
def _every_tenth(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        kept = {id(record) for record, _ in steps(log)[::10]}
        timed = {id(record) for record, _ in steps(log)}
        log.records = [record for record in log.records if id(record) in kept or id(record) not in timed]


@honest("caches cleared on many nodes, at different times")
def _caches(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(40):
            insert(log, "cache_clear", "cache_clear", True, 0, later_ms=(number % 7) * 90)


@honest("init_start of many ranks")
def _many_ranks(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(30):
            insert(log, "init_start", "init_start", None, 0, later_ms=number * 11)


@honest("warm-up rounded down and end rate as a ratio", "made", "steps", "tpu")
def _rounding(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        place = log.place("opt_learning_rate_warmup_steps")
        log.records[place]["value"] -= 1
        log.set("opt_end_learning_rate", 0.1)


@honest("numbers of samples as floats")
def _floats(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for key in ("train_samples", "global_batch_size", "init_checkpoint_step"):
            log.set(key, float(log.records[log.place(key)]["value"]))


@honest("steps and samples beside the tokens of evaluations", "made", "steps", "tpu")
def _beside(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number, place in enumerate(ends(log), 1):
            log.records[place]["metadata"] |= {"step_num": 12 * number, "samples_count": 24576 * number}


@honest("validation subset counted in documents", "made", "steps", "tpu")
def _documents(one: SubmissionOnTrial) -> None:
    one.each(lambda log: log.set("eval_samples", 24567))


@honest("train_samples before run_stop")
def _early_samples(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        record = log.records.pop(log.place("train_samples"))
        place = log.place("run_stop")
        record["time_ms"] = log.records[place]["time_ms"]
        log.records.insert(place, record)


@honest("no eval_start, no eval_stop")
def _no_starts(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        log.without("eval_start")
        log.without("eval_stop")


@honest("seeds from the clock, near each other")
def _clock_seeds(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        log.set("seed", log.records[0]["time_ms"] // 1000)
