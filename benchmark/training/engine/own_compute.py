"""How long this process computes for one block of the model; waiting for other processes is not in it.

What is timed is the forward pass of a block, between its collectives; what a pipeline's stages wait for each other lies
between blocks. So a rank that is slow differs from those that wait for it, and as all blocks are alike, any rank can be
compared with any other. What a host takes too long to hand to its device is left in.

On a GPU the figure is the mean of what CUDA events measure, on a CPU the time of the fast ones. Events are read after
the step's one synchronisation, so nothing waits.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from model.passes.tensor_group import ForwardWatch

MOST_BLOCKS = 64
"""Forward passes that are timed in a step; a rank of the 175B run makes 1,536 or so. With tensor parallelism each takes
ten marks of some microseconds: 5 ms of the host in a step of 5 to 25 s."""


class BlockTimer(Protocol):
    """Marks points in the work of this process's device."""

    def mark(self) -> Any: ...

    def seconds(self, first: Any, last: Any) -> float:
        """Between two marks, once the device has passed them."""
        ...

    def forget(self) -> None:
        """No mark made so far is needed any more."""
        ...


class HostTimer:
    """Of a CPU, which does things when it is told to."""

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, first: float, last: float) -> float:
        return last - first

    def forget(self) -> None:
        pass


class DeviceTimer:
    """Of a GPU: events in its current stream, the same ones for every step."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._used = 0

    def mark(self) -> torch.cuda.Event:
        if self._used == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        event = self._events[self._used]
        self._used += 1
        event.record()
        return event

    def seconds(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        return float(first.elapsed_time(last)) / 1000

    def forget(self) -> None:
        self._used = 0


def _fast_tenth(seconds: Sequence[float]) -> float:
    """The time that a tenth of the blocks stay below. Other programs of a host delay single blocks by a multiple; what
    makes a rank slow delays all of them. Scatters by 7 % between steps where the median scatters by 16 %."""
    return sorted(seconds)[len(seconds) // 10]


class OwnCompute(ForwardWatch):
    """Times the forward passes of blocks that it watches, from :meth:`start` to :meth:`stop`; at other times it does
    nothing. Pauses for collectives are taken off."""

    def __init__(self, device: torch.device) -> None:
        self._timer: BlockTimer = DeviceTimer() if device.type == "cuda" else HostTimer()
        self._typical = statistics.fmean if device.type == "cuda" else _fast_tenth
        self._measuring, self._begun = False, None
        self._pauses: list[tuple[Any, Any]] = []
        self._blocks: list[tuple[Any, Any, list[tuple[Any, Any]]]] = []

    def start(self) -> None:
        """Time the first blocks of the step that begins."""
        self._timer.forget()
        self._blocks.clear()
        self._measuring = True

    def stop(self) -> float | None:
        """Seconds a block took, after the device has been waited for; None where none was timed."""
        self._measuring, self._begun = False, None
        seconds = self._timer.seconds
        own = [seconds(first, last) - sum(seconds(*pause) for pause in pauses) for first, last, pauses in self._blocks]
        return self._typical(own) if own else None

    def begin(self) -> None:
        if self._measuring and len(self._blocks) < MOST_BLOCKS:
            self._pauses, self._begun = [], self._timer.mark()

    def pause(self) -> None:
        if self._begun is not None:
            self._pauses.append((self._timer.mark(), None))

    def resume(self) -> None:
        if self._begun is not None:
            self._pauses[-1] = (self._pauses[-1][0], self._timer.mark())

    def end(self) -> None:
        if self._begun is not None:
            self._blocks.append((self._begun, self._timer.mark(), self._pauses))
            self._begun = None
