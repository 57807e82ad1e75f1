"""``summary.json``: how a run ended. Its presence means that the run has finished."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmark.run_record.endings import Ending
from benchmark.run_record.file_names import summary_path
from benchmark.run_record.small_files import write_object


@dataclass(frozen=True)
class Summary:
    """The end of a run; the contents of ``summary.json``."""

    status: Ending
    seed: int
    trained_tokens: int
    """Tokens trained since the initial checkpoint."""
    trained_samples: int
    evaluations: Sequence[Mapping[str, float]]
    """trained_tokens and log_perplexity of each."""
    run_s: float
    """Seconds from the moment this process began or continued the run to the end."""
    tokens_per_s: float
    """Tokens trained in ``run_s`` divided by it; the time includes evaluations."""
    first_loss_s: float | None
    """Seconds from the start of the process to its first loss."""
    restarts: int
    result: str
    """Path of the MLPerf log."""


def write_summary(run_dir: Path, summary: Summary) -> None:
    """Write the file whole or not at all, to the disk. Raises OSError."""
    write_object(summary_path(run_dir), summary, indent=1)
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system that syncs no folders
            os.fsync(folder)
    finally:
        os.close(folder)
