"""The features that are tried, and trying each in a process of its own: one that crashes, hangs, or spoils the device
for its process costs no other."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from benchmark.launch.forked_ranks import fork_server
from benchmark.preflight.first_contact import kernel_features, training_match

PATIENCE_S = 60.0
"""For one feature; the first use of a library loads hundreds of megabytes."""
Outcome = Literal["ok", "failed", "skipped", "left out"]


@dataclass(frozen=True)
class DeviceFeature:
    """One row of the table."""

    name: str
    attempt: Callable[[torch.device], str]
    """Returns what it found; raises where it does not work."""
    without: str = ""
    """What a run does without it; empty: it cannot."""
    on_cpu: bool = True
    """Whether it can be tried on a CPU."""


FEATURES = (
    DeviceFeature("products", kernel_features.products),
    DeviceFeature("weight gradients", kernel_features.weight_gradients),
    DeviceFeature("layer norms", kernel_features.layer_norms),
    DeviceFeature("gelu", kernel_features.gelus),
    DeviceFeature("cudnn attention", kernel_features.cudnn_attention, "FlashAttention", on_cpu=False),
    DeviceFeature("flash attention", kernel_features.flash_attention),
    DeviceFeature("efficient attention", kernel_features.efficient_attention, on_cpu=False),
    DeviceFeature("losses", kernel_features.losses),
    DeviceFeature("adam", kernel_features.adams),
    DeviceFeature("training in FP32", training_match.training_in_fp32),
    DeviceFeature("training in BF16", training_match.training_in_bf16),
    DeviceFeature("repeatable", kernel_features.repeatable, "no repeats to the bit"),
)
"""In the order in which they are tried."""


@dataclass(frozen=True)
class FeatureResult:
    """What became of one feature."""

    name: str
    outcome: Outcome
    found: str
    without: str
    """Of one that failed: what a run does without it; empty: it cannot."""
    seconds: float


def try_feature(feature: DeviceFeature, device: str, folder: Path) -> FeatureResult:
    """Try it in a process of its own; ``folder`` gets its log. Takes ``PATIENCE_S`` at most."""
    if device == "cpu" and not feature.on_cpu:
        return FeatureResult(feature.name, "skipped", "a CPU has none", feature.without, 0.0)
    started, log = time.perf_counter(), folder / f"{feature.name}.log"
    process = fork_server().Process(target=_try, args=(feature, device, log), daemon=True)
    process.start()
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()
        found = f"no answer within {PATIENCE_S:.0f} s"
    elif process.exitcode in (0, 1):
        found = last_line(log)
    else:
        found = f"the process ended with status {process.exitcode}: {last_line(log)}"
    process.join()
    outcome: Outcome = "failed" if process.exitcode else "ok"
    seconds = round(time.perf_counter() - started, 2)
    return FeatureResult(feature.name, outcome, found, feature.without if outcome == "failed" else "", seconds)


def last_line(log: Path) -> str:
    """Return the last line that a process printed."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1][:300] if lines else "it said nothing"


def _try(feature: DeviceFeature, device: str, log: Path) -> None:
    """In the child: what was found is its last line, and the status says whether it works."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(handle, stream)
    try:
        found, status = feature.attempt(torch.device(device, 0) if device == "cuda" else torch.device(device)), 0
    except Exception as error:  # whatever it is, it is what was to be found out
        found, status = f"{type(error).__name__}: {' '.join(str(error).split())}", 1
    print(f"\n{found}", flush=True)
    os._exit(status)  # threads of libraries may hang at the end of a spoilt process
