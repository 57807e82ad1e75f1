"""How much longer a published step gets with each doubling of the devices, the work of each device alike.

python -m tests.backtest.weak_scaling    # each series, then the medians: the constants jitter_bf16 and jitter_fp8

What the step model's messages explain is taken off.
"""

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator

from benchmark.planning.step_model.simulated_step import simulate_step
from benchmark.planning.step_model.what_if import apply_what_if
from tests.backtest.published_results import PublishedResult, load_published_results, rates_of

FEWEST = 3
"""Numbers of devices that make a series."""


def series() -> list[list[PublishedResult]]:
    """Return the steps of NeMo on H100 that differ in data-parallel devices alone, except for those kept back."""
    found: dict[tuple[object, ...], list[PublishedResult]] = defaultdict(list)
    for result in load_published_results():
        work, layout = result.work, result.work.layout
        if work.stack == "nemo" and work.accelerator == "H100 SXM" and not result.kept_back:
            batch = layout.global_batch_size // layout.data_parallel
            alike = dataclasses.replace(work, layout=dataclasses.replace(layout, devices=0, global_batch_size=batch))
            found[result.url, alike].append(result)
    return [steps for steps in found.values() if len({step.work.layout.devices for step in steps}) >= FEWEST]


def growth(steps: list[PublishedResult]) -> float:
    """Return the relative growth of a step by a doubling of the devices that no message of the model explains."""
    doublings = [math.log2(step.work.layout.devices) for step in steps]
    return statistics.linear_regression(doublings, list(map(_unexplained, steps))).slope


def _unexplained(step: PublishedResult) -> float:
    without_jitter = simulate_step(*apply_what_if(["jitter=off"], step.work, rates_of(step.work))).total
    return math.log(step.published_s / without_jitter)


def lines() -> Iterator[str]:
    by_format: dict[str, list[float]] = defaultdict(list)
    for steps in series():
        by_format[steps[0].work.precision].append(growth(steps))
        devices = sorted(step.work.layout.devices for step in steps)
        yield f"{steps[0].id} and up to {devices[-1]:,} devices: {by_format[steps[0].work.precision][-1]:.2%}"
    for precision, found in by_format.items():
        median = statistics.median(found)
        yield f"{precision}: {len(found)} series, median {median:.2%}, {min(found):.2%} to {max(found):.2%}"


if __name__ == "__main__":
    print(*lines(), sep="\n")
