"""Accelerators: data only. Results are compared with the dense BF16 peak, so that those in formats of fewer bits may be
above one hundred per cent (docs/facts/peers.md 1.0).
"""

import re
from dataclasses import dataclass

from foundation.errors import InputError

BF16_BITS = 16
RESERVE = 0.1
"""Share of a device's memory that stays free for the CUDA context, NCCL's buffers and gaps between tensors."""


@dataclass(frozen=True)
class Accelerator:
    """A model of accelerators: its name in system descriptions, and its maker's figures."""

    pattern: str
    """Regular expression found in ``accelerator_model_name``."""
    peak_tflops: float
    """Dense BF16, without sparsity."""
    source: str
    """The document that gives the peak; of :data:`UNSOURCED` nobody looked it up."""
    four_bit_tflops: float | None = None
    """Dense peak in numbers of 4 bits; None: four times the BF16 peak. Of B300 sources say 13 to 14 PFLOP/s: an error's
    limit is the largest."""
    memory_gb: float | None = None
    """Memory of one device in 10^9 bytes, as it is sold; None where no system of ours has it. Drivers show a little
    more or less, and need some for themselves."""
    has_fp8: bool = True
    """Whether it multiplies FP8 numbers."""

    @property
    def sourced(self) -> bool:
        """Return whether a document was looked up; an unsourced peak proves nothing."""
        return UNSOURCED not in self.source

    def fastest_tflops(self, bits: int) -> float:
        """Return the dense peak in numbers of at least so many bits: half as many bits are twice as fast."""
        if bits <= 4 and self.four_bit_tflops is not None:
            return self.four_bit_tflops
        return self.peak_tflops * BF16_BITS / bits


UNSOURCED = "from memory"
B200_PAGE = "glennklockwood.com/garden/processors/B200, after NVIDIA's architecture brief"
ML_ENGINEERING = "ml-engineering, compute/accelerator/README.md"
AMD = "docs/facts/peers.md 1.0; compute units, operations and clock by AMD"
GOOGLE = "docs.cloud.google.com/tpu/docs"
ACCELERATORS = {
    "GB300": Accelerator(
        r"GB300", 2500.0, "verda.com/blog/gb300-nvl72-architecture; NVL72: 1,080 / 72 in 4 bits", 15_000.0, 288
    ),
    "GB200": Accelerator(r"GB200", 2500.0, B200_PAGE),
    "B300": Accelerator(
        r"(?<!G)B300|Blackwell Ultra",
        2250.0,
        "verda.com/blog/gb300-nvl72-architecture; 4 bits: GB300's",
        15_000.0,
        288,
    ),
    "B200": Accelerator(
        r"(?<!G)B200|^(?!.*(?:RTX|GB10)).*Blackwell",
        2250.0,
        B200_PAGE,
        memory_gb=180,
    ),
    "GH200": Accelerator(r"GH200", 989.4, f"{UNSOURCED}; its GPU is an H100 SXM's"),
    "H200 NVL": Accelerator(
        r"(?<!G)H200.*NVL", 835.5, f"{UNSOURCED}; 853 measured by github.com/xzwgit/gpu-flops-bench"
    ),
    "H200": Accelerator(r"(?<!G)H200", 989.4, "docs/facts/peers.md 1.0; ml-engineering", memory_gb=141),
    "H100 NVL": Accelerator(r"H100.*NVL", 835.5, UNSOURCED),
    "H100 PCIe": Accelerator(r"H100.*PCI", 756.0, ML_ENGINEERING),
    "H100 SXM": Accelerator(r"H100", 989.4, "docs/facts/peers.md 1.0; ml-engineering", memory_gb=80),
    "A100-80GB": Accelerator(r"A100.*80", 312.0, "docs/facts/peers.md 1.0; ml-engineering", None, 80, False),
    "A100": Accelerator(r"A100", 312.0, "docs/facts/peers.md 1.0; ml-engineering", None, 40, False),
    "MI355X": Accelerator(r"MI355X", 2516.6, AMD, memory_gb=288),
    "MI350X": Accelerator(r"MI350X", 2306.9, AMD, memory_gb=288),
    "Gaudi 2": Accelerator(r"Gaudi\W*(?:\(R\))?\s*2", 432.0, f"{UNSOURCED}; docs/facts/peers.md 1.0"),
    "TPU v5p": Accelerator(r"TPU.?v5p", 459.0, "docs/facts/peers.md 1.0; MaxText's documents", has_fp8=False),
    "TPU v5e": Accelerator(r"TPU.?v5e", 197.0, f"{GOOGLE}/v5e", has_fp8=False),
    "Trillium": Accelerator(r"(?i:trillium)|TPU.?v6e", 918.0, f"{GOOGLE}/v6e", has_fp8=False),
}
"""The accelerators by name. Where several patterns match a device's name, the first one counts."""
ARCHITECTURE = re.compile(r"(?i)\bblackwell(?:[ _-]?ultra)?\b")
BLACKWELLS = frozenset(("GB300", "GB200", "B300", "B200"))
PARTITION = re.compile(r"\bMIG\b")
"""Finds devices that are a partition of an accelerator; a partition has a lower peak."""


def accelerator_named(model: str) -> str | None:
    """Return the first entry whose pattern is found in ``model``; None for a partition or an unknown device."""
    if PARTITION.search(model):
        return None
    return next((name for name, entry in ACCELERATORS.items() if re.search(entry.pattern, model)), None)


def models_in(text: str) -> set[str]:
    """Return the entries that a name can mean, in large or small letters. The name of an architecture, which several
    models share, counts only where no model is named."""
    models = _fitting(ARCHITECTURE.sub(" ", text))
    fitting = models or _fitting(text)
    return fitting if models or not fitting else fitting | BLACKWELLS


def _fitting(text: str) -> set[str]:
    return {name for name, entry in ACCELERATORS.items() if re.search(entry.pattern, text, re.IGNORECASE)}


def accelerator_called(text: str) -> str:
    """The entry that a user means: its name, or a model that its pattern fits, in large or small letters.

    Raises InputError where there is none.
    """
    named = (name for name in ACCELERATORS if name.casefold() == text.casefold())
    fitting = (name for name, entry in ACCELERATORS.items() if re.search(rf"(?i:{entry.pattern})(?!\d)", text))
    name = next(named, None) or next(fitting, None)
    if name is None or PARTITION.search(text):
        raise InputError(f"accelerator {text:.80}: unknown; there are {', '.join(ACCELERATORS)}")
    return name


def require_fp8(accelerator: str) -> None:
    """Raise InputError for an accelerator without FP8; it names the accelerators with FP8.

    ``accelerator``: a name in the table; empty for a device that the table lacks.
    """
    if accelerator and not ACCELERATORS[accelerator].has_fp8:
        able = ", ".join(name for name, entry in ACCELERATORS.items() if entry.has_fp8)
        raise InputError(
            f"--precision fp8: {accelerator} has no FP8; accelerators with FP8: {able}; or choose --precision bf16"
        )
