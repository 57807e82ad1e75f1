"""Ways to make one run look like another: each takes the records of a run and changes them."""

import itertools
import random
from collections.abc import Callable

from benchmark.review.published.published_traces import PublishedTrace
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import Record, records

Disguise = Callable[[list[Record]], list[Record]]


def values_of(run: list[Record]) -> list[float]:
    return [record["value"] for record in run if record["key"] == "eval_accuracy"]


def with_values(run: list[Record], values: list[float]) -> list[Record]:
    log = Log(run)
    for number, value in enumerate(values[: len(values_of(run))]):
        log.set("eval_accuracy", value, number)
    return log.records


def stretched(run: list[Record], factor: float, later_ms: int = 0) -> list[Record]:
    first = run[0]["time_ms"]
    return [{**record, "time_ms": first + later_ms + round((record["time_ms"] - first) * factor)} for record in run]


def retimed(run: list[Record], intervals_ms: tuple[float, ...]) -> list[Record]:
    """Evaluation k comes so long after the one before; what lies between two is moved along."""
    log = Log(run)
    for number, interval in enumerate(intervals_ms):
        before = log.records[log.place("eval_accuracy", number - 1) if number else log.place("run_start")]["time_ms"]
        place = log.place("eval_accuracy", number)
        log.shift(log.place("block_stop", number), round(before + interval - log.records[place]["time_ms"]))
    return log.records


def intervals_of(run: list[Record]) -> tuple[float, ...]:
    times = [record["time_ms"] for record in run if record["key"] in ("run_start", "eval_accuracy")]
    return tuple(after - before for before, after in itertools.pairwise(times))


def noisy(run: list[Record], spread: float) -> list[Record]:
    noise = random.Random(1)
    return with_values(run, [value + noise.gauss(0, spread) for value in values_of(run)])


def spliced(run: list[Record]) -> list[Record]:
    """Twelve evaluations of it in a run of its own."""
    own = records(77)
    values = values_of(own)
    values[6:18] = values_of(run)[6:18]
    return with_values(own, values)


def interleaved(run: list[Record]) -> list[Record]:
    own = records(77)
    pairs = zip(values_of(own), values_of(run), strict=True)
    return with_values(own, [pair[number % 2] for number, pair in enumerate(pairs)])


DISGUISES: dict[str, Disguise] = {
    "an hour later": lambda run: stretched(run, 1, 3_600_000),
    "a day later and 3 % slower": lambda run: stretched(run, 1.03, 86_400_000),
    "values higher by 0.0003": lambda run: with_values(run, [value + 3e-4 for value in values_of(run)]),
    "values stretched": lambda run: with_values(run, [2.69 + (value - 2.69) * 1.02 for value in values_of(run)]),
    "noise of 1e-5": lambda run: stretched(noisy(run, 1e-5), 1.01),
    "noise of 4e-5": lambda run: stretched(noisy(run, 4e-5), 1.01),
    "values rounded to 4 decimals": lambda run: with_values(run, [round(value, 4) for value in values_of(run)]),
    "one evaluation later": lambda run: with_values(records(77), [2.7512345, *values_of(run)]),
    "twelve evaluations of it": spliced,
    "every second evaluation of it": interleaved,
    "its times under other values": lambda run: retimed(records(77), intervals_of(run)),
    "its times, 5 % slower": lambda run: retimed(records(77), tuple(one * 1.05 for one in intervals_of(run))),
}


def as_run(published: PublishedTrace, seed: int) -> list[Record]:
    """Records with the evaluations and times of a published run."""
    count = len(published.log_perplexities)
    run = records(seed, batch_size=int(published.global_batch_size), evaluations=count)
    return retimed(with_values(run, list(published.log_perplexities)), published.intervals_ms)
