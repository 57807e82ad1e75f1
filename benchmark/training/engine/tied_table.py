"""The word table of a pipeline: the first and the last stage each have a copy, and both must stay the same.

They start from the same values of the checkpoint, each adds the other's gradient to its own after the last
micro-batch, and so their updates are equal to the bit. In checkpoints and in the gradient's norm the table counts once.
"""

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.training.engine.distributed import World

TABLE = "embedding.word_embeddings.weight"


class TiedTable:
    """What a process has to do with the table's two copies."""

    def __init__(self, world: World) -> None:
        """Collective: every process makes every group, in the same order."""
        pipeline = world.mesh["pipeline"]
        self.group: dist.ProcessGroup | None = None
        """The two processes that have the same part of the table; None without a pipeline, and on stages between."""
        self.is_second_copy = False
        if pipeline.size() == 1:
            return
        ends = [[int(ranks[0]), int(ranks[-1])] for ranks in world.mesh.mesh.flatten(1).T]
        group, _ = dist.new_subgroups_by_enumeration(ends)  # type: ignore[no-untyped-call]
        if pipeline.get_local_rank() in (0, pipeline.size() - 1):
            self.group = group
            self.is_second_copy = pipeline.get_local_rank() > 0

    def add_gradients(self, parameters: dict[str, DTensor]) -> None:
        """Make both copies' gradient their sum."""
        if self.group is not None:
            gradient = parameters[TABLE].grad
            assert isinstance(gradient, DTensor)
            local: Tensor = gradient.to_local()
            dist.all_reduce(local, group=self.group)
