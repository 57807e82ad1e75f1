"""``--deterministic``: kernels that give the same bits each time, where a faster one would not.

On a CPU, and of what model/ computes itself, all kernels do anyway. On GPUs some of PyTorch's, cuBLAS', cuDNN's and
NCCL's add up in an order that depends on timing; which variables fix NCCL's and cuBLAS' is in
benchmark/config/runtime_variables.py, which kernel of the attention is deterministic model/ knows.
"""

import torch


def use_deterministic_kernels() -> None:
    """Have this process use no others; an operator that has none then raises RuntimeError with its name."""
    torch.use_deterministic_algorithms(True)
    # Else every tensor is filled with NaN before it is written to: a pass over all memory that changes no result.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
