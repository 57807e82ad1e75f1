"""Make of a slice's measurements slice.json, the calibration.json that ``plan`` reads, and lines for people.

benchmark/planning/run_plan/calibration.py explains the fields.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

import torch

from benchmark.config.accelerators import BF16_BITS
from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.number_formats import NUMBER_FORMATS
from benchmark.planning.dry_run.rank_report import RankReport
from benchmark.planning.run_plan.calibration import FORMAT, Calibration, MatmulTime, SliceStep
from benchmark.planning.slice.rank_measurement import RankMeasurement, SlicePlan, slowest_steps
from benchmark.planning.slice.slice_config import SliceOptions
from benchmark.planning.slice.slice_devices import DeviceFacts
from benchmark.planning.slice.step_times import StepTimes
from benchmark.planning.slice.tuned_collectives import tuning_lines
from benchmark.training.machine.gpus import DeviceReading
from foundation.sizes import significant
from model.flops import train_flops_per_token

GIB = 2**30
WIDTH = 119
LAYOUT = ("tensor_parallel", "pipeline_parallel", "pipeline_chunks", "data_parallel", "micro_batch_size")


def slice_result(
    options: SliceOptions,
    plan: SlicePlan,
    facts: DeviceFacts,
    ranks: Sequence[RankMeasurement],
    counted: Sequence[RankReport],
    problem: str,
) -> dict[str, Any]:
    """Return the content of slice.json: the slowest process's times, rank 0's kernels, memory by kind of rank.

    The measurements ``ranks`` are in the order of ranks; ``counted`` holds the dry run's reports; ``problem`` names the
    failure after the steps and is empty without one.
    """
    system, model, first = plan.system, plan.benchmark.model, ranks[0]
    micro_batches = system.num_microbatches(plan.benchmark.global_batch_size)
    peak_tflops = system.peak_tflops_in(plan.precision)
    steps = slowest_steps(ranks)
    step_s = statistics.median(steps)
    flops = train_flops_per_token(model)
    tokens_per_s = plan.benchmark.tokens_per_step / step_s
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
        "micro_batches": micro_batches,
        "recompute": system.recompute,
        "precision": plan.precision,
        "fp8_weight_gradients": system.fp8_weight_gradients,
        "compiled_kernels": system.compiled_kernels,
        "init_s": max(rank.init_s for rank in ranks),
        "step_s": step_s,
        "steps_s": steps,
        "tokens_per_s": tokens_per_s,
        "flops_per_token": flops,
        "tflops_per_device": tflops,
        "peak_tflops": peak_tflops,
        "mfu": None if peak_tflops is None else tflops / peak_tflops,
        "memory": [
            {
                "rank": report.rank,
                "kind": report.kind,
                "peak_bytes": ranks[report.rank].peak_bytes,
                "dry_run_bytes": report.peak_bytes,
                "reserved_bytes": ranks[report.rank].reserved_bytes,
            }
            for report in counted
        ],
        **times,
        "host_s_per_micro_batch": None if host_s is None else host_s / micro_batches,
        "clocks": clocks_of([reading for rank in ranks for reading in rank.readings]),
        "first_loss": first.losses[0],
        "last_loss": first.losses[-1],
        "skipped_steps": first.skipped,
        "kernels_chosen": first.kernels_chosen,
        "problems": [problem] if problem else [],
    }


def clocks_of(readings: Sequence[DeviceReading]) -> dict[str, float] | None:
    """Return the extremes over all GPUs while the steps ran; None if no GPU reported its clocks and power."""
    full = [reading for reading in readings if reading.clock_mhz + reading.power_w >= 0]  # neither is NaN
    if not full:
        return None
    return {
        "lowest_clock_mhz": min(reading.clock_mhz for reading in full),
        "most_clock_mhz": max(reading.most_clock_mhz for reading in full),
        "highest_power_w": max(reading.power_w for reading in full),
        "most_power_w": max(reading.most_power_w for reading in full),
        "highest_temperature_c": max(reading.temperature_c for reading in full),
    }


def calibration_of(result: dict[str, Any], facts: DeviceFacts, first: RankMeasurement) -> Calibration | None:
    """Return the calibration for ``plan --calibration``; None if rank 0, ``first``, has measured no rates."""
    if first.rates is None:
        return None
    on_gpu, clocks = facts.name != "cpu", result["clocks"] or {}
    step: dict[str, Any] = {field.name: result.get(field.name) for field in fields(SliceStep)}
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


def slice_lines(result: dict[str, Any], calibration: Calibration | None) -> Iterator[str]:
    """Yield the lines for the terminal; without a calibration, there are none on rates."""
    model = BENCHMARKS[result["benchmark"]].model
    yield (
        "{benchmark}: {layers} of {of} layers on {devices} x {device}; hidden {hidden_size:,}, {heads} heads, sequence "
        "{seq_length:,}, {precision}"
    ).format(**result, of=model.num_layers)
    yield (
        "tensor {tensor_parallel} x pipeline {pipeline_parallel} (chunks {pipeline_chunks}) x data {data_parallel}; "
        "{micro_batches} micro-batches of {micro_batch_size}; recompute {recompute}"
    ).format(**result)
    if not result["true_width"]:
        yield f"NOT the true width, which is {model.hidden_size:,}: these figures say nothing of the benchmark's speed"
    if result["skipped_steps"]:
        yield f"NOT a sound step: the gradient was not finite in {result['skipped_steps']} steps"
    yield ""
    for name, text in (*_speed(result), *_memory(result)):
        yield f"{name:<16}{text}"
    yield ""
    yield from (line if len(line) < WIDTH else f"{line[: WIDTH - 4]} ..." for line in result["kernels_chosen"])
    yield from _time(result)
    if calibration is not None:
        yield ""
        yield from _rates(calibration)
    yield from tuning_lines(result.get("collectives", ()), "system.toml")
    yield from (f"NOT measured: {problem}" for problem in result["problems"])


def _speed(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    low, high = _time_of(min(result["steps_s"])), _time_of(max(result["steps_s"]))
    yield "step", f"{_time_of(result['step_s'])}, median of {len(result['steps_s'])} ({low} to {high})"
    yield "throughput", f"{result['tokens_per_s']:,.0f} tokens/s"
    row = NUMBER_FORMATS[result["precision"]]
    owner = "" if row.product_bits == BF16_BITS else f"{row.title}'s "
    of_peak = ", {mfu:.1%} of " + owner + "{peak_tflops:,.1f} (MFU)"
    share = "" if result["mfu"] is None else of_peak.format(**result)
    flops = f"{result['flops_per_token'] / 1e9:,.4g} GFLOP per token with output layer"
    yield "model FLOP/s", f"{significant(result['tflops_per_device'], 4)} TFLOP/s per device{share}; {flops}"
    yield "loss", "{first_loss:.4f} at first, {last_loss:.4f} at last, on tokens at random".format(**result)
    yield "start", f"{result['init_s']:.1f} s from the process group's start to a state with weights"
    if result["clocks"] is not None:
        yield (
            "clocks",
            "{lowest_clock_mhz:,.0f} MHz at least, of {most_clock_mhz:,.0f}; {highest_power_w:,.0f} W at most, of "
            "{most_power_w:,.0f}; {highest_temperature_c:.0f} °C".format(**result["clocks"]),
        )


def _memory(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for rank in result["memory"]:
        peak, counted = rank["peak_bytes"] / GIB, f"dry run {rank['dry_run_bytes'] / GIB:.2f} GiB"
        name = f"rank {rank['rank']}, {rank['kind']}"
        if rank["reserved_bytes"] is None:
            yield "memory", f"the process grew by {peak:.2f} GiB, libraries included; {counted}; {name}"
        else:
            reserved = f"{rank['reserved_bytes'] / GIB:.2f} GiB reserved"
            ratio = f"ratio {rank['peak_bytes'] / rank['dry_run_bytes']:.3f}"
            yield "memory", f"{peak:.2f} GiB at the peak, {counted} ({ratio}); {reserved}; {name}"


def _time(result: dict[str, Any]) -> Iterator[str]:
    if not result["by_kind_s"]:
        yield "no kernels: the profiler recorded none (CUPTI missing, or not allowed to this user)"
        return
    on_gpu, total_s = result["kernels"] is not None, sum(result["by_kind_s"].values())
    count = f"kernels of one step, rank 0, {result['kernels']:,} of them" if on_gpu else "operators of one step, rank 0"
    yield f"time in {count}"
    for kind, seconds in result["by_kind_s"].items():
        yield f"  {kind:<18}{_time_of(seconds):>10}{seconds / total_s:8.1%}"
    for name in result["unknown_kernels"]:
        yield f"  of no known kind: {name[:90]}"
    if on_gpu:
        yield f"communication   {_time_of(result['communication_s'])}, waiting for other ranks included"
        yield f"exposed         {_time_of(result['exposed_communication_s'])}: nothing else ran"
        yield f"idle            {_time_of(result['idle_s'])}: nothing ran"
    if result["host_s_per_micro_batch"] is not None:
        yield f"host            {_time_of(result['host_s_per_micro_batch'])} per micro-batch to queue it"


def _rates(calibration: Calibration) -> Iterator[str]:
    yield "rates of rank 0's device, each alone on it"
    groups = sorted({(product.tensor_parallel, product.precision) for product in calibration.matmuls})
    several_formats = len({precision for _, precision in groups}) > 1
    for group in groups:
        products = [product for product in calibration.matmuls if (product.tensor_parallel, product.precision) == group]
        tensor_parallel, precision = group
        name = f"matmul, tensor {tensor_parallel}"
        if several_formats:
            name = f"{NUMBER_FORMATS[precision].title} matmul, TP {tensor_parallel}"
        by_role = ", ".join(
            f"{role} {significant(_mean_tflops([product for product in products if product.role == role]), 4)}"
            for role in dict.fromkeys(product.role for product in products)
        )
        mean = f"{significant(_mean_tflops(products), 4):>10} TFLOP/s over all shapes"
        yield f"  {name:<20}{mean}; {by_role}"
    for attention in calibration.attention[:2]:
        name = f"attention {attention.role}"
        rate = significant(attention.tflops, 4)
        yield f"  {name:<20}{rate:>10} TFLOP/s, {attention.heads} heads, the whole square counted"
    for elementwise in calibration.elementwise:
        yield f"  {elementwise.operation:<20}{significant(elementwise.gb_per_s, 4):>10} GB/s"
    host_us, device_us = calibration.launch.host_s * 1e6, calibration.launch.device_s * 1e6
    yield f"  {'launch':<20}{host_us:10,.3g} us of host, {device_us:,.3g} us on the device"
    largest = max((message.bytes for message in calibration.collectives), default=0)
    for message in calibration.collectives:
        if message.bytes == largest:
            rate, size = f"{message.bytes / message.seconds / 1e9:,.4g} GB/s", f"{message.bytes / 2**20:,.0f} MiB"
            yield f"  {message.kind:<20}{f'{rate} of {size}, {message.ranks} ranks':>10}"


def _mean_tflops(matmuls: list[MatmulTime]) -> float:
    """Return all FLOPs over all the time."""
    return sum(product.tflops * product.seconds for product in matmuls) / sum(product.seconds for product in matmuls)


def _time_of(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
