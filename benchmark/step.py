"""One optimizer step, and one evaluation (reference facts c, e)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.data import MicroBatch, evaluation_sample_ids, read_micro_batch
from benchmark.distributed import World
from benchmark.optimizer import clip_coefficient
from benchmark.schedule import learning_rate
from benchmark.state import TrainState
from data_prep.dataset import TokenWindows
from model.gpt3 import token_losses


@dataclass(frozen=True)
class StepResult:
    """What a step logs; equal on all processes."""

    loss: float
    """Mean over the global batch, nats per scored token."""
    grad_norm: float
    """L2 norm of the whole gradient, before clipping."""
    learning_rate: float
    """Of this update."""
    skipped: bool
    """The gradient was not finite, so nothing was updated."""
    stop_requested: bool
    """Some process was asked to stop."""


def train_step(state: TrainState, world: World, batches: Sequence[MicroBatch], *, stop_requested: bool) -> StepResult:
    """Accumulate the gradient over ``batches`` and update.

    The host waits for the device once, for the loss and the norm that are logged and decide about the update.
    """
    optimizer, hyper = state.optimizer, state.config.benchmark.optimizer
    loss = _accumulate_gradients(state, world, batches)
    square_sum = optimizer.gradient_square_sum() / state.config.system.replicas
    total = torch.stack([square_sum, loss.double(), loss.new_tensor(float(stop_requested), dtype=torch.float64)])
    torch.distributed.all_reduce(total)
    square_sum_value, loss_sum, stops = total.tolist()

    norm = math.sqrt(square_sum_value) if math.isfinite(square_sum_value) else square_sum_value
    rate = learning_rate(state.progress.scheduled_samples, hyper)
    skipped = not math.isfinite(norm)
    if not skipped:
        coefficient = clip_coefficient(norm, hyper.clip_grad)
        if coefficient < 1.0:
            optimizer.scale_gradients(coefficient)
        optimizer.update(rate)
    optimizer.clear_gradients()
    return StepResult(loss_sum / world.size, norm, rate, skipped, stops > 0)


def _accumulate_gradients(state: TrainState, world: World, batches: Sequence[MicroBatch]) -> Tensor:
    """Forward and backward over the micro-batches; returns the mean of their losses on this process."""
    model, keep = state.model, state.config.system.keep_unsharded
    losses = []
    for number, batch in enumerate(batches, 1):
        if keep:
            last = number == len(batches)
            model.set_requires_gradient_sync(last)
            model.set_reshard_after_backward(last)
        loss_sum, count = masked_loss_sum(state, batch.to(world.device))
        loss = loss_sum / count
        (loss / len(batches)).backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    return torch.stack(losses).mean()


def masked_loss_sum(state: TrainState, batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Sum of the token losses that count, and how many do, for one micro-batch on the device."""
    with state.forward_context:
        logits = state.model(batch.tokens)  # type: ignore[operator]
    return (token_losses(logits, batch.labels) * batch.loss_mask).sum(), batch.loss_mask.sum()


@dataclass(frozen=True)
class EvaluationResult:
    log_perplexity: float
    """Sum of the losses / scored tokens, in nats."""
    scored_tokens: int


@torch.no_grad()
def evaluate(state: TrainState, world: World, validation: TokenWindows) -> EvaluationResult:
    """Log perplexity of the whole validation set: token-weighted, sums kept in float64 (facts c.3).

    Micro-batches that are padding on every process are left out; they count for nothing.
    """
    config = state.config
    ids = evaluation_sample_ids(
        len(validation),
        global_batch_size=config.benchmark.global_batch_size,
        micro_batch_size=config.system.micro_batch_size,
        rank=world.rank,
        world_size=world.size,
    )
    rounds = math.ceil(len(validation) / (config.system.micro_batch_size * world.size))
    total = torch.zeros(2, dtype=torch.float64, device=world.device)
    for row in ids[:rounds]:
        batch = read_micro_batch(validation, row, config.benchmark.model.vocab_size)
        total += torch.stack(masked_loss_sum(state, batch.to(world.device)))
    torch.distributed.all_reduce(total)
    loss_sum, scored = total.tolist()
    return EvaluationResult(loss_sum / scored, int(scored))
