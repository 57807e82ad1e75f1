"""What a log is judged by: the numbers of the official benchmark, and of its rehearsal, as data.

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
    """Peak learning rate that a range of batch sizes has by the rules."""

    above: int
    """Batch sizes greater than this …"""
    below: int
    """… and less than this."""
    allowed: tuple[float, ...]


@dataclass(frozen=True)
class Judged:
    """One benchmark as a reviewer sees it."""

    name: str
    """``submission_benchmark`` of its logs."""
    benchmark: Benchmark
    target: float
    """A run converges at the first evaluation at or below this log perplexity."""
    floor: float
    """No honest value is at or below this: the official checker's other limit."""
    learning_rates: tuple[BaseLearningRate, ...]
    eval_samples: tuple[int, ...]
    """Accepted values of that key; empty: any."""
    points: Path | None
    """Reference points; None: those of the official tools for the ruleset."""
    official: bool
    """False: four rules of the official checkers are replaced, and no package is made of it."""
    validation_sequences: int = 0
    """What the whole validation subset fills; 0: no rule asks."""
    logged: tuple[tuple[str, float], ...] = ()
    """What a log says of the model under the names of published logs, where it says it."""

    def steps(self, samples: int, batch_size: float) -> int:
        """ceil(samples / batch size): how the rules turn reference steps into those of another batch size."""
        return math.ceil(samples / batch_size)

    def eval_interval(self, batch_size: float) -> int:
        """Steps between evaluations."""
        return self.steps(self.benchmark.eval_interval_samples, batch_size)

    def tokens_per_evaluation(self, batch_size: float) -> float:
        """Tokens between evaluations: whole batches."""
        return self.eval_interval(batch_size) * batch_size * self.benchmark.model.seq_length


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
    eval_samples=(11590004, 24567),
    points=None,
    official=True,
    validation_sequences=5660,
    logged=(
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
)

REHEARSED = Judged(
    name="gpt3_rehearsal",
    benchmark=REHEARSAL,
    target=2.44,
    floor=2.2,
    learning_rates=(BaseLearningRate(0, 10**9, (1e-3,)),),
    eval_samples=(),
    points=REHEARSAL_POINTS,
    official=False,
)

JUDGED = {judged.name: judged for judged in (GPT3, REHEARSED)}
