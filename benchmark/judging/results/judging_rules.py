"""The types of a benchmark's published rules, and of the limits beyond which its results are not plausible.

No field has a default: each benchmark says of each rule whether it has it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class BaseLearningRate:
    """Peak learning rate that the rules give to a range of batch sizes."""

    above: int
    """The batch size must be greater than this."""
    below: int
    """The batch size must be less than this."""
    allowed: tuple[float, ...]


@dataclass(frozen=True)
class ScheduleRules:
    """The rules of the learning rate."""

    reference_batch_size: int
    """Global batch size for which the rules state numbers of steps."""
    warmup_samples: int | None
    """Samples of the warm-up; None: submitters choose it."""
    decay_samples: int | None
    """Samples at which the cosine ends; None if no rule gives a number of samples."""
    max_steps: int | None
    """Step at which the cosine ends in every batch size; None if no rule gives a step."""
    decay_excludes_warmup: bool
    """True if ``opt_learning_rate_decay_steps`` begin after the warm-up; the official checker wants the exact
    number."""
    learning_rates: tuple[BaseLearningRate, ...]
    """Peak learning rates by batch size; empty: submitters choose."""
    rate_per_sample: float | None
    """Peak learning rate over the batch size; None if the rules do not fix it."""
    rate_rounding: float
    """Largest difference of a peak learning rate from the rules' due to rounding."""
    end_rate: float | None
    """Final learning rate; None: a tenth of the peak."""


@dataclass(frozen=True)
class EvaluationRules:
    """The rules of the evaluations."""

    skipped_evaluations: tuple[float, float]
    """Factor of the batch size and summand of the number of evaluations, rounded down, that the rules leave out."""
    eval_samples: tuple[int, ...]
    """Accepted values of the key eval_samples; empty accepts any."""
    validation_sequences: int
    """Number of sequences that an evaluation takes; 0 if no rule asks for it."""


@dataclass(frozen=True)
class ScoreRules:
    """The rules by which runs become a score."""

    floor: float
    """Log perplexity that no honest run reaches: the official checker's lower limit."""
    runs: int
    """Number of runs of a result, exactly."""
    dropped: int
    """Number of runs that a score leaves out at either end: the fastest and the slowest."""
    batch_sizes: tuple[int, int]
    """Smallest and largest global batch size with reference points."""
    convergence_slack_samples: int
    """Samples by which a result may fall below the least of the convergence test."""


@dataclass(frozen=True)
class PlausibleLimits:
    """Limits of the benchmark's published results, with a margin."""

    shortest_init_s: float
    """Least plausible seconds of initialisation."""
    narrowest_bits: int
    """Bits of the narrowest numbers that the rules allow to train in."""
    lowest_mfu: float
    """Least plausible MFU. Below it the counts of devices are hardly those of the run."""
    published_mfu: float
    """Least MFU of published results."""
    hasty_evaluation: float
    """Most tokens per second of evaluations over those of the usual block, half as many again as published runs have:
    a forward pass alone takes a third of a step's time."""
