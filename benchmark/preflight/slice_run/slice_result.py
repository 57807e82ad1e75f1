"""Make slice.json and the calibration.json that ``plan`` reads. docs/slice.md explains the fields."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import torch

from benchmark.config.run_config import RunConfig
from benchmark.machine.gpus import DeviceReading
from benchmark.planning.dry_runs.rank_report import RankReport
from benchmark.planning.run_plans.calibration import FORMAT, Calibration, SliceStep
from benchmark.preflight.slice_run.device_facts import DeviceFacts
from benchmark.preflight.slice_run.rank_measurement import RankMeasurement, slowest_steps
from benchmark.preflight.slice_run.slice_config import SliceOptions
from benchmark.preflight.slice_run.step_times import StepTimes
from model.flops import train_flops_per_token

LAYOUT = ("tensor_parallel", "pipeline_parallel", "pipeline_chunks", "data_parallel", "micro_batch_size")


def slice_result(
    options: SliceOptions,
    config: RunConfig,
    facts: DeviceFacts,
    ranks: Sequence[RankMeasurement],
    counted: Sequence[RankReport],
    problem: str,
) -> dict[str, Any]:
    """Return the content of slice.json: the slowest process's times, rank 0's kernels, memory by kind of rank.

    The measurements ``ranks`` are in the order of ranks; ``counted`` holds the dry run's reports; ``problem`` names the
    failure after the steps and is empty without one.
    """
    system, model, first = config.system, config.benchmark.model, ranks[0]
    steps = slowest_steps(ranks)
    step_s = statistics.median(steps)
    flops = train_flops_per_token(model)
    tokens_per_s = config.benchmark.tokens_per_step / step_s
    tflops = tokens_per_s * flops / system.num_devices / 1e12
    times = asdict(first.times or StepTimes({}))
    host_s = times.pop("host_s")
    return {
        "benchmark": options.benchmark,
        "true_width": options.true_width,
        "layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "heads": model.num_attention_heads,
        "seq_length": model.seq_length,
        "device": facts.name,
        "devices": system.num_devices,
        **{name: getattr(system, name) for name in LAYOUT},
        "micro_batches": config.num_microbatches,
        "recompute": system.recompute,
        "precision": config.precision,
        "init_s": max(rank.init_s for rank in ranks),
        "step_s": step_s,
        "steps_s": steps,
        "tokens_per_s": tokens_per_s,
        "flops_per_token": flops,
        "tflops_per_device": tflops,
        "peak_tflops": system.peak_tflops,
        "mfu": None if system.peak_tflops is None else tflops / system.peak_tflops,
        "memory": [
            {
                "rank": one.rank,
                "kind": one.kind,
                "peak_bytes": ranks[one.rank].peak_bytes,
                "dry_run_bytes": one.peak_bytes,
                "reserved_bytes": ranks[one.rank].reserved_bytes,
            }
            for one in counted
        ],
        **times,
        "host_s_per_micro_batch": None if host_s is None else host_s / config.num_microbatches,
        "clocks": clocks_of([reading for rank in ranks for reading in rank.readings]),
        "first_loss": first.losses[0],
        "last_loss": first.losses[-1],
        "skipped_steps": first.skipped,
        "problems": [problem] if problem else [],
    }


def clocks_of(readings: Sequence[DeviceReading]) -> dict[str, float] | None:
    """Return the extremes over all GPUs while the steps ran; None if no GPU reported its clocks and power."""
    seen = [one for one in readings if one.clock_mhz + one.power_w >= 0]  # neither is NaN
    if not seen:
        return None
    return {
        "lowest_clock_mhz": min(one.clock_mhz for one in seen),
        "most_clock_mhz": max(one.most_clock_mhz for one in seen),
        "highest_power_w": max(one.power_w for one in seen),
        "most_power_w": max(one.most_power_w for one in seen),
        "highest_temperature_c": max(one.temperature_c for one in seen),
    }


def calibration_of(result: dict[str, Any], facts: DeviceFacts, first: RankMeasurement) -> Calibration | None:
    """Return the calibration for ``plan --calibration``; None if rank 0, ``first``, has measured no rates."""
    if first.rates is None:
        return None
    on_gpu, clocks = facts.name != "cpu", result["clocks"] or {}
    step: dict[str, Any] = {one.name: result.get(one.name) for one in fields(SliceStep)}
    step |= {"clock_mhz": clocks.get("lowest_clock_mhz"), "power_w": clocks.get("highest_power_w")}
    if not on_gpu:
        step["by_kind_s"] = {}
    nccl = torch.cuda.nccl.version() if on_gpu and torch.distributed.is_nccl_available() else ()  # type: ignore[no-untyped-call]
    return Calibration(
        format=FORMAT,
        benchmark=result["benchmark"],
        device=facts.name,
        accelerator=facts.accelerator,
        true_width=result["true_width"],
        precision=result["precision"],
        torch=torch.__version__,
        cuda=(torch.version.cuda or "") if on_gpu else "",
        nccl=".".join(map(str, nccl)),
        collectives=first.collectives,
        step=SliceStep(**step),
        **vars(first.rates),
    )
