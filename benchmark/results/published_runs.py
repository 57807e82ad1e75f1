"""The GPT-3 results of rounds 3.0 to 4.1 as they were published: facts of 126 logs of 42 systems, from a table.

``published_runs.csv`` is written by ``python -m benchmark.results_table.write_published`` from the rounds' repositories
(mlcommons/training_results_v3.0 63e326c4, v3.1 d06288b2, v4.0 6fe95437, v4.1 b87b9e39). docs/results.md says what its
columns mean.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PUBLISHED_RUNS = Path(__file__).with_name("published_runs.csv")


@dataclass(frozen=True)
class PublishedRun:
    """One log."""

    round: str
    """3.0, 3.1, 4.0 or 4.1."""
    submitter: str
    """Folder of its package."""
    system: str
    """Folder of its results."""
    file: str
    seed: int | None
    batch_size: float
    minutes: float
    init_s: float | None
    evaluations: Sequence[tuple[float, float]]
    """Tokens since the initial checkpoint, and log perplexity."""


@dataclass(frozen=True)
class PublishedSystem:
    """Three logs and their system description."""

    round: str
    submitter: str
    system: str
    accelerator: str
    """As the system description has it."""
    accelerators: int
    batch_size: float
    measured_minutes: float
    """The middle one of the three."""
    factor: float
    """By which the official score was multiplied: that of its scaling.json."""
    tokens_per_s_per_accelerator: float
    """Over the middle run, evaluations included."""
    mfu: float | None
    """Of the dense BF16 peak."""
    runs: Sequence[PublishedRun]

    @property
    def score_minutes(self) -> float:
        return self.measured_minutes * self.factor


@cache
def published_systems() -> tuple[PublishedSystem, ...]:
    """All 42, by round and submitter."""
    with PUBLISHED_RUNS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(_system(row, rows) for row in rows if row["row"] == "system")


def _system(row: dict[str, str], rows: Sequence[dict[str, str]]) -> PublishedSystem:
    def mine(other: dict[str, str]) -> bool:
        return all(other[name] == row[name] for name in ("round", "package", "system_folder"))

    return PublishedSystem(
        row["round"],
        row["package"],
        row["system_folder"],
        row["accelerator_model_name"],
        int(row["accelerators_count"]),
        float(row["global_batch_size"]),
        float(row["measured_minutes"]),
        float(row["scaling_factor"]),
        float(row["tokens_per_s_per_accelerator"]),
        _number(row["mfu"]),
        tuple(_run(one) for one in rows if one["row"] == "run" and mine(one)),
    )


def _run(row: dict[str, str]) -> PublishedRun:
    tokens, values = (row[name].split() for name in ("evaluation_tokens", "evaluation_values"))
    seed = _number(row["seed"])
    return PublishedRun(
        row["round"],
        row["package"],
        row["system_folder"],
        row["file"],
        None if seed is None else int(seed),
        float(row["global_batch_size"]),
        float(row["minutes"]),
        _number(row["init_s"]),
        tuple((float(x), float(y)) for x, y in zip(tokens, values, strict=True)),
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
