"""Warm up before the clock starts: run steps on made-up tokens that leave no trace.

Operations are slow the first time: the first collective of a group makes its connections, the first matrix product of a
shape loads or tunes its kernel. The rules leave steps on synthetic data untimed (docs/facts/mlperf_review.md 7.4), and
no token of the data is read. Weights and moments are only read: the gradients of the made-up tokens are dropped, and
Adam runs on a tensor of its own. So nothing has to be restored, and no second copy of the state is needed.
"""

import time

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

from benchmark.config.system_config import System
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.adam import Adam
from benchmark.training.engine.micro_batches import micro_batch
from benchmark.training.engine.train_state import TrainState
from benchmark.training.step import accumulate
from model.decoder_sizes import DecoderSizes
from model.passes.chunk_pass import MicroBatch

STRIDE = 997
"""Distance between neighbouring made-up tokens: a prime, so that they spread over the whole vocabulary."""
SCRATCH_VALUES = 4096


def warm_up(state: TrainState, phases: PhaseLog) -> str | None:
    """Run the system's ``warm_up_steps`` and an evaluation, and return a line about it; None if there are no steps to
    run. Collective.

    Afterwards weights, moments, Adam's counter and progress have their old values, to the bit. There are no gradients,
    and the peak of the device's memory counts from here.
    """
    world, system, steps = state.world, state.system, state.system.warm_up_steps
    if not steps:
        return None
    started = time.perf_counter()
    number = training_micro_batches(system.pipeline_parallel, state.num_microbatches)
    batches = made_up_batches(state.benchmark.model, system, number)
    for _ in range(steps):
        phases.enter("warm-up", -1)
        accumulate(state, batches, num_microbatches=len(batches)).tolist()  # which waits for the device, as a step does
        state.optimizer.scale_gradients(1.0)
        state.optimizer.clear_gradients()
        _update_scratch(state)
    phases.enter("warm-up", -1)
    dist.all_reduce(state.pipeline.evaluate(batches, len(batches)))
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
        torch.cuda.reset_peak_memory_stats(world.device)
    seconds = time.perf_counter() - started
    return f"warmed up in {seconds:.1f} s: {steps} steps and an evaluation on made-up tokens"


def training_micro_batches(pipeline_parallel: int, of_a_step: int) -> int:
    """Return the micro-batches of a warm-up step: at least two, so that a gradient is added to, and enough to fill the
    pipeline twice."""
    return min(2 * pipeline_parallel, of_a_step)


def made_up_batches(model: DecoderSizes, system: System, count: int) -> list[MicroBatch]:
    """Return ``count`` micro-batches of the same tokens from all over the vocabulary, in the kind of memory that real
    micro-batches use."""
    tokens = np.arange(system.micro_batch_size * model.seq_length, dtype=np.int64) * STRIDE % model.vocab_size
    windows = tokens.reshape(system.micro_batch_size, model.seq_length)
    batch = micro_batch(windows, np.zeros(len(windows), dtype=np.bool_))
    return [batch.pinned() if system.device == "cuda" else batch] * count


def _update_scratch(state: TrainState) -> None:
    """Take a step of Adam with the run's kernels, on a tensor that is thrown away."""
    values = torch.zeros(SCRATCH_VALUES, device=state.world.device)
    scratch = DTensor.from_local(values, state.world.mesh["shard"], [Replicate()], run_check=False)
    scratch.grad = torch.zeros_like(scratch)
    adam = Adam({"scratch": scratch}, state.benchmark.optimizer)
    adam.start_at(state.benchmark.start_iterations)
    adam.gradient_square_sum()
    adam.update(state.benchmark.optimizer.lr)
