"""Exchange a row of figures between all ranks at each step without making any rank wait."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from benchmark.training.engine.distributed import World


class RankTable:
    """A table with one row per rank; ``columns``: figures in a row, float64.

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
