"""Report steps that are skipped because their gradients are not finite, and end the run after too many in a row.

The report says what was not finite and where. Every process decides for itself and all decide the same, because a
step's figures are equal on all of them.
"""

from collections.abc import Callable
from dataclasses import asdict

from benchmark.events.event_log import EventLog
from benchmark.launch.endings import RunEnd
from benchmark.launch.phases import PhaseLog
from benchmark.training.engine.train_state import TrainState
from benchmark.training.engine.unsound_values import NonFiniteStep, check_state
from benchmark.training.observer import Observer, StepDone
from benchmark.training.observers.finding_words import describe_state, describe_step, suspected_samples

MOST_SKIPPED_IN_A_ROW = 10
"""A run does not recover by itself after this many steps in a row without finite gradients."""
MOST_RANKS_IN_EVENT = 16


class SkipGuard(Observer):
    """Report each skipped step, and end a run that skips all of them."""

    def __init__(
        self, state: TrainState, events: EventLog, phases: PhaseLog, samples_command: Callable[[int, int], str]
    ) -> None:
        """``samples_command``: function of the first sample and a count that returns the command to write these
        samples."""
        self._state, self._events, self._phases, self._samples_command = state, events, phases, samples_command
        self._in_a_row = 0
        """Number of consecutive steps up to now that this process saw skipped."""

    def between_steps(self, step: StepDone) -> RunEnd | None:
        """Report a skipped step. Collective after the first skipped step in a row, and after the last that is
        allowed."""
        if step.result.nonfinite is None:
            if self._in_a_row > 1:
                self._events.note("message", f"gradients are finite again, after {self._in_a_row} skipped steps")
            self._in_a_row = 0
            return None
        self._in_a_row += 1
        found = self._note(step.result.nonfinite)
        in_a_row = self._state.progress.skipped_in_a_row
        if 1 < in_a_row < MOST_SKIPPED_IN_A_ROW:
            return None
        self._phases.enter("audit", self._state.progress.steps)
        state = check_state(self._state)
        if in_a_row == 1 and not state.tensors:
            return None
        done = self._state.progress.steps
        steps = "a step" if in_a_row == 1 else f"{in_a_row} steps in a row"
        text = f"{steps} without finite gradients, from step {done - in_a_row + 1} on: {describe_state(state)}"
        text += f"; in the last of them, {found}; nothing of it was saved"
        damaged = [asdict(one) for one in state.tensors[:MOST_RANKS_IN_EVENT]]
        self._events.note("diagnosis", text, steps=done, skipped_in_a_row=in_a_row, damaged=damaged)
        self._events.warn(text)
        return RunEnd("failed", text)

    def _note(self, found: NonFiniteStep) -> str:
        """Note the event of a skipped step, and print a line for the first in a row; return a description of the
        finding."""
        progress = self._state.progress
        text = describe_step(found)
        command = self._samples_command(*suspected_samples(found))
        self._events.note(
            "nonfinite",
            text,
            steps=progress.steps,
            first_sample=found.first_sample,
            num_samples=found.num_samples,
            losses_finite=found.losses_finite,
            num_ranks=len(found.ranks),
            ranks=[asdict(one) for one in found.ranks[:MOST_RANKS_IN_EVENT]],
            samples_command=command,
        )
        if progress.skipped_in_a_row == 1:
            self._events.warn(f"step {progress.steps} skipped: {text}. Its samples: {command}")
        return text
