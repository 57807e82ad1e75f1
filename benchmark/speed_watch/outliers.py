"""The rule for outliers, used for spikes, slow ranks and slow steps alike.

A figure stands out when it exceeds the expected one by more than a difference that matters, and by more than a number
of robust standard deviations: a tiny difference that is certain is not reported, nor is a large one from noise.
"""

from collections.abc import Iterable
from statistics import median

NORMAL = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""
ERROR_OF_MEDIAN = 1.2533
"""Standard error of a median of n values divided by their standard deviation, times the root of n."""


def robust_deviation(values: Iterable[float]) -> float:
    """Return a standard deviation that a minority of the values does not affect."""
    every = list(values)
    middle = median(every)
    return NORMAL * median(abs(value - middle) for value in every)


def stands_out(excess: float, *, matters: float, deviation: float, certain: float) -> bool:
    """Return whether ``excess`` over the expected value is above ``matters`` and above ``certain`` times
    ``deviation``."""
    return excess > matters and excess > certain * deviation
