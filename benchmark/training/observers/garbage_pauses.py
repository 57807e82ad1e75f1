"""Keep Python's garbage collector from starting by itself in the middle of a step.

By default it starts when enough objects were made, on each rank at another moment, and all others wait for the rank
that collects. A full collection looks at the 300,000 objects of PyTorch's modules: 0.2 to 0.4 s, measured on a busy
CPU. Objects made before the first step stay to the end anyway, so they are set aside. Cycles left by a step are
collected at its end, while the device still works on the update; a full collection comes at evaluations and takes 40
microseconds.
"""

import gc

from benchmark.run_record.endings import StopReason
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.step import EvaluationResult

YOUNG = 1
"""Generation that is collected after each step: objects made since the collection before the last one."""


class GarbagePauses(Observer):
    """Collect garbage between steps only, from the beginning of training to its end."""

    def begin(self) -> None:
        self._was_on = gc.isenabled()
        gc.collect()
        gc.freeze()
        gc.disable()

    def step_done(self, step: FinishedStep) -> None:
        """Collect the garbage of this step and the one before it."""
        gc.collect(YOUNG)

    def evaluated(self, result: EvaluationResult) -> None:
        """Collect all objects made since the beginning."""
        gc.collect()

    def end(self, end: StopReason | None = None) -> None:
        gc.unfreeze()
        if self._was_on:
            gc.enable()
