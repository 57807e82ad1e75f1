"""The word table of a pipeline: the first and the last stage each have a copy, and both must stay the same.

They start from the same values of the checkpoint, each adds the other's gradient to its own after the last
micro-batch, and so their updates are equal to the bit. In checkpoints and in the gradient's norm the table counts once.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.training.engine.distributed import World
from model.passes.waits import pipeline_exchange
from model.sharding import WORDS


class TiedTable:
    """What a process has to do with the table's two copies."""

    def __init__(self, world: World) -> None:
        pipeline = world.mesh["pipeline"]
        place, last = pipeline.get_local_rank(), pipeline.size() - 1
        self.group: dist.ProcessGroup | None = pipeline.get_group() if last > 0 else None
        """This process's pipeline; None where there is none. Its first and last rank have the table."""
        self.is_second_copy = 0 < place == last
        self.other: int | None = None
        """The rank that has the other copy; None for those that have none."""
        if self.group is not None and place in (0, last):
            ranks = dist.get_process_group_ranks(self.group)
            self.other = ranks[last - place]

    def add_gradients(self, parameters: dict[str, DTensor]) -> None:
        """Make both copies' gradient their sum."""
        if self.other is None:
            return
        gradient = parameters[WORDS].grad
        assert isinstance(gradient, DTensor)
        own: Tensor = gradient.to_local()
        if own.numel() == 0:  # neither end has rows of it
            return
        theirs = torch.empty_like(own)
        # Between two ranks of a group that exists: a group of its own for each pair would be a split of the world for
        # each of them.
        to, received = (
            dist.P2POp(operation, tensor, self.other, self.group)
            for operation, tensor in ((dist.isend, own), (dist.irecv, theirs))
        )
        pipeline_exchange(dist.batch_isend_irecv([to, received]))
        own.add_(theirs)
