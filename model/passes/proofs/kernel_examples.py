"""Examples of the arguments of each fused kernel, in the shapes of a rank's passes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from model.decoder_sizes import INTO_MLP, DecoderSizes, Role
from model.fused_kernel import FusedKernel
from model.kernels import add_and_rms_norm, rms_norm_backward_and_add, rms_norm_forward, swiglu, swiglu_backward
from model.llama31_config import Llama31Config
from model.measuring_kernels import (
    add_and_rms_norm_and_largest,
    gelu_and_largest,
    gelu_backward_and_largest,
    rms_norm_and_largest,
    rms_norm_backward_and_add_and_largest,
    rotated_back_and_largest,
    swiglu_and_largest,
    swiglu_backward_and_largest,
)
from model.passes.linear.fp8_kernels import (
    GRADIENTS,
    VALUES,
    add_terms,
    largest_or_infinity,
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

    def into_norm(self) -> list[Any]:
        x_tH, _, gain = self.sum_and_norm()
        return [x_tH, gain]

    def into_activation(self) -> list[Any]:
        return [self.draw(self.tokens, self.sizes.columns(*INTO_MLP) // self.ranks)]

    def swiglu_backward(self) -> list[Any]:
        (x_T2F,) = self.into_activation()
        return [self.draw(self.tokens, x_T2F.shape[1] // 2), x_T2F]

    def gelu_backward(self) -> list[Any]:
        return [*self.into_activation(), *self.into_activation()]

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

    def numbers(self, shares: int, columns: int) -> list[Any]:
        """A tensor of all tokens, or of this rank's share of them."""
        return [self.draw(self.tokens // shares, columns)]

    def operand(self, columns: int, dtype: torch.dtype) -> list[Any]:
        return [*self.numbers(1, columns), dtype]

    def scaled(self, shares: int, columns: int, dtype: torch.dtype) -> list[Any]:
        (x_TF,) = self.numbers(shares, columns)
        return [x_TF, scale_and_reciprocal.function(x_TF, dtype)[0], dtype]

    def largest_values(self, shares: int) -> list[Any]:
        return [self.numbers(shares, 1)[0].flatten().float().abs()]

    def of_largest_values(self, dtype: torch.dtype) -> list[Any]:
        return [*self.largest_values(1), dtype]

    def of_maximum(self, dtype: torch.dtype) -> list[Any]:
        return [self.largest_values(1)[0].amax(), dtype]

    def fp8_rows(self, columns: int, dtype: torch.dtype) -> list[Any]:
        return [self.draw(self.tokens, columns).to(dtype)]

    def fp8_weight(self, inputs: int, outputs: int) -> list[Any]:
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
    (swiglu, PassTensors.into_activation),
    (swiglu_backward, PassTensors.swiglu_backward),
    (with_rotated_heads, lambda tensors: tensors.heads(backwards=False)),
    (with_rotated_heads, lambda tensors: tensors.heads(backwards=True)),
)
MEASURING_OF_GPT3: Sequence[tuple[AnyKernel, Example]] = (
    (gelu_and_largest, PassTensors.into_activation),
    (gelu_backward_and_largest, PassTensors.gelu_backward),
)
MEASURING_OF_LLAMA: Sequence[tuple[AnyKernel, Example]] = (
    (rms_norm_and_largest, PassTensors.into_norm),
    (add_and_rms_norm_and_largest, PassTensors.sum_and_norm),
    (rms_norm_backward_and_add_and_largest, PassTensors.norm_backward),
    (swiglu_and_largest, PassTensors.into_activation),
    (swiglu_backward_and_largest, PassTensors.swiglu_backward),
    (rotated_back_and_largest, lambda tensors: tensors.heads(backwards=True)[:-1]),
)


CASTS: Mapping[LinearFormat, Mapping[torch.dtype, Sequence[AnyKernel]]] = {
    "plain": {},
    "fp8": {
        VALUES: (scaled_rows, scaled_transpose, scaled_rows_and_transpose),
        GRADIENTS: (scaled_rows_and_transpose,),
    },
    "fp8_bf16_gradients": {VALUES: (scaled_rows,), GRADIENTS: (scaled_rows,)},
}
"""Kernels that cast the inputs and the gradients of linear layers in each format."""
Roles = Mapping[torch.dtype, tuple[Role, ...]]
"""Products, each by a role, by the format of their inputs and of their gradients."""
GATHERED: Roles = {VALUES: ("query", "up"), GRADIENTS: ("output", "down")}
"""Tensors of which each tensor-parallel rank makes a part."""
READ_OF_GPT3: Roles = {VALUES: ("query", "output", "up"), GRADIENTS: ("query", "output", "down")}
READ_OF_LLAMA: Roles = {VALUES: ("output",), GRADIENTS: ("output", "down")}
"""Tensors that are read for their largest values: of attention, GPT-3's norms, and gradients from another pipeline
stage or the output layer."""
MEASURED_OF_GPT3: Roles = {VALUES: ("down",), GRADIENTS: ("up",)}
MEASURED_OF_LLAMA: Roles = {VALUES: ("query", "up", "down"), GRADIENTS: ("query", "output", "up", "down")}
"""Tensors whose kernels return their largest values."""


def fp8_kernels(
    sizes: DecoderSizes, ranks: int, linear: LinearFormat, terms: int
) -> Iterator[tuple[AnyKernel, Example]]:
    """Yield the kernels around FP8 products, with an example for each shape: nothing is compiled in a step."""
    if linear == "plain":
        return
    of_llama = isinstance(sizes, Llama31Config)
    read, measured = (READ_OF_LLAMA, MEASURED_OF_LLAMA) if of_llama else (READ_OF_GPT3, MEASURED_OF_GPT3)
    calls: dict[tuple[Any, ...], None] = {}
    for product in sizes.joined_products.values():
        shape = product.on_rank(ranks)
        for (dtype, casts), width in zip(CASTS[linear].items(), shape, strict=True):
            is_gathered, is_read, is_measured = (
                not product.columns.keys().isdisjoint(roles[dtype]) for roles in (GATHERED, read, measured)
            )
            if is_gathered and ranks > 1 and linear == "fp8":
                calls |= dict.fromkeys(_casts_of_share(width, dtype, ranks, is_read, is_measured))
            elif is_gathered and ranks > 1:
                calls |= dict.fromkeys(_casts_of_all(width, dtype, casts, True, False))
            else:
                calls |= dict.fromkeys(_casts_of_all(width, dtype, casts, is_read, is_measured))
        calls[transpose_of, PassTensors.fp8_weight, *shape] = None
        for kernel in (put_terms, add_terms) if terms > 1 else ():
            calls[kernel, PassTensors.terms, *shape, terms] = None
    yield from MEASURING_OF_LLAMA if of_llama else MEASURING_OF_GPT3
    for kernel, example, *arguments in calls:
        yield kernel, partial(_example, example, arguments)


def _example(method: Callable[..., list[Any]], arguments: Sequence[Any], tensors: PassTensors) -> list[Any]:
    return method(tensors, *arguments)


def _casts_of_share(
    width: int, dtype: torch.dtype, ranks: int, is_read: bool, is_measured: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield kernels, examples and their arguments for an operand that is gathered in FP8."""
    if is_read:
        yield largest_or_infinity, PassTensors.numbers, ranks, width
    if is_measured:
        yield largest_or_infinity, PassTensors.largest_values, ranks
    yield scale_and_reciprocal, PassTensors.of_maximum, dtype
    yield scaled_rows, PassTensors.scaled, ranks, width, dtype
    yield transpose_of, PassTensors.fp8_rows, width, dtype


def _casts_of_all(
    width: int, dtype: torch.dtype, casts: Sequence[AnyKernel], is_read: bool, is_measured: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield the same for an operand that is cast as a whole."""
    if is_read:
        yield scale_and_reciprocal, PassTensors.operand, width, dtype
    if is_measured:
        yield scale_and_reciprocal, PassTensors.of_largest_values, dtype
    for kernel in casts:
        yield kernel, PassTensors.scaled, 1, width, dtype


def kernels_of(
    sizes: DecoderSizes, ranks: int = 1, linear: LinearFormat = "plain", terms: int = 1
) -> Sequence[tuple[AnyKernel, Example]]:
    """Return the fused kernels of a model's passes, each with an example of its arguments."""
    of_model = (*OF_LLAMA, *OF_ALL) if isinstance(sizes, Llama31Config) else OF_ALL
    return *of_model, *fp8_kernels(sizes, ranks, linear, terms)
