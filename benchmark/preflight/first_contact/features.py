"""Try each ability that a run needs of a device in a process of its own: a process that crashes, hangs or spoils the
device for itself does not stop the others.

python -m benchmark.preflight.first_contact.features NAME cuda|cpu

The command prints the result; exit status 1 means that the ability does not work.
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
    """Function that returns its result in words, and raises if the feature does not work."""
    without: str = ""
    """Substitute that a run uses without the feature; empty if there is none."""
    on_cpu: bool = True
    """True if the feature can be tried on a CPU."""


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
    "repeatable": DeviceFeature(kernel_features.repeatable, "runs do not repeat to the bit"),
}
"""Features by name, in the order in which they are tried."""


def try_feature(name: str, device: str) -> None:
    """Try the feature, print the result, and end this process."""
    try:
        found, status = FEATURES[name].attempt(torch.device(device, 0) if device == "cuda" else torch.device(device)), 0
    except Exception as error:  # whatever it is, it is what was to be found out
        found, status = f"{type(error).__name__}: {' '.join(str(error).split())}", 1
    print(f"\n{found}", flush=True)
    os._exit(status)  # threads of libraries may hang at the end of a spoilt process


if __name__ == "__main__":
    try_feature(*sys.argv[1:])
