"""Clocks that were set, stretched, polished or cut."""

import itertools
import random
from collections.abc import Callable

from benchmark.results.run_summary import STEP_TIMING, VALIDATION_TIMING
from benchmark.review.published.published_traces import published_traces
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import Record
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import TrialTable

cheat = TrialTable()


def steps(log: Log, names: tuple[str, ...] = STEP_TIMING) -> list[tuple[Record, str]]:
    tracked = [one for one in log.records if one["key"] == "tracked_stats"]
    return [(one, name) for one in tracked for name in names if name in one["value"]]


def set_steps(log: Log, change: Callable[[float], float], names: tuple[str, ...] = STEP_TIMING) -> None:
    for record, name in steps(log, names):
        record["value"] = record["value"] | {name: change(record["value"][name])}


def stretch(log: Log, factor: float, first: str = "run_start", last: str | None = None) -> None:
    """All delays after ``first``, up to ``last``, by a factor; what follows moves along."""
    start, moved = log.place(first), 0
    stop = len(log.records) - 1 if last is None else log.place(last, -1)
    times = [record["time_ms"] for record in log.records]
    for place in range(start + 1, len(times)):
        if place <= stop:
            moved = round((times[place] - times[start]) * (factor - 1))
        log.records[place]["time_ms"] = times[place] + moved


def ends(log: Log) -> list[int]:
    return [place for place, record in enumerate(log.records) if record["key"] == "eval_accuracy"]


def intervals(log: Log) -> list[int]:
    times = [log.records[place]["time_ms"] for place in ends(log)]
    return [after - before for before, after in itertools.pairwise(times)]


def set_intervals(log: Log, new: list[float]) -> None:
    """The k-th interval between evaluations by stretching what lies in it."""
    places = ends(log)
    for number, wanted in enumerate(new[: len(places) - 1]):
        before, after = places[number], places[number + 1]
        start, old = log.records[before]["time_ms"], log.records[after]["time_ms"] - log.records[before]["time_ms"]
        later = round(wanted) - old
        for place in range(before + 1, after):
            offset = log.records[place]["time_ms"] - start
            log.records[place]["time_ms"] = start + round(offset * wanted / old)
        for place in range(after, len(log.records)):
            log.records[place]["time_ms"] += later


def resize(log: Log, pattern: list[float]) -> None:
    """Intervals of another pattern, by the median of its own; step times with them."""
    own = sorted(intervals(log))[len(intervals(log)) // 2]
    middle = sorted(pattern)[len(pattern) // 2]
    set_intervals(log, [one / middle * own for one in pattern])


@cheat("stamps 10 % shorter, step times as they were", "rejected", "steps")
def _stamps_only(one: SubmissionOnTrial) -> None:
    one.each(lambda log: stretch(log, 0.85))


@cheat("stamps and step times 10 % shorter, throughput as it was", "rejected", "steps")
def _no_throughput(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        stretch(log, 0.9)
        set_steps(log, lambda value: value * 0.9)


@cheat("stamps of all and half of the step times shorter", "rejected", "steps")
def _half_of_steps(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        stretch(log, 0.8)
        for number, (record, name) in enumerate(steps(log)):
            if number % 2:
                record["value"] = {name: record["value"][name] * 0.8}


@cheat("three times as fast, all of it", "rejected")
def _thrice(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        stretch(log, 0.2)
        set_steps(log, lambda value: value * 0.2, (*STEP_TIMING, *VALIDATION_TIMING))
        set_steps(log, lambda value: value * 5, ("throughput",))


@cheat("every step of the same time", "asked", "steps")
def _constant_steps(one: SubmissionOnTrial) -> None:
    one.each(lambda log: set_steps(log, lambda value: 9.4771234))


@cheat("step times of two values", "asked", "steps")
def _two_values(one: SubmissionOnTrial) -> None:
    draw = random.Random(1)
    one.each(lambda log: set_steps(log, lambda value: draw.choice((9.4771234, 9.4812345))))


@cheat("step times of a clock that ticks ten times a second", "asked", "steps")
def _tenths(one: SubmissionOnTrial) -> None:
    one.each(lambda log: set_steps(log, lambda value: round(value, 1)))


@cheat("step times drawn evenly from a range", "asked", "steps")
def _uniform_steps(one: SubmissionOnTrial) -> None:
    draw = random.Random(2)
    one.each(lambda log: set_steps(log, lambda value: 9.45 + draw.random() * 0.06))


@cheat("step times drawn from a normal distribution", "asked", "steps")
def _normal_steps(one: SubmissionOnTrial) -> None:
    draw = random.Random(3)
    one.each(lambda log: set_steps(log, lambda value: draw.gauss(9.48, 0.02)))


@cheat("step times that repeat every block", "asked", "steps")
def _repeated_steps(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        found = steps(log)
        for number, (record, name) in enumerate(found):
            record["value"] = {name: found[12 + number % 12][0]["value"][name]}


@cheat("step times of another run with noise of 1e-4", "rejected", "steps")
def _copied_steps(one: SubmissionOnTrial) -> None:
    draw, other = random.Random(4), [record["value"][name] for record, name in steps(one.logs[0])]
    for (record, name), value in zip(steps(one.logs[1]), other, strict=False):
        record["value"] = {name: value * 1.004 + draw.gauss(0, 1e-4)}


@cheat("step times of another run in another order", "asked", "steps")
def _shuffled_steps(one: SubmissionOnTrial) -> None:
    draw, other = random.Random(5), [record["value"][name] for record, name in steps(one.logs[0])]
    draw.shuffle(other)
    for (record, name), value in zip(steps(one.logs[1]), other, strict=False):
        record["value"] = {name: value}


@cheat("a fifth of the step records left out", "asked", "steps")
def _fewer_steps(one: SubmissionOnTrial) -> None:
    draw = random.Random(6)
    for log in one.logs:
        drop = {id(record) for record, _ in steps(log) if draw.random() < 0.2}
        log.records = [record for record in log.records if id(record) not in drop]


@cheat("step records twice, with the same tokens", "asked", "steps")
def _steps_twice(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        twice = {id(record) for record, _ in steps(log)[20:60]}
        log.records = [
            again for record in log.records for again in ((record, dict(record)) if id(record) in twice else (record,))
        ]


@cheat("tokens of steps for half the batch size", "asked", "steps")
def _half_tokens(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record, _ in steps(log):
            record["metadata"]["step"] //= 2


@cheat("validation steps longer than the evaluations they are in", "asked", "steps")
def _long_validation(one: SubmissionOnTrial) -> None:
    one.each(lambda log: set_steps(log, lambda value: value * 1.6, VALIDATION_TIMING))


@cheat("validation steps far shorter than the evaluations", "asked", "steps")
def _short_validation(one: SubmissionOnTrial) -> None:
    one.each(lambda log: set_steps(log, lambda value: value * 0.2, VALIDATION_TIMING))


@cheat("stamps in whole seconds", "asked")
def _whole_seconds(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record in log.records:
            record["time_ms"] -= record["time_ms"] % 1000


@cheat("stamps in tenths of a second", "asked")
def _tenths_of_seconds(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record in log.records:
            record["time_ms"] -= record["time_ms"] % 100


@cheat("evaluations evenly apart to 3 ms", "asked")
def _even(one: SubmissionOnTrial) -> None:
    draw = random.Random(7)
    for log in one.logs:
        middle = sorted(intervals(log))[10]
        set_intervals(log, [middle + draw.randint(-1, 1) for _ in intervals(log)])


@cheat("intervals of two values only", "asked")
def _two_intervals(one: SubmissionOnTrial) -> None:
    draw = random.Random(8)
    for log in one.logs:
        middle = sorted(intervals(log))[10]
        set_intervals(log, [middle + draw.choice((-20, 20)) for _ in intervals(log)])


@cheat("intervals that grow by the same from one to the next", "asked")
def _growing(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        middle = sorted(intervals(log))[10]
        set_intervals(log, [middle + 4 * number for number in range(len(intervals(log)))])


@cheat("intervals in multiples of 50 ms", "asked")
def _multiples(one: SubmissionOnTrial) -> None:
    draw = random.Random(9)
    for log in one.logs:
        middle = sorted(intervals(log))[10] // 50
        set_intervals(log, [50 * (middle + draw.randint(-6, 6)) for _ in intervals(log)])


@cheat("intervals of a published run of another size, by a factor", "rejected")
def _scaled_published(one: SubmissionOnTrial) -> None:
    size = one.logs[0].records[one.logs[0].place("global_batch_size")]["value"]
    run = next(run for run in published_traces() if run.global_batch_size != size and len(run.intervals_ms) > 25)
    resize(one.logs[0], [float(value) for value in run.intervals_ms[1:]])


@cheat("intervals of a published run in another order", "asked")
def _shuffled_published(one: SubmissionOnTrial) -> None:
    count = len(intervals(one.logs[0]))
    run = next(run for run in published_traces() if len(run.intervals_ms) == count + 1)
    pattern = [float(value) for value in run.intervals_ms[1:]]
    random.Random(10).shuffle(pattern)
    resize(one.logs[0], pattern)


@cheat("intervals of the first run backwards in the second", "asked")
def _backwards(one: SubmissionOnTrial) -> None:
    set_intervals(one.logs[1], [float(value) for value in reversed(intervals(one.logs[0]))])


@cheat("third run's intervals are the means of the two others'", "asked")
def _mean_intervals(one: SubmissionOnTrial) -> None:
    pairs = zip(intervals(one.logs[0]), intervals(one.logs[1]), strict=False)
    set_intervals(one.logs[2], [(first + second) / 2 for first, second in pairs])


@cheat("one evaluation takes no time in every run", "asked", "steps", "made")
def _free_evaluation(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        place, stop = log.place("eval_start", 5), log.place("eval_accuracy", 5)
        taken = log.records[stop]["time_ms"] - log.records[place]["time_ms"] - 5
        log.shift(stop, -taken)


@cheat("training goes on before the evaluation is over", "asked", "steps", "made")
def _overlapping(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for number in range(3, 20):
            stop, start = log.place("eval_stop", number), log.place("block_start", number + 1)
            log.records[stop], log.records[start] = log.records[start], log.records[stop]


@cheat("a minute cut out of the first block of every run", "asked", "made", "steps")
def _first_block(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        places = ends(log)
        first = log.records[places[0]]["time_ms"] - log.records[log.place("run_start")]["time_ms"]
        log.shift(log.place("eval_start"), -round(first * 0.4))


@cheat("40 minutes between cache_clear and init_start", "asked")
def _before_init(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        place = log.place("init_start")
        log.shift(place, 40 * 60_000)
        for record in log.records[:place]:
            record["time_ms"] -= 0


@cheat("an init_start logged again just before init_stop, the first one removed", "asked")
def _late_init(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        first = log.place("init_start")
        record = log.records[first]
        log.without("init_start")
        place = log.place("init_stop")
        record["time_ms"] = log.records[place]["time_ms"] - 4_000
        log.records.insert(place, record)


@cheat("stamps of a year before the accelerators were sold", "asked", "steps", "made")
def _too_early(one: SubmissionOnTrial) -> None:
    one.each(lambda log: log.shift(0, round(1_580_000_000_000 - log.records[0]["time_ms"])))


@cheat("three runs at the same time to the second", "asked", "tpu", "made")
def _at_once(one: SubmissionOnTrial) -> None:
    start = one.logs[0].records[one.logs[0].place("run_start")]["time_ms"]
    for number, log in enumerate(one.logs):
        log.shift(0, start - log.records[log.place("run_start")]["time_ms"] + 7 * number)


@cheat("losses of steps that do not fall", "asked", "steps")
def _flat_losses(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record, _ in steps(log):
            record["value"] = record["value"] | {"reduced_train_loss": 2.5}


@cheat("losses of steps far from the evaluations", "asked", "steps")
def _far_losses(one: SubmissionOnTrial) -> None:
    draw = random.Random(12)
    for log in one.logs:
        for record, _ in steps(log):
            record["value"] = record["value"] | {"reduced_train_loss": 5.1 + draw.gauss(0, 0.02)}


@cheat("losses of steps that are no numbers", "asked", "steps")
def _nan_losses(one: SubmissionOnTrial) -> None:
    for log in one.logs:
        for record, _ in steps(log)[100:]:
            record["value"] = record["value"] | {"reduced_train_loss": float("nan")}


@cheat("losses of one run in another", "rejected", "steps")
def _same_losses(one: SubmissionOnTrial) -> None:
    draw = random.Random(13)
    shared = [2.72 - 1e-4 * number + draw.gauss(0, 0.02) for number in range(400)]
    for log in one.logs:
        for (record, _), loss in zip(steps(log), shared, strict=False):
            record["value"] = record["value"] | {"reduced_train_loss": loss}
