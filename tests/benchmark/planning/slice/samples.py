"""Measurements that are made up, for what is computed from them."""

import dataclasses
from typing import Any

from benchmark.config.number_formats import Precision
from benchmark.planning.run_plan.calibration import (
    AttentionTime,
    Calibration,
    CollectiveTime,
    ElementwiseTime,
    LaunchTime,
    MatmulTime,
)
from benchmark.planning.slice.device_rates import MeasuredRates
from benchmark.planning.slice.rank_measurement import RankMeasurement, SlicePlan
from benchmark.planning.slice.slice_config import SliceOptions, slice_config
from benchmark.planning.slice.slice_devices import DeviceFacts
from benchmark.planning.slice.slice_result import calibration_of, slice_result
from benchmark.planning.slice.step_times import StepTimes
from benchmark.training.machine.gpus import DeviceReading
from tests.benchmark.planning.run_plan.test_run_plan import RANK

RATES = MeasuredRates(
    matmuls=(
        MatmulTime("qkv", "forward", 1, 1000, 2000, 6000, 0.024),
        MatmulTime("qkv", "weight gradient", 1, 1000, 2000, 6000, 0.048),
    ),
    attention=(AttentionTime("forward", 1, 4, 128, 32, 0.001), AttentionTime("backward", 1, 4, 128, 32, 0.004)),
    elementwise=(ElementwiseTime("copy", 2_000_000, 0.001),),
    launch=LaunchTime(5e-6, 2e-6),
)
TIMES = StepTimes(
    by_kind_s={"matmul": 1.5, "communication": 0.5, "other": 0.1},
    communication_s=0.5,
    exposed_communication_s=0.2,
    idle_s=0.05,
    kernels=1234,
    host_s=0.8,
    unknown_kernels=("mystery_kernel",),
)
REPORT = dataclasses.replace(RANK, kind="every rank", rank=0, layers=2, peak_bytes=900 << 20)
READINGS = (DeviceReading(98, 1755, 1980, 690.0, 700, 61), DeviceReading(98, 1500, 1980, 600.0, 700, 65))


def measurement(rank: int, steps_s: tuple[float, ...], *, on_gpu: bool) -> RankMeasurement:
    return RankMeasurement(
        init_s=3.0 + rank,
        steps_s=steps_s,
        readings=(*READINGS, DeviceReading(98)) if on_gpu else (),
        losses=(6.9, 6.8, 6.7),
        skipped=0,
        peak_bytes=(rank + 1) << 30,
        reserved_bytes=3 << 30 if on_gpu else None,
        times=TIMES if on_gpu else StepTimes({"matmul": 0.3}),
        collectives=(CollectiveTime("all-gather", 2, 1 << 20, 0.001),),
        rates=RATES if rank == 0 else None,
        kernels_chosen=("8 of 8 fused kernels compiled and proved in 5.0 s",) if on_gpu else (),
    )


def result_on(name: str, precision: Precision = "bf16") -> tuple[dict[str, Any], Calibration]:
    """Of two devices of this name, or of two CPU processes."""
    on_gpu = name != "cpu"
    facts = DeviceFacts(name, 2, 80 << 30)
    options = SliceOptions(
        "rehearsal",
        layers=2,
        tensor_parallel=2,
        micro_batches=4,
        precision=precision,
        compiled_kernels=False,
        device="cuda" if on_gpu else "cpu",
    )
    config = slice_config(options, 2, facts.accelerator)
    ranks = [measurement(0, (2.0, 2.0, 3.0), on_gpu=on_gpu), measurement(1, (1.0, 4.0, 1.0), on_gpu=on_gpu)]
    plan = SlicePlan(config.benchmark, config.system, config.precision, options.steps)
    result = slice_result(options, plan, facts, ranks, [REPORT], "")
    calibration = calibration_of(result, facts, ranks[0])
    assert calibration is not None
    return result, calibration
