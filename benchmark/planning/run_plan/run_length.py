"""Compute the length of a run: tokens to the target, in steps and evaluations.

The fewest and the most tokens are those of published runs. For a benchmark without published runs the mean is that of
reference runs.
"""

import dataclasses
import math
from dataclasses import dataclass

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_sections import DataOptions
from benchmark.training.inputs import count_validation_tokens


@dataclass(frozen=True)
class KnownRuns:
    """Facts about a benchmark's runs from published results."""

    tokens: tuple[float, float]
    """Fewest and most tokens to the target in any published result."""
    batch_sizes: tuple[int, int]
    """Smallest and largest batch size of the published results."""
    source: str


KNOWN_RUNS = {
    "gpt3_175b": KnownRuns(  # 1.158e9 and 1.460e9
        (23.0 * 24576 * 2048, 29.0 * 24576 * 2048), (1536, 6144), "the published results (docs/facts/peers.md 1.1)"
    ),
}
VALIDATION_TOKENS = {"gpt3_175b": 11_590_004, "rehearsal": 22_434}
"""Validation tokens of the published subset (docs/facts/peers.md 1.0) and of the rehearsal's generated text."""


@dataclass(frozen=True)
class RunLength:
    """A run of a number of tokens, rounded up to a whole evaluation, where a run can stop."""

    tokens: int
    steps: int
    evaluations: int
    seconds: float
    """Seconds from run_start to run_stop."""
    evaluation_share: float
    """Share of these seconds that evaluations take."""


def is_the_benchmarks(benchmark: Benchmark) -> bool:
    """Return whether model, target and start are those of the named benchmark; published runs apply only then."""
    base = BENCHMARKS[benchmark.name]
    return dataclasses.replace(benchmark, global_batch_size=base.global_batch_size, optimizer=base.optimizer) == base


def tokens_to_target(benchmark: Benchmark) -> tuple[tuple[float, ...], str]:
    """Return the fewest and the most tokens that runs of this benchmark needed, and the source; an empty tuple without
    any."""
    name, size, published = benchmark.name, benchmark.global_batch_size, KNOWN_RUNS.get(benchmark.name)
    points = benchmark.samples_to_target
    if benchmark.target_log_perplexity is None:
        samples = (benchmark.last_iteration - benchmark.start_iteration) * size
        return (float(samples * benchmark.model.seq_length),), "no target: training to the end of train_samples"
    if not (published or points) or not is_the_benchmarks(benchmark):
        return (), f"no run length: nobody has published a run of this model to this target from {name}'s start"
    low, high = (points[0][0], points[-1][0]) if published is None else published.batch_sizes
    if not low <= size <= high:
        return (), f"no run length: the batch sizes of known runs are {low} to {high}, not {size}"
    if published is not None:
        return (
            published.tokens,
            f"tokens to the target: fewest and most of {published.source}, rounded up to an evaluation",
        )
    evaluations = benchmark.expected_steps // benchmark.eval_interval
    ends = (evaluations * benchmark.eval_interval * benchmark.tokens_per_step, benchmark.expected_steps)
    return (
        (float(ends[0]), float(ends[1] * benchmark.tokens_per_step)),
        "tokens to the target: the mean of reference runs, between batch sizes interpolated; the evaluation before it "
        "and the one after it bound the run",
    )


def evaluation_sequences(benchmark: Benchmark, data: DataOptions) -> tuple[int | None, str]:
    """Return the number of sequences of an evaluation, and the source; None if it is not known."""
    sequences = benchmark.evaluation_sequences
    if sequences is not None:
        return sequences, f"evaluation: {sequences:,} sequences, by the benchmark's rules"
    tokens, source = _validation_tokens(benchmark, data)
    return None if tokens is None else math.ceil(tokens / benchmark.model.seq_length), source


def _validation_tokens(benchmark: Benchmark, data: DataOptions) -> tuple[int | None, str]:
    """Return the number of tokens of the validation set, and the source; None if it is not known."""
    if data.valid_data_path:
        tokens = count_validation_tokens(data)
        return tokens, f"validation set: {tokens:,} tokens, those of --valid-data-path"
    name = benchmark.name
    if benchmark.model.vocab_size != BENCHMARKS[name].model.vocab_size:
        return None, "no evaluation time: another vocabulary than the benchmark's; give --valid-data-path"
    return VALIDATION_TOKENS[name], f"validation set: {VALIDATION_TOKENS[name]:,} tokens, {name}'s own"


def run_length(benchmark: Benchmark, goal: float, step_s: float, evaluation_s: float) -> RunLength:
    """Return the run up to the first evaluation after ``goal`` tokens; without a target, up to the last step."""
    steps, interval = math.ceil(goal / benchmark.tokens_per_step), benchmark.eval_interval
    if benchmark.target_log_perplexity is None:
        evaluations = steps // interval
    else:
        evaluations = math.ceil(steps / interval)
        steps = evaluations * interval
    seconds = steps * step_s + evaluations * evaluation_s
    return RunLength(
        steps * benchmark.tokens_per_step, steps, evaluations, seconds, evaluations * evaluation_s / seconds
    )


def expected_length(benchmark: Benchmark, step_s: float, evaluation_s: float) -> RunLength:
    """Return the run of the mean tokens of reference runs. Where runs are published it ends with an evaluation."""
    steps, interval = benchmark.expected_steps, benchmark.eval_interval
    tokens = steps * benchmark.tokens_per_step
    if benchmark.target_log_perplexity is None or benchmark.name in KNOWN_RUNS:
        return run_length(benchmark, tokens, step_s, evaluation_s)
    evaluating_s = steps / interval * evaluation_s
    seconds = steps * step_s + evaluating_s
    return RunLength(tokens, steps, round(steps / interval), seconds, evaluating_s / seconds)
