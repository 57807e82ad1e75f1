"""Count the memory, computation and messages of a rank while the training code runs on fake tensors."""

import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmark.planning.fake_device.device_rules import COPIES
from benchmark.planning.fake_device.fake_gpu import FakeGpu
from benchmark.planning.fake_device.operator_costs import (
    AttentionShape,
    MatmulShape,
    OperatorKind,
    attention_shape,
    bytes_moved,
    kind_of,
    matmul_shape,
    plain_name,
    tensors_in,
)
from benchmark.planning.fake_device.remembered_results import Question, ResultRecipe, question_of, remembered
from model.fused_kernel import FusedKernel

_aten: Any = torch.ops.aten
COLLECTIVES = {
    "allgather_": "all-gather",
    "_allgather_base_": "all-gather",
    "all_gather_single_": "all-gather",
    "reduce_scatter_": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_single_": "reduce-scatter",
    "allreduce_": "all-reduce",
    "broadcast_": "broadcast",
    "send": "send",
    "recv_": "receive",
}
"""Operators of c10d, and the kind of message that each one is."""


@dataclass(frozen=True)
class Message:
    """A collective, or one side of a message between two ranks."""

    kind: str
    axis: str
    """Axis of the mesh, or "all"."""
    bytes: int
    """Bytes of the larger side: the result of an all-gather, the input of a reduce-scatter, the message otherwise."""


@dataclass
class OperatorCounts:
    """Counts of one or more steps."""

    matmuls: Counter[MatmulShape] = field(default_factory=Counter)
    attention: Counter[AttentionShape] = field(default_factory=Counter)
    launches: Counter[OperatorKind] = field(default_factory=Counter)
    """Operators handed to the device; nearly every operator is one kernel."""
    bytes: Counter[OperatorKind] = field(default_factory=Counter)
    """Bytes read and written by elementwise, reduction, copy and optimizer kernels."""
    messages: Counter[Message] = field(default_factory=Counter)
    alone: Counter[Message] = field(default_factory=Counter)
    """Messages with no matrix product or attention queued between call and wait, so that nothing hides them."""
    flops_beside: Counter[Message] = field(default_factory=Counter)
    """FLOPs of matrix products and attention queued between call and wait, over all calls."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Work that one operator hands to the device; its ``kind`` is None if it starts no kernel."""

    kind: OperatorKind | None = None
    shape: MatmulShape | AttentionShape | None = None
    bytes_moved: int = 0


@dataclass
class Tracker(TorchDispatchMode):
    """A dispatch mode that counts operators while it is active; ``axes`` maps names of process groups to axes of the
    mesh."""

    axes: dict[str, str]
    gpu: FakeGpu | None = None
    """GPU whose tensors are counted and whose rules hold; None counts the host's tensors and allows everything."""
    live_bytes: int = 0
    peak_bytes: int = 0
    counts: OperatorCounts = field(default_factory=OperatorCounts)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._within_kernel = False
        self._sizes: dict[int, int] = {}
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._device_type = "cpu" if self.gpu is None else "cuda"
        self._answers: dict[Question, tuple[ResultRecipe, Cost]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return True: nothing is compiled here, so nothing has to be kept from the compiler."""
        return False

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(kind is not FakeTensor and issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its local operations come by again
        kwargs = kwargs or {}
        if function.namespace == "prim":
            return function(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # whose mode would be asked about each shape and device
            if self.gpu is not None:
                return self._on_gpu(self.gpu, function, args, kwargs)
            if function is _aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
                return 1.0  # as on a GPU
        result = function(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            self._count(function, args, kwargs, tensors_in((args, kwargs)), result)
        return result

    def _on_gpu(self, gpu: FakeGpu, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function.is_view:
            return gpu.run(function, args, kwargs)
        question = question_of(function, args, kwargs)
        if question is not None:
            answer = self._answers.get(question)
            if answer is not None:
                result, tensors = answer[0]((*args, *kwargs.values()))
                for tensor in tensors:
                    self._see(tensor)
                self._add(answer[1])
                return result
        waits, tensors = len(gpu.rules.waits), tensors_in((args, kwargs))
        value = gpu.rules.value_instead(function, tensors, args, kwargs)
        if value is not None:
            return value
        result = gpu.run(function, args, kwargs)
        cost = self._count(function, args, kwargs, tensors, result)
        # the host's waits are looked for each time, and so is the pinned memory of copies between devices
        repeats = len(gpu.rules.waits) == waits and (
            function not in COPIES or len({tensor.device for tensor in tensors}) == 1
        )
        recipe = remembered((*args, *kwargs.values()), result) if repeats and question is not None else None
        if question is not None and recipe is not None:
            self._answers[question] = recipe, cost
        return result

    def run_fused(self, kernel: FusedKernel[Any, Any], arguments: Sequence[Any]) -> Any:
        """Count a fused kernel as one operator, whose function keeps no tensor between its own operators."""
        self._within_kernel = True
        try:
            result = kernel.function(*arguments)
        finally:
            self._within_kernel = False
        with torch._C.DisableTorchFunction():
            for tensor in tensors_in(result if isinstance(result, tuple) else [result]):
                self._see(tensor)
        self._add(Cost("elementwise", bytes_moved=kernel.bytes_moved(arguments, result)))
        return result

    def _count(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Sequence[Tensor], result: Any
    ) -> Cost:
        outputs = tensors_in(result)
        for tensor in outputs:
            self._see(tensor)
        cost = self._cost(function, args, kwargs, [*inputs, *outputs], result)
        self._add(cost)
        return cost

    def restart(self) -> None:
        """Reset the counts; tensors that are alive stay counted as memory."""
        self.peak_bytes, self.counts = self.live_bytes, OperatorCounts()
        if self.gpu is not None:
            self.gpu.order.forget()

    def _see(self, tensor: Tensor) -> None:
        if self._within_kernel or tensor.device.type != self._device_type:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            self._alive[key] = weakref.ref(storage, partial(self._forget, key))
            self._sizes[key] = storage.nbytes()
            self.live_bytes += self._sizes[key]
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _forget(self, key: int, _: object) -> None:
        del self._alive[key]
        self.live_bytes -= self._sizes.pop(key)

    def _cost(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Tensor], result: Any
    ) -> Cost:
        """Return the work of one operator; count its message if it is a collective."""
        kind, name = kind_of(function), plain_name(function)
        if kind is None or not any(tensor.device.type == self._device_type for tensor in tensors):
            return Cost()
        if kind == "collective":
            if name not in COLLECTIVES:
                return Cost()
            self._count_message(COLLECTIVES[name], args, kwargs, tensors)
            return Cost(kind)
        if kind == "matmul":
            return Cost(kind, matmul_shape(function, args, result))
        if kind == "attention":
            return Cost(kind, attention_shape(function, args))
        return Cost(kind, bytes_moved=bytes_moved(function, args, kwargs, result))

    def _add(self, cost: Cost) -> None:
        if cost.kind is None or self._within_kernel:
            return
        counts = self.counts
        counts.launches[cost.kind] += 1
        if isinstance(cost.shape, MatmulShape):
            counts.matmuls[cost.shape] += 1
        elif isinstance(cost.shape, AttentionShape):
            counts.attention[cost.shape] += 1
        else:
            counts.bytes[cost.kind] += cost.bytes_moved
        if self.gpu is not None and cost.shape is not None:
            self.gpu.order.queue(cost.shape.flops)

    def _count_message(
        self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Tensor]
    ) -> None:
        names = [_group_name(leaf) for leaf in (*args, *kwargs.values())]
        axis = next((self.axes[name] for name in names if name in self.axes), "all")
        size = max((tensor.numel() * tensor.element_size() for tensor in tensors), default=0)
        message = Message(kind, axis, size)
        self.counts.messages[message] += 1
        if self.gpu is not None:
            self.gpu.order.launch(partial(self._waited, self.counts, message))

    @staticmethod
    def _waited(counts: OperatorCounts, message: Message, flops: int) -> None:
        counts.alone[message] += not flops
        counts.flops_beside[message] += flops


def _group_name(argument: Any) -> str:
    """Return the name of a process group; PyTorch's two sets of collectives pass it in different forms."""
    if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
        argument = dist.ProcessGroup.unbox(argument)
    if isinstance(argument, dist.ProcessGroup):
        return str(argument.group_name)
    return argument if isinstance(argument, str) else ""
