"""A GPU that does not exist: tensors without memory that say ``cuda``, and the parts of ``torch.cuda`` that training
uses.

Tensors of the device are PyTorch's meta tensors, which have shapes and no values and need no driver. Python code writes
and reads ``cuda`` all the same: a function mode renames devices on their way into PyTorch, properties of tensors rename
them on their way out. Tensors on the host are real. All uses of PyTorch's private interfaces for this purpose are in
this folder and in fake_world.py (docs/facts/torch_distributed.md 5).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo  # which the meshes of PyTorch 2.15 import; it asks torch.cuda, before that answers by our rules
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FakeWork
from torch.overrides import TorchFunctionMode

from benchmark.planning.fake_device.device_rules import GPU, DeviceRules, UnknownQuestion
from benchmark.planning.fake_device.fake_streams import FakeStream, StreamOrder

Capability = tuple[int, int]
"""CUDA's compute capability."""
META = torch.device("meta")
_aten: Any = torch.ops.aten
PRODUCTS_INTO_OTHER_PRECISION: dict[Any, tuple[int, int]] = {
    _aten.mm.dtype: (0, 1),
    _aten.mm.dtype_out: (0, 1),
    _aten.addmm.dtype: (1, 2),
    _aten.addmm.dtype_out: (1, 2),
}
"""Matrix products that only CUDA has, and the positions of the arguments that are multiplied."""
is_on_meta: Callable[[Tensor], bool] = vars(torch._C.TensorBase)["is_meta"].__get__
"""Return whether C++ has the tensor on the meta device, which Python code does not see."""
_cpp_device: Callable[[Tensor], torch.device] = vars(torch._C.TensorBase)["device"].__get__


def _renamed(argument: Any) -> Any:
    """Return the argument with ``cuda`` replaced by the device that C++ is to see; other arguments are unchanged."""
    kind = type(argument)
    if kind is torch.device:
        return META if argument.type == "cuda" else argument
    return META if kind is str and argument.startswith("cuda") else argument


class DeviceNames(TorchFunctionMode):
    """A function mode that renames devices in arguments, and answers C++'s questions to a driver."""

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
            Tensor.cuda: lambda tensor, *_, non_blocking=False: tensor.to(META, non_blocking=non_blocking),
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
        result = function(
            *map(_renamed, args), **{name: _renamed(value) for name, value in kwargs.items() if name != "pin_memory"}
        )
        return self._pin(result) if pin else result

    def pinned(self, tensor: Tensor) -> bool:
        """Return whether the device copies the tensor without the host."""
        return tensor.untyped_storage()._cdata in self._pinned

    def _pin(self, tensor: Tensor, *_: Any) -> Tensor:
        copy = tensor.clone()
        storage = copy.untyped_storage()
        self._pinned[storage._cdata] = storage
        return copy

    def _tensor(self, data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
        """Make the tensor on the host and copy it to the device, as on a real GPU."""
        with torch._C.DisableTorchFunction():
            tensor = torch.tensor(data, dtype=dtype, **options)
        return tensor if device is None else tensor.to(_renamed(device))

    def _as_tensor(self, data: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
        if isinstance(data, Tensor):
            return data.to(_renamed(device or data.device), dtype or data.dtype)
        return self._tensor(data, dtype=dtype, device=device)


class FakeGpu:
    """One fake device. Its ``order`` keeps its streams; its ``rules`` find code that a real GPU would refuse."""

    def __init__(self) -> None:
        self.names = DeviceNames()
        self.rules = DeviceRules(self.names.pinned)
        self.order, self.stream = StreamOrder(), FakeStream()
        self._in_operator = False

    def device(self, tensor: Tensor) -> torch.device:
        """Return the device that Python code sees; operators that PyTorch implements in Python see C++'s device."""
        device = _cpp_device(tensor)
        return GPU if device.type == "meta" and not self._in_operator else device

    def run(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the operator on tensors without values; a tensor copied to the host is filled with ones."""
        if function is _aten.copy_.default and is_on_meta(args[1]) and not is_on_meta(args[0]):
            return args[0].fill_(1)
        if function is _aten._to_copy.default and is_on_meta(args[0]) and kwargs.get("device", META).type == "cpu":
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if function in PRODUCTS_INTO_OTHER_PRECISION:
            return _product(function, args, kwargs)
        self._in_operator = True
        try:
            return function(*args, **kwargs)
        finally:
            self._in_operator = False


def _product(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    first, second = (args[position] for position in PRODUCTS_INTO_OTHER_PRECISION[function])
    out: Tensor | None = kwargs.get("out")
    shape = (first.shape[0], second.shape[1])
    if first.dtype != second.dtype or first.shape[1] != second.shape[0] or (out is not None and out.shape != shape):
        raise RuntimeError(f"{function}: {first.shape} x {second.shape} into {shape if out is None else out.shape}")
    if out is not None:
        return out
    dtype = next(argument for argument in (*args, *kwargs.values()) if isinstance(argument, torch.dtype))
    return torch.empty(shape, dtype=dtype, device=META)


def _rms_norm(x: Tensor, shape: Sequence[int], gain: Tensor | None, epsilon: float | None) -> tuple[Tensor, Tensor]:
    """CUDA has one kernel for it; on the meta device PyTorch would take it apart."""
    return torch.empty_like(x), torch.empty((*x.shape[: -len(shape)], *[1] * len(shape)), device=META)


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


def _questions() -> list[str]:
    """Return the names of the public functions of ``torch.cuda``, and of the classes that begin work on a device."""
    public = {name: getattr(torch.cuda, name) for name in torch.cuda.__all__}
    return [name for name, value in public.items() if isinstance(value, FunctionType) or name in ("Stream", "Event")]


def _refusal(question: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UnknownQuestion(f"torch.cuda.{question}")

    return refuse


@contextmanager
def fake_gpu(*, devices: int, capability: Capability, memory_bytes: int, name: str) -> Iterator[FakeGpu]:
    """Make ``torch.cuda`` report ``devices`` GPUs of this kind. A function of ``torch.cuda`` that has no answer here
    raises UnknownQuestion."""
    gpu = FakeGpu()
    order, wait, to_list = gpu.order, gpu.rules.add_wait, Tensor.tolist
    properties = SimpleNamespace(
        name=name, major=capability[0], minor=capability[1], total_memory=memory_bytes, multi_processor_count=0
    )

    def values(tensor: Tensor) -> Any:
        """Return ones in the tensor's shape, and note one wait for the device."""
        if not is_on_meta(tensor):
            return to_list(tensor)
        wait(".tolist()")
        return torch.ones(tensor.shape).tolist()

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_: capability >= (8, 0),
        "device_count": lambda: devices,
        "current_device": lambda: 0,
        "set_device": lambda _: None,
        "get_device_name": lambda *_: name,
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: properties,
        "synchronize": lambda *_: wait("torch.cuda.synchronize"),
        "is_current_stream_capturing": lambda: False,
        "current_stream": lambda *_: gpu.stream,
    }
    in_cuda: dict[str, Any] = {question: answers.get(question) or _refusal(question) for question in _questions()}
    in_tensors: dict[str, Any] = {
        "device": property(gpu.device),
        "is_cuda": property(lambda tensor: gpu.device(tensor).type == "cuda"),
        "is_meta": property(lambda tensor: gpu.device(tensor).type == "meta"),
        "tolist": values,
    }
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(torch.cuda, **in_cuda))
        stack.enter_context(patch.multiple(Tensor, create=True, **in_tensors))
        stack.enter_context(patch.object(torch.accelerator, "current_stream", lambda *_: gpu.stream))
        for owner, attribute in _WAITS:
            if hasattr(owner, attribute):
                stack.enter_context(patch.object(owner, attribute, _waiting(order, getattr(owner, attribute))))
        for attribute in _LAUNCHES & set(dir(dist.ProcessGroup)):
            launch = getattr(dist.ProcessGroup, attribute)
            stack.enter_context(patch.object(dist.ProcessGroup, attribute, _launching(order, launch)))
        own_kernels = stack.enter_context(torch.library._scoped_library("aten", "IMPL"))
        own_kernels.m.impl("_fused_rms_norm", "Meta", _rms_norm, False)  # its own ``impl`` refuses it
        stack.enter_context(gpu.names)
        yield gpu
