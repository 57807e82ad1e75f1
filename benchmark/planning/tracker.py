"""What a rank would hold, compute and send, counted while the real code runs on fake tensors."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_aten: Any = torch.ops.aten
GRADIENT_SUMS = "all-reduce of gradients"
COLLECTIVES = {
    "allgather_": "all-gather",
    "_allgather_base_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter_": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "allreduce_": "all-reduce",
    "all_reduce": GRADIENT_SUMS,  # by DTensor, when FSDP adds up what tensor parallelism left on each rank
    "broadcast_": "broadcast",
    "send": "send",
}
"""Operations of PyTorch's two sets, c10d and _c10d_functional. What is received was sent by another rank."""


@dataclass
class MessageCount:
    """Messages of one kind along one axis of the mesh."""

    calls: int = 0
    bytes: int = 0
    """Of the larger side: what an all-gather puts together, a reduce-scatter begins with, the others send."""


@dataclass
class Tracker(TorchDispatchMode):
    """Counts while it is active; ``axes`` gives the axis of the mesh by the name of its process group."""

    axes: dict[str, str]
    live_bytes: int = 0
    peak_bytes: int = 0
    flops: int = 0
    """Of matrix products and attention; attention's backward pass as twice its forward pass, as everywhere."""
    traffic: dict[tuple[str, str], MessageCount] = field(default_factory=dict)
    """By kind and axis."""

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sizes: dict[int, int] = {}
        self._resize = torch.UntypedStorage.resize_

    def __enter__(self) -> "Tracker":
        tracker = self

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            """FSDP frees what it gathered by giving its storage no bytes; no operation shows it."""
            result = tracker._resize(storage, size)
            if storage._cdata in tracker._sizes:
                tracker._set(storage._cdata, size)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[assignment, method-assign]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its local operations come by again
        result = function(*args, **(kwargs or {}))
        name = function._overloadpacket.__name__
        if function.namespace in ("c10d", "_c10d_functional") and name in COLLECTIVES:
            self._count_message(COLLECTIVES[name], args, kwargs or {}, result)
        elif function in ATTENTION:
            self.flops += ATTENTION[function] * _attention_flops(*args[1:3] if ATTENTION[function] == 2 else args[:2])
        elif function._overloadpacket in flop_registry:
            self.flops += flop_registry[function._overloadpacket](*args, **(kwargs or {}), out_val=result)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and not isinstance(leaf, DTensor):
                self._see(leaf)
        return result

    def restart(self) -> None:
        """Count from here; what is live stays so."""
        self.peak_bytes, self.flops = self.live_bytes, 0
        self.traffic.clear()

    def _see(self, tensor: Tensor) -> None:
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            weakref.finalize(storage, self._forget, key)
            self._sizes[key] = 0
            self._set(key, storage.nbytes())

    def _set(self, key: int, size: int) -> None:
        self.live_bytes += size - self._sizes[key]
        self._sizes[key] = size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _forget(self, key: int) -> None:
        self.live_bytes -= self._sizes.pop(key, 0)

    def _count_message(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        sizes = [
            leaf.numel() * leaf.element_size()
            for leaf in tree_leaves((args, kwargs, result))
            if isinstance(leaf, Tensor)
        ]
        names = [_group_name(leaf) for leaf in tree_leaves((args, kwargs))]
        axis = next((self.axes[name] for name in names if name in self.axes), "all")
        traffic = self.traffic.setdefault((kind, axis), MessageCount())
        traffic.calls += 1
        traffic.bytes += max(sizes, default=0)


def _group_name(argument: Any) -> str:
    """The name of a process group, as the two sets of operations take it."""
    if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
        argument = dist.ProcessGroup.unbox(argument)
    if isinstance(argument, dist.ProcessGroup):
        return str(argument.group_name)
    return argument if isinstance(argument, str) else ""


def _attention_flops(query: Tensor, key: Tensor) -> int:
    """Of the forward pass, the whole square counted: scores and values, 2 FLOPs per product each."""
    batch, heads, queries, size = query.shape
    return 4 * batch * heads * queries * key.shape[2] * size


ATTENTION: dict[Callable[..., Any], int] = {
    _aten._scaled_dot_product_flash_attention_for_cpu.default: 1,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: 2,
}
"""Attention on a CPU, on which the fake tensors lie: forward passes it counts for."""
