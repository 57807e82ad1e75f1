"""One optimizer step, with the flags that processes exchange in its all-reduce, and one evaluation
(docs/facts/reference.md c, e)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Literal

import torch
from torch import Tensor

from benchmark.config.schedule import learning_rate
from benchmark.run_record.phases import Phase
from benchmark.training.engine.adam import clip_coefficient
from benchmark.training.engine.micro_batches import evaluation_sample_ids, read_micro_batch
from benchmark.training.engine.train_state import TrainState
from benchmark.training.engine.unsound_values import NonFiniteStep, find_nonfinite
from data_prep.sample_order.token_windows import TokenWindows
from model.passes.chunk_pass import MicroBatch

StopOrder = Literal["exit trigger", "signal SIGUSR2", "signal SIGTERM", "time limit"]


@dataclass(frozen=True)
class StepFlags:
    """Requests of one process; after the step, the requests of all processes together."""

    save: bool = False
    """Save a checkpoint: it is time (by rank 0's clock), or somebody asked."""
    exit_trigger: bool = False
    """Stop: the file ``exit`` is in the run folder."""
    sigusr2: bool = False
    """Stop: SIGUSR2 came, which saves and stops."""
    sigterm: bool = False
    """Stop: SIGTERM came, which Slurm and torchrun send; or SIGINT (Ctrl-C), or SIGHUP (a terminal was closed)."""
    time_limit: bool = False
    """Stop: the time limit is reached."""
    writer_busy: bool = False
    """A checkpoint is still being written in the background."""
    writer_broken: bool = False
    """The background's messages failed; its process group must be renewed before it writes again."""

    @property
    def stop_by(self) -> StopOrder | None:
        """The reason to stop, a person's request first; None if there is none."""
        if self.exit_trigger:
            return "exit trigger"
        if self.sigusr2:
            return "signal SIGUSR2"
        if self.sigterm:
            return "signal SIGTERM"
        return "time limit" if self.time_limit else None

    def numbers(self) -> list[float]:
        """Return 1 for each flag that is set, else 0; :meth:`of_all` reads their sums over all processes."""
        return [float(value) for value in astuple(self)]

    @staticmethod
    def of_all(sums: Sequence[float]) -> "StepFlags":
        return StepFlags(*(number > 0 for number in sums))


NO_FLAGS = StepFlags()


def any_of(several: Sequence[StepFlags]) -> StepFlags:
    """Return the flags that are set in any of ``several``."""
    return StepFlags(*map(any, zip(*map(astuple, several), strict=True))) if several else NO_FLAGS


@dataclass(frozen=True)
class StepResult:
    """The figures that a step logs; they are equal on all processes."""

    loss: float
    """Mean loss over the global batch, in nats per scored token."""
    grad_norm: float
    """L2 norm of the whole gradient, before clipping."""
    learning_rate: float
    """Learning rate of this update, 0 or more."""
    skipped: bool
    """True if the gradient was not finite, so that nothing was updated."""
    flags: StepFlags = NO_FLAGS
    """Requests made by any of the processes."""
    nonfinite: NonFiniteStep | None = None
    """For a skipped step, the values that were not finite and their places."""


@torch.no_grad()
def train_step(
    state: TrainState,
    batches: Sequence[MicroBatch],
    enter: Callable[[Phase], None] = lambda phase: None,
    *,
    flags: StepFlags = NO_FLAGS,
) -> StepResult:
    """Accumulate the gradient over ``batches`` and update.

    ``enter`` is called with each phase. ``flags`` are this process's. The host waits for the device once, for the loss
    and the norm, which are logged and decide about the update.
    """
    enter("passes")
    square_sum, loss, *flag_sums = accumulate(state, batches, flags).tolist()
    norm = math.sqrt(square_sum) if math.isfinite(square_sum) else square_sum
    rate = learning_rate(state.progress.scheduled_samples, state.benchmark.optimizer, state.benchmark.global_batch_size)
    skipped = not math.isfinite(norm)
    enter("update")
    nonfinite = find_nonfinite(state) if skipped else None
    if not skipped:
        update(state, norm, rate)
    state.optimizer.clear_gradients()
    return StepResult(loss, norm, rate, skipped, StepFlags.of_all(flag_sums), nonfinite)


def accumulate(
    state: TrainState,
    batches: Sequence[MicroBatch],
    flags: StepFlags = NO_FLAGS,
    *,
    num_microbatches: int | None = None,
) -> Tensor:
    """Run the forward and backward passes and return their totals: [2 + flags], float64, equal on all processes.

    The totals are the sum of squares of the whole gradient, the loss, and for each flag the number of processes that
    have set it. ``num_microbatches``: a step's unless given.
    """
    loss = state.pipeline.train(batches, num_microbatches or state.num_microbatches)
    state.tied_table.add_gradients(state.parameters)
    square_sum = state.optimizer.gradient_square_sum()
    # Made on the device, for a copy from the host would wait.
    flag_values = [torch.full_like(square_sum, flag) for flag in flags.numbers()]
    total = torch.stack([square_sum, loss.double(), *flag_values])
    torch.distributed.all_reduce(total)
    return total


def update(state: TrainState, norm: float, rate: float) -> None:
    """Clip the gradient of norm ``norm`` and take one step of Adam."""
    coefficient = clip_coefficient(norm, state.benchmark.optimizer.clip_grad)
    if coefficient < 1.0:
        state.optimizer.scale_gradients(coefficient)
    state.optimizer.update(rate)


@dataclass(frozen=True)
class EvaluationResult:
    log_perplexity: float
    """Sum of the losses divided by the scored tokens, in nats."""
    scored_tokens: int


def evaluate(state: TrainState, validation: TokenWindows) -> EvaluationResult:
    """Return the log perplexity of the whole validation set: token-weighted, sums in float64 (docs/facts/reference.md
    c.3)."""
    world = state.world
    ids = evaluation_sample_ids(
        len(validation),
        micro_batch_size=state.system.micro_batch_size,
        rank=world.data_rank,
        world_size=world.data_parallel,
    )
    vocab_size, labels_last = state.benchmark.model.vocab_size, state.benchmark.labels_last_token
    pinned = world.device.type == "cuda"
    batches = (read_micro_batch(validation, row, vocab_size, pinned=pinned, labels_last=labels_last) for row in ids)
    total = state.pipeline.evaluate(batches, len(ids))
    torch.distributed.all_reduce(total)
    loss_sum, scored = total.tolist()
    return EvaluationResult(loss_sum / scored, round(scored))
