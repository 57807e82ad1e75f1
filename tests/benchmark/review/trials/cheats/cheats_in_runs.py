"""Runs of one result that do not belong together, blocks and evaluations that changed places with others."""

import random
from pathlib import Path

from benchmark.results.run_summary import STEP_TIMING, VALIDATION_TIMING
from tests.benchmark.review.trials.cheats.cheats_in_records import block, insert
from tests.benchmark.review.trials.cheats.cheats_in_times import ends, intervals, set_intervals, set_steps, stretch
from tests.benchmark.review.trials.cheats.cheats_in_values import put, raw, usual, values
from tests.benchmark.review.trials.honest.honest_runs import abort, true_throughput
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial, as_lines
from tests.benchmark.review.trials.trial_table import TrialTable

cheat = TrialTable()


@cheat("two of three runs a fifth faster, as on a larger system", "asked")
def _larger_system(one: SubmissionOnTrial) -> None:
    for log in one.logs[:2]:
        stretch(log, 0.8)
        set_steps(log, lambda value: value * 0.8, (*STEP_TIMING, *VALIDATION_TIMING))
        true_throughput(log)


@cheat("run_start logged again behind the first block, the first one removed", "rejected")
def _late_start(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        record = log.records.pop(log.place("run_start"))
        place = log.place("eval_accuracy")
        log.records.insert(place, record | {"time_ms": log.records[place]["time_ms"] - 20})


@cheat("blocks that get faster and faster, a tenth in all", "asked", "made", "tpu")
def _faster(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        old = intervals(log)
        set_intervals(log, [value * (1 - 0.1 * number / len(old)) for number, value in enumerate(old)])
        true_throughput(log)


@cheat("the last evaluation of every run takes a tenth of its time", "asked", "steps", "made")
def _hasty_end(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        start, stop = log.place("eval_start", -1), log.place("eval_accuracy", -1)
        taken = log.records[stop]["time_ms"] - log.records[start]["time_ms"]
        for place in range(start + 1, stop):
            log.records[place]["time_ms"] = log.records[start]["time_ms"] + 1
        log.shift(stop, -round(0.9 * taken))


@cheat("all evaluations in a hundredth of their time", "rejected", "steps", "made")
def _free_evaluations(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(len(ends(log))):
            start, stop = log.place("eval_start", number), log.place("eval_accuracy", number)
            first = log.records[start]["time_ms"]
            taken = log.records[stop]["time_ms"] - first
            for place in range(start + 1, stop):
                log.records[place]["time_ms"] = first + (log.records[place]["time_ms"] - first) // 100
            log.shift(stop, -round(0.99 * taken))
        set_steps(log, lambda value: value / 100, VALIDATION_TIMING)
        true_throughput(log)


@cheat("the last evaluation again, with the same tokens, until it meets the target", "rejected")
def _again(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    place = log.place("eval_accuracy", -1)
    failed = [log.copied(place, value=2.6907 - 1e-4 * number) for number in range(3)]
    log.records[place:place] = failed


@cheat("a restart that lost no time, its tokens gone back by a block", "rejected")
def _free_restart(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    part = block(log, 9)
    before = log.records[log.place("eval_accuracy", 8)]["metadata"]["epoch_num"]
    again = [log.copied(place) for place in range(part.start, part.stop)]
    log.records[part.stop : part.stop] = again
    insert(log, "block_start", "restart", 1, 10, step=before)


@cheat("training from a checkpoint of two evaluations later, as if it were the first", "asked")
def _later_checkpoint(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        old = values(log)
        draw = random.Random(old[0])
        more = [old[-1] - 0.0012 * number + draw.gauss(0, 2e-4) for number in (1, 2)]
        raw(log, [*old[2:], *more])


@cheat("three evaluations cut out, tokens and times made to fit", "asked", "made", "tpu")
def _cut_three(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for _ in range(3):
            part = block(log, 9)
            taken = log.records[part.stop]["time_ms"] - log.records[part.start]["time_ms"]
            tokens = log.records[log.place("eval_accuracy")]["metadata"]["epoch_num"]
            del log.records[part]
            log.shift(part.start, -taken)
            for record in log.records[part.start :]:
                for name in ("epoch_num", "first_epoch_num"):
                    if name in record["metadata"]:
                        record["metadata"][name] -= tokens
                if record["key"] in ("train_samples", "trained_samples"):
                    record["value"] -= tokens


@cheat("an aborted run that is another one, cut", "rejected")
def _cut_copy(one: SubmissionOnTrial) -> None:
    log, other = one.logs[2], one.logs[0]
    raw(log, values(other)[: len(values(log))])
    abort(log, len(values(log)) - 3)


@cheat("an aborted run that is a published one, with noise of 1e-5", "rejected")
def _published_aborted(one: SubmissionOnTrial) -> None:
    from benchmark.review.published.published_traces import published_traces

    log, draw = one.logs[2], random.Random(8)
    run = next(each for each in published_traces() if len(each.log_perplexities) >= len(values(log)))
    put(log, [value + draw.gauss(0, 1e-5) for value in run.log_perplexities])
    abort(log, len(values(log)) - 2)


@cheat("evaluations logged by a script of another name in one run", "asked")
def _other_source(one: SubmissionOnTrial) -> None:
    for record in one.logs[1].records:
        if record["key"] == "eval_accuracy":
            record["metadata"] |= {"file": "/home/me/fix_logs.py", "lineno": 12}


@cheat("the code's lines differ from run to run", "asked")
def _other_lines(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        for record in log.records:
            record["metadata"]["lineno"] = record["metadata"].get("lineno", 0) + 13 * number


@cheat("noise of the curve twice the usual in one direction: every second value lower", "asked")
def _zigzag(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        put(log, [value - 6e-4 * (number % 2) for number, value in enumerate(usual(log))])


@cheat("a second system made of the first: half of the times, values with noise of 3e-5", "rejected")
def _second_system(one: SubmissionOnTrial) -> None:
    import copy
    import json

    draw = random.Random(9)
    logs = copy.deepcopy(one.logs)
    for log in logs:
        stretch(log, 0.5)
        set_steps(log, lambda value: value / 2, (*STEP_TIMING, *VALIDATION_TIMING))
        put(log, [value + draw.gauss(0, 3e-5) for value in values(log)])
        log.shift(0, 5 * 86_400_000)
        true_throughput(log)

    def change(package: Path) -> None:
        folder = package / "results" / "twice" / "gpt3"
        folder.mkdir(parents=True)
        for number, log in enumerate(logs):
            (folder / f"result_{number}.txt").write_text(as_lines(log.records))
        nodes = str(2 * int(one.description["number_of_nodes"]))
        content = one.description | {"system_name": "twice", "number_of_nodes": nodes}
        (package / "systems" / "twice.json").write_text(json.dumps(content))

    one.afterwards.append(change)
