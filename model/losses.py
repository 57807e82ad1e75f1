"""From the last hidden state to the loss of each token, in FP32, a part of the logits at a time.

The reference's loss: docs/facts/reference.md c.2. Tensors are named by their axes: B batch, S sequence, H hidden, V
padded vocabulary, T some of the B x S tokens.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LARGEST_LOGITS = 256 << 20
"""Bytes of FP32 logits at once. More tokens than that are taken in turns, whose logits are computed again in the
backward pass: 2 V H more FLOPs per token, 0.12 % of the 175B model's. Without tensor parallelism 2,048 tokens of 51,200
columns are 400 MiB."""


class OutputLayer(nn.Module):
    """Logits by the word embedding's table, which has no bias, and the token losses by them."""

    def forward(self, x_BSH: Tensor, weight_VH: Tensor, labels_BS: Tensor | None) -> Tensor:
        if labels_BS is None:
            return F.linear(x_BSH, weight_VH)
        return in_turns(_losses, x_BSH, weight_VH, labels_BS)


def in_turns(
    losses: Callable[[Tensor, Tensor, Tensor], Tensor], x_BSH: Tensor, weight: Tensor, labels: Tensor
) -> Tensor:
    """``losses(x_TH, weight, labels_T)`` over all tokens, [B, S], never with more than ``LARGEST_LOGITS`` of logits."""
    turns = math.ceil(labels.numel() * weight.shape[0] * 4 / LARGEST_LOGITS)
    x_TH, labels_T = x_BSH.flatten(0, 1), labels.flatten()
    if turns == 1:
        return losses(x_TH, weight, labels_T).view_as(labels).clone()  # FSDP2 cannot hook a view
    parts = [
        checkpoint(losses, x, weight, some, use_reentrant=False, preserve_rng_state=False)
        for x, some in zip(x_TH.chunk(turns), labels_T.chunk(turns), strict=True)
    ]
    return torch.cat(parts).view_as(labels).clone()


def token_losses(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Negative log likelihood of each label in nats, [B, S], in FP32 from logits of any dtype.

    FP64 logits stay FP64, for comparisons.
    """
    return cross_entropy(logits_BSV.flatten(0, -2).clone(), labels_BS.flatten(), None).view_as(labels_BS)


def cross_entropy(logits_TV: Tensor, labels_T: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The same over [T, V], whose memory it takes; with ``group``, each of its ranks has some of the columns, in the
    order of ranks."""
    losses: Tensor = _CrossEntropy.apply(logits_TV, labels_T, group)  # type: ignore[no-untyped-call]
    return losses


def _losses(x_TH: Tensor, weight_VH: Tensor, labels_T: Tensor) -> Tensor:
    return cross_entropy(F.linear(x_TH, weight_VH), labels_T, None)


class Softmax(NamedTuple):
    """What the gradient of the token losses is made of. The first backward pass uses it up."""

    exponentials_TV: Tensor
    """Of the logits less their maximum, FP32."""
    column_T1: Tensor
    """Column of each label, among this rank's columns."""
    here_T: Tensor | None
    """Whether the label is among this rank's columns; None where all are."""
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


class _CrossEntropy(torch.autograd.Function):
    """:func:`softmax_losses` for autograd."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        losses, softmax = softmax_losses(logits, labels, group)
        ctx.here, ctx.dtype, ctx.spent = softmax.here_T, softmax.dtype, False
        ctx.save_for_backward(softmax.exponentials_TV, softmax.column_T1, softmax.total_T)
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        assert not ctx.spent, (
            "a second backward pass through the same losses: what it needs was turned into the first's"
        )
        ctx.spent = True
        exponentials, column, total = ctx.saved_tensors
        return softmax_gradient(Softmax(exponentials, column, ctx.here, total, ctx.dtype), gradients[0]), None, None
