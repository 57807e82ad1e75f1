"""Two small cheats and more at once, each of which hides the other."""

import random

from benchmark.results.run_summary import STEP_TIMING, VALIDATION_TIMING
from tests.benchmark.review.damage import Log
from tests.benchmark.review.trials.cheats.cheats_in_times import (
    ends,
    intervals,
    set_intervals,
    set_steps,
    steps,
    stretch,
)
from tests.benchmark.review.trials.cheats.cheats_in_values import blend, like, put, raw, usual, values
from tests.benchmark.review.trials.honest.honest_runs import abort, true_throughput
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import TrialTable

cheat = TrialTable()
TIMED = (*STEP_TIMING, *VALIDATION_TIMING)


def noisy(new: list[float], spread: float, seed: int) -> list[float]:
    draw = random.Random(seed)
    return [value + draw.gauss(0, spread) for value in new]


def faster(log: Log, factor: float) -> None:
    """Stamps, steps and throughput together."""
    stretch(log, factor)
    set_steps(log, lambda value: value * factor, TIMED)
    true_throughput(log)


def without_statistics(log: Log) -> None:
    log.without("tracked_stats")


@cheat("a published curve with noise of 5e-5, moved, at the times of another run", "rejected")
def _copy_with_times(one: SubmissionOnTrial) -> None:
    log = one.logs[0]
    put(log, noisy([value - 3e-4 for value in like(log, 1)[0].log_perplexities], 5e-5, 1))
    faster(log, 1.03)


@cheat("blend of two published runs with noise of 1e-5, one of its values a spike", "rejected")
def _blend_and_spike(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    blend(log, [run.log_perplexities for run in like(log, 2)], [0.4, 0.6], 1e-5)
    log.set("eval_accuracy", values(log)[9] + 0.006, 9)


@cheat("blend of two published runs, five of its values drawn anew", "rejected")
def _blend_and_holes(one: SubmissionOnTrial) -> None:
    log, draw = one.logs[1], random.Random(2)
    blend(log, [run.log_perplexities for run in like(log, 2)], [0.5, 0.5])
    for number in (2, 6, 9, 13, 17):
        log.set("eval_accuracy", values(log)[number] + draw.gauss(0, 4e-4), number)


@cheat("blend of two published runs, rounded to 5 decimals", "rejected")
def _blend_rounded(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    blend(log, [run.log_perplexities for run in like(log, 2)], [0.5, 0.5])
    raw(log, [round(value, 5) for value in values(log)])


@cheat("first half of one published run, second half of another, noise of 2e-5", "rejected")
def _halves(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    first, second = (run.log_perplexities for run in like(log, 2))
    place = len(values(log)) // 2
    moved = first[place] - second[place]
    put(log, noisy([*first[:place], *(value + moved for value in second[place:])], 2e-5, 3))


@cheat("a published run with a slope added, noise of 2e-5", "rejected")
def _tilted(one: SubmissionOnTrial) -> None:
    log = one.logs[2]
    put(log, noisy([v - 3e-5 * n for n, v in enumerate(like(log, 1)[0].log_perplexities)], 2e-5, 4))


@cheat("a published run bent by a parabola, noise of 1e-5", "rejected")
def _bent(one: SubmissionOnTrial) -> None:
    log = one.logs[2]
    run = like(log, 1)[0].log_perplexities
    put(log, noisy([v + 6e-4 * (2 * n / len(run) - 1) ** 2 for n, v in enumerate(run)], 1e-5, 5))


@cheat("a published run mirrored and half as large, noise of 1e-5", "asked")
def _mirrored(one: SubmissionOnTrial) -> None:
    log = one.logs[2]
    base = usual(log)
    put(log, noisy([b - 0.6 * (v - b) for b, v in zip(base, like(log, 1)[0].log_perplexities, strict=False)], 1e-5, 6))


@cheat("a third run made of the others' noise on its own curve: sums of both", "asked")
def _summed_noise(one: SubmissionOnTrial) -> None:
    log, base = one.logs[2], usual(one.logs[2])
    rows = zip(base, values(one.logs[0]), values(one.logs[1]), strict=False)
    put(log, noisy([b + 0.7 * (x - b) + 0.7 * (y - b) for b, x, y in rows], 1e-5, 7))


@cheat("stamps in whole seconds, each with up to 4 ms added", "asked")
def _hidden_seconds(one: SubmissionOnTrial) -> None:
    draw = random.Random(8)
    for log in one.logs:
        before = 0
        for record in log.records:
            before = max(before, round(record["time_ms"], -3) + draw.randrange(5))
            record["time_ms"] = before


@cheat("a run copied: values with noise of 4e-5, intervals shuffled, another seed and another day", "rejected")
def _disguised_copy(one: SubmissionOnTrial) -> None:
    log, other = one.logs[1], one.logs[0]
    put(log, noisy(values(other), 4e-5, 10))
    pattern = [float(value) for value in intervals(log)]
    random.Random(11).shuffle(pattern)
    set_intervals(log, pattern)
    log.shift(0, 3 * 86_400_000)


@cheat("statistics left out in the runs whose stamps are shorter by a fifth", "asked")
def _without_statistics(one: SubmissionOnTrial) -> None:
    for log in one.logs[:2]:
        faster(log, 0.8)
        without_statistics(log)


@cheat("eval_start left out, so that no one sees that evaluations take no time", "asked", "made")
def _no_eval_start(one: SubmissionOnTrial) -> None:
    for log in one.logs[:2]:
        for number in range(len(ends(log))):
            start, stop = log.place("eval_start", number), log.place("eval_accuracy", number)
            taken = log.records[stop]["time_ms"] - log.records[start]["time_ms"]
            for place in range(start + 1, stop):
                log.records[place]["time_ms"] = log.records[start]["time_ms"]
            log.shift(stop, -taken)
        for key in ("eval_start", "eval_stop"):
            log.without(key)
        without_statistics(log)


@cheat("one slow block hidden: its time spread over the others, with the steps'", "kept")
def _spread(one: SubmissionOnTrial) -> None:
    """Gains nothing, since the run takes as long; but for steps nobody could know."""
    log = one.logs[0]
    old = intervals(log)
    set_intervals(log, [value * 1.01 for value in old])
    set_steps(log, lambda value: value * 1.01)
    true_throughput(log)


@cheat("the folder and the log half the devices, the description all of them, times twice as fast", "asked")
def _half_named(one: SubmissionOnTrial) -> None:
    one.each(lambda log: faster(log, 0.5))
    one.each(lambda log: log.set("submission_platform", "cluster-n7"))


@cheat("a failed run replaced by a copy of a good one, a minute slower", "rejected")
def _replaced(one: SubmissionOnTrial) -> None:
    log = one.logs[2]
    raw(log, [*noisy(values(one.logs[0])[:-1], 2e-5, 12), 2.68931])
    log.shift(log.place("run_stop"), 60_000)
    set_steps(log, lambda value: value * 1.0001)


@cheat("aborted, and its evaluations beyond the target called noise", "asked")
def _aborted_at_target(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    abort(log, len(values(log)) - 1)


@cheat("lucky last value, hidden by a noisy curve before it", "asked")
def _lucky_noisy(one: SubmissionOnTrial) -> None:
    draw = random.Random(13)
    for log in one.logs:
        old = values(log)
        new = [max(value + 0.0035 + draw.gauss(0, 2.5e-4), 2.6903) for value in old[:-1]]
        raw(log, [*new, old[-1]])


@cheat("step times of another run, scaled and in another order", "asked", "steps")
def _scaled_steps(one: SubmissionOnTrial) -> None:
    draw = random.Random(14)
    other = [record["value"][name] * 1.004 for record, name in steps(one.logs[0])]
    for start in range(0, len(other) - 11, 12):
        part = other[start : start + 12]
        draw.shuffle(part)
        other[start : start + 12] = part
    for (record, name), value in zip(steps(one.logs[1]), other, strict=False):
        record["value"] = record["value"] | {name: value}


@cheat("step times drawn with memory and a few far off, in every run alike", "asked", "steps")
def _drawn_with_memory(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        draw, slow = random.Random(15), 0.0
        for record, name in steps(log):
            slow = 0.6 * slow + draw.gauss(0, 4e-4)
            value = record["value"][name]
            record["value"] = record["value"] | {name: 9.41 * (1 + slow + (draw.random() < 0.02) * 0.02) + 0 * value}
