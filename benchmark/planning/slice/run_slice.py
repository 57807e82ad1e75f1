"""Run ``benchmark slice``: choose the layers, start the processes, and combine their measurements."""

import dataclasses
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmark.config.number_formats import Precision
from benchmark.config.system_config import system_text
from benchmark.planning.run_plan.calibration import Calibration, write_calibration
from benchmark.planning.slice.rank_measurement import (
    WARM_UP,
    RankMeasurement,
    SlicePlan,
    read_measurements,
    run_rank,
)
from benchmark.planning.slice.slice_config import ON_CPU, SliceOptions, slice_config
from benchmark.planning.slice.slice_devices import (
    DeviceFacts,
    chosen_layers,
    counted_memory,
    device_facts,
    fullest_bytes,
)
from benchmark.planning.slice.slice_result import calibration_of, slice_result
from benchmark.planning.slice.tuned_collectives import TimedCollectives, fastest, timed_ways
from benchmark.training.machine.forked_ranks import run_ranks
from foundation.errors import CheckFailed, InputError
from foundation.outputs.publish import write_text
from foundation.plain_text import counted, folded
from foundation.sizes import about, significant
from model.flops import train_flops_per_token

CALIBRATION, RESULT, TRACE, LOG = "calibration.json", "slice.json", "trace.json", "slice.log"
SYSTEM = "system.toml"
PRODUCT_SIZE = 1024
"""Rows and columns of the product by which a CPU's rate is guessed."""
PATIENCE_S = 600.0
"""Seconds of steps from which on a smaller slice is named."""
NO_MEMORY = re.compile(r"out of memory|can't allocate memory|MemoryError", re.IGNORECASE)
"""Messages about lack of memory, as PyTorch, NCCL, a CPU's allocator and Python write them."""


def run_slice(options: SliceOptions) -> tuple[dict[str, Any], Calibration | None]:
    """Run the slice, and write ``CALIBRATION``, ``RESULT`` and, with ``profile``, ``TRACE`` of rank 0 to the output
    folder; with ``tune_collectives``, ``SYSTEM`` too.

    If the steps ran and a later part failed, the result holds the steps and names the failure; without rates there is
    no calibration. Raises InputError for a slice that these devices cannot run. Raises CheckFailed if a process fails
    before the steps are done; unless it lacked memory, ``LOG`` is then in the output folder.
    """
    facts = device_facts(options.device, ON_CPU)
    if options.device == "cuda" and options.devices > facts.count:
        raise InputError(
            f"tensor {options.tensor_parallel} x pipeline {options.pipeline_parallel} x data {options.data_parallel} "
            f"take {options.devices} devices; PyTorch sees {facts.count} here: lower --tensor-parallel, "
            "--pipeline-parallel or --data-parallel"
        )
    layers = chosen_layers(options, facts)
    config = slice_config(options, layers, facts.accelerator)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.output) as folder:
        plan = SlicePlan(config.benchmark, config.system, config.precision, options.steps)
        print(folded(_beginning(plan)), file=sys.stderr, flush=True)
        ranks, problem = _measured(plan, options, facts, Path(folder))
    result = slice_result(options, plan, facts, ranks, counted_memory(options, facts, layers), problem)
    (options.output / RESULT).write_text(json.dumps(result, indent=1) + "\n")
    for name in (CALIBRATION, SYSTEM):
        (options.output / name).unlink(missing_ok=True)  # another slice's would be taken for this one's
    calibration = calibration_of(result, facts, ranks[0])
    if calibration is not None:
        write_calibration(calibration, options.output / CALIBRATION)
    if options.tune_collectives:
        _tune(plan, options.output, result)
    return result, calibration


def _beginning(plan: SlicePlan) -> str:
    """Return a line about the steps that are about to run, on a CPU with the seconds that they may take."""
    model, batch, devices = plan.benchmark.model, plan.benchmark.global_batch_size, plan.system.num_devices
    step_tflop = train_flops_per_token(model) * batch * model.seq_length / 1e12
    steps = plan.steps + WARM_UP
    text = f"{steps} steps of {significant(step_tflop, 3)} TFLOP on {counted(devices, 'device')}, then single products"
    if plan.system.device != "cpu":
        return text
    tflops = _cpu_tflops(plan.precision)
    smaller = f"; smaller: {ON_CPU}" if steps * step_tflop / tflops > PATIENCE_S else ""
    return (
        f"{text}: at this CPU's {significant(tflops, 2)} TFLOP/s at least {about(steps * step_tflop / tflops)}{smaller}"
    )


def _cpu_tflops(precision: Precision) -> float:
    """Return the rate of products on all cores, by the second of two."""
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    matrix = torch.ones(PRODUCT_SIZE, PRODUCT_SIZE, dtype=dtype)
    matrix @ matrix
    started = time.perf_counter()
    matrix @ matrix
    return 2 * PRODUCT_SIZE**3 / (time.perf_counter() - started) / 1e12


def _tune(plan: SlicePlan, output: Path, result: dict[str, Any]) -> None:
    """Time every way to send tensor-parallel messages, into ``RESULT``, and write the fastest to ``SYSTEM``."""
    timings: list[TimedCollectives] = []
    for timing in timed_ways(plan, output):
        timings.append(timing)
        result["collectives"] = [timing.as_json() for timing in timings]
        write_text(output / RESULT, json.dumps(result, indent=1) + "\n")
        best = dataclasses.replace(plan.system, collectives=fastest(timings))
        write_text(output / SYSTEM, system_text(best))


def _measured(
    plan: SlicePlan, options: SliceOptions, facts: DeviceFacts, folder: Path
) -> tuple[list[RankMeasurement], str]:
    """Return the measurements of all processes by rank, and the failure after the steps, if any."""
    processes, log = plan.system.num_devices, folder / "log.txt"
    trace = options.output / TRACE if options.profile else None
    status = run_ranks(run_rank, [plan, folder, trace], processes=processes, environment={}, log=log)
    measurements = read_measurements(folder, processes)
    if status == 0:
        return measurements, ""
    lines = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
    shutil.copy(log, options.output / LOG)
    last_line = f"{lines[-1]} ({options.output / LOG} has all)"
    if len(measurements) == processes:
        return measurements, f"after the steps a process ended with status {status}: {last_line}"
    layers = plan.benchmark.model.num_layers
    for line in filter(NO_MEMORY.search, lines):
        raise CheckFailed(f"layers {layers}: out of memory, {_counted(options, facts, layers)}; {line[:300]}")
    raise CheckFailed(f"a process of the slice ended with status {status}: {last_line}")


def _counted(options: SliceOptions, facts: DeviceFacts, layers: int) -> str:
    """Return the memory that the dry run counts for these layers, and for fewer."""
    counted = f"where the dry run counts {fullest_bytes(options, facts, layers) / 1e9:.1f} GB"
    fewer = layers - options.pipeline_parallel
    if fewer < options.least_layers:
        return f"{counted}: raise --tensor-parallel or choose --recompute full"
    return f"{counted}: --layers {fewer} takes {fullest_bytes(options, facts, fewer) / 1e9:.1f} GB"
