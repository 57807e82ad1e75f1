"""The results given to ``package``."""

from collections.abc import Sequence
from pathlib import Path

from benchmark.results.judged import GPT3
from benchmark.results.recorded_run import RecordedRun, read_recorded_run
from stage.errors import InputError

NUMBER_OF_RESULTS = 3
"""What the rules ask for gpt3 and the official package checker counts (docs/facts/mlperf_review.md 4.2, 7.9)."""


def read_results(paths: Sequence[Path]) -> list[RecordedRun]:
    """Raises InputError unless they are three different logs of gpt3."""
    if len(paths) != NUMBER_OF_RESULTS:
        raise InputError(f"--results: {len(paths)} given, but a submission has exactly {NUMBER_OF_RESULTS}")
    results = [read_recorded_run(path) for path in paths]
    for number, result in enumerate(results):
        if not result.summary.log.events:
            raise InputError(f"{result.path}: no MLLOG record in it; give the result_N.txt that a run wrote")
        name = result.summary.benchmark
        if name != GPT3.name:
            raise InputError(f"{result.path}: a run of {name!r}, but only runs of {GPT3.name} make a submission")
        for other in results[:number]:
            if result.path.read_bytes() == other.path.read_bytes():
                raise InputError(f"{result.path}: the same log as {other.path}; give three different runs")
    return results
