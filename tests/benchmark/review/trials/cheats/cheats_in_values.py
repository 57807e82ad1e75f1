"""Curves that no training made: blends of others, drawn, moved, polished."""

import itertools
import math
import random
from collections.abc import Sequence

from benchmark.review.published.published_traces import PublishedTrace, published_traces
from benchmark.review.rules.curve_rules import expected
from tests.benchmark.review.damage import Log
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import TrialTable

cheat = TrialTable()
Values = list[float]


def values(log: Log) -> Values:
    return [record["value"] for record in log.records if record["key"] == "eval_accuracy"]


def put(log: Log, new: Sequence[float]) -> None:
    """New values, as many as there are, all moved so that the last one is the first below the target."""
    count, draw = len(values(log)), random.Random(3)
    kept = [new[min(number, len(new) - 1)] for number in range(count)]
    if kept[-1] > 2.69 or min(kept[:-1]) <= 2.69:
        moved = 2.6899 - draw.uniform(0, 4e-4) - kept[-1] if count > 1 else 0
        kept = [value + moved for value in kept]
    for number, value in enumerate(kept):
        last = number == count - 1
        log.set("eval_accuracy", value if last or value > 2.69 else 2.69 + draw.uniform(1e-5, 2e-4), number)


def raw(log: Log, new: Sequence[float]) -> None:
    for number, value in enumerate(new):
        log.set("eval_accuracy", value, number)


def size_of(log: Log) -> float:
    return float(log.records[log.place("global_batch_size")]["value"])


def tokens_of(log: Log) -> list[float]:
    return [one["metadata"]["epoch_num"] for one in log.records if one["key"] == "eval_accuracy"]


def usual(log: Log) -> Values:
    """The median curve."""
    return [expected(size_of(log), tokens) for tokens in tokens_of(log)]


def like(log: Log, count: int) -> list[PublishedTrace]:
    """Published runs of its batch size, or else of the nearest, that are as long."""
    size, length = size_of(log), len(values(log))
    found = [one for one in published_traces() if len(one.log_perplexities) >= length]
    found.sort(key=lambda one: abs(one.global_batch_size - size))
    return found[3 : 3 + 5 * count : 5]


def blend(log: Log, curves: Sequence[Sequence[float]], shares: Sequence[float], noise: float = 0) -> None:
    draw = random.Random(11)
    mixed = [sum(share * value for share, value in zip(shares, row, strict=True)) for row in zip(*curves, strict=False)]
    put(log, [value + draw.gauss(0, noise) for value in mixed])


@cheat("third run is the mean of the two others", "rejected")
def _mean_of_own(one: SubmissionOnTrial) -> None:
    blend(one.logs[2], [values(one.logs[0]), values(one.logs[1])], [0.5, 0.5])


@cheat("third run is 0.8 of one and 0.2 of the other, noise 1e-5", "rejected")
def _uneven_of_own(one: SubmissionOnTrial) -> None:
    blend(one.logs[2], [values(one.logs[0]), values(one.logs[1])], [0.8, 0.2], 1e-5)


@cheat("mean of two published runs", "rejected")
def _mean_of_published(one: SubmissionOnTrial) -> None:
    blend(one.logs[1], [run.log_perplexities for run in like(one.logs[1], 2)], [0.5, 0.5])


@cheat("0.3 and 0.7 of two published runs, higher by 0.0002", "rejected")
def _blend_of_published(one: SubmissionOnTrial) -> None:
    curves = [[value + 2e-4 for value in run.log_perplexities] for run in like(one.logs[1], 2)]
    blend(one.logs[1], curves, [0.3, 0.7])


@cheat("mean of two published runs with noise of 2e-5", "rejected")
def _noisy_mean(one: SubmissionOnTrial) -> None:
    blend(one.logs[1], [run.log_perplexities for run in like(one.logs[1], 2)], [0.5, 0.5], 2e-5)


@cheat("mean of three published runs", "rejected")
def _mean_of_three(one: SubmissionOnTrial) -> None:
    blend(one.logs[0], [run.log_perplexities for run in like(one.logs[0], 3)], [1 / 3] * 3)


@cheat("point by point from two published runs, noise of 1e-5", "rejected")
def _choice(one: SubmissionOnTrial) -> None:
    draw = random.Random(5)
    curves = [run.log_perplexities for run in like(one.logs[0], 2)]
    put(one.logs[0], [draw.choice(pair) + draw.gauss(0, 1e-5) for pair in zip(*curves, strict=False)])


@cheat("point by point from its two other runs, noise of 1e-5", "rejected")
def _own_choice(one: SubmissionOnTrial) -> None:
    draw = random.Random(6)
    pairs = zip(values(one.logs[0]), values(one.logs[1]), strict=False)
    put(one.logs[2], [draw.choice(pair) + draw.gauss(0, 1e-5) for pair in pairs])


@cheat("extrapolated: 1.4 of a published run less 0.4 of another", "rejected")
def _extrapolated(one: SubmissionOnTrial) -> None:
    blend(one.logs[1], [run.log_perplexities for run in like(one.logs[1], 2)], [1.4, -0.4])


@cheat("second run mirrored about the median curve", "asked")
def _mirrored(one: SubmissionOnTrial) -> None:
    first = values(one.logs[0])
    put(one.logs[1], [2 * base - value for base, value in zip(usual(one.logs[1]), first, strict=False)])


@cheat("published run mirrored about the median curve", "asked")
def _mirrored_published(one: SubmissionOnTrial) -> None:
    (run,) = like(one.logs[0], 1)
    put(one.logs[0], [2 * base - value for base, value in zip(usual(one.logs[0]), run.log_perplexities, strict=False)])


@cheat("noise of a published run of another batch size on the median curve", "asked")
def _transplanted(one: SubmissionOnTrial) -> None:
    size = size_of(one.logs[0])
    run = next(run for run in published_traces() if run.global_batch_size == (3072 if size != 3072 else 2048))
    per = math.ceil(24576 / run.global_batch_size) * run.global_batch_size * 2048
    noise = [v - expected(run.global_batch_size, (k + 1) * per) for k, v in enumerate(run.log_perplexities)]
    put(one.logs[0], [base + more for base, more in zip(usual(one.logs[0]), noise, strict=False)])


@cheat("published run between its evaluations", "asked")
def _between(one: SubmissionOnTrial) -> None:
    (run,) = like(one.logs[0], 1)
    middle = [(a + b) / 2 for a, b in itertools.pairwise(run.log_perplexities)]
    put(one.logs[0], [run.log_perplexities[0] - 0.0015, *middle[1:]])


@cheat("published run stretched along its tokens", "asked")
def _stretched(one: SubmissionOnTrial) -> None:
    (run,) = like(one.logs[0], 1)
    curve, new = run.log_perplexities, []
    for number in range(len(values(one.logs[0]))):
        place = min(number * 0.96, len(curve) - 1.001)
        new.append(curve[int(place)] + (place % 1) * (curve[int(place) + 1] - curve[int(place)]))
    put(one.logs[0], new)


@cheat("median curve with a tenth of honest noise", "asked")
def _little_noise(one: SubmissionOnTrial) -> None:
    draw = random.Random(7)
    put(one.logs[0], [value + draw.gauss(0, 3e-5) for value in usual(one.logs[0])])


@cheat("median curve with uniform noise of 6e-5", "asked")
def _uniform_noise(one: SubmissionOnTrial) -> None:
    draw = random.Random(8)
    put(one.logs[0], [value + draw.uniform(-6e-5, 6e-5) for value in usual(one.logs[0])])


@cheat("polynomial of third degree", "asked")
def _polynomial(one: SubmissionOnTrial) -> None:
    import numpy as np

    old = values(one.logs[0])
    places = np.arange(len(old)) / len(old)
    put(one.logs[0], [float(value) for value in np.polyval(np.polyfit(places, old, 3), places)])


@cheat("last evaluation lucky by 0.004", "asked")
def _lucky(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        old = values(log)
        raw(log, [value + 0.0022 for value in old[:-1]] + [2.6893])


@cheat("three curves of one noise, each stretched", "rejected")
def _one_noise(one: SubmissionOnTrial) -> None:
    first = values(one.logs[0])
    for log, stretch in zip(one.logs[1:], (1.03, 0.98), strict=True):
        put(log, [2.69 + (value - 2.69) * stretch for value in first])


@cheat("noise of one run in another, evaluation by evaluation backwards", "asked")
def _backwards(one: SubmissionOnTrial) -> None:
    log = one.logs[1]
    noise = [value - base for value, base in zip(values(one.logs[0]), usual(one.logs[0]), strict=True)]
    put(log, [base + more for base, more in zip(usual(log), reversed(noise), strict=False)])


@cheat("perplexity instead of its logarithm", "rejected")
def _not_log(one: SubmissionOnTrial) -> None:
    one.each(lambda log: raw(log, [math.exp(value) for value in values(log)]))


@cheat("log perplexity to base 2", "rejected")
def _base_2(one: SubmissionOnTrial) -> None:
    one.each(lambda log: raw(log, [value / math.log(2) for value in values(log)]))


@cheat("values of half precision", "rejected")
def _half(one: SubmissionOnTrial) -> None:
    import numpy as np

    one.each(lambda log: raw(log, [float(np.float16(value)) for value in values(log)]))


@cheat("whole curve 0.009 lower", "rejected")
def _lower(one: SubmissionOnTrial) -> None:
    one.each(lambda log: raw(log, [value - 0.009 for value in values(log)]))


@cheat("curve of batch size 1536 at a larger one", "asked", "steps", "tpu")
def _other_size(one: SubmissionOnTrial) -> None:
    draw = random.Random(2)
    for log in one.logs:
        new, noise = [], 0.0
        for tokens in tokens_of(log):
            noise = noise / 2 + draw.gauss(0, 1.7e-4)
            new.append(expected(6144, tokens) + noise)
        shift = 2.6893 - new[-1]
        put(log, [value + shift for value in new])


@cheat("values rounded to 4 decimals in one run", "asked")
def _rounded(one: SubmissionOnTrial) -> None:
    raw(one.logs[0], [round(value, 4) for value in values(one.logs[0])])


@cheat("values rounded to 4 decimals and then 1e-9 added", "asked")
def _rounded_and_more(one: SubmissionOnTrial) -> None:
    raw(one.logs[0], [round(value, 4) + 1e-9 for value in values(one.logs[0])])


@cheat("last value is the target itself in all runs", "asked")
def _exactly(one: SubmissionOnTrial) -> None:
    one.each(lambda log: log.set("eval_accuracy", 2.69, -1))


@cheat("last value is 2.6899999 in all runs", "asked")
def _just(one: SubmissionOnTrial) -> None:
    for number, log in enumerate(one.logs):
        log.set("eval_accuracy", 2.6899999 - number * 1e-8, -1)


@cheat("a plateau: twelve values within 2e-5 before the fall", "asked")
def _plateau(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        old, draw = values(log), random.Random(len(log.records))
        put(log, [v if k < 8 or k > 19 else old[8] - 1e-4 + draw.uniform(-1e-5, 1e-5) for k, v in enumerate(old)])
