"""What a run costs besides its steps: checkpoints, the start, failures, energy and money."""

import dataclasses
import math
import statistics
from dataclasses import dataclass

from benchmark.config.run_config import RunConfig
from benchmark.planning.run_plans.expected_goodput import FailingRun, expected_goodput
from benchmark.training.checkpoints.save_policy import checkpoint_bytes, estimated_pause_s, save_interval
from stage.errors import InputError

Interval = tuple[float, float]
PAUSE_RANGE = (0.1, 1.5)
"""Of the estimated pause: a device's link to its host carries ten times what the estimate takes; some are slower."""
INIT_S_AT_512, INIT_GROWTH, INIT_RANGE = 250.0, 0.25, (0.5, 2.0)
"""init_start to run_start of published runs on H100: some 250 s x (devices / 512)^0.25, half to twice of it: 170 to
297 s at 512, 293 to 476 at 1,536, 379 to 806 at 10,240 to 10,752 devices (docs/facts/peers.md 1.1)."""
RESTART_S = 120.0
"""From a failure until processes start again, before the init: noticing it, and Slurm; assumed."""

RESTART_RANGE = (0.5, 2.0)
"""Of it: a process that dies is seen at once, one that hangs after minutes."""
PUBLISHED_MTBF_HOURS = 50_000.0
"""Of a device with its share of the machine: 419 interruptions in 54 days of 16,384 H100 (The Llama 3 Herd of Models,
arXiv 2407.21783, table 5) are 50,700 hours; a GPU a week of BLOOM's 384 is 64,500 (docs/facts/peers.md 1.5)."""
MANY, MOST_FAILURES = 200.0, 1000
"""Failures: beyond the first their number is as good as normal; with fewer nobody has more than the second."""
TAIL = 0.05
"""Of runs with fewer failures than the interval begins with, and of those with more than it ends with."""


@dataclass(frozen=True)
class CheckpointCost:
    """Of a save."""

    bytes: int
    pause_s: float
    pause_interval_s: Interval
    every_s: float
    """As save_policy would choose for this step."""


@dataclass(frozen=True)
class RunCosts:
    """Figures beside the steps'."""

    checkpoint: CheckpointCost
    init_s: float
    init_interval_s: Interval
    goodput: float
    """Share of the time that steps and evaluations have where devices fail as ``device_mtbf_hours`` says."""
    with_failures_s: float | None
    """run_start to run_stop, in the mean of many runs with such failures; None where no target is known."""
    with_failures_interval_s: Interval | None
    """Of nine of ten runs: the run's own interval, and the failures that a single run may have; None where it has no
    upper end."""
    kwh: float | None
    """To the target, of the devices; None without ``--watts``."""
    kwh_interval: Interval | None
    dollars: float | None
    dollars_interval: Interval | None


def run_costs(
    config: RunConfig,
    *,
    step_s: float,
    run_s: float | None,
    run_interval_s: Interval | None,
    watts: float | None = None,
    dollars_per_hour: float | None = None,
) -> RunCosts:
    """``watts`` and ``dollars_per_hour`` are of one device with its share of the machine. ``run_s``: run_start to
    run_stop; None where no target is known.

    Raises InputError where failures are so frequent that no run would ever end.
    """
    devices = config.system.num_devices
    pause_s = estimated_pause_s(config)
    every_s = save_interval(config, pause_s=None, write_s=None, step_s=step_s).seconds
    init_s = INIT_S_AT_512 * (devices / 512) ** INIT_GROWTH
    failing = FailingRun(
        step_s=step_s,
        mtbf_s=3600 * config.system.device_mtbf_hours / devices,
        save_steps=max(1, round(every_s / step_s)),
        pause_s=pause_s,
        restart_s=RESTART_S + init_s,
    )
    goodput = expected_goodput(failing)
    if goodput <= 0:
        raise InputError(
            f"--device-mtbf-hours {config.system.device_mtbf_hours:g}: with a failure every {failing.mtbf_s:.3g} s on "
            f"{devices} devices and {failing.restart_s:.0f} s for a restart no run would end; expected more hours"
        )
    with_failures_s, with_failures_interval_s = _with_failures(failing, goodput, run_s, run_interval_s, devices)
    kwh, kwh_interval = _scaled(run_s, run_interval_s, devices * (watts or 0) / 3.6e6)
    dollars, dollars_interval = _scaled(run_s, run_interval_s, devices * (dollars_per_hour or 0) / 3600 / goodput)
    return RunCosts(
        CheckpointCost(checkpoint_bytes(config), pause_s, _times(pause_s, PAUSE_RANGE), every_s),
        init_s,
        _times(init_s, INIT_RANGE),
        goodput,
        with_failures_s,
        with_failures_interval_s,
        kwh if watts else None,
        kwh_interval if watts else None,
        dollars if dollars_per_hour else None,
        dollars_interval if dollars_per_hour else None,
    )


def _with_failures(
    failing: FailingRun, goodput: float, run_s: float | None, interval_s: Interval | None, devices: int
) -> tuple[float | None, Interval | None]:
    """The mean run, and nine of ten runs.

    The interval begins with a run at the lower end of its own, ``PUBLISHED_MTBF_HOURS`` between failures if that is
    more than given, short pauses and restarts, and as few failures as one of twenty such runs has at most. It ends with
    the upper end, the failures given, long pauses and restarts, and as many failures as one of twenty has at least.
    Failures are a Poisson process; each loses its restart and, in the mean, half a segment. No interval where at the
    upper end no run would end.
    """
    if run_s is None or interval_s is None:
        return None, None
    rare_s = max(failing.mtbf_s, 3600 * PUBLISHED_MTBF_HOURS / devices)
    ends = []
    for run, mtbf_s, place in ((interval_s[0], rare_s, 0), (interval_s[1], failing.mtbf_s, 1)):
        end = dataclasses.replace(
            failing,
            mtbf_s=mtbf_s,
            pause_s=failing.pause_s * PAUSE_RANGE[place],
            restart_s=failing.restart_s * RESTART_RANGE[place],
        )
        share = expected_goodput(end)
        if share <= 0:
            return run_s / goodput, None
        mean_s = run / share
        failures = mean_s / mtbf_s
        lost_s = end.restart_s + (end.save_steps * end.step_s + end.pause_s) / 2
        unusual = _poisson_quantile(failures, TAIL if place == 0 else 1 - TAIL)
        ends.append(max(run, mean_s + (unusual - failures) * lost_s))
    return run_s / goodput, (ends[0], ends[1])


def _poisson_quantile(mean: float, share: float) -> float:
    """The smallest number of failures that so large a share of runs stays at or below; by the normal distribution where
    there are many."""
    if mean > MANY:
        return mean + statistics.NormalDist().inv_cdf(share) * math.sqrt(mean)
    term = total = math.exp(-mean)
    number = 0
    while total < share and number < MOST_FAILURES:
        number += 1
        term *= mean / number
        total += term
    return number


def _times(value: float, interval: Interval) -> Interval:
    return value * interval[0], value * interval[1]


def _scaled(
    run_s: float | None, interval_s: Interval | None, per_second: float
) -> tuple[float | None, Interval | None]:
    if run_s is None or interval_s is None:
        return None, None
    return run_s * per_second, (interval_s[0] * per_second, interval_s[1] * per_second)
