"""Figures of an array's values, computed in parts and combined without loss of digits."""

import math
from dataclasses import dataclass

import numpy as np

from checkpoint_convert.formats.stored_array import Values
from checkpoint_convert.inspection.array_blocks import pieces


@dataclass(frozen=True)
class Statistics:
    """Figures of some values; ``minimum`` to ``squares`` are those of the finite ones."""

    zeros: int = 0
    nan: int = 0
    inf: int = 0
    finite: int = 0
    minimum: float = math.inf
    maximum: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean."""

    def __add__(self, other: "Statistics") -> "Statistics":
        """Return the figures of both together.

        Means are shifted rather than sums added up, so that no digits are lost (Chan et al. 1979).
        """
        finite = self.finite + other.finite
        apart = other.mean - self.mean
        share = other.finite / max(finite, 1)
        return Statistics(
            zeros=self.zeros + other.zeros,
            nan=self.nan + other.nan,
            inf=self.inf + other.inf,
            finite=finite,
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            mean=self.mean + apart * share,
            squares=self.squares + other.squares + apart * apart * self.finite * share,
        )

    @property
    def sd(self) -> float:
        """Standard deviation of the values as a whole, not of a sample."""
        return math.sqrt(self.squares / max(self.finite, 1))


def statistics(values: Values) -> Statistics:
    """Return the figures of an array's values, computed in float64, a piece at a time."""
    total = Statistics()
    for piece in pieces(values):
        numbers = piece.astype(np.float64)
        nan, inf = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
        finite = numbers[np.isfinite(numbers)] if nan + inf else numbers
        total += Statistics(zeros=len(numbers) - int(np.count_nonzero(numbers)), nan=nan, inf=inf)
        if len(finite):
            mean, low, high = float(finite.mean()), float(finite.min()), float(finite.max())
            squares = float(np.square(finite - mean).sum())
            total += Statistics(finite=len(finite), minimum=low, maximum=high, mean=mean, squares=squares)
    return total
