"""Simulate the pipeline's schedules as events: each pass of each device has a beginning and an end.

A pass begins when its device is free and its input has come. No formula for bubbles is used: bubbles follow from the
events. Where there are more micro-batches than it takes to reach a steady state, two numbers of them are simulated and
the others added at the rate between, which is exact once the schedule repeats itself.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


@dataclass(frozen=True)
class Pipeline1F1B:
    """Durations of a pipeline of p devices with v chunks of layers each; stage c p + r is chunk c of device r."""

    forward_s: tuple[tuple[float, ...], ...]
    """Seconds by device and chunk."""
    backward_s: tuple[tuple[float, ...], ...]
    send_s: float
    """Seconds of a message between neighbours."""
    send_hidden: bool
    """True if messages travel beside computation; otherwise both ends wait."""
    merged: bool
    """True for slots of a forward and a backward pass that end together, with messages exchanged between slots."""


FEWEST = 24
"""Number of micro-batches after which short pipelines repeat themselves, too."""


class PipelineWork(NamedTuple):
    """A pass, or two interleaved passes, each as numbers of micro-batch and chunk; None if one is missing."""

    forward: tuple[int, int] | None
    backward: tuple[int, int] | None


@lru_cache(4096)
def pipeline_s(pipeline: Pipeline1F1B, micro_batches: int, *, backward: bool = True) -> float:
    """Return the seconds from the first pass to the end of the last; ``backward=False`` runs forward passes alone, as
    in an evaluation."""
    devices = len(pipeline.forward_s)
    most = max(3 * devices, FEWEST // devices * devices) if backward else 2 * devices
    most += micro_batches % devices
    if micro_batches <= most + devices:
        return _simulated(pipeline, micro_batches, backward=backward)
    first, second = (_simulated(pipeline, number, backward=backward) for number in (most, most + devices))
    return first + (second - first) * (micro_batches - most) / devices


@lru_cache(2048)
def work_of_device(
    rank: int, devices: int, chunks: int, micro_batches: int, *, merged: bool, backward: bool = True
) -> tuple[PipelineWork, ...]:
    """Return the work of a device, in order.

    Passes come in groups of as many micro-batches as there are devices, chunk after chunk; backward passes from the
    last chunk to the first. Where the last group is short, a device has nothing to do at the places that it lacks.
    Before its first backward pass a device runs as many forward passes ahead as the devices behind it need.
    """
    group = devices if chunks > 1 else micro_batches
    forward = _passes_in_order(group, chunks, micro_batches, backward=False)
    if not backward:
        return tuple(PipelineWork(each, None) for each in forward if each is not None)
    back = _passes_in_order(group, chunks, micro_batches, backward=True)
    behind = devices - 1 - rank
    if merged:
        ahead = 2 * behind + (chunks - 1) * devices + 1
    else:
        ahead = behind if chunks == 1 else 2 * behind + (chunks - 1) * devices
    ahead = min(ahead, len(forward))
    todo = [PipelineWork(each, None) for each in forward[:ahead]]
    for one, other in zip(forward[ahead:], back, strict=False):
        todo += [PipelineWork(one, other)] if merged else [PipelineWork(one, None), PipelineWork(None, other)]
    todo += [PipelineWork(None, each) for each in back[len(forward) - ahead :]]
    return tuple(each for each in todo if each != PipelineWork(None, None))


def _passes_in_order(group: int, chunks: int, micro_batches: int, *, backward: bool) -> list[tuple[int, int] | None]:
    """Return the micro-batch and chunk of each pass, in order; None where the last group is short of a micro-batch."""
    return [
        (micro_batch, chunks - 1 - chunk if backward else chunk) if micro_batch < micro_batches else None
        for first in range(0, micro_batches, group)
        for chunk in range(chunks)
        for micro_batch in range(first, first + group)
    ]


def _simulated(pipeline: Pipeline1F1B, micro_batches: int, *, backward: bool) -> float:
    devices, chunks = len(pipeline.forward_s), len(pipeline.forward_s[0])
    todo = [
        work_of_device(rank, devices, chunks, micro_batches, merged=pipeline.merged, backward=backward)
        for rank in range(devices)
    ]
    last = devices * chunks - 1
    forward_end: dict[tuple[int, int], float] = {}
    backward_end: dict[tuple[int, int], float] = {}
    free, place = [0.0] * devices, [0] * devices
    waiting, blocked = (pipeline.send_s, 0.0) if pipeline.send_hidden else (0.0, pipeline.send_s)
    moved = True
    while moved:
        moved = False
        for rank in range(devices):
            while place[rank] < len(todo[rank]):
                work = todo[rank][place[rank]]
                start, duration = free[rank], 0.0
                if work.forward is not None:
                    micro_batch, chunk = work.forward
                    stage = chunk * devices + rank
                    if stage:
                        ready = forward_end.get((micro_batch, stage - 1))
                        if ready is None:
                            break
                        start = max(start, ready + waiting)
                    duration += pipeline.forward_s[rank][chunk] + (blocked if stage < last else 0.0)
                if work.backward is not None:
                    micro_batch, chunk = work.backward
                    stage = chunk * devices + rank
                    ends = forward_end if stage == last else backward_end
                    ready = ends.get((micro_batch, stage if stage == last else stage + 1))
                    if ready is None:
                        break
                    start = max(start, ready + (0.0 if stage == last else waiting))
                    duration += pipeline.backward_s[rank][chunk] + (blocked if stage else 0.0)
                free[rank] = start + duration
                if work.forward is not None:
                    forward_end[work.forward[0], work.forward[1] * devices + rank] = free[rank]
                if work.backward is not None:
                    backward_end[work.backward[0], work.backward[1] * devices + rank] = free[rank]
                place[rank] += 1
                moved = True
    if any(place[rank] < len(todo[rank]) for rank in range(devices)):
        raise RuntimeError(f"the schedule of {devices} devices, {chunks} chunks, {micro_batches} micro-batches hangs")
    return max(free)
