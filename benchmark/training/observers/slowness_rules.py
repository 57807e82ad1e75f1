"""The rules by which a run finds ranks that compute slower than others, and lasting drops of throughput.

A figure stands out when it exceeds the expected one by more than a difference that matters, and by more than a number
of robust standard deviations: a tiny difference that is certain is not reported, nor is a large one from noise. Spikes
of the loss are found by the same rule (spikes.py).
"""

import bisect
import math
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
NORMAL = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""
ERROR_OF_MEDIAN = 1.2533
"""Standard error of a median of n values divided by their standard deviation, times the root of n."""
RANK_EXCESS = 0.10
"""Least excess over the median of the peers. A thermal slowdown takes a third and more; ranks differ by 1 to 3 %."""
ALONE_EXCESS = 0.15
"""Threshold for a rank that is alone with its part of the model and is compared with all others."""
SAMPLES = 12
"""Number of samples that are judged together."""
SAMPLES_ABOVE = 9
CERTAIN = 4.0
"""Number of standard errors of a median."""
RANK_RECOVERED = 0.5
"""Part of the threshold below which a slow rank is as fast as the others again."""
DROP = 0.03
"""Relative slowdown that counts. A drop of 4 % is found for certain if steps scatter by 1 %."""
DROP_RECOVERED = 0.015
STEPS = 15
"""Steps in the window: a drop is reported 8 to 15 steps after it began."""
LEAST_STEPS_BEFORE = 10
"""Fewest steps before the window."""
MOST_STEPS_BEFORE = 100_000


def robust_deviation(values: Iterable[float]) -> float:
    """Return a standard deviation that a minority of the values does not affect."""
    numbers = list(values)
    middle = median(numbers)
    return NORMAL * median(abs(value - middle) for value in numbers)


def stands_out(excess: float, *, matters: float, deviation: float, certain: float) -> bool:
    """Return whether ``excess`` over the expected value is above ``matters`` and above ``certain`` times
    ``deviation``."""
    return excess > matters and excess > certain * deviation


@dataclass(frozen=True)
class SlowRank:
    """A slow rank; ``seconds`` and ``peers_s`` are its own time for one block and the median of its peers' times."""

    rank: int
    excess: float
    """Relative excess: 0.3 if the rank takes 30 % longer."""
    seconds: float
    peers_s: float


@dataclass(frozen=True)
class SpeedVerdict:
    """The changes by a sample."""

    slow: Sequence[SlowRank] = ()
    """Ranks reported for the first time, the slowest first."""
    recovered: Sequence[int] = ()
    """Ranks that were slow so far and are as fast as the others again."""


class SlowRankDetector:
    """Find ranks that compute slower than others with the same work.

    A sample is the time each rank took for one block of the model. A rank is slow when its excess over its peers meets
    three conditions over the last :data:`SAMPLES` samples: (a) the median is above the threshold; (b) the median is
    above :data:`CERTAIN` of its standard errors; (c) :data:`SAMPLES_ABOVE` of the samples are above the threshold. So
    neither single outliers nor noise make a rank slow.

    False alarms, in windows of one rank, where samples scatter independently around the same time: none of 200,000 by
    2 % (a GPU), 1 of 70,000 by 7 %, 1 of 6,000 by 11 % (two ranks on two cores that six other programs share; none was
    reported there in 500 samples). A rank that is 30 % slower is reported with the twelfth sample in 100, 99 and 72 of
    100 cases.
    """

    def __init__(self, parts: Sequence[Hashable]) -> None:
        """``parts``: by rank, a key of its part of the model. Ranks with the same key are peers."""
        ranks_by_part: dict[Hashable, list[int]] = {}
        for rank, part in enumerate(parts):
            ranks_by_part.setdefault(part, []).append(rank)
        self._teams = [np.array(ranks) for ranks in ranks_by_part.values() if len(ranks) > 1]
        self._ranks_without_peers = [ranks[0] for ranks in ranks_by_part.values() if len(ranks) == 1]
        self._thresholds = np.full(len(parts), RANK_EXCESS)
        self._thresholds[self._ranks_without_peers] = ALONE_EXCESS
        self._excesses: deque[Floats] = deque(maxlen=SAMPLES)
        """Logarithms of the ranks' times divided by the medians of their peers; NaN where a rank has no time."""
        self.slow: dict[int, SlowRank] = {}
        """Currently slow ranks."""

    def add(self, seconds: Sequence[float]) -> SpeedVerdict:
        """Add a sample; zero and NaN mean that a rank has no time. Takes a millisecond for 2,048 ranks."""
        times_s = np.array(seconds, dtype=np.float64)
        times_s[~(times_s > 0)] = np.nan
        peers_s = self._medians_of_peers(times_s)
        excess = np.log(times_s / peers_s)
        if np.isnan(excess).all():
            return SpeedVerdict()
        self._excesses.append(excess)
        if len(self._excesses) < SAMPLES:
            return SpeedVerdict()
        window = np.stack(self._excesses)
        middle = np.median(window, axis=0)  # NaN where the window has a gap
        often = (window > np.log1p(self._thresholds)).sum(axis=0) >= SAMPLES_ABOVE
        named = [rank for rank in map(int, np.flatnonzero(often)) if rank not in self.slow]
        named = [rank for rank in named if self._is_slow(rank, window[:, rank])]
        for rank in (*named, *self.slow):
            self.slow[rank] = SlowRank(rank, float(np.expm1(middle[rank])), float(times_s[rank]), float(peers_s[rank]))
        recovered = [
            rank for rank, slow_rank in self.slow.items() if slow_rank.excess < RANK_RECOVERED * self._thresholds[rank]
        ]
        for rank in recovered:
            del self.slow[rank]
        return SpeedVerdict(
            sorted((self.slow[rank] for rank in named), key=lambda slow_rank: -slow_rank.excess), recovered
        )

    def slowest(self) -> SlowRank | None:
        """Return the slowest of the slow ranks; None if there is none."""
        return max(self.slow.values(), key=lambda slow_rank: slow_rank.excess, default=None)

    def _is_slow(self, rank: int, excesses: Floats) -> bool:
        """Return whether a rank whose samples are often above the threshold is slow for certain."""
        error = ERROR_OF_MEDIAN * robust_deviation(excesses.tolist()) / math.sqrt(SAMPLES)
        threshold = float(np.log1p(self._thresholds[rank]))
        return stands_out(float(np.median(excesses)), matters=threshold, deviation=error, certain=CERTAIN)

    def _medians_of_peers(self, times_s: Floats) -> Floats:
        """Return by rank the median of its peers without itself; NaN if the rank has no time or no peer has one."""
        medians = np.full(len(times_s), np.nan)
        if self._ranks_without_peers:
            overall = _medians_of_others(times_s)
            medians[self._ranks_without_peers] = overall[self._ranks_without_peers]
        for team in self._teams:
            medians[team] = _medians_of_others(times_s[team])
        return medians


def _medians_of_others(times_s: Floats) -> Floats:
    """Return for each value the median of all others; values that are NaN do not count, and get NaN."""
    medians = np.full(len(times_s), np.nan)
    timed = np.flatnonzero(~np.isnan(times_s))
    count = len(timed) - 1
    if count < 1:
        return medians
    order = timed[np.argsort(times_s[timed])]
    ordered, index = times_s[order], np.arange(len(order))
    low, high = (count - 1) // 2, count // 2  # positions in the order without the value itself
    medians[order] = (ordered[low + (low >= index)] + ordered[high + (high >= index)]) / 2
    return medians


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
    """Find lasting drops of throughput: steps that take longer than the run's own median, and report each change once.

    In the BLOOM run of 2022-04-28 a GPU of 384 became slow, and steps went from 105.2 s to 110.2 and 111.1 s within
    four steps, and stayed there. The median of the newest :data:`STEPS` steps is compared with that of all steps before
    them. It is above the threshold once most of the window is slow, so single slow steps change nothing, however slow.
    Steps with a known short disturbance, such as a checkpoint being written, are not added at all. In 24,000 steps that
    scatter by 1 % around the same time there was no alarm, and a drop of 4 % was found after 10 steps, 16 at most;
    where they scatter by 3 %, there was one alarm in 5,000 steps.
    """

    def __init__(self) -> None:
        self._window: deque[tuple[int, float]] = deque(maxlen=STEPS)
        self._earlier_s: list[float] = []
        """Step times before the window, sorted; the steps of a lasting drop are left out."""
        self._dropped_to_s: float | None = None

    def add(self, steps: int, step_s: float) -> SpeedChange | None:
        """Add a step and return a change, if any. The first steps of a process, which are slow, must not be added."""
        if len(self._window) == STEPS:
            leaving = self._window[0][1]
            if self._dropped_to_s is None and len(self._earlier_s) < MOST_STEPS_BEFORE:
                bisect.insort(self._earlier_s, leaving)
        self._window.append((steps, step_s))
        if len(self._window) < STEPS or len(self._earlier_s) < LEAST_STEPS_BEFORE:
            return None
        before_s = median(self._earlier_s)
        now_s = median(seconds for _, seconds in self._window)
        reference_s = before_s if self._dropped_to_s is None else self._dropped_to_s
        matters_s = DROP * reference_s
        if stands_out(now_s - reference_s, matters=matters_s, deviation=self._error_s(), certain=CERTAIN):
            self._dropped_to_s = now_s
            return SpeedChange("drop", self._since(reference_s, now_s), before_s, now_s)
        if self._dropped_to_s is not None and now_s < (1 + DROP_RECOVERED) * before_s:
            since = self._since(self._dropped_to_s, now_s)
            self._dropped_to_s = None
            return SpeedChange("recovery", since, before_s, now_s)
        return None

    def _error_s(self) -> float:
        """Return the error of the window's median from noise alone, by the scatter of the window or of the steps
        before."""
        window = [seconds for _, seconds in self._window]
        scatter = max(robust_deviation(window), robust_deviation(self._earlier_s))
        return ERROR_OF_MEDIAN * scatter / math.sqrt(STEPS)

    def _since(self, old_s: float, new_s: float) -> int:
        """Return the first step of the window after which most steps are nearer to the new time than to the old one."""
        middle_s, slower = (old_s + new_s) / 2, new_s > old_s
        window = list(self._window)
        for start, (number, _) in enumerate(window):
            votes = [(seconds > middle_s) == slower for _, seconds in window[start:]]
            if votes[0] and sum(votes) >= 0.8 * len(votes):
                return number
        return window[-1][0]
