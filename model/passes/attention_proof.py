"""Proof before a run that its attention kernel is right, on the run's own shape, against another kernel.

A kernel can run and be wrong; cuDNN's failures were NaN, not errors (pytorch/pytorch#196678). So queries, keys and
values at random go through both kernels, forward and backward, laid out in memory as the passes have them: once of
usual size, once with logits far larger than a run has. A kernel that is wrong is refused, and the next one taken.
"""

import torch
from torch import Tensor

from model.passes.attention import CudnnFlash, Flash, Kernel, MemoryEfficient, attend_by, choose_kernel, refuse_kernel

LARGE = 20.0
"""Times the usual, of queries and of keys: the logits' standard deviation is its square, 400."""
MOST = 0.03
"""Largest relative difference, in the L2 norm. On an H100 each kernel was at most 0.0091 away from FP64."""
OTHER: dict[type[Kernel], type[Kernel]] = {CudnnFlash: Flash, Flash: MemoryEfficient}
"""The kernel that proves another one. Kernels that this table lacks are proved by none."""


def proved_attention(
    device: torch.device, dtype: torch.dtype, *, sequence: int, batch: int, heads: int, size: int
) -> str:
    """Settle which kernel this process takes from now on; says which, and how it was found.

    ``batch``: samples of a micro-batch; ``heads``: of this rank. Raises RuntimeError where no kernel is right.
    """
    said = ""
    while True:
        deterministic = torch.are_deterministic_algorithms_enabled()
        kernel = choose_kernel(device.type, dtype, sequence, size, deterministic)
        name, other = type(kernel).__name__, OTHER.get(type(kernel))
        if dtype != torch.bfloat16 or other is None:
            return f"{said}attention by {name}, which was compared with no other"
        given = torch.Generator(device).manual_seed(1)
        qkv = torch.randn(sequence * batch, heads, 3, size, generator=given, device=device)
        usual = largest_difference(kernel, other(), qkv.to(dtype), batch)
        qkv[:, :, :2] *= LARGE
        large = largest_difference(kernel, other(), qkv.to(dtype), batch)
        shape = f"{batch} x {heads} heads, {sequence} x {size}"
        found = f"{usual:.2g} from {other.__name__} ({shape}), with large logits {large:.2g}"
        if usual <= MOST and large <= MOST:  # neither is NaN
            strides = attend_by(kernel, qkv.to(dtype).flatten(1), batch, heads).attended.out_BNSD.stride()
            return f"{said}attention by {name}: at most {found}; its output's strides are {strides}"
        refuse_kernel(kernel)
        said += f"attention NOT by {name}, which is wrong here: {found}; "


def largest_difference(kernel: Kernel, other: Kernel, qkv: Tensor, batch: int) -> float:
    """Relative, in the L2 norm, of the output and of the gradients of queries, keys and values, each for itself; not a
    number where there is none. ``qkv``: [S x batch, N, 3, D]."""
    rows, heads, _, size = qkv.shape
    gradient = torch.randn(rows, heads * size, generator=torch.Generator(qkv.device).manual_seed(2), device=qkv.device)
    # ``kernel`` first: what it leaves unwritten is then not what the other one has left in the same memory.
    outs, gradients = zip(*(_both(one, qkv, batch, gradient.to(qkv.dtype)) for one in (kernel, other)), strict=True)
    pairs = [outs, *zip(*(each.view(qkv.shape).unbind(2) for each in gradients), strict=True)]
    differences = torch.stack([(ours.float() - due.float()).norm() / due.float().norm() for ours, due in pairs])
    return float(differences.max())  # NaN, where one is


def _both(kernel: Kernel, qkv: Tensor, batch: int, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the gradient of ``qkv``."""
    done = attend_by(kernel, qkv.flatten(1), batch, qkv.shape[1])
    return done.out(), done.backward(gradient)
