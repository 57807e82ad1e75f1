"""Checks of the fields of a configuration."""

import math
import re
from dataclasses import fields

from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from foundation.errors import InputError
from model.decoder_sizes import DecoderSizes


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number in ascending order, with 1 and the number itself."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]


def listed(numbers: list[int]) -> str:
    """``1, 2, 4``"""
    return ", ".join(map(str, numbers))


def require_seed(seed: int) -> None:
    """Raise InputError for a seed that the generator of the data order (NumPy's Mersenne Twister) does not take."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed {seed}: expected 0 to {2**32 - 1}; change --seed")


def step_range(text: str) -> tuple[int, int]:
    """Parse ``FIRST:LAST``. Raises InputError for any other text."""
    match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", text)
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    if first > last or last == 0:
        raise InputError(f"steps {text!r:.40}: expected FIRST:LAST, such as 176:192; change --steps")
    return first, last


def require_positive(config: object, *names: str) -> None:
    """Raise InputError where a field of these names is below 1; it names the option of that name."""
    for name in names:
        if getattr(config, name) < 1:
            raise InputError(f"{name} {getattr(config, name)}: expected at least 1; change --{name.replace('_', '-')}")


HEAD_SIZES = {"bfloat16": (8, 256), "float32": (4, 65536)}
"""Sizes of attention heads that a GPU's kernels take (model/passes/attention.py), by type: a multiple of the first
number, and at most the second. They are FlashAttention's, and those of the memory-efficient kernel, of which PyTorch
2.11 has just the aligned ones for Ampere and newer. On a CPU any size does."""


def require_head_size(model: DecoderSizes, precision: Precision, tensor_parallel: int) -> None:
    """Raise InputError for heads that no kernel of a GPU takes, with numbers of heads that would do."""
    multiple, most = HEAD_SIZES[NUMBER_FORMATS[precision].value_dtype]
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


FP8_MULTIPLE = 16
"""Each size of an FP8 product on a GPU is a multiple of this: its rows begin at addresses of 16 bytes. Tokens are among
the sizes, for weight gradients sum over them. CPUs take any size (docs/facts/fp8.md 3)."""


def require_fp8_sizes(model: DecoderSizes, *, micro_batch_size: int, tensor_parallel: int, num_devices: int) -> None:
    """Raise InputError, with sizes that can, if a product of a device has a size that FP8 kernels do not take."""
    tokens, instead = micro_batch_size * model.seq_length, "or choose --precision bf16"
    if tokens % FP8_MULTIPLE:
        least = next(size for size in divisors(FP8_MULTIPLE) if not size * model.seq_length % FP8_MULTIPLE)
        raise InputError(
            f"--precision fp8: micro_batch_size {micro_batch_size} x seq_length {model.seq_length} are {tokens} "
            f"tokens, not a multiple of {FP8_MULTIPLE}; use --micro-batch-size {least} or a multiple of it, {instead}"
        )
    unfit = unfit_for_fp8(model, tensor_parallel)
    if not unfit:
        return
    possible = [
        ranks
        for ranks in divisors(num_devices)
        if not unfit_for_fp8(model, ranks)
        and not any(getattr(model, name) % ranks for name in model.cut_by_tensor_parallelism)
    ]
    own_width = any(field.name == "ffn_hidden_size" for field in fields(model))
    widths = "--hidden-size or --ffn-hidden-size" if own_width else "--hidden-size"
    mend = f"--tensor-parallel may be {listed(possible)}" if possible else f"change {widths}"
    raise InputError(
        f"--precision fp8: {unfit[0]} on a device with tensor_parallel {tensor_parallel}, not multiples of "
        f"{FP8_MULTIPLE}; {mend}, {instead}"
    )


def unfit_for_fp8(model: DecoderSizes, tensor_parallel: int) -> list[str]:
    """Return the products of a block, in words, whose sizes on a device FP8 kernels do not take."""
    of_rank = {name: product.on_rank(tensor_parallel) for name, product in model.products.items()}
    return [
        f"{name} multiplies {inputs} x {outputs}"
        for name, (inputs, outputs) in of_rank.items()
        if inputs % FP8_MULTIPLE or outputs % FP8_MULTIPLE
    ]
