"""Peak arithmetic of accelerators in published GPT-3 results, as data.

TFLOP/s in BF16, dense. Results in FP8 or int8 are compared with the same peak, so that one hundred per cent is not a
limit for them (peers facts 1.0). What "memory" says was not looked up in a vendor's document.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """A model, how system descriptions name it, and its peak."""

    name: str
    pattern: str
    """Regular expression found in ``accelerator_model_name``."""
    peak_tflops: float
    source: str


ACCELERATORS = (
    Accelerator("B200", r"B200|Blackwell", 2250.0, "peers facts 1.0, from memory"),
    Accelerator("H200", r"H200", 989.4, "peers facts 1.0, ml-engineering"),
    Accelerator("H100 PCIe", r"H100.*PCI", 756.0, "NVIDIA H100 data sheet, from memory"),
    Accelerator("H100 SXM", r"H100", 989.4, "peers facts 1.0, ml-engineering"),
    Accelerator("A100", r"A100", 312.0, "peers facts 1.0, ml-engineering"),
    Accelerator("Gaudi 2", r"Gaudi\W*(?:\(R\))?\s*2", 432.0, "peers facts 1.0, from memory"),
    Accelerator("TPU v5p", r"TPU.?v5p", 459.0, "peers facts 1.0, MaxText's documents"),
    Accelerator("TPU v5e", r"TPU.?v5e", 197.0, "peers facts 1.0, from memory"),
    Accelerator("Trillium", r"(?i)trillium|TPU.?v6e", 918.0, "peers facts 1.0, from memory"),
)


def accelerator_named(model: str) -> Accelerator | None:
    """The first entry whose pattern is in the name."""
    return next((entry for entry in ACCELERATORS if re.search(entry.pattern, model)), None)
