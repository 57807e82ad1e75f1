"""Fingerprints and projections of many tensors as text."""

import base64
import binascii
from typing import Any

import numpy as np
import numpy.typing as npt

from stage.errors import InputError

PRINT = np.dtype("<u8")
PROJECTION = np.dtype("<f4")


def as_text(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> str:
    """base64 of the values as ``dtype``."""
    return base64.b64encode(values.astype(dtype).tobytes()).decode()


def from_text(text: str, dtype: np.dtype[Any], count: int, where: str) -> npt.NDArray[Any]:
    """What :func:`as_text` was given. Raises InputError unless they are ``count`` values."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if len(content) != count * dtype.itemsize:
        raise InputError(f"{where}: {len(content)} bytes; expected {count} values of {dtype.itemsize} bytes in base64")
    return np.frombuffer(content, dtype)


def joined_halves(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """The sums of 64-bit numbers, modulo 2^64, whose lower and upper 32 bits were summed up apart in float64.

    Exact for up to 2^21 summands.
    """
    return low.astype(np.uint64) + (high.astype(np.uint64) << np.uint64(32))
