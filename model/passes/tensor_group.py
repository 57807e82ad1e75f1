"""Collectives of tensor parallelism that are begun at one point and waited for at another.

A pass through the model is a generator: it yields a collective that it has begun and cannot go on without
(``yield from needed(pending)``). Whoever runs it lets something else compute meanwhile (:func:`run_together`), so that
the time of a collective is hidden behind other work. A group of one rank begins nothing and yields nothing.
"""

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from model.decoder_sizes import CopyEngines
from model.passes.copy_engines import CopiedCollectives, CopiedWork
from model.passes.waits import tensor_parallel_collective

T = TypeVar("T")

all_gather_single: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Named so from PyTorch 2.13 on."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A collective that was begun. ``result`` may be read after ``work.wait()``; at once where ``work`` is None."""

    result: Tensor
    work: Any = None
    source: Tensor | None = None
    """The tensor that is being sent, kept until the collective has read it."""


Passing = Generator[Pending, None, T]
"""A pass that yields collectives it needs next, and returns T."""


class ForwardWatch:
    """Is told where the forward pass of a block begins and ends, and where it pauses for a collective; for whoever
    measures it. This one does nothing."""

    def begin(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def end(self) -> None: ...


def needed(pending: Pending) -> Passing[Tensor]:
    """The result of ``pending``."""
    if pending.work is not None:
        yield pending
    return pending.result


def together(*passes: Passing[Any]) -> Passing[list[Any]]:
    """Passes as one, which take turns wherever one waits for a collective; what they return.

    The order is the same on all ranks that make the same calls, as collectives demand.
    """
    results: list[Any] = [None] * len(passes)
    turns: deque[tuple[int, Passing[Any], Pending | None]] = deque((n, one, None) for n, one in enumerate(passes))
    while turns:
        number, one, pending = turns.popleft()
        if pending is not None:
            yield pending
        try:
            turns.append((number, one, next(one)))
        except StopIteration as stop:
            results[number] = stop.value
    return results


def run_together(*passes: Passing[Any]) -> list[Any]:
    """Run passes to their ends as :func:`together` does; what they return."""
    whole = together(*passes)
    while True:
        try:
            pending = next(whole)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        tensor_parallel_collective(pending.work)


class TensorGroup:
    """The ranks that share each layer; neighbours of a sequence, whose parts are rows one behind the other."""

    def __init__(self, mesh: DeviceMesh | None = None, copy_engines: CopyEngines = "none") -> None:
        """``copy_engines``: the messages that they carry (copy_engines.py); the process group's library carries the
        others."""
        self.size = 1 if mesh is None else mesh.size()
        self.rank = 0 if self.size == 1 or mesh is None else mesh.get_local_rank()
        self.group = None if self.size == 1 or mesh is None else mesh.get_group()
        copied = None if self.group is None or copy_engines == "none" else CopiedCollectives(self.group)
        self._copied_gathers, self._copied_sums = copied, copied if copy_engines == "all" else None

    def gather(self, part: Tensor) -> Pending:
        """Rows of all ranks, in their order: [t, ...] to [T, ...]."""
        if self.group is None:
            return Pending(part)
        part = part.contiguous()
        if self._copied_gathers is not None:
            whole = self._copied_gathers.gather(part)
            return Pending(whole, CopiedWork(whole), part)
        whole = torch.empty((part.shape[0] * self.size, *part.shape[1:]), dtype=part.dtype, device=part.device)
        return Pending(whole, all_gather_single(whole, part, group=self.group, async_op=True), part)

    def reduce_scatter(self, terms: Tensor) -> Pending:
        """This rank's rows of the sum over ranks: [T, ...] to [t, ...]."""
        if self.group is None:
            return Pending(terms)
        if self._copied_sums is not None:
            part = self._copied_sums.reduce_scatter(terms)
            return Pending(part, CopiedWork(part), terms)
        rows = terms.shape[0] // self.size
        part = torch.empty((rows, *terms.shape[1:]), dtype=terms.dtype, device=terms.device)
        return Pending(part, reduce_scatter_single(part, terms, group=self.group, async_op=True), terms)
