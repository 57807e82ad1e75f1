"""The configuration of a benchmark: model, optimizer, batch, start, target, cadence. ``benchmarks.py`` lists them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from benchmark.config.field_checks import listed, require_positive
from foundation.errors import InputError
from foundation.options.option_marks import Hidden
from model.decoder_sizes import DecoderSizes
from model.flops import train_flops_per_token

ValidationOrder = Literal["file", "seed"]


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam with decoupled weight decay, and the learning rate in samples since step 0 (docs/facts/reference.md e)."""

    lr: float
    """Peak learning rate."""
    min_lr: float
    """Final learning rate; 10 % of the peak by the rules, but not derived from it."""
    lr_warmup_samples: int
    """Linear warm-up."""
    lr_decay_samples: int
    """End of the cosine."""
    lr_schedule: Hidden[Literal["samples", "steps"]] = "samples"
    """Rule of the learning rate: ``samples`` is Megatron's, 0 in the first step of a warm-up; ``steps`` is NeMo's,
    whose first step has 1 / (warm-up steps + 1) of the peak (docs/facts/llama31_8b.md 2)."""
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    adam_eps: float = 1e-8
    """Added outside the square root, after bias correction."""
    weight_decay: float = 0.1
    """Decoupled weight decay of the parameters that ``decays_vectors`` names."""
    decays_vectors: Hidden[bool] = True
    """Weight decay applies to every parameter, biases and norms too; if False, to matrices alone
    (docs/facts/llama31_8b.md 9.2)."""
    clip_grad: float = 1.0
    """Largest global L2 norm of the gradient."""

    def __post_init__(self) -> None:
        if not 0 <= self.lr_warmup_samples < self.lr_decay_samples:
            raise InputError(
                f"lr_warmup_samples {self.lr_warmup_samples} and lr_decay_samples {self.lr_decay_samples}: expected "
                "0 <= warm-up < decay; change --lr-warmup-samples or --lr-decay-samples"
            )
        if not 0 <= self.min_lr <= self.lr:
            rates = f"min_lr {self.min_lr} and lr {self.lr}"
            raise InputError(f"{rates}: expected 0 <= min_lr <= lr; change --lr or --min-lr")


@dataclass(frozen=True)
class LogKeys:
    """Names that a benchmark's rules use in the MLPerf log; the defaults are GPT-3's."""

    optimizer: str = "adam"
    """``opt_name``, and part of the names of the optimizer's keys."""
    weight_decay: str = "opt_weight_decay"
    progress: Literal["epoch_num", "samples_count"] = "epoch_num"
    """Metadata key of the progress of training: ``epoch_num`` counts tokens, ``samples_count`` samples."""


@dataclass(frozen=True)
class TokenFiles:
    """Names of a benchmark's datasets in their folder, without ``.bin`` and ``.idx``."""

    training: tuple[str, ...]
    """Sets of equal weight."""
    validation: str


@dataclass(frozen=True)
class ReferenceRate:
    """The learning rate of an official reference point."""

    global_batch_size: int
    lr: float
    """Peak learning rate."""
    lr_warmup_samples: int

    @property
    def words(self) -> str:
        """Return the options that choose the rate at another batch size."""
        return f"--lr {self.lr:g} --lr-warmup-samples {self.lr_warmup_samples}"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark names the model, the point where training begins, and the quality to reach."""

    name: Hidden[str]
    mlperf_name: Hidden[str]
    """``submission_benchmark`` of the MLPerf log."""
    model: DecoderSizes
    optimizer: OptimizerConfig
    token_files: Hidden[TokenFiles]
    """Names of a benchmark's datasets in the folder of --data-folder."""
    global_batch_size: int
    """Samples per optimizer step."""
    start_iterations: int
    """Steps that the initial checkpoint was trained for; 0: weights are drawn from the seed."""
    start_global_batch_size: int
    """Global batch size of those steps; the product of the two is the sample where schedule and data begin."""
    train_samples: int
    """Samples from step 0 to the end of training, those of the initial checkpoint included."""
    eval_interval_samples: int
    """Samples between evaluations, rounded up to whole steps."""
    target_log_perplexity: float | None
    """Stop when the validation log perplexity (nats per token) is at or below this; None: train all samples."""
    max_steps: int | None = None
    """Steps at which the cosine ends, in whatever batch size; it then sets lr_decay_samples. None: it does not."""
    evaluation_sequences: int | None = None
    """Windows of the validation set that an evaluation scores; None: all of them."""
    validation_order: ValidationOrder = "file"
    """Choice of those windows. file: the first of the file, the same for each seed. seed: the first in the order that
    Megatron-Core shuffles by the seed of the data (docs/facts/llama31_8b.md 9.8)."""
    labels_last_token: Hidden[bool] = False
    """A window has one token more than the sequence, so that the last position has a label too
    (docs/facts/llama31_8b.md 9.1)."""
    shuffle_documents: Hidden[bool] = False
    """Documents are shuffled before windows are cut and shuffled (docs/facts/llama31_8b.md 9.6)."""
    order_steps: Hidden[int | None] = None
    """Steps that the order of training windows is built for; its epochs follow from them. None: train_samples."""
    log_keys: Hidden[LogKeys] = LogKeys()
    initial_log_perplexity: Hidden[tuple[float, float] | None] = None
    """Mean and standard deviation, over runs, of the initial checkpoint's log perplexity in BF16 or FP32."""
    fp8_initial_log_perplexity: Hidden[tuple[float, float] | None] = None
    """The same in FP8, whose products round otherwise; None where nobody has measured it."""
    reference_rates: Hidden[tuple[ReferenceRate, ...]] = ()
    """Learning rates of the official reference points, by ascending batch size."""
    peak_over_final_rate: Hidden[float | None] = None
    """Peak over final learning rate where the rules fix it; None: both are free."""
    bf16_layers: Hidden[tuple[int, int]] = (0, 0)
    """Blocks at the beginning and at the end of the model whose linear layers stay in BF16 in an FP8 run."""
    samples_to_target: Hidden[tuple[tuple[int, int], ...]] = ()
    """Global batch sizes, ascending, and the samples that reference runs took on average to reach the target with
    them; empty where that is not known."""

    def __post_init__(self) -> None:
        require_positive(self, "global_batch_size", "start_global_batch_size", "eval_interval_samples")
        require_positive(
            self, *(name for name in ("max_steps", "evaluation_sequences") if getattr(self, name) is not None)
        )
        if self.max_steps is not None:
            end = self.max_steps * self.global_batch_size
            object.__setattr__(self, "optimizer", replace(self.optimizer, lr_decay_samples=end))
        if self.validation_order == "seed" and self.evaluation_sequences is None:
            raise InputError(
                f"validation_order seed: {self.name} evaluates its whole validation set, in whatever order; leave out "
                "--validation-order, or give --evaluation-sequences"
            )
        if self.last_iteration <= self.start_iteration:
            raise InputError(
                f"train_samples {self.train_samples} end at step {self.last_iteration}, not after the initial "
                f"checkpoint's {self.start_iteration}; raise --train-samples"
            )

    def at_batch_size(self, size: float | None) -> "Benchmark":
        """Return the benchmark with the learning rate of its reference point at a batch size, if it has one there."""
        for rate in self.reference_rates:
            if rate.global_batch_size == size:
                optimizer = replace(self.optimizer, lr=rate.lr, lr_warmup_samples=rate.lr_warmup_samples)
                sized = replace(self, global_batch_size=rate.global_batch_size, optimizer=optimizer)
                return sized.at_peak_rate(rate.lr)
        return self

    def at_peak_rate(self, lr: float | None) -> "Benchmark":
        """Return the benchmark with the final learning rate that belongs to a peak, where the rules fix it."""
        if lr is None or self.peak_over_final_rate is None or not lr > 0:
            return self
        min_lr = float(f"{lr / self.peak_over_final_rate:.12g}")  # 6e-05, not 5.9999999999999995e-05
        return replace(self, optimizer=replace(self.optimizer, lr=lr, min_lr=min_lr))

    def require_reference_rate(self, size: float) -> None:
        """Raise InputError, with the neighbouring reference points, for a batch size that has none."""
        sizes = [rate.global_batch_size for rate in self.reference_rates]
        if not sizes or size in sizes:
            return
        below = [rate for rate in self.reference_rates if rate.global_batch_size < size][-1:]
        above = [rate for rate in self.reference_rates if rate.global_batch_size > size][:1]
        neighbours = "; ".join(f"{rate.global_batch_size} has {rate.words}" for rate in (*below, *above))
        raise InputError(
            f"global_batch_size {size:g}: {self.name} has reference points at {listed(sizes)} only ({neighbours}); "
            "give both --lr and --lr-warmup-samples"
        )

    @property
    def start_samples(self) -> int:
        """Samples consumed at the start: 6,144,000 for the 175B benchmark (docs/facts/reference.md b.6)."""
        return self.start_iterations * self.start_global_batch_size

    @property
    def start_iteration(self) -> int:
        """Iteration the run starts at, in steps of its own batch size, rounded down (docs/facts/reference.md f.4)."""
        return self.start_samples // self.global_batch_size

    @property
    def last_iteration(self) -> int:
        return self.train_samples // self.global_batch_size

    @property
    def ordered_samples(self) -> int:
        """Training samples that the order of windows is built for."""
        return max(self.train_samples, (self.order_steps or 0) * self.global_batch_size)

    @property
    def ordered_evaluation_samples(self) -> int:
        """Samples of all evaluations together, as many as NeMo requests of Megatron-Core's shuffled validation set."""
        batches = math.ceil((self.evaluation_sequences or 0) / self.global_batch_size)
        evaluations = (self.order_steps or self.last_iteration) // self.eval_interval + 1
        return evaluations * batches * self.global_batch_size

    @property
    def expected_steps(self) -> int:
        """Optimizer steps that a run is expected to take to its target: those of reference runs, between their batch
        sizes interpolated; all there are where there is no target, or nothing is known."""
        most = self.last_iteration - self.start_iteration
        if self.target_log_perplexity is None or not self.samples_to_target:
            return most
        return min(most, math.ceil(_between(self.samples_to_target, self.global_batch_size) / self.global_batch_size))

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch_size * self.model.seq_length

    @property
    def flops_per_token(self) -> float:
        """Model FLOPs of one trained token."""
        return train_flops_per_token(self.model)

    @property
    def eval_interval(self) -> int:
        """Steps between evaluations."""
        return math.ceil(self.eval_interval_samples / self.global_batch_size)


def _between(points: Sequence[tuple[int, int]], position: int) -> float:
    """Return the value of the line through points in order of their first numbers; beyond an end, that of the end."""
    if position <= points[0][0]:
        return points[0][1]
    for (lower, lower_value), (upper, upper_value) in pairwise(points):
        if position < upper:
            return (upper_value - lower_value) / (upper - lower) * (position - lower) + lower_value
    return points[-1][1]
