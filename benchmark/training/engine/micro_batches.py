"""Choose the samples that each process reads at each step, and make batches of them.

The order is the reference's: docs/facts/reference.md b.5, c.1, c.4.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.system_config import System
from data_prep.sample_order.token_windows import PADDING, TokenWindows, require_vocabulary
from model.passes.chunk_pass import MicroBatch

TokenIds = npt.NDArray[np.int64]


def training_sample_ids(
    consumed_samples: int, *, micro_batch_size: int, num_microbatches: int, rank: int, world_size: int
) -> TokenIds:
    """Return one rank's samples in the step that begins at ``consumed_samples``: [num_microbatches, micro_batch_size].

    The step reads consecutive samples, distributed to the ranks micro-batch by micro-batch.
    """
    step = np.arange(num_microbatches * world_size * micro_batch_size, dtype=np.int64)
    return consumed_samples + step.reshape(num_microbatches, world_size, micro_batch_size)[:, rank]


def evaluation_sample_ids(num_samples: int, *, micro_batch_size: int, rank: int, world_size: int) -> TokenIds:
    """Return one rank's part of the whole validation set, distributed as in training: [micro-batches,
    micro_batch_size].

    All ranks get the same number of micro-batches. Ids -1, -2, ... fill the set up: samples that do not count. (The
    reference fills it up to a multiple of the global batch size; micro-batches of such ids alone are left out here.)
    """
    at_once = micro_batch_size * world_size
    padded = -(-num_samples // at_once) * at_once
    ids = np.concatenate([np.arange(num_samples), -1 - np.arange(padded - num_samples)]).astype(np.int64)
    return ids.reshape(-1, world_size, micro_batch_size)[:, rank]


def micro_batch(windows: TokenIds, does_not_count: npt.NDArray[np.bool_], *, labels_last: bool = False) -> MicroBatch:
    """Make the labels and loss mask of token windows [B, S] in which missing tokens are -1.

    The label of a position is the next token of the same window, so the last position has none; with ``labels_last``
    windows are [B, S + 1], and it has one. Windows that ``does_not_count`` [B] marks, and missing tokens, are masked.
    """
    labels = np.roll(windows, -1, axis=1)
    labels[:, -1] = PADDING
    if labels_last:
        windows, labels = windows[:, :-1], labels[:, :-1]
    mask = (labels != PADDING) & ~does_not_count[:, None]
    return MicroBatch(
        tokens=torch.from_numpy(np.where(windows == PADDING, 0, windows)),
        labels=torch.from_numpy(np.where(labels == PADDING, 0, labels)),
        loss_mask=torch.from_numpy(mask.astype(np.float32)),
    )


def read_micro_batch(
    windows: TokenWindows, ids: TokenIds, vocab_size: int, *, pinned: bool = False, labels_last: bool = False
) -> MicroBatch:
    """Read samples [B]; for a negative id, read some sample that does not count. ``pinned``: for a copy to a GPU;
    ``labels_last``: as :func:`micro_batch`.

    In the reference, padding must not outnumber the samples, and a padding sample of a blend can count after all
    (docs/facts/reference.md j.17); here neither holds. Raises InputError for a token outside the vocabulary.
    """
    samples = np.abs(ids) % len(windows)
    rows = np.stack([windows.window(int(sample)) for sample in samples])
    for sample, row in zip(samples.tolist(), rows, strict=True):
        require_vocabulary(windows, sample, row, vocab_size)
    batch = micro_batch(rows, ids < 0, labels_last=labels_last)
    return batch.pinned() if pinned else batch


class TrainingBatches:
    """The micro-batches of each step, read one step ahead by a thread.

    ``rank``: number among the data-parallel ranks. ``reads``: whether this process needs tokens
    (``World.reads_tokens``).
    """

    def __init__(
        self, windows: TokenWindows, benchmark: Benchmark, system: System, *, rank: int, reads: bool = True
    ) -> None:
        self._windows, self._benchmark, self._system, self._rank, self._reads = windows, benchmark, system, rank, reads
        self._thread = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[list[MicroBatch]]] | None = None

    def at(self, consumed_samples: int) -> list[MicroBatch]:
        """Return this rank's micro-batches in the step that begins at ``consumed_samples``; none if it needs no
        tokens."""
        if not self._reads:
            return []
        if self._ahead is None or self._ahead[0] != consumed_samples:
            self._ahead = (consumed_samples, self._thread.submit(self._read, consumed_samples))
        batches = self._ahead[1].result()
        following = consumed_samples + self._benchmark.global_batch_size
        if following + self._benchmark.global_batch_size <= self._benchmark.train_samples:
            self._ahead = (following, self._thread.submit(self._read, following))
        return batches

    def _read(self, consumed_samples: int) -> list[MicroBatch]:
        benchmark, system, pinned = self._benchmark, self._system, self._system.device == "cuda"
        ids = training_sample_ids(
            consumed_samples,
            micro_batch_size=system.micro_batch_size,
            num_microbatches=system.num_microbatches(benchmark.global_batch_size),
            rank=self._rank,
            world_size=system.data_parallel,
        )
        vocab_size, labels_last = benchmark.model.vocab_size, benchmark.labels_last_token
        return [read_micro_batch(self._windows, row, vocab_size, pinned=pinned, labels_last=labels_last) for row in ids]
