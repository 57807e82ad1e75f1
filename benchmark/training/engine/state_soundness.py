"""Check that weights and moments are finite and not absurdly large. This runs only when a run is about to give up."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from benchmark.training.engine.adam import local
from benchmark.training.engine.train_state import TrainState

MOST_NAMED = 8
ABSURD = 1e6
"""No trained weight comes near this value, and no moment of a gradient that is clipped to norm 1; the flip of a high
bit of the exponent goes far beyond it."""


@dataclass(frozen=True)
class UnsoundTensor:
    """A rank's part of a tensor with values that training does not produce."""

    name: str
    """Name as in checkpoints: model/, exp_avg/ or exp_avg_sq/ and the parameter."""
    rank: int
    host: str
    nonfinite: int
    """Number of values that are NaN or inf."""
    largest: float
    """Largest absolute value of the finite ones."""


@dataclass(frozen=True)
class StateSoundness:
    """The result of a check of weights and moments, equal on all processes."""

    tensors: tuple[UnsoundTensor, ...]
    """Unsound tensors by rank; each rank names at most MOST_NAMED."""

    @property
    def finite(self) -> bool:
        return not any(one.nonfinite for one in self.tensors)


def check_state(state: TrainState) -> StateSoundness:
    """Check weights and moments, in one pass over them. Collective."""
    world = state.world
    tensors = {name: local(tensor) for name, tensor in state.tensors().items()}
    table = torch.stack([_look_at(tensor) for tensor in tensors.values()]).tolist()
    own = [
        UnsoundTensor(name, world.rank, world.host, round(nonfinite), largest)
        for name, (nonfinite, largest) in zip(tensors, table, strict=True)
        if nonfinite or largest > ABSURD
    ]
    everywhere: list[list[UnsoundTensor] | None] = [None] * world.size
    dist.all_gather_object(everywhere, own[:MOST_NAMED])
    return StateSoundness(tuple(one for some in everywhere for one in some or ()))


def _look_at(tensor: Tensor) -> Tensor:
    """Return the number of values that are not finite, and the largest absolute value of the others: [2], float64."""
    if tensor.numel() == 0:
        return torch.zeros(2, dtype=torch.float64, device=tensor.device)
    finite = torch.nan_to_num(tensor, nan=0.0, posinf=0.0, neginf=0.0)
    smallest, largest = finite.aminmax()
    bad = tensor.numel() - torch.isfinite(tensor).sum()
    return torch.stack([bad.double(), torch.maximum(-smallest, largest).double()])
