"""Tensors on a GPU that is not there, and the parts of ``torch.cuda`` that training uses.

PyTorch's fake tensors have shapes and no values, and know the device they pretend to be on. Most of PyTorch's C++ code
takes such a tensor for one of the device and asks its driver, which a build for CPUs does not have and a machine
without a GPU cannot answer (autograd does so for every gradient). So C++ is told another device, ``AS_SEEN_BY_CPP``,
which needs no driver and which nothing else uses; Python code reads and writes ``cuda``. There are two translations:
names of devices on their way into PyTorch, by a function mode (here), and on their way to the fake tensors, by the fake
mode (fake_gpu_tensors.py).

What it needs of PyTorch beyond its public interface is here, in fake_gpu_tensors.py, remembered_results.py and
fake_world.py (docs/facts/torch_distributed.md 5).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FakeWork
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from benchmark.planning.fake.fake_gpu_tensors import FakeGpuTensors
from benchmark.planning.fake.fake_streams import FakeEvent, FakeStream, StreamOrder
from benchmark.planning.fake.host_waits import AS_SEEN_BY_CPP, GPU, DeviceRules, HostWaits

Capability = tuple[int, int]
"""CUDA's compute capability."""


def _renamed(argument: Any) -> Any:
    """``cuda`` as C++ is to see it; whatever else as it is."""
    if isinstance(argument, torch.device):
        return AS_SEEN_BY_CPP if argument.type == "cuda" else argument
    return AS_SEEN_BY_CPP if isinstance(argument, str) and argument.startswith("cuda") else argument


class DeviceNames(TorchFunctionMode):
    """Renames devices in arguments, and takes the place of what C++ would ask a driver for."""

    def __init__(self) -> None:
        super().__init__()
        self._pinned: dict[int, torch.UntypedStorage] = {}
        self._instead: dict[Any, Callable[..., Any]] = {
            torch.device: torch.device,
            torch.tensor: self._tensor,
            torch.as_tensor: self._as_tensor,
            Tensor.pin_memory: self._pin,
            Tensor.is_pinned: lambda tensor, *_: self.pinned(tensor),
            Tensor.record_stream: lambda *_: None,
            Tensor.cuda: lambda tensor, *_, non_blocking=False: tensor.to(AS_SEEN_BY_CPP, non_blocking=non_blocking),
        }

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        instead = self._instead.get(function)
        if instead is not None:
            return instead(*args, **(kwargs or {}))
        if not kwargs:
            return function(*map(_renamed, args))
        pin = bool(kwargs.get("pin_memory", False))
        made = function(
            *map(_renamed, args), **{name: _renamed(value) for name, value in kwargs.items() if name != "pin_memory"}
        )
        return self._pin(made) if pin else made

    def pinned(self, tensor: Tensor) -> bool:
        """Whether the device copies it without the host."""
        return tensor.untyped_storage()._cdata in self._pinned

    def _pin(self, tensor: Tensor, *_: Any) -> Tensor:
        copy = tensor.clone()
        storage = copy.untyped_storage()
        self._pinned[storage._cdata] = storage
        return copy

    def _tensor(self, data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
        """Made on the host and copied, as it is on a real one."""
        with torch._C.DisableTorchFunction():
            tensor = torch.tensor(data, dtype=dtype, **options)
        return tensor if device is None else tensor.to(_renamed(device))

    def _as_tensor(self, data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
        if isinstance(data, Tensor):
            return data.to(_renamed(device or data.device), dtype or data.dtype)
        return self._tensor(data, dtype=dtype, device=device)


@contextmanager
def replaced(owner: Any, attribute: str, value: Any) -> Iterator[None]:
    """``owner.attribute`` is ``value`` for a while."""
    before = vars(owner).get(attribute)
    setattr(owner, attribute, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, before)


_LAUNCHES = {
    *("allreduce", "allgather", "_allgather_base", "all_gather_single", "reduce_scatter"),
    *("_reduce_scatter_base", "reduce_scatter_single", "broadcast", "reduce", "send", "recv", "alltoall_base"),
}
"""Methods of a process group that return a handle."""
_WAITS = ((FakeWork, "wait"), (dist.Work, "wait"), (dist.Work, "synchronize"), (dist.Work, "block_current_stream"))


def _launching(order: StreamOrder, method: Callable[..., Any]) -> Callable[..., Any]:
    def launch(group: dist.ProcessGroup, *args: Any, **kwargs: Any) -> Any:
        work = method(group, *args, **kwargs)
        order.handed_out(work)
        return work

    return launch


def _waiting(order: StreamOrder, method: Callable[..., Any]) -> Callable[..., Any]:
    def wait(work: dist.Work, *args: Any, **kwargs: Any) -> Any:
        order.wait_for(work)
        return method(work, *args, **kwargs)

    return wait


def _device(tensor: Tensor) -> torch.device:
    if isinstance(tensor, FakeTensor) and not tensor.fake_mode.in_kernel_invocation:
        return tensor.fake_device  # C++ would ask for it by way of all modes
    device: torch.device = torch._C.TensorBase.device.__get__(tensor)
    return GPU if device == AS_SEEN_BY_CPP else device


class FakeGpu:
    """One device. ``tensors``: the mode in which tensors have shapes and no values; ``waits``: the host's for it."""

    def __init__(self) -> None:
        self.waits = HostWaits()
        self.order = StreamOrder(self.waits.add)
        self.names = DeviceNames()
        self.rules = DeviceRules(self.waits, self.names.pinned)
        self.tensors = FakeGpuTensors()


@contextmanager
def fake_gpu(*, devices: int, capability: Capability, memory_bytes: int, name: str) -> Iterator[FakeGpu]:
    """``torch.cuda`` says that there are ``devices`` of the kind, and its streams and events remember their order."""
    gpu = FakeGpu()
    order, waits = gpu.order, gpu.waits
    properties = SimpleNamespace(
        name=name, major=capability[0], minor=capability[1], total_memory=memory_bytes, multi_processor_count=0
    )

    def stream(entered: FakeStream | None) -> AbstractContextManager[Any]:
        return entered if entered is not None else ExitStack()

    def values(tensor: Tensor) -> Any:
        """Ones. A fake tensor asks for one value after the other; a device is waited for once."""
        if tensor.device.type == "cuda":
            waits.add(".tolist()")
        return np.ones(tensor.shape).tolist()

    in_cuda = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_: capability >= (8, 0),
        "init": lambda: None,
        "device_count": lambda: devices,
        "current_device": lambda: 0,
        "set_device": lambda _: None,
        "get_device_name": lambda *_: name,
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: properties,
        "synchronize": lambda *_: waits.add("torch.cuda.synchronize"),
        "empty_cache": lambda: None,
        "max_memory_allocated": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
        "reset_peak_memory_stats": lambda *_: None,
        "is_current_stream_capturing": lambda: False,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_: None,
        "Stream": lambda *_, **__: order.new_stream(),
        "Event": lambda *_, **__: FakeEvent(order),
        "current_stream": lambda *_: order.current,
        "default_stream": lambda *_: order.compute,
        "set_stream": order.set_current,
        "stream": stream,
    }
    with ExitStack() as stack:
        for attribute, value in in_cuda.items():
            stack.enter_context(replaced(torch.cuda, attribute, value))
        for attribute, reader in _TENSOR_READERS.items():
            stack.enter_context(replaced(Tensor, attribute, property(reader)))
        for owner, attribute in _WAITS:
            stack.enter_context(replaced(owner, attribute, _waiting(order, getattr(owner, attribute))))
        for attribute in _LAUNCHES & set(dir(dist.ProcessGroup)):
            launch = getattr(dist.ProcessGroup, attribute)
            stack.enter_context(replaced(dist.ProcessGroup, attribute, _launching(order, launch)))
        stack.enter_context(replaced(FakeTensor, "tolist", values))
        stack.enter_context(replaced(torch.accelerator, "current_stream", lambda *_: order.current))
        stack.enter_context(replaced(fake_tensor, "init_gpu_context", lambda _: None))
        stack.enter_context(gpu.names)
        yield gpu


_TENSOR_READERS: dict[str, Callable[[Tensor], Any]] = {
    "device": _device,
    "is_cuda": lambda tensor: tensor.device.type == "cuda",
    "is_meta": lambda tensor: tensor.device.type == "meta",
}
