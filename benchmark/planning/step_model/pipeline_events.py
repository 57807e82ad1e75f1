"""Simulate the pipeline's schedules as events: each pass of each device has a beginning and an end.

A pass begins when its device is free and its input has come. No formula for bubbles is used: bubbles follow from the
events. Where there are more micro-batches than it takes to reach a steady state, two numbers of them are simulated and
the others added at the rate between, which is exact once the schedule repeats itself.
"""

from dataclasses import dataclass
from functools import lru_cache

from benchmark.training.engine.pipeline_order import PipelineShape, ScheduledPass, evaluation_slots, training_slots

Pass = tuple[int, int]
"""Micro-batch, and place on its way: forward through the stages, then backward from the last stage to the first."""


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
    after_send_s: float = 0.0
    """Seconds that a slot with a backward pass computes after its messages have left."""


class OnePassAtATime(PipelineShape):
    """Other codes' 1F1B: each pass ends by itself, and without chunks a device runs ahead by one pass for each device
    behind it."""

    @property
    def first_backward(self) -> int:
        return self.ranks - 1 - self.rank if self.chunks == 1 else super().first_backward


FEWEST = 24
"""Number of micro-batches after which short pipelines repeat themselves, too."""


def shape_of_device(rank: int, devices: int, chunks: int, *, merged: bool) -> PipelineShape:
    return PipelineShape(devices, rank, chunks, apart=True) if merged else OnePassAtATime(devices, rank, chunks)


@lru_cache(4096)
def pipeline_s(pipeline: Pipeline1F1B, micro_batches: int, *, backward: bool = True) -> float:
    """Return the seconds from the first pass to the end of the last; ``backward=False`` runs forward passes alone, as
    in an evaluation."""
    devices = len(pipeline.forward_s)
    steady = max(3 * devices, FEWEST // devices * devices) if backward else 2 * devices
    steady += micro_batches % devices
    if micro_batches <= steady + devices:
        return _simulated(pipeline, micro_batches, backward=backward)
    first, second = (_simulated(pipeline, number, backward=backward) for number in (steady, steady + devices))
    return first + (second - first) * (micro_batches - steady) / devices


@lru_cache(2048)
def work_of_device(
    rank: int, devices: int, chunks: int, micro_batches: int, *, merged: bool, backward: bool = True
) -> tuple[tuple[Pass, ...], ...]:
    """Return the work of a device in the engine's order: a pass, or two that end together."""
    shape = shape_of_device(rank, devices, chunks, merged=merged)
    last = 2 * devices * chunks - 1

    def passes(scheduled: ScheduledPass | None, *, goes_back: bool) -> tuple[Pass, ...]:
        if scheduled is None:
            return ()
        stage = scheduled.chunk * devices + rank
        return ((scheduled.micro_batch, last - stage if goes_back else stage),)

    work: list[tuple[Pass, ...]] = []
    for slot in (training_slots if backward else evaluation_slots)(shape, micro_batches):
        forward, back = passes(slot.forward, goes_back=False), passes(slot.backward, goes_back=True)
        work += [forward + back] if merged else [forward, back]
    return tuple(filter(None, work))


def _simulated(pipeline: Pipeline1F1B, micro_batches: int, *, backward: bool) -> float:
    devices, chunks = len(pipeline.forward_s), len(pipeline.forward_s[0])
    todo = [
        work_of_device(rank, devices, chunks, micro_batches, merged=pipeline.merged, backward=backward)
        for rank in range(devices)
    ]
    forward, back = (
        [seconds for chunk in zip(*by_device, strict=True) for seconds in chunk]
        for by_device in (pipeline.forward_s, pipeline.backward_s)
    )
    first_backward = len(forward)  # the position of the last stage's backward pass, whose input it has itself
    travel_s, blocked = (pipeline.send_s, 0.0) if pipeline.send_hidden else (0.0, pipeline.send_s)
    duration_s = [seconds + blocked for seconds in (*forward, *reversed(back))]
    duration_s[first_backward - 1], duration_s[-1] = forward[-1], back[0]
    arrived: dict[Pass, float] = {}
    """Seconds at which the pass that follows on the way may begin."""
    free, done, moved = [0.0] * devices, [0] * devices, True
    while moved:
        moved = False
        for rank, works in enumerate(todo):
            while done[rank] < len(works):
                start, seconds = free[rank], 0.0
                for micro_batch, position in works[done[rank]]:
                    ready = arrived.get((micro_batch, position - 1)) if position else 0.0
                    if ready is None:
                        break
                    start = max(start, ready)
                    seconds += duration_s[position]
                else:
                    free[rank] = start + seconds
                    left_s = pipeline.after_send_s if works[done[rank]][-1][1] >= first_backward else 0.0
                    for scheduled in works[done[rank]]:
                        sent = scheduled[1] != first_backward - 1
                        arrived[scheduled] = free[rank] + (max(0.0, travel_s - left_s) if sent else 0.0)
                    done[rank] += 1
                    moved = True
                    continue
                break
    if any(done[rank] < len(works) for rank, works in enumerate(todo)):
        raise RuntimeError(f"the schedule of {devices} devices, {chunks} chunks, {micro_batches} micro-batches hangs")
    return max(free)
