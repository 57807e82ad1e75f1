"""A slice's result for people, below 120 columns."""

from collections.abc import Iterator

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.planning.run_plans.calibration import Calibration, MatmulTime
from benchmark.preflight.slice_run.slice_result import SliceResult

GIB = 2**30


def format_slice(result: SliceResult, calibration: Calibration | None) -> str:
    """Return the lines of the terminal; without a calibration those of the rates are missing."""
    rates = () if calibration is None else _rates(calibration)
    problems = (f"NOT measured: {problem}" for problem in result.problems)
    sections = (_title(result), _speed(result), _memory(result), _time(result), rates, problems)
    return "\n".join(line for section in sections for line in section)


def _title(result: SliceResult) -> Iterator[str]:
    of = BENCHMARKS[result.benchmark].model
    yield (
        f"{result.benchmark}: {result.layers} of {of.num_layers} layers on {result.devices} x {result.device}; hidden "
        f"{result.hidden_size:,}, {result.heads} heads, sequence {result.seq_length:,}, {result.precision}"
    )
    yield (
        f"tensor {result.tensor_parallel} x pipeline {result.pipeline_parallel} (chunks {result.pipeline_chunks}) x "
        f"data {result.data_parallel}; {result.micro_batches} micro-batches of {result.micro_batch_size}; recompute "
        f"{result.recompute}"
    )
    if not result.true_width:
        yield f"NOT the true width, which is {of.hidden_size:,}: these figures say nothing of the benchmark's speed"
    if result.skipped_steps:
        yield f"NOT a sound step: the gradient was not finite in {result.skipped_steps} steps"


def _speed(result: SliceResult) -> Iterator[str]:
    yield ""
    low, high = min(result.steps_s), max(result.steps_s)
    yield _line(
        "step", f"{_time_of(result.step_s)}, median of {len(result.steps_s)} ({_time_of(low)} to {_time_of(high)})"
    )
    yield _line("throughput", f"{result.tokens_per_s:,.0f} tokens/s")
    share = "" if result.mfu is None else f", {result.mfu:.1%} of {result.peak_tflops:,.1f} (MFU)"
    flops = f"{result.flops_per_token / 1e9:,.4g} GFLOP per token, output layer included"
    yield _line("model FLOP/s", f"{result.tflops_per_device:,.4g} TFLOP/s per device{share}; {flops}")
    yield _line("loss", f"{result.first_loss:.4f} at first, {result.last_loss:.4f} at last, on tokens at random")
    yield _line("start", f"{result.init_s:.1f} s from the process group's start to a state with weights")
    if result.clocks is not None:
        seen = result.clocks
        yield _line(
            "clocks",
            f"{seen.lowest_clock_mhz:,.0f} MHz at least, of {seen.most_clock_mhz:,.0f}; {seen.highest_power_w:,.0f} W "
            f"at most, of {seen.most_power_w:,.0f}; {seen.highest_temperature_c:.0f} °C",
        )


def _memory(result: SliceResult) -> Iterator[str]:
    for one in result.memory:
        peak, counted = one.peak_bytes / GIB, f"dry run {one.dry_run_bytes / GIB:.2f} GiB"
        place = f"rank {one.rank}, {one.kind}"
        if one.reserved_bytes is None:
            yield _line("memory", f"the process grew by {peak:.2f} GiB, libraries included; {counted}; {place}")
        else:
            held = f"{one.reserved_bytes / GIB:.2f} GiB reserved"
            ratio = f"ratio {one.peak_bytes / one.dry_run_bytes:.3f}"
            yield _line("memory", f"{peak:.2f} GiB at the peak, {counted} ({ratio}); {held}; {place}")


def _time(result: SliceResult) -> Iterator[str]:
    yield ""
    if not result.by_kind_s:
        yield "no kernels: the profiler recorded none (CUPTI missing, or not allowed to this user)"
        return
    whole = sum(result.by_kind_s.values())
    what = "kernels" if result.kernels is not None else "operators"
    count = "" if result.kernels is None else f", {result.kernels:,} of them"
    yield f"time in {what} of one step, rank 0{count}"
    for kind, seconds in result.by_kind_s.items():
        yield f"  {kind:<18}{_time_of(seconds):>10}{seconds / whole:8.1%}"
    for name in result.unknown_kernels:
        yield f"  of no known kind: {name[:90]}"
    if result.exposed_communication_s is not None and result.idle_s is not None:
        yield _line("communication", f"{_time_of(result.communication_s or 0)}, waiting for other ranks included")
        yield _line("exposed", f"{_time_of(result.exposed_communication_s)}: nothing else ran")
        yield _line("idle", f"{_time_of(result.idle_s)}: nothing ran")
    if result.host_s_per_micro_batch is not None:
        yield _line("host", f"{_time_of(result.host_s_per_micro_batch)} per micro-batch to queue it")


def _rates(calibration: Calibration) -> Iterator[str]:
    yield ""
    yield "rates of rank 0's device, each alone on it"
    sizes = sorted({one.tensor_parallel for one in calibration.matmuls})
    for size in sizes:
        own = [one for one in calibration.matmuls if one.tensor_parallel == size]
        yield f"  matmul, tensor {size:<5}{_mean_tflops(own):10,.4g} TFLOP/s over all shapes; " + ", ".join(
            f"{role} {_mean_tflops([one for one in own if one.role == role]):,.4g}"
            for role in dict.fromkeys(one.role for one in own)
        )
    for attention in calibration.attention[:2]:
        name = f"attention {attention.role}"
        yield f"  {name:<20}{attention.tflops:10,.4g} TFLOP/s, {attention.heads} heads, the whole square counted"
    for elementwise in calibration.elementwise:
        yield f"  {elementwise.operation:<20}{elementwise.gb_per_s:10,.4g} GB/s"
    host_us, device_us = calibration.launch.host_s * 1e6, calibration.launch.device_s * 1e6
    yield f"  {'launch':<20}{host_us:10,.3g} us of host, {device_us:,.3g} us on the device"
    largest = max((one.bytes for one in calibration.collectives), default=0)
    for one in calibration.collectives:
        if one.bytes == largest:
            rate = f"{one.bytes / one.seconds / 1e9:,.4g} GB/s of {one.bytes / 2**20:,.0f} MiB, {one.ranks} ranks"
            yield f"  {one.kind:<20}{rate:>10}"


def _mean_tflops(matmuls: list[MatmulTime]) -> float:
    """Of all FLOPs in all the time."""
    flops = sum(one.tflops * one.seconds for one in matmuls)
    return flops / sum(one.seconds for one in matmuls)


def _line(name: str, text: str) -> str:
    return f"{name:<16}{text}"


def _time_of(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
