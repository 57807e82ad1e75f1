"""NVTX ranges, which nsys shows in its timeline: one for each phase of each step."""

import torch

from benchmark.launch.phases import Phase


class NvtxRanges:
    """An observer of phases. Steps are counted from ``start_iteration``."""

    def __init__(self, start_iteration: int) -> None:
        self._start, self._is_open = start_iteration, False

    def enter(self, phase: Phase, steps: int) -> None:
        if self._is_open:
            torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
        name = phase if steps < 0 else f"step {self._start + steps + 1}: {phase}"
        torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
        self._is_open = True
