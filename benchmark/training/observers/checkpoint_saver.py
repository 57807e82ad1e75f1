"""The checkpoints of a run while it trains: decide when to save, begin to write, and report the result."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from benchmark.config.run_sections import SaveOptions
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer, CheckpointWrite
from benchmark.training.checkpoints.save_policy import SaveInterval, SavePolicy
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.step import StepFlags

BEAT_S = 2.0
"""Seconds between signs of life while the main thread waits."""
STEP_PATIENCE_S = 10.0
"""Seconds that training waits for the checkpoint being written when another one is due after exactly this step."""
STOP_PATIENCE_S = 600.0
"""Seconds that the end of a run waits; run_gpt3.sh begins it 15 minutes before the job's time is up."""
REMOVAL_S = 2.0
"""Seconds that the end of a run waits for old checkpoints to be removed."""


class CheckpointSaver(Observer):
    """Save checkpoints: rank 0's clock decides when, and all processes save at the same step.

    Observers that prepare a checkpoint are listed before this one, which begins to write it.
    """

    def __init__(
        self,
        run_dir: Path,
        options: SaveOptions,
        state: TrainState,
        events: EventLog,
        phases: PhaseLog,
        on_written: Callable[[int], None] | None = None,
        require_lease: Callable[[], object] = lambda: None,
    ) -> None:
        """``written``: called with the steps of each checkpoint that is whole. ``require_lease``: raises OSError while
        this process may not write. Collective."""
        self._options, self._on_written = options, on_written
        self._state, self._events, self._phases = state, events, phases
        self._policy = SavePolicy(state.benchmark, state.system, options) if state.world.rank == 0 else None
        self._checkpointer = Checkpointer(state, run_dir, options, require_lease)
        self._owes_save = False
        """True if a checkpoint was due after some step and could not be begun yet."""
        self._paused_since = 0.0
        """When training paused for the checkpoint that is due, by time.perf_counter."""
        self._warned_late = self._waited_once = False
        """About the checkpoint being written: ``_told_late`` if a message said that the next one is late, ``_waited``
        if training waited for it."""

    def before_step(self) -> StepFlags:
        """Return this process's requests for the next step."""
        self._report(self._checkpointer.poll())
        busy = self._checkpointer.busy
        return StepFlags(
            save=self._policy is not None and self._policy.is_due(),
            writer_busy=busy,
            writer_broken=not busy and self._checkpointer.broken,
        )

    def step_done(self, step: FinishedStep) -> None:
        if self._policy is None:
            return
        had_no_interval = self._policy.interval() is None
        self._policy.note_step(step.seconds())
        if had_no_interval and (interval := self._note_interval()) is not None:
            self._events.note("message", interval.line())

    def save_due(self, step: FinishedStep) -> bool:
        """Return whether a checkpoint is due or requested, and can be begun. Collective."""
        steps, flags = self._state.progress.steps, step.result.flags
        is_stopping, interval = flags.stop_by is not None, self._options.save_interval or 0
        self._owes_save |= (interval > 0 and steps % interval == 0) or steps in self._options.save_at
        patience_s = STOP_PATIENCE_S if is_stopping else STEP_PATIENCE_S if self._owes_save else 0.0
        is_wanted = self._options.saves and (self._owes_save or is_stopping or flags.save)
        if not (is_wanted and self._ready(flags, patience_s)):
            return False
        self._paused_since = time.perf_counter()
        return True

    def about_to_save(self) -> None:
        """Begin to write the checkpoint. Collective.

        The work of the other observers since training paused counts as part of its cost.
        """
        self._enter()
        pause_s = self._checkpointer.save()
        self._warned_late = self._waited_once = self._owes_save = False
        self._events.note("checkpoint", steps=self._state.progress.steps, seconds=pause_s)
        if self._policy is not None:
            self._policy.note_save(time.perf_counter() - self._paused_since)

    def end(self, end: StopReason) -> None:
        """Wait for the checkpoint being written."""
        self._wait(STOP_PATIENCE_S)
        if self._checkpointer.writing is not None:
            steps, seconds = self._checkpointer.writing
            text = f"the checkpoint after {steps} steps is still being written after {seconds:.0f} s: not waited for"
            self._events.warn(text)
            return
        self._checkpointer.close(REMOVAL_S)

    def _ready(self, flags: StepFlags, patience_s: float) -> bool:
        """Return whether a checkpoint can be begun now, that is, none is being written.

        Training waits up to ``patience_s`` for the one being written, once for each checkpoint. ``flags``: of all
        processes, from the step before. Collective.
        """
        broken = flags.writer_broken
        if flags.writer_busy:
            if patience_s <= 0 or (self._waited_once and patience_s < STOP_PATIENCE_S):
                self._tell_late()
                return False
            self._wait(patience_s)
            busy, broken = self._any_of(self._checkpointer.busy, self._checkpointer.broken)
            if busy:
                self._waited_once = True
                self._tell_late()
                return False
        self._report(self._checkpointer.poll())
        if broken:
            self._checkpointer.renew()
        return True

    def _enter(self) -> None:
        self._phases.enter("save", self._state.progress.steps)

    def _wait(self, limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while self._checkpointer.busy and (remaining_s := end - time.monotonic()) > 0:
            self._enter()
            self._report(self._checkpointer.wait(min(BEAT_S, remaining_s)))
        self._report(self._checkpointer.poll())

    def _any_of(self, *values: bool) -> list[bool]:
        """Return, for each value, whether it is true on any process. Collective."""
        flags = torch.tensor(values, dtype=torch.int32, device=self._state.world.device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return [value > 0 for value in flags.tolist()]

    def _tell_late(self) -> None:
        if self._warned_late:
            return
        self._warned_late = True
        last_write_s = self._policy.last_write_s if self._policy is not None else None
        usual = "" if last_write_s is None else f" (the last one took {last_write_s:.0f} s)"
        writing = self._checkpointer.writing
        writing_text = "another process is still writing the last checkpoint"
        if writing is not None:
            writing_text = f"the checkpoint after {writing[0]} steps is still being written, for {writing[1]:.0f} s now"
        self._events.warn(f"a checkpoint is due, but {writing_text}{usual}: it follows")

    def _report(self, result: CheckpointWrite | None) -> None:
        """Log a finished checkpoint. A failed one does not stop the run: the next may succeed."""
        if result is None:
            return
        if result.failure:
            text = f"the checkpoint after {result.steps} steps could not be written: {result.failure}"
            self._events.warn(text)
            return
        if self._policy is not None:
            self._policy.note_write(result.seconds)
            self._note_interval()
        self._events.note("checkpoint_written", steps=result.steps, seconds=result.seconds, bytes=result.bytes)
        if self._on_written is not None:
            self._on_written(result.steps)

    def _note_interval(self) -> SaveInterval | None:
        """Note the interval between saves, if one is chosen by now, and return it."""
        interval = None if self._policy is None else self._policy.interval()
        if interval is not None:
            self._events.note("save_interval", round(interval.seconds, 3), **dataclasses.asdict(interval))
        return interval
