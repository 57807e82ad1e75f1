"""Find ranks that compute slower than others with the same work.

A sample is the time each rank took for one block of the model. A rank is slow when (a) over the last :data:`WINDOW`
samples the median of its excess over its peers is above the threshold, (b) that median is above :data:`CERTAIN` of its
standard errors, and (c) :data:`NEEDED` of the samples are above the threshold. So neither single outliers nor noise
make a rank slow.

False alarms, in windows of one rank, where samples scatter independently around the same time: none of 200,000 by 2 %
(a GPU), 1 of 70,000 by 7 %, 1 of 6,000 by 11 % (two ranks on two cores that six other programs share; none was reported
there in 500 samples). A rank that is 30 % slower is reported with the twelfth sample in 100, 99 and 72 of 100 cases.
"""

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmark.speed_watch.outliers import ERROR_OF_MEDIAN, robust_deviation, stands_out

Floats = npt.NDArray[np.float64]

THRESHOLD = 0.10
"""Least excess over the median of the peers. A thermal slowdown takes a third and more; ranks differ by 1 to 3 %."""
ALONE_THRESHOLD = 0.15
"""Threshold for a rank that is alone with its part of the model and is compared with all others."""
WINDOW = 12
"""Number of samples that are judged together."""
NEEDED = 9
CERTAIN = 4.0
RECOVERED = 0.5
"""Part of the threshold below which a slow rank is as fast as the others again."""


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
    """Find slow ranks; ``parts``: by rank, a key of its part of the model. Ranks with the same key are peers."""

    def __init__(self, parts: Sequence[Hashable]) -> None:
        together: dict[Hashable, list[int]] = {}
        for rank, part in enumerate(parts):
            together.setdefault(part, []).append(rank)
        self._teams = [np.array(ranks) for ranks in together.values() if len(ranks) > 1]
        self._alone = [ranks[0] for ranks in together.values() if len(ranks) == 1]
        self._thresholds = np.full(len(parts), THRESHOLD)
        self._thresholds[self._alone] = ALONE_THRESHOLD
        self._excesses: deque[Floats] = deque(maxlen=WINDOW)
        """Logarithms of the ranks' times divided by the medians of their peers; NaN where a rank has no time."""
        self.slow: dict[int, SlowRank] = {}
        """Currently slow ranks."""

    def add(self, seconds: Sequence[float]) -> SpeedVerdict:
        """Add a sample; zero and NaN mean that a rank has no time. Takes a millisecond for 2,048 ranks."""
        own = np.array(seconds, dtype=np.float64)
        own[~(own > 0)] = np.nan
        peers_s = self._medians_of_peers(own)
        excess = np.log(own / peers_s)
        if np.isnan(excess).all():
            return SpeedVerdict()
        self._excesses.append(excess)
        if len(self._excesses) < WINDOW:
            return SpeedVerdict()
        window = np.stack(self._excesses)
        middle = np.median(window, axis=0)  # NaN where the window has a gap
        often = (window > np.log1p(self._thresholds)).sum(axis=0) >= NEEDED
        named = [rank for rank in map(int, np.flatnonzero(often)) if rank not in self.slow]
        named = [rank for rank in named if self._is_slow(rank, window[:, rank])]
        for rank in (*named, *self.slow):
            self.slow[rank] = SlowRank(rank, float(np.expm1(middle[rank])), float(own[rank]), float(peers_s[rank]))
        recovered = [rank for rank, one in self.slow.items() if one.excess < RECOVERED * self._thresholds[rank]]
        for rank in recovered:
            del self.slow[rank]
        return SpeedVerdict(sorted((self.slow[rank] for rank in named), key=lambda one: -one.excess), recovered)

    def slowest(self) -> SlowRank | None:
        """Return the slowest of the slow ranks; None if there is none."""
        return max(self.slow.values(), key=lambda one: one.excess, default=None)

    def _is_slow(self, rank: int, excesses: Floats) -> bool:
        """Return whether a rank whose samples are often above the threshold is slow for certain."""
        error = ERROR_OF_MEDIAN * robust_deviation(excesses.tolist()) / math.sqrt(WINDOW)
        threshold = float(np.log1p(self._thresholds[rank]))
        return stands_out(float(np.median(excesses)), matters=threshold, deviation=error, certain=CERTAIN)

    def _medians_of_peers(self, own: Floats) -> Floats:
        """Return by rank the median of its peers without itself; NaN if the rank has no time or no peer has one."""
        medians = np.full(len(own), np.nan)
        if self._alone:
            everyone = _medians_of_others(own)
            medians[self._alone] = everyone[self._alone]
        for team in self._teams:
            medians[team] = _medians_of_others(own[team])
        return medians


def _medians_of_others(own: Floats) -> Floats:
    """Return for each value the median of all others; values that are NaN do not count, and get NaN."""
    medians = np.full(len(own), np.nan)
    known = np.flatnonzero(~np.isnan(own))
    others = len(known) - 1
    if others < 1:
        return medians
    order = known[np.argsort(own[known])]
    ordered, place = own[order], np.arange(len(order))
    low, high = (others - 1) // 2, others // 2  # of the ordered values without one, which all behind it move up for
    medians[order] = (ordered[low + (low >= place)] + ordered[high + (high >= place)]) / 2
    return medians
