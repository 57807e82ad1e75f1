"""Let the stand-in GPU compute: the CPU runs every operator of PyTorch on it, late, in the order of its stream.

python -m tests.stand_in_gpu.run --compute --python PYTHON -- -m benchmark train ...

The memory of the stand-in is the host's. An operator chooses and allocates its results as on a GPU, and launches
nothing. Its computation is queued in its stream (queues.h), between the copies and NCCL's messages that PyTorch queues
there itself. Streams work late and in changing order; only events order them. A result that is read before a stream was
waited for has wrong numbers each time, where a real GPU has them now and then. The same holds for memory that is reused
too early.
"""

import ctypes
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten: Any = torch.ops.aten
COMPUTE = ctypes.CFUNCTYPE(None, ctypes.c_long)
NO_KERNEL = {
    *("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "record_stream", "set_", "resize_"),
    *("_local_scalar_dense", "is_pinned", "_pin_memory", "detach", "lift_fresh", "_unsafe_view"),
}
"""Operators that compute nothing, or read results on the host."""
BY_NCCL = ("c10d",)


def product(arguments: list[Any], named: dict[str, Any]) -> Tensor:
    """``mm`` and ``addmm`` with a result in FP32."""
    *sums, left, right = [one for one in arguments if isinstance(one, Tensor)]
    out = torch.mm(left.float(), right.float())
    return out + sums[0] if sums else out


def attention(arguments: list[Any], named: dict[str, Any]) -> tuple[Tensor, Tensor]:
    q, k, v = (one.float() for one in arguments[:3])
    out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    return out, logsumexp


def attention_backward(arguments: list[Any], named: dict[str, Any]) -> Any:
    gradient, q, k, v, out, logsumexp = (one.float() for one in arguments[:6])
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(gradient, q, k, v, out, logsumexp, 0.0, True)


def efficient_backward(arguments: list[Any], named: dict[str, Any]) -> Any:
    gradient, q, k, v, _, out, logsumexp = arguments[:7]  # FP32
    short = logsumexp[..., : q.shape[2]].contiguous()
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(gradient, q, k, v, out, short, 0.0, True)


def layer_norm(arguments: list[Any], named: dict[str, Any]) -> Any:
    return aten.native_layer_norm(*tree_map(_wide, arguments))


def layer_norm_backward(arguments: list[Any], named: dict[str, Any]) -> Any:
    return aten.native_layer_norm_backward(*tree_map(_wide, arguments))


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value


OTHERWISE: dict[str, Callable[[list[Any], dict[str, Any]], Any]] = {
    "aten::mm.dtype": product,
    "aten::mm.dtype_out": product,
    "aten::addmm.dtype": product,
    "aten::addmm.dtype_out": product,
    "aten::native_layer_norm": layer_norm,
    "aten::native_layer_norm_backward": layer_norm_backward,
    "aten::_scaled_dot_product_flash_attention": attention,
    "aten::_scaled_dot_product_flash_attention_backward": attention_backward,
    "aten::_scaled_dot_product_efficient_attention": attention,
    "aten::_scaled_dot_product_efficient_attention_backward": efficient_backward,
}
"""Operators that PyTorch lacks on a CPU, or computes differently there, and their replacements."""


class Computing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._queue: Any = ctypes.CDLL(None).stand_in_compute
        self._queue.argtypes = [ctypes.c_void_p, COMPUTE, ctypes.c_long]
        self._callback = COMPUTE(self._compute)
        self._waiting: dict[int, Callable[[], None]] = {}
        self._number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if any(issubclass(kind, FakeTensor) for kind in types):  # DTensor asks for shapes by them
            return func(*args, **kwargs)
        leaves, form = tree_flatten((list(args), kwargs))
        before = [as_on_cpu(one) for one in leaves]
        out = func(*args, **kwargs)
        outputs, _ = tree_flatten(out)
        tensors = [one for one in (*leaves, *outputs) if isinstance(one, Tensor)]
        on_device = [one.is_cuda for one in tensors]
        name = func.name().split("::")[1].split(".")[0]
        if not any(on_device) or func.is_view or name in NO_KERNEL or func.namespace in BY_NCCL:
            return out
        if name in ("copy_", "_to_copy") and not all(on_device):
            source, target = (args[1], args[0]) if name == "copy_" else (args[0], out)
            assert source.dtype == target.dtype and source.stride() == target.stride(), (func, source, target)
            return out
        into = [as_on_cpu(one) for one in outputs]

        def compute() -> None:
            arguments, named = torch.utils._pytree.tree_unflatten(before, form)
            if func.name() in OTHERWISE:
                result_tree = OTHERWISE[func.name()](arguments, named)
            else:
                result_tree = func(*arguments, **named)
            for result, target in zip(tree_flatten(result_tree)[0], into, strict=False):
                if isinstance(target, Tensor) and isinstance(result, Tensor) and target.numel():
                    if target.shape != result.shape:  # padded by the kernel
                        target = target[..., : result.shape[-1]]
                    if target.data_ptr() != result.data_ptr() or target.dtype != result.dtype:
                        target.copy_(result)

        self._number += 1
        self._waiting[self._number] = compute
        self._queue(torch.cuda.current_stream().cuda_stream, self._callback, self._number)
        return out

    def _compute(self, number: int) -> None:
        try:
            with torch.no_grad():
                self._waiting.pop(number)()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(70)


def as_on_cpu(value: Any) -> Any:
    """Return the same memory as a tensor of the CPU, without a reference to it; for a device, return the CPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if not isinstance(value, Tensor) or not value.is_cuda:
        return value
    if value.numel() == 0:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    storage = value.untyped_storage()
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    bytes_ = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=value.dtype).set_(bytes_, value.storage_offset(), value.shape, value.stride())


def main() -> None:
    """Run ``python -m MODULE ...`` or ``python SCRIPT ...``."""
    words = sys.argv[1:]
    with Computing():
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
