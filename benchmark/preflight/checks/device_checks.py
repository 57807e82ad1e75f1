"""Checks of the devices: number, kind, memory, health, right results, speed."""

import os
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmark.config.accelerators import ACCELERATORS
from benchmark.machine.gpus import DeviceReading, all_gpus
from benchmark.preflight.checks.preflight_check import CheckResult, Measured, Outcome, Place
from stage.errors import InputError

OTHERS_GB = 3.0
"""Memory in use on a device that is still its driver and this process's own context."""
SIZE = {"cuda": 8192, "cpu": 512}
SECONDS = 1.0
SLOW: dict[Outcome, float] = {"FAILED": 0.90, "warning": 0.95}
"""Of the median: one device that is 5 % slow slows the whole run by as much (docs/facts/peers.md 1.5, BLOOM)."""
EXPECTED_OF_PEAK = 0.6
"""Large products reach 0.80 of the data sheet on H100 and H200 (docs/facts/peers.md 1.0); much less is a power cap."""


def present(place: Place) -> dict[str, Any]:
    """Devices this process sees, their memory in GB, its machine, and whether it was given one of its own."""
    if place.kind == "cpu":
        return {"names": ["CPU core"] * len(os.sched_getaffinity(0)), "machine": socket.gethostname()}
    count = torch.cuda.device_count()
    memory = [torch.cuda.get_device_properties(index).total_memory / 1e9 for index in range(count)]
    own = place.world is not None and place.environment.visible_gpus == count == 1
    names = [torch.cuda.get_device_name(index) for index in range(count)]
    return {"names": names, "memory_gb": memory, "machine": socket.gethostname(), "own": own}


def by_machine(measured: Measured) -> Measured:
    """What each machine has: all that its first process sees, or the sum where each sees one of its own."""
    machines: dict[str, tuple[str, Any]] = {}
    for name, found in measured:
        machine = found.get("machine", name)
        if machine not in machines:
            machines[machine] = (name, found)
        elif found.get("own"):
            first, sum_ = machines[machine]
            both = {key: [*sum_[key], *found[key]] for key in ("names", "memory_gb")}
            machines[machine] = (first, {**sum_, **both})
    return list(machines.values())


def as_the_system_says(place: Place, measured: Measured) -> CheckResult:
    """As many devices as the system has on each machine, all alike, and those in its table."""
    system = place.config.system if place.config else None
    what = "GPUs" if place.kind == "cuda" else "cores"
    measured = by_machine(measured)
    for name, found in measured:
        count = len(found["names"])
        if count == 0 or (system and count < system.devices_per_node):
            due = f"; system {system.name} has {system.devices_per_node}" if system else ""
            mend = "mend the driver, or --devices-per-node" if what == "GPUs" else "--system cpu_p1"
            return CheckResult("FAILED", f"{name}: {count} {what}{due}", mend)
    models = sorted({model for _, found in measured for model in found["names"]})
    if len(models) > 1:
        return CheckResult("FAILED", f"different models: {', '.join(models)}", "use nodes of one kind")
    counts = sorted({len(found["names"]) for _, found in measured})
    machines = f" on each of {len(measured)} machines" if len(measured) > 1 else ""
    shown = f"{' or '.join(map(str, counts))} x {models[0]}{machines}"
    if system and system.accelerator and what == "GPUs":
        listed = ACCELERATORS[system.accelerator].memory_gb or 0
        least = min(gb for _, found in measured for gb in found["memory_gb"])
        if system.accelerator.replace("-", " ").split()[0] not in models[0] or least < 0.9 * listed:
            mend = f"choose another --system, or --accelerator, one of {', '.join(ACCELERATORS)}"
            return CheckResult("warning", f"{shown} of {least:.0f} GB, but the system's is {system.accelerator}", mend)
    if system and what == "GPUs" and counts[-1] > system.devices_per_node:
        return CheckResult(
            "warning", f"{shown}, of which {system.devices_per_node} would be used", "--devices-per-node"
        )
    return CheckResult("ok", shown)


def memory_free(place: Place) -> CheckResult:
    """Whether nobody else holds memory of the devices."""
    taken = []
    for device in place.devices:
        free, total = torch.cuda.mem_get_info(device)
        if (total - free) / 1e9 > OTHERS_GB:
            taken.append(f"GPU {device.index} has {(total - free) / 1e9:.1f} of {total / 1e9:.0f} GB in use")
    if taken:
        return CheckResult("FAILED", ", ".join(taken), "end the processes that nvidia-smi shows")
    return CheckResult("ok", f"less than {OTHERS_GB:g} GB of each is in use")


def health(_: Place) -> CheckResult:
    """The memory of each GPU of this machine; a warning where nobody tells."""
    try:
        return judge_health([gpu.read() for gpu in all_gpus()])
    except InputError as error:
        return CheckResult("warning", str(error), "see that nvidia-ml-py and the driver are in the image")


def judge_health(readings: Sequence[DeviceReading]) -> CheckResult:
    """Judge the memory of each GPU; what a GPU does not say is no fault."""
    bad = [
        f"GPU {number}: {what}"
        for number, one in enumerate(readings)
        for what, count in (
            (f"{one.uncorrected:.0f} uncorrected memory errors", one.uncorrected),
            ("rows of its memory wait to be replaced", one.remap_pending),
            ("rows of its memory could not be replaced", one.remap_failed),
        )
        if count > 0
    ]
    if bad:
        return CheckResult("FAILED", ", ".join(bad), "drain the node and reset the GPU")
    return CheckResult("ok", f"{len(readings)} GPUs without uncorrected errors or pending repairs")


def right_products(place: Place) -> CheckResult:
    """A BF16 product of small integers is exact in any order of summation, so each number must be right."""
    size, generator = SIZE[place.kind], torch.Generator().manual_seed(1)
    left, right = (_sparse_integers(size, generator) for _ in range(2))
    vector = torch.randint(-1000, 1000, (size,), generator=generator).double()
    expected = left.double() @ (right.double() @ vector)
    for device in place.devices:
        product = (left.to(device) @ right.to(device)).cpu()
        if not torch.equal(product.double() @ vector, expected):
            return CheckResult("FAILED", f"{device}: a BF16 product of {size} x {size} is wrong", "drain the node")
    return CheckResult("ok", f"BF16, {size} x {size}, exact")


def _sparse_integers(size: int, generator: torch.Generator) -> torch.Tensor:
    """Of -1, 0 and 1, mostly 0: no partial sum of a product leaves the integers that BF16 holds, up to 256."""
    numbers = torch.randint(0, 32, (size, size), generator=generator)
    return ((numbers == 0).to(torch.int8) - (numbers == 1).to(torch.int8)).bfloat16()


def speeds(place: Place) -> Mapping[int, float]:
    """Return TFLOP/s of each GPU in products of random numbers, which draw more power than zeros do."""
    return {device.index: _tflops(device, SIZE["cuda"]) for device in place.devices}


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


def alike_in_speed(place: Place, measured: Measured) -> CheckResult:
    by_device = {f"{name} GPU {index}": speed for name, found in measured for index, speed in found.items()}
    slowest = min(by_device, key=by_device.__getitem__)
    median = statistics.median(by_device.values())
    shown = f"{by_device[slowest]:.0f} to {max(by_device.values()):.0f} TFLOP/s in BF16 on {len(by_device)} GPUs"
    for outcome, share in SLOW.items():
        if by_device[slowest] < share * median:
            mend = "look at its clocks, power and temperature (nvidia-smi -q), or leave it out"
            return CheckResult(outcome, f"{shown}; {slowest} has {by_device[slowest] / median:.0%} of the median", mend)
    peak = place.config.system.peak_tflops if place.config else None
    if peak is not None and median < EXPECTED_OF_PEAK * peak:
        return CheckResult("warning", f"{shown}, {median / peak:.0%} of the peak", "see power caps and --accelerator")
    return CheckResult("ok", shown + (f", {median / peak:.0%} of the peak" if peak else ""))
