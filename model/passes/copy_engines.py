"""Collectives that a GPU's copy engines carry, through memory that the GPUs of a machine share.

They take no multiprocessors from the matrix products beside them; a kernel of NCCL does. The operators are PyTorch's
low-contention collectives, in an interface that PyTorch calls private (torch.distributed._symmetric_memory). A gather
gives the same bits as NCCL's. A reduce-scatter copies the terms of all ranks and adds them up in a kernel at the end,
in FP32 and the order of ranks. Not tried on a GPU.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class CopiedCollectives:
    """The collectives of one group of ranks."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        import torch.distributed._symmetric_memory  # defines the operators

        self._operators: Any = torch.ops.symm_mem
        self._name = group.group_name

    def gather(self, part: Tensor) -> Tensor:
        """Begin to gather the rows of all ranks."""
        return self._operators._low_contention_all_gather(part, self._name)  # type: ignore[no-any-return]

    def reduce_scatter(self, terms: Tensor) -> Tensor:
        """Begin to sum this rank's rows over all ranks."""
        return self._operators._low_contention_reduce_scatter(terms, "sum", self._name)  # type: ignore[no-any-return]


class CopiedWork:
    """Wait for a result that :class:`CopiedCollectives` returned, as for a process group's work."""

    def __init__(self, result: Tensor) -> None:
        self._result = result

    def wait(self) -> None:
        torch.ops._c10d_functional.wait_tensor(self._result)
