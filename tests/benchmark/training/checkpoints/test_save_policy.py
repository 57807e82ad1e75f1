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
from tests.support import changed


def large(system: str = "dgxh100_n64", batch_size: int = 1536, **fields: Any) -> RunConfig:
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=batch_size)
    return changed(RunConfig(benchmark=benchmark, system=SYSTEMS[system]), **fields)


def interval_of(config: RunConfig, **measured: float | None) -> SaveInterval:
    pause_s, write_s, step_s = (measured.get(name) for name in ("pause_s", "write_s", "step_s"))
    minutes = config.checkpoints.save_minutes
    return save_interval(config.benchmark, config.system, minutes, pause_s=pause_s, write_s=write_s, step_s=step_s)


MEASURED = {"pause_s": 2.0, "write_s": 40.0, "step_s": 8.0}
FAILURES = "a failure is expected every 2.0 h"


@pytest.mark.parametrize(
    ("fields", "measured", "seconds", "line"),
    [
        pytest.param(
            {}, MEASURED, math.sqrt(2 * 2 * 7200),
            f"2.8 min, about 21 steps: a save pauses training for 2.00 s (measured); {FAILURES}", id="Young's",
        ),
        pytest.param(
            {}, {}, math.sqrt(2 * 2.046 * 7200),
            f"2.9 min: a save pauses training for 2.05 s (estimated); {FAILURES}", id="estimated",
        ),
        pytest.param(
            {"batch_size": 2048}, {**MEASURED, "write_s": 120.0, "step_s": 9.49}, 240,
            f"4.0 min, about 25 steps: a save pauses training for 2.00 s (measured); {FAILURES}; "
            "the background takes 120.0 s to write one", id="half of the time is left to the background",
        ),
        pytest.param(
            {}, {**MEASURED, "write_s": 1000.0}, 0.1 * 380 * 8,
            f"5.1 min, about 38 steps: a save pauses training for 2.00 s (measured); {FAILURES}; "
            "at most 10% of the 380 steps that a run takes", id="no failure costs more than a tenth of a run",
        ),
        pytest.param(
            {"save_minutes": 30}, {**MEASURED, "write_s": 4000.0}, 1800,
            "30.0 min, about 225 steps (--save-minutes)", id="minutes that were asked for",
        ),
    ],
)  # fmt: skip
def test_interval_and_its_line(fields: dict[str, Any], measured: dict[str, float], seconds: float, line: str) -> None:
    found = interval_of(large(**fields), **measured)
    assert found.seconds == pytest.approx(seconds, rel=1e-3)
    assert found.line() == f"checkpoints every {line}"
    assert found.mtbf_s == 7200


@pytest.mark.parametrize("system", [name for name, system in SYSTEMS.items() if system.device == "cuda"])
def test_default_loses_at_most_a_tenth_on_every_system(system: str) -> None:
    for batch_size in (1536, 8192):
        config = large(system, batch_size)
        for step_s in (1.0, 8.0, 60.0):
            found = interval_of(config, step_s=step_s)
            assert 0 < found.seconds <= 0.1 * config.benchmark.expected_steps * step_s
            assert not found.pause_measured


def test_expected_steps_are_those_of_the_reference_runs() -> None:
    steps = {size: large(batch_size=size).benchmark.expected_steps for size in (1024, 1536, 2048, 2560, 8192, 16384)}
    assert steps == {1024: 570, 1536: 380, 2048: 282, 2560: 228, 8192: 97, 16384: 49}
    assert SHORT.expected_steps == 6  # no target: all there are


class MadeUpClock:
    time_s = 1000.0

    def __call__(self) -> float:
        return self.time_s


def policy(**fields: Any) -> tuple[SavePolicy, MadeUpClock]:
    clock, config = MadeUpClock(), large(**fields)
    return SavePolicy(config.benchmark, config.system, config.checkpoints, clock), clock


def test_it_is_due_when_the_interval_has_passed_since_the_last_was_begun() -> None:
    saves, clock = policy(save_minutes=2.0)
    for seconds in (500.0, 8.0):  # the first, which compiles, does not count
        clock.time_s += seconds
        saves.note_step(seconds)
        assert saves.interval() is None
        assert not saves.is_due()
    saves.note_step(8.0)
    assert saves.is_due()
    clock.time_s += 3
    saves.note_save(pause_s=3.0)
    clock.time_s += 116
    assert not saves.is_due()
    clock.time_s += 1
    assert saves.is_due()  # 120 s after training paused for it


def test_measurements_move_the_interval() -> None:
    saves, _ = policy()
    for _ in range(3):
        assert saves.interval() is None
        saves.note_step(8.0)
    for pause_s in (2.1, 4.0, 4.0):
        saves.note_save(pause_s=pause_s)
    interval = saves.interval()
    assert interval is not None
    assert interval.seconds == pytest.approx(math.sqrt(2 * 4.0 * 7200))
    assert interval.pause_measured
    saves.note_write(145.0)
    assert saves.last_write_s == 145.0
    changed = saves.interval()
    assert changed is not None
    assert changed.seconds == 290


@pytest.mark.parametrize("interval", [0, 50])
def test_where_steps_are_counted_the_clock_says_nothing(interval: int) -> None:
    saves, clock = policy(save_interval=interval)
    for _ in range(5):
        saves.note_step(8.0)
    clock.time_s += 1e6
    assert not saves.is_due()
    assert saves.interval() is None


def test_failures_come_with_the_number_of_devices() -> None:
    """12 bytes for 174.6e9 parameters over 512 devices, at 2 GB/s, take 2.046 s."""
    assert estimated_pause_s(GPT3_175B.model, SYSTEMS["dgxh100_n64"]) == pytest.approx(2.046, abs=0.001)
    config = RunConfig(benchmark=SHORT, system=dataclasses.replace(CPU, micro_batch_size=2))
    assert interval_of(config, pause_s=1.0).mtbf_s == 1024 * 3600
    rarer = dataclasses.replace(config, system=dataclasses.replace(config.system, device_mtbf_hours=2048))
    assert interval_of(rarer, pause_s=1.0).seconds == pytest.approx(math.sqrt(2 * 2048 * 3600))
