"""Ranges that are pushed and popped; the library itself needs a GPU."""

import pytest
import torch

from benchmark.debugging.nvtx_ranges import NvtxRanges


def test_each_phase_is_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", calls.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))
    ranges = NvtxRanges(4000)
    ranges.enter("load", -1)
    ranges.enter("data", 0)
    ranges.enter("passes", 0)
    assert calls == ["load", "pop", "step 4001: data", "pop", "step 4001: passes"]
