"""Spikes of loss and gradient norm are noted, and looked into: a flipped bit in a weight looks like one.

Every process decides for itself and all decide the same, for a step's figures are equal on all of them.
"""

from collections.abc import Callable
from dataclasses import asdict

from benchmark.events.event_log import EventLog
from benchmark.launch.endings import RunEnd
from benchmark.launch.phases import PhaseLog
from benchmark.training.engine.state_soundness import check_state
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import Observer, StepDone
from benchmark.training.observers.finding_words import describe_state
from benchmark.training.observers.spike_detector import Calm, Spike, observe


class SpikeGuard(Observer):
    """Judges each step that was not skipped."""

    def __init__(
        self,
        state: TrainState,
        events: EventLog,
        phases: PhaseLog,
        compare_copies: Callable[[], RunEnd | None],
        samples_command: Callable[[int, int], str],
    ) -> None:
        """``compare_copies``: how the run ends if they differ; collective. ``samples_command``: the command that writes
        so many samples from the given one on."""
        self._state, self._events, self._phases = state, events, phases
        self._compare_copies, self._samples_command = compare_copies, samples_command

    def between_steps(self, step: StepDone) -> RunEnd | None:
        """Collective where there is a spike."""
        if step.result.skipped:
            return None
        progress = self._state.progress
        found = observe(progress.watch, progress.steps, step.result.loss, step.result.grad_norm)
        if isinstance(found, Calm):
            self._note_calm(found)
        return self._look_into(found) if isinstance(found, Spike) else None

    def _look_into(self, spike: Spike) -> RunEnd | None:
        """An event and a line; the copies are compared, and the state is looked through. Collective."""
        progress = self._state.progress
        first, last = progress.samples_after(spike.began - 1), progress.consumed_samples
        command = self._samples_command(first, last - first)
        self._events.note(
            "spike",
            iteration=progress.iteration,
            samples=[first, last],
            samples_command=command,
            **asdict(spike),
            norm_factor=spike.norm_factor,
            sudden=spike.sudden,
        )
        self._say(f"{_describe(spike, progress.iteration)}. The run goes on. Its samples: {command}")
        if (end := self._compare_copies()) is not None:
            return end
        self._phases.enter("audit", progress.steps)
        state = check_state(self._state)
        if state.tensors:
            said = describe_state(state)
            self._say(f"after step {progress.iteration}: {said}")
            return RunEnd("failed", f"{said}; nothing of it was saved")
        if spike.sudden:
            self._say("audit: all copies agree, and weights and moments are of normal size")
        return None

    def _note_calm(self, calm: Calm) -> None:
        progress = self._state.progress
        self._events.note("spike_over", iteration=progress.iteration, **asdict(calm))
        began = progress.iteration - progress.steps + calm.began
        if calm.returned:
            self._say(f"the spike that began at step {began} is over: it lasted {calm.lasted} steps")
        else:
            self._say(
                f"loss or gradient norm has not come back since step {began}: what is usual is learned anew, and "
                "spikes are not seen meanwhile"
            )

    def _say(self, text: str) -> None:
        self._events.note("message", text)


def _describe(spike: Spike, iteration: int) -> str:
    since = "" if spike.began == spike.steps else f", since step {iteration - spike.steps + spike.began}"
    words = (
        f"spike at step {iteration}{since}: loss {spike.loss:.3f} where {spike.expected_loss:.3f} was expected, "
        f"gradient norm {spike.grad_norm:.3g}, {spike.norm_factor:.3g} times the usual"
    )
    if spike.sudden:
        words += "; both jumped in one step, as a flipped bit in a weight makes them: an audit compares all copies now"
    return words
