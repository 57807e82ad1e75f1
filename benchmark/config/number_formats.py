"""The number formats that a run can compute in: one row each, and the only place that tells them apart by name.

The launcher reads this table, on Python 3.8 without packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Precision = Literal["bf16", "fp32", "fp8"]
"""The name of a run's number format, on the command line and in config.json."""


@dataclass(frozen=True)
class NumberFormat:
    """A number format of a run. Master weights, moments, sums of gradients and losses are FP32 in each."""

    title: str
    meaning: str
    value_dtype: str
    """PyTorch's name of the type of activations, gathered weights, attention and messages between stages."""
    value_bytes: int
    """Bytes of such a number."""
    product_bits: int
    """Bits of the numbers that the linear layers of the blocks multiply; the peak of an accelerator follows from it."""
    logged_linear: str | None
    """Name in the MLPerf log of the format of linear layers; None: the one in which the device multiplies FP32."""
    logged_values: str | None
    """The same of attention and messages."""
    checkpoint: str
    """Kind of the converted initial checkpoint that such a run starts from: paxml-to-megatron --dtype."""
    use_bf16: bool | None
    """Value of the reference's variable USE_BF16 that asks for the format; None: no value does."""


NUMBER_FORMATS: Mapping[Precision, NumberFormat] = {
    "bf16": NumberFormat(
        title="BF16",
        meaning="BF16 with FP32 master weights",
        value_dtype="bfloat16",
        value_bytes=2,
        product_bits=16,
        logged_linear="bfloat16",
        logged_values="bfloat16",
        checkpoint="bf16",
        use_bf16=True,
    ),
    "fp32": NumberFormat(
        title="FP32",
        meaning="FP32",
        value_dtype="float32",
        value_bytes=4,
        product_bits=16,  # TF32 and FP32 are multiplied no faster than BF16
        logged_linear=None,
        logged_values=None,
        checkpoint="fp32",
        use_bf16=False,
    ),
    "fp8": NumberFormat(
        title="FP8",
        meaning="as bf16, with FP8 in the linear layers of the blocks",
        value_dtype="bfloat16",
        value_bytes=2,
        product_bits=8,
        logged_linear="fp8",
        logged_values="bfloat16",
        checkpoint="bf16",
        use_bf16=None,
    ),
}
"""The formats by name."""
DEFAULT_PRECISION: Precision = "bf16"
"""The format of a command without --precision."""


LOGGED_BITS = {
    **dict.fromkeys(("fp64", "fp32", "tf32", "fp16", "bfloat16"), 16),
    **dict.fromkeys(("fp8", "int8", "uint8"), 8),
}
"""Bits of the formats that MLPerf logs name; wider ones are multiplied no faster than BF16, all others count as the
narrowest."""


def format_named(name: str) -> NumberFormat:
    """Return the format of that name. Raises ValueError, with the possible names, for another one."""
    rows: Mapping[str, NumberFormat] = NUMBER_FORMATS  # type: ignore[assignment]
    if name not in rows:
        *first, last = rows
        raise ValueError(f"{', '.join(first)} or {last}")
    return rows[name]


def format_by_switch(use_bf16: bool) -> Precision:
    """Return the name of the format that a value of USE_BF16 asks for."""
    return next(name for name, row in NUMBER_FORMATS.items() if row.use_bf16 is use_bf16)
