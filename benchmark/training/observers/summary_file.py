"""Write the files that say how a run ended: ``summary.json`` if it is finished, the stop note if it was interrupted."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmark.machine.run_environment import seconds_since_process_start
from benchmark.run_record.checkpoint_folder import newest_checkpoint
from benchmark.run_record.endings import STOP_NOTE, Ending, RunEnd, StopNote
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.run_record.run_progress import Evaluation
from benchmark.run_record.small_files import write_object
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import Observer, StepDone
from benchmark.training.run_folder import summary_path
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


class SummaryFile(Observer):
    """Write how the run ended, on rank 0, after the last checkpoint is finished."""

    def __init__(
        self, run_dir: Path, result: Path, state: TrainState, events: EventLog, phases: PhaseLog, *, saves: bool
    ) -> None:
        """``result``: path of the MLPerf log. ``saves``: whether the run writes checkpoints."""
        self._run_dir, self._result, self._progress = run_dir, result, state.progress
        self._events, self._phases, self._saves = events, phases, saves
        self._patience_s = state.system.start_limit_s / 2
        """Seconds that a failed write is tried again; less than the watchdog's limit."""
        self._first_loss_s: float | None = None

    def begin(self) -> None:
        self._started, self._tokens_before = time.perf_counter(), self._progress.trained_tokens

    def step_done(self, step: StepDone) -> None:
        if self._first_loss_s is None:
            self._first_loss_s = seconds_since_process_start()

    def end(self, end: RunEnd) -> None:
        if end.ending == "interrupted":
            self._note_stop(end)
        self._phases.enter("end", self._progress.steps)
        if end.ending in ("success", "target not reached"):
            self._write(self._summary(end.ending))

    def _summary(self, ending: Ending) -> Summary:
        progress, run_s = self._progress, time.perf_counter() - self._started
        return Summary(
            status=ending,
            seed=progress.seed,
            trained_tokens=progress.trained_tokens,
            trained_samples=progress.steps * progress.global_batch_size,
            evaluations=progress.evaluations,
            run_s=run_s,
            tokens_per_s=(progress.trained_tokens - self._tokens_before) / run_s,
            first_loss_s=self._first_loss_s,
            restarts=progress.restarts,
            result=str(self._result),
        )

    def _write(self, summary: Summary) -> None:
        """Write the summary, and try again for ``patience_s`` seconds: without it the finished run would be done
        again."""
        deadline, has_warned = time.monotonic() + self._patience_s, False
        while True:
            try:
                return write_text(summary_path(self._run_dir), json.dumps(asdict(summary), indent=1) + "\n")
            except OSError as error:
                if time.monotonic() > deadline:
                    raise
                if not has_warned:
                    text = (
                        f"summary.json could not be written: {error.strerror}; tried again for {self._patience_s:.0f} s"
                    )
                    self._events.warn(text)
                has_warned = True
                time.sleep(1)

    def _note_stop(self, end: RunEnd) -> None:
        """Leave a note for the launcher that says why the run stopped."""
        steps = self._progress.steps
        saved = newest_checkpoint(self._run_dir) == steps
        try:
            write_object(self._run_dir / STOP_NOTE, StopNote(end.why, steps, saved))
        except OSError as error:
            self._events.warn(f"{STOP_NOTE} could not be written: {error}")
        if self._saves and not saved:
            self._events.warn(f"step {self._progress.steps} is not saved: an older one goes on")
