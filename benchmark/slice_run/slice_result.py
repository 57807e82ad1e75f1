"""What a slice found, as data."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmark.config.run_config import RunConfig
from benchmark.planning.run_plans.calibration import FORMAT, Calibration, SliceStep
from benchmark.slice_run.clock_watch import Clocks
from benchmark.slice_run.device_facts import DeviceFacts
from benchmark.slice_run.fitting_layers import CountedMemory
from benchmark.slice_run.rank_measurement import RankMeasurement
from benchmark.slice_run.slice_config import SliceOptions
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
class SliceResult:
    """Of one slice."""

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
    """Rank 0, on a GPU, as the next four; docs/slice.md tells what they mean."""
    exposed_communication_s: float | None
    idle_s: float | None
    host_s_per_micro_batch: float | None
    clocks: Clocks | None
    first_loss: float
    last_loss: float
    skipped_steps: int
    problems: tuple[str, ...]
    """What could not be measured besides, and why."""


def slice_result(
    options: SliceOptions,
    config: RunConfig,
    facts: DeviceFacts,
    ranks: Sequence[RankMeasurement],
    counted: Sequence[CountedMemory],
    clocks: Clocks | None,
) -> SliceResult:
    """``ranks``: in their order."""
    system, model, first = config.system, config.benchmark.model, ranks[0]
    steps = tuple(max(times) for times in zip(*(rank.steps_s for rank in ranks), strict=True))
    step_s = statistics.median(steps)
    flops = train_flops_per_token(model)
    tokens_per_s = config.tokens_per_step / step_s
    tflops = tokens_per_s * flops / system.num_devices / 1e12
    times = first.times
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
        by_kind_s=first.operators_s if times is None else times.by_kind_s,
        unknown_kernels=() if times is None else times.unknown_kernels,
        kernels=None if times is None else times.kernels,
        communication_s=None if times is None else times.communication_s,
        exposed_communication_s=None if times is None else times.exposed_communication_s,
        idle_s=None if times is None else times.idle_s,
        host_s_per_micro_batch=(
            None if times is None or times.host_s is None else times.host_s / config.num_microbatches
        ),
        clocks=clocks,
        first_loss=first.losses[0],
        last_loss=first.losses[-1],
        skipped_steps=first.skipped,
        problems=tuple(dict.fromkeys(problem for rank in ranks for problem in rank.problems)),
    )


def calibration_of(result: SliceResult, facts: DeviceFacts, first: RankMeasurement) -> Calibration:
    """``first``: rank 0's measurement, with the rates."""
    rates, on_gpu = first.rates, facts.name != "cpu"
    assert rates is not None
    return Calibration(
        format=FORMAT,
        benchmark=result.benchmark,
        device=facts.name,
        accelerator=facts.accelerator,
        true_width=result.true_width,
        precision=result.precision,
        torch=torch.__version__,
        cuda=(torch.version.cuda or "") if on_gpu else "",
        nccl=_nccl_version() if on_gpu else "",
        matmuls=rates.matmuls,
        attention=rates.attention,
        elementwise=rates.elementwise,
        launch=rates.launch,
        collectives=first.collectives,
        step=SliceStep(
            layers=result.layers,
            hidden_size=result.hidden_size,
            tensor_parallel=result.tensor_parallel,
            pipeline_parallel=result.pipeline_parallel,
            pipeline_chunks=result.pipeline_chunks,
            data_parallel=result.data_parallel,
            micro_batch_size=result.micro_batch_size,
            micro_batches=result.micro_batches,
            recompute=result.recompute,
            step_s=result.step_s,
            tflops_per_device=result.tflops_per_device,
            by_kind_s=result.by_kind_s if on_gpu else {},
            exposed_communication_s=result.exposed_communication_s,
            host_s_per_micro_batch=result.host_s_per_micro_batch,
            clock_mhz=None if result.clocks is None else result.clocks.lowest_clock_mhz,
            power_w=None if result.clocks is None else result.clocks.highest_power_w,
        ),
    )


def _nccl_version() -> str:
    """Empty where PyTorch was built without it."""
    if not torch.distributed.is_nccl_available():
        return ""
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
