"""How often spikes are told where there are none: python -m tests.benchmark.training.observers.false_alarms

Noise about a constant loss and norm, of the size found in published runs: the loss of NVIDIA's and CoreWeave's runs of
round 3.0 differs from a smooth curve by 0.0097 nats, and that difference is white (autocorrelation -0.04 and 0.03) and
has light tails (kurtosis 2.7; a Gaussian has 3). The norm's logarithm in rehearsals differs by 0.12. Runs are as long
as a submission.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmark.training.observers.spikes import LEAST, RECENT, Spike, SpikeRule

LOSS, LOSS_NOISE = 2.7, 0.0097
NORM, NORM_NOISE = 0.2, 0.12
STEPS = 464
"""The longest run to the target among the reference's."""


@dataclass(frozen=True)
class Noise:
    """Standard deviation 1."""

    name: str
    degrees: float | None
    """Of freedom of Student's t; None: Gaussian."""
    correlation: float
    """Of a value with the next."""

    def draw(self, random: np.random.Generator, steps: int) -> npt.NDArray[np.float64]:
        lead_in = 64
        if self.degrees is None:
            fresh = random.standard_normal(steps + lead_in)
        else:
            fresh = random.standard_t(self.degrees, steps + lead_in) / math.sqrt(self.degrees / (self.degrees - 2))
        values = np.zeros_like(fresh)
        share = math.sqrt(1 - self.correlation**2)
        for place in range(1, len(fresh)):
            values[place] = self.correlation * values[place - 1] + share * fresh[place]
        return values[lead_in:]


KINDS = (
    Noise("Gaussian, white, as in published runs", None, 0.0),
    Noise("Gaussian, correlation 0.5", None, 0.5),
    Noise("Student's t of 5 degrees, white", 5.0, 0.0),
    Noise("Student's t of 5 degrees, correlation 0.5", 5.0, 0.5),
    Noise("Student's t of 3 degrees, correlation 0.3", 3.0, 0.3),
)


def alarms(losses: npt.NDArray[np.float64], norms: npt.NDArray[np.float64]) -> list[tuple[int, Spike]]:
    """Return the spikes in a run of these figures, with the number of the step, from 1."""
    rule = SpikeRule()
    judged = ((step, rule.judge(*map(float, one))) for step, one in enumerate(zip(losses, norms, strict=True), 1))
    return [(step, spike) for step, spike in judged if spike is not None]


def count_false_alarms(kind: Noise, runs: int, seed: int) -> tuple[int, int]:
    """Return the alarms in so many runs, and the steps that were judged."""
    random = np.random.default_rng(seed)
    number = 0
    for _ in range(runs):
        losses = LOSS + LOSS_NOISE * kind.draw(random, STEPS)
        norms = NORM * np.exp(NORM_NOISE * kind.draw(random, STEPS))
        number += len(alarms(losses, norms))
    return number, runs * (STEPS - RECENT - LEAST)


if __name__ == "__main__":
    for kind in KINDS:
        number, steps = count_false_alarms(kind, 2000, 1)
        print(f"{kind.name}: {number} in {steps:,} steps, {number / steps:.1e} per step", flush=True)
