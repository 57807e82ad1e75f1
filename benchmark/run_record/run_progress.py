"""The progress of a run: plain data, which a checkpoint holds as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmark.config.benchmark_config import Benchmark
from benchmark.run_record.events.run_clock import ClockMark


@dataclass
class Evaluation:
    """One pass over the validation set."""

    trained_tokens: int
    """Tokens trained since the initial checkpoint."""
    log_perplexity: float
    """Nats per scored token."""


@dataclass
class Progress:
    """The progress of a run. All of it is plain data, stored as JSON in a checkpoint."""

    seed: int
    """The seed of the order of the samples."""
    start_samples: int
    """Samples consumed by the initial checkpoint, since step 0."""
    global_batch_size: int
    seq_length: int
    steps: int = 0
    """Optimizer steps since the initial checkpoint, skipped ones included."""
    skipped_steps: int = 0
    """Steps whose gradients were not finite. Their samples count as consumed, but the learning rate does not advance
    (docs/facts/reference.md e)."""
    skipped_in_a_row: int = 0
    """Skipped steps since the last step that was not skipped; the run gives up when there are too many."""
    restarts: int = 0
    """Number of times the run was continued from a checkpoint of its own."""
    mlperf_log_bytes: int = 0
    """Bytes of the MLPerf log that were on the disk when the checkpoint was written."""
    mlperf_log_rest: list[str] = field(default_factory=list)
    """Lines of the MLPerf log that had perhaps not reached the disk then. A resumed run truncates the log to
    ``mlperf_log_bytes`` and writes these lines again."""
    clock: ClockMark | None = None
    """The clock of the log's times when the checkpoint was written; None in checkpoints of versions that did not keep
    it."""
    evidence_head: str = ""
    """Digest of the evidence's last link at that time (benchmark/run_record/evidence_chain.py); empty without
    evidence."""
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def iteration(self) -> int:
        """Steps since step 0 in this run's batch size, including those of the initial checkpoint, rounded down."""
        return self.start_samples // self.global_batch_size + self.steps

    @property
    def consumed_samples(self) -> int:
        """Samples consumed since step 0; the next step reads from this index on."""
        return self.samples_after(self.steps)

    def samples_after(self, steps: int) -> int:
        """Return the index, in the order of samples since step 0, of the first sample read after ``steps`` steps."""
        return self.start_samples + steps * self.global_batch_size

    def count_step(self, *, skipped: bool) -> None:
        """Count a step that was done; ``skipped``: without an update."""
        self.steps += 1
        self.skipped_steps += skipped
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0

    @property
    def scheduled_samples(self) -> int:
        """Samples that the learning rate is computed from: all trained samples except those of skipped steps."""
        return self.start_samples + (self.steps - self.skipped_steps) * self.global_batch_size

    @property
    def trained_tokens(self) -> int:
        """Tokens trained since the initial checkpoint."""
        return self.steps * self.global_batch_size * self.seq_length


def starting_progress(benchmark: Benchmark, seed: int) -> Progress:
    return Progress(seed, benchmark.start_samples, benchmark.global_batch_size, benchmark.model.seq_length)


def progress_of(fields: Mapping[str, Any]) -> Progress:
    """Rebuild a progress from the fields that :func:`dataclasses.asdict` gave, after JSON.

    Fields that an older version did not write get their defaults. Raises ValueError for unknown fields.
    """
    try:
        return msgspec.convert(fields, Progress)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
