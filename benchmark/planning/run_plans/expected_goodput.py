"""Which share of a run's time is productive where something fails every so often.

Failures come at random, at a constant rate (a Poisson process), at any moment: while training, saving and restarting.
A run goes back to its newest whole checkpoint. This is the model of J. T. Daly, "A higher order estimate of the optimum
checkpoint interval for restart dumps" (2006), whose first order is that of J. W. Young, "A first order approximation to
the optimum checkpoint interval" (1974); what is written in the background while training goes on is ours.
"""

import math
from dataclasses import dataclass

MOST_EXPONENT = 700.0
"""Beyond it e^x is no float; nothing is ever finished there."""


@dataclass(frozen=True)
class FailingRun:
    """A run, its checkpoints and its failures, as means."""

    step_s: float
    """Seconds of a step that count as productive."""
    mtbf_s: float
    """Seconds between failures of the whole system, infinite where nothing fails. Of one machine it is longer by the
    number of machines."""
    save_steps: int
    """Steps between checkpoints."""
    pause_s: float
    """Training pauses for the copy of a checkpoint."""
    restart_s: float
    """From a failure until the first step begins again: noticing it, idle, start, init."""
    write_s: float = 0.0
    """From the end of the pause until the checkpoint is whole, training going on; at most a save interval."""
    other_s: float = 0.0
    """Seconds for each step that are neither productive nor a pause, and are lost and done again with it:
    evaluations, audits."""

    def __post_init__(self) -> None:
        """Raises ValueError for what no run can have."""
        times = (self.pause_s, self.restart_s, self.write_s, self.other_s)
        if not (self.step_s > 0 and self.mtbf_s > 0 and self.save_steps > 0 and all(time >= 0 for time in times)):
            raise ValueError(f"expected times of at least 0, a step, an MTBF and a save interval above it: {self}")


def expected_goodput(run: FailingRun) -> float:
    """Productive time / all time in the long run, 0 to 1; the queue is not in it.

    With segments of s seconds (save_steps steps and their pause), restarts of R, background writes of w, and M seconds
    between failures::

        goodput = save_steps * step_s / (M * exp((R + w) / M) * (exp(s / M) - 1))

    After a restart the first whole checkpoint takes s + w without a failure, each further one s more, with the chance
    e^(-s/M). From one failure after which a checkpoint became whole to the next it is M e^((R+s+w)/M) seconds in the
    mean, in which 1 / (1 - e^(-s/M)) segments are kept: a background write counts like a longer restart. Where M is
    much longer than the rest, the goodput is the productive share of a segment times 1 - (R + w + s/2) / M.
    """
    segment_s = run.save_steps * (run.step_s + run.other_s) + run.pause_s
    productive_s = run.save_steps * run.step_s
    if math.isinf(run.mtbf_s):
        return productive_s / segment_s
    delay, segment = (run.restart_s + run.write_s) / run.mtbf_s, segment_s / run.mtbf_s
    if delay + segment > MOST_EXPONENT:
        return 0.0
    return productive_s / (run.mtbf_s * math.exp(delay) * math.expm1(segment))
