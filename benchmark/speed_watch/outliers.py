"""The rule by which a run calls a figure an outlier, of spikes, slow ranks and slow steps alike.

A figure stands out when it exceeds what is expected by more than what matters, and by more than so many robust standard
deviations: neither a tiny difference that is certain nor a large one that noise makes is told.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
ERROR_OF_MEDIAN = 1.2533
"""Standard error of a median of n values over their standard deviation, times the root of n."""


def median(values: Sequence[float] | Floats) -> Floats:
    """Along the first axis; NaN where a value is."""
    return np.asarray(np.median(np.asarray(values, dtype=np.float64), axis=0))


def robust_deviation(values: Sequence[float] | Floats) -> Floats:
    """Standard deviation along the first axis, whatever a minority of the values is."""
    every = np.asarray(values, dtype=np.float64)
    return NORMAL * median(np.abs(every - median(every)))


def error_of_median(values: Sequence[float] | Floats) -> Floats:
    """Standard error of the median along the first axis."""
    return ERROR_OF_MEDIAN * robust_deviation(values) / math.sqrt(len(values))


def stands_out(excess: Floats | float, *, matters: Floats | float, deviation: Floats | float, certain: float) -> Flags:
    """Whether ``excess`` over what is expected is above ``matters`` and above ``certain`` times ``deviation``."""
    return np.asarray((excess > matters) & (excess > certain * deviation), dtype=np.bool_)
