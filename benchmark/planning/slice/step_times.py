"""Sort the time of a step by cause, from the events of PyTorch's profiler.

This was tried on a CPU and on made-up events of a GPU. No GPU has run it since it reads events instead of a written
trace.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch.autograd import DeviceType

KERNEL_KINDS: tuple[tuple[str, str], ...] = (
    ("communication", r"nccl|multimem|one_shot_all|two_shot_all"),
    ("attention", r"fmha|flash|sdpa|attention|attn|compute_dot_do_o|convert_dq_to"),
    ("normalization", r"layer_?norm|LayerNorm|GammaBeta|rms_?norm"),
    ("optimizer", r"multi_tensor|adam|foreach|lpnorm"),
    ("matmul", r"gemm|nvjet|cutlass|xmma|cublas|splitk|s16816|h16816"),
    ("copies", r"^mem(cpy|set)|copy_kernel|direct_copy|CatArray|FillFunctor"),
    (
        "embedding",
        r"embedding|indexSelect|index_elementwise|indexFunc|gather|scatter|radix|sort|krn_partial|compute_grad_weight",
    ),
    ("elementwise", r"elementwise|reduce_kernel|gelu|softmax|vectorized"),
)
"""Kinds of GPU kernels and patterns in their names, regardless of case; the first pattern that matches decides. The
names are those of PyTorch 2.11 to 2.13 and the libraries it calls. The slice prints the longest kernels of no known
kind."""
OPERATOR_KINDS: tuple[tuple[str, str], ...] = (
    ("communication", r"^(c10d|_c10d_functional|gloo|nccl)\b"),
    ("attention", r"scaled_dot_product|attention"),
    ("normalization", r"layer_norm"),
    ("optimizer", r"_foreach|adam|Optimizer\."),
    ("matmul", r"::(mm|addmm|addmm_|bmm|baddbmm|linear|matmul|_scaled_mm)$"),
    ("copies", r"copy|clone|contiguous|::to$|::cat$|::zero_$|::fill_$|empty|::stack$"),
    ("embedding", r"embedding|::gather|scatter|index"),
    ("elementwise", r"aten::"),
)
"""Kinds of PyTorch's operators on a CPU and patterns in their names; the first pattern that matches decides."""
OTHER = "other"
WAITING_US = 50.0
"""Microseconds from which a call of the CUDA runtime counts as waiting for the device: launching takes some 5
microseconds, but blocks when about a thousand kernels are queued."""
MOST_NAMES = 5
"""Largest number of named kernels of no known kind."""

TimeSpan = tuple[float, float]
"""Beginning and end of an interval."""


@dataclass(frozen=True)
class StepTimes:
    """Times of one step on one device. On a CPU only the first field is filled."""

    by_kind_s: dict[str, float]
    """Seconds of kernels by kind, longest first; on a CPU, seconds of operators without the operators that they call.
    Kernels run beside each other, so the sum can exceed the step."""
    unknown_kernels: tuple[str, ...] = ()
    """Names of the longest kernels of no known kind."""
    kernels: int | None = None
    communication_s: float | None = None
    """Seconds in which communication ran. NCCL's kernels begin before the other ranks come, so waiting for these is
    included."""
    exposed_communication_s: float | None = None
    """Seconds in which only communication ran."""
    idle_s: float | None = None
    """Seconds between the first kernel and the last in which nothing ran."""
    host_s: float | None = None
    """Seconds that the host took to queue everything, without waiting for the device; None if no call was recorded."""


def kind_of(name: str, kinds: tuple[tuple[str, str], ...]) -> str:
    """Return the first kind whose pattern is found in ``name``; ``OTHER`` if none is."""
    return next((kind for kind, pattern in kinds if re.search(pattern, name, re.IGNORECASE)), OTHER)


def cpu_times(events: Iterable[Any]) -> StepTimes:
    """Sum up operators from the profiler's ``key_averages()``."""
    by_kind: Counter[str] = Counter()
    for event in events:
        by_kind[kind_of(event.key, OPERATOR_KINDS)] += event.self_cpu_time_total * 1e-6
    return StepTimes(dict(by_kind.most_common()))


def gpu_times(events: Iterable[Any]) -> StepTimes:
    """Sum up kernels and the communication beside them, from the profiler's ``events()``: kernels and calls of the CUDA
    runtime, with times in microseconds."""
    kernels, calls = [], []
    for event in events:
        if event.device_type == DeviceType.CPU:
            if event.name.startswith("cu"):  # not the profiler's own work
                calls.append((event.time_range.start, event.time_range.end))
        elif not event.is_user_annotation:  # a range around kernels
            kernels.append((event.name, (event.time_range.start, event.time_range.end)))
    if not kernels:
        return StepTimes({})
    by_kind: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    talking: list[TimeSpan] = []
    working: list[TimeSpan] = []
    for name, (begin, end) in kernels:
        kind = kind_of(name, KERNEL_KINDS)
        by_kind[kind] += (end - begin) * 1e-6
        if kind == OTHER:
            unknown[name] += end - begin
        (talking if kind == "communication" else working).append((begin, end))
    running_us = covered([*talking, *working])
    waits = [(begin, end) for begin, end in calls if end - begin > WAITING_US]
    return StepTimes(
        by_kind_s=dict(by_kind.most_common()),
        unknown_kernels=tuple(name for name, _ in unknown.most_common(MOST_NAMES)),
        kernels=len(kernels),
        communication_s=covered(talking) * 1e-6,
        exposed_communication_s=(running_us - covered(working)) * 1e-6,
        idle_s=(_span([*talking, *working]) - running_us) * 1e-6,
        host_s=(_span(calls) - covered(waits)) * 1e-6 if calls else None,
    )


def covered(intervals: Iterable[TimeSpan]) -> float:
    """Return the time that intervals cover together."""
    total, until = 0.0, -math.inf
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _span(intervals: list[TimeSpan]) -> float:
    return max(end for _, end in intervals) - min(begin for begin, _ in intervals)
