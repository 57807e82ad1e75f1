"""Checks of the fields of a configuration."""

import math

from stage.errors import InputError


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number in ascending order, with 1 and the number itself."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]


def listed(numbers: list[int]) -> str:
    """``1, 2, 4``"""
    return ", ".join(map(str, numbers))


def require_seed(seed: int) -> None:
    """Raise InputError for a seed that the generator of the data order (NumPy's Mersenne Twister) does not take."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed {seed}: expected 0 to {2**32 - 1}; change --seed")


def require_positive(config: object, *names: str) -> None:
    """Raise InputError where a field of these names is below 1; it names the option of that name."""
    for name in names:
        if getattr(config, name) < 1:
            raise InputError(f"{name} {getattr(config, name)}: expected at least 1; change --{name.replace('_', '-')}")
