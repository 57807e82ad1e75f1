"""The log of a run on rank 0: its events, and among them those of the MLPerf log, which has one clock for all attempts.

The log of a run has one run_start and one run_stop. An attempt that resumes from a checkpoint truncates the log to the
checkpoint's lines, and writes restart.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import Precision
from benchmark.config.run_sections import LoggingOptions
from benchmark.config.system_config import System
from benchmark.run_record.attempt_folder import AttemptStart, all_attempts, read_ending, write_start
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.mlperf_log import (
    LogMark,
    MlperfLog,
    log_configuration,
    log_disclosure,
    logged_progress,
    progress_fields,
)
from benchmark.run_record.file_names import attempt_path
from benchmark.run_record.run_progress import Progress
from benchmark.run_record.small_files import Answer, wait_for, warn
from benchmark.training.engine.rank_environment import Environment
from benchmark.training.machine.run_environment import float32_products, seconds_since_process_start
from benchmark.training.observer import Observer
from benchmark.training.resume_point import ResumePoint


@dataclass
class RunLog(Observer):
    """The log of this attempt. That of other ranks is silent."""

    benchmark: Benchmark
    system: System
    precision: Precision
    options: LoggingOptions
    events: EventLog = field(default_factory=EventLog)
    mlperf_log: MlperfLog | None = None
    require_lease: Callable[[], None] = lambda: None
    """Raise OSError while this process may not write in the run's folder."""
    resume_point: ResumePoint | None = None
    """The resume point that :meth:`resume` was given last; None on ranks other than 0 until all have agreed on it."""
    _run_is_open: bool = False

    @property
    def progress(self) -> Progress:
        """Progress of the run, which the state shares."""
        assert self.resume_point is not None
        return self.resume_point.progress

    def resume(self, point: ResumePoint) -> None:
        """Begin the log of the run, or continue it at the resume point. Called again if another point is chosen."""
        self.resume_point = point
        behind_s = self.events.clock.behind_s
        late = f"this machine's clock is {behind_s:.0f} s behind the checkpoint's: the log continues from that time"
        for line in (*point.reasons, *([late] if behind_s >= 1 else [])):
            self.events.warn(line)
        if point.log_mark is None and self.mlperf_log is not None:
            self._truncate(self.mlperf_log, LogMark())
            self.events.point("cache_clear", self.options.cache_cleared)
            self.events.start("init_start")

    def note_on_this_rank(self, line: str) -> None:
        """Note a line on rank 0, and print it into the process's own log on other ranks."""
        if self.mlperf_log is not None:
            self.events.note("message", line)
        else:
            print(line, flush=True)

    def note_attempt(self, run_dir: Path, environment: Environment, hosts: Sequence[str]) -> None:
        """Record, on rank 0, when and where the attempt began, in its folder and in the events."""
        if environment.rank != 0:
            return
        start = AttemptStart(
            attempt=environment.attempt,
            job=environment.job,
            submitted_s=environment.submitted_s,
            launched_s=environment.launched_s,
            started_s=time.time() - seconds_since_process_start(),
            resumed_at=None if self.resume_point is None else self.resume_point.checkpoint,
            hosts=tuple(hosts),
        )
        self._patiently(lambda: write_start(attempt_path(run_dir, environment.attempt), start))
        self.events.note("attempt", **asdict(start))

    def note_last_incident(self, run_dir: Path, environment: Environment) -> None:
        """Note, on rank 0, how the attempt before this one ended, according to its launcher; nothing if it left no
        record."""
        if environment.rank != 0:
            return
        attempts = self._patiently(lambda: all_attempts(run_dir))
        earlier_attempts = [folder for folder in attempts if folder.name != environment.attempt]
        end = self._patiently(lambda: read_ending(earlier_attempts[-1])) if earlier_attempts else None
        if end is not None:
            self.events.note(
                "incident", end.reason, attempt=earlier_attempts[-1].name, status=end.status, action=end.action
            )

    @contextmanager
    def run_clock(self, *, eval_tokens: int, barrier: Callable[[], None]) -> Iterator[None]:
        """Start the clock of the run on all processes at once, and log one run_stop on every way out."""
        barrier()
        if self.resume_point is not None and self.resume_point.log_mark is not None and self.mlperf_log is not None:
            self._truncate(self.mlperf_log, self.resume_point.log_mark)
            self.events.point("restart", self.progress.restarts, step=self.progress.trained_tokens)
        else:
            seed = self.progress.seed
            log_configuration(
                self.events, self.benchmark, self.system, self.options, seed=seed, eval_tokens=eval_tokens
            )
            products = float32_products(self.system.device)
            log_disclosure(self.events, self.system, precision=self.precision, fp32_products=products)
            self.events.end("init_stop")
            self.events.start("run_start")
            self.events.start("epoch_start", **progress_fields(self.benchmark, 0))
        self._run_is_open = True
        barrier()
        try:
            yield
        finally:
            self.end(StopReason("failed", ""))  # does nothing if the run has ended by itself

    def about_to_save(self) -> None:
        """Store the MLPerf log's position and clock in the checkpoint about to be written."""
        if self.mlperf_log is not None:
            mark = self.mlperf_log.mark(self.events.pending(self.mlperf_log))
            self.progress.mlperf_log_bytes, self.progress.mlperf_log_rest = mark.size, list(mark.unwritten_lines)
            self.progress.clock = self.events.clock.mark()

    def end(self, end: StopReason) -> None:
        """Log run_stop and the entries that follow it in published logs; do nothing if the run is not open."""
        if not self._run_is_open:
            return
        self._run_is_open = False
        tokens = self.progress.trained_tokens
        self.events.end("run_stop", status="success" if end.reached_target else "aborted")
        for key in ("train_samples", "trained_samples"):
            self.events.point(key, logged_progress(self.benchmark, tokens))
        self.events.end("epoch_stop", **progress_fields(self.benchmark, tokens))
        self.events.note("message", f"{end.ending} after {tokens:,} tokens")

    def _truncate(self, log: MlperfLog, mark: LogMark) -> None:
        """Truncate the MLPerf log to ``mark``, so that later lines count as never written."""

        def go_on() -> int:
            self.require_lease()
            return log.go_on(mark)

        lost = self._patiently(go_on)
        if lost:
            text = f"is {lost:,} bytes shorter than when the checkpoint was written: lines are lost"
            self.events.warn(f"{log.name} {text}")

    def _patiently(self, act: Callable[[], Answer]) -> Answer:
        """Call ``act``, which uses the disk, again after an error, for less than the watchdog's limit."""
        return wait_for(act, self.system.start_limit_s / 2, warn)
