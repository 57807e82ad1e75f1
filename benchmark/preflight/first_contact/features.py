"""What a run needs of a device, each tried in a process of its own: one that crashes, hangs, or spoils the device for
its process costs no other.

python -m benchmark.preflight.first_contact.features NAME cuda|cpu    prints what was found; status 1: it does not work
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmark.preflight.first_contact import kernel_features, training_match


@dataclass(frozen=True)
class DeviceFeature:
    """One row of the table."""

    attempt: Callable[[torch.device], str]
    """Returns what it found; raises where it does not work."""
    without: str = ""
    """What a run does without it; empty: it cannot."""
    on_cpu: bool = True
    """Whether it can be tried on a CPU."""


FEATURES = {
    "products": DeviceFeature(kernel_features.products),
    "layer norms": DeviceFeature(kernel_features.layer_norms),
    "gelu": DeviceFeature(kernel_features.gelus),
    "cudnn attention": DeviceFeature(kernel_features.cudnn_attention, "FlashAttention", on_cpu=False),
    "flash attention": DeviceFeature(kernel_features.flash_attention),
    "efficient attention": DeviceFeature(kernel_features.efficient_attention, on_cpu=False),
    "adam": DeviceFeature(kernel_features.adams),
    "training in FP32": DeviceFeature(training_match.training_in_fp32),
    "training in BF16": DeviceFeature(training_match.training_in_bf16),
    "repeatable": DeviceFeature(kernel_features.repeatable, "no repeats to the bit"),
}
"""By name, in the order in which they are tried."""


def try_feature(name: str, device: str) -> None:
    """Try it, print what was found, and end this process."""
    try:
        found, status = FEATURES[name].attempt(torch.device(device, 0) if device == "cuda" else torch.device(device)), 0
    except Exception as error:  # whatever it is, it is what was to be found out
        found, status = f"{type(error).__name__}: {' '.join(str(error).split())}", 1
    print(f"\n{found}", flush=True)
    os._exit(status)  # threads of libraries may hang at the end of a spoilt process


if __name__ == "__main__":
    try_feature(*sys.argv[1:])
