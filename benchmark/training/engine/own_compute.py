"""Measure how long this process computes for one block of the model, without waiting for other processes.

The timer measures the forward pass of a block, without its collectives; the stages of a pipeline wait for each other
between blocks. So a slow rank differs from those that wait for it, and as all blocks are alike, any rank can be
compared with any other. Delays of the host in handing work to its device are included.

On a GPU the figure is the mean of the times from CUDA events, on a CPU the time of the fast blocks. Events are read
after the step's one synchronisation, so nothing waits.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from model.passes.tensor_group import ForwardWatch

MOST_BLOCKS = 64
"""Most forward passes that are timed in a step; a rank of the 175B run makes about 1,536. With tensor parallelism each
takes ten marks of some microseconds: 5 ms of the host in a step of 5 to 25 s."""


class BlockTimer(Protocol):
    """Marks points in the work of this process's device."""

    def mark(self) -> Any: ...

    def seconds(self, first: Any, last: Any) -> float:
        """Return the seconds between two marks, once the device has passed them."""
        ...

    def forget(self) -> None:
        """Forget all marks made so far."""
        ...


class HostTimer:
    """Mark points in a CPU's work, which is done when it is called."""

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, first: float, last: float) -> float:
        return last - first

    def forget(self) -> None:
        pass


class DeviceTimer:
    """Mark points in a GPU's work by events in its current stream; every step uses the same events."""

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
    """Return the time that a tenth of the blocks stay below.

    Other programs of a host delay single blocks several times over; the causes of a slow rank delay all of its blocks.
    This figure scatters by 7 % between steps, the median by 16 %.
    """
    return sorted(seconds)[len(seconds) // 10]


class OwnCompute(ForwardWatch):
    """Time the forward passes of blocks from :meth:`start` to :meth:`stop`; do nothing at other times.

    Pauses for collectives are subtracted.
    """

    def __init__(self, device: torch.device) -> None:
        self._timer: BlockTimer = DeviceTimer() if device.type == "cuda" else HostTimer()
        self._typical = statistics.fmean if device.type == "cuda" else _fast_tenth
        self._measuring, self._begun = False, None
        self._pauses: list[tuple[Any, Any]] = []
        self._blocks: list[tuple[Any, Any, list[tuple[Any, Any]]]] = []

    def start(self) -> None:
        """Begin to time the first blocks of the step that begins."""
        self._timer.forget()
        self._blocks.clear()
        self._measuring = True

    def stop(self) -> float | None:
        """Return the seconds per block, after the device has been waited for; None if no block was timed."""
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
