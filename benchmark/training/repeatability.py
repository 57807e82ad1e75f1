"""``--deterministic``: kernels that give the same bits each time, where a faster one would not.

On a CPU, and of what model/ computes itself, all kernels do anyway. On GPUs some of PyTorch's, cuBLAS', cuDNN's and
NCCL's add up in an order that depends on timing; which variables fix NCCL's and cuBLAS' is in
benchmark/config/library_variables.py, which kernel of the attention is deterministic model/ knows.
"""

import torch

from benchmark.config.run_config import RunConfig


def choose_kernels(config: RunConfig) -> None:
    """Have this process use deterministic kernels alone, if the run asks for it; an operator that has none then raises
    RuntimeError with its name."""
    if not config.deterministic:
        return
    torch.use_deterministic_algorithms(True)
    # Else every tensor is filled with NaN before it is written to: a pass over all memory that changes no result.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def describe_kernels(config: RunConfig) -> str:
    """What the log says of a run with ``--deterministic``."""
    where = "on a CPU they are without it, too" if config.system.device == "cpu" else "NCCL: rings, simple protocol"
    return f"deterministic kernels only ({where})"
