"""Where a run is: plain data, which a checkpoint holds as JSON."""

from dataclasses import dataclass, field

from benchmark.config.run_config import Benchmark


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
    """Of the data order."""
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
    """Length of the MLPerf log when the checkpoint was written; what is beyond it never happened."""
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def iteration(self) -> int:
        """Steps since step 0 in this run's batch size, those of the initial checkpoint included, rounded down."""
        return self.start_samples // self.global_batch_size + self.steps

    @property
    def consumed_samples(self) -> int:
        """Since step 0; the next step reads its samples from here."""
        return self.start_samples + self.steps * self.global_batch_size

    @property
    def scheduled_samples(self) -> int:
        """What the learning rate is computed from: consumed samples without those of skipped steps."""
        return self.consumed_samples - self.skipped_steps * self.global_batch_size

    @property
    def trained_tokens(self) -> int:
        """Since the initial checkpoint."""
        return self.steps * self.global_batch_size * self.seq_length


def starting_progress(benchmark: Benchmark, seed: int) -> Progress:
    return Progress(seed, benchmark.start_samples, benchmark.global_batch_size, benchmark.model.seq_length)
