"""The order of training windows of each benchmark, as data for ``samples``; a test compares it with the run's own."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingOrder:
    """The windows that a benchmark's training reads, and the first of them."""

    vocab_size: int
    """Ids are below it."""
    sequence_length: int
    global_batch_size: int
    """The benchmark's usual number of samples per step."""
    num_samples: int | None = None
    """Samples that the order is built for; None: ``num_steps`` steps of the run's own global batch size."""
    num_steps: int | None = None
    start_samples: int = 0
    """Samples consumed before the first step of a run."""
    plus_one: bool = False
    """A window has one token more than the sequence."""
    shuffle_documents: bool = False
    """Megatron-Core's order (``shuffled_documents``) instead of that of GPT-3's reference."""

    def requested_samples(self, global_batch_size: int) -> int:
        """Return the number of samples that the order is built for; the number of epochs follows from it."""
        return (self.num_steps or 0) * global_batch_size if self.num_samples is None else self.num_samples


TRAINING_ORDERS = {
    "gpt3_175b": TrainingOrder(50257, 2048, 1536, num_samples=20_000_000, start_samples=4000 * 1536),
    "rehearsal": TrainingOrder(1000, 128, 16, num_samples=20_000_000 // 96, start_samples=4000 * 16),
    "llama31_8b": TrainingOrder(128256, 8192, 16, num_steps=1_200_000, plus_one=True, shuffle_documents=True),
    "rehearsal_llama": TrainingOrder(1000, 128, 16, num_samples=8192, plus_one=True, shuffle_documents=True),
}
"""By name of the benchmark. Sources: docs/facts/reference.md b.1, b.6; docs/facts/llama31_8b.md 9.1, 9.6."""
