"""Measure one process of a slice: steps, memory, the parts of a step, and on rank 0 the rates of its device."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import torch

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.planning.run_plan.calibration import CollectiveTime
from benchmark.planning.slice.device_rates import (
    MeasuredRates,
    collective_times,
    device_rates,
    event_now,
    synchronize,
)
from benchmark.planning.slice.made_up_state import made_up_batches, made_up_state
from benchmark.planning.slice.step_times import StepTimes, cpu_times, gpu_times
from benchmark.training.engine.distributed import World, end_process
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.machine.gpus import DeviceReading, watch_device
from benchmark.training.observers.garbage_pauses import YOUNG, GarbagePauses
from benchmark.training.step import StepResult, train_step
from benchmark.training.training_world import training_world

WARM_UP = 2
READING_S = 0.5
MOST_READINGS = 1000


@dataclass(frozen=True)
class RankMeasurement:
    """Measurements of one process; the last three are added after the steps."""

    init_s: float
    """Seconds from the start of the process group to a state with weights."""
    steps_s: tuple[float, ...]
    readings: tuple[DeviceReading, ...]
    """Readings of its GPU during these steps; none on a CPU."""
    losses: tuple[float, ...]
    """Losses of all steps, including those of the warm-up."""
    skipped: int
    """Number of steps whose gradients were not finite."""
    peak_bytes: int
    """Peak bytes; on a CPU, the growth of the process."""
    reserved_bytes: int | None
    """Bytes held by PyTorch's allocator; None on a CPU."""
    times: StepTimes | None = None
    """Times of one more step, under the profiler."""
    collectives: tuple[CollectiveTime, ...] = ()
    rates: MeasuredRates | None = None
    """Rates of rank 0's device; None on other ranks."""
    kernels_chosen: tuple[str, ...] = ()
    """The run's lines about the kernels that were proved and chosen; none on a CPU."""


@dataclass(frozen=True)
class SlicePlan:
    """The steps that a slice runs."""

    benchmark: Benchmark
    system: System
    precision: Precision
    steps: int
    """Timed steps."""


def run_rank(plan: SlicePlan, folder: Path, trace: Path | None, *, only_steps: bool = False) -> None:
    """Join the slice's processes, measure, and end this process."""
    attention, lines = (plan.benchmark.model, plan.precision), list[str]()
    with training_world(plan.system, read_environment(), attention=attention, note=lines.append) as world:
        if only_steps:
            measured_steps(plan, world, folder, trace, profiled=False)
            world.barrier()
        else:
            measure(plan, world, folder, trace, tuple(lines))
    end_process(0)


def measure(
    plan: SlicePlan, world: World, folder: Path, trace: Path | None, kernels_chosen: tuple[str, ...] = ()
) -> RankMeasurement:
    """Measure, and write the measurements to ``folder`` after each part, so that the steps stay if a later part fails.

    The profiler's trace of rank 0's step goes to ``trace``. All ranks must call it.
    """
    measurement = replace(measured_steps(plan, world, folder, trace), kernels_chosen=kernels_chosen)
    gc.collect()  # the state, and every reference to it
    if world.device.type == "cuda":
        torch.cuda.empty_cache()
    measurement = replace(measurement, collectives=tuple(collective_times(world)))
    if world.rank == 0:
        _write(measurement, world, folder)
        measurement = replace(
            measurement,
            rates=device_rates(
                plan.benchmark.model,
                plan.system.micro_batch_size,
                plan.precision,
                world.device,
                fp8_weight_gradients=plan.system.fp8_weight_gradients,
            ),
        )
    _write(measurement, world, folder)
    world.barrier()
    return measurement


def _write(measurement: RankMeasurement, world: World, folder: Path) -> None:
    """Write the measurements whole or not at all: the process may be ended meanwhile."""
    partial = folder / f".rank_{world.rank}"
    partial.write_bytes(msgspec.msgpack.encode(measurement))
    partial.rename(folder / f"rank_{world.rank}")


def read_measurements(folder: Path, processes: int) -> list[RankMeasurement]:
    """Return the measurements that the processes of this slice wrote, by rank; processes that wrote none are left
    out."""
    files = [folder / f"rank_{rank}" for rank in range(processes)]
    return [msgspec.msgpack.decode(file.read_bytes(), type=RankMeasurement) for file in files if file.exists()]


def slowest_steps(ranks: Sequence[RankMeasurement]) -> tuple[float, ...]:
    """Return the seconds of each step, the slowest process's."""
    return tuple(max(times) for times in zip(*(rank.steps_s for rank in ranks), strict=True))


def measured_steps(
    plan: SlicePlan, world: World, folder: Path, trace: Path | None, *, profiled: bool = True
) -> RankMeasurement:
    """Time the steps, and run one more under the profiler if it is to be ``profiled``. All ranks must call it."""
    started, bytes_at_start, on_gpu = time.perf_counter(), world.peak_memory_bytes(), world.device.type == "cuda"
    state = made_up_state(plan.benchmark, plan.system, plan.precision, world)
    batches = made_up_batches(plan.benchmark, plan.system, world)
    synchronize(world.device)
    init_s = time.perf_counter() - started

    pauses = GarbagePauses()
    pauses.begin()

    def step() -> StepResult:
        result = train_step(state, batches)
        state.progress.steps += 1
        gc.collect(YOUNG)
        return result

    results = [step() for _ in range(WARM_UP)]
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(world.device)
    watch = watch_device(world.device, interval_s=READING_S, keep=MOST_READINGS)
    world.barrier()
    synchronize(world.device)
    # From the end of each step's work to that of the next; nothing waits between them that does not in a run.
    ends: list[Any] = [event_now() if on_gpu else time.perf_counter()]
    for _ in range(plan.steps):
        results.append(step())
        ends.append(event_now() if on_gpu else time.perf_counter())
    synchronize(world.device)
    if watch is not None:
        watch.close()
    measurement = RankMeasurement(
        init_s=init_s,
        steps_s=tuple(first.elapsed_time(last) / 1000 if on_gpu else last - first for first, last in pairwise(ends)),
        readings=() if watch is None else tuple(reading for _, reading in watch.readings),
        losses=tuple(result.loss for result in results),
        skipped=sum(result.skipped for result in results),
        peak_bytes=world.peak_memory_bytes() - (0 if on_gpu else bytes_at_start),
        reserved_bytes=torch.cuda.max_memory_reserved(world.device) if on_gpu else None,
    )
    _write(measurement, world, folder)
    if profiled:
        measurement = replace(measurement, times=profiled_step(world, step, trace))
    pauses.end()
    return measurement


def profiled_step(world: World, step: Callable[[], object], trace: Path | None) -> StepTimes:
    """Run a step under PyTorch's profiler; rank 0 writes its trace to ``trace``. All ranks must call it."""
    activities = torch.profiler.ProfilerActivity
    on_gpu = world.device.type == "cuda"
    with torch.profiler.profile(activities=[activities.CUDA if on_gpu else activities.CPU]) as profile:
        step()
        synchronize(world.device)
    if trace is not None and world.rank == 0:
        profile.export_chrome_trace(str(trace))
    return gpu_times(profile.events() or ()) if on_gpu else cpu_times(profile.key_averages())
