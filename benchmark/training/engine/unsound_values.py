"""Find values that training does not produce: in the gradients and losses of a skipped step, and in weights and moments
before a run gives up.

The findings of a step have a limit. Gradients are summed over the data-parallel ranks while they are computed, part by
part, and every rank keeps its own parts of the sum. So the ranks named here *hold* a part that is not finite; with
several data-parallel ranks the sum does not tell which rank computed it. The loss of a micro-batch is checked before it
is summed: if a loss is not finite, its rank and samples are known.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.training.engine.adam import local
from benchmark.training.engine.micro_batches import training_sample_ids
from benchmark.training.engine.rank_messages import all_messages
from benchmark.training.engine.train_state import TrainState

MOST_NAMED = 8
"""Most parameters and micro-batches that each rank names: if all of 2,048 ranks do, one megabyte is sent."""
ABSURD = 1e6
"""No trained weight comes near this value, and no moment of a gradient that is clipped to norm 1; the flip of a high
bit of the exponent goes far beyond it."""


@dataclass(frozen=True)
class BadPart:
    """A rank's part of a parameter's gradient."""

    parameter: str
    nans: int
    infs: int


@dataclass(frozen=True)
class BadMicroBatch:
    """A micro-batch whose loss is not finite."""

    number: int
    """Number among the step's micro-batches, from 0."""
    first_sample: int
    count: int


@dataclass(frozen=True)
class RankFindings:
    """The gradients and losses of one rank that are not finite."""

    rank: int
    host: str
    data_rank: int
    """Index of the part of the global batch that the rank reads."""
    parts: tuple[BadPart, ...]
    """At most MOST_NAMED parts."""
    num_parts: int
    num_parameters: int
    """Number of parameters on the rank, in whole or in part."""
    micro_batches: tuple[BadMicroBatch, ...]
    """At most MOST_NAMED micro-batches; only ranks of a pipeline's last stage have losses."""
    num_micro_batches: int


@dataclass(frozen=True)
class NonFiniteStep:
    """A step that was skipped; the values are equal on all processes."""

    first_sample: int
    """First sample of the step, in the order of samples."""
    num_samples: int
    data_parallel: int
    ranks: tuple[RankFindings, ...]
    """Findings by rank; ranks where everything is finite are left out."""

    @property
    def losses_finite(self) -> bool:
        return not any(findings.num_micro_batches for findings in self.ranks)


def find_nonfinite(state: TrainState) -> NonFiniteStep:
    """Check the gradients and micro-batch losses of the step that was just computed. Collective."""
    world = state.world
    first = state.progress.consumed_samples
    bad = (~torch.isfinite(state.pipeline.micro_batch_losses)).nonzero().flatten().tolist()
    ids = training_sample_ids(
        first,
        micro_batch_size=state.system.micro_batch_size,
        num_microbatches=state.num_microbatches,
        rank=world.data_rank,
        world_size=world.data_parallel,
    )
    parts = bad_parts({name: local(value.grad) for name, value in state.parameters.items() if value.grad is not None})
    findings = RankFindings(
        rank=world.rank,
        host=world.host,
        data_rank=world.data_rank,
        parts=tuple(parts[:MOST_NAMED]),
        num_parts=len(parts),
        num_parameters=len(state.parameters),
        micro_batches=tuple(BadMicroBatch(number, int(ids[number, 0]), ids.shape[1]) for number in bad[:MOST_NAMED]),
        num_micro_batches=len(bad),
    )
    everywhere = all_messages(findings if parts or bad else None, RankFindings | None)
    return NonFiniteStep(
        first_sample=first,
        num_samples=state.progress.global_batch_size,
        data_parallel=world.data_parallel,
        ranks=tuple(findings for findings in everywhere if findings is not None),
    )


def bad_parts(gradients: Mapping[str, Tensor]) -> list[BadPart]:
    """Return the gradients that hold a NaN or an inf."""
    counts = torch.stack(
        [torch.stack([torch.isnan(gradient).sum(), torch.isinf(gradient).sum()]) for gradient in gradients.values()]
    ).tolist()
    return [BadPart(name, nans, infs) for name, (nans, infs) in zip(gradients, counts, strict=True) if nans or infs]


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
        return not any(tensor.nonfinite for tensor in self.tensors)


def check_state(state: TrainState) -> StateSoundness:
    """Check weights and moments, in one pass over them. Collective."""
    world = state.world
    tensors = {name: local(tensor) for name, tensor in state.tensors().items()}
    table = torch.stack([_look_at(tensor) for tensor in tensors.values()]).tolist()
    unsound = [
        UnsoundTensor(name, world.rank, world.host, round(nonfinite), largest)
        for name, (nonfinite, largest) in zip(tensors, table, strict=True)
        if nonfinite or largest > ABSURD
    ]
    everywhere = all_messages(unsound[:MOST_NAMED], list[UnsoundTensor])
    return StateSoundness(tuple(tensor for tensors in everywhere for tensor in tensors))


def _look_at(tensor: Tensor) -> Tensor:
    """Return the number of values that are not finite, and the largest absolute value of the others: [2], float64."""
    if tensor.numel() == 0:
        return torch.zeros(2, dtype=torch.float64, device=tensor.device)
    finite = torch.nan_to_num(tensor, nan=0.0, posinf=0.0, neginf=0.0)
    smallest, largest = finite.aminmax()
    bad = tensor.numel() - torch.isfinite(tensor).sum()
    return torch.stack([bad.double(), torch.maximum(-smallest, largest).double()])
