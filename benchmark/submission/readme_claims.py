"""What a package's README says of its runs: only what their logs, their stamped digests or manifests support."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import checksums
from benchmark.results.judged import GPT3
from benchmark.results.recorded_run import RecordedRun
from benchmark.results.run_summary import RunSummary
from checksums.md5_list import read_list

PUBLISHED_DATA: Mapping[str, str] = read_list(Path(checksums.__path__[0]) / "dataset_checksum.log")
"""MD5 of the benchmark's preprocessed files by name, as MLCommons published them."""
TRAINING_FILES = tuple(name for name in PUBLISHED_DATA if "validation" not in name)
VALIDATION_FILES = tuple(name for name in PUBLISHED_DATA if "validation" in name)
Runs = Sequence[RecordedRun]


@dataclass(frozen=True)
class ReadmeClaim:
    """A sentence about the runs of a result, and what must be so for it."""

    topic: str
    """Named where nothing supports the sentence."""
    text: str
    supported: Callable[[Runs], bool]


def _in_every_log(holds: Callable[[RunSummary], bool]) -> Callable[[Runs], bool]:
    return lambda runs: all(holds(run.summary) for run in runs)


def _published(names: Sequence[str]) -> Callable[[Runs], bool]:
    """Whether each run stamped these files, with the published digests."""
    return lambda runs: all(run.digests.get(name) == PUBLISHED_DATA[name] for run in runs for name in names)


def _starts_at_the_reference(run: RunSummary) -> bool:
    size = run.global_batch_size
    return size is not None and run.init_checkpoint_step == GPT3.steps(GPT3.benchmark.start_samples, size)


def _adam(run: RunSummary) -> bool:
    optimizer, log = GPT3.benchmark.optimizer, run.log
    due = {
        "opt_name": "adam",
        "opt_adam_beta_1": optimizer.adam_beta1,
        "opt_adam_beta_2": optimizer.adam_beta2,
        "opt_adam_epsilon": optimizer.adam_eps,
        "opt_weight_decay": optimizer.weight_decay,
        "opt_gradient_clip_norm": optimizer.clip_grad,
    }
    return all(log.value(key) == value for key, value in due.items())


def _evaluates_on_time(run: RunSummary) -> bool:
    if run.global_batch_size is None or not run.evaluations:
        return False
    interval = GPT3.tokens_per_evaluation(run.global_batch_size)
    return all(one.tokens == number * interval for number, one in enumerate(run.evaluations, 1))


def _stops_at_target(run: RunSummary) -> bool:
    return run.reached is not None and run.reached == run.evaluations[-1]


OPTIMIZER = GPT3.benchmark.optimizer
CLAIMS = (
    ReadmeClaim(
        "the training data",
        f"Training data: {', '.join(name for name in TRAINING_FILES if name.endswith('.bin'))}, with the digests that "
        "MLCommons published for them.",
        _published(TRAINING_FILES),
    ),
    ReadmeClaim(
        "the validation data",
        "Validation data: the benchmark's subset, with the digests that MLCommons published for it.",
        _published(VALIDATION_FILES),
    ),
    ReadmeClaim(
        "the size of the validation set",
        "Evaluation reads the whole subset, as logged in `eval_samples`: "
        f"{' tokens or '.join(map(str, GPT3.eval_samples))} documents.",
        _in_every_log(lambda run: run.log.value("eval_samples") in GPT3.eval_samples),
    ),
    ReadmeClaim(
        "the sequence length",
        f"Sequences of {GPT3.benchmark.model.seq_length:,} tokens.",
        _in_every_log(lambda run: run.sequence_length == GPT3.benchmark.model.seq_length),
    ),
    ReadmeClaim(
        "the starting point",
        "Start: the step of the initial checkpoint is that of 4,000 steps at batch size 1,536.",
        _in_every_log(_starts_at_the_reference),
    ),
    ReadmeClaim(
        "the digests of the initial checkpoint",
        "The initial checkpoint is named by its digest in `manifests/`.",
        lambda runs: all(_checkpoint_stamped(run) for run in runs),
    ),
    ReadmeClaim(
        "the optimizer",
        f"Optimizer: Adam with betas {OPTIMIZER.adam_beta1:g} and {OPTIMIZER.adam_beta2:g}, epsilon "
        f"{OPTIMIZER.adam_eps:g}, weight decay {OPTIMIZER.weight_decay:g}, norm clipped at {OPTIMIZER.clip_grad:g}.",
        _in_every_log(_adam),
    ),
    ReadmeClaim(
        "the cadence of evaluations",
        "Evaluation: log perplexity per token every 24,576 samples, rounded up to whole batches.",
        _in_every_log(_evaluates_on_time),
    ),
    ReadmeClaim(
        "the stop at the target",
        f"Each run stops at its first value at or below {GPT3.target:g}.",
        _in_every_log(_stops_at_target),
    ),
)


def _checkpoint_stamped(run: RecordedRun) -> bool:
    """Whether an input that is no data file has a digest."""
    digests = run.digests
    data = [name for name in digests if name.endswith((".bin", ".idx"))]
    return any(digest is not None for name, digest in digests.items() if name not in data)


def supported_claims(runs: Runs) -> tuple[list[str], list[str]]:
    """The sentences that these runs support, and the topics of the others."""
    held = {claim.topic: bool(runs) and claim.supported(runs) for claim in CLAIMS}
    return [claim.text for claim in CLAIMS if held[claim.topic]], [topic for topic, holds in held.items() if not holds]
