"""From logits to the loss of each token and to the gradient of the logits, in FP32.

The reference's loss: docs/facts/reference.md c.2. Tensors are named by their axes: V columns of the padded vocabulary
on this rank, T tokens.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Softmax(NamedTuple):
    """Values that make the gradient of the token losses. The first backward pass uses them up."""

    exponentials_TV: Tensor
    """Exponentials of the logits less their maximum, FP32."""
    column_T1: Tensor
    """Column of each label, among this rank's columns."""
    here_T: Tensor | None
    """True for a label among this rank's columns; None if all labels are."""
    total_T: Tensor
    """Sum of the exponentials over all columns of all ranks."""
    dtype: torch.dtype
    """The dtype of the logits, which their gradient has, too."""


def softmax_losses(logits_TV: Tensor, labels_T: Tensor, group: dist.ProcessGroup | None) -> tuple[Tensor, Softmax]:
    """Token losses [T], FP32, and what their gradient needs; takes the memory of FP32 logits.

    They are turned into exponentials and then into the gradient in place, where PyTorch makes three more arrays of
    their size; of BF16 logits it makes one. Between ranks go the maximum, and the sum of exponentials together with the
    label's logit, per token.
    """
    highest = logits_TV.amax(dim=1, keepdim=True)
    column, here = labels_T, None
    if group is not None:
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=group)
        column = labels_T - dist.get_rank(group) * logits_TV.shape[1]
        here = (column >= 0) & (column < logits_TV.shape[1])
        column = column.masked_fill(~here, 0)
    column = column.unsqueeze(1)
    wide = torch.promote_types(logits_TV.dtype, torch.float32)
    shifted = logits_TV.to(wide).sub_(highest)
    of_label = shifted.gather(1, column).squeeze(1)
    exponentials = shifted.exp_()
    sums = torch.stack([exponentials.sum(dim=1), of_label if here is None else of_label * here])
    if group is not None:
        dist.all_reduce(sums, group=group)
    return sums[0].log() - sums[1], Softmax(exponentials, column, here, sums[0], logits_TV.dtype)


def softmax_gradient(softmax: Softmax, gradient_T: Tensor) -> Tensor:
    """Gradient of the logits [T, V]: softmax minus one at the label, times the gradient of the token's loss. Takes the
    memory of the exponentials."""
    gradient = softmax.exponentials_TV.mul_((gradient_T / softmax.total_T).unsqueeze(1))
    of_label = gradient_T if softmax.here_T is None else gradient_T * softmax.here_T
    return gradient.scatter_add_(1, softmax.column_T1, -of_label.unsqueeze(1)).to(softmax.dtype)
