"""Measure how long this process computes for one block of the model, and exchange such figures between all ranks.

The timer measures the forward pass of a block without its collectives. Ranks wait for each other in collectives and
between blocks, so a slow rank differs from the ranks that wait for it. All blocks are alike, so any two ranks can be
compared. Delays of the host in launching kernels are included.

On a GPU the figure is the mean of the times from CUDA events, on a CPU the time of the fast blocks. Events are read
after the step's one synchronisation, so nothing waits.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmark.training.engine.distributed import World
from model.passes.block_pass import ForwardWatch

MOST_BLOCKS = 64
"""Most forward passes that are timed in a step; a rank of the 175B run makes about 1,536. With tensor parallelism each
takes ten marks of some microseconds: 5 ms of the host in a step of 5 to 25 s."""


class HostTimer:
    """Mark points in a CPU's work, which is done when it is called."""

    def mark(self) -> Any:
        return time.perf_counter()

    def seconds(self, first: Any, last: Any) -> float:
        """Return the seconds between two marks, once the device has passed them."""
        return float(last - first)

    def forget(self) -> None:
        """Forget all marks made so far."""


class DeviceTimer(HostTimer):
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
    """Time the forward passes of blocks from :meth:`start` to :meth:`stop`; do nothing at other times."""

    def __init__(self, device: torch.device) -> None:
        self._timer = DeviceTimer() if device.type == "cuda" else HostTimer()
        self._typical = statistics.fmean if device.type == "cuda" else _fast_tenth
        self._measuring = False
        self._marks: list[Any] | None = None
        """Of the current block: its beginning, and the beginning and end of each of its waits."""
        self._blocks: list[list[Any]] = []

    def start(self) -> None:
        """Begin to time the first blocks of the step that begins."""
        self._timer.forget()
        self._blocks.clear()
        self._measuring = True

    def stop(self) -> float | None:
        """Return the seconds per block, after the device has been waited for; None if no block was timed."""
        self._measuring, self._marks = False, None
        pairs = (zip(marks[::2], marks[1::2], strict=True) for marks in self._blocks)
        compute_s = [sum(self._timer.seconds(*pair) for pair in of_block) for of_block in pairs]
        return self._typical(compute_s) if compute_s else None

    def begin(self) -> None:
        if self._measuring and len(self._blocks) < MOST_BLOCKS:
            self._marks = [self._timer.mark()]

    def mark(self) -> None:
        if self._marks is not None:
            self._marks.append(self._timer.mark())

    def end(self) -> None:
        if self._marks is not None:
            self._blocks.append([*self._marks, self._timer.mark()])
            self._marks = None


class RankTable:
    """A table with one row per rank, exchanged without making any rank wait; ``columns``: figures in a row, float64.

    A row is sent at the end of one step and received at the end of a later one, when the host has waited for the device
    anyway. Rows of 2,048 ranks with a dozen figures are 200 kB. Rows are not added to the all-reduce of loss and norm,
    whose order of summation must not depend on whether anything is watched.
    """

    def __init__(self, world: World, columns: int) -> None:
        self._world = world
        on_gpu = world.device.type == "cuda"
        self._row = torch.empty(columns, dtype=torch.float64, pin_memory=on_gpu)
        self._received = torch.empty(world.size, columns, dtype=torch.float64, pin_memory=on_gpu)
        self._sent: tuple[Tensor, dist.Work | torch.cuda.Event] | None = None

    def send(self, row: Sequence[float]) -> None:
        """Send this rank's row. Collective. The row sent before must have been received."""
        assert self._sent is None
        self._row.copy_(torch.tensor(row, dtype=torch.float64))
        table = torch.zeros_like(self._received, device=self._world.device)
        table[self._world.rank].copy_(self._row, non_blocking=True)
        if self._world.device.type == "cuda":
            dist.all_reduce(table)  # in the order of the stream: no second communicator is busy beside it
            self._received.copy_(table, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
            self._sent = table, done
        else:
            work = dist.all_reduce(table, async_op=True)
            assert work is not None
            self._sent = table, work

    def receive(self) -> list[list[float]] | None:
        """Return all rows, by rank; None if none was sent since the last call."""
        if self._sent is None:
            return None
        (table, sent), self._sent = self._sent, None
        if isinstance(sent, torch.cuda.Event):
            sent.synchronize()
            rows: list[list[float]] = self._received.tolist()
        else:
            sent.wait()
            rows = table.tolist()
        return rows
