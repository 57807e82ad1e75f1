"""Do all copies of what several devices hold agree, to the bit?

LayerNorms, row biases and positions lie on every tensor-parallel rank, everything on every replica, the word
table on the first and on the last stage. Nothing sends their values again after the start: they stay equal because
every copy gets the same update. BLOOM trained for weeks with LayerNorms that had drifted apart, since clipping left
some copies out; the loss does not show it. So weights and moments are compared at an interval, by fingerprints.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.training.engine.adam import MOMENTS
from benchmark.training.engine.distributed import World
from benchmark.training.engine.tensor_fingerprint import fingerprint, place_factors
from benchmark.training.engine.train_state import TrainState
from checkpoint_convert.formats.boxes import whole_box
from model.sharding import AXES, WORDS


@dataclass(frozen=True)
class Copies:
    """Tensors of which every process of ``group`` must have the same part."""

    group: dist.ProcessGroup
    tensors: dict[str, Tensor]
    only_ends: bool = False
    """The first and the last of the group have them, those between have nothing."""


def audit_replicas(state: TrainState, world: World) -> list[str]:
    """What differs between copies, on any process: "NAME: ranks 1, 3 differ from rank 0". Collective.

    Costs one pass over the tensors that have copies, and 8 bytes for each of them between the processes.
    """
    found = [line for copies in _copies(state, world) for line in _differences(copies, world)]
    number = torch.tensor(len(found), device=world.device)
    dist.all_reduce(number, dist.ReduceOp.MAX)
    if number.item() == 0:
        return []
    everywhere: list[list[str] | None] = [None] * world.size
    dist.all_gather_object(everywhere, found)
    return sorted({line for lines in everywhere for line in lines or ()})


def _copies(state: TrainState, world: World) -> list[Copies]:
    """By axis of the mesh along which there are copies, and the two ends of the pipeline."""
    tensors = {name: value for name, value in state.tensors().items() if isinstance(value, DTensor)}
    found = []
    for axis in ("replicate", "tensor"):
        if world.mesh[axis].size() > 1:
            copied = {name: value.to_local() for name, value in tensors.items() if _is_copied_along(value, axis)}
            found.append(Copies(world.mesh[axis].get_group(), copied))
    if state.tied_table.group is not None:
        names = [f"{kind}/{WORDS}" for kind in ("model", *MOMENTS)]
        nothing = torch.zeros(0, device=world.device)
        table = {name: tensors[name].to_local() if name in tensors else nothing for name in names}
        found.append(Copies(state.tied_table.group, table, only_ends=True))
    return found


def _is_copied_along(tensor: DTensor, axis: str) -> bool:
    return tensor.placements[AXES[1:].index(axis)].is_replicate()


def _differences(copies: Copies, world: World) -> list[str]:
    own = torch.stack(
        [
            fingerprint(tensor, place_factors(whole_box(tensor.shape), 0, tensor.device))
            for tensor in copies.tensors.values()
        ]
    )
    ranks = dist.get_process_group_ranks(copies.group)
    every = [torch.empty_like(own) for _ in ranks]
    dist.all_gather(every, own, group=copies.group)
    table = torch.stack(every).cpu()
    lines = []
    for column, name in enumerate(copies.tensors):
        values = list(zip(ranks, table[:, column], strict=True))
        compared = [values[0], values[-1]] if copies.only_ends else values
        others = [rank for rank, value in compared if value != table[0, column]]
        if others:
            lines.append(f"{name}: ranks {', '.join(map(str, others))} differ from rank {ranks[0]}")
    return lines
