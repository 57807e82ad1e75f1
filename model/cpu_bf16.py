"""BF16 matrix products on CPUs without BF16 instructions, where PyTorch's own take 10 to 30 times as long as FP32.

As in tensor cores, operands are BF16 numbers, products are summed in FP32, and results are rounded to BF16. Only the
order of the sums differs from PyTorch's own BF16 kernels.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

BF16_INSTRUCTIONS = {"avx512_bf16", "amx_bf16", "bf16"}
"""Names that /proc/cpuinfo gives the instructions on x86 and on Arm."""
PRODUCTS = (torch.mm, torch.addmm)
"""The matrix products that the passes call (passes/)."""


@cache
def cpu_has_bf16() -> bool:
    """Return True if this CPU multiplies BF16 numbers itself."""
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:  # not Linux
        return False
    return not BF16_INSTRUCTIONS.isdisjoint(words)


class Bf16ByFp32(TorchFunctionMode):
    """A context in which products of BF16 CPU tensors are computed in FP32. Attention does so without it
    (passes/attention.py)."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function not in PRODUCTS or args[0].dtype != torch.bfloat16:
            return function(*args, **kwargs)
        out: torch.Tensor | None = kwargs.pop("out", None)
        wide = [arg.float() if isinstance(arg, torch.Tensor) else arg for arg in args]
        result = function(*wide, **kwargs).to(torch.bfloat16)
        return result if out is None else out.copy_(result)
