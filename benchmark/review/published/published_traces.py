"""The 126 published GPT-3 runs as data: who, where, when, and their evaluations (docs/facts/mlperf_review.md 6).

``published_traces.csv`` is written by :mod:`benchmark.review.published.collect_traces`; it holds figures only.
"""

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TABLE = Path(__file__).with_name("published_traces.csv")
DECIMALS = 7
"""Of the log perplexities in the table: two honest runs differ by far more."""


@dataclass(frozen=True)
class PublishedTrace:
    """One published log. Field names are the table's columns."""

    round: str
    """3.0 to 4.1."""
    folder: str
    """Of the submitter, in the round's repository."""
    system: str
    """Folder below results/."""
    file: str
    submitter: str
    """As the system description has it."""
    org: str
    platform: str
    """``submission_org`` and ``submission_platform``, placeholders included."""
    accelerator: str
    accelerators: int
    """Of the whole system, by its description."""
    global_batch_size: int
    run_start_ms: int
    intervals_ms: tuple[int, ...]
    """From run_start to the first evaluation, and from each evaluation to the next."""
    log_perplexities: tuple[float, ...]
    """At every evaluation, rounded to 7 decimals."""

    @property
    def name(self) -> str:
        """v4.1 NVIDIA/eos_n64_ngc24.09_nemo/result_0.txt"""
        return f"v{self.round} {self.folder}/{self.system}/{self.file}"


@lru_cache(maxsize=1)
def published_traces() -> tuple[PublishedTrace, ...]:
    """All of them, in the order of round, submitter and system."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(_run(row) for row in csv.DictReader(file))


def _run(row: dict[str, str]) -> PublishedTrace:
    return PublishedTrace(
        round=row["round"],
        folder=row["folder"],
        system=row["system"],
        file=row["file"],
        submitter=row["submitter"],
        org=row["org"],
        platform=row["platform"],
        accelerator=row["accelerator"],
        accelerators=int(row["accelerators"]),
        global_batch_size=int(row["global_batch_size"]),
        run_start_ms=int(row["run_start_ms"]),
        intervals_ms=tuple(map(int, row["intervals_ms"].split())),
        log_perplexities=tuple(map(float, row["log_perplexities"].split())),
    )
