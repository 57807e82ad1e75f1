"""The results given to ``package``: each a result file, or the folder of a run that wrote one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.review.judged import GPT3
from benchmark.review.mllog import read_log
from benchmark.review.summary import RunSummary, summarize
from stage.errors import InputError

NUMBER_OF_RESULTS = 3
"""What the rules ask for gpt3 and the official package checker counts (mlperf_review facts 0)."""
MOST_BYTES = 64 << 20
"""Of events.jsonl: 20,000 steps take 8 MB."""


@dataclass(frozen=True)
class Result:
    """One run's log, and what its folder says besides; empty for a log of someone else's."""

    path: Path
    summary: RunSummary
    config: Mapping[str, Any]
    """The resolved configuration, ``config.json``."""
    inputs: Mapping[str, Any]
    """Data and checkpoint with their digests, as the run stamped them into its events."""
    environment: Mapping[str, Any]
    """Commit and versions, likewise."""


def read_results(paths: Sequence[Path]) -> list[Result]:
    """Raises InputError unless they are three different logs of gpt3."""
    if len(paths) != NUMBER_OF_RESULTS:
        raise InputError(f"--results: {len(paths)} given, but a submission has exactly {NUMBER_OF_RESULTS}")
    results = [_read_result(_log_in(path)) for path in paths]
    for result in results:
        if not result.summary.log.events:
            raise InputError(f"{result.path}: no MLLOG record in it; give the result_N.txt that a run wrote")
        name = result.summary.benchmark
        if name != GPT3.name:
            raise InputError(f"{result.path}: a run of {name!r}, but only runs of gpt3 make a submission")
    for number, result in enumerate(results):
        for other in results[:number]:
            if result.path.read_bytes() == other.path.read_bytes():
                raise InputError(f"{result.path}: the same log as {other.path}; give three different runs")
    return results


def _log_in(path: Path) -> Path:
    if path.is_file():
        return path
    found = sorted(path.glob("result_*.txt"))
    if len(found) != 1:
        raise InputError(f"{path}: expected a result file, or a folder with one result_*.txt, not {len(found)}")
    return found[0]


def _read_result(log: Path) -> Result:
    config: dict[str, Any] = {}
    if (log.parent / "config.json").is_file():
        try:
            config = dict(json.loads((log.parent / "config.json").read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise InputError(f"{log.parent / 'config.json'}: not a run's configuration ({error})") from error
    notes = _notes(log.parent / "events.jsonl", ("inputs", "environment"))
    return Result(log, summarize(read_log(log)), config, notes["inputs"], notes["environment"])


def _notes(path: Path, keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The last value of each key in a run's events; empty where there is none."""
    found: dict[str, Mapping[str, Any]] = {key: {} for key in keys}
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if any(f'"{key}"' in line for key in keys):
            try:
                event = json.loads(line)
            except ValueError:  # the last line of a run that was killed
                continue
            if isinstance(event, dict) and event.get("key") in found and isinstance(event.get("value"), dict):
                found[event["key"]] = event["value"]
    return found
