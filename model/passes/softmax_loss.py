"""Token losses of a logits tile, and their gradient. Both are computed in FP32, as the reference does
(docs/facts/reference.md c.2), or wider.

On a CPU the exponentials are stored. Where compiled kernels run (fused_kernel.py), the first reads the logits, and the
second computes the exponentials again and puts the gradient in their place: 6 bytes per BF16 logit instead of 42.
Tensors are named by their axes: T tokens, V rows of the output's table on this rank.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from model.fused_kernel import fused


class Softmax(NamedTuple):
    """Values from which the gradient of the token losses is made, once: it overwrites the logits."""

    logits_TV: Tensor
    """The logits. Their gradient takes their memory; in FP32 the exponentials have taken it already."""
    exponentials_TV: Tensor | None
    """Exponentials of the logits less their maximum, FP32; None if they are computed again."""
    highest_T1: Tensor
    """Largest logit of all columns of all ranks."""
    column_T1: Tensor
    """Column of each label, among this rank's columns."""
    is_own_T: Tensor | None
    """True for a label among this rank's columns; None if all labels are."""
    total_T: Tensor
    """Sum of the exponentials over all columns of all ranks."""


def softmax_losses(logits_TV: Tensor, labels_T: Tensor, group: dist.ProcessGroup | None) -> tuple[Tensor, Softmax]:
    """Return the token losses [T], FP32, and the values from which the logits' gradient is made.

    The ranks exchange, of each token, the maximum, and the sum of exponentials together with the label's logit.
    """
    column_T1, is_own_T = labels_T.unsqueeze(1), None
    if group is not None:
        column_T1 = column_T1 - dist.get_rank(group) * logits_TV.shape[1]
        is_own_T = (column_T1 >= 0) & (column_T1 < logits_TV.shape[1])
        column_T1, is_own_T = column_T1.masked_fill(~is_own_T, 0), is_own_T.squeeze(1)
    exponentials_TV = None
    if exponential_sums.is_fused and put_logits_gradient.is_fused:
        own_highest_T1, own_total_T1 = exponential_sums(logits_TV)
        highest_T1 = _highest(own_highest_T1, group)
        total_T = (own_total_T1 * (own_highest_T1 - highest_T1).exp()).squeeze(1)
        of_label_T = (logits_TV.gather(1, column_T1) - highest_T1).squeeze(1)
    else:
        highest_T1 = _highest(logits_TV.amax(dim=1, keepdim=True), group)
        shifted_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32)).sub_(highest_T1)
        of_label_T = shifted_TV.gather(1, column_T1).squeeze(1)
        exponentials_TV = shifted_TV.exp_()
        total_T = exponentials_TV.sum(dim=1)
    sums = torch.stack([total_T, of_label_T if is_own_T is None else of_label_T * is_own_T])
    if group is not None:
        dist.all_reduce(sums, group=group)
    softmax = Softmax(logits_TV, exponentials_TV, highest_T1, column_T1, is_own_T, sums[0])
    return sums[0].log() - sums[1], softmax


def softmax_gradient(softmax: Softmax, gradient_T: Tensor) -> Tensor:
    """Return the gradient of the logits [T, V], in their memory: softmax minus one at the label, times the gradient of
    the token's loss."""
    factor_T1 = (gradient_T / softmax.total_T).unsqueeze(1)
    of_label_T1 = (gradient_T if softmax.is_own_T is None else gradient_T * softmax.is_own_T).unsqueeze(1)
    if softmax.exponentials_TV is None:
        put_logits_gradient(softmax.logits_TV, softmax.highest_T1, softmax.column_T1, factor_T1, of_label_T1)
        return softmax.logits_TV
    gradient_TV = softmax.exponentials_TV.mul_(factor_T1)
    gradient_TV.scatter_add_(1, softmax.column_T1, -of_label_T1)
    return gradient_TV if gradient_TV.dtype == softmax.logits_TV.dtype else softmax.logits_TV.copy_(gradient_TV)


@fused(7)
def exponential_sums(logits_TV: Tensor) -> tuple[Tensor, Tensor]:
    """Return, of each row, the largest logit and the sum of the exponentials of the logits less it; [T, 1], FP32."""
    wide_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
    highest_T1 = wide_TV.amax(dim=1, keepdim=True)
    return highest_T1, (wide_TV - highest_T1).exp().sum(dim=1, keepdim=True)


@fused(7, changes=(0,))
def put_logits_gradient(
    logits_TV: Tensor, highest_T1: Tensor, column_T1: Tensor, factor_T1: Tensor, of_label_T1: Tensor
) -> None:
    """Put the exponentials times ``factor_T1`` in the place of the logits, less ``of_label_T1`` at the label."""
    wide_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
    gradient_TV = (wide_TV - highest_T1).exp() * factor_T1
    is_label_TV = torch.arange(logits_TV.shape[1], device=logits_TV.device) == column_T1
    torch.sub(gradient_TV, torch.where(is_label_TV, of_label_T1, 0.0), out=logits_TV)


def _highest(own_highest_T1: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Return the largest of all ranks."""
    if group is None:
        return own_highest_T1
    highest_T1 = own_highest_T1.clone()
    dist.all_reduce(highest_T1, dist.ReduceOp.MAX, group=group)
    return highest_T1
