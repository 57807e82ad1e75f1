"""Who holds the memory of a GPU that runs out of it: a snapshot for https://pytorch.org/memory_viz."""

import sys
from pathlib import Path

import torch

MOST_ENTRIES = 100_000
"""Allocations and releases that are remembered with their Python stacks; the steps of 175B make some thousands each."""


def snapshot_when_out_of_memory(path: Path) -> None:
    """Remember from now on who allocates; write ``path``, once, before PyTorch gives up on an allocation.

    PyTorch tries again after it has given back what it keeps for later: a snapshot does not mean that the run failed.
    """

    def out_of_memory(device: int, wanted: int, allocated: int, free: int) -> None:
        if path.exists():
            return
        try:
            torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
            words = f"{wanted / 2**30:.2f} GiB wanted, {free / 2**30:.2f} GiB free on device {device}; see {path}"
            print(f"out of memory: {words}", file=sys.stderr, flush=True)
        except Exception as error:  # what matters is the run's own error, which comes next
            print(f"warning: {path}: {error}", file=sys.stderr, flush=True)

    torch.cuda.memory._record_memory_history(max_entries=MOST_ENTRIES, stacks="python")
    torch._C._cuda_attach_out_of_memory_observer(out_of_memory)  # type: ignore[attr-defined]
