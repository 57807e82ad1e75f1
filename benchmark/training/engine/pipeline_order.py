"""The order of passes on each rank of a pipeline: interleaved 1F1B in lockstep (Narayanan et al., arXiv:2104.04473).

In a schedule slot a rank runs the forward pass of one micro-batch through one of its model chunks, and the backward
pass of an earlier micro-batch. Between slots it sends the slot's results and receives the inputs of the next slot at
once. A rank is one slot behind the previous rank, so the exchange after its slot n is the next rank's exchange after
slot n - 1. Every exchange has its counterpart, whatever the sizes, and no ranks wait in a circle.

Forward passes come in groups of as many micro-batches as there are ranks. A group goes through the first chunk of all
ranks, then through the second, and so on. Backward passes come in the same groups, from the last chunk to the first.
Ranks and chunks bound the micro-batches in flight, whatever their number (:func:`most_in_flight`).

With ``apart`` backward passes come one slot later, so that no backward pass needs the forward pass of its own slot.
Each of the two passes then computes while the other one waits for its collectives.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ScheduledPass:
    """A pass of one micro-batch through one chunk."""

    chunk: int
    """Index among the rank's chunks."""
    micro_batch: int


@dataclass(frozen=True)
class Slot:
    """The passes of a rank between two exchanges; None stands for no pass."""

    forward: ScheduledPass | None
    backward: ScheduledPass | None


@dataclass(frozen=True)
class PipelineShape:
    """The pipeline as one of its ranks sees it."""

    ranks: int
    rank: int
    chunks: int
    """Number of model chunks per rank."""
    apart: bool = False
    """True if the forward and the backward pass of a slot do not need each other."""

    @property
    def first_backward(self) -> int:
        """Number of the slot with the first backward pass."""
        return 2 * (self.ranks - 1 - self.rank) + (self.chunks - 1) * self.ranks + self.apart

    @property
    def turn(self) -> int | None:
        """Number of consecutive backward passes through a chunk; None: all of a step."""
        return None if self.chunks == 1 else self.ranks

    def ends_turn(self, micro_batch: int, num_microbatches: int) -> bool:
        """Return whether the next backward pass is one through another chunk, or the next step's."""
        following = micro_batch + 1
        return following == num_microbatches or (self.turn is not None and following % self.turn == 0)

    def is_first(self, chunk: int) -> bool:
        """Return whether a chunk is the model's first."""
        return self.rank == 0 and chunk == 0

    def is_last(self, chunk: int) -> bool:
        """Return whether a chunk is the model's last."""
        return self.rank == self.ranks - 1 and chunk == self.chunks - 1


def training_slots(shape: PipelineShape, num_microbatches: int) -> list[Slot]:
    """Return the slots in which every micro-batch goes forward and backward through every chunk of a rank."""
    forward = list(_passes(shape, num_microbatches, backward=False))
    backward = list(_passes(shape, num_microbatches, backward=True))
    idle: list[ScheduledPass | None] = [None] * shape.first_backward
    return [Slot(*passes) for passes in zip([*forward, *idle], [*idle, *backward], strict=True)]


def evaluation_slots(shape: PipelineShape, num_microbatches: int) -> list[Slot]:
    """Return the slots in which every micro-batch goes forward through every chunk of a rank."""
    return [Slot(scheduled, None) for scheduled in _passes(shape, num_microbatches, backward=False)]


def most_in_flight(shape: PipelineShape) -> int:
    """Return the most passes that await their backward pass: the number of chunks whose activations a rank holds."""
    return shape.first_backward + 1


def _passes(shape: PipelineShape, num_microbatches: int, *, backward: bool) -> Iterator[ScheduledPass | None]:
    """Yield the passes of a rank in order; None stands for the micro-batches that the last group lacks."""
    chunks = range(shape.chunks)
    for first in range(0, num_microbatches, shape.ranks):
        for chunk in reversed(chunks) if backward else chunks:
            for number in range(first, first + shape.ranks):
                yield ScheduledPass(chunk, number) if number < num_microbatches else None
