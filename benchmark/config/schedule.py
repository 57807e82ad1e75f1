"""The learning rate and what happens at each step, as plain functions of the samples (docs/facts/reference.md e, g)."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmark.config.run_config import Benchmark, OptimizerConfig


def learning_rate(samples: int, config: OptimizerConfig) -> float:
    """Learning rate after ``samples`` samples since step 0: linear warm-up, cosine, constant. Float64 throughout.

    The order of the operations is the reference's, so that the result is equal to the last bit.
    """
    if config.lr_warmup_samples > 0 and samples <= config.lr_warmup_samples:
        return config.lr * float(samples) / float(config.lr_warmup_samples)
    if samples > config.lr_decay_samples:
        return config.min_lr
    ratio = float(samples - config.lr_warmup_samples) / float(config.lr_decay_samples - config.lr_warmup_samples)
    coefficient = 0.5 * (math.cos(math.pi * ratio) + 1.0)
    return config.min_lr + coefficient * (config.lr - config.min_lr)


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
        before = benchmark.start_samples + (step - 1) * size
        yield ScheduledStep(
            iteration=benchmark.start_iteration + step,
            consumed_samples=before + size,
            trained_tokens=step * size * sequence,
            learning_rate=learning_rate(before, benchmark.optimizer),
            evaluates=step % benchmark.eval_interval == 0,
        )


def schedule_as_json(benchmark: Benchmark) -> dict[str, Any]:
    """Every step, for scripts."""
    return {
        "benchmark": benchmark.name,
        "global_batch_size": benchmark.global_batch_size,
        "start_iteration": benchmark.start_iteration,
        "start_samples": benchmark.start_samples,
        "eval_interval": benchmark.eval_interval,
        "steps": [asdict(step) for step in scheduled_steps(benchmark)],
    }


def format_schedule(benchmark: Benchmark) -> str:
    """Every step, a line each."""
    lines = [f"{'iteration':>9} {'consumed samples':>16} {'trained tokens':>15} {'learning rate':>23}"]
    for step in scheduled_steps(benchmark):
        row = f"{step.iteration:>9} {step.consumed_samples:>16} {step.trained_tokens:>15} {step.learning_rate:>23.16e}"
        lines.append(row + ("  evaluates" if step.evaluates else ""))
    return "\n".join(lines)
