"""The folder of a run: its resolved configuration, its logs, its summary, and the run's state when it continues.

config.json     the resolved configuration          result_N.txt   the MLPerf log
events.jsonl    every event                         summary.json   how it ended; its presence means finished
inputs.json     the identities of its inputs (same_inputs.py)
checkpoints/    its checkpoints (checkpoints/checkpoint_folder.py)
"""

import dataclasses
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmark.config.run_config import CONFIG_FILENAME, Benchmark, RunConfig
from benchmark.events.event_log import EventLog
from benchmark.events.mlperf_log import (
    LogMark,
    MlperfLog,
    log_configuration,
    log_disclosure,
    logged_progress,
    progress_fields,
)
from benchmark.launch.attempt_folder import AttemptStart, all_attempts, attempt_path, read_end, write_start
from benchmark.launch.endings import RunEnd
from benchmark.launch.stop_note import remove_stop_note
from benchmark.machine.run_environment import float32_products, run_environment, seconds_since_process_start
from benchmark.training.checkpoints.checkpoint_choice import (
    CheckpointChoice,
    choose_checkpoint,
    newest_readable,
    set_aside_damaged,
)
from benchmark.training.checkpoints.checkpoint_folder import DamagedCheckpoint, remove_retired, retire_partial
from benchmark.training.engine.distributed import Environment
from benchmark.training.engine.run_progress import Progress, starting_progress
from benchmark.training.observer import Observer
from benchmark.training.run_sinks import open_event_log
from benchmark.training.same_inputs import (
    InputIdentities,
    read_identities,
    require_same_inputs,
    write_identities,
)
from stage.errors import InputError
from stage.json_files import DAMAGED, UNREADABLE, read_json
from stage.outputs.lock import only_one_in
from stage.outputs.publish import write_text

MUST_NOT_CHANGE = ("benchmark", "precision")
"""Fields of the configuration that must be the same when a run is continued."""


@dataclass
class RunFolder(Observer):
    """Rank 0's access to the run's folder; other ranks have a silent event log and learn of a restart from rank 0."""

    progress: Progress
    resumed_at: int | None = None
    """Steps of the run's own checkpoint that it continues from; None if it begins at the initial one."""
    asked_for: bool = False
    """True if ``--resume-from`` asked for that checkpoint, so that no other is used."""
    events: EventLog = field(default_factory=EventLog)
    mlperf_log: MlperfLog | None = None
    begun_again: LogMark | None = None
    """Set if all checkpoints were damaged: the place in the log where the clock started, from which the log goes on
    while the run begins again at the initial checkpoint."""
    _run_is_open: bool = False
    _benchmark: Benchmark | None = None
    """Of the run that is open."""

    @property
    def resumed(self) -> bool:
        return self.resumed_at is not None

    def begin_init(self, config: RunConfig) -> None:
        """Log the first events of a run; the log of a continued run has them already."""
        if not self.resumed and self.begun_again is None:
            self.events.point("cache_clear", config.logging.cache_cleared)
            self.events.start("init_start")

    def note_attempt(self, config: RunConfig, environment: Environment, hosts: list[str]) -> None:
        """Record when and where the attempt began, in its folder and in the events."""
        if environment.rank != 0:
            return
        started_s = time.time() - seconds_since_process_start()
        start = AttemptStart(
            attempt=environment.attempt,
            job=environment.job,
            submitted_s=environment.submitted_s,
            launched_s=environment.launched_s,
            started_s=started_s,
            resumed_at=self.resumed_at,
            hosts=tuple(hosts),
        )
        write_start(attempt_path(config.run_dir, environment.attempt), start)
        self.events.note("attempt", **dataclasses.asdict(start))

    def note_last_incident(self, config: RunConfig, environment: Environment) -> None:
        """Note in the events how the attempt before this one ended, according to its launcher; nothing if it left no
        record."""
        if environment.rank != 0:
            return
        before = [folder for folder in all_attempts(config.run_dir) if folder.name != environment.attempt]
        end = read_end(before[-1]) if before else None
        if end is not None:
            self.events.note("incident", end.reason, attempt=before[-1].name, status=end.status, action=end.action)

    @contextmanager
    def run_clock(self, config: RunConfig, *, eval_tokens: int, barrier: Callable[[], None]) -> Iterator[None]:
        """Start the clock of the run on all processes at once, and log one run_stop on every way out."""
        barrier()
        if self.resumed or self.begun_again is not None:
            saved = LogMark(self.progress.mlperf_log_bytes, tuple(self.progress.mlperf_log_rest))
            self._go_on_with_log(self.begun_again or saved)
            self.events.point("restart", self.progress.restarts, step=self.progress.trained_tokens)
        else:
            log_configuration(self.events, config, seed=self.progress.seed, eval_tokens=eval_tokens)
            products = float32_products(config.system.device)
            log_disclosure(self.events, config.system, precision=config.precision, fp32_products=products)
            self.events.end("init_stop")
            self.events.start("run_start")
            self.events.start("epoch_start", **progress_fields(config.benchmark, 0))
        self._run_is_open, self._benchmark = True, config.benchmark
        barrier()
        try:
            yield
        finally:
            self.end(RunEnd("failed", ""))  # does nothing if the run has ended by itself

    def end(self, end: RunEnd) -> None:
        """Log run_stop and the entries that follow it in published logs; do nothing if the run is not open."""
        if not self._run_is_open:
            return
        self._run_is_open = False
        assert self._benchmark is not None
        tokens = self.progress.trained_tokens
        at = progress_fields(self._benchmark, tokens)
        self.events.end("run_stop", status="success" if end.reached_target else "aborted")
        for key in ("train_samples", "trained_samples"):
            self.events.point(key, logged_progress(self._benchmark, tokens))
        self.events.end("epoch_stop", **at)
        self.events.note("message", f"{end.ending} after {tokens:,} tokens")

    def fall_back(self, config: RunConfig, damage: DamagedCheckpoint) -> None:
        """Set the damaged checkpoint aside and take the next older one, or the initial one. Called on rank 0."""
        assert self.resumed_at is not None
        self.events.warn(set_aside_damaged(config.run_dir, self.resumed_at, damage))
        self._take(config, newest_readable(config.run_dir), self.progress.seed, damaged=True)
        self.begin_init(config)

    def _take(self, config: RunConfig, choice: CheckpointChoice, seed: int, *, damaged: bool) -> None:
        """Continue from the chosen checkpoint.

        ``seed`` of the data order is used if there is no checkpoint. ``damaged``: a checkpoint existed and was set
        aside.
        """
        self.resumed_at, self.asked_for = choice.steps, choice.asked_for
        self.progress = choice.progress or starting_progress(config.benchmark, seed)
        self.progress.restarts += choice.progress is not None
        if choice.progress is None and self.mlperf_log is not None:
            begun = started_clock(result_path(config)) if damaged else None
            if begun is None:
                self._go_on_with_log(LogMark())
            else:
                self.begun_again, self.progress.restarts = begun[0], begun[1] + 1
        behind_s = self.events.clock.behind_s
        late = f"this machine's clock is {behind_s:.0f} s behind the checkpoint's, whose time the log goes on from"
        for line in (*choice.lines, *([late] if behind_s >= 1 else [])):
            self.events.warn(line)

    def _go_on_with_log(self, mark: LogMark) -> None:
        """Truncate the MLPerf log to the checkpoint, so that later lines count as never written."""
        if self.mlperf_log is None:
            return
        lost = self.mlperf_log.go_on(mark)
        if lost:
            text = f"is {lost:,} bytes shorter than when the checkpoint was written: lines are lost"
            self.events.warn(f"{self.mlperf_log.name} {text}")

    def about_to_save(self) -> None:
        """Store the MLPerf log's position and clock in the checkpoint about to be written."""
        if self.mlperf_log is not None:
            mark = self.mlperf_log.mark(self.events.pending(self.mlperf_log))
            self.progress.mlperf_log_bytes, self.progress.mlperf_log_rest = mark.size, list(mark.rest)
            self.progress.clock = self.events.clock.mark()


@contextmanager
def open_run_folder(
    config: RunConfig, rank: int, launch: str | None = None, inputs: InputIdentities | None = None
) -> Iterator[RunFolder]:
    """Open the run's folder; only rank 0 writes to it. ``launch``: the environment's launch. ``inputs``: identities of
    the run's inputs.

    Raises InputError when the folder holds a finished run, is in use by another one, or was begun with another
    configuration or other data.
    """
    if rank != 0:
        yield RunFolder(starting_progress(config.benchmark, config.data.seed or 0))
        return
    folder = config.run_dir
    folder.mkdir(parents=True, exist_ok=True)
    refuse_finished(folder)
    with ExitStack() as stack:
        stack.enter_context(only_one_in(folder, "choose another --run-dir"))
        refuse_finished(folder)  # the run that held the lock may have ended meanwhile
        begun = _begun_with(folder)
        remove_stop_note(folder)
        retire_partial(folder)
        remove_retired(folder)
        choice = choose_checkpoint(folder, config.checkpoints.resume_from, launch)
        if choice.progress is not None:
            _require_same(config, begun, folder)
            noted = read_identities(folder)
            if noted is not None and inputs is not None:
                require_same_inputs(folder, noted, inputs)
        elif inputs is not None:
            write_identities(folder, inputs)
        seed = _choose_seed(config, begun) if choice.progress is None else choice.progress.seed
        _write_config(folder, dataclasses.replace(config, data=dataclasses.replace(config.data, seed=seed)))
        log = MlperfLog(result_path(config))
        progress = starting_progress(config.benchmark, seed)
        events = open_event_log(config, choice.progress or progress, log)
        stack.callback(events.close)
        events.note("environment", run_environment(config.system.device))
        found = RunFolder(progress, events=events, mlperf_log=log)
        found._take(config, choice, seed, damaged=bool(choice.lines))
        yield found


def refuse_finished(folder: Path) -> None:
    """Raise InputError when the run in ``folder`` has ended."""
    if summary_path(folder).exists():
        raise InputError(f"{folder}: holds a finished run; choose another --run-dir")


def summary_path(folder: Path) -> Path:
    return folder / "summary.json"


def result_path(config: RunConfig) -> Path:
    return config.run_dir / f"result_{config.result_number}.txt"


def started_clock(log: Path) -> tuple[LogMark, int] | None:
    """Return the place in an MLPerf log of ours where the run's clock started, and the number of restarts since.

    Returns None if the clock never started or the log cannot be read.
    """
    size, restarts, started = 0, 0, None
    try:
        for line in log.read_bytes().splitlines(keepends=True):
            size += len(line)
            key = json.loads(line.removeprefix(b":::MLLOG "))["key"]
            restarts += key == "restart"
            if key == "epoch_start" and started is None:
                started = LogMark(size)
    except UNREADABLE:
        return None
    return None if started is None else (started, restarts)


def as_json(config: Any) -> Any:
    """Return a configuration as JSON values."""
    return msgspec.json.decode(msgspec.json.encode(config, enc_hook=str))


def _write_config(folder: Path, config: RunConfig) -> None:
    write_text(folder / CONFIG_FILENAME, json.dumps(as_json(config), indent=1) + "\n")


def _begun_with(folder: Path) -> dict[str, Any] | None:
    """Return the fixed part of the configuration that an earlier, unfinished run in this folder began with."""
    path = folder / CONFIG_FILENAME
    try:
        begun = read_json(path, dict)
        return {**{name: begun[name] for name in MUST_NOT_CHANGE}, "seed": begun["data"]["seed"]}
    except FileNotFoundError:
        return None
    except (InputError, *DAMAGED) as error:
        raise InputError(f"{path}: not a run's configuration ({error}); choose another --run-dir") from error


def _choose_seed(config: RunConfig, begun: dict[str, Any] | None) -> int:
    """Return the given seed, else that of the run that was killed here before its first checkpoint, else a new one.

    Seeds must come from the clock or the system's randomness (the rules: docs/facts/mlperf_review.md 7.10).
    """
    if config.data.seed is not None:
        return config.data.seed
    if begun is not None:
        return int(begun["seed"])
    return secrets.randbelow(2**31)


def _fields_of(begun: Any, now: Any) -> Any:
    """``now`` without fields that the version which wrote ``begun`` did not have."""
    if not (isinstance(begun, dict) and isinstance(now, dict)):
        return now
    return {name: _fields_of(begun[name], value) for name, value in now.items() if name in begun}


def _require_same(config: RunConfig, begun: dict[str, Any] | None, folder: Path) -> None:
    """Raise InputError if ``config`` would not continue the run that began with ``begun``."""
    if begun is None:
        return
    now = as_json(config)
    for found in (begun, now):
        found["benchmark"].pop("samples_to_target", None)  # what other runs took changes nothing in this one
    now["benchmark"] = _fields_of(begun["benchmark"], now["benchmark"])
    for name in MUST_NOT_CHANGE:
        if begun[name] != now[name]:
            raise InputError(
                f"{folder}: the run began with {name} {begun[name]}, now it is {now[name]}; give the same options, or "
                "choose another --run-dir"
            )
    if config.data.seed not in (None, begun["seed"]):
        raise InputError(f"{folder}: the run began with seed {begun['seed']}; leave --seed out to continue it")
