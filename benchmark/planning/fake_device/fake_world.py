"""Make a world of any size in one process: its collectives send nothing, and its tensors hold nothing.

All uses of PyTorch's private interfaces for this purpose are in this file (docs/facts/torch_distributed.md 5).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.system_config import System
from benchmark.planning.fake_device.device_rules import GPU
from benchmark.planning.fake_device.fake_gpu import Capability, FakeGpu, fake_gpu
from benchmark.training.engine.distributed import World, build_mesh

CAPABILITIES: dict[str, Capability] = {"A100-80GB": (8, 0), "A100": (8, 0), "B200": (10, 0), "GB200": (10, 0)}
"""CUDA's compute capability by accelerator, from NVIDIA's table (developer.nvidia.com/cuda-gpus, from memory). All
Hopper devices, and accelerators that are not listed, have 9.0."""


class _Works:
    """Handle of several collectives that began as one message: PyTorch's fake group sends each tensor by itself."""

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def _one_by_one(*names: str) -> Callable[..., Any]:
    """Return a function that runs a collective of many tensors as one collective for each tensor, by the first method
    in ``names`` that PyTorch's fake group has."""

    def begin(group: dist.ProcessGroup, *tensors_and_options: Any) -> _Works:
        single = next(getattr(group, name) for name in names if hasattr(group, name))
        tensors = [argument for argument in tensors_and_options if isinstance(argument, list)]
        if len({tensor.dtype for tensor in itertools.chain(*tensors)}) > 1:
            raise TypeError("NCCL: the tensors of a message have one type")
        return _Works([single(*arguments) for arguments in zip(*tensors, strict=True)])

    return begin


_OF_MANY_TENSORS = {
    "allgather_into_tensor_coalesced": _one_by_one("all_gather_single", "_allgather_base"),
    "all_gather_single_coalesced": _one_by_one("all_gather_single", "_allgather_base"),
    "reduce_scatter_tensor_coalesced": _one_by_one("reduce_scatter_single", "_reduce_scatter_base"),
    "reduce_scatter_single_coalesced": _one_by_one("reduce_scatter_single", "_reduce_scatter_base"),
    "allreduce_coalesced": lambda group, tensors, *_: _Works([group.allreduce([tensor]) for tensor in tensors]),
}
"""Methods of a process group that take many tensors at once, and their replacements."""


@contextmanager
def fake_world(system: System, rank: int) -> Iterator[World]:
    """Enter the world as process ``rank`` of the system sees it. A process can do so once: PyTorch keeps the names of
    its groups.

    Its device is the system's; for a GPU enter :func:`fake_gpu_of` first.
    """
    device = torch.device("cpu") if system.device == "cpu" else GPU
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=system.num_devices)
    try:
        with ExitStack() as stack:
            for attribute in _OF_MANY_TENSORS.keys() & set(dir(dist.ProcessGroup)):
                stack.enter_context(patch.object(dist.ProcessGroup, attribute, _OF_MANY_TENSORS[attribute]))
            yield World(rank, system.num_devices, device, build_mesh(system, device.type))
    finally:
        dist.destroy_process_group()


def fake_gpu_of(system: System) -> AbstractContextManager[FakeGpu]:
    """Return the fake GPU of a system with GPUs; an accelerator that is not in the table counts as an H100."""
    accelerator = system.accelerator or "H100 SXM"
    memory_gb = ACCELERATORS[accelerator].memory_gb or 0.0
    return fake_gpu(
        devices=system.devices_per_node,
        capability=CAPABILITIES.get(accelerator, (9, 0)),
        memory_bytes=round(memory_gb * 1e9),
        name=accelerator,
    )


def fake_tensors() -> FakeTensorMode:
    """Return a mode in which tensors have shapes and no values; tensors on the meta device stay as they are."""
    return FakeTensorMode(allow_non_fake_inputs=True)
