"""The rule for outliers, used for spikes, slow ranks and slow steps alike.

A figure stands out when it exceeds the expected one by more than a difference that matters, and by more than a number
of robust standard deviations: a tiny difference that is certain is not reported, nor is a large one from noise.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
NORMAL = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""
ERROR_OF_MEDIAN = 1.2533
"""Standard error of a median of n values divided by their standard deviation, times the root of n."""


def median(values: Sequence[float] | Floats) -> Floats:
    """Return the median along the first axis; NaN if a value is NaN."""
    return np.asarray(np.median(np.asarray(values, dtype=np.float64), axis=0))


def robust_deviation(values: Sequence[float] | Floats) -> Floats:
    """Return a standard deviation along the first axis that a minority of the values does not affect."""
    every = np.asarray(values, dtype=np.float64)
    return NORMAL * median(np.abs(every - median(every)))


def error_of_median(values: Sequence[float] | Floats) -> Floats:
    """Return the standard error of the median along the first axis."""
    return ERROR_OF_MEDIAN * robust_deviation(values) / math.sqrt(len(values))


def stands_out(excess: Floats | float, *, matters: Floats | float, deviation: Floats | float, certain: float) -> Flags:
    """Return whether ``excess`` over the expected value is above ``matters`` and above ``certain`` times
    ``deviation``."""
    return np.asarray((excess > matters) & (excess > certain * deviation), dtype=np.bool_)
