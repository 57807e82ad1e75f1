"""One run of a drill, from its first attempt to its end, with its faults, and what it left."""

import contextlib
import dataclasses
import hashlib
import io
import json
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.launch import keep_running as launcher
from benchmark.launch.keep_running import RunMachines, keep_running
from benchmark.launch.next_attempt import Decision, PastAttempt, past_attempt
from benchmark.run_record.attempt_folder import all_attempts
from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.events.mllog import LogEvent, read_log
from benchmark.run_record.events.recorded_events import RecordedEvent, read_events
from benchmark.run_record.file_names import checkpoint_path
from benchmark.training.machine.forked_ranks import run_ranks
from checkpoint_convert.formats.distributed_checkpoint import dcp_arrays
from foundation.errors import InputError
from tests.drills.faults import DAMAGE, Damage, Fault
from tests.drills.injector import STRUCK, run_disturbed

MOST_LAUNCHES = 6
"""After so many times through the queue a run is left alone."""
UNEQUAL = ("tracked_stats", "restart", "evidence")
"""Keys of the MLPerf log whose values, or whose being there, depend on the time."""
SAID = ("*.log", "*.txt", "*.json")


@dataclass
class Disturbed(RunMachines):
    """A run and what disturbs it, as a place to start processes in."""

    config: RunConfig
    folder: Path
    """Of the drill."""
    launch: int = 0
    faults: tuple[Fault, ...] = ()
    """Drawn ones."""
    damage: tuple[Damage, ...] = ()
    first_options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration that the first attempt alone has."""
    name = "drill"

    def start(self, attempt: str, log: Path) -> int:
        number, config = int(attempt), self.config
        for damage in self.damage:
            if damage.before_attempt == number:
                with contextlib.suppress(AssertionError):  # no checkpoint is there yet
                    DAMAGE[damage.kind](config.run_dir, Path(config.data.train_data_path[1]))
        if number == 1:
            config = dataclasses.replace(config, **self.first_options)
        variables = self.environment(attempt, f"drill-{self.launch}")
        arguments = (config, self.faults, self.folder)
        processes = config.system.num_devices
        return run_ranks(run_disturbed, arguments, processes=processes, environment=variables, log=log)


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
class Ended:
    """A run as it was left."""

    decisions: tuple[Decision, ...]
    seconds: float
    attempts: tuple[PastAttempt, ...]
    records: tuple[AttemptRecord, ...]
    struck: tuple[dict[str, Any], ...]
    """Faults when they struck: act, rank, attempt, steps, time_s since the epoch."""
    log: tuple[LogEvent, ...]
    finished: str | None
    """Status in summary.json."""
    steps: int | None
    """Of the newest checkpoint."""
    arrays: Mapping[str, str]
    """Digests of weights and moments in it."""
    said: str
    """All that was printed and written for people."""
    result: Path
    """The MLPerf log."""

    @property
    def losses(self) -> dict[int, float]:
        """By step; of a step done twice the later one."""
        return {step: loss for record in self.records for step, _, loss in record.steps}

    @property
    def evaluations(self) -> list[float | None]:
        """Log perplexities in the MLPerf log."""
        return [event.number for event in self.log if event.key == "eval_accuracy"]

    def log_lines(self) -> list[tuple[str, str, Any, Any]]:
        """Of the MLPerf log what is the same in every run of a seed: type, key, value, tokens."""
        kept = [event for event in self.log if event.key not in UNEQUAL]
        at = [event.metadata.get("epoch_num", event.metadata.get("samples_count")) for event in kept]
        return [(one.event_type, one.key, str(one.value), place) for one, place in zip(kept, at, strict=True)]


def run_to_its_end(disturbed: Disturbed, *, continued: bool = False) -> Ended:
    """Start the run and go on until it is done or given up; the queue starts it again when it is saved.

    ``continued``: a person starts it again after it has stopped, once.
    """
    folder, config = disturbed.folder, disturbed.config
    shutil.rmtree(folder, ignore_errors=True)
    config.run_dir.mkdir(parents=True)
    started, decisions = time.perf_counter(), list[Decision]()
    for launch in range(MOST_LAUNCHES):
        said = io.StringIO()
        with _heard(said):
            decisions.append(keep_running(config.run_dir, dataclasses.replace(disturbed, launch=launch)))
        (folder / f"launcher_{launch}.txt").write_text(said.getvalue())
        if decisions[-1].action == "stop" and continued:
            continued = False
        elif decisions[-1].action != "requeue":
            break
    return read_ended(config, folder, tuple(decisions), time.perf_counter() - started)


@contextlib.contextmanager
def _heard(said: io.StringIO) -> Any:
    """Keep what the launcher says."""
    spoken = launcher.say
    launcher.say = lambda text: print(text, file=said)
    try:
        yield
    finally:
        launcher.say = spoken


def read_ended(config: RunConfig, folder: Path, decisions: tuple[Decision, ...], seconds: float) -> Ended:
    run_dir, result = config.run_dir, config.run_dir / f"result_{config.result_number}.txt"
    steps, events = newest_checkpoint(run_dir), read_events(run_dir / "events.jsonl")
    struck = folder / STRUCK
    summary = run_dir / "summary.json"
    paths = sorted(path for place in (folder, *all_attempts(run_dir)) for name in SAID for path in place.glob(name))
    texts = [path.read_text(errors="replace") for path in paths]
    return Ended(
        decisions,
        seconds,
        attempts=tuple(past_attempt(path) for path in all_attempts(run_dir)),
        records=tuple(_records(events)),
        struck=tuple(map(json.loads, struck.read_text().splitlines())) if struck.exists() else (),
        log=tuple(read_log(result).events) if result.is_file() else (),
        finished=json.loads(summary.read_text())["status"] if summary.exists() else None,
        steps=steps,
        arrays={} if steps is None else _digests(checkpoint_path(run_dir, steps)),
        said=re.sub(r"\r", "", "\n".join([*texts, *(str(event.value) for event in events if event.key == "message")])),
        result=result,
    )


def _digests(checkpoint: Path) -> dict[str, str]:
    """MD5 of the values of every array, whatever files they lie in; none of a checkpoint that a drill has damaged."""
    try:
        arrays = dcp_arrays(checkpoint).items()
        read = {name: array.read(tuple(slice(0, size) for size in array.shape)) for name, array in arrays}
    except InputError:
        return {}
    return {name: hashlib.md5(values.tobytes(), usedforsecurity=False).hexdigest() for name, values in read.items()}


def _records(events: Sequence[RecordedEvent]) -> list[AttemptRecord]:
    begun = [place for place, event in enumerate(events) if event.key == "attempt"]
    parts = [events[first:end] for first, end in zip(begun, [*begun[1:], len(events)], strict=False)]
    return [_record(part) for part in parts]


def _record(events: Sequence[RecordedEvent]) -> AttemptRecord:
    """``events``: from the attempt's own on."""
    steps = [
        (int(event.number("steps") or 0), event.time_ms / 1000, event.number("loss") or 0.0)
        for event in events
        if event.key == "step"
    ]
    saves = [int(event.number("steps") or 0) for event in events if event.key == "checkpoint"]
    attempt, resumed_at = int(events[0].fields["attempt"]), int(events[0].number("resumed_at") or 0)
    return AttemptRecord(attempt, resumed_at, tuple(steps), tuple(saves))
