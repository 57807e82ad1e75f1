"""Sizes and durations in the form in which people write and read them."""

import math
import re
from collections.abc import Sequence

from foundation.errors import InputError

UNITS = {
    "": 1,
    **{f"{letter}IB": 1 << 10 * power for power, letter in enumerate("KMGTP", 1)},
    **{f"{letter}B": 10 ** (3 * power) for power, letter in enumerate("KMGTP", 1)},
}
MOST_AXES = 32
LARGEST_ARRAY = 1 << 60
"""Most bytes of an array; a million times the benchmark's checkpoint."""
MOST_WORKERS = 4096


def parse_bytes(text: str, option: str) -> int:
    """Parse a size: '8GiB' -> 8589934592.

    Raises InputError, naming ``option``, for any other text, for less than one byte and for more than any machine has.
    """
    match = re.fullmatch(r"\s*([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})\s*([A-Za-z]*)\s*", text, re.ASCII)
    if match is None or match[2].upper() not in UNITS:
        raise InputError(f"{option} {text[:40]!r}: expected a size such as 8GiB or 500MB")
    size = int(float(match[1]) * UNITS[match[2].upper()])
    if not 1 <= size <= LARGEST_ARRAY:
        raise InputError(f"{option} {text[:40]!r}: expected a size from 1 byte to 1 EiB, such as 8GiB")
    return size


def require_between(value: float, low: float, high: float, option: str) -> None:
    """Raise InputError, naming ``option``, if a number is below ``low``, above ``high`` or NaN."""
    if not low <= value <= high:  # neither holds of NaN
        bounds = f"{_bound_text(low)} or more" if high == math.inf else f"{_bound_text(low)} to {_bound_text(high)}"
        raise InputError(f"{option} {value}: expected {bounds}")


def _bound_text(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:.15g}"


def require_workers(workers: int) -> None:
    require_between(workers, 1, MOST_WORKERS, "--workers")


def require_array(where: object, shape: Sequence[object], itemsize: int, *, mend: str) -> None:
    """Raise InputError, beginning with ``where`` and ending with ``mend``, for a shape that no array can have.

    Such a shape has too many axes, sizes other than whole numbers of 0 or more, or more bytes than any disk.
    """
    if len(shape) > MOST_AXES:
        raise InputError(f"{where}: {len(shape):,} axes, but at most {MOST_AXES} are possible; {mend}")
    sizes = [size for size in shape if type(size) is int and size >= 0]
    if len(sizes) < len(shape):
        raise InputError(f"{where}: shape {_shape_text(shape)}, expected whole numbers of 0 or more; {mend}")
    if max([itemsize, *sizes]) > LARGEST_ARRAY or itemsize * math.prod(sizes) > LARGEST_ARRAY:
        raise InputError(f"{where}: shape {_shape_text(shape)}, more than 1 EiB; {mend}")


def _shape_text(shape: Sequence[object]) -> str:
    return f"[{', '.join(repr(size)[:24] for size in shape)}]"


def size_text(count: float) -> str:
    """Return a number of bytes in its unit of powers of ten: "1.7 GB", "620.0 kB", "12 B"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"


def significant(value: float, digits: int) -> str:
    """Return a number with so many significant digits, and never with an exponent: "1,750", "17.5", "0.0139"."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")  # 9.999 becomes 10.0, which has one decimal less
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, decimals)}f}"


def about(seconds: float) -> str:
    """Return an estimated duration to the second: "28 s", "12 min 30 s" or "1 h 12 min"."""
    return f"{max(0.0, seconds):.0f} s" if seconds < 60 else duration(seconds)


def duration(seconds: float) -> str:
    """Return a duration such as "28.47 s", "12 min 30 s" or "1 h 12 min"; a negative one counts as zero."""
    if seconds < 60:
        return f"{max(0.0, seconds):.2f} s"
    seconds_rounded = round(seconds)
    if seconds_rounded < 3600:
        return f"{seconds_rounded // 60} min {seconds_rounded % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"
