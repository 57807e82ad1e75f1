"""Proof before a run that its attention kernel is right, on the run's own shape, against another kernel.

A kernel can run and be wrong; cuDNN's failures were NaN, not errors (pytorch/pytorch#196678). So queries, keys and
values at random go through both kernels, forward and backward, laid out in memory as the passes have them: once of
usual size, once with logits far larger than a run has. A kernel that is wrong is refused, and the next one taken.
"""

import torch
from torch import Tensor

from model.architectures import architecture_of
from model.decoder_sizes import INTO_ATTENTION, DecoderSizes
from model.passes.attention import (
    AttentionLayout,
    CudnnFlash,
    Flash,
    Kernel,
    MemoryEfficient,
    choose_kernel,
    refuse_kernel,
)

LARGE = 20.0
"""Times the usual, of queries and of keys: the logits' standard deviation is its square, 400."""
MOST = 0.03
"""Largest relative difference, in the L2 norm. On an H100 each kernel was at most 0.0091 away from FP64."""
OTHER: dict[type[Kernel], type[Kernel]] = {CudnnFlash: Flash, Flash: MemoryEfficient}
"""The kernel that proves another one. Kernels that this table lacks are proved by none."""


def proved_attention(device: torch.device, dtype: torch.dtype, config: DecoderSizes, *, ranks: int, batch: int) -> str:
    """Settle which kernel this process takes from now on; says which, and how it was found.

    ``ranks``: tensor-parallel, which share the heads; ``batch``: samples of a micro-batch. Raises RuntimeError where no
    kernel is right.
    """
    said, sequence, size = "", config.seq_length, config.head_size
    way = architecture_of(config).attention(config, ranks, batch)
    heads, shared = (config.columns(role) // (size * ranks) for role in ("query", "key"))
    shape = f"{batch} x {heads} heads{'' if shared == heads else f', {shared} of keys'}, {sequence} x {size}"
    while True:
        deterministic = torch.are_deterministic_algorithms_enabled()
        kernel = choose_kernel(device.type, dtype, sequence, size, deterministic)
        name, other = type(kernel).__name__, OTHER.get(type(kernel))
        if dtype != torch.bfloat16 or other is None:
            return f"{said}attention by {name}, which was compared with no other"
        given = torch.Generator(device).manual_seed(1)
        columns = config.columns(*INTO_ATTENTION) // ranks
        qkv = torch.randn(sequence * batch, columns, generator=given, device=device)
        usual = largest_difference(kernel, other(), qkv.to(dtype), way)
        for part in way.split(qkv)[:2]:
            part *= LARGE
        large = largest_difference(kernel, other(), qkv.to(dtype), way)
        found = f"{usual:.2g} from {other.__name__} ({shape}), with large logits {large:.2g}"
        if usual <= MOST and large <= MOST:  # neither is NaN
            strides = way.attend(qkv.to(dtype), kernel=kernel).attended.out_BNSD.stride()
            return f"{said}attention by {name}: at most {found}; its output's strides are {strides}"
        refuse_kernel(kernel)
        said += f"attention NOT by {name}, which is wrong here: {found}; "


def largest_difference(kernel: Kernel, other: Kernel, qkv: Tensor, way: AttentionLayout) -> float:
    """Relative, in the L2 norm, of the output and of the gradients of queries, keys and values, each for itself; not a
    number where there is none. ``qkv``: [S x batch, columns]."""
    # ``kernel`` first: what it leaves unwritten is then not what the other one has left in the same memory.
    outs, gradients = zip(*(_both(one, qkv, way) for one in (kernel, other)), strict=True)
    pairs = [outs, *zip(*map(way.split, gradients), strict=True)]
    differences = torch.stack([(ours.float() - due.float()).norm() / due.float().norm() for ours, due in pairs])
    return float(differences.max())  # NaN, where one is


def _both(kernel: Kernel, qkv: Tensor, way: AttentionLayout) -> tuple[Tensor, Tensor]:
    """The output, and from one at random the gradient of ``qkv``."""
    done = way.attend(qkv, kernel=kernel)
    out = done.out()
    gradient = torch.randn(out.shape, generator=torch.Generator(qkv.device).manual_seed(2), device=qkv.device)
    return out, done.backward(gradient.to(qkv.dtype))
