"""``summary.json``: how a run ended. Its presence means that the run has finished."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmark.run_record.endings import Ending
from benchmark.run_record.file_names import summary_path
from benchmark.run_record.run_progress import Evaluation
from foundation.outputs.publish import write_text


@dataclass(frozen=True)
class Summary:
    """The end of a run; the contents of ``summary.json``."""

    status: Ending
    seed: int
    trained_tokens: int
    """Tokens trained since the initial checkpoint."""
    trained_samples: int
    evaluations: list[Evaluation]
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
    """Write the file whole or not at all. Raises OSError."""
    write_text(summary_path(run_dir), json.dumps(asdict(summary), indent=1) + "\n")
