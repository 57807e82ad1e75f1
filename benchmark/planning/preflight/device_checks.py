"""Check the devices: number, kind, memory, health, right results, speed."""

import socket
import statistics
import time
from collections.abc import Mapping, Sequence

import torch

from benchmark.config.accelerators import ACCELERATORS
from benchmark.planning.preflight.preflight_check import (
    GPU,
    CheckingProcess,
    CheckOutcome,
    CheckResult,
    Measurements,
    PreflightCheck,
)
from benchmark.training.machine.gpus import DeviceReading, all_gpus, new_faults
from foundation.errors import InputError
from foundation.this_machine import usable_cores

OCCUPIED_GB = 3.0
"""GB in use on a device that still count as its driver's and this process's own context."""
SIZE = {"cuda": 8192, "cpu": 512}
SECONDS = 1.0
SLOW: dict[CheckOutcome, float] = {"FAILED": 0.90, "warning": 0.95}
"""Least share of the median speed, by outcome. One device that is 5 % slow slows the whole run by as much
(docs/facts/peers.md 1.5, BLOOM)."""
EXPECTED_OF_PEAK = 0.6
"""Least share of the peak in large products. They reach 0.80 of the data sheet on H100 and H200 (docs/facts/peers.md
1.0); a much lower share points to a power cap."""


def present(process: CheckingProcess) -> tuple[str, dict[str, tuple[str, float]]]:
    """Return the name of the machine and the devices that this process sees there: model and memory in GB by UUID."""
    if process.kind == "cpu":
        return socket.gethostname(), {str(core): ("CPU core", 0.0) for core in usable_cores()}
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return socket.gethostname(), {str(gpu.uuid): (gpu.name, gpu.total_memory / 1e9) for gpu in properties}


def as_the_system_says(process: CheckingProcess, measurements: Measurements) -> CheckResult:
    """Check that each machine has as many devices as the system, all alike, and of the kind in the system's
    table."""
    machines: dict[str, dict[str, tuple[str, float]]] = {}
    for _, (machine, devices) in measurements:  # all processes of a machine see all its devices, or each its own
        machines.setdefault(machine, {}).update(devices)
    system = process.config.system if process.config else None
    kind = "GPUs" if process.kind == "cuda" else "cores"
    for machine, devices in machines.items():
        if len(devices) < (system.devices_per_node if system else 1):
            expected = f"; system {system.name} has {system.devices_per_node}" if system else ""
            mend = "mend the driver, or --devices-per-node" if kind == "GPUs" else "--system cpu_p1"
            return CheckResult("FAILED", f"{machine}: {len(devices)} {kind}{expected}", mend)
    models = sorted({model for devices in machines.values() for model, _ in devices.values()})
    if len(models) > 1:
        return CheckResult("FAILED", f"different models: {', '.join(models)}", "use nodes of one kind")
    counts = " or ".join(map(str, sorted({len(devices) for devices in machines.values()})))
    summary = f"{counts} x {models[0]}" + (f" on each of {len(machines)} machines" if len(machines) > 1 else "")
    if system and system.accelerator and kind == "GPUs":
        smallest_gb = min(gb for devices in machines.values() for _, gb in devices.values())
        too_small = smallest_gb < 0.9 * (ACCELERATORS[system.accelerator].memory_gb or 0)
        if system.accelerator.replace("-", " ").split()[0] not in models[0] or too_small:
            mend = f"choose another --system, or --accelerator, one of {', '.join(ACCELERATORS)}"
            return CheckResult(
                "warning", f"{summary} of {smallest_gb:.0f} GB, but the system's is {system.accelerator}", mend
            )
    return CheckResult("ok", summary)


def memory_free(process: CheckingProcess) -> CheckResult:
    """Check that no other process holds memory of the devices."""
    occupied = []
    for device in process.devices:
        free, total = torch.cuda.mem_get_info(device)
        if (total - free) / 1e9 > OCCUPIED_GB:
            occupied.append(f"GPU {device.index} has {(total - free) / 1e9:.1f} of {total / 1e9:.0f} GB in use")
    if occupied:
        return CheckResult("FAILED", ", ".join(occupied), "end the processes that nvidia-smi shows")
    return CheckResult("ok", f"less than {OCCUPIED_GB:g} GB of each is in use")


def health(_: CheckingProcess) -> CheckResult:
    """Check the memory health of each GPU of this machine; warn if no tool reports it."""
    try:
        return judge_health([gpu.read() for gpu in all_gpus()])
    except InputError as error:
        return CheckResult("warning", str(error), "see that nvidia-ml-py and the driver are in the image")


def judge_health(readings: Sequence[DeviceReading]) -> CheckResult:
    """Judge the memory of each GPU as a run does; a figure that a GPU does not report is no fault."""
    bad = [
        f"GPU {number}: {fault}"
        for number, reading in enumerate(readings)
        for kind, fault in new_faults(None, reading).items()
        if kind not in reading.slowdowns()
    ]
    if bad:
        return CheckResult("FAILED", ", ".join(bad), "drain the node and reset the GPU")
    return CheckResult("ok", f"{len(readings)} GPUs without uncorrected errors or pending repairs")


def right_products(process: CheckingProcess) -> CheckResult:
    """Check each number of a BF16 product. The factors are 0, rarely 1 or -1, so that every partial sum is an integer
    that BF16 holds (up to 256), and the order of summation does not matter."""
    size, generator = SIZE[process.kind], torch.Generator().manual_seed(1)
    draws = [torch.randint(0, 32, (size, size), generator=generator) for _ in range(2)]
    left, right = (((draw == 0).to(torch.int8) - (draw == 1).to(torch.int8)).bfloat16() for draw in draws)
    vector = torch.randint(-1000, 1000, (size,), generator=generator).double()
    expected = left.double() @ (right.double() @ vector)
    for device in process.devices:
        product = (left.to(device) @ right.to(device)).cpu()
        if not torch.equal(product.double() @ vector, expected):
            return CheckResult("FAILED", f"{device}: a BF16 product of {size} x {size} is wrong", "drain the node")
    return CheckResult("ok", f"BF16, {size} x {size}, exact")


def speeds(process: CheckingProcess) -> Mapping[int, float]:
    """Return TFLOP/s of each GPU in products of random numbers, which draw more power than zeros do."""
    return {device.index: _tflops(device, SIZE["cuda"]) for device in process.devices}


def _tflops(device: torch.device, size: int) -> float:
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(10):
        left @ right
    torch.cuda.synchronize(device)
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        for _ in range(10):
            left @ right
        torch.cuda.synchronize(device)
        count += 10
    return 2 * size**3 * count / (time.perf_counter() - started) / 1e12


def alike_in_speed(process: CheckingProcess, measurements: Measurements) -> CheckResult:
    by_device = {f"{name} GPU {index}": speed for name, speeds in measurements for index, speed in speeds.items()}
    slowest = min(by_device, key=by_device.__getitem__)
    median = statistics.median(by_device.values())
    summary = f"{by_device[slowest]:.0f} to {max(by_device.values()):.0f} TFLOP/s in BF16 on {len(by_device)} GPUs"
    for outcome, share in SLOW.items():
        if by_device[slowest] < share * median:
            mend = "look at its clocks, power and temperature (nvidia-smi -q), or leave it out"
            return CheckResult(
                outcome, f"{summary}; {slowest} has {by_device[slowest] / median:.0%} of the median", mend
            )
    peak = process.config.system.peak_tflops if process.config else None
    if peak is not None and median < EXPECTED_OF_PEAK * peak:
        return CheckResult("warning", f"{summary}, {median / peak:.0%} of the peak", "see power caps and --accelerator")
    return CheckResult("ok", summary + (f", {median / peak:.0%} of the peak" if peak else ""))


DEVICE_CHECKS = (
    PreflightCheck("devices", "fewer devices than the topology takes", "process", present, as_the_system_says),
    PreflightCheck("device memory", "running out of it beside another job", "process", memory_free, needs=GPU),
    PreflightCheck("device health", "wrong numbers, or a crash within hours", "node", health, needs=GPU),
    PreflightCheck("products", "wrong numbers", "process", right_products),
    PreflightCheck("speed", "one slow GPU that slows all", "process", speeds, alike_in_speed, needs=GPU),
)
