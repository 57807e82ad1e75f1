"""What a run needs of the device beside kernels: copies, messages, and what looks on.

As in kernel_features.py: a function tries one thing on a device and returns what it found.
"""

import json
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmark.config.system_config import System
from benchmark.debugging.collective_trace import recorder_environment, trace
from benchmark.debugging.memory_snapshot import MOST_ENTRIES
from benchmark.machine.gpu_health import own_gpu
from benchmark.machine.repeatability import use_deterministic_kernels
from benchmark.preflight.first_contact.kernel_features import FeatureWrong, numbers
from benchmark.preflight.slice_run.device_rates import synchronize
from benchmark.training.engine.distributed import Environment, joined_world, pci_address, set_environment
from model.passes.attention import attend
from model.passes.part_parameters import gather_all, scatter_all, sum_all

COPIED = {"cuda": 256 << 20, "cpu": 1 << 20}
"""Bytes."""


def context(device: torch.device) -> str:
    """A kernel, and its result on the host."""
    if (torch.ones(1, device=device) + 1).item() != 2:
        raise FeatureWrong("1 + 1 is not 2")
    if device.type != "cuda":
        return "a CPU"
    properties, (free, total) = torch.cuda.get_device_properties(device), torch.cuda.mem_get_info(device)
    return (
        f"{properties.name}, compute capability {properties.major}.{properties.minor}, "
        f"{properties.multi_processor_count} multiprocessors, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free, at "
        f"{pci_address(device) or 'an unknown address'}"
    )


def copies(device: torch.device) -> str:
    """To the device and back by way of pinned memory."""
    values = torch.arange(COPIED[device.type] // 4, dtype=torch.int32)
    there = values.pin_memory() if device.type == "cuda" else values
    back = torch.empty_like(values, pin_memory=device.type == "cuda")
    started = time.perf_counter()
    on = there.to(device, non_blocking=True)
    synchronize(device)
    arrived = time.perf_counter()
    back.copy_(on, non_blocking=True)
    synchronize(device)
    ended = time.perf_counter()
    if not torch.equal(back, values):
        raise FeatureWrong("what came back is not what was sent")
    size = COPIED[device.type] / 1e9
    return f"{size / (arrived - started):.1f} GB/s to the device, {size / (ended - arrived):.1f} GB/s back"


def messages(device: torch.device) -> str:
    """NCCL as a run begins it: a world of one process, messages of many tensors, a second group of gloo, and the
    recorder of collectives."""
    with tempfile.TemporaryDirectory() as folder:
        if device.type == "cuda":
            set_environment(recorder_environment(Path(folder)))
        system = System(name="one", device=device.type, nodes=1, devices_per_node=1, micro_batch_size=1)  # type: ignore[arg-type]
        with joined_world(system, Environment(0, 1, device.index or 0, visible_gpus=1)) as world:
            group = world.mesh["shard"].get_group()
            whole, part = torch.zeros(4, device=device), torch.full((4,), 3.0, device=device)
            gather_all([(whole, part)], group).wait()
            scatter_all([(part, whole)], group).wait()
            sum_all([part, whole], group).wait()
            if part.tolist() != [3.0] * 4 or whole.tolist() != [3.0] * 4 or world.from_rank_0(7) != 7:
                raise FeatureWrong("a message of one process to itself is not what was sent")
            world.barrier()
            hosts: list[object] = [None]
            dist.all_gather_object(hosts, world.host, group=dist.new_group(backend="gloo"))
            recorded = json.loads(trace() or b"{}").get("entries", [])
    version = ".".join(map(str, torch.cuda.nccl.version())) if device.type == "cuda" else "gloo"  # type: ignore[no-untyped-call]
    return f"{version}; the recorder has {len(recorded)} collectives"


def profiler(device: torch.device) -> str:
    activities = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activities.CUDA if device.type == "cuda" else activities.CPU]) as profile:
        torch.ones(1000, device=device).add_(1)
        synchronize(device)
    names = [one.key for one in profile.key_averages()]
    if not names:
        raise FeatureWrong("it recorded nothing: CUPTI is missing, or not allowed to this user")
    return f"{len(names)} names, such as {names[0][:60]}"


def device_health(device: torch.device) -> str:
    """NVML."""
    reading = own_gpu(device).read()
    if not reading.is_known():
        raise FeatureWrong("NVML tells nothing of this device")
    return reading.line()


def memory_history(device: torch.device) -> str:
    """What --memory-snapshot remembers."""
    torch.cuda.memory._record_memory_history(max_entries=MOST_ENTRIES, stacks="python")
    torch.ones(1000, device=device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.pickle"
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
        size = path.stat().st_size
    torch.cuda.memory._record_memory_history(enabled=None)
    attached = hasattr(torch._C, "_cuda_attach_out_of_memory_observer")
    if not attached:
        raise FeatureWrong("PyTorch has no observer for running out of memory")
    return f"a snapshot of {size:,} bytes"


def repeatable(device: torch.device) -> str:
    """Attention's backward pass and sums of rows, twice, by kernels that repeat to the bit (--deterministic)."""
    set_environment({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    use_deterministic_kernels()
    qkv, gradient = (numbers(512, size, dtype=torch.bfloat16).to(device) for size in (2 * 3 * 128, 2 * 128))
    rows = torch.arange(512, device=device) % 16
    found = []
    for _ in range(2):
        backward = attend(qkv, 1, 2).backward(gradient)
        sums = torch.zeros(16, backward.shape[1], device=device).index_add_(0, rows, backward.float())
        found.append((backward, sums))
    if not all(torch.equal(one, other) for one, other in zip(*found, strict=True)):
        raise FeatureWrong("the same kernels gave other bits the second time")
    return "the same bits twice"
