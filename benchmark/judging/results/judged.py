"""The benchmarks as a reviewer sees them: the rules of their logs, over the benchmarks' own data.

Reviewing, scoring and packaging read these records. The numbers of a benchmark stand in benchmark/config/benchmarks.py
alone. Sources: docs/facts/mlperf_review.md 3.2, 5.9, 7.6; docs/facts/llama31_8b.md 1, 2, 4, 7.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark, LogKeys
from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B, LLAMA31_405B, REHEARSAL, REHEARSAL_LLAMA
from benchmark.judging.results.judging_rules import (
    BaseLearningRate,
    EvaluationRules,
    PlausibleLimits,
    ScheduleRules,
    ScoreRules,
)

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Judged:
    """One benchmark as a reviewer sees it. Counts of training are tokens, whatever its logs count in."""

    benchmark: Benchmark
    rulesets: tuple[str, ...]
    """Rulesets that have it, the oldest first."""
    configuration: tuple[str, ...]
    """Keys that a log holds once, before init_stop."""
    fixed: tuple[tuple[str, float | str], ...]
    """Values that the rules fix, by key; published logs contain some of them only now and then."""
    informative: tuple[tuple[str, float, float], ...]
    """Keys that no rule asks for, and the least and the largest value that fits the benchmark."""
    score: ScoreRules
    schedule: ScheduleRules
    evaluation: EvaluationRules
    limits: PlausibleLimits
    points: Path | None = None
    """File of reference points; None for those of the official tools for the ruleset."""
    published: Path | None = None
    """Table of its published runs (benchmark/judging/results/write_published.py); None if there is no table."""
    stands_for: str | None = None
    """Name of the official benchmark that this rehearses: a few rules of the official checkers are replaced,
    and no package is made. None for an official benchmark."""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """Fields with other values from a ruleset on."""

    def at(self, ruleset: str | None) -> "Judged":
        """Return the benchmark as a ruleset has it; None stands for its newest ruleset."""
        latest = ruleset or self.rulesets[-1]
        changed = [fields for since, fields in self.changes.items() if since <= latest]
        return replace(self, **{name: value for fields in changed for name, value in fields.items()})

    @property
    def name(self) -> str:
        """Return the value of ``submission_benchmark`` in its logs, which is the folder of its results in a package."""
        return self.benchmark.mlperf_name

    @property
    def log_keys(self) -> LogKeys:
        return self.benchmark.log_keys

    @property
    def target(self) -> float:
        """Return the log perplexity of the target: a run converges at the first evaluation at or below it."""
        assert self.benchmark.target_log_perplexity is not None, "a judged run has a target"
        return self.benchmark.target_log_perplexity

    @property
    def sequence_length(self) -> int:
        return self.benchmark.model.seq_length

    @property
    def flops_per_token(self) -> float:
        return self.benchmark.flops_per_token

    @property
    def start_samples(self) -> int:
        """Return the samples of the initial checkpoint, from which ``init_checkpoint_step`` follows."""
        return self.benchmark.start_samples

    @property
    def official(self) -> bool:
        return self.stands_for is None

    @property
    def runs(self) -> int:
        """Return the number of runs of a result, exactly."""
        return self.score.runs

    @property
    def num_middle_runs(self) -> int:
        """Return the number of runs whose mean is the score."""
        return self.runs - 2 * self.score.dropped

    def middle(self, values: Sequence[float]) -> float:
        """Return the mean of the values of all :attr:`runs`, without the smallest and the largest."""
        dropped = self.score.dropped
        return math.fsum(sorted(values)[dropped : self.runs - dropped]) / self.num_middle_runs

    @property
    def middle_words(self) -> str:
        return "middle one of three" if self.runs == 3 else f"mean of the middle {self.num_middle_runs} of {self.runs}"

    @property
    def one_of(self) -> str:
        return f"one of {'three' if self.runs == 3 else self.runs}"

    @property
    def unit(self) -> str:
        """Return the unit in which its logs count training."""
        return "tokens" if self.log_keys.progress == "epoch_num" else "samples"

    @property
    def tokens_per_unit(self) -> int:
        return 1 if self.unit == "tokens" else self.sequence_length

    def count(self, tokens: float) -> str:
        """Return a number of tokens in the unit of its logs, as a reader finds it there."""
        return f"{tokens / self.tokens_per_unit:,.0f}"

    def steps(self, samples: int, batch_size: float) -> int:
        """Return ceil(samples / batch size), by which the rules convert reference steps to another batch size."""
        return math.ceil(samples / batch_size)

    def eval_interval(self, batch_size: float) -> int:
        """Return the steps between evaluations."""
        return self.steps(self.benchmark.eval_interval_samples, batch_size)

    def tokens_per_evaluation(self, batch_size: float) -> float:
        """Return the tokens between evaluations, in whole batches."""
        return self.eval_interval(batch_size) * batch_size * self.sequence_length

    def first_evaluation(self, batch_size: float) -> float:
        """Return the tokens at the first evaluation."""
        factor, summand = self.evaluation.skipped_evaluations
        return (math.floor(factor * batch_size + summand) + 1) * self.tokens_per_evaluation(batch_size)


def _configuration(keys: LogKeys, *extra_keys: str) -> tuple[str, ...]:
    return (
        "submission_org", "submission_platform", "submission_division", "submission_benchmark",
        "global_batch_size", "gradient_accumulation_steps", "max_sequence_length", "eval_samples", *extra_keys,
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


def _schedule(benchmark: Benchmark, *rates: BaseLearningRate) -> ScheduleRules:
    """Return the rules that fix warm-up and decay as the benchmark has them, and these peak learning rates."""
    optimizer = benchmark.optimizer
    return ScheduleRules(
        reference_batch_size=benchmark.global_batch_size,
        warmup_samples=optimizer.lr_warmup_samples,
        decay_samples=None if benchmark.max_steps else optimizer.lr_decay_samples,
        max_steps=benchmark.max_steps,
        decay_excludes_warmup=benchmark.max_steps is not None,
        learning_rates=rates,
        rate_per_sample=None,
        rate_rounding=0.0,
        end_rate=None,
    )


def _reference_batch_sizes(benchmark: Benchmark) -> tuple[int, int]:
    """Return the smallest and the largest batch size of reference runs."""
    sizes = [size for size, _ in benchmark.samples_to_target]
    return sizes[0], sizes[-1]


def _rehearsal_of(official: Judged, benchmark: Benchmark, floor: float) -> Judged:
    """Return the record of a rehearsal: the rules of ``official`` in the sizes of ``benchmark``."""
    sequences = benchmark.evaluation_sequences
    return Judged(
        benchmark=benchmark,
        rulesets=official.rulesets,
        configuration=official.configuration,
        fixed=(*_fixed(benchmark), *((key, value) for key, value in official.fixed if key in ALIKE)),
        informative=(),
        score=replace(official.score, floor=floor, batch_sizes=(1, 10**9)),
        schedule=_schedule(benchmark, BaseLearningRate(0, 10**9, (benchmark.optimizer.lr,))),
        evaluation=EvaluationRules(
            official.evaluation.skipped_evaluations, () if sequences is None else (sequences,), sequences or 0
        ),
        limits=replace(official.limits, shortest_init_s=0.0),
        points=FOLDER / f"{benchmark.name}_points.json",
        stands_for=official.name,
        changes=official.changes,
    )


def _informative(benchmark: Benchmark, vocabulary: int) -> tuple[tuple[str, float, float], ...]:
    """Return the ranges of target, vocabulary and expert parallelism, which a log may name. Frameworks pad the
    vocabulary to a multiple of 128 x tensor parallel; no model here has experts."""
    target = benchmark.target_log_perplexity
    assert target is not None, "a judged run has a target"
    return (
        ("target_accuracy", target, target),
        ("vocab_size", vocabulary, vocabulary + LARGEST_PADDING),
        ("expert_parallelism", 1, 1),
    )


DISCLOSURE = (
    "lowest_numerical_precision_in_linear", "lowest_numerical_precision_in_attn", "lowest_numerical_precision_in_comm",
    "tensor_parallelism", "pipeline_parallelism", "context_parallelism", "expert_parallelism", "micro_batch_size",
    "config_filename",
)  # fmt: skip
"""Keys that every log holds once from ruleset 6.1.0 on."""
ALIKE = ("max_steps", "opt_adamw_weight_decay")
"""Keys whose value is the same in a rehearsal, though not every benchmark fixes it."""
WHOLE_SUBSET_SEQUENCES = 5660
"""Sequences of GPT-3's validation subset."""
NONE_SKIPPED = (0.0, 0.0)
LARGEST_PADDING = 4096
"""Most rows that a framework adds to a vocabulary: a multiple of 128 x tensor parallel, of 32 devices at most."""

GPT3 = Judged(
    benchmark=GPT3_175B,
    rulesets=("3.0.0", "3.1.0", "4.0.0", "4.1.0"),
    configuration=_configuration(GPT3_175B.log_keys, "init_checkpoint_step"),
    fixed=(
        *_fixed(GPT3_175B),
        ("num_layers", GPT3_175B.model.num_layers),
        ("num_heads", GPT3_175B.model.num_attention_heads),
        ("hidden_size", GPT3_175B.model.hidden_size),
        ("ffn_hidden_size", 4 * GPT3_175B.model.hidden_size),
        ("sequence_length", GPT3_175B.model.seq_length),
        ("layernorm_epsilon", 1e-5),
        ("hidden_dropout", 0),
        ("attention_dropout", 0),
        ("opt_weight_decay", GPT3_175B.optimizer.weight_decay),
    ),
    informative=_informative(GPT3_175B, 50_257),
    score=ScoreRules(
        floor=2.6,
        runs=3,
        dropped=1,
        batch_sizes=_reference_batch_sizes(GPT3_175B),
        convergence_slack_samples=0,
    ),
    schedule=_schedule(
        GPT3_175B,
        BaseLearningRate(1535, 3073, (2e-5,)),
        BaseLearningRate(3072, 4096, (2e-5, 3e-5)),
        BaseLearningRate(4095, 8193, (3e-5,)),
    ),
    evaluation=EvaluationRules(
        NONE_SKIPPED, eval_samples=(11590004, 24567), validation_sequences=WHOLE_SUBSET_SEQUENCES
    ),
    limits=PlausibleLimits(
        shortest_init_s=10.0,  # it reads 2 TB of checkpoint in thousands of processes; published runs take 119 s
        narrowest_bits=8,
        lowest_mfu=0.15,
        published_mfu=0.42,
        hasty_evaluation=4.5,
    ),
    published=FOLDER / "published_runs.csv",
)

_LLAMA_KEYS = ("opt_adamw_weight_decay", "max_steps")
LLAMA8B = Judged(
    benchmark=LLAMA31_8B,
    rulesets=("5.1.0", "6.0.0", "6.1.0"),
    configuration=_configuration(LLAMA31_8B.log_keys, *_LLAMA_KEYS),
    fixed=(
        *_fixed(LLAMA31_8B),
        ("opt_adamw_weight_decay", LLAMA31_8B.optimizer.weight_decay),
        ("max_steps", LLAMA31_8B.max_steps or 0),
        ("num_layers", LLAMA31_8B.model.num_layers),
        ("num_heads", LLAMA31_8B.model.num_attention_heads),
        ("hidden_size", LLAMA31_8B.model.hidden_size),
        ("sequence_length", LLAMA31_8B.model.seq_length),
        ("hidden_dropout", 0),
        ("attention_dropout", 0),
    ),
    informative=_informative(LLAMA31_8B, 128_000),  # the README says 128,000, logs 128,256
    score=ScoreRules(
        floor=0.0,
        runs=10,
        dropped=1,
        batch_sizes=_reference_batch_sizes(LLAMA31_8B),
        convergence_slack_samples=0,
    ),
    schedule=replace(_schedule(LLAMA31_8B), reference_batch_size=1, warmup_samples=None),
    evaluation=EvaluationRules(
        NONE_SKIPPED,
        eval_samples=(LLAMA31_8B.evaluation_sequences or 0,),
        validation_sequences=LLAMA31_8B.evaluation_sequences or 0,
    ),
    limits=PlausibleLimits(
        shortest_init_s=1.0,  # published runs take 4.9 s
        narrowest_bits=4,
        lowest_mfu=0.09,
        published_mfu=0.26,
        hasty_evaluation=7.0,
    ),
    changes={"6.1.0": {"configuration": _configuration(LLAMA31_8B.log_keys, *_LLAMA_KEYS, *DISCLOSURE)}},
)

_405B_SCHEDULE = replace(
    _schedule(LLAMA31_405B),
    decay_samples=None,
    rate_per_sample=LLAMA31_405B.optimizer.lr / LLAMA31_405B.global_batch_size,
    rate_rounding=1e-8,
    end_rate=LLAMA31_405B.optimizer.min_lr,
)
_405B_SCORE = ScoreRules(
    floor=0.0,
    runs=3,
    dropped=1,
    batch_sizes=(1008, 9216),
    convergence_slack_samples=LLAMA31_405B.eval_interval_samples,
)
LLAMA405B = Judged(
    benchmark=LLAMA31_405B,
    rulesets=("5.0.0", "5.1.0", "6.0.0"),
    configuration=_configuration(LLAMA31_405B.log_keys, "opt_adamw_weight_decay", "init_checkpoint_step"),
    fixed=(*_fixed(LLAMA31_8B), ("opt_adamw_weight_decay", LLAMA31_405B.optimizer.weight_decay)),  # as the 8B's
    informative=_informative(LLAMA31_405B, 32_000),
    score=_405B_SCORE,
    schedule=_405B_SCHEDULE,
    evaluation=EvaluationRules(
        NONE_SKIPPED,
        eval_samples=(LLAMA31_405B.evaluation_sequences or 0,),
        validation_sequences=LLAMA31_405B.evaluation_sequences or 0,
    ),
    limits=PlausibleLimits(
        shortest_init_s=10.0,
        narrowest_bits=4,
        lowest_mfu=0.15,
        published_mfu=0.69,
        hasty_evaluation=4.5,
    ),
    changes={
        "5.1.0": {
            "benchmark": replace(LLAMA31_405B, eval_interval_samples=18_432),
            "evaluation": EvaluationRules(
                (0.0026, 12.0),
                eval_samples=(LLAMA31_405B.evaluation_sequences or 0,),
                validation_sequences=LLAMA31_405B.evaluation_sequences or 0,
            ),
            "score": replace(_405B_SCORE, batch_sizes=(1152, 4608)),
            "schedule": replace(
                _405B_SCHEDULE,
                decay_samples=LLAMA31_405B.optimizer.lr_decay_samples,
                decay_excludes_warmup=True,
            ),
        }
    },
)

REHEARSED = _rehearsal_of(GPT3, REHEARSAL, floor=2.2)
REHEARSED_LLAMA = _rehearsal_of(LLAMA8B, REHEARSAL_LLAMA, floor=0.0)

JUDGED = {judged.name: judged for judged in (GPT3, LLAMA8B, LLAMA405B, REHEARSED, REHEARSED_LLAMA)}
"""By the name in logs; where a log names none, the first that the ruleset has is assumed."""
OFFICIAL = {name: judged for name, judged in JUDGED.items() if judged.official}


def assumed(ruleset: str | None) -> Judged:
    """Return the benchmark that judges a log which names no benchmark of the table."""
    return next((judged for judged in JUDGED.values() if ruleset in judged.rulesets), GPT3)


def in_words(benchmarks: Sequence[Judged]) -> str:
    """Return which benchmarks are in which rounds."""
    return "; ".join(
        f"{judged.name} is in rounds {judged.rulesets[0][:3]} to {judged.rulesets[-1][:3]}" for judged in benchmarks
    )
