"""What a slice found, as data."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from benchmark.config.run_config import RunConfig
from benchmark.machine.gpus import DeviceReading
from benchmark.planning.dry_runs.dry_run import RankReport
from benchmark.planning.run_plans.calibration import FORMAT, Calibration, CollectiveTime, SliceStep
from benchmark.preflight.slice_run.device_facts import DeviceFacts
from benchmark.preflight.slice_run.device_rates import MeasuredRates
from benchmark.preflight.slice_run.rank_measurement import RankMeasurement
from benchmark.preflight.slice_run.slice_config import SliceOptions
from benchmark.preflight.slice_run.step_times import StepTimes
from model.flops import train_flops_per_token


@dataclass(frozen=True)
class MemoryComparison:
    """One kind of rank: its peak, and the dry run's figure for it."""

    rank: int
    kind: str
    peak_bytes: int
    dry_run_bytes: int
    reserved_bytes: int | None


@dataclass(frozen=True)
class Clocks:
    """All GPUs of the slice, over the time the steps ran."""

    lowest_clock_mhz: float
    most_clock_mhz: float
    highest_power_w: float
    most_power_w: float
    highest_temperature_c: float


@dataclass(frozen=True)
class SliceResult:
    """One slice's figures, as slice.json has them."""

    benchmark: str
    true_width: bool
    layers: int
    hidden_size: int
    heads: int
    seq_length: int
    device: str
    devices: int
    tensor_parallel: int
    pipeline_parallel: int
    pipeline_chunks: int
    data_parallel: int
    micro_batch_size: int
    micro_batches: int
    recompute: str
    precision: str
    init_s: float
    """The slowest process's."""
    step_s: float
    """Median of the timed steps, of each the slowest process's."""
    steps_s: tuple[float, ...]
    tokens_per_s: float
    flops_per_token: float
    """Of the slice's layers and the output layer, by model/flops.py."""
    tflops_per_device: float
    peak_tflops: float | None
    mfu: float | None
    """None where the device's peak is not known."""
    memory: tuple[MemoryComparison, ...]
    by_kind_s: dict[str, float]
    """Rank 0, of one step: kernels on a GPU, operators on a CPU."""
    unknown_kernels: tuple[str, ...]
    kernels: int | None
    communication_s: float | None
    """Rank 0, on a GPU, as the next three; docs/slice.md tells what they mean."""
    exposed_communication_s: float | None
    idle_s: float | None
    host_s_per_micro_batch: float | None
    clocks: Clocks | None
    first_loss: float
    last_loss: float
    skipped_steps: int
    problems: tuple[str, ...]
    """What failed after the steps."""


def slice_result(
    options: SliceOptions,
    config: RunConfig,
    facts: DeviceFacts,
    ranks: Sequence[RankMeasurement],
    counted: Sequence[RankReport],
    problem: str,
) -> SliceResult:
    """``ranks``: in their order. ``problem``: what failed after the steps; empty: nothing."""
    system, model, first = config.system, config.benchmark.model, ranks[0]
    steps = tuple(max(times) for times in zip(*(rank.steps_s for rank in ranks), strict=True))
    step_s = statistics.median(steps)
    flops = train_flops_per_token(model)
    tokens_per_s = config.tokens_per_step / step_s
    tflops = tokens_per_s * flops / system.num_devices / 1e12
    times = first.times or StepTimes({})
    return SliceResult(
        benchmark=options.benchmark,
        true_width=options.true_width,
        layers=model.num_layers,
        hidden_size=model.hidden_size,
        heads=model.num_attention_heads,
        seq_length=model.seq_length,
        device=facts.name,
        devices=system.num_devices,
        tensor_parallel=system.tensor_parallel,
        pipeline_parallel=system.pipeline_parallel,
        pipeline_chunks=system.pipeline_chunks,
        data_parallel=system.data_parallel,
        micro_batch_size=system.micro_batch_size,
        micro_batches=config.num_microbatches,
        recompute=system.recompute,
        precision=config.precision,
        init_s=max(rank.init_s for rank in ranks),
        step_s=step_s,
        steps_s=steps,
        tokens_per_s=tokens_per_s,
        flops_per_token=flops,
        tflops_per_device=tflops,
        peak_tflops=system.peak_tflops,
        mfu=None if system.peak_tflops is None else tflops / system.peak_tflops,
        memory=tuple(
            MemoryComparison(
                one.rank, one.kind, ranks[one.rank].peak_bytes, one.peak_bytes, ranks[one.rank].reserved_bytes
            )
            for one in counted
        ),
        by_kind_s=times.by_kind_s,
        unknown_kernels=times.unknown_kernels,
        kernels=times.kernels,
        communication_s=times.communication_s,
        exposed_communication_s=times.exposed_communication_s,
        idle_s=times.idle_s,
        host_s_per_micro_batch=None if times.host_s is None else times.host_s / config.num_microbatches,
        clocks=clocks_of([reading for rank in ranks for reading in rank.readings]),
        first_loss=first.losses[0],
        last_loss=first.losses[-1],
        skipped_steps=first.skipped,
        problems=(problem,) if problem else (),
    )


def clocks_of(readings: Sequence[DeviceReading]) -> Clocks | None:
    """Return the extremes; None where no GPU told its clocks and power."""
    seen = [one for one in readings if one.clock_mhz + one.power_w >= 0]  # neither is NaN
    if not seen:
        return None
    return Clocks(
        lowest_clock_mhz=min(one.clock_mhz for one in seen),
        most_clock_mhz=max(one.most_clock_mhz for one in seen),
        highest_power_w=max(one.power_w for one in seen),
        most_power_w=max(one.most_power_w for one in seen),
        highest_temperature_c=max(one.temperature_c for one in seen),
    )


def calibration_of(
    result: SliceResult, facts: DeviceFacts, collectives: Sequence[CollectiveTime], rates: MeasuredRates
) -> Calibration:
    """Return what ``plan --calibration`` reads."""
    on_gpu, clocks = facts.name != "cpu", result.clocks
    step: dict[str, Any] = {one.name: getattr(result, one.name, None) for one in fields(SliceStep)}
    if clocks is not None:
        step |= {"clock_mhz": clocks.lowest_clock_mhz, "power_w": clocks.highest_power_w}
    if not on_gpu:
        step["by_kind_s"] = {}
    nccl = torch.cuda.nccl.version() if on_gpu and torch.distributed.is_nccl_available() else ()  # type: ignore[no-untyped-call]
    return Calibration(
        format=FORMAT,
        benchmark=result.benchmark,
        device=facts.name,
        accelerator=facts.accelerator,
        true_width=result.true_width,
        precision=result.precision,
        torch=torch.__version__,
        cuda=(torch.version.cuda or "") if on_gpu else "",
        nccl=".".join(map(str, nccl)),
        collectives=tuple(collectives),
        step=SliceStep(**step),
        **vars(rates),
    )
