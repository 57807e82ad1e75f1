"""The features that are tried, and trying each in a process of its own: one that crashes, hangs, or spoils the device
for its process costs no other."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmark.launch.forked_ranks import fork_server
from benchmark.slice_run.first_contact import kernel_features, runtime_features, training_match
from benchmark.slice_run.first_contact.contact_result import FeatureResult, Outcome

PATIENCE_S = 60.0
"""For one feature; the first use of a library loads hundreds of megabytes."""


@dataclass(frozen=True)
class DeviceFeature:
    """One row of the table."""

    name: str
    needed_for: str
    attempt: Callable[[torch.device], str]
    """Returns what it found; raises where it does not work."""
    without: str = ""
    """What a run does without it; empty: it cannot."""
    on_cpu: bool = True
    """Whether it can be tried on a CPU."""


FEATURES = (
    DeviceFeature("context", "anything", runtime_features.context),
    DeviceFeature("products", "every layer", kernel_features.products),
    DeviceFeature("weight gradients", "sums in FP32 by the product", kernel_features.weight_gradients),
    DeviceFeature("layer norms", "every layer", kernel_features.layer_norms),
    DeviceFeature("gelu", "every layer", kernel_features.gelus),
    DeviceFeature("cudnn attention", "BF16", kernel_features.cudnn_attention, "FlashAttention", on_cpu=False),
    DeviceFeature("flash attention", "--deterministic", kernel_features.flash_attention),
    DeviceFeature("efficient attention", "FP32", kernel_features.efficient_attention, on_cpu=False),
    DeviceFeature("chosen attention", "every layer", kernel_features.chosen_attention),
    DeviceFeature("losses", "the output layer", kernel_features.losses),
    DeviceFeature("embeddings", "the first layer", kernel_features.embeddings),
    DeviceFeature("adam", "the update", kernel_features.adams),
    DeviceFeature("gradient norm", "clipping", kernel_features.gradient_norms),
    DeviceFeature("training in FP32", "a run without --precision bf16", training_match.training_in_fp32),
    DeviceFeature("training in BF16", "a run", training_match.training_in_bf16),
    DeviceFeature("copies", "batches and checkpoints", runtime_features.copies),
    DeviceFeature("streams", "messages beside products", runtime_features.streams, on_cpu=False),
    DeviceFeature("messages", "any run", runtime_features.messages),
    DeviceFeature("profiler", "--profile, slice", runtime_features.profiler, "no traces"),
    DeviceFeature("ranges", "--nvtx", runtime_features.ranges, "no names in nsys", on_cpu=False),
    DeviceFeature("device health", "reports of bad GPUs", runtime_features.device_health, "no reports", on_cpu=False),
    DeviceFeature("memory history", "--memory-snapshot", runtime_features.memory_history, "no snapshots", on_cpu=False),
    DeviceFeature("repeatable", "--deterministic", runtime_features.repeatable, "no repeats to the bit"),
)
"""In the order in which they are tried."""


def try_feature(feature: DeviceFeature, device: str, folder: Path) -> FeatureResult:
    """In a process of its own; ``folder`` gets its log. Takes ``PATIENCE_S`` at most."""
    if device == "cpu" and not feature.on_cpu:
        return FeatureResult(feature.name, "skipped", "a CPU has none", feature.without, 0.0)
    started, answer = time.perf_counter(), folder / f"{feature.name}.json"
    log = folder / f"{feature.name}.log"
    process = fork_server().Process(target=_try, args=(feature, device, answer, log), daemon=True)
    process.start()
    process.join(PATIENCE_S)
    late = process.is_alive()
    outcome: Outcome = "failed"
    if late:
        process.kill()
        process.join()
    seconds = round(time.perf_counter() - started, 2)
    if late:
        found = f"no answer within {PATIENCE_S:.0f} s"
    elif not answer.exists():
        found = f"the process ended with status {process.exitcode}: {last_line(log)}"
    else:
        outcome, found = json.loads(answer.read_text())
    return FeatureResult(feature.name, outcome, found, feature.without if outcome == "failed" else "", seconds)


def last_line(log: Path) -> str:
    """Of what a process printed."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1][:300] if lines else "it said nothing"


def _try(feature: DeviceFeature, device: str, answer: Path, log: Path) -> None:
    """In the child."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(handle, stream)
    found: tuple[str, str]
    try:
        found = "ok", feature.attempt(torch.device(device, 0) if device == "cuda" else torch.device(device))
    except Exception as error:  # whatever it is, it is what was to be found out
        found = "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps(found))
    partial.rename(answer)
    os._exit(0)  # threads of libraries may hang at the end of a spoilt process
