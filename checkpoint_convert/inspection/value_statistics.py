"""Figures of the values of an array, taken in parts and added up without losing digits."""

import math
from dataclasses import dataclass

import numpy as np

from checkpoint_convert.formats.byte_ranges import Values
from checkpoint_convert.inspection.array_blocks import pieces


@dataclass(frozen=True)
class Statistics:
    """Figures of some values; ``minimum`` to ``squares`` are those of the finite ones."""

    count: int = 0
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
        """Return the figures of both together. Means are moved, not sums added up, so that no digits are lost (Chan et
        al. 1979)."""
        finite = self.finite + other.finite
        apart = other.mean - self.mean
        share = other.finite / max(finite, 1)
        return Statistics(
            self.count + other.count,
            self.zeros + other.zeros,
            self.nan + other.nan,
            self.inf + other.inf,
            finite,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            self.mean + apart * share,
            self.squares + other.squares + apart * apart * self.finite * share,
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
        zeros = len(numbers) - int(np.count_nonzero(numbers))
        part = Statistics(len(numbers), zeros, nan, inf, len(finite))
        if len(finite):
            mean = float(finite.mean())
            squares = float(np.square(finite - mean).sum())
            low, high = float(finite.min()), float(finite.max())
            part = Statistics(len(numbers), zeros, nan, inf, len(finite), low, high, mean, squares)
        total += part
    return total
