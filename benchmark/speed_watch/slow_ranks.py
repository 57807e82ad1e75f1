"""Which ranks compute slower than those that do the same work.

A sample is the time each rank took for one block of the model. A rank is slow when over the last :data:`WINDOW` samples
the median of its excess over its peers is above the threshold and above :data:`CERTAIN` standard errors of that median,
and :data:`NEEDED` of the samples are above the threshold, too: neither single outliers nor noise make one.

How often it cries wolf, in windows of one rank, where samples scatter independently around the same time: none of
200,000 by 2 % (a GPU), 1 of 70,000 by 7 %, 1 of 6,000 by 11 % (two ranks on two cores that six other programs share;
none was named there in 500 samples). A rank that is 30 % slower is named with the twelfth sample in 100, 99 and 72 of
100 cases.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmark.speed_watch.outliers import Floats, error_of_median, stands_out

THRESHOLD = 0.10
"""Excess over the median of the peers. A thermal slowdown takes a third and more; ranks differ by 1 to 3 %."""
ALONE_THRESHOLD = 0.15
"""For a rank that is alone with its part of the model and is compared with the others."""
WINDOW = 12
"""Samples."""
NEEDED = 9
CERTAIN = 4.0
RECOVERED = 0.5
"""A slow rank is as fast as the others again when its excess is below this part of the threshold."""


@dataclass(frozen=True)
class SlowRank:
    """``seconds`` and ``peers_s`` are for one block: this rank's, and the median of its peers'."""

    rank: int
    excess: float
    """0.3: it takes 30 % longer."""
    seconds: float
    peers_s: float


@dataclass(frozen=True)
class SpeedVerdict:
    """What a sample has changed."""

    slow: Sequence[SlowRank] = ()
    """Named for the first time, the slowest first."""
    recovered: Sequence[int] = ()
    """Slow so far, and as fast as the others again."""


class SlowRankDetector:
    """``parts``: by rank, what tells which part of the model it has; ranks with the same one are peers."""

    def __init__(self, parts: Sequence[Hashable]) -> None:
        together: dict[Hashable, list[int]] = {}
        for rank, part in enumerate(parts):
            together.setdefault(part, []).append(rank)
        self._teams = [np.array(ranks) for ranks in together.values() if len(ranks) > 1]
        self._alone = [ranks[0] for ranks in together.values() if len(ranks) == 1]
        self._thresholds = np.full(len(parts), THRESHOLD)
        self._thresholds[self._alone] = ALONE_THRESHOLD
        self._excesses: deque[Floats] = deque(maxlen=WINDOW)
        """Logarithms of the ranks' times over the medians of their peers; NaN where a rank has none."""
        self.slow: dict[int, SlowRank] = {}
        """By rank, as they stand."""

    def add(self, seconds: Sequence[float]) -> SpeedVerdict:
        """A sample; zero and NaN: a rank has none. Takes a millisecond for 2,048 ranks."""
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
        named = [int(rank) for rank in np.flatnonzero(self._certain(window, middle)) if rank not in self.slow]
        for rank in (*named, *self.slow):
            self.slow[rank] = SlowRank(rank, float(np.expm1(middle[rank])), float(own[rank]), float(peers_s[rank]))
        recovered = [rank for rank, one in self.slow.items() if one.excess < RECOVERED * self._thresholds[rank]]
        for rank in recovered:
            del self.slow[rank]
        return SpeedVerdict(sorted((self.slow[rank] for rank in named), key=lambda one: -one.excess), recovered)

    def slowest(self) -> SlowRank | None:
        """Of the slow ones."""
        return max(self.slow.values(), key=lambda one: one.excess, default=None)

    def _certain(self, window: Floats, middle: Floats) -> npt.NDArray[np.bool_]:
        """Ranks of which a window [samples, ranks] with these medians says for certain that they are slow."""
        threshold = np.log1p(self._thresholds)
        often: npt.NDArray[np.bool_] = (window > threshold).sum(axis=0) >= NEEDED
        if often.any():
            often &= stands_out(middle, matters=threshold, deviation=error_of_median(window), certain=CERTAIN)
        return often

    def _medians_of_peers(self, own: Floats) -> Floats:
        """By rank, the median of its peers without itself; NaN where it has no time or no peer has one."""
        medians = np.full(len(own), np.nan)
        if self._alone:
            everyone = _medians_of_others(own)
            medians[self._alone] = everyone[self._alone]
        for team in self._teams:
            medians[team] = _medians_of_others(own[team])
        return medians


def _medians_of_others(own: Floats) -> Floats:
    """For each value the median of all others; values that are NaN do not count, and have none."""
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
