"""The learning rate and what happens at each step, as plain functions of the samples (docs/facts/reference.md e, g)."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmark.config.benchmark_config import Benchmark, OptimizerConfig


def learning_rate(samples: int, optimizer: OptimizerConfig, global_batch_size: int) -> float:
    """Return the learning rate of the step that follows ``samples`` samples since step 0.

    It warms up linearly, follows a cosine and stays at its end, in float64 throughout. The order of the operations is
    the reference's, so that GPT-3's rates are equal to the last bit.
    """
    if optimizer.lr_schedule == "steps":
        return _rate_by_steps(samples // global_batch_size, optimizer, global_batch_size)
    if optimizer.lr_warmup_samples > 0 and samples <= optimizer.lr_warmup_samples:
        return optimizer.lr * float(samples) / float(optimizer.lr_warmup_samples)
    if samples > optimizer.lr_decay_samples:
        return optimizer.min_lr
    return _cosine(
        samples - optimizer.lr_warmup_samples, optimizer.lr_decay_samples - optimizer.lr_warmup_samples, optimizer
    )


def _rate_by_steps(step: int, optimizer: OptimizerConfig, global_batch_size: int) -> float:
    """Return NeMo's learning rate of step ``step``, counted from 0 (docs/facts/llama31_8b.md 2)."""
    warmup_steps = math.ceil(optimizer.lr_warmup_samples / global_batch_size)
    decay_end = optimizer.lr_decay_samples // global_batch_size
    if step <= warmup_steps:
        return optimizer.lr * (step + 1) / (warmup_steps + 1)
    if step > decay_end:
        return optimizer.min_lr
    return _cosine(step - warmup_steps, decay_end - warmup_steps, optimizer)


def _cosine(elapsed: int, length: int, optimizer: OptimizerConfig) -> float:
    """Return the rate ``elapsed`` samples or steps after the warm-up, of a cosine that is ``length`` of them long."""
    coefficient = 0.5 * (math.cos(math.pi * (float(elapsed) / float(length))) + 1.0)
    return optimizer.min_lr + coefficient * (optimizer.lr - optimizer.min_lr)


@dataclass(frozen=True)
class ScheduledStep:
    """One optimizer step, if none is skipped."""

    iteration: int
    """Number of the step, counted from step 0 of the initial checkpoint's training."""
    consumed_samples: int
    """After the step, since step 0."""
    trained_tokens: int
    """After the step, since the initial checkpoint."""
    learning_rate: float
    """Learning rate of this step's update."""
    evaluates: bool
    """An evaluation follows the step."""


def scheduled_steps(benchmark: Benchmark) -> Iterator[ScheduledStep]:
    """Every step from the initial checkpoint to the end of training.

    Evaluations are counted from the start (every ceil(24576 / GBS) steps), not, as in the reference, on the absolute
    iteration, which makes the first interval short where the batch size does not divide
    (docs/facts/reference.md g, j.23).
    """
    size, sequence = benchmark.global_batch_size, benchmark.model.seq_length
    for step in range(1, benchmark.last_iteration - benchmark.start_iteration + 1):
        consumed_samples = benchmark.start_samples + (step - 1) * size
        yield ScheduledStep(
            iteration=benchmark.start_iteration + step,
            consumed_samples=consumed_samples + size,
            trained_tokens=step * size * sequence,
            learning_rate=learning_rate(consumed_samples, benchmark.optimizer, size),
            evaluates=step % benchmark.eval_interval == 0,
        )


def schedule_as_json(benchmark: Benchmark) -> dict[str, Any]:
    """Return every step, for scripts."""
    return {
        "benchmark": benchmark.name,
        "global_batch_size": benchmark.global_batch_size,
        "start_iteration": benchmark.start_iteration,
        "start_samples": benchmark.start_samples,
        "eval_interval": benchmark.eval_interval,
        "steps": [asdict(step) for step in scheduled_steps(benchmark)],
    }


def format_schedule(benchmark: Benchmark) -> str:
    """Return a table with a line per step."""
    lines = [f"{'iteration':>9} {'consumed samples':>16} {'trained tokens':>15} {'learning rate':>23}"]
    for step in scheduled_steps(benchmark):
        row = f"{step.iteration:>9} {step.consumed_samples:>16} {step.trained_tokens:>15} {step.learning_rate:>23.16e}"
        lines.append(row + ("  evaluates" if step.evaluates else ""))
    return "\n".join(lines)
