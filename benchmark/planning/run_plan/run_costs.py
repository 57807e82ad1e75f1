"""Estimate the time that a run takes besides its steps: checkpoints, the start, failures."""

import math
import statistics
from dataclasses import dataclass, replace

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.system_config import System
from benchmark.training.checkpoints.save_policy import checkpoint_bytes, estimated_pause_s, save_interval
from foundation.errors import InputError

Interval = tuple[float, float]
PAUSE_RANGE = (0.1, 1.5)
"""Range of a pause as a factor of the estimated one: some links from device to host are ten times as fast as assumed,
some slower."""
INIT_S_AT_512, INIT_GROWTH, INIT_RANGE = 250.0, 0.25, (0.5, 2.0)
"""Seconds from init_start to run_start. Published runs on H100 took about 250 s x (devices / 512)^0.25, by a factor of
0.5 to 2 (docs/facts/peers.md 1.1). They took 170 to 297 s at 512, 293 to 476 at 1,536, 379 to 806 at 10,240 to 10,752
devices."""
RESTART_S, RESTART_RANGE = 120.0, (0.5, 2.0)
"""Assumed seconds from a failure until processes start again, before the init, for noticing the failure and for Slurm.
The launcher notices a process that dies at once, and a process that hangs after minutes."""
PUBLISHED_MTBF_HOURS = 50_000.0
"""Hours between failures of one device with its share of the machine. 419 interruptions in 54 days of 16,384 H100 (The
Llama 3 Herd of Models, arXiv 2407.21783, table 5) are 50,700 hours. A GPU a week of BLOOM's 384 is 64,500
(docs/facts/peers.md 1.5)."""
MANY, MOST_FAILURES = 200.0, 1000
"""From ``MANY`` failures on, their number is taken as normally distributed; below it, no run is assumed to have more
than ``MOST_FAILURES``."""
TAIL = 0.05
"""Share of runs with fewer failures than the interval's beginning assumes, and share of runs with more than its end
assumes."""
MOST_EXPONENT = 700.0
"""Largest exponent x for which e^x is a float; beyond it no segment ever finishes."""


@dataclass(frozen=True)
class CheckpointCost:
    """Cost of saving a checkpoint."""

    bytes: int
    pause_s: float
    pause_interval_s: Interval
    every_s: float
    """Seconds between saves, as save_policy would choose for this step."""

    @property
    def share(self) -> float:
        """Share of the run's time that the pauses take."""
        return self.pause_s / (self.every_s + self.pause_s)


@dataclass(frozen=True)
class RunCosts:
    """Costs of a run besides its steps."""

    checkpoint: CheckpointCost
    init_s: float
    init_interval_s: Interval
    goodput: float
    """Share of the time that goes into steps and evaluations when devices fail as ``device_mtbf_hours`` says."""
    with_failures_s: float | None
    """Mean seconds from run_start to run_stop over many runs with such failures; None if no target is known."""
    with_failures_interval_s: Interval | None
    """Interval of nine of ten runs: it covers the run's own interval and the random number of failures. None if it has
    no upper end."""


@dataclass(frozen=True)
class FailingRun:
    """A run with its checkpoints and failures; figures are mean seconds."""

    step_s: float
    mtbf_s: float
    """Seconds between failures of the whole system; one machine's are longer by the number of machines."""
    save_steps: int
    """Steps between checkpoints."""
    pause_s: float
    """Seconds that training pauses for the copy of a checkpoint."""
    restart_s: float
    """Seconds from a failure until the first step begins again: noticing it, idle time, start, init."""

    @property
    def segment_s(self) -> float:
        """Seconds from checkpoint to checkpoint."""
        return self.save_steps * self.step_s + self.pause_s

    @property
    def goodput(self) -> float:
        """Return the long-run share of all time that steps take, 0 to 1.

        Failures come at random, at a constant rate, while training, saving and restarting; a run goes back to its
        newest checkpoint. With M seconds between failures, segments of s and restarts of R seconds, it takes
        M e^(R/M) (e^(s/M) - 1) seconds to finish a segment (J. T. Daly, "A higher order estimate of the optimum
        checkpoint interval for restart dumps", 2006).
        """
        delay, segment = self.restart_s / self.mtbf_s, self.segment_s / self.mtbf_s
        if delay + segment > MOST_EXPONENT:
            return 0.0
        return self.save_steps * self.step_s / (self.mtbf_s * math.exp(delay) * math.expm1(segment))


def run_costs(
    benchmark: Benchmark,
    system: System,
    save_minutes: float | None,
    *,
    step_s: float,
    run_s: float | None = None,
    run_interval_s: Interval | None = None,
) -> RunCosts:
    """Return the costs of a run; ``run_s`` is the time from run_start to run_stop, or None if no target is known.

    Raises InputError where failures are so frequent that no run would ever end.
    """
    devices, pause_s = system.num_devices, estimated_pause_s(benchmark.model, system)
    every_s = save_interval(benchmark, system, save_minutes, pause_s=None, write_s=None, step_s=step_s).seconds
    init_s = INIT_S_AT_512 * (devices / 512) ** INIT_GROWTH
    failing = FailingRun(
        step_s=step_s,
        mtbf_s=3600 * system.device_mtbf_hours / devices,
        save_steps=max(1, round(every_s / step_s)),
        pause_s=pause_s,
        restart_s=RESTART_S + init_s,
    )
    goodput = failing.goodput
    if goodput <= 0:
        raise InputError(
            f"--device-mtbf-hours {system.device_mtbf_hours:g}: with a failure every {failing.mtbf_s:.3g} s on "
            f"{devices} devices and {failing.restart_s:.0f} s for a restart no run would end; expected more hours"
        )
    return RunCosts(
        CheckpointCost(checkpoint_bytes(benchmark.model), pause_s, _times(pause_s, PAUSE_RANGE), every_s),
        init_s,
        _times(init_s, INIT_RANGE),
        goodput,
        None if run_s is None else run_s / goodput,
        None if run_interval_s is None else _with_failures(failing, run_interval_s, devices),
    )


def _with_failures(failing: FailingRun, interval_s: Interval, devices: int) -> Interval | None:
    """Return the interval, in seconds, that holds nine of ten runs; None if at its upper end no run would finish.

    It begins with a run at the lower end of the run's own interval, with short pauses and restarts. Devices then fail
    every ``PUBLISHED_MTBF_HOURS`` if that is longer than the system's time, and as rarely as in one of twenty runs. It
    ends with the upper end, the system's failures, long pauses and restarts, and as many failures as in one of twenty
    runs.
    Failures are a Poisson process; each loses its restart and, in the mean, half a segment.
    """
    rare_s = max(failing.mtbf_s, 3600 * PUBLISHED_MTBF_HOURS / devices)
    ends = []
    for run_s, mtbf_s, index, share in ((interval_s[0], rare_s, 0, TAIL), (interval_s[1], failing.mtbf_s, 1, 1 - TAIL)):
        pause_s, restart_s = failing.pause_s * PAUSE_RANGE[index], failing.restart_s * RESTART_RANGE[index]
        extreme = replace(failing, mtbf_s=mtbf_s, pause_s=pause_s, restart_s=restart_s)
        if extreme.goodput <= 0:
            return None
        mean_s = run_s / extreme.goodput
        failures = mean_s / mtbf_s
        unusual = _poisson_quantile(failures, share) - failures
        ends.append(max(run_s, mean_s + unusual * (restart_s + extreme.segment_s / 2)))
    return ends[0], ends[1]


def _poisson_quantile(mean: float, share: float) -> float:
    """Return the smallest number of failures that at least this share of runs does not exceed; many failures are taken
    as normally distributed."""
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
