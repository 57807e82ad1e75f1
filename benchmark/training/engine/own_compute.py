"""How long this process computes for one block of the model; waiting for other processes is not in it.

What is timed is the forward pass of a block. Hooks begin after FSDP's, which wait for parameters, and end before them;
what a pipeline's stages wait for each other lies between blocks; the time of tensor parallelism's collectives, which
lie within, is taken off. So a rank that is slow differs from those that wait for it, and as all blocks are alike, any
rank can be compared with any other. Two things are left in: what a host takes too long to hand to its device, and,
where blocks are compiled, the collectives within them: there a slow rank slows all of its tensor-parallel group.

On a GPU the figure is the mean of what CUDA events measure, on a CPU the time of the fast ones. Events are read after
the step's one synchronisation, so nothing waits.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn

from model.tensor_parallel import watch_collectives

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


class OwnCompute:
    """Times the blocks of ``model_parts`` from :meth:`start` to :meth:`stop`; at other times a hook returns at once.

    ``compiled``: blocks are compiled, which the hooks must not be. Also the watch of tensor parallelism's collectives.
    """

    def __init__(self, model_parts: Sequence[nn.Module], device: torch.device, *, compiled: bool) -> None:
        self._timer: BlockTimer = DeviceTimer() if device.type == "cuda" else HostTimer()
        self._typical = statistics.fmean if device.type == "cuda" else _fast_tenth
        self._measuring, self._begun = False, None
        self._waits: list[tuple[Any, Any]] = []
        self._blocks: list[tuple[Any, Any, list[tuple[Any, Any]]]] = []
        enter, leave = self._enter, self._leave
        if compiled:
            enter, leave = (torch.compiler.disable(hook) for hook in (enter, leave))  # type: ignore[no-untyped-call]
        for part in model_parts:
            layers = part.encoder.layers  # type: ignore[union-attr]
            assert isinstance(layers, nn.ModuleDict)
            for block in layers.values():
                block.register_forward_pre_hook(enter)  # FSDP's was put before all others
                block.register_forward_hook(leave, prepend=True)
        watch_collectives(self)

    def start(self) -> None:
        """Time the first blocks of the step that begins."""
        self._timer.forget()
        self._blocks.clear()
        self._measuring = True

    def stop(self) -> float | None:
        """Seconds a block took, after the device has been waited for; None where none was timed."""
        self._measuring, self._begun = False, None
        seconds = self._timer.seconds
        own = [seconds(first, last) - sum(seconds(*wait) for wait in waits) for first, last, waits in self._blocks]
        return self._typical(own) if own else None

    def begin(self) -> None:
        """A collective begins."""
        if self._begun is not None:
            self._waits.append((self._timer.mark(), None))

    def end(self) -> None:
        """Its result is there."""
        if self._begun is not None:
            self._waits[-1] = (self._waits[-1][0], self._timer.mark())

    def _enter(self, *_: object) -> None:
        if self._measuring and len(self._blocks) < MOST_BLOCKS:
            self._waits, self._begun = [], self._timer.mark()

    def _leave(self, *_: object) -> None:
        if self._begun is not None:
            self._blocks.append((self._begun, self._timer.mark(), self._waits))
            self._begun = None
