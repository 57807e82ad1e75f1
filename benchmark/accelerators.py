"""Accelerators: data only. Peaks are dense BF16, as model FLOP/s utilisation is compared (peers facts 1.0)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """Figures of the maker's data sheet."""

    memory_gb: float
    """Of one device, in 10^9 bytes. Drivers show a little more or less of it, and need some for themselves."""
    peak_tflops: float
    """Dense BF16, without sparsity."""


ACCELERATORS = {
    "A100-40GB": Accelerator(40, 312.0),
    "A100-80GB": Accelerator(80, 312.0),
    "H100": Accelerator(80, 989.4),
    "H200": Accelerator(141, 989.4),
    "B200": Accelerator(180, 2250.0),
}
