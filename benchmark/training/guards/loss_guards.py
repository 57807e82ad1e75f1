"""What becomes of a step whose loss or gradient is not as usual: words, events, and how the run goes on.

Every process decides for itself and all decide the same, for a step's figures are equal on all of them.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Literal, Protocol

from benchmark.config.run_config import ROLLBACKS, RunConfig
from benchmark.events.event_log import EventLog
from benchmark.training.engine.run_progress import Progress
from benchmark.training.guards.nonfinite_step import NonFiniteStep
from benchmark.training.guards.rollback_file import MOST_AT_A_PLACE, NEAR_STEPS, is_hopeless
from benchmark.training.guards.skip_diagnosis import (
    SkippedStep,
    describe_state,
    describe_step,
    diagnose,
    samples_command,
    suspected_samples,
)
from benchmark.training.guards.spike_detector import Calm, Spike, observe
from benchmark.training.guards.state_soundness import StateSoundness

MOST_SKIPPED_IN_A_ROW = 10
"""After that many steps without finite gradients a run will not recover by itself."""
MOST_RANKS_IN_EVENT = 16

Ending = Literal["diverged", "replicas differ", "state damaged", "spike", "rolled back"]
"""state damaged: weights or moments are what training never makes of them; an older checkpoint is not."""


class GuardedRun(Protocol):
    """What the guards ask of a run. All are collective."""

    def check_state(self) -> StateSoundness: ...

    def roll_back(self, spike: Spike) -> None:
        """Make the next start go back to before the spike."""
        ...


class LossGuards:
    """Looks at every step. ``replicas_differ``: compare the copies now, and log what differs; collective."""

    def __init__(
        self,
        config: RunConfig,
        progress: Progress,
        events: EventLog,
        run: GuardedRun,
        replicas_differ: Callable[[], bool],
    ) -> None:
        self._config, self._progress, self._events, self._run = config, progress, events, run
        self._replicas_differ = replicas_differ
        self._skipped: list[SkippedStep] = []
        """Of the steps that were skipped up to now, in a row."""

    def after_step(
        self, loss: float, grad_norm: float, rate: float, nonfinite: NonFiniteStep | None, save: Callable[[], object]
    ) -> Ending | None:
        """Judge the step that ``progress`` just counted; how the run ends, None where it goes on.

        ``nonfinite``: of a skipped step. ``save``: save now if the run saves at all and its state is sound; collective.
        """
        if self._progress.skipped_in_a_row > 0:
            return self._after_skip(rate, nonfinite, save)
        if len(self._skipped) > 1:
            self._say(f"gradients are finite again, after {len(self._skipped)} skipped steps")
        self._skipped.clear()
        found = observe(self._progress.watch, self._progress.steps, loss, grad_norm)
        if isinstance(found, Calm):
            self._log_calm(found)
            return None
        return None if found is None else self._after_spike(found, save)

    def _after_skip(self, rate: float, nonfinite: NonFiniteStep | None, save: Callable[[], object]) -> Ending | None:
        progress = self._progress
        if nonfinite is not None:
            self._skipped.append(SkippedStep(progress.iteration, nonfinite))
            self._log_skip(nonfinite)
        if 1 < progress.skipped_in_a_row < MOST_SKIPPED_IN_A_ROW:
            return None
        state = self._run.check_state()
        if progress.skipped_in_a_row == 1 and not state.tensors:
            return None
        text = diagnose(self._skipped, progress.skipped_in_a_row, progress.iteration, state, rate)
        self._events.note(
            "diagnosis",
            text,
            iteration=progress.iteration,
            skipped_in_a_row=progress.skipped_in_a_row,
            damaged=[asdict(one) for one in state.tensors[:MOST_RANKS_IN_EVENT]],
        )
        self._say(text)
        if state.tensors:
            return "state damaged"
        save()
        return "diverged"

    def _log_skip(self, step: NonFiniteStep) -> None:
        """An event for each, one line for the first in a row."""
        progress = self._progress
        text = describe_step(step)
        command = samples_command(self._config, progress.seed, *suspected_samples(step))
        self._events.note(
            "nonfinite",
            text,
            iteration=progress.iteration,
            first_sample=step.first_sample,
            num_samples=step.num_samples,
            losses_finite=step.losses_finite,
            num_ranks=len(step.ranks),
            ranks=[asdict(one) for one in step.ranks[:MOST_RANKS_IN_EVENT]],
            samples_command=command,
        )
        if progress.skipped_in_a_row == 1:
            self._say(f"step {progress.iteration} skipped: {text}. Its samples: {command}")

    def _after_spike(self, spike: Spike, save: Callable[[], object]) -> Ending | None:
        """An event and a line; the copies are compared, for a flipped bit in a weight looks like a spike."""
        policy = self._config.on_spike
        progress, goes_back = self._progress, policy in ROLLBACKS
        hopeless = goes_back and is_hopeless(progress, spike.began)
        first, last = progress.samples_after(spike.began - 1), progress.consumed_samples
        command = samples_command(self._config, progress.seed, first, last - first)
        fields = {**asdict(spike), "norm_factor": spike.norm_factor, "sudden": spike.sudden}
        self._events.note(
            "spike",
            iteration=progress.iteration,
            policy=policy,
            samples=[first, last],
            samples_command=command,
            **fields,
        )
        self._say(f"{_describe(spike, progress.iteration)}. {_consequence(policy, hopeless)}. Its samples: {command}")
        if self._replicas_differ():
            return "replicas differ"
        state = self._run.check_state()
        if state.tensors:
            self._say(f"after step {progress.iteration}: {describe_state(state)}")
            return "state damaged"
        if spike.sudden:
            self._say("audit: all copies agree, and weights and moments are of normal size")
        if policy == "note":
            return None
        if policy == "stop" or hopeless:
            save()
            return "spike"
        self._run.roll_back(spike)
        return "rolled back"

    def _log_calm(self, calm: Calm) -> None:
        self._events.note("spike_over", iteration=self._progress.iteration, **asdict(calm))
        began = self._progress.iteration - self._progress.steps + calm.began
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


def _consequence(policy: str, hopeless: bool) -> str:
    if hopeless:
        return (
            f"The run went back {MOST_AT_A_PLACE} times from spikes within {NEAR_STEPS} steps of this one, and it came "
            "again: stopping. Begin again (another --run-dir) with another --seed or a lower --lr"
        )
    return {
        "note": "Going on (--on-spike note)",
        "stop": "Stopping (--on-spike stop)",
        "skip-data": "Going back to the checkpoint before it and leaving out the samples since (--on-spike skip-data)",
        "lower-rate": "Going back to the checkpoint before it and on at a lower learning rate (--on-spike lower-rate)",
    }[policy]
