"""Compile the fused kernels of a run before it starts, and prove them on the shapes of its passes.

A kernel's function is computed both ways on random numbers: by its operators and by the compiled kernel. A kernel that
cannot be compiled here, or whose numbers are wrong, stays with its operators.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from model.decoder_sizes import DecoderSizes
from model.fused_kernel import compiled
from model.passes.linear.fp8_kernels import GRADIENTS, VALUES, largest_or_infinity, scale_and_reciprocal
from model.passes.linear.linear_formats import LinearFormat
from model.passes.proofs.kernel_examples import (
    MEASURING_OF_GPT3,
    MEASURING_OF_LLAMA,
    AnyKernel,
    PassTensors,
    kernels_of,
)

MOST: Mapping[torch.dtype, float] = {
    torch.bfloat16: 0.01,
    torch.float32: 1e-5,
    torch.float64: 1e-14,
    VALUES: 1e-3,
    GRADIENTS: 1e-3,
}
"""Largest relative difference, in the L2 norm. A number that is rounded to BF16 is up to 0.004 away from its value;
those in FP8 are cast from the same numbers."""
FIND_LARGEST: Set[AnyKernel] = {
    *(kernel for kernel, _ in (*MEASURING_OF_GPT3, *MEASURING_OF_LLAMA)),
    scale_and_reciprocal,
    largest_or_infinity,
}
"""Kernels by which a tensor with a NaN or an infinity gets the scale NaN: proved with such tensors, too."""


def prove_kernels(
    sizes: DecoderSizes,
    *,
    ranks: int,
    batch: int,
    dtype: torch.dtype,
    device: torch.device,
    deterministic: bool,
    linear: LinearFormat = "plain",
    terms: int = 1,
) -> str:
    """Compile the kernels of the passes in this process, and return a line that names them, and each that stays with
    its operators, with the bytes that this costs.

    ``ranks``: tensor-parallel ranks; ``batch``: samples of a micro-batch; ``linear``: the format of linear layers;
    ``terms``: FP8 products that are added to a weight's gradient at once.
    """
    started, tensors = time.perf_counter(), PassTensors(sizes, ranks, batch, dtype, device)
    proved: dict[AnyKernel, Callable[..., Any]] = {}
    problems: dict[AnyKernel, str] = {}
    with torch.no_grad():
        for kernel, example in kernels_of(sizes, ranks, linear, terms):
            if kernel in problems:
                continue
            function = proved.get(kernel) or compiled(kernel, deterministic=deterministic)
            problem = problem_of(kernel, function, example(tensors))
            for value in (math.nan, math.inf) if kernel in FIND_LARGEST else ():
                problem = problem or problem_of(kernel, function, _with_value(example(tensors), value))
            if problem:
                problems[kernel] = problem
                proved.pop(kernel, None)
            else:
                proved[kernel] = function
    for kernel, function in proved.items():
        kernel.compiled = function
    seconds = time.perf_counter() - started
    line = f"{len(proved)} of {len(proved) + len(problems)} fused kernels compiled and proved in {seconds:.1f} s"
    return "; ".join([line, *(f"{kernel.name} NOT compiled: {why}" for kernel, why in problems.items())])


def _with_value(arguments: list[Any], value: float) -> list[Any]:
    """Put ``value`` in the first place of the first tensor."""
    arguments[0][(0,) * arguments[0].dim()] = value
    return arguments


def problem_of(kernel: AnyKernel, function: Callable[..., Any], arguments: Sequence[Any]) -> str:
    """Return why ``function``, the compiled kernel, must not be used; empty if it may."""
    copies = [x.clone() if position in kernel.changes else x for position, x in enumerate(arguments)]
    expected = _tensors(kernel.function(*copies), [copies[position] for position in kernel.changes])
    cost = f"its operators move {kernel.operator_bytes:g} times the bytes"
    if kernel.operator_bytes == 1:
        cost = "its operators move as many bytes, but slower"
    try:
        results = _tensors(function(*arguments), [arguments[position] for position in kernel.changes])
    except Exception as error:  # no compiler, no Triton, no such option: each has a class of its own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"{lines[0][:200]}; {cost}"
    worst = max(_difference(ours, theirs) for ours, theirs in zip(results, expected, strict=True))
    return "" if worst <= 1 else f"its numbers are wrong here, {worst:.2g} times the tolerance; {cost}"


def _tensors(result: Any, changed: Sequence[Tensor]) -> Sequence[Tensor]:
    results = [result] if isinstance(result, Tensor) else result or ()
    return [*results, *changed]


def _difference(ours: Tensor, expected: Tensor) -> float:
    """Return the relative difference in the L2 norm over the largest allowed; infinity if a number is not finite that
    is expected to be, or the other way round."""
    wide = torch.float64 if expected.dtype == torch.float64 else torch.float32
    ours, limit, expected = ours.to(wide), MOST[expected.dtype], expected.to(wide)
    finite = expected.isfinite()
    if not torch.equal(ours.isfinite(), finite):
        return math.inf
    ours, expected = (x.where(finite, 0) for x in (ours, expected))
    difference = float((ours - expected).norm() / expected.norm().clamp(min=torch.finfo(wide).tiny)) / limit
    return difference if math.isfinite(difference) else math.inf
