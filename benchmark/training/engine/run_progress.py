"""Where a run is: plain data, which a checkpoint holds as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmark.config.run_config import Benchmark
from benchmark.events.run_clock import ClockMark


@dataclass
class Evaluation:
    """One pass over the validation set."""

    trained_tokens: int
    """Since the initial checkpoint."""
    log_perplexity: float
    """Nats per scored token."""


@dataclass
class Progress:
    """Where a run is. All of it is plain data, stored as JSON in a checkpoint."""

    seed: int
    """The seed of the order of the samples."""
    start_samples: int
    """Samples consumed by the initial checkpoint, since step 0."""
    global_batch_size: int
    seq_length: int
    steps: int = 0
    """Optimizer steps since the initial checkpoint, skipped ones included."""
    skipped_steps: int = 0
    """Steps whose gradients were not finite: their samples count as consumed, the learning rate stays
    (docs/facts/reference.md e)."""
    skipped_in_a_row: int = 0
    """Of these, the latest: the run gives up when there are too many."""
    restarts: int = 0
    """How often the run was continued from a checkpoint of its own."""
    mlperf_log_bytes: int = 0
    """Length of the MLPerf log on the disk when the checkpoint was written ..."""
    mlperf_log_rest: list[str] = field(default_factory=list)
    """... and the lines behind it, which may not have been there yet; all else that is there never happened."""
    clock: ClockMark | None = None
    """Of the log's times, when the checkpoint was written; None: it was written by a version that did not keep it."""
    evidence_head: str = ""
    """Digest of the last link of the evidence then (benchmark/evidence/chain.py); empty without evidence."""
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def iteration(self) -> int:
        """Steps since step 0 in this run's batch size, those of the initial checkpoint included, rounded down."""
        return self.start_samples // self.global_batch_size + self.steps

    @property
    def consumed_samples(self) -> int:
        """Since step 0; the next step reads its samples from here."""
        return self.samples_after(self.steps)

    def samples_after(self, steps: int) -> int:
        """Where in the order of samples the step after ``steps`` steps begins to read, since step 0."""
        return self.start_samples + steps * self.global_batch_size

    def count_step(self, *, skipped: bool) -> None:
        """A step was done; ``skipped``: without an update."""
        self.steps += 1
        self.skipped_steps += skipped
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0

    @property
    def scheduled_samples(self) -> int:
        """What the learning rate is computed from: trained samples, that is, without those of skipped steps."""
        return self.start_samples + (self.steps - self.skipped_steps) * self.global_batch_size

    @property
    def trained_tokens(self) -> int:
        """Since the initial checkpoint."""
        return self.steps * self.global_batch_size * self.seq_length


def starting_progress(benchmark: Benchmark, seed: int) -> Progress:
    return Progress(seed, benchmark.start_samples, benchmark.global_batch_size, benchmark.model.seq_length)


def progress_of(fields: Mapping[str, Any]) -> Progress:
    """What :func:`dataclasses.asdict` made of a progress, through JSON; an older one lacks fields that have defaults.

    Raises ValueError for other fields.
    """
    try:
        return msgspec.convert(fields, Progress)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
