"""Timing what is queued on a device, or done on a CPU."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

REPETITION_S = {"cuda": 0.02, "cpu": 0.004}
"""A repetition calls as often as takes this long, so that queueing does not count."""
REPETITIONS = 3
MOST_CALLS = 1000


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_for(device: torch.device, calls: int, call: Callable[[], object]) -> float:
    """That the device takes for so many calls."""
    if device.type != "cuda":
        started = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - started
    begin = event_now()
    for _ in range(calls):
        call()
    end = event_now()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def event_now() -> Any:
    """A CUDA event of what is queued up to here, whose time can be told."""
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def seconds_per_call(device: torch.device, call: Callable[[], object]) -> float:
    """Median of ``REPETITIONS``, after two calls that are not timed and some that are counted."""
    call()
    call()
    once = max(seconds_for(device, 2, call) / 2, 1e-7)
    calls = min(MOST_CALLS, max(1, round(REPETITION_S[device.type] / once)))
    return statistics.median(seconds_for(device, calls, call) for _ in range(REPETITIONS)) / calls
