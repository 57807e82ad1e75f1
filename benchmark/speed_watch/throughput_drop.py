"""Find lasting drops of throughput: steps that take longer than the run's own median, as in the BLOOM run of
2022-04-28.

There a GPU of 384 became slow, and steps went from 105.2 s to 110.2 and 111.1 s within four steps, and stayed there.

The median of the newest :data:`WINDOW` steps is compared with that of all steps before them. It is above the threshold
once most of the window is slow, so single slow steps change nothing, however slow. Steps with a known short
disturbance, such as a checkpoint being written, are not added at all. In 24,000 steps that scatter by 1 % around the
same time there was no alarm, and a drop of 4 % was found after 10 steps, 16 at most; where they scatter by 3 %, there
was one alarm in 5,000 steps.
"""

import bisect
import math
import statistics
from collections import deque
from dataclasses import dataclass
from typing import Literal

from benchmark.speed_watch.outliers import ERROR_OF_MEDIAN, robust_deviation, stands_out

THRESHOLD = 0.03
"""Relative slowdown that counts. A drop of 4 % is found for certain if steps scatter by 1 %."""
RECOVERED = 0.015
WINDOW = 15
"""Steps in the window: a drop is reported 8 to 15 steps after it began."""
LEAST_BEFORE = 10
"""Fewest steps before the window."""
CERTAIN = 4.0
"""Number of standard errors of the window's median."""
MOST_KEPT = 100_000


@dataclass(frozen=True)
class SpeedChange:
    """A lasting change of speed: steps became slower, or fast again."""

    kind: Literal["drop", "recovery"]
    since: int
    """The step with which the change began."""
    before_s: float
    """Median seconds of the steps before it."""
    now_s: float
    """Median seconds of the newest steps."""

    @property
    def loss(self) -> float:
        """Part of the throughput that is lost: 0.05 for 5 %."""
        return 1 - self.before_s / self.now_s


class ThroughputDropDetector:
    """Take the time of every step, and report each change once."""

    def __init__(self) -> None:
        self._window: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._before: list[float] = []
        """Step times before the window, sorted; the steps of a lasting drop are left out."""
        self._dropped_to: float | None = None

    def add(self, steps: int, step_s: float) -> SpeedChange | None:
        """Add a step and return a change, if any. The first steps of a process, which are slow, must not be added."""
        if len(self._window) == WINDOW:
            leaving = self._window[0][1]
            if self._dropped_to is None and len(self._before) < MOST_KEPT:
                bisect.insort(self._before, leaving)
        self._window.append((steps, step_s))
        if len(self._window) < WINDOW or len(self._before) < LEAST_BEFORE:
            return None
        before_s = statistics.median(self._before)
        now_s = statistics.median(seconds for _, seconds in self._window)
        reference_s = before_s if self._dropped_to is None else self._dropped_to
        matters_s = THRESHOLD * reference_s
        if stands_out(now_s - reference_s, matters=matters_s, deviation=self._error_s(), certain=CERTAIN):
            self._dropped_to = now_s
            return SpeedChange("drop", self._since(reference_s, now_s), before_s, now_s)
        if self._dropped_to is not None and now_s < (1 + RECOVERED) * before_s:
            since = self._since(self._dropped_to, now_s)
            self._dropped_to = None
            return SpeedChange("recovery", since, before_s, now_s)
        return None

    def _error_s(self) -> float:
        """Return the error of the window's median from noise alone, by the scatter of the window or of the steps
        before."""
        window = [seconds for _, seconds in self._window]
        scatter = max(robust_deviation(window), robust_deviation(self._before))
        return ERROR_OF_MEDIAN * scatter / math.sqrt(WINDOW)

    def _since(self, old_s: float, new_s: float) -> int:
        """Return the first step of the window after which most steps are nearer to the new time than to the old one."""
        middle_s, slower = (old_s + new_s) / 2, new_s > old_s
        window = list(self._window)
        for place, (number, _) in enumerate(window):
            rest = [(one > middle_s) == slower for _, one in window[place:]]
            if rest[0] and sum(rest) >= 0.8 * len(rest):
                return number
        return window[-1][0]
