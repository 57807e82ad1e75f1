"""The reference curve of a global batch size: the log perplexity of earlier runs after so many trained tokens.

The forecast of the target and the review compare a run with this curve (values: benchmark/config/reference_curves.py).
Beyond its end it is a line over the logarithm of tokens: the 36 published evaluations there lie 0.0002 above it (sd
0.0007), and 0.0003 above a line over tokens (sd 0.0008).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.config.reference_curves import ReferenceCurve

LAST_VALUES = 6
"""Number of a curve's last steps from value to value that continue it beyond its end."""


@dataclass(frozen=True)
class CurveAtBatchSize:
    """The reference curve of one global batch size, interpolated between the curves of two."""

    smaller: ReferenceCurve
    larger: ReferenceCurve
    share: float
    """Weight of the larger batch size's curve, from 0 to 1."""

    @property
    def tokens_per_value(self) -> int:
        """Trained tokens from one value to the next."""
        return self.smaller.tokens_per_value

    @property
    def num_values(self) -> int:
        """Number of values until the reference runs met their target."""
        return max(len(self.smaller.log_perplexities), len(self.larger.log_perplexities))

    def log_perplexity(self, tokens: float) -> float:
        """Return the log perplexity after so many trained tokens."""
        smaller, larger = _log_perplexity(self.smaller, tokens), _log_perplexity(self.larger, tokens)
        return (1 - self.share) * smaller + self.share * larger


def curve_at(curves: Sequence[ReferenceCurve], batch_size: float) -> CurveAtBatchSize:
    """Return the curve of a global batch size; the nearest curve beyond the smallest and the largest size.

    ``curves``: of one benchmark, the smallest batch size first.
    """
    smaller = next((curve for curve in reversed(curves) if curve.global_batch_size <= batch_size), curves[0])
    larger = next((curve for curve in curves if curve.global_batch_size >= batch_size), curves[-1])
    distance = larger.global_batch_size - smaller.global_batch_size
    share = (batch_size - smaller.global_batch_size) / distance if distance > 0 else 0.0
    return CurveAtBatchSize(smaller, larger, share)


def _log_perplexity(curve: ReferenceCurve, tokens: float) -> float:
    """Interpolate linearly between values. Beyond the last value, continue in a line over the logarithm of tokens with
    the slope of the last values; before the first value, return the first."""
    values, count = curve.log_perplexities, tokens / curve.tokens_per_value
    last = len(values)
    if count <= last:
        below = min(max(int(count), 1), last - 1)
        return values[below - 1] + max(count - below, 0.0) * (values[below] - values[below - 1])
    slope = (values[-1] - values[-1 - LAST_VALUES]) / math.log(last / (last - LAST_VALUES))
    return values[-1] + slope * math.log(count / last)
