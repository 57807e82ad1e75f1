"""Changes to made-up submissions of Llama 3.1 8B, for the tables of mistakes and of honest variants."""

import itertools
from collections.abc import Callable
from dataclasses import replace

from tests.benchmark.judging.review.fixture import (
    LLAMA_N1,
    Log,
    Submission,
    records_of,
)
from tests.benchmark.judging.review.submission_changes import (
    Change,
    each,
    trained,
)

FOLDER = f"results/{LLAMA_N1.name}/llama31_8b"


def valued(key: str, value: object) -> Change:
    return each(lambda log: log.set(key, value))


def evaluated(change: Callable[[float], float]) -> Change:
    return each(lambda log: [log.set("eval_accuracy", change(value), n) for n, value in enumerate(log.values)])


def made_with(
    batch_size: int = 32, evaluations: int = 15, *, rate: float = 8e-4, warm_up_samples: int = 4096, speed: float = 1.0
) -> Change:
    """Make all runs anew with these settings."""
    optimizer = replace(LLAMA_N1.benchmark.optimizer, lr=rate, min_lr=rate / 10, lr_warmup_samples=warm_up_samples)
    benchmark = replace(LLAMA_N1.benchmark, global_batch_size=batch_size, optimizer=optimizer)
    made = replace(
        LLAMA_N1,
        benchmark=benchmark,
        evaluations=evaluations,
        block_ms=round(LLAMA_N1.block_ms / speed),
        evaluation_ms=round(LLAMA_N1.evaluation_ms / speed),
    )

    def change(one: Submission) -> None:
        one.logs = [Log(records_of(made, seed)) for seed in made.seeds]

    return change


def layout(**values: int) -> Change:
    return each(lambda log: [log.set(key, value) for key, value in values.items()])


def precision(name: str) -> Change:
    return valued("lowest_numerical_precision_in_linear", name)


def both(*changes: Change) -> Change:
    return lambda one: [change(one) for change in changes]


def faster(factor: float) -> Change:
    return each(lambda log: log.stretch(lambda _: 1 / factor))


def step_times(log: Log, share: float) -> None:
    """Log the mean time of a block's steps at its end, as a share of the block."""
    size = log.records[log.place("global_batch_size")]["value"]
    for before, place in [*itertools.pairwise(log.places("eval_accuracy"))][::-1]:
        seconds = (log.records[place]["time_ms"] - log.records[before]["time_ms"]) / 1000
        steps = (trained(log.records[place]) - trained(log.records[before])) / size
        log.records.insert(
            place, log.copied(place, key="tracked_stats", value={"train_step_time": share * seconds / steps})
        )


def throughput(log: Log, share: float) -> None:
    """Log the samples per second of each block's steps, whose time is a share of the block."""
    for before, place in [*itertools.pairwise(log.places("eval_accuracy"))][::-1]:
        seconds = (log.records[place]["time_ms"] - log.records[before]["time_ms"]) / 1000
        samples = trained(log.records[place]) - trained(log.records[before])
        log.records.insert(
            place, log.copied(place, key="tracked_stats", value={"throughput": samples / seconds / share})
        )


def validation_steps(log: Log, count: int = 32, share: float = 0.98) -> None:
    """Log so many steps of each evaluation, which take a share of it."""
    for number in range(len(log.values)):
        place = log.place("eval_accuracy", number)
        seconds = (log.time("eval_accuracy", number) - log.time("eval_start", number)) / 1000
        value = {"validation_step_time": share * seconds / count}
        log.records[place:place] = [log.copied(place, key="tracked_stats", value=value) for _ in range(count)]
