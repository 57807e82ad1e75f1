"""Ask for this machine's devices, and find by dry run how many layers one of them holds."""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from benchmark.config.accelerators import accelerator_named
from benchmark.planning.dry_run.dry_run import RESERVE, dry_run
from benchmark.planning.dry_run.rank_report import RankReport
from benchmark.planning.slice.slice_config import SliceOptions, slice_config
from benchmark.training.engine.forked_ranks import fork_server
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
    """Number of devices; one CPU stands for as many processes as are wanted."""
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
    if device == "cpu":
        return DeviceFacts("cpu", os.cpu_count() or 1, available_memory_bytes())
    with ProcessPoolExecutor(1, mp_context=fork_server()) as pool:
        found = pool.submit(_gpu_facts).result()
    if isinstance(found, str):
        raise InputError(f"device cuda: {found}, or measure something small on this machine's CPU: {on_cpu}")
    return found


def _gpu_facts() -> DeviceFacts | str:
    """Return the facts, or the reason why there are none."""
    if torch.version.cuda is None:
        return f"PyTorch was built without CUDA (version {torch.__version__}); install its CUDA build"
    if not torch.cuda.is_available():
        return f"PyTorch sees no CUDA device (version {torch.__version__}); mend the driver"
    free, _ = torch.cuda.mem_get_info(0)
    return DeviceFacts(torch.cuda.get_device_name(0), torch.cuda.device_count(), free)


def available_memory_bytes() -> int:
    """Return the memory in bytes that Linux says it can still give to processes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


@cache
def counted_memory(options: SliceOptions, facts: DeviceFacts, layers: int) -> list[RankReport]:
    """Return the dry run's reports, one for each kind of rank. This takes some seconds."""
    return list(dry_run(slice_config(options, layers, facts.accelerator)).reports)


def fullest_bytes(options: SliceOptions, facts: DeviceFacts, layers: int) -> int:
    """Return the peak bytes of the fullest rank."""
    return max(one.peak_bytes for one in counted_memory(options, facts, layers))


def budget_bytes(options: SliceOptions, facts: DeviceFacts) -> int:
    """Return the bytes that a device has for the slice; CPU processes share one memory."""
    share = facts.memory_bytes if options.device == "cuda" else facts.memory_bytes // options.devices
    return round(share * (1 - RESERVE))


def chosen_layers(options: SliceOptions, facts: DeviceFacts) -> int:
    """Return the layers that were asked for, or as many as fit.

    Raises InputError if the layers asked for do not fit, with the number that does.
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


def largest_fitting(options: SliceOptions, facts: DeviceFacts, most: int) -> int:
    """Return the largest number of layers that fits, at most ``most``, equal on all devices; 0 if not even the fewest
    fit.

    The number is guessed from the memory of one more layer on each device, then checked by dry run.
    """
    budget, least, stages = budget_bytes(options, facts), options.least_layers, options.pipeline_parallel
    first = fullest_bytes(options, facts, least)
    if first > budget:
        return 0
    more = max(1, fullest_bytes(options, facts, least + stages) - first)
    layers = least + min((budget - first) // more, (most - least) // stages) * stages
    while layers > least and fullest_bytes(options, facts, layers) > budget:
        layers -= stages
    return layers
