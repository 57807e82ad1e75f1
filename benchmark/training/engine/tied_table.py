"""A tied word table in a pipeline: the first and the last stage each have a copy, and both must stay the same.

They start from the same values of the checkpoint, each adds the other's gradient to its own after the last
micro-batch, and so their updates are equal to the bit. In checkpoints and in the gradient's norm the table counts once.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.training.engine.distributed import World
from model.passes.waits import pipeline_exchange


class TiedTable:
    """A process's share of the work on the table's two copies."""

    def __init__(self, world: World, name: str | None) -> None:
        """``name``: of the table; None: the model's ends have a table each."""
        self.name, pipeline = name, world.mesh["pipeline"]
        place, last = pipeline.get_local_rank(), pipeline.size() - 1
        self.group: dist.ProcessGroup | None = pipeline.get_group() if last > 0 and name is not None else None
        """This process's pipeline, whose first and last rank have the table; None where there is none, or nothing is
        tied."""
        self.is_second_copy = self.group is not None and place == last
        self.other: int | None = None
        """The rank that has the other copy; None for those that have none."""
        if self.group is not None and place in (0, last):
            ranks = dist.get_process_group_ranks(self.group)
            self.other = ranks[last - place]

    @property
    def second_copies(self) -> tuple[str, ...]:
        """Parameters of this process whose copy on another one counts: the table, or nothing."""
        return (self.name,) if self.name is not None and self.is_second_copy else ()

    def add_gradients(self, parameters: dict[str, DTensor]) -> None:
        """Make both copies' gradient their sum."""
        if self.other is None or self.name is None:
            return
        gradient = parameters[self.name].grad
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
