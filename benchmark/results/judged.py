"""Define, as data, the numbers by which logs of the official benchmark and of its rehearsal are judged.

Sources: docs/facts/mlperf_review.md 3.2, 5.9, 7.6.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from benchmark.config.benchmarks import GPT3_175B, REHEARSAL
from benchmark.config.run_config import Benchmark

REHEARSAL_POINTS = Path(__file__).with_name("rehearsal_points.json")


@dataclass(frozen=True)
class BaseLearningRate:
    """Peak learning rate that the rules give to a range of batch sizes."""

    above: int
    """The batch size must be greater than this."""
    below: int
    """The batch size must be less than this."""
    allowed: tuple[float, ...]


@dataclass(frozen=True)
class Judged:
    """One benchmark as a reviewer sees it."""

    name: str
    """Value of ``submission_benchmark`` in its logs."""
    benchmark: Benchmark
    target: float
    """Log perplexity of the target: a run converges at the first evaluation at or below it."""
    floor: float
    """Log perplexity that no honest run reaches: the official checker's lower limit."""
    learning_rates: tuple[BaseLearningRate, ...]
    configuration: tuple[str, ...]
    """Keys that a log holds once, before init_stop."""
    fixed: tuple[tuple[str, float | str], ...]
    """Values that the rules fix, by key; published logs contain some of them only now and then."""
    eval_samples: tuple[int, ...] = ()
    """Accepted values of the key eval_samples; empty accepts any."""
    validation_sequences: int = 0
    """Number of sequences that the whole validation subset fills; 0 if no rule asks for it."""
    runs: int = 3
    """Number of runs of a result."""
    points: Path | None = None
    """Reference points; None for those of the official tools for the ruleset."""
    official: bool = True
    """False for a benchmark for which four rules of the official checkers are replaced, and no package is made."""

    def steps(self, samples: int, batch_size: float) -> int:
        """Return ceil(samples / batch size), by which the rules convert reference steps to another batch size."""
        return math.ceil(samples / batch_size)

    def eval_interval(self, batch_size: float) -> int:
        """Return the steps between evaluations."""
        return self.steps(self.benchmark.eval_interval_samples, batch_size)

    def tokens_per_evaluation(self, batch_size: float) -> float:
        """Return the tokens between evaluations, in whole batches."""
        return self.eval_interval(batch_size) * batch_size * self.benchmark.model.seq_length


CONFIGURATION = (
    "submission_org", "submission_platform", "submission_division", "submission_benchmark",
    "global_batch_size", "gradient_accumulation_steps", "max_sequence_length", "eval_samples", "init_checkpoint_step",
    "opt_name", "opt_base_learning_rate", "opt_end_learning_rate", "opt_learning_rate_warmup_steps",
    "opt_learning_rate_decay_steps", "opt_learning_rate_decay_schedule",
    "opt_adam_beta_1", "opt_adam_beta_2", "opt_adam_epsilon", "opt_gradient_clip_norm",
)  # fmt: skip


def _fixed(benchmark: Benchmark) -> tuple[tuple[str, float | str], ...]:
    """Return the values of the closed division that the official checker compares exactly."""
    optimizer = benchmark.optimizer
    return (
        ("max_sequence_length", benchmark.model.seq_length),
        ("opt_name", "adam"),
        ("opt_adam_beta_1", optimizer.adam_beta1),
        ("opt_adam_beta_2", optimizer.adam_beta2),
        ("opt_adam_epsilon", optimizer.adam_eps),
        ("opt_gradient_clip_norm", optimizer.clip_grad),
        ("opt_learning_rate_decay_schedule", "cosine with linear warmup"),
    )


GPT3 = Judged(
    name="gpt3",
    benchmark=GPT3_175B,
    target=2.69,
    floor=2.6,
    learning_rates=(
        BaseLearningRate(1535, 3073, (2e-5,)),
        BaseLearningRate(3072, 4096, (2e-5, 3e-5)),
        BaseLearningRate(4095, 8193, (3e-5,)),
    ),
    configuration=CONFIGURATION,
    fixed=(
        *_fixed(GPT3_175B),
        ("num_layers", 96),
        ("num_heads", 96),
        ("hidden_size", 12288),
        ("ffn_hidden_size", 49152),
        ("sequence_length", 2048),
        ("layernorm_epsilon", 1e-5),
        ("hidden_dropout", 0),
        ("attention_dropout", 0),
        ("opt_weight_decay", 0.1),
    ),
    eval_samples=(11590004, 24567),
    validation_sequences=5660,
)

REHEARSED = Judged(
    name="gpt3_rehearsal",
    benchmark=REHEARSAL,
    target=2.44,
    floor=2.2,
    learning_rates=(BaseLearningRate(0, 10**9, (1e-3,)),),
    configuration=CONFIGURATION,
    fixed=_fixed(REHEARSAL),
    points=REHEARSAL_POINTS,
    official=False,
)

JUDGED = {judged.name: judged for judged in (GPT3, REHEARSED)}
