"""Prove before a run that its attention kernel is right, on the run's own shape, by comparison with another kernel.

A kernel can run and be wrong: cuDNN's failures were NaN, not errors (pytorch/pytorch#196678). Random queries, keys and
values go through both kernels, forward and backward, in the passes' own memory layout: once of usual size, once with
logits far larger than in a run. A kernel with wrong numbers is refused, and the next one is proved.
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
    Repeated,
    choose_kernel,
    kernel_name,
    refuse_kernel,
)

LARGE = 20.0
"""Factor on queries and keys for large logits, whose standard deviation is its square, 400."""
MOST = 0.03
"""Largest relative difference, in the L2 norm. On an H100 each kernel was at most 0.0091 away from FP64."""
REFERENCE: dict[type[Kernel], type[Flash] | type[MemoryEfficient]] = {CudnnFlash: Flash, Flash: MemoryEfficient}
"""The kernel with which another one is compared. Kernels that this table lacks are not compared. Heads of keys that
queries share are repeated for it."""


def proved_attention(device: torch.device, dtype: torch.dtype, sizes: DecoderSizes, *, ranks: int, batch: int) -> str:
    """Choose this process's attention kernel; return a line that names it, and the proof.

    ``ranks``: tensor-parallel ranks, which share the heads; ``batch``: samples of a micro-batch. Raises RuntimeError if
    no kernel is right.
    """
    refused, sequence, head_size = "", sizes.seq_length, sizes.head_size
    layout = architecture_of(sizes).attention(sizes, ranks, batch)
    heads, shared = (sizes.columns(role) // (head_size * ranks) for role in ("query", "key"))
    shape = f"{batch} x {heads} heads{'' if shared == heads else f', {shared} of keys'}, {sequence} x {head_size}"
    sharers = heads // shared
    while True:
        deterministic = torch.are_deterministic_algorithms_enabled()
        kernel = choose_kernel(device.type, dtype, sequence, head_size, deterministic, sharers)
        name, reference = kernel_name(kernel), _reference(kernel, sharers)
        if dtype != torch.bfloat16 or reference is None:
            return f"{refused}attention by {name}, which was compared with no other"
        generator = torch.Generator(device).manual_seed(1)
        columns = sizes.columns(*INTO_ATTENTION) // ranks
        qkv = torch.randn(sequence * batch, columns, generator=generator, device=device)
        usual = largest_difference(kernel, reference, qkv.to(dtype), layout)
        for part in layout.split(qkv)[:2]:
            part *= LARGE
        large = largest_difference(kernel, reference, qkv.to(dtype), layout)
        differences = f"{usual:.2g} from {kernel_name(reference)} ({shape}), with large logits {large:.2g}"
        if usual <= MOST and large <= MOST:  # neither is NaN
            strides = layout.attend(qkv.to(dtype), kernel=kernel).attended.out_BNSD.stride()
            return f"{refused}attention by {name}: at most {differences}; its output's strides are {strides}"
        refuse_kernel(kernel)
        refused += f"attention NOT by {name}, which is wrong here: {differences}; "


def _reference(kernel: Kernel, sharers: int) -> Kernel | None:
    reference = REFERENCE.get(type(kernel.kernel if isinstance(kernel, Repeated) else kernel))
    if reference is None:
        return None
    return reference() if sharers == 1 else Repeated(reference())


def largest_difference(kernel: Kernel, reference: Kernel, qkv: Tensor, layout: AttentionLayout) -> float:
    """Return the largest relative difference, in the L2 norm, of the output and of the gradients of queries, keys and
    values; NaN if a kernel's numbers are. ``qkv``: [S x batch, columns]."""
    # ``kernel`` first: memory that it leaves unwritten then does not hold the reference's numbers.
    outs, gradients = zip(*(_passes(candidate, qkv, layout) for candidate in (kernel, reference)), strict=True)
    pairs = [outs, *zip(*map(layout.split, gradients), strict=True)]
    differences = [(ours.float() - expected.float()).norm() / expected.float().norm() for ours, expected in pairs]
    return float(torch.stack(differences).max())  # NaN if one is


def _passes(kernel: Kernel, qkv: Tensor, layout: AttentionLayout) -> tuple[Tensor, Tensor]:
    """Return the output, and the gradient of ``qkv`` for a random gradient of the output."""
    attended = layout.attend(qkv, kernel=kernel)
    out = attended.out()
    gradient = torch.randn(out.shape, generator=torch.Generator(qkv.device).manual_seed(2), device=qkv.device)
    return out, attended.backward(gradient.to(qkv.dtype))
