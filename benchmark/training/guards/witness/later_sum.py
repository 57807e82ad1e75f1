"""A sum over all processes that nobody waits for."""

import torch
import torch.distributed as dist
from torch import Tensor

from benchmark.training.engine.distributed import World


class LaterSum:
    """Begun at the end of a step, and asked for at the end of the next, when the device has been waited for anyway."""

    def __init__(self, values: Tensor, world: World) -> None:
        """Collective. ``values``: float64 on the device; they are overwritten."""
        self._values = values
        self._event: torch.cuda.Event | None = None
        self._work: dist.Work | None = None
        if world.device.type == "cuda":
            dist.all_reduce(values)  # in the order of the stream: no second communicator is busy beside it
            self._values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._work = dist.all_reduce(values, async_op=True)

    def result(self) -> Tensor:
        """On the host."""
        if self._event is not None:
            self._event.synchronize()
        if self._work is not None:
            self._work.wait()
        return self._values
