"""Checkpoints, start, failures, energy and money."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plans.run_costs import run_costs

CONFIG = RunConfig(benchmark=GPT3_175B, system=SYSTEMS["dgxh100_n64"])


def test_energy_and_price_have_the_runs_doubt() -> None:
    costs = run_costs(
        CONFIG, step_s=18.0, run_s=6000.0, run_interval_s=(5000.0, 7000.0), watts=1400.0, dollars_per_hour=2.0
    )
    assert costs.kwh is not None
    assert costs.kwh == pytest.approx(512 * 1.4 * 6000 / 3600)
    assert costs.kwh_interval == pytest.approx((costs.kwh * 5 / 6, costs.kwh * 7 / 6))
    assert costs.dollars == pytest.approx(512 * 2 * 6000 / 3600 / costs.goodput)
    assert run_costs(CONFIG, step_s=18.0, run_s=6000.0, run_interval_s=(5000.0, 7000.0)).kwh is None
    assert run_costs(CONFIG, step_s=18.0, run_s=None, run_interval_s=None, watts=1400.0).kwh is None


def test_more_devices_fail_more_often_and_start_later() -> None:
    large = dataclasses.replace(CONFIG, system=dataclasses.replace(CONFIG.system, nodes=1024))
    few, many = (run_costs(each, step_s=10.0, run_s=None, run_interval_s=None) for each in (CONFIG, large))
    assert many.goodput < few.goodput < 1
    assert many.init_s == pytest.approx(2 * few.init_s)
    assert 170 <= few.init_s <= 297  # published at 512 devices (docs/facts/peers.md 1.1)
    assert few.checkpoint.pause_interval_s[0] < few.checkpoint.pause_s < few.checkpoint.pause_interval_s[1]
