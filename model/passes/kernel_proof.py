"""Compile the fused kernels of a run before it starts, and prove them on the shapes of its passes.

A kernel's function is computed both ways on random numbers: by its operators and by the compiled kernel. A kernel that
cannot be compiled here, or whose numbers are wrong, stays with its operators.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from model.decoder_sizes import INTO_MLP, DecoderSizes
from model.fused_kernel import FusedKernel, compiled
from model.kernels import add_and_rms_norm, rms_norm_backward_and_add, rms_norm_forward, swiglu, swiglu_backward
from model.llama31_config import Llama31Config
from model.passes.linear.fp8_kernels import (
    GRADIENTS,
    VALUES,
    add_terms,
    put_terms,
    scale_and_reciprocal,
    scaled_rows,
    scaled_rows_and_transpose,
    scaled_transpose,
    transpose_of,
)
from model.passes.linear.linear_formats import LinearFormat
from model.passes.pass_sizes import LARGEST_PRODUCT, LARGEST_TILE, rows_of_part
from model.passes.softmax_loss import exponential_sums, put_logits_gradient
from model.rotary_kernel import RotaryTables, with_rotated_heads

AnyKernel = FusedKernel[Any, Any]
Example = Callable[["PassTensors"], list[Any]]
"""Arguments of a kernel, of random numbers."""
MOST: Mapping[torch.dtype, float] = {
    torch.bfloat16: 0.01,
    torch.float32: 1e-5,
    torch.float64: 1e-14,
    VALUES: 1e-3,
    GRADIENTS: 1e-3,
}
"""Largest relative difference, in the L2 norm. A number that is rounded to BF16 is up to 0.004 away from its value;
those in FP8 are cast from the same numbers."""


class PassTensors:
    """Random tensors in the shapes of a rank's passes."""

    def __init__(self, sizes: DecoderSizes, ranks: int, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        self.sizes, self.ranks, self.batch, self.dtype, self.device = sizes, ranks, batch, dtype, device
        self.tokens = sizes.seq_length * batch
        self.wide = torch.promote_types(dtype, torch.float32)

    @cached_property
    def _generator(self) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(1)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=self.device, dtype=self.wide).to(self.dtype)

    def sum_and_norm(self) -> list[Any]:
        x_tH, terms_tH = (self.draw(self.tokens // self.ranks, self.sizes.hidden_size) for _ in range(2))
        return [x_tH, terms_tH, 1 + 0.1 * self.draw(self.sizes.hidden_size)]

    def norm_backward(self) -> list[Any]:
        x_tH, residual_tH, gain = self.sum_and_norm()
        _, state = rms_norm_forward(x_tH, gain)
        return [self.draw(*x_tH.shape), x_tH, *state, gain, residual_tH]

    def into_swiglu(self) -> list[Any]:
        return [self.draw(self.tokens, self.sizes.columns(*INTO_MLP) // self.ranks)]

    def swiglu_backward(self) -> list[Any]:
        (x_T2F,) = self.into_swiglu()
        return [self.draw(self.tokens, x_T2F.shape[1] // 2), x_T2F]

    def heads(self, backwards: bool) -> list[Any]:
        """Queries, keys and values in the layouts of the passes: views of one matrix; gradients each for itself."""
        size, sequence = self.sizes.head_size, self.sizes.seq_length
        counts = [self.sizes.columns(role) // (size * self.ranks) for role in ("query", "key", "value")]
        if backwards:
            parts = [self.draw(sequence, self.batch, count, size) for count in counts]
        else:
            parts = list(torch.split(self.draw(sequence, self.batch, sum(counts), size), counts, dim=2))
        return [*parts, *RotaryTables(size).rotation(sequence, self.device), backwards]

    def logits(self) -> list[Any]:
        columns = self.sizes.padded_vocab_size // self.ranks
        rows_of_product = rows_of_part(self.tokens, columns * self.dtype.itemsize, LARGEST_PRODUCT)
        return [5 * self.draw(rows_of_part(rows_of_product, columns * 4, LARGEST_TILE), columns)]

    def logits_gradient(self) -> list[Any]:
        (logits_TV,) = self.logits()
        highest_T1, total_T1 = exponential_sums.function(logits_TV)
        rows_T1 = torch.arange(len(logits_TV), device=self.device).unsqueeze(1)
        return [logits_TV, highest_T1, rows_T1 % logits_TV.shape[1], 1 / total_T1, torch.ones_like(total_T1)]

    def operand(self, columns: int, dtype: torch.dtype) -> list[Any]:
        return [self.draw(self.tokens, columns), dtype]

    def scaled(self, columns: int, dtype: torch.dtype) -> list[Any]:
        (x_TF, _) = self.operand(columns, dtype)
        return [x_TF, scale_and_reciprocal.function(x_TF, dtype)[0], dtype]

    def transposed(self, inputs: int, outputs: int) -> list[Any]:
        return [self.draw(outputs, inputs).to(VALUES)]

    def terms(self, inputs: int, outputs: int, number: int) -> list[Any]:
        return [self.draw(outputs, inputs).to(self.wide), *(self.draw(outputs, inputs) for _ in range(number))]


OF_ALL: Sequence[tuple[AnyKernel, Example]] = (
    (exponential_sums, PassTensors.logits),
    (put_logits_gradient, PassTensors.logits_gradient),
)
OF_LLAMA: Sequence[tuple[AnyKernel, Example]] = (
    (add_and_rms_norm, PassTensors.sum_and_norm),
    (rms_norm_backward_and_add, PassTensors.norm_backward),
    (swiglu, PassTensors.into_swiglu),
    (swiglu_backward, PassTensors.swiglu_backward),
    (with_rotated_heads, lambda tensors: tensors.heads(backwards=False)),
    (with_rotated_heads, lambda tensors: tensors.heads(backwards=True)),
)


CASTS: Mapping[LinearFormat, tuple[Sequence[AnyKernel], Sequence[AnyKernel]]] = {
    "plain": ((), ()),
    "fp8": ((scaled_rows, scaled_transpose, scaled_rows_and_transpose), (scaled_rows_and_transpose,)),
    "fp8_bf16_gradients": ((scaled_rows,), (scaled_rows,)),
}
"""Kernels that cast the inputs and the gradients of linear layers in each format."""


def fp8_kernels(
    sizes: DecoderSizes, ranks: int, linear: LinearFormat, terms: int
) -> Iterator[tuple[AnyKernel, Example]]:
    """Yield the kernels around FP8 products, with an example for each shape: nothing is compiled in a step."""
    if linear == "plain":
        return
    shapes = [product.on_rank(ranks) for product in sizes.joined_products.values()]
    widths: Sequence[tuple[set[int], torch.dtype]] = [
        ({inputs for inputs, _ in shapes}, VALUES),
        ({outputs for _, outputs in shapes}, GRADIENTS),
    ]
    for (columns, dtype), casts in zip(widths, CASTS[linear], strict=True):
        for width in sorted(columns):
            yield scale_and_reciprocal, partial(PassTensors.operand, columns=width, dtype=dtype)
            yield from ((kernel, partial(PassTensors.scaled, columns=width, dtype=dtype)) for kernel in casts)
    for inputs, outputs in shapes:
        yield transpose_of, partial(PassTensors.transposed, inputs=inputs, outputs=outputs)
        for kernel in (put_terms, add_terms) if terms > 1 else ():
            yield kernel, partial(PassTensors.terms, inputs=inputs, outputs=outputs, number=terms)


def kernels_of(
    sizes: DecoderSizes, ranks: int = 1, linear: LinearFormat = "plain", terms: int = 1
) -> Sequence[tuple[AnyKernel, Example]]:
    """Return the fused kernels of a model's passes, each with an example of its arguments."""
    of_model = (*OF_LLAMA, *OF_ALL) if isinstance(sizes, Llama31Config) else OF_ALL
    return *of_model, *fp8_kernels(sizes, ranks, linear, terms)


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
    """Return the relative difference in the L2 norm over the largest allowed; infinity if a number is not finite."""
    wide = torch.float64 if expected.dtype == torch.float64 else torch.float32
    difference = float((ours.to(wide) - expected.to(wide)).norm() / expected.to(wide).norm()) / MOST[expected.dtype]
    return difference if math.isfinite(difference) else math.inf
