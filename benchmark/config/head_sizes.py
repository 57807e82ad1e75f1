"""Sizes of attention heads that a GPU's kernels take (model/passes/attention.py). On a CPU any size does."""

from typing import Literal

from benchmark.config.field_checks import divisors, listed
from model.decoder_sizes import DecoderSizes
from stage.errors import InputError

Precision = Literal["bf16", "fp32"]

TAKEN: dict[Precision, tuple[int, int]] = {"bf16": (8, 256), "fp32": (4, 65536)}
"""A size is a multiple of the first number, and at most the second: FlashAttention's, and those of the memory-efficient
kernel, of which PyTorch 2.11 has just the aligned ones for Ampere and newer."""


def require_head_size(model: DecoderSizes, precision: Precision, tensor_parallel: int) -> None:
    """Raises InputError, with numbers of heads that would do for this hidden size."""
    multiple, most = TAKEN["fp32" if precision == "fp32" else "bf16"]  # plans have FP8, whose attention is BF16's
    hidden, heads = model.hidden_size, model.num_attention_heads

    def is_taken(size: int) -> bool:
        return size % multiple == 0 and size <= most

    if is_taken(hidden // heads):
        return
    good = [number for number in divisors(hidden) if is_taken(hidden // number) and number % tensor_parallel == 0]
    instead = f"possible: {listed(good)}; change --num-attention-heads" if good else "change --hidden-size"
    raise InputError(
        f"num_attention_heads {heads} of hidden_size {hidden} are heads of {hidden // heads}; attention in {precision} "
        f"on a GPU takes multiples of {multiple} up to {most}; {instead}"
    )
