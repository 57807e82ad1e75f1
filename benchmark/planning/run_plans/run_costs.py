"""What a run costs besides its steps: checkpoints, the start, failures, energy and money."""

from dataclasses import dataclass

from benchmark.config.run_config import RunConfig
from benchmark.goodput.expected_goodput import FailingRun, expected_goodput
from benchmark.training.checkpoints.save_policy import checkpoint_bytes, estimated_pause_s, save_interval

Interval = tuple[float, float]
PAUSE_RANGE = (0.1, 1.5)
"""Of the estimated pause: a device's link to its host carries ten times what the estimate takes; some are slower."""
INIT_S_AT_512, INIT_GROWTH, INIT_RANGE = 250.0, 0.25, (0.5, 2.0)
"""init_start to run_start of published runs on H100: some 250 s x (devices / 512)^0.25, half to twice of it: 170 to
297 s at 512, 293 to 476 at 1,536, 379 to 806 at 10,240 to 10,752 devices (docs/facts/peers.md 1.1)."""
RESTART_S = 120.0
"""From a failure until processes start again, before the init: noticing it, and Slurm; assumed."""


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
    run_stop; None where no target is known."""
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
    kwh, kwh_interval = _scaled(run_s, run_interval_s, devices * (watts or 0) / 3.6e6)
    dollars, dollars_interval = _scaled(run_s, run_interval_s, devices * (dollars_per_hour or 0) / 3600 / goodput)
    return RunCosts(
        CheckpointCost(checkpoint_bytes(config), pause_s, _times(pause_s, PAUSE_RANGE), every_s),
        init_s,
        _times(init_s, INIT_RANGE),
        goodput,
        kwh if watts else None,
        kwh_interval if watts else None,
        dollars if dollars_per_hour else None,
        dollars_interval if dollars_per_hour else None,
    )


def _times(value: float, interval: Interval) -> Interval:
    return value * interval[0], value * interval[1]


def _scaled(
    run_s: float | None, interval_s: Interval | None, per_second: float
) -> tuple[float | None, Interval | None]:
    if run_s is None or interval_s is None:
        return None, None
    return run_s * per_second, (interval_s[0] * per_second, interval_s[1] * per_second)
