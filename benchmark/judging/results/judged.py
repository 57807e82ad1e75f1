"""Define, as data, the benchmarks as a reviewer sees them: what their logs must hold, and by which numbers they count.

Reviewing, scoring and packaging read these records. A benchmark that is only judged, not trained here, has one, too.
Sources: docs/facts/mlperf_review.md 3.2, 5.9, 7.6; docs/facts/llama31_8b.md 1, 2, 4, 7.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark, LogKeys
from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B, LLAMA_LOG_KEYS, REHEARSAL, REHEARSAL_LLAMA
from model.decoder_sizes import DecoderSizes
from model.llama31_config import Llama31Config


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
    """One benchmark as a reviewer sees it. Counts of training are tokens, whatever its logs count in."""

    name: str
    """Value of ``submission_benchmark`` in its logs, and folder of its results in a package."""
    rulesets: tuple[str, ...]
    """Rulesets that have it, the oldest first."""
    model: DecoderSizes
    log_keys: LogKeys
    target: float
    """Log perplexity of the target: a run converges at the first evaluation at or below it."""
    floor: float
    """Log perplexity that no honest run reaches: the official checker's lower limit."""
    runs: int
    """Number of runs of a result, exactly."""
    configuration: tuple[str, ...]
    """Keys that a log holds once, before init_stop."""
    fixed: tuple[tuple[str, float | str], ...]
    """Values that the rules fix, by key; published logs contain some of them only now and then."""
    eval_interval_samples: int
    """Samples between evaluations, rounded up to whole steps."""
    batch_sizes: tuple[int, int]
    """Smallest and largest global batch size with reference points."""
    reference_batch_size: int = 1
    """Global batch size for which the rules state numbers of steps."""
    start_samples: int = 0
    """Samples of the initial checkpoint, from which ``init_checkpoint_step`` follows."""
    warmup_samples: int | None = None
    """Samples of the warm-up; None: submitters choose it."""
    decay_samples: int | None = None
    """Samples at which the cosine ends; None if no rule gives a number of samples."""
    max_steps: int | None = None
    """Step at which the cosine ends in every batch size; None if no rule gives a step."""
    decay_excludes_warmup: bool = False
    """True if ``opt_learning_rate_decay_steps`` begin after the warm-up; the official checker wants the exact
    number."""
    learning_rates: tuple[BaseLearningRate, ...] = ()
    """Peak learning rates by batch size; empty: submitters choose."""
    rate_per_sample: float | None = None
    """Peak learning rate over the batch size, if the rules fix it."""
    rate_rounding: float = 0.0
    """Largest difference of a peak learning rate from the rules' due to rounding."""
    end_rate: float | None = None
    """Final learning rate; None: a tenth of the peak."""
    skipped_evaluations: tuple[float, float] = (0.0, 0.0)
    """Factor of the batch size and summand of the number of evaluations, rounded down, that the rules leave out."""
    eval_samples: tuple[int, ...] = ()
    """Accepted values of the key eval_samples; empty accepts any."""
    validation_sequences: int = 0
    """Number of sequences that an evaluation takes; 0 if no rule asks for it."""
    dropped: int = 1
    """Number of runs that a score leaves out at either end: the fastest and the slowest."""
    convergence_slack_samples: int = 0
    """Samples by which a result may fall below the least of the convergence test."""
    shortest_init_s: float = 0.0
    """Least plausible seconds of initialisation."""
    narrowest_bits: int = 8
    """Bits of the narrowest numbers that the rules allow to train in."""
    lowest_mfu: float = 0.15
    """Least plausible MFU. Below it the counts of devices are hardly those of the run."""
    published_mfu: float = 0.42
    """Least MFU of published results."""
    hasty_evaluation: float = 4.5
    """Most tokens per second of evaluations over those of the usual block, half as many again as published runs have:
    a forward pass alone takes a third of a step's time."""
    points: Path | None = None
    """File of reference points; None for those of the official tools for the ruleset."""
    published: Path | None = None
    """Table of its published runs, which benchmark/judging/results/write_published.py writes; None without one."""
    stands_for: str | None = None
    """Name of the official benchmark of which this is a rehearsal: a few rules of the official checkers are replaced,
    and no package is made. None for an official one."""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """Fields with other values from a ruleset on."""

    def at(self, ruleset: str | None) -> "Judged":
        """Return the benchmark as a ruleset has it; the newest without one."""
        last = ruleset or self.rulesets[-1]
        fields = {name: value for since, one in self.changes.items() if since <= last for name, value in one.items()}
        return replace(self, **fields)

    @property
    def official(self) -> bool:
        return self.stands_for is None

    @property
    def kept(self) -> int:
        """Return the number of runs whose mean is the score."""
        return self.runs - 2 * self.dropped

    def middle(self, values: Sequence[float]) -> float:
        """Return the mean of ``values``, of which there are :attr:`runs`, without the smallest and the largest."""
        return math.fsum(sorted(values)[self.dropped : self.runs - self.dropped]) / self.kept

    @property
    def middle_words(self) -> str:
        return "middle one of three" if self.runs == 3 else f"mean of the middle {self.kept} of {self.runs}"

    @property
    def one_of(self) -> str:
        return f"one of {'three' if self.runs == 3 else self.runs}"

    @property
    def unit(self) -> str:
        """Return the unit in which its logs count training."""
        return "tokens" if self.log_keys.progress == "epoch_num" else "samples"

    @property
    def tokens_per_unit(self) -> int:
        return 1 if self.unit == "tokens" else self.model.seq_length

    def count(self, tokens: float) -> str:
        """Return a number of tokens in the unit of its logs, as a reader finds it there."""
        return f"{tokens / self.tokens_per_unit:,.0f}"

    def steps(self, samples: int, batch_size: float) -> int:
        """Return ceil(samples / batch size), by which the rules convert reference steps to another batch size."""
        return math.ceil(samples / batch_size)

    def eval_interval(self, batch_size: float) -> int:
        """Return the steps between evaluations."""
        return self.steps(self.eval_interval_samples, batch_size)

    def tokens_per_evaluation(self, batch_size: float) -> float:
        """Return the tokens between evaluations, in whole batches."""
        return self.eval_interval(batch_size) * batch_size * self.model.seq_length

    def first_evaluation(self, batch_size: float) -> float:
        """Return the tokens at the first evaluation."""
        factor, summand = self.skipped_evaluations
        return (math.floor(factor * batch_size + summand) + 1) * self.tokens_per_evaluation(batch_size)


def _configuration(keys: LogKeys, *more: str) -> tuple[str, ...]:
    return (
        "submission_org", "submission_platform", "submission_division", "submission_benchmark",
        "global_batch_size", "gradient_accumulation_steps", "max_sequence_length", "eval_samples", *more,
        "opt_name", "opt_base_learning_rate", "opt_end_learning_rate", "opt_learning_rate_warmup_steps",
        "opt_learning_rate_decay_steps", "opt_learning_rate_decay_schedule",
        f"opt_{keys.optimizer}_beta_1", f"opt_{keys.optimizer}_beta_2", f"opt_{keys.optimizer}_epsilon",
        "opt_gradient_clip_norm",
    )  # fmt: skip


def _fixed(benchmark: Benchmark) -> tuple[tuple[str, float | str], ...]:
    """Return the values of the closed division that the official checker compares exactly."""
    optimizer, name = benchmark.optimizer, benchmark.log_keys.optimizer
    return (
        ("max_sequence_length", benchmark.model.seq_length),
        ("opt_name", name),
        (f"opt_{name}_beta_1", optimizer.adam_beta1),
        (f"opt_{name}_beta_2", optimizer.adam_beta2),
        (f"opt_{name}_epsilon", optimizer.adam_eps),
        ("opt_gradient_clip_norm", optimizer.clip_grad),
        ("opt_learning_rate_decay_schedule", "cosine with linear warmup"),
    )


def _rehearsal_of(official: Judged, benchmark: Benchmark, **fields: Any) -> Judged:
    """Return the record of a rehearsal: what ``official`` asks for, in the sizes of ``benchmark``."""
    optimizer, size = benchmark.optimizer, benchmark.global_batch_size
    assert benchmark.target_log_perplexity is not None, "a rehearsal is of a run to a target"
    return replace(
        official,
        name=benchmark.mlperf_name,
        target=benchmark.target_log_perplexity,
        stands_for=official.name,
        model=benchmark.model,
        fixed=(*_fixed(benchmark), *((key, value) for key, value in official.fixed if key in ALIKE)),
        eval_interval_samples=benchmark.eval_interval_samples,
        batch_sizes=(1, 10**9),
        reference_batch_size=size,
        start_samples=benchmark.start_samples,
        warmup_samples=optimizer.lr_warmup_samples,
        decay_samples=None if benchmark.max_steps else optimizer.lr_decay_samples,
        learning_rates=(BaseLearningRate(0, 10**9, (optimizer.lr,)),),
        eval_samples=() if benchmark.evaluation_sequences is None else (benchmark.evaluation_sequences,),
        validation_sequences=benchmark.evaluation_sequences or 0,
        shortest_init_s=0.0,
        points=Path(__file__).with_name(f"{benchmark.name}_points.json"),
        published=None,
        **fields,
    )


DISCLOSURE = (
    "lowest_numerical_precision_in_linear", "lowest_numerical_precision_in_attn", "lowest_numerical_precision_in_comm",
    "tensor_parallelism", "pipeline_parallelism", "context_parallelism", "expert_parallelism", "micro_batch_size",
    "config_filename",
)  # fmt: skip
"""Keys that every log holds once from ruleset 6.1.0 on."""
ALIKE = ("max_steps", "opt_adamw_weight_decay")
"""Keys whose value is the same in a rehearsal, though not every benchmark fixes it."""

GPT3 = Judged(
    name="gpt3",
    rulesets=("3.0.0", "3.1.0", "4.0.0", "4.1.0"),
    model=GPT3_175B.model,
    log_keys=GPT3_175B.log_keys,
    target=2.69,
    floor=2.6,
    runs=3,
    configuration=_configuration(GPT3_175B.log_keys, "init_checkpoint_step"),
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
    eval_interval_samples=GPT3_175B.eval_interval_samples,
    batch_sizes=(1536, 8192),
    reference_batch_size=1536,
    start_samples=GPT3_175B.start_samples,
    warmup_samples=GPT3_175B.optimizer.lr_warmup_samples,
    decay_samples=GPT3_175B.optimizer.lr_decay_samples,
    learning_rates=(
        BaseLearningRate(1535, 3073, (2e-5,)),
        BaseLearningRate(3072, 4096, (2e-5, 3e-5)),
        BaseLearningRate(4095, 8193, (3e-5,)),
    ),
    eval_samples=(11590004, 24567),
    validation_sequences=5660,
    published=Path(__file__).with_name("published_runs.csv"),
    shortest_init_s=10.0,  # it reads 2 TB of checkpoint in thousands of processes; published runs take 119 s and more
)

LLAMA8B = Judged(
    name="llama31_8b",
    rulesets=("5.1.0", "6.0.0", "6.1.0"),
    model=LLAMA31_8B.model,
    log_keys=LLAMA31_8B.log_keys,
    target=3.3,
    floor=0.0,
    runs=10,
    configuration=_configuration(LLAMA31_8B.log_keys, "opt_adamw_weight_decay", "max_steps"),
    fixed=(*_fixed(LLAMA31_8B), ("opt_adamw_weight_decay", 0.1), ("max_steps", 1_200_000)),
    eval_interval_samples=LLAMA31_8B.eval_interval_samples,
    batch_sizes=(16, 128),
    max_steps=1_200_000,
    decay_excludes_warmup=True,
    eval_samples=(1024,),
    validation_sequences=1024,
    narrowest_bits=4,
    lowest_mfu=0.09,
    published_mfu=0.26,
    hasty_evaluation=7.0,
    changes={
        "6.1.0": {
            "configuration": _configuration(LLAMA31_8B.log_keys, "opt_adamw_weight_decay", "max_steps", *DISCLOSURE)
        }
    },
)

LLAMA405B = Judged(
    name="llama31_405b",
    rulesets=("5.0.0", "5.1.0", "6.0.0"),
    model=Llama31Config(
        num_layers=126,
        hidden_size=16384,
        num_attention_heads=128,
        seq_length=8192,
        vocab_size=128256,
        padded_vocab_size=128256,
        num_key_value_heads=8,
        ffn_hidden_size=53248,
    ),
    log_keys=LLAMA_LOG_KEYS,
    target=5.6,
    floor=0.0,
    runs=3,
    configuration=_configuration(LLAMA_LOG_KEYS, "opt_adamw_weight_decay", "init_checkpoint_step"),
    fixed=(*_fixed(LLAMA31_8B), ("opt_adamw_weight_decay", 0.1)),  # the same as the 8B's
    eval_interval_samples=46_080,
    batch_sizes=(1008, 9216),
    reference_batch_size=1152,
    warmup_samples=8000 * 1152,
    rate_per_sample=8e-5 / 1152,
    rate_rounding=1e-8,
    end_rate=8e-7,
    eval_samples=(5760,),
    validation_sequences=5760,
    convergence_slack_samples=46_080,
    shortest_init_s=10.0,
    narrowest_bits=4,
    published_mfu=0.69,
    changes={
        "5.1.0": {
            "eval_interval_samples": 18_432,
            "skipped_evaluations": (0.0026, 12.0),
            "batch_sizes": (1152, 4608),
            "decay_samples": 1_200_000 * 1152,
            "decay_excludes_warmup": True,
        }
    },
)

REHEARSED = _rehearsal_of(GPT3, REHEARSAL, floor=2.2)
REHEARSED_LLAMA = _rehearsal_of(LLAMA8B, REHEARSAL_LLAMA)

JUDGED = {judged.name: judged for judged in (GPT3, LLAMA8B, LLAMA405B, REHEARSED, REHEARSED_LLAMA)}
"""By the name in logs; where a log names none, the first that the ruleset has is assumed."""
OFFICIAL = {name: judged for name, judged in JUDGED.items() if judged.official}


def assumed(ruleset: str | None) -> Judged:
    """Return the benchmark as which a log is judged that names no known one."""
    return next((one for one in JUDGED.values() if ruleset in one.rulesets), GPT3)


def in_words(judged: Sequence[Judged]) -> str:
    """Return which benchmarks are in which rounds."""
    return "; ".join(f"{one.name} is in rounds {one.rulesets[0][:3]} to {one.rulesets[-1][:3]}" for one in judged)
