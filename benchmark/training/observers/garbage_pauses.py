"""Python's garbage collector, which must not begin by itself in the middle of a step.

By default it does whenever enough objects were made, on each of the ranks at another moment, and all others wait for
the one that collects. A full collection looks at the 300,000 objects of PyTorch's modules: 0.2 to 0.4 s, measured on
a busy CPU. What was made before the first step stays to the end anyway, so it is set aside; what steps leave in cycles
is collected at their end, when the device still has the update to do, and in full at evaluations: 40 microseconds.
"""

import gc

from benchmark.launch.endings import RunEnd
from benchmark.training.observer import Observer, StepDone
from benchmark.training.step import EvaluationResult

YOUNG = 1
"""Collected after each step: what was made since the collection before the last one."""


class GarbagePauses(Observer):
    """From the beginning to the end, garbage is collected between steps and at no other time."""

    def begin(self) -> None:
        self._was_on = gc.isenabled()
        gc.collect()
        gc.freeze()
        gc.disable()

    def step_done(self, step: StepDone) -> None:
        """Collect what this step and the one before it left."""
        gc.collect(YOUNG)

    def evaluated(self, result: EvaluationResult) -> None:
        """Collect all that was made since the beginning."""
        gc.collect()

    def end(self, end: RunEnd | None = None) -> None:
        gc.unfreeze()
        if self._was_on:
            gc.enable()
