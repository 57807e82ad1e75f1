"""Report spikes of loss and gradient norm, and check at each whether a weight was damaged, which looks like a spike.

The rule compares each value with the run's own last steps. A step's surprise is its value minus the median of the
RECENT values before it. Surprises are measured in robust standard deviations of the last MOST of them, so a falling
loss, a noisy one and a small or large batch need no setting. The norm is judged by its logarithm. A value is high when
its surprise stands out and it is more than LOSS_RISE (NORM_FACTOR) times the expected one. A spike is a high loss,
NORM_IN_A_ROW high norms in a row, or a norm that is NORM_AT_ONCE times the expected one: a single high norm below that
is clipped away and common. Nothing is judged in the first RECENT + LEAST = 32 steps of a process. High values are never
learned from. A spike is reported once; the next can begin after CALM steps that are not high. After MOST high steps in
a row the level has changed for good and is learned anew.

False alarms (``python -m tests.benchmark.training.observers.false_alarms``, 864,000 steps of noise each): none in
Gaussian noise, as published losses have (white, kurtosis 2.7); 5e-5 per step with the tails of Student's t of 5
degrees, one in 50 runs of 464 steps; none on the two published curves that have the loss of each step.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.train_state import TrainState
from benchmark.training.engine.unsound_values import check_state
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.observers.skipped_steps import describe_state
from benchmark.training.observers.slowness_rules import robust_deviation, stands_out

RECENT = 8
LEAST, MOST = 24, 64
"""Fewest surprises that are needed to judge, and most that are kept."""
LOSS_DEVIATIONS, LOSS_RISE = 10.0, 1.02
NORM_DEVIATIONS, NORM_FACTOR = 8.0, 3.0
NORM_IN_A_ROW = 2
NORM_AT_ONCE = 30.0
CALM = 8
LEAST_DEVIATION = 1e-3
"""Least deviation of a surprise, relative to the loss, and of the norm's logarithm: values that hardly differ must not
set bounds."""


@dataclass(frozen=True)
class Spike:
    """The step at which a spike was noticed; the fields of the event ``spike``."""

    loss: float
    expected_loss: float
    grad_norm: float
    expected_norm: float
    in_a_row: int
    """Consecutive high steps, up to and including this one."""


class RunningBaseline:
    """The last values of a figure that were not high, and their surprises."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._surprises: deque[float] = deque(maxlen=MOST)

    @property
    def expected(self) -> float | None:
        """Median of the last values; None while too few are known."""
        return median(self._recent) if len(self._surprises) >= LEAST else None

    def is_high(self, value: float, *, rise: float, deviations: float, least_deviation: float) -> bool:
        """Return whether ``value`` is more than ``rise`` above the expected one and stands out from the surprises."""
        if self.expected is None:
            return False
        if not math.isfinite(value):
            return True
        deviation = max(robust_deviation(self._surprises), least_deviation)
        return stands_out(value - self.expected, matters=rise, deviation=deviation, certain=deviations)

    def learn(self, value: float) -> None:
        if len(self._recent) == RECENT:
            self._surprises.append(value - median(self._recent))
        self._recent.append(value)


class SpikeRule:
    """Judge steps in their order. The inputs are equal on all processes, so all decide the same."""

    def __init__(self) -> None:
        self._loss, self._log_norm = RunningBaseline(), RunningBaseline()
        self._norms_high = self._high = 0
        """Consecutive steps up to now whose norm was high, and in which the loss or the norm was."""
        self._quiet: int | None = None
        """Steps since the last high one of the reported spike; None if there is no such spike."""

    def judge(self, loss: float, grad_norm: float) -> Spike | None:
        """Judge a step that was not skipped, and learn from it.

        ``loss`` is in nats; ``grad_norm`` is finite and measured before clipping.
        """
        log_norm = math.log(max(grad_norm, 1e-30))
        expected_loss, expected_norm = self._loss.expected, self._log_norm.expected
        loss_is_high = self._loss.is_high(
            loss,
            rise=(LOSS_RISE - 1) * abs(expected_loss or 0.0),
            deviations=LOSS_DEVIATIONS,
            least_deviation=LEAST_DEVIATION * abs(loss),
        )
        norm_is_high = self._log_norm.is_high(
            log_norm, rise=math.log(NORM_FACTOR), deviations=NORM_DEVIATIONS, least_deviation=LEAST_DEVIATION
        )
        if not loss_is_high and math.isfinite(loss):
            self._loss.learn(loss)
        if not norm_is_high:
            self._log_norm.learn(log_norm)
        self._norms_high = self._norms_high + 1 if norm_is_high else 0
        self._high = self._high + 1 if loss_is_high or norm_is_high else 0
        if self._quiet is not None:
            self._quiet = 0 if self._high else self._quiet + 1
            if self._quiet == CALM:
                self._quiet = None
            elif self._high == MOST:
                self._loss, self._log_norm, self._quiet = RunningBaseline(), RunningBaseline(), None
            return None
        if expected_loss is None or expected_norm is None:
            return None
        at_once = norm_is_high and log_norm > expected_norm + math.log(NORM_AT_ONCE)
        if not (loss_is_high or self._norms_high >= NORM_IN_A_ROW or at_once):
            return None
        self._quiet = 0
        return Spike(loss, expected_loss, grad_norm, math.exp(expected_norm), self._high)


class SpikeGuard(Observer):
    """Report spikes; at each, compare copies and check weights and moments."""

    def __init__(
        self,
        state: TrainState,
        events: EventLog,
        phases: PhaseLog,
        compare_copies: Callable[[], StopReason | None],
        samples_command: Callable[[int, int], str],
    ) -> None:
        """``compare_copies`` returns how the run ends if copies differ; collective. ``samples_command`` takes the first
        sample and a count, and returns the command to write these samples."""
        self._state, self._events, self._phases = state, events, phases
        self._compare_copies, self._samples_command = compare_copies, samples_command
        self._rule = SpikeRule()

    def between_steps(self, step: FinishedStep) -> StopReason | None:
        """Judge the step. Collective if there is a spike."""
        spike = None if step.result.skipped else self._rule.judge(step.result.loss, step.result.grad_norm)
        if spike is None:
            return None
        self._note(spike)
        if (end := self._compare_copies()) is not None:
            return end
        self._phases.enter("audit", self._state.progress.steps)
        state = check_state(self._state)
        if not state.tensors:
            return None
        description = describe_state(state)
        self._events.warn(f"after step {self._state.progress.steps}: {description}")
        return StopReason("failed", f"{description}; this state was not saved")

    def _note(self, spike: Spike) -> None:
        progress = self._state.progress
        first_sample, next_sample = progress.samples_after(progress.steps - spike.in_a_row), progress.consumed_samples
        command = self._samples_command(first_sample, next_sample - first_sample)
        fields = {"samples": [first_sample, next_sample], "samples_command": command}
        self._events.note("spike", steps=progress.steps, **fields, **asdict(spike))
        text = (
            f"spike at step {progress.steps}: loss {spike.loss:.3f} where {spike.expected_loss:.3f} was expected, "
            f"gradient norm {spike.grad_norm:.3g}, {spike.grad_norm / spike.expected_norm:.3g} times the usual. "
            f"Copies, weights and moments are looked through; the run goes on. Its samples: {command}"
        )
        self._events.warn(text)
