"""Checkpoints, start, failures."""

import dataclasses
import math

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plans.run_costs import FailingRun, run_costs
from stage.errors import InputError

CONFIG = RunConfig(benchmark=GPT3_175B, system=SYSTEMS["dgxh100_n64"])


def test_failures_lengthen_a_run_by_no_less_than_their_share() -> None:
    costs = run_costs(CONFIG, step_s=18.0, run_s=6000.0, run_interval_s=(5000.0, 7000.0))
    assert costs.with_failures_s == pytest.approx(6000 / costs.goodput)
    assert costs.with_failures_s is not None and costs.with_failures_interval_s is not None
    low, high = costs.with_failures_interval_s
    assert 5000 <= low < costs.with_failures_s < high
    assert low < 5100  # most runs on 512 devices see none of published failures
    assert high > 7000 / costs.goodput + 370  # and one in twenty sees one or more beyond the mean
    never = dataclasses.replace(CONFIG, system=dataclasses.replace(CONFIG.system, device_mtbf_hours=math.inf))
    whole = run_costs(never, step_s=18.0, run_s=6000.0, run_interval_s=(5000.0, 7000.0))
    assert whole.with_failures_interval_s is not None
    assert whole.with_failures_interval_s[1] < 7000 * 1.02  # pauses alone
    none = run_costs(CONFIG, step_s=18.0)
    assert (none.with_failures_s, none.with_failures_interval_s) == (None, None)


def test_failures_so_frequent_that_nothing_ends() -> None:
    """Not by the mean: an error. Only at the pessimistic end: no interval."""
    system = dataclasses.replace(CONFIG.system, device_mtbf_hours=1e-4)
    with pytest.raises(InputError, match=r"--device-mtbf-hours 0\.0001: with a failure every 0\.000703 s on 512"):
        run_costs(dataclasses.replace(CONFIG, system=system), step_s=18.0, run_s=6000.0, run_interval_s=(1.0, 2.0))
    system = dataclasses.replace(CONFIG.system, device_mtbf_hours=0.14)
    costs = run_costs(
        dataclasses.replace(CONFIG, system=system), step_s=18.0, run_s=6000.0, run_interval_s=(5000.0, 7000.0)
    )
    assert costs.with_failures_s is not None and costs.with_failures_interval_s is None


def test_where_failures_are_rare_each_costs_its_restart_and_half_a_segment() -> None:
    run = FailingRun(step_s=20.0, mtbf_s=1e6, save_steps=30, pause_s=15.0, restart_s=420.0)
    productive = 600 / 615
    assert run.goodput == pytest.approx(productive * (1 - (420 + 615 / 2) / 1e6), rel=1e-6)
    assert run.goodput > dataclasses.replace(run, restart_s=900.0).goodput
    assert dataclasses.replace(run, mtbf_s=0.5).goodput == 0


def test_more_devices_fail_more_often_and_start_later() -> None:
    large = dataclasses.replace(CONFIG, system=dataclasses.replace(CONFIG.system, nodes=1024))
    few, many = (run_costs(each, step_s=10.0) for each in (CONFIG, large))
    assert many.goodput < few.goodput < 1
    assert many.init_s == pytest.approx(2 * few.init_s)
    assert 170 <= few.init_s <= 297  # published at 512 devices (docs/facts/peers.md 1.1)
    assert few.checkpoint.pause_interval_s[0] < few.checkpoint.pause_s < few.checkpoint.pause_interval_s[1]
    between_s = few.checkpoint.every_s + few.checkpoint.pause_s
    assert few.checkpoint.share == few.checkpoint.pause_s / between_s < 0.05
