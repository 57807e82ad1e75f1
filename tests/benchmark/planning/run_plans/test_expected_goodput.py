"""The formula beside runs that fail by dice."""

import dataclasses
import math
import random

import pytest

from benchmark.planning.run_plans.expected_goodput import FailingRun, expected_goodput

FULL_SIZE = FailingRun(
    step_s=20.0, mtbf_s=3 * 3600.0, save_steps=30, pause_s=15.0, restart_s=420.0, write_s=120.0, other_s=2.0
)
"""A system that loses a node every three hours."""


def simulated(run: FailingRun, failures: int, seed: int) -> float:
    """Goodput of one long run: a clock, the time of the next failure, and nothing of the formula."""
    dice = random.Random(seed)
    now, productive, happened = 0.0, 0.0, 0
    fails_at = dice.expovariate(1 / run.mtbf_s)

    def survives(seconds: float) -> bool:
        nonlocal now, fails_at, happened
        if now + seconds < fails_at:
            now += seconds
            return True
        now = fails_at
        fails_at += dice.expovariate(1 / run.mtbf_s)
        happened += 1
        return False

    while happened < failures:
        while not survives(run.restart_s):
            pass
        running, writing = True, False
        while running and happened < failures:
            work_s = run.save_steps * (run.step_s + run.other_s) + run.pause_s
            if writing:  # the last copy is still being written while training goes on
                running = survives(run.write_s)
                if running:
                    productive += run.save_steps * run.step_s
                    work_s -= run.write_s
            running = running and survives(work_s)
            writing = running
    return productive / now


@pytest.mark.parametrize("changes", [{}, {"mtbf_s": 1200.0}, {"write_s": 0.0, "save_steps": 90}, {"pause_s": 300.0}])
def test_simulated_runs_agree(changes: dict[str, float]) -> None:
    run = dataclasses.replace(FULL_SIZE, **changes)  # type: ignore[arg-type]
    shares = [simulated(run, 4000, seed) for seed in range(8)]
    mean = sum(shares) / len(shares)
    error = math.sqrt(sum((share - mean) ** 2 for share in shares) / (len(shares) - 1) / len(shares))
    assert error < 0.005
    assert expected_goodput(run) == pytest.approx(mean, abs=4 * error)


def test_known_values() -> None:
    assert expected_goodput(FULL_SIZE) == pytest.approx(600 / (10800 * 1.0512711 * 0.0644945), rel=1e-6)
    assert expected_goodput(dataclasses.replace(FULL_SIZE, mtbf_s=math.inf)) == 600 / 675
    assert expected_goodput(dataclasses.replace(FULL_SIZE, mtbf_s=1e12)) == pytest.approx(600 / 675)
    assert expected_goodput(dataclasses.replace(FULL_SIZE, mtbf_s=0.01)) == 0.0


def test_first_order_is_youngs() -> None:
    run = dataclasses.replace(FULL_SIZE, mtbf_s=400 * 3600.0)
    first_order = 600 / 675 * (1 - (420 + 120 + 675 / 2) / run.mtbf_s)
    assert expected_goodput(run) == pytest.approx(first_order, rel=1e-6)


@pytest.mark.parametrize("field", ["step_s", "mtbf_s", "save_steps"])
def test_impossible_runs_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match="above it"):
        dataclasses.replace(FULL_SIZE, **{field: 0})
    with pytest.raises(ValueError, match="at least 0"):
        dataclasses.replace(FULL_SIZE, restart_s=-1.0)
