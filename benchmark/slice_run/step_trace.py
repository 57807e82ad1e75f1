"""Where the time of a step went, from a trace of PyTorch's profiler (Chrome's format: an array of events in JSON).

Events of a device: categories kernel, gpu_memcpy, gpu_memset. Of the host: cuda_runtime and cuda_driver. Times in them
are microseconds.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.slice_run.kernel_kinds import KERNEL_KINDS, OTHER, kind_of

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
ON_HOST = ("cuda_runtime", "cuda_driver")
WAITING_S = 50e-6
"""A call of the CUDA runtime that takes longer waits for the device: launching takes some 5 microseconds, and blocks
when about a thousand kernels are queued."""
MOST_NAMES = 5
"""Of kernels of no known kind."""

Interval = tuple[float, float]
"""Begin and end, seconds."""


@dataclass(frozen=True)
class Activity:
    """Of the device or of the host."""

    name: str
    category: str
    begin_s: float
    end_s: float

    @property
    def interval(self) -> Interval:
        return self.begin_s, self.end_s


@dataclass(frozen=True)
class StepTimes:
    """Of one step on one device."""

    span_s: float
    """From the first kernel's begin to the last one's end."""
    by_kind_s: dict[str, float]
    """Sums over kernels, the longest first. Kernels run beside each other, so these can be more than the span."""
    communication_s: float
    """When communication ran. NCCL's kernels begin before the other ranks come, so waiting for these is in it."""
    exposed_communication_s: float
    """When nothing else ran."""
    idle_s: float
    """When nothing ran."""
    kernels: int
    host_s: float | None
    """What the host took for queueing it all, without waiting for the device; None where nothing tells."""
    unknown_kernels: tuple[str, ...]
    """Names of the longest of no known kind."""


def read_trace(path: Path) -> list[Activity]:
    """What the device did, and the host's calls of the CUDA runtime."""
    found: Any = json.loads(path.read_text())
    events = found["traceEvents"] if isinstance(found, dict) else found
    return [
        Activity(event["name"], event["cat"], event["ts"] * 1e-6, (event["ts"] + event["dur"]) * 1e-6)
        for event in events
        if event.get("ph") == "X" and event.get("cat") in (*ON_DEVICE, *ON_HOST)
    ]


def step_times(activities: Iterable[Activity]) -> StepTimes | None:
    """None where nothing ran on a device."""
    activities = list(activities)
    device = [one for one in activities if one.category in ON_DEVICE]
    if not device:
        return None
    kinds = {one.name: kind_of(one.name, KERNEL_KINDS) for one in device}
    by_kind: dict[str, float] = {}
    unknown: dict[str, float] = {}
    for one in device:
        passed = one.end_s - one.begin_s
        by_kind[kinds[one.name]] = by_kind.get(kinds[one.name], 0.0) + passed
        if kinds[one.name] == OTHER:
            unknown[one.name] = unknown.get(one.name, 0.0) + passed
    talking = union([one.interval for one in device if kinds[one.name] == "communication"])
    working = union([one.interval for one in device if kinds[one.name] != "communication"])
    running = union([*talking, *working])
    span = running[-1][1] - running[0][0]
    return StepTimes(
        span_s=span,
        by_kind_s=dict(sorted(by_kind.items(), key=lambda item: -item[1])),
        communication_s=length(talking),
        exposed_communication_s=length(running) - length(working),
        idle_s=span - length(running),
        kernels=len(device),
        host_s=_host_s([one for one in activities if one.category in ON_HOST]),
        unknown_kernels=tuple(sorted(unknown, key=lambda name: -unknown[name])[:MOST_NAMES]),
    )


def _host_s(calls: Sequence[Activity]) -> float | None:
    """From the first to the last call, without those that waited."""
    if not calls:
        return None
    waited = union([one.interval for one in calls if one.end_s - one.begin_s > WAITING_S])
    return max(one.end_s for one in calls) - min(one.begin_s for one in calls) - length(waited)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The time that ``intervals`` cover together, as intervals in order that neither overlap nor touch."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    """Of intervals that do not touch."""
    return sum(end - begin for begin, end in intervals)
