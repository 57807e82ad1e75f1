"""What a drill's run left: its attempts, figures, logs and weights."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.drills.injector import STRUCK
from benchmark.evidence.chain import EVIDENCE, broken_links, gaps, read_chain
from benchmark.results.mllog import read_log
from benchmark.results.recorded_events import RecordedEvent, read_events
from benchmark.results.result_log import LogEvent
from benchmark.supervision.attempt_folder import all_attempts, attempts_folder
from benchmark.supervision.next_attempt import PastAttempt, past_attempt
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, newest_checkpoint
from checkpoint_convert.formats.distributed_checkpoint import dcp_arrays
from stage.errors import InputError

UNEQUAL = ("tracked_stats", "restart", "evidence")
"""Keys of the MLPerf log whose values, or whose being there, depend on the time."""
SAID = ("*.log", "*.txt", "*.json", "*.out")
MOST_SAID = 4 << 20
"""Bytes of a file of words that are looked at."""


@dataclass(frozen=True)
class Struck:
    """A fault when it struck."""

    act: str
    rank: int
    attempt: int
    steps: int
    time_s: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class AttemptRecord:
    """What events.jsonl has of an attempt that came so far."""

    attempt: int
    """Counted from 1."""
    resumed_at: int
    """Steps it began at, 0 at the initial checkpoint."""
    steps: tuple[tuple[int, float, float], ...]
    """Optimizer steps done, time in seconds since the epoch, loss."""
    saves_begun: tuple[int, ...]
    """Steps after which a checkpoint was begun."""


@dataclass(frozen=True)
class Aftermath:
    """A run as it was left."""

    attempts: tuple[PastAttempt, ...]
    records: tuple[AttemptRecord, ...]
    struck: tuple[Struck, ...]
    evaluations: tuple[float, ...]
    """Log perplexities in the MLPerf log."""
    log: tuple[LogEvent, ...]
    finished: str | None
    """Status in summary.json."""
    steps: int | None
    """Of the newest checkpoint."""
    arrays: Mapping[str, str]
    """Digests of weights and moments in it."""
    said: str
    """All that was printed and written for people."""
    evidence: tuple[str, ...] = ()
    """What does not hold in the run's chain of evidence, or between it and the log."""

    @property
    def losses(self) -> dict[int, float]:
        """By step; of a step done twice the later one."""
        return {step: loss for record in self.records for step, _, loss in record.steps}

    def log_lines(self) -> list[tuple[str, str, Any, Any]]:
        """Of the MLPerf log what is the same in every run of a seed: type, key, value, tokens."""
        kept = [event for event in self.log if event.key not in UNEQUAL]
        return [(event.event_type, event.key, str(event.value), event.metadata.get("epoch_num")) for event in kept]


def read_aftermath(config: RunConfig, folder: Path) -> Aftermath:
    """Of the run in ``config.run_dir``; ``folder``: the drill's own."""
    run_dir = config.run_dir
    attempts = tuple(past_attempt(path) for path in all_attempts(run_dir))
    result = run_dir / f"result_{config.result_number}.txt"
    log = tuple(read_log(result).events) if result.is_file() else ()
    steps = newest_checkpoint(run_dir)
    events = read_events(run_dir / "events.jsonl")
    return Aftermath(
        attempts=attempts,
        records=tuple(_records(events, config.benchmark.start_iteration)),
        struck=tuple(_struck(folder / STRUCK)),
        evaluations=tuple(event.number or 0.0 for event in log if event.key == "eval_accuracy"),
        log=log,
        finished=_finished(run_dir),
        steps=steps,
        arrays={} if steps is None else _sound_digests(checkpoint_path(run_dir, steps)),
        said=_said(run_dir, folder, events),
        evidence=tuple(_evidence_deviations(run_dir, result)) if config.logging.evidence and log else (),
    )


def _evidence_deviations(run_dir: Path, result: Path) -> list[str]:
    try:
        chain = read_chain(run_dir / EVIDENCE)
        return [*(fault.text() for fault in broken_links(chain, result)), *gaps(chain)]
    except InputError as error:
        return [str(error)]


def array_digests(checkpoint: Path) -> dict[str, str]:
    """MD5 of the values of every array, whatever files they lie in."""
    digests = {}
    for name, array in dcp_arrays(checkpoint).items():
        values = array.read(tuple(slice(0, size) for size in array.shape))
        digests[name] = hashlib.md5(values.tobytes(), usedforsecurity=False).hexdigest()
    return digests


def _sound_digests(checkpoint: Path) -> dict[str, str]:
    """None of a checkpoint that a drill has damaged."""
    try:
        return array_digests(checkpoint)
    except InputError:
        return {}


def _records(events: Sequence[RecordedEvent], start_iteration: int) -> list[AttemptRecord]:
    begun = [place for place, event in enumerate(events) if event.key == "attempt"]
    parts = [events[first:end] for first, end in zip(begun, [*begun[1:], len(events)], strict=False)]
    return [_record(part, start_iteration) for part in parts]


def _record(events: Sequence[RecordedEvent], start_iteration: int) -> AttemptRecord:
    """``events``: from the attempt's own on."""
    steps = [
        (int(event.number("iteration") or 0) - start_iteration, event.time_ms / 1000, event.number("loss") or 0.0)
        for event in events
        if event.key == "step"
    ]
    saves = [int(event.number("steps") or 0) for event in events if event.key == "checkpoint"]
    attempt, resumed_at = int(events[0].fields["attempt"]), int(events[0].number("resumed_at") or 0)
    return AttemptRecord(attempt, resumed_at, tuple(steps), tuple(saves))


def _struck(path: Path) -> list[Struck]:
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    names = ("act", "rank", "attempt", "steps", "time_s")
    return [Struck(**{name: line[name] for name in names}) for line in lines]


def _finished(run_dir: Path) -> str | None:
    try:
        status: str = json.loads((run_dir / "summary.json").read_text())["status"]
    except (OSError, ValueError, KeyError):
        return None
    return status


def _said(run_dir: Path, folder: Path, events: Sequence[RecordedEvent]) -> str:
    places = [folder, *(attempts_folder(run_dir).glob("*"))]
    paths = sorted(path for place in places for pattern in SAID for path in place.glob(pattern))
    texts = [path.read_bytes()[:MOST_SAID].decode(errors="replace") for path in paths]
    notes = [str(event.value) for event in events if event.key == "message"]
    return re.sub(r"\r", "", "\n".join([*texts, *notes]))
