"""Write the files that say how a run ended: ``summary.json`` if it is finished, the stop note if it was interrupted."""

import errno
import time
from dataclasses import asdict
from pathlib import Path

from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.endings import Ending, StopNote, StopReason
from benchmark.run_record.events.mlperf_log import MlperfLog
from benchmark.run_record.file_names import STOP_NOTE_FILE
from benchmark.run_record.small_files import wait_for, write_object
from benchmark.run_record.summary import Summary, write_summary
from benchmark.training.engine.train_state import TrainState
from benchmark.training.machine.run_environment import seconds_since_process_start
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.run_log import RunLog


class SummaryFile(Observer):
    """Write the summary of a run that has ended, on rank 0, as soon as its MLPerf log is on the disk.

    Nothing slow comes before it: a run that is killed while its last checkpoint is written has ended nevertheless.
    """

    def __init__(self, run_dir: Path, mlperf_log: MlperfLog, state: TrainState, log: RunLog) -> None:
        self._run_dir, self._log, self._progress = run_dir, mlperf_log, state.progress
        self._events, self._require_lease = log.events, log.require_lease
        self._patience_s = state.system.start_limit_s / 2
        """Seconds that a failed write is tried again; less than the watchdog's limit."""
        self._first_loss_s: float | None = None

    def begin(self) -> None:
        self._started, self._tokens_before = time.perf_counter(), self._progress.trained_tokens

    def step_done(self, step: FinishedStep) -> None:
        if self._first_loss_s is None:
            self._first_loss_s = seconds_since_process_start()

    def end(self, end: StopReason) -> None:
        if end.ending in ("success", "target not reached"):
            summary = self._summary(end.ending)
            if not self._events.drain(self._log, self._patience_s):
                # with the summary the run would count as ended, and its log has no end
                raise OSError(errno.EIO, "lines of the end could not be written", str(self._log.path))
            wait_for(lambda: self._write(summary), self._patience_s, self._events.warn, answers=())

    def _write(self, summary: Summary) -> None:
        self._require_lease()
        write_summary(self._run_dir, summary)

    def _summary(self, ending: Ending) -> Summary:
        progress, run_s = self._progress, time.perf_counter() - self._started
        return Summary(
            status=ending,
            seed=progress.seed,
            trained_tokens=progress.trained_tokens,
            trained_samples=progress.steps * progress.global_batch_size,
            evaluations=[asdict(evaluation) for evaluation in progress.evaluations],
            run_s=run_s,
            tokens_per_s=(progress.trained_tokens - self._tokens_before) / run_s,
            first_loss_s=self._first_loss_s,
            restarts=progress.restarts,
            result=str(self._log.path),
        )


class StopNoteFile(Observer):
    """Leave a note for the launcher that says why an interrupted run stopped, on rank 0, after the last checkpoint."""

    def __init__(self, run_dir: Path, state: TrainState, log: RunLog, *, saves: bool) -> None:
        """``saves``: whether the run writes checkpoints."""
        self._run_dir, self._progress, self._events = run_dir, state.progress, log.events
        self._require_lease, self._saves = log.require_lease, saves

    def end(self, end: StopReason) -> None:
        if end.ending == "interrupted":
            self._note_stop(end)

    def _note_stop(self, end: StopReason) -> None:
        steps = self._progress.steps
        saved = newest_checkpoint(self._run_dir) == steps
        try:
            self._require_lease()
            write_object(self._run_dir / STOP_NOTE_FILE, StopNote(end.why, steps, saved))
        except OSError as error:
            self._events.warn(f"{STOP_NOTE_FILE} could not be written: {error}")
        if self._saves and not saved:
            self._events.warn(f"step {self._progress.steps} is not saved: the run resumes from an older checkpoint")
