"""Ask for this machine's devices, and count by dry run how many layers one of them holds."""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from benchmark.config.accelerators import RESERVE, accelerator_named
from benchmark.planning.dry_run.dry_run import dry_run
from benchmark.planning.dry_run.rank_report import RankReport
from benchmark.planning.slice.gpu_presence import require_gpu
from benchmark.planning.slice.slice_config import SliceOptions, slice_config
from benchmark.training.machine.forked_ranks import fork_server
from foundation.errors import InputError

NOT_EVEN = {
    "cuda": "not even the fewest fit: raise --tensor-parallel, lower --micro-batch-size or choose --recompute full",
    "cpu": "not even the fewest fit: give a smaller --hidden-size, and --seq-length",
}


@dataclass(frozen=True)
class DeviceFacts:
    """Facts about the devices of a machine, which are assumed to be alike."""

    name: str
    """Name from the driver; "cpu" for a CPU."""
    count: int
    """Number of devices; one CPU stands for any number of processes."""
    memory_bytes: int
    """Free bytes of one device; on a CPU, of all processes together."""

    @property
    def accelerator(self) -> str:
        """Return the name in the table of accelerators; empty if it is not listed."""
        return accelerator_named(self.name) or ""


def device_facts(device: str, on_cpu: str = "--device cpu") -> DeviceFacts:
    """Return the facts, asked for in a process of its own, so that all GPU memory stays free for those that measure.

    The words ``on_cpu`` name the options for a machine without a GPU. Raises InputError if PyTorch sees no GPU.
    """
    require_gpu(device, on_cpu)
    if device == "cpu":
        return DeviceFacts("cpu", os.cpu_count() or 1, available_memory_bytes())
    with ProcessPoolExecutor(1, mp_context=fork_server()) as pool:
        facts = pool.submit(_gpu_facts).result()
    if isinstance(facts, str):
        raise InputError(f"device cuda: {facts}, or measure something small on this machine's CPU: {on_cpu}")
    return facts


def _gpu_facts() -> DeviceFacts | str:
    """Return the facts, or the reason why there are none."""
    if not torch.cuda.is_available():
        return f"PyTorch sees no CUDA device (version {torch.__version__}); mend the driver"
    free, _ = torch.cuda.mem_get_info(0)
    return DeviceFacts(torch.cuda.get_device_name(0), torch.cuda.device_count(), free)


def available_memory_bytes() -> int:
    """Return the memory in bytes that Linux can still give to processes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


@cache
def counted_memory(options: SliceOptions, facts: DeviceFacts, layers: int) -> list[RankReport]:
    """Return the dry run's reports, one for each kind of rank. This takes some seconds."""
    config = slice_config(options, layers, facts.accelerator)
    return list(dry_run(config.benchmark, config.system, config.precision).reports)


def fullest_bytes(options: SliceOptions, facts: DeviceFacts, layers: int) -> int:
    """Return the peak bytes of the fullest rank."""
    return max(report.peak_bytes for report in counted_memory(options, facts, layers))


def budget_bytes(options: SliceOptions, facts: DeviceFacts) -> int:
    """Return the bytes that a device has for the slice; CPU processes share one memory."""
    share = facts.memory_bytes if options.device == "cuda" else facts.memory_bytes // options.devices
    return round(share * (1 - RESERVE))


def chosen_layers(options: SliceOptions, facts: DeviceFacts) -> int:
    """Return the layers of the options, or as many as fit.

    Raises InputError if the layers of the options do not fit, with the number that does.
    """
    budget = budget_bytes(options, facts)
    if options.layers is not None and fullest_bytes(options, facts, options.layers) <= budget:
        return options.layers
    fitting = largest_fitting(options, facts, options.layers or options.most_layers)
    if options.layers is None and fitting:
        return fitting
    layers = options.layers or options.least_layers
    raise InputError(
        f"layers {layers}: a device would hold {fullest_bytes(options, facts, layers) / 1e9:.1f} GB at the peak, "
        f"{facts.name} has {budget / 1e9:.1f} GB for it; "
        + (f"--layers {fitting} fits" if fitting else NOT_EVEN[options.device])
    )


def largest_fitting(options: SliceOptions, facts: DeviceFacts, limit: int) -> int:
    """Return the largest number of layers that fits, at most ``limit``, equal on all devices; 0 if not even the fewest
    fit.

    The number is guessed from the memory of one more layer on each device, then checked by dry run.
    """
    budget, fewest, stages = budget_bytes(options, facts), options.least_layers, options.pipeline_parallel
    base_bytes = fullest_bytes(options, facts, fewest)
    if base_bytes > budget:
        return 0
    layer_bytes = max(1, fullest_bytes(options, facts, fewest + stages) - base_bytes)
    layers = fewest + min((budget - base_bytes) // layer_bytes, (limit - fewest) // stages) * stages
    while layers > fewest and fullest_bytes(options, facts, layers) > budget:
        layers -= stages
    return layers
