"""When a run saves by itself: the interval, its bounds, rank 0's clock."""

import dataclasses
import math
from typing import Any

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.training.checkpoints.save_policy import SaveInterval, SavePolicy, estimated_pause_s, save_interval
from tests.benchmark.tiny import CPU, SHORT


def large(system: str = "dgxh100_n64", batch_size: int = 1536, **fields: Any) -> RunConfig:
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=batch_size)
    return RunConfig(benchmark=benchmark, system=SYSTEMS[system]).changed(**fields)


def interval_of(config: RunConfig, **measured: float | None) -> SaveInterval:
    pause_s, write_s, step_s = (measured.get(name) for name in ("pause_s", "write_s", "step_s"))
    minutes = config.checkpoints.save_minutes
    return save_interval(config.benchmark, config.system, minutes, pause_s=pause_s, write_s=write_s, step_s=step_s)


def test_interval_is_youngs_for_512_devices() -> None:
    """2 s for a save and 2 hours between failures: sqrt(2 x 2 x 7200) = 169.7 s."""
    found = interval_of(large(), pause_s=2.0, write_s=40.0, step_s=8.0)
    assert found.seconds == pytest.approx(169.7, abs=0.01)
    assert (found.mtbf_s, found.bound) == (7200, "")
    assert found.line() == (
        "checkpoints every 2.8 min, about 21 steps: a save pauses training for 2.00 s (measured); "
        "a failure is expected every 2.0 h"
    )
    longer = dataclasses.replace(large().system, device_mtbf_hours=2 * 1024)
    config = dataclasses.replace(large(), system=longer)
    assert interval_of(config, pause_s=2.0, step_s=8.0).seconds == pytest.approx(240.0, abs=0.01)


def test_half_of_the_time_is_left_to_the_background() -> None:
    found = interval_of(large(batch_size=2048), pause_s=2.0, write_s=120.0, step_s=9.49)
    assert (found.seconds, found.bound) == (240, "the background takes 120.0 s to write one")


def test_no_failure_costs_more_than_a_tenth_of_a_run() -> None:
    slow_disk = interval_of(large(), pause_s=2.0, write_s=1000.0, step_s=8.0)
    dear = interval_of(large(), pause_s=60.0, step_s=8.0)
    assert slow_disk.seconds == dear.seconds == pytest.approx(0.1 * 380 * 8)
    assert dear.line().endswith("; at most 10% of the 380 steps that a run takes")


@pytest.mark.parametrize("system", [name for name, system in SYSTEMS.items() if system.device == "cuda"])
@pytest.mark.parametrize("batch_size", [1536, 2048, 8192])
def test_default_loses_at_most_a_tenth_on_every_system(system: str, batch_size: int) -> None:
    config = large(system, batch_size)
    for step_s in (1.0, 8.0, 60.0):
        found = interval_of(config, step_s=step_s)
        assert 0 < found.seconds <= 0.1 * config.benchmark.expected_steps * step_s
        assert not found.pause_measured


def test_expected_steps_are_those_of_the_reference_runs() -> None:
    steps = {size: large(batch_size=size).benchmark.expected_steps for size in (1024, 1536, 2048, 2560, 8192, 16384)}
    assert steps == {1024: 570, 1536: 380, 2048: 282, 2560: 228, 8192: 97, 16384: 49}
    assert SHORT.expected_steps == 6  # no target: all there are


def test_pause_is_estimated_before_it_is_measured() -> None:
    """12 bytes for 174.6e9 parameters over 512 devices, at 2 GB/s."""
    assert estimated_pause_s(GPT3_175B.model, SYSTEMS["dgxh100_n64"]) == pytest.approx(2.046, abs=0.001)
    found = interval_of(large())
    assert found.seconds == pytest.approx(math.sqrt(2 * 2.046 * 7200), abs=0.1)
    assert "2.05 s (estimated)" in found.line()


def test_minutes_are_what_was_asked_for() -> None:
    found = interval_of(large(save_minutes=30), pause_s=2.0, write_s=4000.0, step_s=8.0)
    assert (found.seconds, found.line()) == (1800, "checkpoints every 30.0 min, about 225 steps (--save-minutes)")


class MadeUpClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def policy(**fields: Any) -> tuple[SavePolicy, MadeUpClock]:
    clock, config = MadeUpClock(), large(**fields)
    return SavePolicy(config.benchmark, config.system, config.checkpoints, clock), clock


def test_it_is_due_when_the_interval_has_passed_since_the_last_was_begun() -> None:
    saves, clock = policy(save_minutes=2.0)
    for seconds in (500.0, 8.0):  # the first, which compiles, does not count
        clock.now += seconds
        saves.stepped(seconds)
        assert saves.interval() is None
        assert not saves.due()
    saves.stepped(8.0)
    assert saves.due()
    clock.now += 3
    saves.saved(pause_s=3.0)
    clock.now += 116
    assert not saves.due()
    clock.now += 1
    assert saves.due()  # 120 s after training paused for it


def test_measurements_move_the_interval() -> None:
    saves, _ = policy()
    for _ in range(3):
        assert saves.interval() is None
        saves.stepped(8.0)
    for pause_s in (2.1, 4.0, 4.0):
        saves.saved(pause_s=pause_s)
    now = saves.interval()
    assert now is not None
    assert now.seconds == pytest.approx(math.sqrt(2 * 4.0 * 7200))
    assert now.pause_measured
    saves.written(145.0)
    assert saves.last_write_s == 145.0
    changed = saves.interval()
    assert changed is not None
    assert changed.seconds == 290


@pytest.mark.parametrize("interval", [0, 50])
def test_where_steps_are_counted_the_clock_says_nothing(interval: int) -> None:
    saves, clock = policy(save_interval=interval)
    for _ in range(5):
        saves.stepped(8.0)
    clock.now += 1e6
    assert not saves.due()
    assert saves.interval() is None


def test_system_of_one_device_fails_seldom() -> None:
    config = RunConfig(benchmark=SHORT, system=dataclasses.replace(CPU, micro_batch_size=2))
    assert interval_of(config, pause_s=1.0).mtbf_s == 1024 * 3600
